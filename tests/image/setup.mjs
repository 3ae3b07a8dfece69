// The setup page of a board, in Chromium on this machine: fills the form, keeps the key, finishes, and checks that the page is closed.
//
//   node setup.mjs URL [--form-only] [--out FOLDER]
//
// URL is that of the setup page on a port of this machine, http://edge-runner.local for a board whose port 80 is forwarded. Without
// --form-only it then waits until the runner answers, and prints its URL with the key. Needs what tests/peers/browser needs.

import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { assertAccessible } from '../peers/browser/axe.mjs';
import { withBrowser } from '../peers/browser/chromium.mjs';

const { values, positionals: [url] } = parseArgs({
	allowPositionals: true,
	options: { 'form-only': { type: 'boolean' }, out: { type: 'string', default: join(import.meta.dirname, '../../target/browser') } },
});
const out = resolve(values.out);
mkdirSync(out, { recursive: true });
const NAMES = ['edge-runner.local', 'kitchen.local'];
const PASSWORD = 'correct horse 1';

async function assertFits(page, state) {
	const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
	if (over > 0) throw new Error(`${state}: ${over} px wider than the window`);
}

/** The URL of the runner with the key that the page showed. */
async function setUp(context) {
	const page = await context.newPage();
	const faults = [];
	page.on('pageerror', (error) => faults.push(error.message));
	await page.setViewportSize({ width: 320, height: 640 });
	await page.goto(url);
	await page.locator('#networks li').first().waitFor();
	await assertFits(page, 'form');
	await assertAccessible(page, 'form');
	await page.fill('#name', 'Kitchen');

	// A mistake is explained, and nothing is lost.
	await page.check('input[name=ssh][value=password]');
	await page.fill('#ssh-password', 'short');
	await page.click('#save');
	await page.locator('#problem-text', { hasText: 'password takes' }).waitFor();
	await assertAccessible(page, 'problem');
	await page.fill('#ssh-password', PASSWORD);
	for (const bot of ['realtime', 'cascade', 'parrot']) {
		await page.check(`input[name=bot][value=${bot}]`);
		await assertFits(page, bot);
		await assertAccessible(page, bot);
	}
	await page.screenshot({ path: join(out, 'setup-form.png'), fullPage: true });
	await page.click('#save');
	await page.locator('#confirm').waitFor();
	const key = await page.locator('#key').textContent();
	if (!/^[0-9a-f]{48}$/.test(key)) throw new Error(`no key: ${key}`);
	await assertFits(page, 'key');
	await assertAccessible(page, 'key');
	await page.screenshot({ path: join(out, 'setup-key.png') });
	await page.click('#finish');
	await page.locator('#done').waitFor();
	await assertAccessible(page, 'done');
	if (!values['form-only']) await page.locator('#open').waitFor({ timeout: 600000 });
	const open = await page.locator('#open').getAttribute('href');
	if (!open.endsWith(`:7860/#key=${key}`)) throw new Error(`the page leads to ${open.split('#')[0]}`);
	if (faults.length) throw new Error(faults.join('\n'));
	return open;
}

/** A second visit: the page is gone. */
async function assertClosed(context) {
	const page = await context.newPage();
	const reply = await page.goto(url).catch((error) => {
		if (!/ERR_CONNECTION_(REFUSED|RESET|CLOSED)|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED/.test(error.message)) throw error;
	});
	if (reply && reply.status() !== 410) throw new Error(`a second visit has status ${reply.status()}`);
}

const rules = [...NAMES.map((name) => `MAP ${name} 127.0.0.1`), 'MAP * ~NOTFOUND', 'EXCLUDE localhost', 'EXCLUDE 127.0.0.1'];
const open = await withBrowser(async (context) => {
	const found = await setUp(context);
	await assertClosed(context);
	return found;
}, { args: [`--host-resolver-rules=${rules.join(', ')}`] });
console.log(open);
