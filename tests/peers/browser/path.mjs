// A page whose audio does not arrive: what it says about the network, and that it gives up or
// recovers.

import { createSocket } from 'node:dgram';
import { withProfile } from './chromium.mjs';
import { assertFits, isPhase, shoot, text } from './page.mjs';
import { until } from './runner.mjs';
import { received } from './watch.mjs';

/** A UDP port that takes everything and answers nothing, until it is `open`: then it stands before port `to` of the runner. */
async function blockedWay() {
	const front = createSocket('udp4');
	const backs = new Map();
	await new Promise((done) => { front.bind(0, '127.0.0.1', done); });
	const way = { port: front.address().port, open: false, passed: 0 };
	way.close = () => [front, ...backs.values()].forEach((socket) => socket.close());
	// The runner sees the browser behind another address.
	function behind({ address, port }) {
		const name = `${address}:${port}`;
		if (!backs.has(name)) {
			const back = createSocket('udp4').on('message', (packet) => {
				way.passed += 1;
				front.send(packet, port, address);
			});
			backs.set(name, back);
		}
		return backs.get(name);
	}
	front.on('message', (packet, from) => way.open && behind(from).send(packet, Number(way.to), '127.0.0.1'));
	return way;
}

/** Lets none of the browser's candidates reach the runner, and puts `change` between the runner's answer and the page. */
async function between(page, change) {
	await page.route('**/api/offer', async (route) => {
		if (route.request().method() === 'PATCH') return route.fulfill({ json: { status: 'success' } });
		const offer = route.request().postDataJSON();
		offer.sdp = offer.sdp.replaceAll(/a=candidate:.*\r\n/g, '');
		const reply = await route.fetch({ postData: offer });
		const answer = await reply.json();
		if (reply.ok()) answer.sdp = change(answer.sdp);
		return route.fulfill({ response: reply, json: answer });
	});
}

/** As behind a firewall: the one address that the page is offered is this way. */
async function behindFirewall(page) {
	const way = await blockedWay();
	page.on('close', way.close);
	await between(page, (sdp) => {
		[, way.to] = /127\.0\.0\.1 (\d+) typ host/.exec(sdp);
		let kept = 0;
		return sdp.replaceAll(/(a=candidate:.* )\S+ \d+( typ host.*\r\n)/g, (_, before, after) => (
			kept++ ? '' : `${before}127.0.0.1 ${way.port}${after}`));
	});
	return way;
}

/** Lets no candidate of one protocol reach the page. */
const without = (protocol, page) => between(page, (sdp) => (
	sdp.replaceAll(new RegExp(`a=candidate:\\S+ \\d+ ${protocol} .*\\r\\n`, 'gi'), '')));

/** Connects, and gives what the page says when that takes long. */
async function sticks(page, runner) {
	await page.goto(`${runner.url}/client/`);
	await page.locator('#server[data-ok=true]').waitFor();
	await page.locator('#connect').click();
	await page.locator('#problem').waitFor({ state: 'visible', timeout: 20000 });
	return text(page, 'problem');
}

function assertSays(said, ...wanted) {
	for (const words of wanted) if (!said.includes(words)) throw new Error(`“${words}” is not in: ${said}`);
}

/** A browser whose profile forbids UDP but through a proxy. */
const NO_UDP = { fullBrowser: true, args: ['--webrtc-ip-handling-policy=disable_non_proxied_udp'] };

export const checks = {
	async 'path: a blocked one is explained while connecting, and forgotten when it opens'(runner) {
		await withProfile(async (context) => {
			const page = await context.newPage();
			const way = await behindFirewall(page);
			const said = await sticks(page, runner);
			assertSays(said, 'No network path', 'tries local addresses', `offers 127.0.0.1 port ${way.port}`, 'no packet came back',
				`at port ${way.port}`, '--ice-servers', 'edge-runner doctor');
			if (said.includes('Try again')) throw new Error('it tries still');
			way.open = true;
			await isPhase(page, 'ready');
			if (!way.passed) throw new Error('it connected on another way');
			if (await page.locator('#problem').isVisible()) throw new Error('the explanation stays');
			await page.close();
		});
	},

	async 'path: one that stays blocked ends with the same words'(runner, out) {
		await withProfile(async (context) => {
			const page = await context.newPage();
			const way = await behindFirewall(page);
			await sticks(page, runner);
			await shoot(page, out, 'slow');
			await isPhase(page, 'idle', 90000);
			assertSays(await text(page, 'problem'), 'No network path', `at port ${way.port}`, 'Try again');
			await assertFits(page);
			await page.close();
		});
	},

	async 'path: where no UDP gets through, the talk goes over TCP'(runner) {
		await withProfile(async (context) => {
			const page = await context.newPage();
			await without('udp', page);
			await page.goto(`${runner.url}/client/`);
			await page.locator('#server[data-ok=true]').waitFor();
			await page.locator('#connect').click();
			await isPhase(page, 'ready');
			await until(async () => (await received(page)).packets > 50, 'packets of the bot');
			const { over } = await received(page);
			if (over !== 'tcp') throw new Error(`it connected over ${over}`);
			await page.close();
		});
	},

	async 'path: a browser that may send no UDP talks over TCP'(runner) {
		await withProfile(async (context) => {
			const page = await context.newPage();
			await page.goto(`${runner.url}/client/`);
			await page.locator('#server[data-ok=true]').waitFor();
			await page.locator('#connect').click();
			await isPhase(page, 'ready');
			await page.close();
		}, NO_UDP);
	},

	async 'path: a browser that hides every address is told so'(runner) {
		await withProfile(async (context) => {
			const page = await context.newPage();
			await without('tcp', page);
			assertSays(await sticks(page, runner), 'no address to try', 'VPN');
			await page.locator('#connect').click();
			await isPhase(page, 'idle');
			await page.close();
		}, NO_UDP);
	},
};
