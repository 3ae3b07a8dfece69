// Takes the pictures of README from the real page: docs/pictures/NAME.png. They are taken again after a change of the page.
//
//   cargo build --release && node tests/peers/browser/pictures.mjs [--binary PATH] [--out FOLDER]
//
// The caller speaks from a file, and a bot of these pictures answers. Needs what run.mjs needs.

import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { withBrowser } from './chromium.mjs';
import { DIALOGUE } from './dialogue.mjs';
import { connect, isPhase, says } from './page.mjs';
import { Runner, sleep, until } from './runner.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
const { values } = parseArgs({
	options: {
		binary: { type: 'string', default: join(root, 'target/release/edge-runner') },
		out: { type: 'string', default: join(root, 'docs/pictures') },
	},
});
// Long enough for all turns, and for charts that are full.
const CALL_MS = 40000;
const DESK = { width: 1200, height: 680 };
const PHONE = { width: 360, height: 740 };

const bot = ['node', '--experimental-websocket', '--no-warnings', join(dirname(fileURLToPath(import.meta.url)), 'picture-bot.mjs')];
const runner = await Runner.start(resolve(values.binary), '--', ...bot);

const speaks = (page) => until(async () => (await page.locator('#bot[data-speaking=true]').count()) > 0, 'the bot speaks', 60000);

async function picture(page, name, size, colorScheme, moment = speaks) {
	await page.setViewportSize(size);
	await page.emulateMedia({ colorScheme });
	await sleep(400);
	await moment(page);
	await page.screenshot({ path: join(resolve(values.out), `${name}.png`), animations: 'disabled' });
	console.log(`${name}.png`);
}

try {
	await withBrowser(async (context) => {
		const page = await context.newPage();
		await page.setViewportSize(DESK);
		await connect(page, `${runner.url}/client/`);
		await says(page, 'transcript', DIALOGUE[0].bot, 60000);
		const operator = await context.newPage();
		await operator.goto(`${runner.url}/client/#sessions`);
		await page.bringToFront();
		await sleep(CALL_MS);
		await picture(page, 'page', DESK, 'light');
		await picture(page, 'page-dark', DESK, 'dark');
		await picture(page, 'page-phone', PHONE, 'light');
		await page.setViewportSize(DESK);
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		// The call that is over, opened: what was said, and how its network was.
		await operator.bringToFront();
		await operator.locator('#calls-list summary').first().click();
		await says(operator, 'calls-list', 'Ended by the caller', 10000);
		await picture(operator, 'calls', DESK, 'light', (own) => own.locator('#calls-list canvas').first().waitFor());
		await operator.close();
		await page.bringToFront();
		await page.goto(`${runner.url}/client/?transport=telephony_a`);
		await page.locator('#server[data-ok=true]').waitFor();
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		await picture(page, 'phone-call', PHONE, 'light');
	}, { sentences: DIALOGUE.map(({ user }) => user) });
} finally {
	await runner.stop();
}
