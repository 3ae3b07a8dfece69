// The setup page of a board, of a process that ends as on a board; what the board does with the settings is played here.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { assertAccessible } from './axe.mjs';
import { assertNarrow, photograph } from './page.mjs';
import { watch } from './watch.mjs';

/** Starts the page on a port, 0 for a free one, and gives its URL and the end of its process. Programs in `folder` come before others. */
async function serve(binary, runner, port, folder = '/nowhere') {
	const env = { ...process.env, PATH: `${folder}:${process.env.PATH}` };
	const args = ['setup', '--host', '127.0.0.1', '--port', port, '--spool', runner.folder, '--runner-port', new URL(runner.url).port];
	const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'ignore'], env });
	const ended = once(child, 'exit');
	const end = () => child.kill();
	for await (const line of createInterface({ input: child.stdout })) {
		const [, url] = /listening on (http:\S+)/.exec(line) ?? [];
		if (url) return { end, ended, url: new URL(url) };
	}
	throw new Error('the setup page did not start');
}

/** On the narrowest phone, in light and dark. */
async function assertUsable(page, state) {
	await page.setViewportSize({ width: 320, height: 640 });
	for (const colorScheme of ['light', 'dark']) {
		await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
		await assertNarrow(page, state);
		await assertAccessible(page, `${state}, ${colorScheme}`, colorScheme === 'dark');
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

/** A server of models that takes one key, on a free port. */
async function serveModels(key) {
	const server = createServer((request, reply) => {
		const isKnown = request.headers.authorization === `Bearer ${key}`;
		reply.writeHead(isKnown ? 200 : 401, { 'Content-Type': 'application/json' });
		reply.end(JSON.stringify(isKnown ? { data: [{ id: 'm' }] } : { error: { message: 'no' } }));
	}).listen(0, '127.0.0.1');
	await once(server, 'listening');
	return server;
}

export const checks = {
	async 'setup: services are asked, shown at their fields, and can be saved anyway'(context, runner, { binary, out }) {
		const server = await serveModels('sk-right');
		const setup = await serve(binary, runner, 0);
		const page = await context.newPage();
		const faults = watch(page);
		await page.goto(setup.url.href);
		await page.check('input[name=bot][value=cascade]');
		const url = `http://127.0.0.1:${server.address().port}/v1`;
		const fill = async (id, text) => {
			await page.fill(id, text);
			await page.press(id, 'Tab');
		};
		const said = (service, words) => page.locator(`#said-${service}`, { hasText: words }).waitFor();
		await fill('#CASCADE_STT_URL', url);
		await fill('#CASCADE_LLM_URL', url);
		await fill('#CASCADE_LLM_MODEL', 'm');
		await said('chat', 'asks for a key');
		await fill('#CASCADE_LLM_API_KEY', 'sk-wrong');
		await fill('#CASCADE_TTS_URL', 'tcp://127.0.0.1:1');
		await said('chat', 'does not accept this key');
		await said('voice', 'does not answer');
		if (await page.locator('#said-recognizer').textContent()) throw new Error('a model is missed before the form is sent');
		await page.click('#save');
		await said('recognizer', 'name of its model');
		if (!(await page.locator('#CASCADE_STT_MODEL').evaluate((field) => field === document.activeElement))) throw new Error('the wrong field has no focus');
		if (await page.locator('#anyway').isVisible()) throw new Error('what the board would reject can be saved');
		await page.fill('#CASCADE_STT_MODEL', 'm');
		await page.fill('#CASCADE_STT_API_KEY', 'sk-right');
		await page.fill('#CASCADE_LLM_API_KEY', 'sk-right');
		await page.click('#save');
		await page.locator('#anyway').waitFor();
		await said('recognizer', 'has the model m');
		await said('chat', 'has the model m');
		await assertUsable(page, 'setup, a service that does not answer');
		for (const [width, height] of [[1280, 900], [390, 844]]) {
			await page.setViewportSize({ width, height });
			await photograph(page, out, `setup-services-${width}`, { fullPage: true });
		}
		await page.click('#anyway');
		await page.locator('#confirm').waitFor();
		await page.click('#finish');
		await setup.ended;
		server.close();
		const settings = readFileSync(join(runner.folder, 'settings'), 'utf8');
		if (!settings.includes('\nCASCADE_TTS_URL = tcp://127.0.0.1:1\n')) throw new Error(settings.replaceAll('sk-', ''));
		rmSync(join(runner.folder, 'settings'));
		const wrong = faults.filter((fault) => !/ERR_(ABORTED|CONNECTION|EMPTY)/.test(fault));
		if (wrong.length) throw new Error(wrong.join('\n'));
	},

	async 'setup: the sound card is tested, and what was found is shown'(context, runner, { binary }) {
		const program = (name, script) => writeFileSync(join(runner.folder, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
		program('aplay', 'exec cat >/dev/null');
		program('arecord', 'exec cat /dev/urandom');
		const setup = await serve(binary, runner, 0, runner.folder);
		const page = await context.newPage();
		const faults = watch(page);
		await page.goto(setup.url.href);
		const button = page.getByRole('button', { name: 'Test the sound card' });
		const said = page.locator('#sound .said');
		for (const [script, words] of [['exec cat /dev/urandom', 'too loud'], ['exec cat /dev/zero', 'sends silence'], ['echo busy >&2; exit 1', 'busy']]) {
			program('arecord', script);
			await button.click();
			await said.filter({ hasText: words }).waitFor();
			await assertUsable(page, `setup, sound card: ${words}`);
		}
		setup.end();
		await setup.ended;
		if (faults.length) throw new Error(faults.join('\n'));
	},

	async 'setup: settings that the board rejects bring the form back, others end in a link to the runner'(context, runner, { binary }) {
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
