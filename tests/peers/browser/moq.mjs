// The unmodified JavaScript client with its transport of Media over QUIC, from another origin.

import { GROUP_SPREAD, judgeSound, withoutRunner } from './reference.mjs';
import { sleep, until } from './runner.mjs';

const HZ = 440;
// A time limit: the idle time of QUIC, and some polls of it.
const VANISHED_MS = 30000 + 8000;
// A runner behind a relay waits as long for a peer to come back.
const AWAY_MS = 30000 + 8000;

async function open(context, origin) {
	const page = await context.newPage();
	page.said = [];
	page.on('console', (message) => page.said.push(message.text()));
	await page.goto(origin);
	await page.waitForFunction(() => globalThis.talk);
	await page.evaluate((hz) => globalThis.talk.hum(hz), HZ);
	page.reference = await withoutRunner(page, HZ);
	return page;
}

const said = (page) => `; the page says ${JSON.stringify(page.said.slice(-12))}`;

/** Starts, and gives what `/start` answered and the milliseconds until `bot-ready`. */
async function start(page, runner) {
	const begun = Date.now();
	const limit = sleep(20000).then(() => { throw new Error(`no bot-ready${said(page)}`); });
	const { answer, ready } = await Promise.race([page.evaluate((url) => globalThis.talk.start(url), runner.url), limit]);
	if (!ready.version.startsWith('2.')) throw new Error(JSON.stringify(ready));
	return { answer, took: Date.now() - begun };
}

async function asks(page, n) {
	const answer = await page.evaluate((data) => globalThis.talk.request('anything', data), { n });
	if (answer?.n !== n) throw new Error(`asked with ${n}, answered ${JSON.stringify(answer)}`);
}

class PlayerSilent extends Error {}

/** Waits until the own tone comes back, as clean and as free of gaps as without the runner. */
async function hears(page, limitMs = 20000) {
	let why;
	return until(async () => {
		const last = await page.evaluate((hz) => globalThis.talk.hear(2, hz), HZ);
		try {
			return judgeSound(last, page.reference, GROUP_SPREAD, GROUP_SPREAD);
		} catch (error) {
			why = error.message;
			return false;
		}
	}, 'the own tone', limitMs).catch((error) => {
		throw new PlayerSilent(`${error.message}; at the end ${why}${said(page)}`);
	});
}

async function leaves(page, runner) {
	await page.evaluate(() => globalThis.talk.disconnect());
	const freed = await runner.waitForSessions(0);
	await page.close();
	return `freed after ${freed} s`;
}

const ATTEMPTS = 3;

/** The published player falls silent for good when the machine stands still for a moment: docs/spec/moq.md 5. Then once more. */
const audible = (check) => async (context, runner, origin) => {
	for (let attempt = 1; ; attempt++) {
		try {
			return `${await check(context, runner, origin)}, attempt ${attempt} of ${ATTEMPTS}`;
		} catch (error) {
			if (!(error instanceof PlayerSilent) || attempt === ATTEMPTS) throw error;
			for (const page of context.pages()) await page.close();
			await runner.waitForSessions(0, VANISHED_MS);
		}
	}
};

export const checks = {
	'moq: bot-ready, the own tone, a request and its answer, a clean leave': audible(async (context, runner, origin) => {
		const page = await open(context, origin);
		const { answer, took } = await start(page, runner);
		if (!answer.moq.certHash) throw new Error(JSON.stringify(answer));
		await asks(page, 7);
		const heard = await hears(page);
		return `bot-ready after ${took} ms, ${heard}, ${await leaves(page, runner)}`;
	}),

	'moq: a microphone turned off and on': audible(async (context, runner, origin) => {
		const page = await open(context, origin);
		await start(page, runner);
		await hears(page);
		await page.evaluate(() => globalThis.talk.muted(true));
		await until(async () => (await page.evaluate((hz) => globalThis.talk.hear(1, hz), HZ)).energy < 1e-6, 'silence');
		await asks(page, 9);
		await page.evaluate(() => globalThis.talk.muted(false));
		return `${await hears(page)}, ${await leaves(page, runner)}`;
	}),

	'moq: a runner that stood still for 700 ms is heard again': audible(async (context, runner, origin) => {
		const page = await open(context, origin);
		await start(page, runner);
		await hears(page);
		runner.child.kill('SIGSTOP');
		await sleep(700);
		runner.child.kill('SIGCONT');
		return `${await hears(page)}, ${await leaves(page, runner)}`;
	}),

	'moq: two pages at once, and a second call of one of them (its messages)': audible(async (context, runner, origin) => {
		const pages = [await open(context, origin), await open(context, origin)];
		for (const page of pages) await start(page, runner);
		if ((await runner.sessions()) !== 2) throw new Error('not two sessions');
		await Promise.all(pages.map(async (page, nth) => {
			await asks(page, nth);
			await hears(page);
		}));
		await pages[0].evaluate(() => globalThis.talk.disconnect());
		await runner.waitForSessions(1);
		await start(pages[0], runner);
		await asks(pages[0], 11);
		await asks(pages[1], 12);
		await pages[0].evaluate(() => globalThis.talk.disconnect());
		await runner.waitForSessions(1);
		return leaves(pages[1], runner);
	}),

	async 'moq: a runner that ends says so, and the page does not connect again'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		const code = await runner.terminate();
		await until(async () => (await page.evaluate(() => globalThis.talk.state())) === 'disconnected', 'disconnected');
		if (!page.said.some((line) => line.includes('session-ending'))) throw new Error(`not told${said(page)}`);
		await page.close();
		if (code !== 0) throw new Error(`the runner ended with ${code}`);
	},

	async 'moq: a killed tab is gone from /status in time'(context, runner, origin) {
		const page = await open(context, origin);
		await start(page, runner);
		if ((await runner.sessions()) !== 1) throw new Error('no session');
		const devtools = await context.newCDPSession(page);
		// The command crashes the process that would answer it.
		devtools.send('Page.crash').catch(() => {});
		const freed = await runner.waitForSessions(0, VANISHED_MS);
		await page.close();
		return `freed after ${freed} s`;
	},
};

/** For a runner with `--ws-auth token`. */
export const tokenChecks = {
	'moq: with --ws-auth token the client carries the token of the URL': audible(async (context, runner, origin) => {
		const page = await open(context, origin);
		const { answer } = await start(page, runner);
		if (!/^https:\/\/[^/]+\/moq\/[^/]{20,}$/.test(answer.moq.relayUrl)) throw new Error(JSON.stringify(answer));
		await asks(page, 7);
		return `${await hears(page)}, ${await leaves(page, runner)}`;
	}),
};

/** For a runner behind a relay. */
export const relayChecks = {
	'moq: through the relay: bot-ready, the own tone, a request and its answer, a leave': audible(async (context, runner, { origin }) => {
		const page = await open(context, origin);
		const { answer, took } = await start(page, runner);
		if (answer.moq.serve || !answer.moq.certHash) throw new Error(JSON.stringify(answer));
		await asks(page, 7);
		const heard = await hears(page);
		await page.evaluate(() => globalThis.talk.disconnect());
		const freed = await runner.waitForSessions(0, AWAY_MS);
		return `bot-ready after ${took} ms, ${heard}, freed after ${freed} s`;
	}),

	async 'moq: messages go on after the relay was killed and started again, and the page subscribes to the audio again'(context, runner, { origin, relay }) {
		const page = await open(context, origin);
		await start(page, runner);
		await asks(page, 7);
		await relay.kill();
		await relay.start();
		const begun = Date.now();
		const told = page.said.length;
		await until(async () => asks(page, 8).then(() => true, () => false), 'an answer through the new relay', 60000);
		const back = ((Date.now() - begun) / 1000).toFixed(1);
		// The player may stay silent after it connected again, as in a second call.
		const subscribed = () => page.said.slice(told).some((line) => /subscribe ok: .*bot-audio/.test(line));
		await until(subscribed, `the audio${said(page)}`);
		if ((await runner.sessions()) !== 1) throw new Error('not the same session');
		const sound = await hears(page, 10000).then((heard) => `its sound too: ${heard}`, () => 'its player stays silent');
		await page.close();
		return `back after ${back} s, ${sound}`;
	},

	async 'moq: a runner behind the relay that ends says so'(context, runner, { origin }) {
		const page = await open(context, origin);
		await start(page, runner);
		const code = await runner.terminate();
		await until(async () => (await page.evaluate(() => globalThis.talk.state())) === 'disconnected', 'disconnected');
		await page.close();
		if (code !== 0) throw new Error(`the runner ended with ${code}`);
	},
};
