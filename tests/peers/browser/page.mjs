// The built-in page in a real browser: it connects, hears the bot, says what is wrong, and looks as it should.

import { join } from 'node:path';
import { HEARD, received, watch } from './chromium.mjs';
import { until } from './runner.mjs';

const SIZES = { desk: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };

async function shoot(page, out, name) {
	for (const [place, size] of Object.entries(SIZES)) {
		await page.setViewportSize(size);
		for (const scheme of ['light', 'dark']) {
			await page.emulateMedia({ colorScheme: scheme });
			await page.screenshot({ path: join(out, `${name}-${place}-${scheme}.png`), fullPage: true, animations: 'disabled' });
		}
	}
	await page.setViewportSize(SIZES.desk);
}

/** Nothing may be wider than the phone's screen. */
async function assertFits(page) {
	await page.setViewportSize(SIZES.phone);
	const [content, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
	if (content > screen) throw new Error(`${content} px wide on a screen of ${screen} px`);
	await page.setViewportSize(SIZES.desk);
}

const phase = (page) => page.evaluate(() => document.documentElement.dataset.phase);
const text = (page, id) => page.locator(`#${id}`).innerText();

async function connect(page, url) {
	await page.goto(url);
	await page.locator('#server[data-ok=true]').waitFor();
	await page.locator('#connect').click();
	await until(async () => (await phase(page)) === 'ready', 'the page is ready');
}

export const checks = {
	async 'page: opens at /, connects, hears the parrot, disconnects'(context, runner, out) {
		const page = await context.newPage();
		const faults = watch(page);
		const violations = [];
		await page.exposeFunction('violation', (line) => violations.push(line));
		await page.addInitScript(() => addEventListener('securitypolicyviolation', (event) => (
			globalThis.violation(`${event.violatedDirective} ${event.blockedURI}`))));
		await page.goto(`${runner.url}/`);
		if (new URL(page.url()).pathname !== '/client/') throw new Error(`at ${page.url()}`);
		await page.locator('#server[data-ok=true]').waitFor();
		await shoot(page, out, 'idle');
		await assertFits(page);

		await connect(page, `${runner.url}/client/`);
		const [energy] = await Promise.all([
			until(async () => (await received(page)).energy > HEARD && (await received(page)).energy, 'sound of the bot', 60000),
			until(async () => (await page.locator('#bot[data-speaking=true]').count()) > 0, 'the page shows the bot speaking', 60000),
		]);
		await shoot(page, out, 'call');
		await assertFits(page);
		await page.locator('#text').fill('typed words');
		await page.keyboard.press('Enter');
		await until(async () => (await text(page, 'transcript')).includes('typed words'), 'typed words in the transcript');
		await page.locator('#mute').click();
		await until(async () => (await text(page, 'you')).includes('Muted'), 'muted');
		await page.locator('#connect').click();
		await until(async () => (await phase(page)) === 'idle', 'the page is idle');
		const freed = await runner.waitForSessions(0, 3000);
		if (faults.length || violations.length) throw new Error([...faults, ...violations].join('\n'));
		await page.close();
		return `energy ${energy.toFixed(3)}, freed after ${freed} s`;
	},

	async 'page: the keyboard alone connects and disconnects'(context, runner) {
		const page = await context.newPage();
		const faults = watch(page);
		await page.goto(`${runner.url}/client/`);
		await page.locator('#server[data-ok=true]').waitFor();
		const focused = () => page.evaluate(() => document.activeElement?.id);
		for (let presses = 0; (await focused()) !== 'connect'; presses++) {
			if (presses === 10) throw new Error('the button is not within ten presses of Tab');
			await page.keyboard.press('Tab');
		}
		await page.keyboard.press('Enter');
		await until(async () => (await phase(page)) === 'ready', 'the page is ready');
		await page.keyboard.press('Enter');
		await until(async () => (await phase(page)) === 'idle', 'the page is idle');
		await runner.waitForSessions(0, 3000);
		if (faults.length) throw new Error(faults.join('\n'));
		await page.close();
	},

	async 'page: a closed tab ends the session'(context, runner) {
		const page = await context.newPage();
		await connect(page, `${runner.url}/client/`);
		await page.close({ runBeforeUnload: false });
		return `freed after ${await runner.waitForSessions(0, 35000)} s`;
	},

	async 'page: without a secure context it says so in plain words'(context, runner, out) {
		const page = await context.newPage();
		const { port } = new URL(runner.url);
		await page.goto(`http://voice.test.local:${port}/client/`);
		await page.locator('#problem').waitFor({ state: 'visible' });
		const problem = await text(page, 'problem');
		if (!/microphone/i.test(problem) || !/localhost/.test(problem)) throw new Error(problem);
		await shoot(page, out, 'insecure');
		await assertFits(page);
		await page.close();
	},

	async 'page: a runner that is gone is said in plain words'(context, runner, out) {
		const page = await context.newPage();
		await connect(page, `${runner.url}/client/`);
		const code = await runner.terminate();
		await until(async () => (await phase(page)) === 'idle', 'the page is idle', 60000);
		await shoot(page, out, 'ended');
		await page.close();
		if (code !== 0) throw new Error(`the runner ended with ${code}`);
		return 'the runner ended with 0';
	},
};
