// From “microphone blocked” to talking: what the page says on plain HTTP, and that what it says is true. Each check opens the
// browsers that it needs, since trust and the microphone belong to the browser.

import { join } from 'node:path';
import { HEARD, ownAddresses, received, watch, withBrowser } from './chromium.mjs';
import { assertFits, connect, isPhase, listen, says, shoot, text } from './page.mjs';
import { until } from './runner.mjs';

const portOf = (runner) => new URL(runner.url).port;

/** This machine under an address that no browser takes for its own. */
function lan(runner, scheme = 'http') {
	const [address] = ownAddresses();
	if (!address) throw new Error('this machine has no address but loopback');
	return `${scheme}://${address}:${portOf(runner)}`;
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

/** What the links of the explanation lead to. */
const links = (page) => page.locator('#problem-steps a').evaluateAll((all) => all.map(({ href }) => href));

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
	await runner.waitForSessions(0, 3000);
	await page.close();
}

/** For a runner without TLS that listens on every address. */
export const plainChecks = {
	async 'secure: plain HTTP to a name or an address of the LAN is explained in plain words'(runner, out) {
		const port = portOf(runner);
		await withBrowser(async (context) => {
			for (const [name, origin] of [['name', `http://board.local:${port}`], ['address', lan(runner)]]) {
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
			// A telephone has no ssh.
			const page = await context.newPage();
			await pretend(page, AGENTS.Android);
			const said = await explained(page, lan(runner));
			assertSays(said, '--tls auto');
			assertSilent(said, 'ssh');
		});
	},

	async 'secure: on plain HTTP one can still listen, over WebRTC'(runner) {
		await withBrowser(async (context) => {
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
		const fails = (microphone, prepare, name, ...wanted) => withBrowser(async (context) => {
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
		}, { microphone });
		await fails('asks', async (page) => {
			const devtools = await page.context().newCDPSession(page);
			await devtools.send('Browser.setPermission', { permission: { name: 'microphone' }, setting: 'denied' });
		}, 'denied', 'was not allowed', 'symbol beside the address');
		await fails('none', async () => {}, 'none', 'No microphone found', 'Plug one in');
		// Neither can be had without a system that does it; the errors are those that Chromium gives.
		const throws = (name, message) => (page) => page.addInitScript((error) => {
			navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException(...error));
		}, [message, name]);
		await fails('speaks', throws('NotReadableError', 'Could not start audio source'), 'busy', 'is busy', 'Another program');
		await fails('speaks', throws('NotAllowedError', 'Permission denied by system'), 'system', 'The system keeps', 'privacy settings');
	},
};
