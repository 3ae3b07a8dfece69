// Firefox with a microphone that hums, in a fresh profile, confined to this machine.
//
// It is driven over WebDriver BiDi, which Debian's Firefox supports
// (https://w3c.github.io/webdriver-bidi). Tabs offer the calls of Playwright's page that the checks
// use, so that a check runs in both browsers. Playwright's own protocol for Firefox needs a patched
// build.

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
// The WebSocket of Node 20.20 closes every connection, and each new one, after some twenty of them (1006).
import { WebSocket } from 'ws';
import { until } from './runner.mjs';
import { watchConnections } from './watch.mjs';

const START_MS = 30000;
const COMMAND_MS = 30000;
const END_MS = 2000;
// A browser may crash before a check has begun. Nothing of the runner is tested until then.
const STARTS = 3;

// With remote control on, Firefox turns off updates, telemetry and first-run pages.
const PREFERENCES = {
	// A 1000 Hz tone in place of a device, and no permission prompt.
	'media.navigator.streams.fake': true,
	'media.navigator.permission.disabled': true,
	'media.peerconnection.ice.loopback': true,
	// Unused names resolve to this machine, where nothing listens.
	'network.dns.native-is-localhost': true,
	'network.proxy.type': 0,
	'network.captive-portal-service.enabled': false,
	'network.connectivity-service.enabled': false,
	'services.settings.server': 'data:,',
	// As Chromium is told before axe looks: colours on their way from one state to the next have no contrast of their own.
	'ui.prefersReducedMotion': 1,
	// A process in advance for a page that no check opens.
	'dom.ipc.processPrelaunch.enabled': false,
};

/** Microphones: one that hums, one that its user refuses, none, on a machine without any sound. */
const MICROPHONES = {
	hums: {},
	denied: { 'media.navigator.streams.fake': true, 'media.navigator.permission.disabled': false, 'permissions.default.microphone': 2 },
	none: { 'media.navigator.streams.fake': false, 'media.cubeb.force_null_context': true },
};

const KEYS = { Enter: '\uE007', Tab: '\uE004', Escape: '\uE00C' };

/** The browser has ended, or has left its connection: that says nothing of what a check tests. */
export class BrowserLost extends Error {}

/** One connection to a browser: commands with their answers, and what it tells by itself. */
class Bidi {
	#socket;
	#last = 0;
	#waiting = new Map();
	#listeners = [];
	#closed = false;
	/** Why there is no connection any more. */
	#lost = null;

	/** `end` tells how the browser has ended. */
	static async open(url, end) {
		const bidi = new Bidi();
		bidi.#socket = new WebSocket(url);
		await new Promise((done, fail) => {
			bidi.#socket.onopen = done;
			bidi.#socket.onerror = () => fail(new Error(`no connection to ${url}`));
		});
		bidi.#socket.onmessage = ({ data }) => bidi.#take(JSON.parse(data));
		bidi.#socket.onclose = async ({ code }) => {
			if (bidi.#closed) return;
			bidi.#lost = end().then((how) => new BrowserLost(`Firefox has closed the connection with ${code}; ${how}`));
			const lost = await bidi.#lost;
			for (const { fail } of bidi.#waiting.values()) fail(lost);
		};
		return bidi;
	}

	#take({ type, id, result, error, message, method, params }) {
		if (type === 'event') {
			for (const listener of this.#listeners) listener(method, params);
			return;
		}
		const waiting = this.#waiting.get(id);
		this.#waiting.delete(id);
		if (type === 'success') waiting?.done(result);
		else waiting?.fail(new Error(`${waiting.method}: ${error}: ${message}`));
	}

	listen(listener) {
		this.#listeners.push(listener);
	}

	send(method, params = {}) {
		if (this.#closed) return new Promise(() => {});
		if (this.#lost) return this.#lost.then((lost) => Promise.reject(lost));
		const id = this.#last += 1;
		return new Promise((done, fail) => {
			const limit = setTimeout(() => fail(new Error(`${method}: no answer within ${COMMAND_MS / 1000} s`)), COMMAND_MS);
			const settle = (how) => (value) => {
				clearTimeout(limit);
				how(value);
			};
			this.#waiting.set(id, { method, limit, done: settle(done), fail: settle(fail) });
			this.#socket.send(JSON.stringify({ id, method, params }));
		});
	}

	/** Closes the connection. Commands without an answer stay without one: their checks have ended. */
	close() {
		this.#closed = true;
		for (const { limit } of this.#waiting.values()) clearTimeout(limit);
		this.#waiting.clear();
		this.#socket.close();
	}
}

/** One element that a selector names, and perhaps words in it, or its place; looked up anew for every question. */
class Locator {
	constructor(tab, selector, hasText = '', at = 0) {
		Object.assign(this, { tab, selector, hasText, at });
	}

	locator(selector) {
		return new Locator(this.tab, `${this.selector} ${selector}`);
	}

	nth(at) {
		return new Locator(this.tab, this.selector, this.hasText, at);
	}

	/** Calls `act` in the page with the element, or gives null where there is none. */
	#on(act, ...more) {
		return this.tab.evaluate(`(args) => {
			const [selector, hasText, at, ...more] = args;
			const found = [...document.querySelectorAll(selector)].filter((each) => each.textContent.includes(hasText))[at];
			return found ? (${act})(found, ...more) : null;
		}`, [this.selector, this.hasText, this.at, ...more]);
	}

	isVisible() {
		return this.#on((found) => found.checkVisibility({ visibilityProperty: true }));
	}

	waitFor({ state = 'visible', timeout = 30000 } = {}) {
		return until(async () => Boolean(await this.isVisible()) === (state === 'visible'), `${this.selector} is ${state}`, timeout);
	}

	count() {
		return this.tab.evaluate((selector) => document.querySelectorAll(selector).length, this.selector);
	}

	innerText() {
		return this.#on((found) => found.innerText);
	}

	inputValue() {
		return this.#on((found) => found.value);
	}

	getAttribute(name) {
		return this.#on((found, wanted) => found.getAttribute(wanted), name);
	}

	isDisabled() {
		return this.#on((found) => found.disabled);
	}

	focus() {
		return this.#on((found) => found.focus());
	}

	selectOption(value) {
		return this.#on((found, wanted) => {
			found.value = wanted;
			found.dispatchEvent(new Event('input', { bubbles: true }));
			found.dispatchEvent(new Event('change', { bubbles: true }));
		}, value);
	}

	fill(words) {
		return this.#on((found, value) => {
			found.focus();
			found.value = value;
			found.dispatchEvent(new InputEvent('input', { bubbles: true }));
		}, words);
	}

	async click() {
		await until(() => this.#on((found) => found.checkVisibility() && !found.disabled), `${this.selector} can be clicked`);
		const at = await this.#on((found) => {
			found.scrollIntoView({ block: 'center', behavior: 'instant' });
			const { x, y, width, height } = found.getBoundingClientRect();
			return { x: Math.round(x + width / 2), y: Math.round(y + height / 2) };
		});
		await this.tab.perform({
			type: 'pointer', id: 'mouse', actions: [
				{ type: 'pointerMove', ...at }, { type: 'pointerDown', button: 0 }, { type: 'pointerUp', button: 0 },
			],
		});
	}

	check() {
		return this.click();
	}

	uncheck() {
		return this.click();
	}
}

class Tab {
	#bidi;
	#handles = 0;
	#listeners = [];

	static async open(bidi) {
		const tab = new Tab();
		tab.#bidi = bidi;
		tab.id = (await bidi.send('browsingContext.create', { type: 'tab' })).context;
		bidi.listen((method, params) => tab.#take(method, params));
		return tab;
	}

	#keys(...actions) {
		return this.perform({ type: 'key', id: 'keyboard', actions: actions.map(([type, key]) => ({ type, value: KEYS[key] ?? key })) });
	}

	keyboard = {
		down: (key) => this.#keys(['keyDown', key]),
		up: (key) => this.#keys(['keyUp', key]),
		press: (key) => this.#keys(['keyDown', key], ['keyUp', key]),
		type: (words) => this.#keys(...[...words].flatMap((key) => [['keyDown', key], ['keyUp', key]])),
	};

	on(event, listener) {
		this.#listeners.push({ event, listener });
	}

	#tell(event, value) {
		for (const each of this.#listeners) if (each.event === event) each.listener(value);
	}

	#take(method, params) {
		if ((params.source?.context ?? params.context) !== this.id) return;
		if (method === 'log.entryAdded') {
			const { type, level, text } = params;
			if (type === 'javascript' && level === 'error') this.#tell('pageerror', { stack: text });
			else this.#tell('console', { type: () => (level === 'warn' ? 'warning' : level), text: () => text });
		}
		if (method === 'network.fetchError') {
			this.#tell('requestfailed', { url: () => params.request.url, failure: () => ({ errorText: params.errorText }) });
		}
		if (method === 'script.message') this.#tell(`script ${params.channel}`, params.data.value[0].value);
	}

	async exposeFunction(name, act) {
		this.on(`script ${name}`, act);
		await this.#bidi.send('script.addPreloadScript', {
			functionDeclaration: `(tell) => { globalThis[${JSON.stringify(name)}] = (...args) => tell(args); }`,
			arguments: [{ type: 'channel', value: { channel: name } }],
			contexts: [this.id],
		});
	}

	addInitScript(act, argument) {
		return this.#bidi.send('script.addPreloadScript', {
			functionDeclaration: `() => (${act})(${JSON.stringify(argument)})`, contexts: [this.id],
		});
	}

	async evaluate(act, argument) {
		const expression = `Promise.resolve((${act})(${JSON.stringify(argument)})).then((value) => JSON.stringify(value ?? null))`;
		const { type, result, exceptionDetails } = await this.#bidi.send('script.evaluate', {
			expression, target: { context: this.id }, awaitPromise: true, userActivation: false,
		});
		if (type === 'exception') throw new Error(exceptionDetails.text);
		return JSON.parse(result.value);
	}

	/** What `act` gives stays in the page, and is asked of it again. */
	async evaluateHandle(act) {
		const name = `handle${this.#handles += 1}`;
		await this.evaluate(`() => { globalThis.${name} = (${act})(); }`);
		return { jsonValue: () => this.evaluate(`() => globalThis.${name}`) };
	}

	locator(selector, { hasText } = {}) {
		return new Locator(this, selector, hasText);
	}

	perform(source) {
		return this.#bidi.send('input.performActions', { context: this.id, actions: [source] });
	}

	async goto(url) {
		await this.#bidi.send('browsingContext.navigate', { context: this.id, url, wait: 'complete' });
		this.address = await this.evaluate(() => location.href);
	}

	reload() {
		return this.#bidi.send('browsingContext.reload', { context: this.id, wait: 'complete' });
	}

	bringToFront() {
		return this.#bidi.send('browsingContext.activate', { context: this.id });
	}

	url() {
		return this.address;
	}

	setViewportSize(viewport) {
		return this.#bidi.send('browsingContext.setViewport', { context: this.id, viewport });
	}

	/** This Firefox cannot be told which colours its user likes: it takes the light ones. */
	schemes = ['light'];

	async emulateMedia() {}

	async screenshot({ path }) {
		const { data } = await this.#bidi.send('browsingContext.captureScreenshot', { context: this.id, origin: 'document' });
		mkdirSync(dirname(path), { recursive: true });
		writeFileSync(path, Buffer.from(data, 'base64'));
	}

	/** As its user does it. */
	close() {
		this.isClosed = true;
		return this.#bidi.send('browsingContext.close', { context: this.id, promptUnload: false });
	}
}

/** A program of which nothing stays: what it starts itself ends with it. */
function start(command, args, env) {
	const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'ignore', 'pipe'], detached: true });
	const program = { child, said: [] };
	createInterface({ input: child.stderr }).on('line', (line) => program.said.push(line));
	program.ended = new Promise((done) => {
		child.on('exit', done);
		child.on('error', (error) => done(program.said.push(error.message)));
	});
	/** How it has ended, in words. It may be about to. */
	program.end = async () => {
		await Promise.race([program.ended, sleep(END_MS)]);
		const { exitCode, signalCode } = child;
		return exitCode === null && signalCode === null ? 'it runs' : `it ended with ${signalCode ?? exitCode}`;
	};
	program.stop = async () => {
		try {
			process.kill(-child.pid, 'SIGKILL');
		} catch {
			// The process has ended.
		}
		await program.ended;
	};
	return program;
}

/** A loudspeaker: without one Firefox runs no clock for sound. It keeps time, and plays to no device. */
async function loudspeaker(folder) {
	const socket = join(folder, 'sound');
	const program = start('pulseaudio', [
		'-n', '--daemonize=no', '--exit-idle-time=-1', '--disallow-exit', '--log-target=stderr',
		'-L', 'module-null-sink', '-L', `module-native-protocol-unix auth-anonymous=1 socket=${socket}`,
	], { HOME: folder, XDG_RUNTIME_DIR: folder });
	await until(() => existsSync(socket) || program.child.exitCode !== null, 'the loudspeaker', START_MS);
	if (!existsSync(socket)) throw new Error(`pulseaudio has ended:\n${program.said.join('\n')}`);
	return { socket, stop: program.stop };
}

/** Starts Firefox with a session, and gives it with `stop`. */
async function launch(microphone) {
	const folder = mkdtempSync(join(tmpdir(), 'firefox-'));
	const profile = join(folder, 'profile');
	mkdirSync(profile);
	const preferences = Object.entries({ ...PREFERENCES, ...MICROPHONES[microphone] });
	writeFileSync(join(profile, 'user.js'), preferences.map((each) => `user_pref(${each.map((one) => JSON.stringify(one))});\n`).join(''));
	const args = ['--headless', '--no-remote', '--profile', profile, '--remote-debugging-port', '0'];
	const programs = [];
	const stop = async () => {
		for (const program of programs) await program.stop();
		rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
	};
	try {
		const sound = await loudspeaker(folder);
		programs.unshift(sound);
		const firefox = start(process.env.FIREFOX ?? '/usr/bin/firefox-esr', args, {
			HOME: folder, XDG_RUNTIME_DIR: folder, PULSE_SERVER: `unix:${sound.socket}`, MOZ_CRASHREPORTER_DISABLE: '1',
		});
		programs.unshift(firefox);
		const listens = () => firefox.said.map((line) => line.match(/BiDi listening on (ws:\/\/\S+)/)?.[1]).find(Boolean);
		const hasEnded = () => firefox.child.exitCode !== null || firefox.child.signalCode !== null;
		await until(() => listens() || hasEnded(), 'Firefox listens', START_MS);
		try {
			if (!listens()) throw new Error('Firefox has ended');
			const bidi = await Bidi.open(`${listens()}/session`, firefox.end);
			await bidi.send('session.new', { capabilities: {} });
			await bidi.send('session.subscribe', { events: ['log.entryAdded', 'network.fetchError', 'script.message'] });
			await bidi.send('script.addPreloadScript', { functionDeclaration: `${watchConnections}` });
			return {
				bidi,
				async stop() {
					bidi.close();
					await stop();
				},
			};
		} catch (error) {
			throw new BrowserLost(`${error.message}; Firefox said:\n${firefox.said.join('\n')}`);
		}
	} catch (error) {
		await stop();
		throw error;
	}
}

/** Opens a browser, hands it to `use`, and leaves nothing behind. */
export async function withFirefox(use, { microphone = 'hums' } = {}) {
	let firefox;
	for (let nth = 1; !firefox; nth++) {
		try {
			firefox = await launch(microphone);
		} catch (error) {
			if (nth === STARTS) throw error;
			console.error(`Firefox does not start, try ${nth} of ${STARTS}: ${error.message}`);
		}
	}
	try {
		return await use({ newPage: () => Tab.open(firefox.bidi) });
	} finally {
		await firefox.stop();
	}
}
