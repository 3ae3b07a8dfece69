// The built-in page in Chromium: what it shows and offers beside a plain call.

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import jsQR from 'jsqr';
import { assertAccessible } from './axe.mjs';
import { assertFits, assertFitsWidth, connect, isPhase, open, says, shoot, showTab, text } from './page.mjs';
import { sleep, until } from './runner.mjs';

const HERE = import.meta.dirname ?? new URL('.', import.meta.url).pathname;
const HUM = ['node', '--experimental-websocket', '--no-warnings', join(HERE, 'hum-bot.mjs')];

const attribute = (page, selector, name) => page.locator(selector).getAttribute(name);

function assertEqual(found, wanted, what) {
	if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${what}: ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
}

/** Keeps what the page saves as files. */
function keepFiles() {
	const native = URL.createObjectURL;
	globalThis.files = [];
	URL.createObjectURL = (blob) => {
		globalThis.files.push(blob);
		return native(blob);
	};
}

export const checks = {
	async 'page: the microphone is tested before the call, and nothing is sent'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await page.locator('#mic-test').click();
		await says(page, 'you', 'Heard', 20000);
		await shoot(page, out, 'test');
		assertEqual(await runner.sessions(), 0, 'sessions');
		await page.locator('#mic-test').click();
		await until(async () => (await page.locator('#you .state').innerText()) === '–', 'the test has ended');
		if (faults.length) throw new Error(faults.join('\n'));
	},

	async 'page: muted, it tells who speaks all the same; M, Space and Escape act'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await connect(page, page.url());
		const isMuted = async (wanted) => until(async () => (
			(await text(page, 'mute')) === (wanted ? 'Unmute' : 'Mute') && (await attribute(page, '#you', 'data-muted')) === String(wanted)),
		`muted: ${wanted}`);
		await page.keyboard.press('m');
		await isMuted(true);
		assertEqual(await attribute(page, '#you use', 'href'), '#i-mic-off', 'the symbol');
		await says(page, 'hint', 'You are muted, but speaking', 30000);
		await shoot(page, out, 'muted');
		await assertFits(page);
		// A window that loses the focus while Space is held lets go of it.
		await page.bringToFront();
		// A tab that is hidden in this size keeps the focus until the next frame, and Space would press it.
		await until(() => page.evaluate(() => document.activeElement === document.body), 'nothing has the focus');
		await page.keyboard.down(' ');
		await isMuted(false);
		await page.keyboard.up(' ');
		await isMuted(true);
		await page.keyboard.press('m');
		await isMuted(false);
		// In a field the keys are text.
		await page.locator('#text').fill('');
		await page.keyboard.type('m ?');
		assertEqual(await page.locator('#text').inputValue(), 'm ?', 'the text');
		await page.locator('#status').click();
		await page.keyboard.press('?');
		await page.locator('#help').waitFor({ state: 'visible' });
		await shoot(page, out, 'help');
		await assertFitsWidth(page, 'help');
		await page.locator('#keys-on').uncheck();
		await page.keyboard.press('Escape');
		await page.locator('#help').waitFor({ state: 'hidden' });
		await page.keyboard.press('m');
		await sleep(200);
		await isMuted(false);
		await page.locator('#help-open').click();
		await page.locator('#keys-on').check();
		await page.keyboard.press('Escape');
		await page.locator('#help').waitFor({ state: 'hidden' });
		await page.locator('#keypad-open').click();
		await page.keyboard.press('Escape');
		await page.locator('#keypad').waitFor({ state: 'hidden' });
		// With nothing open it does nothing: a call ends by its button.
		await page.keyboard.press('Escape');
		await sleep(200);
		await isPhase(page, 'ready');
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		await runner.waitForSessions(0);
		if (faults.length) throw new Error(faults.join('\n'));
	},

	async 'page: on a phone a problem leaves the panel its text, and the keypad opens away from its button'(context, runner) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await page.locator('#options summary').click();
		await page.locator('#start-body').fill('{');
		await page.setViewportSize({ width: 360, height: 740 });
		await page.locator('#connect').click();
		await page.locator('#problem').waitFor({ state: 'visible' });
		const box = (id) => page.locator(`#${id}`).boundingBox();
		if (!await page.locator('#empty').isVisible()) throw new Error('the panel has no text');
		const [panel, form] = [await box('talk'), await box('text-form')];
		const below = panel.y + panel.height - form.y - form.height;
		if (below < 0 || below > 40) throw new Error(`the input ends ${below} px above the end of the panel`);
		await page.locator('#problem-reset').click();
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		const before = await box('keypad-open');
		await page.locator('#keypad-open').click();
		await page.locator('#keypad').waitFor({ state: 'visible' });
		assertEqual(await box('keypad-open'), before, 'the place of the button');
		const keypad = await box('keypad');
		if (keypad.y + keypad.height > before.y) throw new Error('a key lies at or below the button');
		if (faults.length) throw new Error(faults.join('\n'));
		await page.close();
	},

	async 'page: a pill, metrics and settings are whole in every width'(context, runner) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await connect(page, page.url());
		for (const [width, height] of [[320, 640], [360, 740], [820, 1180], [1280, 720], [2560, 1300]]) {
			await page.setViewportSize({ width, height });
			const cut = await page.evaluate(() => ['#server', '#bot b', '#you b', '#tabs button', '#connect']
				.flatMap((name) => [...document.querySelectorAll(name)])
				.filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
				.map((each) => each.textContent));
			assertEqual(cut, [], `cut at ${width}`);
		}
		const ends = async (id) => page.locator(id).evaluate((each) => each.getBoundingClientRect().bottom);
		const space = await ends('#charts') - await ends('#charts .chart:last-child');
		if (space > 40) throw new Error(`the charts end ${space} px above the end of their panel`);
		// The log takes its height from the conversation, and not from the settings.
		await page.setViewportSize({ width: 1280, height: 720 });
		await page.locator('#log-open').click();
		const [select, card, bottom] = [await ends('#speaker'), await ends('#settings'), await ends('#events')];
		if (select > card || bottom > 720) throw new Error(`the select ends at ${select}, its card at ${card}, the log at ${bottom}`);
		await page.locator('#log-open').click();
		if (faults.length) throw new Error(faults.join('\n'));
		await page.close();
	},

	async 'page: the call is recorded on request, and saved with its text'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/`, keepFiles);
		await page.locator('#record').check();
		await connect(page, page.url());
		await says(page, 'transcript', 'You spoke for', 60000);
		await page.locator('#bot[data-speaking=true]').waitFor({ timeout: 60000 });
		await sleep(1000);
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		await page.locator('#record-save').waitFor();
		await shoot(page, out, 'recorded');
		await assertFits(page);
		await page.locator('#record-save').click();
		await page.locator('#talk-save').click();
		const [recording, words] = await page.evaluate(async () => {
			const [audio, told] = globalThis.files;
			const decoded = await new AudioContext().decodeAudioData(await audio.arrayBuffer());
			const energy = [0, 1].map((side) => decoded.getChannelData(side).reduce((sum, sample) => sum + sample * sample, 0) / decoded.sampleRate);
			return [{ channels: decoded.numberOfChannels, seconds: decoded.duration, energy }, await told.text()];
		});
		const { channels, seconds, energy } = recording;
		// A side that is silent has nothing at all; Firefox hums at a tenth of Chromium's voice.
		const AUDIBLE = 0.0001;
		if (channels !== 2 || seconds < 3 || energy.some((each) => each < AUDIBLE)) throw new Error(JSON.stringify(recording));
		if (!/^\d{4}-\d\d-\d\dT\S+Z Bot: You spoke for/m.test(words)) throw new Error(words);
		if (faults.length) throw new Error(faults.join('\n'));
		return `${seconds.toFixed(1)} s, energy ${energy.map((each) => each.toFixed(3))}`;
	},

	async 'page: nothing is below the notch of a phone, or below its bar'(context, runner) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		const devtools = await context.newCDPSession(page);
		const NOTCH = 47;
		for (const [place, width, height, insets] of [
			['upright', 360, 740, { top: NOTCH, bottom: 34, left: 0, right: 0 }], ['landscape', 740, 360, { top: 0, bottom: 21, left: NOTCH, right: NOTCH }],
		]) {
			await page.setViewportSize({ width, height });
			await devtools.send('Emulation.setSafeAreaInsetsOverride', { insets });
			const hidden = await page.evaluate(({ top, bottom, left, right }) => (
				[...document.querySelectorAll('button, a, input, select, textarea, p, b, h1, .card')].filter((each) => {
					const box = each.getBoundingClientRect();
					return each.checkVisibility() && !each.closest('.hidden')
						&& (box.top < top || box.left < left || box.right > innerWidth - right || box.bottom > innerHeight - bottom);
				}).map((each) => each.id || each.className || each.tagName)), insets);
			assertEqual(hidden, [], place);
			assertEqual(await page.evaluate(() => document.documentElement.scrollHeight), height, `the height, ${place}`);
		}
		if (faults.length) throw new Error(faults.join('\n'));
	},

	async 'page: the log opens beside the settings, with milliseconds and ids to copy'(context, runner, out) {
		await context.grantPermissions(['clipboard-read', 'clipboard-write']);
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await connect(page, page.url());
		await page.locator('#log-open').click();
		await page.locator('#log').waitFor({ state: 'visible' });
		const { width } = await page.locator('#log').boundingBox();
		if (width < 890) throw new Error(`${width} px wide`);
		await shoot(page, out, 'log');
		await page.locator('#log details:not([open]) summary').first().click();
		await page.locator('#log details[open] pre').first().waitFor();
		await shoot(page, out, 'log-entry');
		await assertFits(page);
		const id = (await page.locator('#ids button').first().innerText()).replace('session ', '');
		await page.locator('#ids button').first().click();
		assertEqual(await page.evaluate(() => navigator.clipboard.readText()), id, 'the id');
		const { body } = await asked(runner, 'GET', '/sessions');
		assertEqual(id, body.sessions[0].id, 'the id of the session');
		await page.locator('#log-copy').click();
		const copied = await page.evaluate(() => navigator.clipboard.readText());
		if (!copied.includes('bot-ready') || !copied.includes('http offer') || /ice-pwd:(?!\(left out)/.test(copied)) throw new Error(copied);
		await page.locator('#log-kind').selectOption('error');
		assertEqual(await page.locator('#log li').count(), 0, 'errors');
		await page.locator('#log-kind').selectOption('');
		const before = await page.locator('#log li').count();
		await page.locator('#log-clear').click();
		if ((await page.locator('#log li').count()) >= before) throw new Error('not cleared');
		if (faults.length) throw new Error(faults.join('\n'));
	},

	async 'page: charts have a scale and fill their width'(context, runner) {
		const { page } = await open(context, `${runner.url}/client/`);
		await connect(page, page.url());
		await until(async () => /\d/.test(await text(page, 'stat-rateOut')), 'a bit rate');
		// Twenty samples are more than the chart's least.
		await sleep(21000);
		const painted = await page.evaluate(() => {
			const canvas = document.getElementById('stat-rate').closest('.chart').querySelector('canvas');
			const { width, height } = canvas;
			const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
			const accent = getComputedStyle(canvas).getPropertyValue('--accent').match(/\w\w/g).map((hex) => parseInt(hex, 16));
			const isLine = (at) => data[at + 3] > 200 && accent.every((value, nth) => Math.abs(data[at + nth] - value) < 12);
			const columns = [];
			for (let x = 0; x < width; x++) {
				for (let y = 0; y < height; y++) if (isLine((y * width + x) * 4)) { columns.push(x); break; }
			}
			return { from: columns[0] / width, to: columns.at(-1) / width };
		});
		if (painted.from > 0.2 || painted.to < 0.9) throw new Error(JSON.stringify(painted));
		await page.close();
		return `from ${painted.from.toFixed(2)} to ${painted.to.toFixed(2)} of the width`;
	},

	async 'page: colours follow the system, or the choice, which the browser keeps'(context, runner) {
		const { page } = await open(context, `${runner.url}/client/`);
		const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
		await page.emulateMedia({ colorScheme: 'light' });
		const light = await background();
		await page.emulateMedia({ colorScheme: 'dark' });
		const dark = await background();
		if (light === dark) throw new Error(`${light} either way`);
		await page.locator('#theme').click();
		assertEqual(await background(), light, 'light, chosen');
		await page.reload();
		assertEqual(await background(), light, 'light, kept');
		await page.locator('#theme').click();
		await page.emulateMedia({ colorScheme: 'light' });
		assertEqual(await background(), dark, 'dark, chosen');
		await page.locator('#theme').click();
		assertEqual(await background(), light, 'the system’s');
	},

	async 'page: text of a bot has links and bold, and never markup'(context, runner) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		const shown = await page.evaluate(async () => {
			const { rich } = await import('./rich.js');
			const box = document.createElement('p');
			box.append(...rich('**Bold**, `code`, [here](https://a.example/x?y=1), https://b.example/z. <img src=x onerror=alert(1)> [no](javascript:alert(1)) **open'));
			const links = [...box.querySelectorAll('a')].map(({ textContent, href, rel, target }) => [textContent, href, rel, target]);
			return { text: box.textContent, bold: box.querySelector('strong').textContent, code: box.querySelector('code').textContent, links, elements: box.children.length };
		});
		assertEqual(shown.links, [
			['here', 'https://a.example/x?y=1', 'noopener noreferrer', '_blank'], ['https://b.example/z', 'https://b.example/z', 'noopener noreferrer', '_blank'],
		], 'links');
		assertEqual([shown.bold, shown.code, shown.elements], ['Bold', 'code', 4], 'marks');
		if (!shown.text.includes('<img src=x onerror=alert(1)> [no](javascript:alert(1)) **open')) throw new Error(shown.text);
		if (faults.length) throw new Error(faults.join('\n'));
	},

	async 'page: it can be installed, keeps the screen on in a call, and plays where it is told'(context, runner) {
		const { page, faults } = await open(context, `${runner.url}/client/`, () => {
			globalThis.locks = [];
			const native = navigator.wakeLock.request.bind(navigator.wakeLock);
			navigator.wakeLock.request = async (type) => {
				const lock = await native(type);
				globalThis.locks.push(lock);
				return lock;
			};
		});
		const devtools = await context.newCDPSession(page);
		const { errors } = await devtools.send('Page.getAppManifest');
		const { installabilityErrors } = await devtools.send('Page.getInstallabilityErrors');
		// A profile without a user's eyes installs nothing.
		const wrong = [...errors, ...installabilityErrors].filter(({ errorId }) => errorId !== 'in-incognito');
		assertEqual(wrong, [], 'the manifest');
		await connect(page, page.url());
		const locks = () => page.evaluate(() => globalThis.locks.map(({ type, released }) => `${type} ${released}`));
		await until(async () => JSON.stringify(await locks()) === '["screen false"]', 'a lock of the screen');
		await page.locator('#speaker').waitFor({ state: 'visible' });
		const speaker = await page.evaluate(() => [...document.getElementById('speaker').options].at(-1).value);
		await page.locator('#speaker').selectOption(speaker);
		await until(() => page.evaluate((wanted) => document.getElementById('bot-audio').sinkId === wanted, speaker), 'the loudspeaker');
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		await until(async () => JSON.stringify(await locks()) === '["screen true"]', 'the lock is released');
		if (faults.length) throw new Error(faults.join('\n'));
	},

	async 'page: nothing of it comes from elsewhere, and it stays below 90 kB'(context, runner) {
		const page = await context.newPage();
		const seen = new Map();
		// A response that comes while the page is closed has no headers left.
		const headers = (response) => response.allHeaders().catch(() => ({}));
		page.on('response', async (response) => seen.set(response.url(), Number((await headers(response))['content-length'] ?? 0)));
		await connect(page, `${runner.url}/client/`);
		await page.goto(`${runner.url}/client/#sessions`);
		await page.evaluate(() => Promise.all(['./moq.js', './phone.js', './qr.js', './sessions.js'].map((name) => import(name))));
		const foreign = [...seen.keys()].filter((url) => !url.startsWith(runner.url));
		assertEqual(foreign, [], 'other servers');
		const bytes = [...seen].filter(([url]) => url.includes('/client/')).reduce((sum, [, length]) => sum + length, 0);
		if (bytes < 30000 || bytes > 90000) throw new Error(`${bytes} bytes`);
		return `${bytes} bytes`;
	},
};

/** With a bot that only sends sound. */
export const soundChecks = {
	'page: a bot that only sends sound is connected': async (context, runner, out) => {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		for (const transport of ['webrtc', 'websocket']) {
			await connect(page, `${runner.url}/client/?transport=${transport}`);
			assertEqual(await text(page, 'status'), 'Connected', 'the state');
			await until(async () => /^00:00:/.test(await text(page, 'elapsed')) && /\d/.test(await text(page, 'stat-rate')), 'a timer and figures');
			if (await page.locator('#text').isDisabled()) throw new Error('typing is locked');
			await says(page, 'bot', 'Speaking');
		}
		await shoot(page, out, 'sound');
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		if (faults.length) throw new Error(faults.join('\n'));
	},
};
export const soundArgs = ['--', ...HUM];

/** With a bot that reports its services as Pipecat does. */
export const metricsChecks = {
	'page: the first byte of a service is not called an answer': async (context, runner, out) => {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await connect(page, `${runner.url}/client/`);
		const rows = () => page.locator('#ttfb').evaluate((list) => [...list.children].map(({ textContent }) => textContent));
		await until(async () => (await rows()).includes('First byte of TTS#0'), 'the last report');
		assertEqual(await rows(), ['First byte of LLM#0', '300 ms', 'First byte of TTS#0', '150 ms'], 'the services');
		assertEqual(await text(page, 'waited'), '', 'the time of an answer');
		await shoot(page, out, 'metrics');
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		if (faults.length) throw new Error(faults.join('\n'));
	},
};
export const metricsArgs = ['--', ...HUM, 'metrics'];

/** With a bot that thinks, and calls a function. */
export const thinkingChecks = {
	'page: a bot that thinks, and the function that it calls, are shown': async (context, runner, out) => {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await connect(page, page.url());
		await says(page, 'bot', 'Thinking');
		await page.locator('#thinking').waitFor({ state: 'visible' });
		await says(page, 'transcript', 'weather');
		await shoot(page, out, 'thinking');
		await assertFits(page);
		if (faults.length) throw new Error(faults.join('\n'));
	},
};
export const thinkingArgs = ['--', ...HUM, 'thinks'];

/** With a bot that fails in the call. */
export const failingChecks = {
	'page: a bot that fails is not said to have left': async (context, runner, out) => {
		for (const transport of ['webrtc', 'websocket']) {
			const page = await context.newPage();
			await connect(page, `${runner.url}/client/?transport=${transport}`);
			await says(page, 'problem', 'The bot failed', 20000);
			await isPhase(page, 'idle');
			await shoot(page, out, `failed-${transport}`);
			await assertFits(page);
			await page.close();
		}
	},
};
export const failingArgs = ['--', ...HUM, '4'];

/** With a bot that fails as one whose imports fail: within a second, before it opens its media. */
export const brokenChecks = {
	'page: why a bot does not start is shown to who may know it': async (context, runner, out) => {
		for (const transport of ['webrtc', 'websocket', 'telephony_a']) {
			const page = await context.newPage();
			await page.goto(`${runner.url}/client/?transport=${transport}`);
			await page.locator('#server[data-ok=true]').waitFor();
			await page.locator('#connect').click();
			await says(page, 'problem', "ModuleNotFoundError: No module named 'pipecatt'", 20000);
			if ((await text(page, 'problem')).includes('0123456789')) throw new Error('a number is shown');
			await shoot(page, out, `broken-${transport}`);
			await assertFits(page);
			await page.close();
		}
	},
};
export const brokenArgs = ['--', 'sh', '-c', "sleep 1; echo \"ModuleNotFoundError: No module named 'pipecatt' for 0123456789\" >&2; exit 1"];

// ---- live sessions

/** What `/sessions` answers, asked as a program does. */
const asked = async (runner, method, path, headers = {}) => {
	const reply = await fetch(`${runner.url}${path}`, { method, headers });
	return { status: reply.status, body: await reply.json() };
};

export const sessionsChecks = {
	async 'sessions: the operator sees them with their figures, and hangs up'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/#sessions`);
		await says(page, 'sessions-view', 'No one is in a call');
		await shoot(page, out, 'sessions-none');
		await assertFitsWidth(page, 'no sessions');
		const caller = await context.newPage();
		await connect(caller, `${runner.url}/client/`);
		await page.bringToFront();
		const item = page.locator('#calls-list li:has(.live)');
		await until(async () => (await item.count()) === 1 && /WebRTC[^]*(listening|speaking)/.test(await item.innerText()), 'the call', 20000);
		assertEqual(await page.locator('#sessions-list li').count(), 0, 'it is listed once');
		const { body } = await asked(runner, 'GET', '/sessions');
		assertEqual([body.sessions.length, body.sessions[0].transport], [1, 'webrtc'], 'GET /sessions');
		const [{ id }] = body.sessions;
		await until(async () => /\d+(\.\d+)? MB/.test(await text(page, 'sessions-figures')), 'memory');
		await shoot(page, out, 'sessions');
		await assertFitsWidth(page, 'sessions');
		assertEqual(await page.locator('#mute').isVisible(), false, 'a page without a call has no buttons for one');
		// The caller's own page marks the call, and keeps its buttons.
		await caller.bringToFront();
		await caller.evaluate(() => { location.hash = 'sessions'; });
		await says(caller, 'sessions-view', 'your call');
		await caller.locator('#sessions-view #mute').click();
		await says(caller, 'mute', 'Unmute');
		await shoot(caller, out, 'sessions-own');
		await assertFitsWidth(caller, 'the own call');
		await caller.evaluate(() => { location.hash = ''; });
		await caller.locator('#call #mute').waitFor({ state: 'visible' });
		await page.bringToFront();
		await item.locator('.live button').click();
		await isPhase(caller, 'idle');
		await says(caller, 'status', 'the operator ended the call');
		await says(page, 'sessions-view', 'No one is in a call');
		assertEqual((await asked(runner, 'DELETE', `/sessions/${id}`)).status, 404, 'the second end');
		await says(page, 'sessions-view', 'ended by the operator');
		await page.locator('#calls-list summary').click();
		await says(page, 'sessions-view', 'Bot ·');
		await shoot(page, out, 'sessions-calls');
		await assertFitsWidth(page, 'a call');
		await says(page, 'sessions-view', 'packets lost');
		// Calls that differ can be chosen from.
		await connect(caller, `${runner.url}/client/?transport=websocket`);
		await caller.locator('#connect').click();
		await isPhase(caller, 'idle');
		await page.bringToFront();
		const past = page.locator('#calls-list > li');
		await until(async () => (await past.count()) === 2, 'two calls', 10000);
		await page.locator('.filters [name=transport]').selectOption('websocket');
		await until(async () => (await past.count()) === 1 && (await past.innerText()).includes('WebSocket'), 'the chosen call', 10000);
		await shoot(page, out, 'sessions-chosen');
		await assertFitsWidth(page, 'a choice');
		await page.locator('.filters [name=transport]').selectOption('');
		await until(async () => (await past.count()) === 2, 'all calls', 10000);
		// The way back.
		await page.locator('#to-sessions').click();
		await page.locator('#talk-view').waitFor({ state: 'visible' });
		if (faults.some((fault) => !/404|401/.test(fault))) throw new Error(faults.join('\n'));
	},

	async 'sessions: a foreign page neither sees nor ends them'(context, runner) {
		const page = await context.newPage();
		await connect(page, `${runner.url}/client/`);
		const { body: { sessions: [{ id }] } } = await asked(runner, 'GET', '/sessions');
		for (const [method, path] of [['GET', '/sessions'], ['DELETE', `/sessions/${id}`]]) {
			assertEqual((await asked(runner, method, path, { Origin: 'https://evil.example' })).status, 403, method);
		}
		assertEqual(await runner.sessions(), 1, 'sessions');
		await page.close();
	},
};

export const KEY = 'key+of/the=sessions-0123456789';

export const sessionsKeyChecks = {
	async 'sessions: the page asks for the key'(context, runner, out) {
		const page = await context.newPage();
		await page.goto(`${runner.url}/client/#sessions`);
		await says(page, 'sessions-view', 'needs the key');
		await shoot(page, out, 'sessions-key');
		await assertFitsWidth(page, 'the key of the sessions');
		await page.locator('#sessions-view [type=password]').fill(KEY);
		await page.keyboard.press('Enter');
		await says(page, 'sessions-view', 'No one is in a call');
		assertEqual((await asked(runner, 'GET', '/sessions')).status, 401, 'without the key');
	},

	async 'sessions: the operator listens to a call'(context, runner, out) {
		const key = `key=${encodeURIComponent(KEY)}`;
		const caller = await context.newPage();
		await connect(caller, `${runner.url}/client/#${key}`);
		const page = await context.newPage();
		await page.goto(`${runner.url}/client/#sessions&${key}`);
		await page.bringToFront();
		await page.locator('#calls-list summary').click();
		const button = page.locator('#calls-list .listen button');
		await button.click();
		await says(page, 'sessions-view', 'It plays a second late');
		// The microphone of the browser speaks, or the bot does.
		const level = async () => Number(await page.locator('#calls-list .listen .bar').getAttribute('aria-valuenow'));
		await until(async () => (await level()) > 0, 'sound of the call', 30000);
		assertEqual(await page.locator('#calls-list audio').evaluate((audio) => !audio.paused && audio.srcObject.getAudioTracks().length), 1, 'it plays');
		await shoot(page, out, 'sessions-listen');
		await assertFitsWidth(page, 'listening in');
		assertEqual(await runner.sessions(), 1, 'sessions');
		await button.click();
		await until(async () => (await button.innerText()) === 'Listen', 'the end');
		await until(() => runner.log.some((line) => line.includes('a listener left this call')), 'the line in the log');
		await caller.locator('#connect').click();
		await isPhase(caller, 'idle');
		await until(async () => (await button.count()) === 0, 'a call that is over has no button', 10000);
	},
};

// ---- the phone

/** The text of the QR code that the page shows. */
export async function scan(page) {
	await page.locator('#phone-open').click();
	await page.locator('#phone').waitFor({ state: 'visible' });
	const { size, path } = await page.evaluate(() => {
		const svg = document.querySelector('#phone-code svg');
		return svg ? { size: svg.viewBox.baseVal.width, path: svg.firstElementChild.getAttribute('d') } : {};
	});
	if (!size) return null;
	const rows = Array.from({ length: size }, () => new Array(size).fill(false));
	for (const [, x, y] of path.matchAll(/M(\d+) (\d+)h/g)) rows[y][x] = true;
	return decode(rows);
}

/** The text of a QR code, given the rows of its modules, `true` for black. */
export function decode(rows) {
	const [scale, border] = [4, 4];
	const width = (rows.length + 2 * border) * scale;
	const pixels = new Uint8ClampedArray(width * width * 4).fill(255);
	for (let y = 0; y < width; y++) {
		for (let x = 0; x < width; x++) {
			const isBlack = rows[Math.floor(y / scale) - border]?.[Math.floor(x / scale) - border];
			if (isBlack) pixels.fill(0, (y * width + x) * 4, (y * width + x) * 4 + 3);
		}
	}
	const found = (jsQR.default ?? jsQR)(pixels, width, width);
	return found?.data ?? 'not readable';
}

// ---- simulated calls

const providers = { telephony_a: 'Twilio', telephony_b: 'Telnyx', telephony_c: 'Plivo', telephony_d: 'Exotel' };

/** Each provider, and which of its encodings; the bot hears through it, so each takes a sentence and its answer. */
const CALLS = [['telephony_a', 0], ['telephony_b', 1], ['telephony_b', 2], ['telephony_c', 1], ['telephony_d', 2]];

/** With the parrot and every transport. */
export const phoneChecks = {
	async 'phone: a call of each provider is simulated: the bot hears it and answers'(context, runner, out) {
		const said = [];
		for (const [transport, codec] of CALLS) {
			const { page, faults } = await open(context, `${runner.url}/client/?transport=${transport}`);
			await page.locator('#options summary').click();
			await page.locator('#line-codec').selectOption(String(codec));
			await page.locator('#connect').click();
			await isPhase(page, 'ready');
			// The first sound greets; the answer comes after a sentence.
			await until(async () => /\d/.test(await text(page, 'stat-latency')), `an answer over ${transport}`, 60000);
			if (!await page.locator('#text').isDisabled()) throw new Error('a telephone takes text');
			said.push(`${providers[transport]} ${await page.locator('#line-codec option').nth(codec).innerText()} ${await text(page, 'stat-latency')} ms`);
			if (transport === 'telephony_a') await shoot(page, out, 'phone');
			await page.locator('#connect').click();
			await isPhase(page, 'idle');
			await runner.waitForSessions(0);
			if (faults.length) throw new Error(`${transport}: ${faults.join('\n')}`);
			await page.close();
		}
		if (!runner.log.some((line) => line.includes('simulated'))) throw new Error('the log tells nothing of a simulation');
		return said.join(', ');
	},
};

/** With the example `menu`, `-t twilio` and a public name, without which that does not start. */
export const menuArgs = ['-t', 'twilio', '--proxy', 'localhost', { MENU_OPERATOR: '+15550009999' }];

export const menuChecks = {
	async 'phone: with -t twilio alone the page calls; keys, transfer and hang-up are shown'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		assertEqual(await page.evaluate(() => document.querySelector('#transports :checked').value), 'telephony_a', 'the choice');
		await page.locator('#options summary').click();
		await shoot(page, out, 'phone-options');
		await assertFits(page);
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		assertEqual(await page.locator('#line-number').textContent(), '+15550002222', 'the number that is called');
		// A telephone has its keys in view.
		await page.locator('#keypad button', { hasText: '1' }).click();
		await page.locator('#bot[data-speaking=true]').waitFor({ timeout: 20000 });
		await shoot(page, out, 'phone-keypad');
		await assertFits(page);
		// The lowest window with the columns of a desk.
		await page.setViewportSize({ width: 1080, height: 560 });
		assertEqual(await page.evaluate(() => document.documentElement.scrollHeight), 560, 'the height of the page with its keypad');
		await page.keyboard.press('0');
		await says(page, 'transcript', 'The bot transfers the call');
		await says(page, 'transcript', '+15550009999');
		await isPhase(page, 'idle');
		await shoot(page, out, 'phone-transferred');
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		await page.keyboard.press('#');
		await isPhase(page, 'idle');
		await says(page, 'status', 'Call ended');
		if (runner.log.some((line) => /hung up|api\.twilio/.test(line))) throw new Error('the provider was asked');
		if (faults.length) throw new Error(faults.join('\n'));
	},
};

/** With a bot that presses keys at the caller's end. */
export const keysChecks = {
	async 'phone: keys that a bot presses are shown, where the provider sends any'(context, runner) {
		for (const [transport, isShown] of [['telephony_b', true], ['telephony_c', true], ['telephony_d', false]]) {
			const page = await context.newPage();
			await page.goto(`${runner.url}/client/?transport=${transport}`);
			await page.locator('#server[data-ok=true]').waitFor();
			await page.locator('#connect').click();
			await isPhase(page, 'ready');
			await page.locator('#bot[data-speaking=true]').waitFor({ timeout: 20000 });
			if (isShown) await says(page, 'transcript', 'The bot presses keys');
			assertEqual((await text(page, 'transcript')).includes('12#'), isShown, transport);
			await page.close();
		}
	},
};
export const keysArgs = ['--', ...HUM, 'keys'];

/** With credentials of Twilio, so that calls need proof. */
export const provenEnv = { TWILIO_ACCOUNT_SID: 'AC0123456789abcdef0123456789abcdef', TWILIO_AUTH_TOKEN: '0123456789abcdef0123456789abcdef', TELCO_A_API_URL: 'http://127.0.0.1:9' };

export const unprovenChecks = {
	async 'phone: a runner that wants proof says how to call'(context, runner, out) {
		const page = await context.newPage();
		await page.goto(`${runner.url}/client/?transport=telephony_a`);
		await page.locator('#server[data-ok=true]').waitFor();
		await page.locator('#connect').click();
		await says(page, 'problem', 'takes proven calls only');
		for (const words of ['--api-key', '--unverified-calls']) await says(page, 'problem', words);
		await shoot(page, out, 'phone-unproven');
		await assertFits(page);
		assertEqual(await runner.sessions(), 0, 'sessions');
	},
};

export const provenChecks = {
	async 'phone: the holder of the key calls with a token'(context, runner) {
		const page = await context.newPage();
		await page.goto(`${runner.url}/client/?transport=telephony_a#key=${encodeURIComponent(KEY)}`);
		await page.locator('#server[data-ok=true]').waitFor();
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		await runner.waitForSessions(0);
		if (runner.log.some((line) => /hung up/.test(line))) throw new Error('the provider was asked to hang up');
	},
};
