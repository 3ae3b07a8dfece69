// The built-in page over MoQ: it talks and hears, and says in plain words why it cannot.

import { createSocket } from 'node:dgram';
import { assertFits, connect, isPhase, listen, phase, says, shoot, text, watchPolicy } from './page.mjs';
import { sleep, until } from './runner.mjs';
import { HEARD, received, watch } from './watch.mjs';

async function udpSocket() {
	const socket = createSocket('udp6');
	await new Promise((done) => { socket.bind(0, '::', done); });
	return socket;
}

const ADDRESS = '/client/?transport=moq';

async function leaves(page, runner) {
	await page.locator('#connect').click();
	await isPhase(page, 'idle');
	return `freed after ${await runner.waitForSessions(0)} s`;
}

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

export const checks = {
	async 'moq: the page connects, hears the parrot, is muted, disconnects'(context, runner, out) {
		const page = await context.newPage();
		const faults = watch(page);
		await watchPolicy(page, faults);
		await page.goto(`${runner.url}/client/`);
		await page.locator('#server[data-ok=true]').waitFor();
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
		await Promise.all([
			until(async () => (await sound.read()).energy > HEARD, 'sound of the bot', 60000),
			until(async () => (await page.locator('#bot[data-speaking=true]').count()) > 0, 'the page shows the bot speaking', 60000),
		]);
		await says(page, 'transcript', 'You spoke for', 60000);
		await page.locator('#text').fill('typed words');
		await page.keyboard.press('Enter');
		await says(page, 'transcript', 'typed words');
		await shoot(page, out, 'moq');
		await assertFits(page);
		const { energy } = await sound.read();
		await page.locator('#mute').click();
		await says(page, 'you', 'Muted');
		const freed = await leaves(page, runner);
		const log = await text(page, 'log');
		if (faults.length || /\d(error)/.test(log)) throw new Error(`${faults.join('\n')}\n${log}`);
		await page.close();
		return `energy ${energy.toFixed(3)}, ${freed}`;
	},

	async 'moq: two pages talk at once, and the keypad reaches the bot of each'(context, runner) {
		const pages = [];
		for (const key of ['3', '7']) {
			const page = await context.newPage();
			const faults = watch(page);
			await connect(page, `${runner.url}${ADDRESS}`);
			await page.locator('#keypad summary').click();
			await page.locator('#keys button', { hasText: key }).click();
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
		const page = await context.newPage();
		await connect(page, `${runner.url}${ADDRESS}`);
		const sound = await listen(page);
		const isSpeaking = (wanted) => page.locator(`#bot[data-speaking=${wanted}]`).waitFor({ timeout: 60000 });
		const answers = async (count) => {
			const told = async () => (await text(page, 'transcript')).split('You spoke for').length > count;
			await until(told, `answer ${count} of the parrot`, 60000);
			await sound.restart();
		};
		await answers(1);
		await isSpeaking(true);
		await isSpeaking(false);
		const whole = (await sound.read()).loudS;
		await answers(2);
		await until(async () => (await sound.read()).loudS > 0, 'the begin of an answer');
		await page.locator('#text').fill('Quiet, please.');
		await page.keyboard.press('Enter');
		await isSpeaking(false);
		const cut = (await sound.read()).loudS;
		if (!(cut < whole / 2)) throw new Error(`loud for ${cut} s, and for ${whole} s when nobody interrupts`);
		await page.close();
		return `loud for ${cut.toFixed(2)} s in place of ${whole.toFixed(2)} s`;
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
		const freed = await leaves(page, runner);
		if (faults.length) throw new Error(faults.join('\n'));
		await page.close();
		return `energy ${energy.toFixed(3)}, ${freed}`;
	},

	async 'moq: a closed tab ends the session'(context, runner) {
		const page = await context.newPage();
		await connect(page, `${runner.url}${ADDRESS}`);
		await page.close({ runBeforeUnload: false });
		return `freed after ${await runner.waitForSessions(0)} s`;
	},

	async 'moq: a runner that ends says so'(context, runner) {
		const page = await context.newPage();
		await connect(page, `${runner.url}${ADDRESS}`);
		const code = await runner.terminate();
		await isPhase(page, 'idle');
		const status = await text(page, 'status');
		await page.close();
		if (!status.includes('Call ended') || code !== 0) throw new Error(`${status}; the runner ended with ${code}`);
		return status;
	},

	async 'moq: a lost runner is said in plain words'(context, runner, out) {
		const page = await context.newPage();
		await connect(page, `${runner.url}${ADDRESS}`);
		runner.child.kill('SIGKILL');
		await page.locator('#problem').waitFor({ state: 'visible', timeout: 60000 });
		assertSays(await text(page, 'problem'), 'connection was lost', 'runner still running');
		await isPhase(page, 'idle');
		await shoot(page, out, 'moq-lost');
		await page.close();
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
