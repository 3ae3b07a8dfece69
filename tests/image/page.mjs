// The built-in page of a board, in Chromium on this machine: connects, hears the parrot, disconnects.
//
//   node page.mjs URL [--out FOLDER]
//
// As boards/qemu-virt/README.md has it, with the board's ports forwarded to this machine. Needs what tests/peers/browser needs.

import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { withBrowser } from '../peers/browser/chromium.mjs';
import { checks } from '../peers/browser/page.mjs';
import { until } from '../peers/browser/runner.mjs';

const { values, positionals: [url] } = parseArgs({
	allowPositionals: true,
	options: { out: { type: 'string', default: join(import.meta.dirname, '../../target/browser') } },
});
const out = resolve(values.out);
mkdirSync(out, { recursive: true });

/** A runner that somebody else started. */
const board = {
	url: url.replace(/\/$/, ''),
	async waitForSessions(wanted, limitMs) {
		const start = Date.now();
		await until(async () => (await (await fetch(`${this.url}/status`)).json()).sessions === wanted, `${wanted} sessions`, limitMs * 10);
		return (Date.now() - start) / 1000;
	},
};

const said = await withBrowser((context) => checks['page: opens at /, connects, hears the parrot, disconnects'](context, board, out));
console.log(`PASS the page of ${board.url} (${said})`);
