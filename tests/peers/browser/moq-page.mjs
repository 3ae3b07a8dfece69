// The built-in page over MoQ: it talks and hears, and says in plain words why it cannot.

import { createSocket } from 'node:dgram';
import {
	assertFits, closeTab, connect, endRunner, hangUp, interrupt, isPhase, listen, loseRunner, open, phase, says, shoot, talk, text,
} from './page.mjs';
import { sleep, until } from './runner.mjs';
import { HEARD, received, watch } from './watch.mjs';

async function udpSocket() {
	const socket = createSocket('udp6');
	await new Promise((done) => { socket.bind(0, '::', done); });
	return socket;
}

const ADDRESS = '/client/?transport=moq';

/** Changes the answer of /start on its way to the page. */
const answerWith = (page, change) => page.route('**/start', async (route) => {
	const response = await route.fetch();
	const json = await response.json();
	change(json.moq);
	await route.fulfill({ response, json });
});

/** Connects a page that cannot, and gives what it says. */
async function fails(page, runner, out, name) {
	await page.goto(`${runner.url}${ADDRESS}`);
	await page.locator('#server[data-ok=true]').waitFor();
	await page.locator('#connect').click();
	await page.locator('#problem').waitFor({ state: 'visible' });
	if ((await phase(page)) !== 'idle') throw new Error(`the page is ${await phase(page)}`);
	await shoot(page, out, `moq-${name}`);
	await assertFits(page);
	return text(page, 'problem');
}

function assertSays(problem, ...wanted) {
	for (const words of wanted) if (!problem.includes(words)) throw new Error(`“${words}” is not in: ${problem}`);
}

/** Everything in the log, with the details that are closed. */
async function wholeLog(page) {
	await page.evaluate(() => document.querySelectorAll('#log details').forEach((each) => { each.open = true; }));
	return until(async () => { const log = await text(page, 'log'); return log.includes('relayUrl') && log; }, 'the answer in the log');
}

/** The answer that /start gives the page next. */
const answerTo = (page) => page.waitForResponse('**/start').then((response) => response.json());

/** For a runner with `--ws-auth token`. */
export const tokenChecks = {
	async 'moq: with --ws-auth token the page carries the token of the URL, and its log leaves it out'(context, runner) {
		const { page, faults } = await open(context, `${runner.url}${ADDRESS}`);
		const answer = answerTo(page);
		await connect(page, page.url());
		const token = (await answer).moq.relayUrl.split('/moq/')[1];
		if (!(token?.length > 20)) throw new Error(JSON.stringify(await answer));
		const sound = await listen(page);
		const energy = await until(async () => (await sound.read()).energy > HEARD && (await sound.read()).energy, 'sound of the bot', 60000);
		const log = await wholeLog(page);
		if (log.includes(token) || !/"relayUrl": "https:\/\/[^/]+\/\(left out\)"/.test(log)) throw new Error(log);
		return `energy ${energy.toFixed(3)}, ${await hangUp(page, runner, faults)}`;
	},
};

/** For a runner behind a relay. */
export const relayChecks = {
	async 'moq: through the relay the page connects, hears the parrot, is muted, and hangs up'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		const answer = answerTo(page);
		await connect(page, page.url());
		if ((await answer).moq.serve !== false) throw new Error(JSON.stringify(await answer));
		const sound = await listen(page);
		const heard = await talk(page, out, 'moq-relay', async () => (await sound.read()).energy);
		// The page says goodbye, else the runner would wait for it.
		return `${heard}, ${await hangUp(page, runner, faults)}`;
	},

	async 'moq: a relay that the page does not reach is said in plain words'(context, runner, out) {
		const page = await context.newPage();
		const hole = await udpSocket();
		const devtools = await context.newCDPSession(page);
		await devtools.send('Page.setBypassCSP', { enabled: true });
		const { port } = hole.address();
		await answerWith(page, (moq) => { moq.relayUrl = `https://localhost:${port}/moq?jwt=secret`; });
		const problem = await fails(page, runner, out, 'relay-udp');
		assertSays(problem, 'UDP is blocked on the way to the relay', `UDP port ${port}`, `--moq-connect https://localhost:${port}/moq`);
		hole.close();
		await answerWith(page, (moq) => { moq.certHash = Buffer.alloc(32, 1).toString('base64'); });
		const refused = await fails(page, runner, out, 'relay-certificate');
		assertSays(refused, 'rejects the MoQ relay', '--moq-tls-cert');
		for (const said of [problem, refused]) if (/--moq-bind|whether it listens|secret/.test(said)) throw new Error(said);
		await page.close();
	},
};

export const checks = {
	async 'moq: the page connects, hears the parrot, is muted, disconnects'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await page.locator('#options summary').click();
		// With -t it is the choice without a click.
		await page.locator('input[value=moq]:checked').waitFor();
		await shoot(page, out, 'moq-options');
		const modules = () => page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name.split('/').pop()));
		if ((await modules()).includes('moq.js')) throw new Error('moq.js was loaded before it was needed');
		await connect(page, page.url());
		if (!(await modules()).includes('moq.js')) throw new Error('moq.js was not loaded');
		if ((await received(page)).connections) throw new Error('over WebRTC');
		const sound = await listen(page);
		const heard = await talk(page, out, 'moq', async () => (await sound.read()).energy);
		const log = await text(page, 'log');
		if (/\d(error)/.test(log)) throw new Error(log);
		return `${heard}, ${await hangUp(page, runner, faults)}`;
	},

	async 'moq: two pages talk at once, and the keypad reaches the bot of each'(context, runner) {
		const pages = [];
		for (const key of ['3', '7']) {
			const page = await context.newPage();
			const faults = watch(page);
			await connect(page, `${runner.url}${ADDRESS}`);
			await page.locator('#keypad-open').click();
			await page.locator('#keypad button', { hasText: key }).click();
			await says(page, 'transcript', `You pressed ${key}.`);
			pages.push({ page, key, faults });
		}
		for (const { page, key, faults } of pages) {
			const other = key === '3' ? '7' : '3';
			if ((await text(page, 'transcript')).includes(`You pressed ${other}.`)) throw new Error(`the page of ${key} got ${other}`);
			if (faults.length) throw new Error(faults.join('\n'));
		}
		if ((await runner.sessions()) !== 2) throw new Error(`${await runner.sessions()} sessions`);
		for (const { page } of pages) await page.close();
		return `freed after ${await runner.waitForSessions(0)} s`;
	},

	async 'moq: the page falls silent when the bot is interrupted'(context, runner) {
		return interrupt(context, `${runner.url}${ADDRESS}`);
	},

	async 'moq: a page that only listens stays connected, and takes a microphone later'(context, runner) {
		const page = await context.newPage();
		const faults = watch(page);
		await page.goto(`${runner.url}${ADDRESS}`);
		await page.locator('#server[data-ok=true]').waitFor();
		await page.locator('#mic').selectOption('none');
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		// Longer than the idle time of QUIC.
		await sleep(35000);
		if ((await phase(page)) !== 'ready') throw new Error(await text(page, 'status'));
		const sound = await listen(page);
		await page.locator('#mic').selectOption('');
		const energy = await until(async () => (await sound.read()).energy > HEARD && (await sound.read()).energy, 'sound of the bot', 60000);
		return `energy ${energy.toFixed(3)}, ${await hangUp(page, runner, faults)}`;
	},

	async 'moq: a closed tab ends the session'(context, runner) {
		return closeTab(context, runner, `${runner.url}${ADDRESS}`);
	},

	async 'moq: a runner that ends says so'(context, runner) {
		const status = await endRunner(context, runner, `${runner.url}${ADDRESS}`);
		if (!status.includes('Call ended')) throw new Error(status);
		return status;
	},

	async 'moq: a lost runner is said in plain words'(context, runner, out) {
		await loseRunner(context, runner, `${runner.url}${ADDRESS}`, out, 'moq-lost');
	},

	async 'moq: a browser without WebTransport is told so, and no session starts'(context, runner, out) {
		const page = await context.newPage();
		const faults = watch(page);
		await page.addInitScript(() => { delete globalThis.WebTransport; });
		assertSays(await fails(page, runner, out, 'browser'), 'cannot speak MoQ', 'WebTransport', 'without -t moq');
		if ((await runner.sessions()) !== 0 || faults.length) throw new Error(`${await runner.sessions()} sessions\n${faults.join('\n')}`);
		await page.close();
	},

	async 'moq: another certificate than that of the hash is said in plain words'(context, runner, out) {
		const page = await context.newPage();
		await answerWith(page, (moq) => { moq.certHash = Buffer.alloc(32, 1).toString('base64'); });
		assertSays(await fails(page, runner, out, 'certificate'), 'rejects the MoQ server', 'the certificate', 'certHash');
		await page.close();
	},

	async 'moq: blocked UDP is said in plain words'(context, runner, out) {
		const page = await context.newPage();
		// A socket that nobody reads. The policy of the page allows the port of the runner alone.
		const hole = await udpSocket();
		const devtools = await context.newCDPSession(page);
		await devtools.send('Page.setBypassCSP', { enabled: true });
		const { port } = hole.address();
		await answerWith(page, (moq) => { moq.relayUrl = `https://localhost:${port}/moq`; });
		assertSays(await fails(page, runner, out, 'udp'), 'UDP is blocked', `UDP port ${port}`, '--moq-bind', 'VPN');
		hole.close();
		await page.close();
	},
};
