// A real browser against the runner: the built-in page and the official client. A line per check; exits with 1 when one
// failed, with 3 when all that did have no verdict.
//
//   node run.mjs [--binary PATH] [--out FOLDER] [--only WORD] [--playground FOLDER] [--menu PATH]
//   node run.mjs --browser firefox [..]
//   node run.mjs --moq [--relay PATH] [..]      Media over QUIC alone, also through a relay
//
// Needs Chromium and espeak-ng of the system, or Firefox, and `npm ci` in this folder. With FOLDER each state of the page is
// photographed into it.

import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { closeBrowsers, withProfile } from './chromium.mjs';
import * as client from './client.mjs';
import { BrowserLost, withFirefox } from './firefox.mjs';
import * as firefoxPage from './firefox-page.mjs';
import * as moq from './moq.mjs';
import * as moqPage from './moq-page.mjs';
import { Relay } from './moq-relay.mjs';
import * as obs from './obs.mjs';
import * as page from './page.mjs';
import * as path from './path.mjs';
import * as playground from './playground.mjs';
import { Busy } from './reference.mjs';
import * as rooms from './rooms.mjs';
import { Runner } from './runner.mjs';
import * as secure from './secure.mjs';
import * as settingsPage from './settings-page.mjs';
import * as setupPage from './setup-page.mjs';
import * as states from './states.mjs';
import * as untrusted from './untrusted.mjs';
import * as websocket from './websocket.mjs';
import * as whip from './whip.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
const { values } = parseArgs({
	options: {
		binary: { type: 'string', default: join(root, 'target/debug/edge-runner') },
		out: { type: 'string' },
		only: { type: 'string', default: '' },
		browser: { type: 'string', default: 'chromium' },
		moq: { type: 'boolean', default: false },
		relay: { type: 'string' },
		playground: { type: 'string' },
		menu: { type: 'string' },
	},
});
const out = values.out && resolve(values.out);
if (out) mkdirSync(out, { recursive: true });
const menu = values.menu ?? join(root, 'target/debug/examples/menu');
// These wait for the most part, and measure no sound (one hears whether there is any): the others go on beside them.
const WAITING = new Set([
	'page: a killed runner is not shown as connected',
	'page: charts have a scale and fill their width',
	'page: a bot that fails is not said to have left',
	'settings: bot and services are changed, the runner restarts, and a change that fails is taken back',
	'setup: settings that the board rejects bring the form back, others end in a link to the runner',
	'path: a browser that hides every address is told so',
	'path: one that stays blocked ends with the same words',
	'path: a blocked one is explained while connecting, and forgotten when it opens',
	'client: a killed tab is gone from /status in time',
	'secure: plain HTTP to a name or an address of the LAN is explained in plain words',
	'secure: plain HTTP leads to trust, in the words of each browser, and past the warning',
	'secure: a microphone that does not open is said in plain words',
	'page: why a bot does not start is shown to who may know it',
	'moq: a killed tab is gone from /status in time',
	'moq: a page that only listens stays connected, and takes a microphone later',
]);
// These need more than Chromium's headless shell.
const FULL_BROWSER = new Set([
	'page: it can be installed, keeps the screen on in a call, and plays where it is told',
	'untrusted: a cross-site page may send JSON, and nothing that browsers send unasked',
]);
const waiting = [];
// One name per line: of all checks of a stage.
const onlyThese = process.env.CHECKS_ONLY?.split('\n');
// What the gate leaves to a night, as in `checks.py`.
const atNight = process.env.CHECKS_GATE ? readFileSync(join(root, 'tests/peers/night.txt'), 'utf8').split('\n') : [];
const isWanted = (name) => name.includes(values.only) && (onlyThese?.includes(name) ?? !atNight.includes(`browser ${name}`));
const busy = new Busy();
process.on('exit', () => busy.stop());
let failed = 0;
let notJudged = 0;
/** 3: all that failed has no verdict, as in `checks.py`. */
const exit = async () => {
	await closeBrowsers();
	process.exit(failed ? 1 : notJudged ? 3 : 0);
};

/** `check` gets a profile of its own; `alone`, one that opens what browsers it needs. */
const run = (name, check, runnerArgs, extra, binary) => alone(
	name, (runner) => withProfile((context) => check(context, runner, extra), { fullBrowser: FULL_BROWSER.has(name) }), runnerArgs, binary,
);

async function alone(name, check, runnerArgs, binary = values.binary) {
	if (!isWanted(name)) return;
	const checked = checkOne(name, check, runnerArgs, binary);
	if (WAITING.has(name)) waiting.push(checked);
	else await checked;
}

/** A check has no verdict where others had the processors, or the browser ended. */
function fail(name, error, starved) {
	const why = starved ? `machine too busy to judge: ${starved} (first failure: ${error.message})` : error.message.split('\n')[0];
	const isJudged = !starved && !(error instanceof BrowserLost);
	if (isJudged) failed += 1;
	else notJudged += 1;
	console.log(`FAIL ${name}: ${isJudged ? '' : 'not judged: '}${why}`);
}

async function checkOne(name, check, runnerArgs, binary) {
	const begun = Date.now();
	const runner = await Runner.start(resolve(binary), ...runnerArgs);
	try {
		const said = await check(runner, out);
		console.log(`PASS ${name}${said ? ` (${said})` : ''} [${((Date.now() - begun) / 1000).toFixed(1)} s]`);
	} catch (error) {
		fail(name, error, busy.starved(begun));
		console.error(error.stack, `\n${runner.log.join('\n')}`);
	} finally {
		await runner.stop();
	}
}

if (values.browser === 'firefox') {
	// One browser for each microphone, since it takes seconds of a core to start. Each runner's page is a separate site.
	const groups = Object.entries(firefoxPage.checks).map(([microphone, given]) => [microphone, given.flatMap(([checks, args]) => (
		Object.entries(checks).map(([name, check]) => [name, check, args])))]);
	for (const [microphone, checks] of groups) {
		const wanted = checks.filter(([name]) => isWanted(name));
		try {
			if (wanted.length) await withFirefox(async (context) => {
				for (const [name, check, args] of wanted) await alone(name, (runner) => check(context, runner, out), args);
			}, { microphone });
		} catch (error) {
			if (!(error instanceof BrowserLost)) throw error;
			console.error(error);
			for (const [name] of wanted) fail(name, error);
		}
	}
	await exit();
}

if (values.moq) {
	const origin = await client.serveClient('moq-page.js');
	const args = ['--bot', 'echo', '-t', 'moq'];
	for (const [name, check] of Object.entries(moq.checks)) await run(name, check, [...args, '--moq-bind', '[::]:0'], origin.url);
	const token = ['--moq-bind', '[::]:0', '--ws-auth', 'token'];
	for (const [name, check] of Object.entries(moq.tokenChecks)) await run(name, check, [...args, ...token], origin.url);
	const parrot = ['--bot', 'parrot', '-t', 'moq'];
	for (const [name, check] of Object.entries(moqPage.tokenChecks)) await run(name, check, [...parrot, ...token], out);
	const relayed = [
		...Object.entries(moq.relayChecks).map((each) => [...each, args, (relay) => ({ origin: origin.url, relay })]),
		...Object.entries(moqPage.relayChecks).map((each) => [...each, parrot, () => out]),
	];
	for (const [name, check, bot, extra] of values.relay ? relayed : []) {
		if (!isWanted(name)) continue;
		const relay = await new Relay(resolve(values.relay)).start();
		await run(name, check, [...bot, ...relay.args], extra(relay));
		await relay.stop();
	}
	await Promise.all(waiting);
	origin.close();
	for (const [name, check] of Object.entries(moqPage.checks)) {
		await run(name, check, [...parrot, '--moq-bind', '[::]:0'], out);
	}
	await Promise.all(waiting);
	await exit();
}

/** Checks of a module, with these arguments of the runner. */
const all = async (checks, args, binary) => {
	for (const [name, check] of Object.entries(checks)) await run(name, check, args, out, binary);
};

await all(page.checks, ['--bot', 'parrot']);
for (const [name, check] of values.playground ? Object.entries(playground.checks) : []) {
	await run(name, check, ['--bot', 'parrot', '--page', resolve(values.playground)], out);
}
await all(states.checks, ['--bot', 'parrot']);
await all(states.soundChecks, states.soundArgs);
await all(states.metricsChecks, states.metricsArgs);
await all(states.thinkingChecks, states.thinkingArgs);
await all(states.failingChecks, states.failingArgs);
await all(states.brokenChecks, states.brokenArgs);
await all(states.sessionsChecks, ['--bot', 'parrot']);
await all(states.sessionsKeyChecks, ['--bot', 'parrot', '--api-key', states.KEY, '--listen-in']);
await all(states.phoneChecks, ['--bot', 'parrot']);
await all(states.unprovenChecks, ['--bot', 'parrot', states.provenEnv]);
await all(states.provenChecks, ['--bot', 'parrot', states.provenEnv, '--api-key', states.KEY]);
await all(states.keysChecks, states.keysArgs);
for (const [name, check] of Object.entries({ ...setupPage.checks, ...settingsPage.checks })) {
	await run(name, check, ['--bot', 'parrot'], { binary: resolve(values.binary), out });
}
if (existsSync(menu)) {
	await all(states.menuChecks, states.menuArgs, menu);
} else if (!values.only) {
	failed += 1;
	console.log(`FAIL phone: cargo build --example menu, or --menu PATH: ${menu} is missing`);
}
for (const [name, check] of Object.entries(path.checks)) await alone(name, check, ['--bot', 'parrot']);
for (const [name, check] of Object.entries(secure.plainChecks)) await alone(name, check, ['--bot', 'parrot', '--host', '0.0.0.0']);
for (const [name, check] of Object.entries(secure.tlsChecks)) {
	await alone(name, check, ['--bot', 'parrot', '--host', '0.0.0.0', '--tls', 'auto', '--state-dir', 'state', '--allowed-hosts', 'board.local']);
}
for (const [name, check] of Object.entries(untrusted.checks)) await run(name, check, ['--bot', 'echo']);
for (const [name, check] of Object.entries(untrusted.keyChecks)) await run(name, check, ['--bot', 'echo', '--api-key', untrusted.KEY], out);
for (const [name, check] of Object.entries(rooms.mediaChecks)) await run(name, check, ['--bot', 'echo', rooms.mediaEnv], out);
const provider = await rooms.serveProvider();
for (const [name, check] of Object.entries(rooms.videoChecks)) await run(name, check, [rooms.videoEnv(provider), '--', 'sleep', '600'], out);
provider.close();
const origin = await client.serveClient();
for (const [name, check] of Object.entries(client.checks)) await run(name, check, ['--bot', 'echo'], origin.url);
const python = join(root, 'target/venv/bin/python');
const pipecat = existsSync(python) ? client.pipecatArgs(python) : null;
if (!pipecat && !values.only) console.log('SKIPPED: the official client with a bot of Pipecat: tests/check/python.sh');
for (const [name, check] of pipecat ? Object.entries(client.pipecatChecks) : []) await run(name, check, pipecat, origin.url);
// A server for microcontrollers serves browsers too.
const [[name, check]] = Object.entries(client.checks);
await run(`${name}, with --embedded`, check, ['--bot', 'echo', '--embedded', '--host', '127.0.0.1'], origin.url);
const plain = await client.serveClient('websocket-page.js');
for (const [name, check] of Object.entries(websocket.checks)) await run(name, check, ['--bot', 'echo'], plain.url);
for (const [name, check] of pipecat ? Object.entries(websocket.pipecatChecks) : []) await run(name, check, pipecat, plain.url);
for (const [name, check] of Object.entries(websocket.tokenChecks)) {
	await run(name, check, ['--bot', 'echo', '--ws-auth', 'token'], plain.url);
}
plain.close();
const posting = await client.serveClient('whip-page.js');
for (const [name, check] of Object.entries(whip.checks)) await run(name, check, ['--bot', 'echo'], posting.url);
for (const [name, check] of Object.entries(whip.listenerChecks)) await run(name, check, ['--bot', 'parrot'], posting.url);
for (const [name, check] of Object.entries(whip.keyChecks)) await run(name, check, ['--bot', 'echo', '--api-key', whip.KEY], posting.url);
posting.close();
for (const [name, check] of Object.entries(obs.checks)) await alone(name, check, ['--bot', 'echo']);
await Promise.all(waiting);
origin.close();
await exit();
