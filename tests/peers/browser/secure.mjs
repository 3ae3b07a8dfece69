// From “microphone blocked” to talking: what the page says on plain HTTP, and that it is true. Each
// check opens its own browsers, because trust and permissions belong to a browser.

import { spawn } from 'node:child_process';
import { stripVTControlCharacters } from 'node:util';
import { ownAddresses, withBrowser, withProfile } from './chromium.mjs';
import { assertFits, assertFitsWidth, connect, isPhase, listen, photograph, says, shoot, text } from './page.mjs';
import { until } from './runner.mjs';
import { decode, scan } from './states.mjs';
import { HEARD, received, watch } from './watch.mjs';

const portOf = (runner) => new URL(runner.url).port;

/** This machine as its neighbours know it, by an address where it has one, else by a name: no browser takes that for itself. */
function lan(runner, scheme = 'http') {
	const [host = 'board.local'] = ownAddresses();
	return `${scheme}://${host}:${portOf(runner)}`;
}

/** Opens the page and gives what it says is wrong. */
async function explained(page, url) {
	await page.goto(url);
	await page.locator('#problem').waitFor({ state: 'visible' });
	const [secure, devices] = await page.evaluate(() => [globalThis.isSecureContext, Boolean(navigator.mediaDevices)]);
	if (secure || devices) throw new Error(`${url} is a secure context`);
	return text(page, 'problem');
}

function assertSays(said, ...wanted) {
	for (const words of wanted) if (!said.includes(words)) throw new Error(`“${words}” is not in: ${said}`);
}

function assertSilent(said, ...unwanted) {
	for (const words of unwanted) if (said.includes(words)) throw new Error(`“${words}” is in: ${said}`);
}

/** Runs a command on a terminal of its own until it serves, and ends it with Ctrl-C. Gives what it printed. */
async function onTerminal(command, folder) {
	const terminal = spawn('script', ['--quiet', '--return', '--command', command, '/dev/null'], { cwd: folder, stdio: ['pipe', 'pipe', 'inherit'] });
	let printed = '';
	let isOver = false;
	terminal.stdout.setEncoding('utf8').on('data', (some) => { printed += some; });
	const ended = new Promise((done) => terminal.on('exit', done)).then(() => { isOver = true; });
	// The first line of the log comes after the banner.
	await until(() => isOver || printed.includes('WebRTC on UDP port'), 'the banner').finally(() => terminal.stdin.end('\x03'));
	await ended;
	return stripVTControlCharacters(printed);
}

/** What the links of the explanation lead to. */
const links = (page) => page.locator('#problem-steps a').evaluateAll((all) => all.map(({ href }) => href));

/** The green button, and what is folded below it. */
const go = (page) => page.locator('#problem-go').getAttribute('href');

async function unfolded(page) {
	await page.locator('#problem-more summary').click();
	return text(page, 'problem-more');
}

async function pretend(page, userAgent) {
	const devtools = await page.context().newCDPSession(page);
	await devtools.send('Emulation.setUserAgentOverride', { userAgent });
}

const AGENTS = {
	iPhone: 'Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1',
	Android: 'Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36',
	Firefox: 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0',
	Safari: 'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15',
};

/** The certificate that people are told to trust, from where the page links it. */
async function authority(runner) {
	const reply = await fetch(`${runner.url}/ca.crt`);
	const pem = await reply.text();
	if (!reply.ok || !pem.startsWith('-----BEGIN CERTIFICATE-----')) throw new Error(`${reply.status} ${pem}`);
	return pem;
}

/** Hears the bot whatever the transport, with the browser's real (fake) microphone as the only sound. */
async function talks(page, transport) {
	if (!await page.evaluate(() => globalThis.isSecureContext)) throw new Error(`${page.url()} is not secure`);
	const overWebRtc = transport === 'webrtc';
	if (Boolean((await received(page)).connections) !== overWebRtc) throw new Error(`not over ${transport}`);
	const microphone = await page.locator('#log').innerText();
	assertSays(microphone, 'microphone:');
	const sound = await listen(page);
	return until(async () => {
		const { energy } = await sound.read();
		return energy > HEARD && energy.toFixed(3);
	}, `sound over ${transport}`, 60000);
}

async function hangUp(page, runner) {
	await page.locator('#connect').click();
	await isPhase(page, 'idle');
	await runner.waitForSessions(0);
	await page.close();
}

/** For a runner without TLS that listens on every address. */
export const plainChecks = {
	async 'secure: plain HTTP to a name or an address of the LAN is explained in plain words'(runner, out) {
		const port = portOf(runner);
		await withProfile(async (context) => {
			for (const [name, origin] of Object.entries({ name: `http://board.local:${port}`, address: lan(runner) })) {
				const page = await context.newPage();
				const said = await explained(page, `${origin}/`);
				assertSays(said, 'cannot use the microphone', origin, '--tls auto', `ssh -L ${port}:localhost:${port} user@`,
					`http://localhost:${port}/client/`, 'Listen only');
				assertSilent(said, 'ca.crt', 'https:');
				const [only, ...more] = await links(page);
				if (only !== `http://localhost:${port}/client/` || more.length) throw new Error(`${only} ${more}`);
				await shoot(page, out, `insecure-${name}`);
				await assertFits(page);
				await page.close();
			}
			// A phone has no ssh.
			const page = await context.newPage();
			await pretend(page, AGENTS.Android);
			const said = await explained(page, lan(runner));
			assertSays(said, '--tls auto');
			assertSilent(said, 'ssh');
		});
	},

	async 'secure: on plain HTTP one can still listen, over WebRTC'(runner) {
		await withProfile(async (context) => {
			const page = await context.newPage();
			await explained(page, lan(runner));
			await page.locator('#problem-listen').click();
			await isPhase(page, 'ready');
			await says(page, 'you', 'Listening only');
			await hangUp(page, runner);
			const other = await context.newPage();
			await explained(other, `${lan(runner)}/client/?transport=websocket`);
			await other.locator('#problem-listen').click();
			await says(other, 'problem', 'cannot play the sound of a WebSocket');
			assertSays(await text(other, 'problem'), '--tls auto');
		});
	},

	async 'secure: a microphone that does not open is said in plain words'(runner, out) {
		const url = `http://localhost:${portOf(runner)}/client/`;
		const fails = (options, prepare, name, ...wanted) => withProfile(async (context) => {
			const page = await context.newPage();
			await prepare(page);
			await page.goto(url);
			await page.locator('#server[data-ok=true]').waitFor();
			await page.locator('#connect').click();
			await page.locator('#problem').waitFor({ state: 'visible' });
			await isPhase(page, 'idle');
			assertSays(await text(page, 'problem'), ...wanted, 'Try again', 'Listen only');
			await shoot(page, out, `microphone-${name}`);
			await assertFits(page);
			if (await runner.sessions()) throw new Error('a session began without a microphone');
			await page.locator('#problem-listen').click();
			await isPhase(page, 'ready');
			await hangUp(page, runner);
		}, options);
		await fails({ microphone: 'asks', fullBrowser: true }, async (page) => {
			const devtools = await page.context().newCDPSession(page);
			await devtools.send('Browser.setPermission', { permission: { name: 'microphone' }, setting: 'denied' });
		}, 'denied', 'was not allowed', 'symbol beside the address');
		await fails({ microphone: 'none' }, async () => {}, 'none', 'No microphone found', 'Plug one in');
		// The system cannot produce these; the errors are Chromium's.
		const throws = (name, message) => (page) => page.addInitScript((error) => {
			navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException(...error));
		}, [message, name]);
		await fails({}, throws('NotReadableError', 'Could not start audio source'), 'busy', 'is busy', 'Another program');
		await fails({}, throws('NotAllowedError', 'Permission denied by system'), 'system', 'The system blocks', 'privacy settings');
		// As in an in-app browser.
		await withProfile(async (context) => {
			const page = await context.newPage();
			await page.addInitScript(() => Object.defineProperty(navigator, 'mediaDevices', { value: undefined }));
			await page.goto(url);
			await says(page, 'problem', 'gives pages no microphone');
			assertSilent(await text(page, 'problem'), 'HTTPS');
		});
	},
};

/** For a runner with `--tls auto` that listens on every address. */
export const tlsChecks = {
	async 'secure: with its authority trusted, HTTPS opens the microphone, over WebRTC and WSS'(runner) {
		const said = [];
		await withBrowser(async (context) => {
			const named = await context.newPage();
			await named.goto(`https://board.local:${portOf(runner)}/client/`);
			if (!await named.evaluate(() => globalThis.isSecureContext)) throw new Error('not secure by its name');
			await named.close();
			for (const transport of ['webrtc', 'websocket']) {
				const page = await context.newPage();
				const faults = watch(page);
				const sockets = [];
				page.on('websocket', (socket) => sockets.push(socket.url()));
				await connect(page, `${lan(runner, 'https')}/client/?transport=${transport}`);
				said.push(`${transport}: energy ${await talks(page, transport)}`);
				if (transport === 'websocket' && !sockets.every((url) => url.startsWith('wss://'))) throw new Error(`${sockets}`);
				await hangUp(page, runner);
				if (faults.length) throw new Error(faults.join('\n'));
			}
		}, { trusts: await authority(runner) });
		return said.join(', ');
	},

	async 'secure: without trust the browser refuses HTTPS'(runner) {
		await withProfile(async (context) => {
			const page = await context.newPage();
			const refused = await page.goto(`${lan(runner, 'https')}/client/`).then(() => 'nothing', ({ message }) => message);
			if (!refused.includes('ERR_CERT_AUTHORITY_INVALID')) throw new Error(`it says ${refused}`);
		});
	},

	async 'secure: plain HTTP leads to trust, in the words of each browser, and past the warning'(runner, out) {
		await withProfile(async (context) => {
			const wanted = {
				Chrome: 'chrome://certificate-manager', iPhone: 'Certificate Trust Settings', Android: 'CA certificate',
				Firefox: 'View Certificates', Safari: 'Keychain Access',
			};
			for (const [name, words] of Object.entries(wanted)) {
				const page = await context.newPage();
				if (AGENTS[name]) await pretend(page, AGENTS[name]);
				const said = await explained(page, lan(runner));
				assertSays(said, 'One step to the microphone', 'Continue over HTTPS', 'will warn once', 'Trust this runner for good');
				assertSilent(said, 'ssh', '--tls', 'ca.crt');
				if (name === 'Chrome') await shoot(page, out, 'https');
				if (name === 'Chrome') await assertFits(page);
				const folded = await unfolded(page);
				assertSays(folded, `${lan(runner)}/ca.crt`, words, `${lan(runner, 'https')}/client/`);
				await shoot(page, out, `trust-${name}`);
				await assertFits(page);
				await page.close();
			}
			// A phone gets the same address from the screen.
			const desk = await context.newPage();
			await explained(desk, lan(runner));
			const scanned = await scan(desk);
			if (scanned !== `${lan(runner, 'https')}/client/`) throw new Error(`the code says ${scanned}`);
			await shoot(desk, out, 'qr');
			await assertFitsWidth(desk, 'QR code');
			await desk.close();
			// As most users do it.
			const page = await context.newPage();
			await explained(page, `${lan(runner)}/client/?transport=websocket`);
			const https = await go(page);
			if (https !== `${lan(runner, 'https')}/client/?transport=websocket`) throw new Error(https);
			await page.locator('#problem-go').click();
			await page.waitForURL(/^chrome-error:/);
			await photograph(page, out, 'warning');
			await page.locator('#details-button').click();
			await page.locator('#proceed-link').click();
			await page.waitForURL(https);
			await page.locator('#connect').click();
			await isPhase(page, 'ready');
			await talks(page, 'websocket');
			await hangUp(page, runner);
		}, { fullBrowser: true });
	},

	async 'secure: on the machine of the runner, the page shows the code of an address that phones reach'(runner) {
		const reached = `https://192.168.7.20:${portOf(runner)}/`;
		await withProfile(async (context) => {
			for (const [page, expected, words] of [[reached, reached, 'Scan this'], [undefined, null, '--host 0.0.0.0']]) {
				const tab = await context.newPage();
				// This machine may have no address in a private network.
				await tab.route('**/status', async (route) => {
					const reply = await route.fetch();
					await route.fulfill({ response: reply, json: { ...await reply.json(), page } });
				});
				await tab.goto(`http://localhost:${portOf(runner)}/client/`);
				await tab.locator('#server[data-ok=true]').waitFor();
				const scanned = await scan(tab);
				if (scanned !== expected) throw new Error(`the code says ${scanned}, and /status ${page}`);
				assertSays(await text(tab, 'phone'), words);
				await assertFitsWidth(tab, 'address for phones');
				await tab.close();
			}
		});
	},

	async 'secure: a terminal shows the address with the key as a QR code'({ child, folder }) {
		const runner = `${child.spawnfile} --port 7860 --bot echo --host 0.0.0.0 --tls auto --api-key 'a+b/0123456789abcdef'`;
		const network = 'ip link set lo up && ip address add 192.168.7.20/24 dev lo';
		const printed = await onTerminal(`unshare --map-root-user --net sh -c "${network} && exec ${runner}"`, folder);
		const lines = printed.split(/\r?\n/).filter((line) => /^[ █▀▄]{29,}$/.test(line));
		const half = (line, characters) => [...line].map((each) => characters.includes(each));
		const scanned = decode(lines.flatMap((line) => [half(line, '█▀'), half(line, '█▄')]));
		const expected = 'https://192.168.7.20:7860/#key=a%2Bb%2F0123456789abcdef';
		if (scanned !== expected || !printed.includes(`open ${expected}`)) throw new Error(`the code says ${scanned}:\n${printed}`);
	},

	async 'secure: with trust, plain HTTP is one click away from talking'(runner, out) {
		return withBrowser(async (context) => {
			const page = await context.newPage();
			const said = await explained(page, lan(runner));
			assertSilent(said, 'ca.crt', 'Trust', 'warn');
			await shoot(page, out, 'trusted');
			await page.locator('#problem-go').click();
			await page.waitForURL(`${lan(runner, 'https')}/client/`);
			await page.locator('#server[data-ok=true]').waitFor();
			if (await page.locator('#problem').isVisible()) throw new Error(await text(page, 'problem'));
			await page.locator('#connect').click();
			await isPhase(page, 'ready');
			const energy = await talks(page, 'webrtc');
			await hangUp(page, runner);
			return `energy ${energy}`;
		}, { trusts: await authority(runner) });
	},
};
