// Who may use the runner from a browser: cross-site pages, foreign host names, and clients without the key.

import { createServer } from 'node:http';
import { assertFits, connect, isPhase, shoot, text } from './page.mjs';
import { until } from './runner.mjs';
import { received } from './watch.mjs';

/** A key in which every character has to be escaped somewhere. */
export const KEY = 'a+b/c=d&e%f0123456789';

/** An empty page under a name that is not of this network, though it leads here. */
async function serveStranger() {
	const server = createServer((_, reply) => {
		reply.setHeader('Content-Type', 'text/html');
		reply.end('<!doctype html><title>stranger</title>');
	});
	await new Promise((done) => { server.listen(0, '127.0.0.1', done); });
	return { url: `http://evil.example:${server.address().port}/`, close: () => server.close() };
}

export const checks = {
	async 'untrusted: a cross-site page may send JSON, and nothing that browsers send unasked'(context, runner) {
		const stranger = await serveStranger();
		const page = await context.newPage();
		await page.goto(stranger.url);
		const start = `${runner.url}/start`;
		const post = (type, mode) => page.evaluate(async ([url, contentType, how]) => {
			const options = { method: 'POST', headers: contentType ? { 'Content-Type': contentType } : {}, body: new Blob(['{}']), mode: how };
			const reply = await fetch(url, options);
			return { status: reply.status, body: await reply.json().catch(() => null) };
		}, [start, type, mode]);

		const json = await post('application/json', 'cors');
		if (json.status !== 200 || !json.body.sessionId) throw new Error(`JSON: ${JSON.stringify(json)}`);
		for (const type of ['text/plain', 'application/x-www-form-urlencoded', '']) {
			const plain = await post(type, 'cors');
			if (plain.status !== 403 || !/application\/json/.test(plain.body?.detail)) throw new Error(`${type}: ${JSON.stringify(plain)}`);
		}
		// The page cannot read the response, so the browser is asked for it.
		const answered = (act) => Promise.all([page.waitForResponse(start), act()]).then(([reply]) => reply.status());
		const unasked = {
			'no-cors': () => post('text/plain', 'no-cors'),
			beacon: () => page.evaluate((url) => navigator.sendBeacon(url, '{}'), start),
			form: () => page.evaluate((url) => {
				const form = Object.assign(document.createElement('form'), { method: 'POST', enctype: 'text/plain', action: url });
				form.append(Object.assign(document.createElement('input'), { name: '{"body":"', value: '"}' }));
				document.body.append(form);
				form.submit();
			}, start),
		};
		for (const [name, act] of Object.entries(unasked)) {
			const status = await answered(act);
			if (status !== 403) throw new Error(`${name}: ${status}`);
		}
		await page.close();
		stranger.close();
	},

	async 'untrusted: a foreign name for the runner opens nothing'(context, runner) {
		const { port } = new URL(runner.url);
		const page = await context.newPage();
		for (const path of ['/', '/client/', '/client/app.js', '/status', '/metrics', '/ca.crt']) {
			const status = (await page.goto(`http://rebound.example:${port}${path}`)).status();
			if (status !== 421) throw new Error(`${path}: ${status}`);
		}
		const status = (await page.goto(`http://board.local:${port}/client/`)).status();
		if (status !== 200) throw new Error(`board.local: ${status}`);
		await page.close();
	},
};

/** For a runner with `--api-key` KEY. */
export const keyChecks = {
	async 'key: the page asks for it, says when it is wrong, and keeps it for the tab'(context, runner, out) {
		const page = await context.newPage();
		const asks = () => page.locator('#problem-key').waitFor({ state: 'visible' });
		const give = async (key) => {
			await page.locator('#key').fill(key);
			await page.keyboard.press('Enter');
		};
		await page.goto(`${runner.url}/client/`);
		await page.locator('#server[data-ok=true]').waitFor();
		await page.locator('#connect').click();
		await asks();
		if (!/--api-key/.test(await text(page, 'problem'))) throw new Error(await text(page, 'problem'));
		await shoot(page, out, 'key');
		await assertFits(page);
		await give('another key');
		await until(async () => /rejected the key/.test(await text(page, 'problem')), 'the page says that the key is wrong');
		await give(KEY);
		await isPhase(page, 'ready');
		if (await page.locator('#problem').isVisible()) throw new Error(await text(page, 'problem'));
		await until(async () => (await received(page)).packets > 20, 'sound');
		const log = await page.locator('#log').innerText();
		if (log.includes(KEY)) throw new Error('the key is in the log of the page');
		await page.close();

		const other = await context.newPage();
		await other.goto(`${runner.url}/client/`);
		await other.locator('#connect').click();
		await other.locator('#problem-key').waitFor({ state: 'visible' });
		await other.close();
	},

	async 'key: behind the # of the address it opens, leaves the address, and is never sent with it'(context, runner) {
		for (const transport of ['webrtc', 'websocket']) {
			const page = await context.newPage();
			const urls = [];
			page.on('request', (request) => urls.push(request.url(), request.headers().referer ?? ''));
			page.on('websocket', (socket) => urls.push(socket.url()));
			const hash = `#key=${encodeURIComponent(KEY)}`;
			const query = `?transport=${transport}`;
			await connect(page, `${runner.url}/client/${query}${hash}`);
			if (page.url() !== `${runner.url}/client/${transport === 'webrtc' ? '' : query}` && page.url() !== `${runner.url}/client/${query}`) {
				throw new Error(`the address is ${page.url()}`);
			}
			await page.reload();
			await page.locator('#server[data-ok=true]').waitFor();
			await page.locator('#connect').click();
			await isPhase(page, 'ready');
			// The fragment of a URL is visible to checks only.
			const leaked = urls.filter((url) => url.split('#')[0].includes('0123456789'));
			if (leaked.length || urls.length < 20) throw new Error(`among ${urls.length} addresses: ${leaked}`);
			await page.close();
			await runner.waitForSessions(0, 35000);
		}
	},
};
