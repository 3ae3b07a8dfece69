// Pipecat's JavaScript client in Chromium, against replicas behind a balancer.
//
//   node cluster.mjs URL
//
// tests/peers/cluster/run.py starts it, and tells it on standard input what has happened to its replica. After each step it
// writes one line of JSON: the replica that answered last, and how often requests had each status.

import { createInterface } from 'node:readline';
import { withBrowser } from './chromium.mjs';
import { serveClient } from './client.mjs';
import { until } from './runner.mjs';
import { received } from './watch.mjs';

const url = process.argv[2];
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Waits for this word. Without more input there is nothing left to do. */
async function told(word) {
	const { value, done } = await lines.next();
	if (done) process.exit(1);
	if (value !== word) throw new Error(`told ${value} in place of ${word}`);
}

await withBrowser(async (context) => {
	const origin = await serveClient();
	const page = await context.newPage();
	const statuses = {};
	let replica;
	page.on('response', async (response) => {
		const request = response.request();
		if (!request.url().endsWith('/api/offer') || request.method() === 'OPTIONS') return;
		const name = `${request.method()} ${response.status()}`;
		statuses[name] = (statuses[name] ?? 0) + 1;
		if (request.method() === 'POST') replica = (await response.json().catch(() => ({}))).pc_id?.split('.')[0];
	});
	const report = () => console.log(JSON.stringify({ replica, statuses }));
	/** Waits for audio of the bot on connection number `count` of this page. */
	const hears = async (count) => {
		await until(async () => {
			const { connections, state } = await received(page);
			return connections === count && state === 'connected';
		}, `connection ${count}`, 60000);
		const before = (await received(page)).packets;
		await until(async () => (await received(page)).packets > before + 50, 'packets of the bot');
	};

	await page.goto(origin.url);
	await page.waitForFunction(() => globalThis.talk);
	await page.evaluate((at) => globalThis.talk.start(at), url);
	await hears(1);
	await until(() => statuses['PATCH 200'], 'its candidates');
	report();

	await told('restart');
	await page.evaluate(() => globalThis.talk.restart());
	await hears(2);
	report();

	await told('leave');
	await page.evaluate(() => globalThis.talk.disconnect());
	report();

	await told('connect');
	await page.evaluate((at) => globalThis.talk.start(at), url);
	await hears(3);
	report();

	// The client notices that its replica is gone, and restarts by itself.
	await told('killed');
	await hears(4);
	report();
	origin.close();
});
process.exit(0);
