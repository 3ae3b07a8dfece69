// The unmodified JavaScript client against the runner, from another origin.

import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { sleep, until } from './runner.mjs';
import { HEARD, received } from './watch.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const HTML = '<!doctype html><meta charset="utf-8"><title>client</title><script type="module" src="client.js"></script>';

/** Serves one of the scripts here, bundled with its client, on a free port of its own. */
export async function serveClient(entry = 'client-page.js') {
	const { outputFiles } = await build({
		entryPoints: [join(HERE, entry)],
		bundle: true, format: 'esm', write: false, logLevel: 'error', jsx: 'automatic',
		define: { 'process.env.NODE_ENV': '"production"' },
	});
	const server = createServer((request, reply) => {
		const script = request.url === '/client.js';
		reply.setHeader('Content-Type', script ? 'text/javascript' : 'text/html');
		reply.end(script ? outputFiles[0].contents : HTML);
	});
	await new Promise((done) => server.listen(0, '127.0.0.1', done));
	return { url: `http://localhost:${server.address().port}/`, close: () => server.close() };
}

async function open(context, origin) {
	const page = await context.newPage();
	await page.goto(origin);
	await page.waitForFunction(() => globalThis.talk);
	return page;
}

/** Starts and gives what `bot-ready` said. */
const start = (page, runner) => page.evaluate((url) => globalThis.talk.start(url), runner.url);
const seen = (page, name) => page.evaluate((wanted) => globalThis.talk.events.filter((e) => e.name === wanted).length, name);

async function hears(page, limitMs = 60000) {
	const before = (await received(page)).energy;
	let last;
	return until(async () => {
		last = await received(page);
		const now = last.energy - before;
		return now > HEARD && now;
	}, 'sound of the bot', limitMs).catch((error) => {
		throw new Error(`${error.message}; at the end ${JSON.stringify(last)}`);
	});
}

async function asks(page, n) {
	const answer = await page.evaluate((data) => globalThis.talk.request('anything', data), { n });
	if (answer?.n !== n) throw new Error(`asked with ${n}, answered ${JSON.stringify(answer)}`);
}

/** A bot for Pipecat's own runner, as it is: the module with its interpreter, and the file. */
export const pipecatArgs = (python) => ['--python', python, join(HERE, '../pipecat/compared_bot.py')];

/** The bot greets and plays back what it hears. */
export const pipecatChecks = {
	async 'client: an unchanged Pipecat bot greets, plays back, and ends with a clean leave'(context, runner, origin) {
		const page = await open(context, origin);
		const ready = await start(page, runner);
		if (ready.about?.library !== 'pipecat-ai') throw new Error(JSON.stringify(ready));
		await until(() => seen(page, 'bot-stopped-speaking'), 'the end of the greeting');
		const energy = await hears(page);
		await page.evaluate(() => globalThis.talk.disconnect());
		const freed = await runner.waitForSessions(0);
		await page.close();
		if (runner.log.some((line) => /failed|Traceback/.test(line))) throw new Error('the bot failed');
		return `${ready.about.library} ${ready.about.library_version}, energy ${energy.toFixed(3)}, freed after ${freed} s`;
	},
};

/** Runs in the page: every connection offers this codec for audio, and no other. */
function preferring(mimeType) {
	const { createOffer } = RTCPeerConnection.prototype;
	RTCPeerConnection.prototype.createOffer = function offer(...given) {
		const wanted = RTCRtpReceiver.getCapabilities('audio').codecs.filter((codec) => codec.mimeType === mimeType);
		for (const transceiver of this.getTransceivers()) {
			if (transceiver.receiver.track.kind === 'audio') transceiver.setCodecPreferences(wanted);
		}
		return createOffer.apply(this, given);
	};
}

export const checks = {
	async 'client: bot-ready, sound, a request and its answer, a clean leave'(context, runner, origin) {
		const page = await open(context, origin);
		const begun = Date.now();
		const ready = await start(page, runner);
		const took = Date.now() - begun;
		if (!ready.version.startsWith('2.')) throw new Error(JSON.stringify(ready));
		await asks(page, 7);
		const energy = await hears(page);
		await until(() => seen(page, 'track'), 'the track of the bot');
		await page.evaluate(() => globalThis.talk.disconnect());
		const freed = await runner.waitForSessions(0);
		await page.close();
		return `bot-ready after ${took} ms, energy ${energy.toFixed(3)}, freed after ${freed} s`;
	},

	async 'client: messages and sound go on after restart_pc'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		await hears(page);
		await page.evaluate(() => globalThis.talk.restart());
		await until(async () => {
			const { connections, state } = await received(page);
			return connections === 2 && state === 'connected';
		}, 'the second connection');
		await until(async () => asks(page, 8).then(() => true, () => false), 'an answer on the new channel');
		const packets = (await received(page)).packets;
		await until(async () => (await received(page)).packets > packets + 50, 'packets on the new connection');
		await page.evaluate(() => globalThis.completeNewest());
		const energy = await hears(page);
		if ((await runner.sessions()) !== 1) throw new Error('not the same session');
		await page.evaluate(() => globalThis.talk.disconnect());
		const freed = await runner.waitForSessions(0);
		await page.close();
		return `energy ${energy.toFixed(3)}, freed after ${freed} s`;
	},

	async 'client: PCMU and PCMA, as the page prefers them'(context, runner, origin) {
		const said = [];
		for (const codec of ['PCMU', 'PCMA']) {
			const page = await context.newPage();
			await page.addInitScript(preferring, `audio/${codec}`);
			await page.goto(origin);
			await page.waitForFunction(() => globalThis.talk);
			await start(page, runner);
			await asks(page, 10);
			const energy = await hears(page);
			const { codec: spoken } = await received(page);
			if (spoken !== `audio/${codec}`) throw new Error(`${spoken} in place of ${codec}`);
			if (!runner.log.some((line) => line.includes(`session started: webrtc, ${codec}`))) throw new Error('not in the log');
			await page.evaluate(() => globalThis.talk.disconnect());
			await runner.waitForSessions(0);
			await page.close();
			said.push(`${codec}: energy ${energy.toFixed(3)}`);
		}
		return said.join(', ');
	},

	async 'client: a killed tab is gone from /status in time'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		await until(async () => (await received(page)).packets > 50, 'packets');
		const devtools = await context.newCDPSession(page);
		// The command crashes the process that would answer it.
		devtools.send('Page.crash').catch(() => {});
		await sleep(100);
		if ((await runner.sessions()) !== 1) throw new Error('gone before it could be noticed');
		const freed = await runner.waitForSessions(0, 35000);
		await page.close();
		return `freed after ${freed} s`;
	},

	async 'client: a microphone turned off and on'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		await hears(page);
		await page.evaluate(() => globalThis.talk.muted(true));
		await sleep(4000);
		await asks(page, 9);
		await page.evaluate(() => globalThis.talk.muted(false));
		const energy = await hears(page);
		await page.evaluate(() => globalThis.talk.disconnect());
		await runner.waitForSessions(0);
		await page.close();
		return `energy ${energy.toFixed(3)}`;
	},

	async 'client: a runner that ends says so (peerLeft)'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		const code = await runner.terminate();
		await until(() => seen(page, 'bot-left'), 'onBotDisconnected');
		await until(async () => (await page.evaluate(() => globalThis.talk.state())) === 'disconnected', 'disconnected');
		await page.close();
		if (code !== 0) throw new Error(`the runner ended with ${code}`);
	},
};
