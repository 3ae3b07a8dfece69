// The built-in page in Firefox: the checks specific to it, and those of `page.mjs` that run in
// both.

import * as common from './page.mjs';
import { assertFits, connect, hangUp, isPhase, open, says, shoot, talk, text } from './page.mjs';
import { until } from './runner.mjs';
import { received } from './watch.mjs';

const CONNECTIONS = 10;

/** In the page: what the fake microphone hums comes in sentences, as somebody speaks, in place of one tone without an end. */
function hum() {
	const SENTENCE_S = 7;
	const native = navigator.mediaDevices?.getUserMedia.bind(navigator.mediaDevices);
	if (!native) return;
	navigator.mediaDevices.getUserMedia = async (wanted) => {
		const microphone = await native(wanted);
		const context = new AudioContext();
		const gain = new GainNode(context, { gain: 0.003 });
		const spoken = context.createMediaStreamDestination();
		context.createMediaStreamSource(microphone).connect(gain).connect(spoken);
		for (let from = 1; from < 120; from += SENTENCE_S) {
			// Syllables with gaps between them.
			for (let at = from; at < from + 1.5; at += 0.25) {
				gain.gain.setValueAtTime(1, context.currentTime + at);
				gain.gain.setValueAtTime(0.003, context.currentTime + at + 0.2);
			}
		}
		return spoken.stream;
	};
}

/** The page says what is wrong, and lets its user listen all the same. */
async function failsToOpen(context, runner, out, name, ...wanted) {
	const { page, faults } = await open(context, `${runner.url}/client/`);
	await page.locator('#connect').click();
	await page.locator('#problem').waitFor();
	await isPhase(page, 'idle');
	const said = await text(page, 'problem');
	for (const words of [...wanted, 'Try again', 'Listen only']) {
		if (!said.includes(words)) throw new Error(`“${words}” is not in: ${said}`);
	}
	await shoot(page, out, `firefox-${name}`);
	await assertFits(page);
	if (await runner.sessions()) throw new Error('a session began without a microphone');
	await page.locator('#problem-listen').click();
	await isPhase(page, 'ready');
	await says(page, 'you', 'Listening only');
	await until(async () => (await received(page)).packets > 50, 'packets of the bot');
	return hangUp(page, runner, faults);
}

const withMicrophone = {
	'firefox: connects, hears the parrot, types, is muted, disconnects': async (context, runner, out) => {
		const { page, faults } = await open(context, `${runner.url}/`, hum);
		if (new URL(page.url()).pathname !== '/client/') throw new Error(`at ${page.url()}`);
		await shoot(page, out, 'firefox-idle');
		await assertFits(page);
		await connect(page, page.url());
		const heard = await talk(page, out, 'firefox-call', async () => (await received(page)).energy);
		return `${heard}, ${await hangUp(page, runner, faults)}`;
	},

	'firefox: over a WebSocket it connects, hears the parrot, disconnects': async (context, runner, out) => {
		const { page, faults } = await open(context, `${runner.url}/client/?transport=websocket`, hum);
		await connect(page, page.url());
		if ((await received(page)).connections) throw new Error('over WebRTC');
		const sound = await common.listen(page);
		const heard = await talk(page, out, 'firefox-socket', async () => (await sound.read()).energy);
		return `${heard}, ${await hangUp(page, runner, faults)}`;
	},

	'firefox: it connects time after time': async (context, runner) => {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		const took = [];
		for (let nth = 0; nth < CONNECTIONS; nth++) {
			if (nth) await isPhase(page, 'idle');
			const begun = Date.now();
			await page.locator('#connect').click();
			await isPhase(page, 'ready');
			took.push(Date.now() - begun);
			if (nth + 1 < CONNECTIONS) await page.locator('#connect').click();
		}
		await until(async () => (await received(page)).packets > 50, 'packets of the bot');
		await hangUp(page, runner, faults);
		took.sort((one, other) => one - other);
		return `${CONNECTIONS} of ${CONNECTIONS}, after ${took[CONNECTIONS / 2]} ms, at most ${took.at(-1)} ms`;
	},

	'firefox: Cancel while it connects is the end of it, and it connects again': async (context, runner) => {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		// The first answer is held back until the check releases it.
		await page.evaluate(() => {
			const native = globalThis.fetch;
			const held = new Promise((done) => { globalThis.letGo = done; });
			globalThis.fetch = async (url, options) => {
				const answer = await native(url, options);
				if (String(url).includes('api/offer')) await held;
				return answer;
			};
		});
		await page.locator('#connect').click();
		await isPhase(page, 'connecting');
		await until(async () => (await runner.sessions()) === 1, 'the session has begun');
		if ((await text(page, 'connect')) !== 'Cancel') throw new Error(`the button says ${await text(page, 'connect')}`);
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		await page.evaluate(() => globalThis.letGo());
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		const { connections, state } = await received(page);
		if (connections !== 2 || state !== 'connected') throw new Error(`${connections} connections, the last one is ${state}`);
		if (faults.length) throw new Error(faults.join('\n'));
		await page.close();
	},
};

for (const [name, check] of Object.entries(common.checks)) {
	// These checks compare with the voice of Chromium's microphone.
	if (!/hears the parrot|falls silent/.test(name)) withMicrophone[name.replace('page:', 'firefox:')] = check;
}

/** By the microphone that they need. */
export const checks = {
	hums: withMicrophone,
	none: {
		'firefox: no microphone is said in plain words': (context, runner, out) => (
			failsToOpen(context, runner, out, 'none', 'No microphone found', 'Plug one in')),
	},
	denied: {
		'firefox: a refused microphone is said in plain words': (context, runner, out) => (
			failsToOpen(context, runner, out, 'denied', 'was not allowed')),
	},
};

/** For a runner with `-t moq`. */
export const moqChecks = {
	async 'firefox: without sub-protocols of WebTransport the page says that MoQ is not possible, and starts no session'(context, runner) {
		const { page, faults } = await open(context, `${runner.url}/client/?transport=moq`);
		if (await page.evaluate(() => 'protocol' in WebTransport.prototype)) throw new Error('Firefox has them now: check calls here');
		await page.locator('#connect').click();
		await page.locator('#problem').waitFor();
		const problem = await text(page, 'problem');
		if (!problem.includes('cannot speak MoQ')) throw new Error(problem);
		if ((await runner.sessions()) !== 0 || faults.length) throw new Error(faults.join('\n'));
		await page.close();
	},
};
