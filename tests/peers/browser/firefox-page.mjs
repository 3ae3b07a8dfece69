// The built-in page in Firefox: the checks specific to it, and those of `page.mjs` that run in
// both.

import * as common from './page.mjs';
import { assertFits, connect, isPhase, says, shoot, text, watchPolicy } from './page.mjs';
import { until } from './runner.mjs';
import { HEARD, received, watch } from './watch.mjs';

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

async function opened(context, url) {
	const page = await context.newPage();
	const faults = watch(page);
	await watchPolicy(page, faults);
	await page.goto(url);
	await page.locator('#server[data-ok=true]').waitFor();
	return { page, faults };
}

async function hangsUp(page, faults, runner) {
	await page.locator('#connect').click();
	await isPhase(page, 'idle');
	const freed = await runner.waitForSessions(0);
	if (faults.length) throw new Error(faults.join('\n'));
	await page.close();
	return `freed after ${freed} s`;
}

/** The page says what is wrong, and lets its user listen all the same. */
async function failsToOpen(context, runner, out, name, ...wanted) {
	const { page, faults } = await opened(context, `${runner.url}/client/`);
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
	return hangsUp(page, faults, runner);
}

const withMicrophone = {
	'firefox: connects, hears the parrot, types, is muted, disconnects': async (context, runner, out) => {
		const page = await context.newPage();
		const faults = watch(page);
		await watchPolicy(page, faults);
		await page.addInitScript(hum);
		await page.goto(`${runner.url}/`);
		if (new URL(page.url()).pathname !== '/client/') throw new Error(`at ${page.url()}`);
		await page.locator('#server[data-ok=true]').waitFor();
		await shoot(page, out, 'firefox-idle');
		await assertFits(page);
		await connect(page, `${runner.url}/client/`);
		const [energy] = await Promise.all([
			until(async () => (await received(page)).energy > HEARD && (await received(page)).energy, 'sound of the bot', 60000),
			until(async () => (await page.locator('#bot[data-speaking=true]').count()) > 0, 'the page shows the bot speaking', 60000),
			says(page, 'transcript', 'You spoke for', 60000),
		]);
		await shoot(page, out, 'firefox-call');
		await assertFits(page);
		await page.locator('#text').fill('typed words');
		await page.keyboard.press('Enter');
		await says(page, 'transcript', 'typed words');
		await page.locator('#mute').click();
		await says(page, 'you', 'Muted');
		return `energy ${energy.toFixed(3)}, ${await hangsUp(page, faults, runner)}`;
	},

	'firefox: over a WebSocket it connects, hears the parrot, disconnects': async (context, runner, out) => {
		const page = await context.newPage();
		const faults = watch(page);
		await watchPolicy(page, faults);
		await page.addInitScript(hum);
		await connect(page, `${runner.url}/client/?transport=websocket`);
		if ((await received(page)).connections) throw new Error('over WebRTC');
		const sound = await common.listen(page);
		await Promise.all([
			until(async () => (await sound.read()).energy > HEARD, 'sound of the bot', 60000),
			says(page, 'transcript', 'You spoke for', 60000),
		]);
		await shoot(page, out, 'firefox-socket');
		const { energy } = await sound.read();
		return `energy ${energy.toFixed(3)}, ${await hangsUp(page, faults, runner)}`;
	},

	'firefox: it connects time after time': async (context, runner) => {
		const { page, faults } = await opened(context, `${runner.url}/client/`);
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
		await hangsUp(page, faults, runner);
		took.sort((one, other) => one - other);
		return `${CONNECTIONS} of ${CONNECTIONS}, after ${took[CONNECTIONS / 2]} ms, at most ${took.at(-1)} ms`;
	},

	'firefox: Cancel while it connects is the end of it, and it connects again': async (context, runner) => {
		const { page, faults } = await opened(context, `${runner.url}/client/`);
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
