// The unmodified JavaScript client with its WebSocket transport, from another origin.

import { SHARE_SPREAD, judge, judgeSound, withoutRunner } from './reference.mjs';
import { sleep, until } from './runner.mjs';
import { HEARD } from './watch.mjs';

const HZ = 440;
/** Of the sound in a span: the blocks of the player that are on their way to the check. */
const BLOCKS_S = 0.2;

async function open(context, origin) {
	const page = await context.newPage();
	await page.goto(origin);
	await page.waitForFunction(() => globalThis.talk);
	return page;
}

const seen = (page, name) => page.evaluate(
	(wanted) => globalThis.talk.events.filter((e) => e.name === wanted).map((e) => e.data), name);
const hears = (page, seconds) => page.evaluate(([s, hz]) => globalThis.talk.hear(s, hz), [seconds, HZ]);

/** Starts and gives what `bot-ready` said. */
async function start(page, runner) {
	const { answer, ready } = await page.evaluate((url) => globalThis.talk.start(url), runner.url);
	if (!ready.version.startsWith('2.')) throw new Error(JSON.stringify(ready));
	return answer;
}

async function asks(page, n) {
	const answer = await page.evaluate((data) => globalThis.talk.request('anything', data), { n });
	if (answer?.n !== n) throw new Error(`asked with ${n}, answered ${JSON.stringify(answer)}`);
}

async function leaves(page, runner) {
	await page.evaluate(() => globalThis.talk.disconnect());
	const freed = await runner.waitForSessions(0);
	await page.close();
	return `freed after ${freed} s`;
}

/** Fails unless the connection is refused. */
async function refused(page, params) {
	const said = await page.evaluate((given) => globalThis.talk.connect(given).then(() => 'connected', String), params);
	if (!said.includes('Failed to connect')) throw new Error(`not refused: ${said}`);
}

export const checks = {
	async 'websocket: bot-ready, the own voice, a request and its answer, a clean leave'(context, runner, origin) {
		const page = await open(context, origin);
		const begun = Date.now();
		const answer = await start(page, runner);
		const took = Date.now() - begun;
		if (!answer.sessionId || 'token' in answer) throw new Error(JSON.stringify(answer));
		await asks(page, 7);
		// As long as the microphone's sentence and its pause.
		const { energy } = await hears(page, 9);
		if (energy < HEARD) throw new Error(`energy ${energy}`);
		return `bot-ready after ${took} ms, energy ${energy.toFixed(3)}, ${await leaves(page, runner)}`;
	},

	async 'websocket: a tone comes back at its pitch, and without gaps'(context, runner, origin) {
		const page = await open(context, origin);
		await page.evaluate((hz) => globalThis.talk.hum(hz), HZ);
		const reference = await withoutRunner(page, HZ);
		await start(page, runner);
		await sleep(1000);
		const heard = await hears(page, 4);
		judge('seconds of sound in four', heard.seconds, 4, BLOCKS_S);
		return `${judgeSound(heard, reference)}, ${await leaves(page, runner)}`;
	},

	async 'websocket: a microphone turned off and on'(context, runner, origin) {
		const page = await open(context, origin);
		await page.evaluate((hz) => globalThis.talk.hum(hz), HZ);
		await start(page, runner);
		await page.evaluate(() => globalThis.talk.muted(true));
		await sleep(1000);
		const { energy: rest } = await hears(page, 2);
		await asks(page, 9);
		await page.evaluate(() => globalThis.talk.muted(false));
		await sleep(500);
		const { energy } = await hears(page, 2);
		if (rest > energy / 1000 || energy < HEARD) throw new Error(`energy ${rest} while off, ${energy} then`);
		return `energy ${energy.toFixed(3)}, ${await leaves(page, runner)}`;
	},

	async 'websocket: disconnectBot ends the session with close code 1000'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		await page.evaluate(() => globalThis.talk.disconnectBot());
		const freed = await runner.waitForSessions(0);
		const [error] = await until(async () => (await seen(page, 'error')).length && seen(page, 'error'), 'the close');
		if (!JSON.stringify(error).includes('Code: 1000')) throw new Error(JSON.stringify(error));
		await page.close();
		return `freed after ${freed} s`;
	},

	async 'websocket: a killed tab is gone from /status at once'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		if ((await runner.sessions()) !== 1) throw new Error('no session');
		const devtools = await context.newCDPSession(page);
		// The command crashes the process that would answer it.
		devtools.send('Page.crash').catch(() => {});
		const freed = await runner.waitForSessions(0);
		await page.close();
		return `freed after ${freed} s`;
	},

	async 'websocket: a runner that ends says so'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		const code = await runner.terminate();
		await until(async () => (await page.evaluate(() => globalThis.talk.state())) === 'disconnected', 'disconnected');
		const [error] = await seen(page, 'error');
		await page.close();
		if (code !== 0) throw new Error(`the runner ended with ${code}`);
		return error?.data?.error ?? JSON.stringify(error);
	},

	async 'websocket: the client as a telephone hears itself'(context, runner, origin) {
		const page = await open(context, origin);
		await page.evaluate((hz) => globalThis.talk.hum(hz), HZ);
		const reference = await withoutRunner(page, HZ);
		await page.evaluate((url) => globalThis.talk.telephone(url), runner.url);
		await sleep(1000);
		const { share } = await hears(page, 3);
		return `${judge('share', share, reference.share, SHARE_SPREAD)}, ${await leaves(page, runner)}`;
	},
};

/** For a bot of Pipecat that greets and plays back what it hears. */
export const pipecatChecks = {
	async 'websocket: an unchanged Pipecat bot plays back, and ends with a clean leave'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		// As long as the microphone's sentence and its pause.
		const { energy } = await hears(page, 9);
		if (energy < HEARD) throw new Error(`energy ${energy}`);
		const said = `energy ${energy.toFixed(3)}, ${await leaves(page, runner)}`;
		if (runner.log.some((line) => /failed|Traceback/.test(line))) throw new Error('the bot failed');
		return said;
	},
};

/** For a runner with `--ws-auth token`. */
export const tokenChecks = {
	async 'websocket: a token opens once, nothing else does'(context, runner, origin) {
		const page = await open(context, origin);
		const { wsUrl, token } = await start(page, runner);
		if (!token) throw new Error('no token');
		await asks(page, 7);
		await page.evaluate(() => globalThis.talk.disconnect());
		await runner.waitForSessions(0);
		await refused(page, { wsUrl, token });
		await refused(page, { wsUrl });
		await refused(page, { wsUrl: `${wsUrl}/${token}` });
		const telephone = await (await fetch(`${runner.url}/start`, {
			method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"transport":"twilio"}',
		})).json();
		if (!telephone.token) throw new Error(`no token for a telephone: ${JSON.stringify(telephone)}`);
		await refused(page, { wsUrl, token: telephone.token });
		if ((await runner.sessions()) !== 0) throw new Error('a refused client has a session');
		const fresh = await start(page, runner);
		if (fresh.token === token) throw new Error('the same token twice');
		return leaves(page, runner);
	},
};
