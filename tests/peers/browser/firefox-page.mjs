// The built-in page in Firefox: the checks specific to it, and those of `page.mjs` that run in
// both.

import * as common from './page.mjs';
import { assertFits, connect, hangUp, isPhase, open, says, shoot, talk, text } from './page.mjs';
import { until } from './runner.mjs';
import * as states from './states.mjs';
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

/** Runs `check` in a browser in whose every page somebody speaks, and closes what pages stay open. */
async function whileSpeaking(check, context, ...more) {
	const pages = new Set();
	const newPage = async () => {
		const page = await context.newPage();
		pages.add(page);
		await page.addInitScript(hum);
		return page;
	};
	try {
		return await check({ newPage }, ...more);
	} finally {
		for (const page of pages) if (!page.isClosed) await page.close();
	}
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
};

for (const [name, check] of Object.entries(common.checks)) {
	// These checks compare with the voice of Chromium's microphone.
	if (!/hears the parrot|falls silent/.test(name)) withMicrophone[name.replace('page:', 'firefox:')] = check;
}

const named = (checks, pattern = /./) => Object.fromEntries(Object.entries(checks).filter(([name]) => pattern.test(name)).map(([name, check]) => [
	name.replace(/^\w+:/, 'firefox:'), (...given) => whileSpeaking(check, ...given),
]));

/** Checks of `states.mjs`, each group with the arguments of its runner. */
const statesChecks = [
	[named(states.checks, /M, Space and Escape|recorded on request|links and bold/), ['--bot', 'parrot']],
	[named(states.sessionsChecks), ['--bot', 'parrot']],
	[named(states.phoneChecks), ['--bot', 'parrot']],
	[named(states.soundChecks), states.soundArgs],
	[named({
		async 'firefox: colours follow the choice, which the browser keeps'(context, runner) {
			const { page } = await open(context, `${runner.url}/client/`);
			const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
			const light = await background();
			await page.locator('#theme').click();
			if ((await background()) !== light) throw new Error('light, chosen, is not that of the system');
			await page.locator('#theme').click();
			const dark = await background();
			if (dark === light) throw new Error(`${light} either way`);
			await page.reload();
			if ((await background()) !== dark) throw new Error('dark is not kept');
			await page.locator('#theme').click();
			if ((await background()) !== light) throw new Error('not the system’s');
		},
	}), ['--bot', 'parrot']],
];

/** For a runner with `-t moq`. */
const moqChecks = {
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

const PARROT = ['--bot', 'parrot'];

/** By the microphone that they need: groups, each with the arguments of its runner. */
export const checks = {
	hums: [[withMicrophone, PARROT], ...statesChecks, [moqChecks, [...PARROT, '-t', 'moq', '--moq-bind', '[::]:0']]],
	none: [[{
		'firefox: no microphone is said in plain words': (context, runner, out) => (
			failsToOpen(context, runner, out, 'none', 'No microphone found', 'Plug one in')),
	}, PARROT]],
	denied: [[{
		'firefox: a refused microphone is said in plain words': (context, runner, out) => (
			failsToOpen(context, runner, out, 'denied', 'was not allowed')),
	}, PARROT]],
};
