// The published clients of WHIP, WHEP and the realtime calls in Chromium: media counted in both
// directions, by the browser and by the runner.

import { judge } from './reference.mjs';
import { until } from './runner.mjs';
import { HEARD, received, watch } from './watch.mjs';

/** The library's own limit: it stops waiting for the channel then, and continues. */
const GIVES_UP_S = 5;
/** So much sooner, it has not given up. */
const GAVE_UP_SPREAD_S = -0.5;
/** Of 20 ms each. */
const PUBLISHED = 75;

export const KEY = 'check-0123456789abcdef';

async function open(context, origin) {
	const page = await context.newPage();
	const faults = watch(page);
	await page.goto(origin);
	await page.waitForFunction(() => globalThis.post);
	return { page, faults };
}

/** Waits for so many packets of the bot more, and for sound in them where it has any to give back. */
async function hears(page, packets, energy) {
	const before = await received(page);
	let last;
	await until(async () => {
		last = await received(page);
		return last.packets - before.packets >= packets && last.energy - before.energy > energy;
	}, `${packets} packets of the bot`).catch((error) => {
		throw new Error(`${error.message}; at the end ${JSON.stringify(last)}`);
	});
	return last.packets - before.packets;
}

/** What the runner says of the session that ended last: frames to its bot, and packets to its caller. */
async function ended(runner) {
	await runner.waitForSessions(0);
	const line = await until(() => runner.log.findLast((each) => each.includes('session ended')), 'the last line of the session');
	const [, frames] = /(\d+) frames to the bot/.exec(line);
	const [, sent] = /(\d+) out/.exec(line);
	return { line, frames: Number(frames), sent: Number(sent) };
}

function assertHeard({ frames, line }, wanted) {
	if (frames < wanted) throw new Error(`the bot heard ${frames} frames, not ${wanted}: ${line}`);
}

export const checks = {
	async 'whip: whip-whep talks both ways, and goes on after a restart of ICE'(context, runner, origin) {
		const { page } = await open(context, origin);
		await page.evaluate((url) => globalThis.post.whip(`${url}/whip/door`), runner.url);
		const first = await hears(page, 100, HEARD);
		await page.evaluate(() => globalThis.post.restart());
		await until(() => runner.log.some((line) => line.includes('ICE restarted by the client')), 'the restart');
		const second = await hears(page, 150, HEARD);
		if ((await runner.sessions()) !== 1) throw new Error('not the same session');
		await page.evaluate(() => globalThis.post.stop());
		const told = await ended(runner);
		assertHeard(told, 150);
		await page.close();
		return `${first} packets back, ${second} after the restart, ${told.frames} frames to the bot`;
	},

	async 'whip: the Eyevinn client publishes, and its candidates are taken'(context, runner, origin) {
		const { page, faults } = await open(context, origin);
		const patched = [];
		page.on('response', (reply) => reply.request().method() === 'PATCH' && patched.push(reply.status()));
		await page.evaluate((url) => globalThis.post.eyevinn(`${url}/whip`), runner.url);
		await until(() => runner.log.some((line) => line.includes('connected')), 'the connection');
		await until(async () => (await received(page)).out >= PUBLISHED, 'packets to the runner');
		await page.evaluate(() => globalThis.post.destroy());
		const told = await ended(runner);
		// The last ones are on their way when it leaves.
		judge('frames to the bot', told.frames, PUBLISHED, 25);
		if (!patched.length || patched.some((status) => status !== 204)) throw new Error(`PATCH was answered with ${patched}`);
		const errors = faults.filter((fault) => !fault.includes('request failed'));
		if (errors.length) throw new Error(errors.join('\n'));
		await page.close();
		return `${patched.length} candidates, ${told.frames} frames to the bot`;
	},
};

export const listenerChecks = {
	async 'whip: whip-whep plays a bot that greets (WHEP)'(context, runner, origin) {
		const { page } = await open(context, origin);
		// The greeting lasts half a second, which a browser can miss that has just begun to play.
		let packets;
		for (let left = 2; !packets; left--) {
			await page.evaluate((url) => globalThis.post.whep(`${url}/whep`), runner.url);
			packets = await until(async () => {
				const { packets, energy } = await received(page);
				return energy > 0.001 && packets;
			}, 'the greeting', 8000).catch((error) => {
				if (!left) throw error;
			});
			if (!packets) {
				await page.evaluate(() => globalThis.post.stop());
				await ended(runner);
			}
		}
		await page.evaluate(() => globalThis.post.stop());
		const told = await ended(runner);
		if (told.frames) throw new Error(`a bot with a listener heard ${told.frames} frames`);
		await page.close();
		return `${packets} packets`;
	},
};

export const keyChecks = {
	async 'calls: the realtime library talks both ways with a key for one call'(context, runner, origin) {
		const reply = await fetch(`${runner.url}/v1/realtime/client_secrets`, {
			method: 'POST',
			headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/json' },
			body: JSON.stringify({ session: { type: 'realtime', model: 'any' } }),
		});
		const { value } = await reply.json();
		const { page } = await open(context, origin);
		const call = (key) => page.evaluate(
			([url, each]) => globalThis.post.call(`${url}/v1/realtime/calls`, each).catch((error) => ({ error: error.message })),
			[runner.url, key],
		);
		const { took, call: id, error } = await call(value);
		if (error) throw new Error(error);
		judge('connect() in s', took / 1000, GIVES_UP_S, GAVE_UP_SPREAD_S, true);
		if (!/^rtc_[0-9a-f]{32}$/.test(id)) throw new Error(`the call is ${id}`);
		const packets = await hears(page, 100, HEARD);
		const events = await page.evaluate(() => globalThis.events);
		if (!events.includes('session.updated')) throw new Error(`events: ${events}`);
		await page.evaluate(() => globalThis.post.close());
		const told = await ended(runner);
		assertHeard(told, 50);
		const again = await call(value);
		if (!again.error?.includes('401') || !again.error.includes('used')) throw new Error(JSON.stringify(again));
		await page.close();
		return `connected after ${took.toFixed(0)} ms, ${packets} packets back, ${told.frames} frames to the bot`;
	},
};
