// Takes the picture of the page in a call that the README shows: docs/pictures/page.png.
//
//   cargo build && node tests/peers/browser/picture.mjs [--binary PATH] [--out FILE]
//
// The built-in bot repeats each sentence of the caller, who speaks from a file. Needs what run.mjs needs.

import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { withBrowser } from './chromium.mjs';
import { connect } from './page.mjs';
import { Runner, sleep, until } from './runner.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
const { values } = parseArgs({
	options: {
		binary: { type: 'string', default: join(root, 'target/debug/edge-runner') },
		out: { type: 'string', default: join(root, 'docs/pictures/page.png') },
	},
});
const SIZE = { width: 1200, height: 640 };
// The charts hold a minute.
const CALL_MS = 45000;

const runner = await Runner.start(resolve(values.binary));
try {
	await withBrowser(async (context) => {
		const page = await context.newPage();
		await page.setViewportSize(SIZE);
		await page.emulateMedia({ colorScheme: 'light' });
		await connect(page, `${runner.url}/client/`);
		await sleep(CALL_MS);
		await until(async () => (await page.locator('#bot[data-speaking=true]').count()) > 0, 'the bot speaks');
		await sleep(400);
		await page.screenshot({ path: resolve(values.out), animations: 'disabled' });
	});
} finally {
	await runner.stop();
}
