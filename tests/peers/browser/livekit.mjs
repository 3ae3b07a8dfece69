// LiveKit's React components and its JavaScript client, in Chromium, with a bot of the runner in a room of a LiveKit server.
// Prints what it saw as one line of JSON; exits with 1 on a failure.
//
//   node livekit.mjs --runner URL [--bot NAME]
//
// The runner serves `/start` for the server, and its bot transcribes and speaks. `tests/peers/room` runs this.

import { parseArgs } from 'node:util';
import { withBrowser } from './chromium.mjs';
import { serveClient } from './client.mjs';
import { until } from './runner.mjs';

const { values } = parseArgs({ options: { runner: { type: 'string' }, bot: { type: 'string', default: 'bot' } } });
const AGENT = 4;
const TYPED = 'What did I type?';

async function check(page) {
	const look = () => page.evaluate(() => {
		const { states, voiceStates, messages, problem, isConnected, failures, agent, hasAudio } = globalThis.talk;
		return { states, voiceStates, messages, problem, isConnected, failures, agent, hasAudio };
	});
	const sees = async (what, wanted) => {
		let last;
		try {
			return await until(async () => wanted(last = await look()) && last, what, 60000);
		} catch (error) {
			throw new Error(`${error.message}; it sees ${JSON.stringify(last)}`);
		}
	};
	await page.evaluate(([url, bot]) => globalThis.talk.start(url, bot), [`${values.runner}/start`, values.bot]);
	const found = await sees('the agent listens', ({ agent, states, voiceStates, isConnected, hasAudio }) => (
		agent && isConnected && hasAudio && states.includes('listening') && voiceStates.includes('listening')));
	if (found.agent.kind !== AGENT || found.agent.attributes['lk.agent.name'] !== values.bot) throw new Error(JSON.stringify(found.agent));
	const said = await sees('both transcripts', ({ messages }) => (
		['userTranscript', 'agentTranscript'].every((type) => messages.some((each) => each.type === type && each.message))));
	await sees('the agent speaks, and listens again', ({ states }) => (
		states.includes('speaking') && states.lastIndexOf('listening') > states.indexOf('speaking')));
	const before = said.messages.filter(({ type }) => type === 'agentTranscript').length;
	await page.evaluate((text) => globalThis.talk.type(text), TYPED);
	const typed = await sees('an answer to typed text', ({ messages }) => (
		messages.filter(({ type }) => type === 'agentTranscript').length > before));
	const unknown = await page.evaluate(() => globalThis.talk.call('no-such-method', '{}'));
	await page.evaluate(() => globalThis.talk.end());
	return { states: typed.states, messages: typed.messages, failures: typed.failures, unknown };
}

const origin = await serveClient('livekit-page.jsx');
try {
	console.log(JSON.stringify(await withBrowser(async (context) => {
		const page = await context.newPage();
		page.on('pageerror', (error) => console.error(`the page: ${error.message}`));
		page.on('console', (message) => message.type() === 'error' && console.error(`the page: ${message.text()}`));
		await page.goto(origin.url);
		await page.waitForFunction(() => globalThis.talk);
		return check(page);
	})));
} catch (error) {
	console.error(error.stack);
	process.exitCode = 1;
} finally {
	origin.close();
}
