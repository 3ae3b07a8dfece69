// The settings of a runner that was started with a file: what is changed there, and the restart.

import { createServer } from 'node:http';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { assertAccessible } from './axe.mjs';
import { assertFitsWidth, photograph } from './page.mjs';
import { Runner, until } from './runner.mjs';
import { watch } from './watch.mjs';

const KEY = 'key-of-the-settings-0123456789';
const SECRET = 'sk-of-the-service';
const SIZES = [[1280, 900], [390, 844]];

/** A server on a free port of loopback. */
async function listen(answer) {
	const server = createServer(answer).listen(0, '127.0.0.1');
	await once(server, 'listening');
	return server;
}

/** In light and dark, in each size. */
async function assertUsable(page, state) {
	for (const colorScheme of ['light', 'dark']) {
		await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
		await assertAccessible(page, `${state}, ${colorScheme}`, colorScheme === 'dark');
	}
	await page.emulateMedia({ colorScheme: 'light' });
	await assertFitsWidth(page, state);
}

async function shoot(page, out, name) {
	for (const [width, height] of SIZES) {
		await page.setViewportSize({ width, height });
		await photograph(page, out, `${name}-${width}`);
	}
}

export const checks = {
	async 'settings: bot and services are changed, the runner restarts, and a change that fails is taken back'(context, without, { binary, out }) {
		const models = await listen((request, reply) => {
			const isKnown = request.headers.authorization === `Bearer ${SECRET}`;
			reply.writeHead(isKnown ? 200 : 401, { 'Content-Type': 'application/json' });
			reply.end(JSON.stringify(isKnown ? { data: [{ id: 'm' }] } : {}));
		});
		const url = `http://127.0.0.1:${models.address().port}/v1`;
		const folder = mkdtempSync(join(tmpdir(), 'edge-runner-settings-'));
		const file = join(folder, 'edge-runner.toml');
		writeFileSync(file, `# mine\napi-key = "${KEY}"\nbot = "echo"\nCASCADE_LLM_API_KEY = "${SECRET}"\nCASCADE_LLM_URL = "${url}"\ntools = "/no/such/program"\n`);
		// It keeps its port when it restarts.
		const free = await listen();
		const { port } = free.address();
		await new Promise((closed) => { free.close(closed); });
		const runner = await Runner.start(binary, '--config', file, '--settings', 'page', '--port', String(port), { RUNNER_METRICS: 'local' });
		try {
			const page = await context.newPage();
			const faults = watch(page);
			const problem = page.locator('#settings-view .problem');
			const said = page.locator('#settings-view form.form > .said');
			await page.goto(`${without.url}/client/`);
			await page.locator('#server', { hasText: 'Ready' }).waitFor();
			if (await page.locator('#to-settings').isVisible()) throw new Error('a page that changes no settings leads to them');
			if (await page.locator('#new-version').isVisible()) throw new Error('a page knows of a version that the runner does not');
			await page.route('**/status', async (route) => {
				const reply = await route.fetch();
				await route.fulfill({ json: { ...await reply.json(), new_version: '9.0.0' } });
			});
			await page.reload();
			await page.locator('#new-version', { hasText: 'Version 9.0.0 is out: edge-runner update' }).waitFor();
			await page.unroute('**/status');
			await page.goto(`${runner.url}/client/`);
			await page.click('#to-settings a');
			await problem.filter({ hasText: 'need the key' }).waitFor();
			await assertUsable(page, 'settings, key');
			await page.fill('#settings-view input', KEY);
			await page.keyboard.press('Enter');
			await page.locator('#settings-view input[value=cascade]').waitFor();
			await assertUsable(page, 'settings, echo');
			await page.check('#settings-view input[value=cascade]');
			await page.fill('#CASCADE_LLM_MODEL', 'm');
			const chat = page.locator('[data-service=chat]');
			await chat.locator('button').click();
			await page.locator('#said-chat', { hasText: 'has the model m' }).waitFor();
			if (await page.locator('#CASCADE_LLM_API_KEY').inputValue()) throw new Error('a secret came back');
			// What the runner would not start with is said at its field.
			await page.click('#settings-view form.form > .main');
			await said.filter({ hasText: 'CASCADE_STT_URL' }).waitFor();
			if (!(await page.locator('#CASCADE_STT_URL').evaluate((field) => field === document.activeElement))) throw new Error('the wrong field has no focus');
			await assertUsable(page, 'settings, wrong');
			await page.fill('#CASCADE_STT_URL', 'tcp://127.0.0.1:1');
			await page.fill('#CASCADE_TTS_URL', 'tcp://127.0.0.1:1');
			await shoot(page, out, 'settings');
			// The program of functions is missing, which only the start notices.
			await page.click('#settings-view form.form > .main');
			await problem.filter({ hasText: 'taken back' }).waitFor();
			await assertUsable(page, 'settings, taken back');
			await shoot(page, out, 'settings-taken-back');
			if (!readFileSync(file, 'utf8').includes('bot = "echo"')) throw new Error('the file is not as before');

			await page.check('#settings-view input[value=parrot]');
			await page.click('#settings-view form.form > .main');
			await said.filter({ hasText: 'Saved, and applied' }).waitFor();
			if (!readFileSync(file, 'utf8').startsWith(`# mine\napi-key = "${KEY}"\nbot = "parrot"\n`)) throw new Error('the file has not what was saved');
			const bot = async () => (await (await fetch(`${runner.url}/status`)).json()).bot;
			if (await bot() !== 'parrot') throw new Error(`the bot is ${await bot()}`);
			await page.getByLabel('Make a new key').check();
			await page.click('#settings-view form.form > .main');
			await problem.filter({ hasText: 'The new key' }).waitFor();
			await assertUsable(page, 'settings, new key');
			const key = await problem.locator('code').textContent();
			await until(() => readFileSync(file, 'utf8').includes(key), 'the new key is in the file');
			// Back to the bot.
			await page.click('#settings-view a');
			await page.locator('#talk-view').waitFor({ state: 'visible' });
			if (runner.log.some((line) => line.includes(SECRET) || line.includes(key))) throw new Error('a secret is in the log');
			const wrong = faults.filter((fault) => !/40[01]|ERR_(ABORTED|CONNECTION|EMPTY)/.test(fault));
			if (wrong.length) throw new Error(wrong.join('\n'));
		} finally {
			await runner.stop();
			models.close();
			rmSync(folder, { recursive: true });
		}
	},
};
