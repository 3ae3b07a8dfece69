// A browser in a call with an assistant, asked by a sentence in a WAV file that repeats. Prints what was seen, as JSON; exits
// with 1 otherwise.
//
//   node assistant.mjs functions|interrupted|cascade|cascade-functions|cascade-interrupted|answers|client URL [FILE]
//
// URL is the origin of the runner, with `#key=...` where it wants one; FILE is for a picture.
//
// The service is on this machine, so `/status` is changed on its way to the page for the notice about a third party.

import { assertAccessible } from './axe.mjs';
import { withBrowser } from './chromium.mjs';
import { serveClient } from './client.mjs';
import { assertFits, connect, open, text } from './page.mjs';
import { sleep, until } from './runner.mjs';
import { HEARD, received } from './watch.mjs';

const [, , name, location, picture] = process.argv;
const { origin: url, hash } = new URL(location);
const PARTY = 'speech.example';
const LIMIT_MS = 60000;
// Energy of half a second, a fifteenth of that of the service's tones.
const SILENT = 0.001;

/** Opens the page, whose `/status` names a third party, and connects. */
async function call(context) {
	const { page, faults } = await open(context, `${url}/client/${hash}`);
	if (await page.locator('#notice').isVisible()) throw new Error('a notice, though speech stays on this machine');
	await page.route('**/status', async (route) => {
		const reply = await route.fetch();
		await route.fulfill({ json: { ...await reply.json(), speech_to: [PARTY] } });
	});
	// Another fragment alone would load nothing.
	await page.goto('about:blank');
	await connect(page, `${url}/client/${hash}`);
	return { page, faults };
}

/** Waits until the page has shown all states, and these patterns in its transcript; the bot was heard. */
async function answered(page, ...patterns) {
	const states = new Set();
	let shown;
	await until(async () => {
		states.add(await page.locator('#bot .state').innerText());
		shown = await text(page, 'transcript');
		const seen = patterns.every((pattern) => pattern.test(shown)) && (await text(page, 'waited')).startsWith('answer after');
		return seen && ['Listening', 'Thinking', 'Speaking'].every((state) => states.has(state));
	}, 'all states, the question and its answer', LIMIT_MS).catch((error) => {
		throw new Error(`${error.message}; the states were ${[...states]}, the transcript is ${shown}`);
	});
	// The states and texts come before the sound has been played.
	await until(async () => (await received(page)).energy >= HEARD, 'the sound of the bot', LIMIT_MS);
	return [...states].join(', ');
}

async function finish({ page, faults }, bot) {
	if (picture) await page.screenshot({ path: picture, animations: 'disabled' });
	const notice = await text(page, 'notice');
	if (!notice.includes(PARTY) || !notice.includes('third party')) throw new Error(notice);
	if ((await text(page, 'bot-name')) !== bot) throw new Error(`the bot is ${await text(page, 'bot-name')}`);
	await assertFits(page);
	for (const colorScheme of ['light', 'dark']) {
		await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
		await assertAccessible(page, `a call with ${bot}, ${colorScheme}`);
	}
	if (faults.length) throw new Error(faults.join('\n'));
	return text(page, 'waited');
}

/** A function of the operator is shown, and the answer that it gave. */
const functions = (bot, answer) => async (context) => {
	const session = await call(context);
	const states = await answered(session.page, /A tone of \d+ hertz/, new RegExp(`Function[^]*done after [^]*${answer}`));
	return { states, waited: await finish(session, bot) };
};

/** The sentence comes again while the bot answers the first one. */
const interrupted = (bot) => async (context) => {
	const session = await call(context);
	const { page } = session;
	await until(async () => (await text(page, 'transcript')).includes('interrupted'), 'an interruption', LIMIT_MS);
	// What is still in the jitter buffer of the browser, and in the network, is played first: a browser that has few processors holds
	// more of it. The answer itself would last for seconds.
	let loud;
	for (let tries = 0; tries < 3 && !(loud <= SILENT); tries += 1) {
		await sleep(300);
		const before = (await received(page)).energy;
		await sleep(500);
		loud = (await received(page)).energy - before;
	}
	if (loud > SILENT) throw new Error(`not silent: ${loud}`);
	return { energy: loud, waited: await finish(session, bot) };
};

/** A question and its answer. */
const answers = (bot) => async (context) => {
	const session = await call(context);
	const states = await answered(session.page, /A tone of \d+ hertz[^]*Bot/);
	return { states, waited: await finish(session, bot) };
};

const cases = {
	answers: answers('realtime'),
	cascade: answers('cascade'),
	functions: functions('realtime', 'answer'),
	interrupted: interrupted('realtime'),
	'cascade-functions': functions('cascade', 'Schön'),
	'cascade-interrupted': interrupted('cascade'),

	/** The events of the official client, with the fields that its types name. */
	async client(context) {
		const application = await serveClient('assistant-client.js');
		const page = await context.newPage();
		await page.goto(application.url);
		await page.waitForFunction(() => globalThis.talk);
		const events = () => page.evaluate(() => globalThis.talk.events);
		await page.evaluate((runner) => globalThis.talk.start(runner), url);
		const seen = async (kind, is = () => true) => (await events()).find((event) => event.name === kind && is(event.data ?? {}));
		const wanted = {
			UserStartedSpeaking: undefined,
			UserStoppedSpeaking: undefined,
			UserTranscript: (data) => data.final && /^A tone of/.test(data.text) && !Number.isNaN(Date.parse(data.timestamp)) && 'user_id' in data,
			LLMFunctionCallStarted: (data) => data.function_name === 'weather',
			LLMFunctionCallInProgress: (data) => data.tool_call_id && data.arguments.city === 'Bremen',
			handler: (data) => data.functionName === 'weather' && data.arguments.city === 'Bremen',
			LLMFunctionCallStopped: (data) => data.tool_call_id && data.cancelled === false,
			BotLlmStarted: undefined,
			BotLlmText: (data) => typeof data.text === 'string',
			BotLlmStopped: undefined,
			BotStartedSpeaking: undefined,
			BotStoppedSpeaking: undefined,
			BotOutput: (data) => data.will_be_spoken && data.spoken_status === 'completed' && typeof data.segment_id === 'number',
			Metrics: (data) => data.ttfb?.[0]?.value > 0 && data.ttfb[0].processor,
		};
		for (const [kind, is] of Object.entries(wanted)) {
			await until(() => seen(kind, is), `the event ${kind}`, LIMIT_MS).catch(async (error) => {
				throw new Error(`${error.message}: ${JSON.stringify((await events()).filter((event) => event.name === kind))}`);
			});
		}
		const before = (await events()).length;
		await page.evaluate(() => globalThis.talk.type('How are you?'));
		await until(async () => (await events()).slice(before).some(({ name: kind }) => kind === 'BotLlmText'), 'an answer to a text', LIMIT_MS);
		const wrong = (await events()).filter(({ name: kind }) => ['error', 'message-error'].includes(kind));
		if (wrong.length) throw new Error(JSON.stringify(wrong));
		const { energy } = await received(page);
		if (energy < HEARD) throw new Error(`the bot was not heard: ${energy}`);
		await page.evaluate(() => globalThis.talk.disconnect());
		application.close();
		return { events: (await events()).length };
	},
};

console.log(JSON.stringify(await withBrowser(cases[name])));
