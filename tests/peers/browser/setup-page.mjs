// The setup page of a board, of a process that ends as on a board; what the board does with the settings is played here.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { assertAccessible } from './axe.mjs';
import { assertNarrow } from './page.mjs';
import { watch } from './watch.mjs';

/** Starts the page on a port, 0 for a free one, and gives its URL and the end of its process. */
async function serve(binary, runner, port) {
	const args = ['setup', '--host', '127.0.0.1', '--port', port, '--spool', runner.folder, '--runner-port', new URL(runner.url).port];
	const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'ignore'] });
	const ended = once(child, 'exit');
	for await (const line of createInterface({ input: child.stdout })) {
		const [, url] = /listening on (http:\S+)/.exec(line) ?? [];
		if (url) return { ended, url: new URL(url) };
	}
	throw new Error('the setup page did not start');
}

/** On the narrowest phone, in light and dark. */
async function assertUsable(page, state) {
	await page.setViewportSize({ width: 320, height: 640 });
	for (const colorScheme of ['light', 'dark']) {
		await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
		await assertNarrow(page, state);
		await assertAccessible(page, `${state}, ${colorScheme}`);
	}
}

async function send(page) {
	await page.click('#save');
	await page.locator('#confirm').waitFor();
	const key = await page.locator('#key').textContent();
	await assertUsable(page, 'setup, key');
	await page.click('#finish');
	await page.locator('#done').waitFor();
	return key;
}

export const checks = {
	async 'setup: settings that the board rejects bring the form back, others end in a link to the runner'(context, runner, binary) {
		const rejecting = await serve(binary, runner, 0);
		const page = await context.newPage();
		const faults = watch(page);
		await page.goto(rejecting.url.href);
		await page.locator('#networks li').first().waitFor();
		await assertUsable(page, 'setup, form');
		for (const bot of ['realtime', 'cascade', 'parrot']) {
			await page.check(`input[name=bot][value=${bot}]`);
			await assertUsable(page, `setup, ${bot}`);
		}
		await page.fill('#name', 'kitchen');
		await send(page);
		await rejecting.ended;
		// The board takes nothing, and serves the page again.
		rmSync(join(runner.folder, 'settings'));
		const again = await serve(binary, runner, rejecting.url.port);
		const problem = page.locator('#problem-text');
		await problem.filter({ hasText: 'rejected' }).waitFor();
		await assertUsable(page, 'setup, problem');
		if (!(await page.locator('#form').isVisible())) throw new Error('the form is not there to be filled in again');
		if ((await page.inputValue('#name')) !== 'kitchen') throw new Error('what was filled in is lost');

		const key = await send(page);
		await again.ended;
		await page.locator('#done-text', { hasText: 'The board is ready' }).waitFor();
		await assertUsable(page, 'setup, done');
		const link = await page.locator('#open').getAttribute('href');
		if (link !== `https://127.0.0.1:${new URL(runner.url).port}/#key=${key}`) throw new Error(`the page leads to ${link.split('#')[0]}`);
		if (!readFileSync(join(runner.folder, 'settings'), 'utf8').startsWith('hostname = kitchen\n')) throw new Error('other settings');
		// While it waits, the page asks addresses where nothing listens, and reads no answer.
		const wrong = faults.filter((fault) => !/ERR_(ABORTED|CONNECTION|EMPTY)/.test(fault));
		if (wrong.length) throw new Error(wrong.join('\n'));
	},
};
