// The built-in page in a real browser: it connects, hears the bot, reports errors, and is laid out
// correctly.

import { join } from 'node:path';
import { assertAccessible } from './axe.mjs';
import { until } from './runner.mjs';
import { HEARD, received, watch } from './watch.mjs';

const SIZES = {
	desk: { width: 1280, height: 800 },
	phone: { width: 360, height: 740 },
	small: { width: 320, height: 640 },
	landscape: { width: 740, height: 360 },
};
/** Those in which all fits: also on the lowest phone. */
const FITS = { ...SIZES, low: { width: 640, height: 320 }, tablet: { width: 820, height: 1180 } };
const TABS = ['metrics', 'log', 'settings', 'talk'];

/** Where axe looks, and at which tabs: `''` is what is shown. The desk shows what is in the tabs in both schemes. */
const LOOKS = {
	desk: { light: [''], dark: [''] },
	phone: { light: [''] },
	small: { dark: TABS },
	landscape: { light: [''] },
};
/** What is judged elsewhere but for its appearance: the desk in its other scheme, the same layout on the smaller phone. */
const JUDGED = { desk: 'dark', phone: 'light' };

/** Whether tabs can be chosen: not beside the sessions, nor below a dialog. */
const hasTabs = (page) => page.evaluate(() => document.getElementById('tabs').checkVisibility() && !document.querySelector('dialog[open]'));

/** A picture of the page where `out` is a folder for it. */
export async function photograph(page, out, name, options = {}) {
	if (out) await page.screenshot({ path: join(out, `${name}.png`), ...options });
}

/** Tabs at which axe looks. A browser with one scheme looks at all of them in that one. */
const looksAt = (place, scheme, schemes) => (
	schemes.length > 1 ? LOOKS[place][scheme] ?? [] : [...new Set(Object.values(LOOKS[place]).flat())]);

/** Pictures of a state in each size and colour scheme, and its accessibility. */
export async function shoot(page, out, name) {
	const schemes = page.schemes ?? ['light', 'dark'];
	for (const [place, size] of Object.entries(SIZES)) {
		await page.setViewportSize(size);
		for (const scheme of schemes) {
			const tabs = looksAt(place, scheme, schemes);
			if (!out && !tabs.length) continue;
			// Colours on their way from one state to the next have no contrast of their own.
			await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
			await photograph(page, out, `${name}-${place}-${scheme}`, { fullPage: true, animations: 'disabled' });
			if (!tabs.length) continue;
			for (const tab of await hasTabs(page) ? tabs : ['']) {
				if (tab) await showTab(page, tab);
				await assertAccessible(page, `${name}, ${place}, ${scheme}${tab && `, ${tab}`}`, schemes.length > 1 && JUDGED[place] === scheme);
			}
		}
	}
	await page.emulateMedia({ colorScheme: null, reducedMotion: null });
	await page.setViewportSize(SIZES.desk);
}

/** A tab of the narrow layouts. */
export const showTab = (page, name) => page.locator(`#tabs [data-tab=${name}]`).click();

/** In the page, at each of these tabs: how much wider than the window it is, what sticks out, how high it is and where the button of the
	call ends. `''` is what is shown. One question for all: to put it to a browser costs more than the answer. */
async function measure(tabs) {
	const found = [];
	for (const tab of tabs) {
		const button = tab && document.querySelector(`#tabs [data-tab=${tab}]`);
		// A tablet has the settings beside the panel.
		if (button && button.checkVisibility({ visibilityProperty: true })) {
			const { left, top, width, height } = button.getBoundingClientRect();
			if (!button.contains(document.elementFromPoint(left + width / 2, top + height / 2))) throw new Error(`the tab ${tab} is covered`);
			button.click();
			if (button.getAttribute('aria-current') !== 'true') throw new Error(`the tab ${tab} cannot be chosen`);
			await new Promise(requestAnimationFrame);
		}
		found.push({
			over: document.documentElement.scrollWidth - innerWidth,
			inner: [...document.querySelectorAll('body *')].filter((each) => each.checkVisibility() && !each.closest('.hidden')
				&& !each.closest('#log, #transcript, svg, textarea') && each.getBoundingClientRect().right > innerWidth + 1)
				.map((each) => each.id || each.className || each.tagName),
			high: document.documentElement.scrollHeight,
			end: document.getElementById('connect')?.getBoundingClientRect().bottom,
		});
	}
	return found;
}

function assertWithin({ over, inner }, where) {
	if (over > 0 || inner.length) throw new Error(`${where}: ${over} px wider than the window; ${inner} stick out`);
}

/** Nothing is wider than the window. `where` says when it was looked for. */
export async function assertNarrow(page, where) {
	const [found] = await page.evaluate(measure, ['']);
	assertWithin(found, where);
}

/** The same in every size: for what scrolls. */
export async function assertFitsWidth(page, state) {
	for (const [place, size] of Object.entries(SIZES)) {
		await page.setViewportSize(size);
		await assertNarrow(page, `${state}, ${place}`);
	}
	await page.setViewportSize(SIZES.desk);
}

/** Nothing is wider than the screen. On phones the page itself never scrolls, and the button of the call is in reach. */
export async function assertFits(page) {
	for (const [place, size] of Object.entries(FITS)) {
		await page.setViewportSize(size);
		const tabs = place === 'desk' ? [''] : TABS;
		for (const [nth, found] of (await page.evaluate(measure, tabs)).entries()) {
			const where = [place, tabs[nth]].filter(Boolean).join(', ');
			assertWithin(found, where);
			const { high, end } = found;
			if (high > size.height || !(end <= size.height)) throw new Error(`${where}: ${high} px high, the button ends at ${end} px`);
		}
	}
	await page.setViewportSize(SIZES.desk);
}

/** On phones the conversation takes most of the height, and the controls are at the thumb. */
async function assertAtThumb(page) {
	for (const place of ['phone', 'small']) {
		const { width, height } = SIZES[place];
		await page.setViewportSize({ width, height });
		const { talk, controls } = await page.evaluate(() => ({
			talk: document.getElementById('talk').getBoundingClientRect().height,
			controls: document.getElementById('controls').getBoundingClientRect().bottom,
		}));
		if (talk <= height / 2) throw new Error(`${place}: the conversation has ${talk} px of ${height} px`);
		if (controls > height || controls < height - 20) throw new Error(`${place}: the controls end at ${controls} px of ${height} px`);
	}
	await page.setViewportSize(SIZES.desk);
}

/** Adds what the page's own policy forbade to its faults. */
async function watchPolicy(page, faults) {
	await page.exposeFunction('violation', (line) => faults.push(line));
	await page.addInitScript(() => addEventListener('securitypolicyviolation', (event) => (
		globalThis.violation(`${event.violatedDirective} ${event.blockedURI}`))));
}

export const phase = (page) => page.evaluate(() => document.documentElement.dataset.phase);
export const text = (page, id) => page.locator(`#${id}`).innerText();

export const isPhase = (page, wanted, limitMs) => until(async () => (await phase(page)) === wanted, `the page is ${wanted}`, limitMs);
export const says = (page, id, words, limitMs) => until(async () => (await text(page, id)).includes(words), `“${words}” in #${id}`, limitMs);

export async function connect(page, url) {
	await page.goto(url);
	await page.locator('#server[data-ok=true]').waitFor();
	await page.locator('#connect').click();
	await isPhase(page, 'ready');
}

/** Opens the page; `faults` also collects what its own policy forbids. `script` runs in it first. */
export async function open(context, url, script) {
	const page = await context.newPage();
	const faults = watch(page);
	await watchPolicy(page, faults);
	if (script) await page.addInitScript(script);
	await page.goto(url);
	await page.locator('#server[data-ok=true]').waitFor();
	return { page, faults };
}

/** Hangs up, and closes the page. */
export async function hangUp(page, runner, faults) {
	await page.locator('#connect').click();
	await isPhase(page, 'idle');
	const freed = await runner.waitForSessions(0);
	if (faults.length) throw new Error(faults.join('\n'));
	await page.close();
	return `freed after ${freed} s`;
}

/** Listens to what the page plays, whatever brought it: `heard` sums up its energy, and how long it was loud. */
export async function listen(page) {
	await page.evaluate(() => {
		const LOUD = 0.001;
		const context = new AudioContext();
		const analyser = new AnalyserNode(context, { fftSize: 1024 });
		const samples = new Float32Array(1024);
		let before = context.currentTime;
		globalThis.heard = { energy: 0, loudS: 0 };
		context.createMediaStreamSource(document.getElementById('bot-audio').srcObject).connect(analyser);
		setInterval(() => {
			analyser.getFloatTimeDomainData(samples);
			const power = samples.reduce((sum, sample) => sum + sample ** 2, 0) / samples.length;
			const passed = context.currentTime - before;
			before = context.currentTime;
			globalThis.heard.energy += power * passed;
			globalThis.heard.loudS += power > LOUD ? passed : 0;
		}, 20);
	});
	const read = () => page.evaluate(() => globalThis.heard);
	return { read, restart: () => page.evaluate(() => { globalThis.heard = { energy: 0, loudS: 0 }; }) };
}

/** A whole talk with the parrot: it is heard and shown, a typed text arrives, and the microphone is muted. */
export async function talk(page, out, name, energy) {
	const [heard] = await Promise.all([
		until(async () => (await energy()) > HEARD && energy(), 'sound of the bot', 60000),
		until(async () => (await page.locator('#bot[data-speaking=true]').count()) > 0, 'the page shows the bot speaking', 60000),
	]);
	await says(page, 'transcript', 'You spoke for', 60000);
	await page.locator('#text').fill('typed words');
	await page.keyboard.press('Enter');
	await says(page, 'transcript', 'typed words');
	await shoot(page, out, name);
	await assertFits(page);
	await assertAtThumb(page);
	await page.locator('#mute').click();
	await says(page, 'you', 'Muted');
	return `energy ${heard.toFixed(3)}`;
}

/** The parrot's answer is cut short by a typed text: the page is silent soon. `logged` is what its log then holds. */
export async function interrupt(context, url, logged = '') {
	const page = await context.newPage();
	await connect(page, url);
	const sound = await listen(page);
	const answers = async (count) => {
		const told = async () => (await text(page, 'transcript')).split('You spoke for').length > count;
		await until(told, `answer ${count} of the parrot`, 60000);
		await sound.restart();
	};
	const isSpeaking = (wanted) => page.locator(`#bot[data-speaking=${wanted}]`).waitFor({ timeout: 60000 });
	await answers(1);
	await isSpeaking(true);
	await isSpeaking(false);
	const whole = (await sound.read()).loudS;
	await answers(2);
	await until(async () => (await sound.read()).loudS > 0, 'the begin of an answer');
	await page.locator('#text').fill('Quiet, please.');
	await page.keyboard.press('Enter');
	await says(page, 'log', logged);
	await isSpeaking(false);
	const cut = (await sound.read()).loudS;
	if (!(cut < whole / 2)) throw new Error(`loud for ${cut} s, and for ${whole} s when nobody interrupts`);
	await page.close();
	return `loud for ${cut.toFixed(2)} s in place of ${whole.toFixed(2)} s`;
}

/** A closed tab ends its session, by the time `limitMs` at the latest. */
export async function closeTab(context, runner, url, limitMs) {
	const page = await context.newPage();
	await connect(page, url);
	await page.close({ runBeforeUnload: false });
	return `freed after ${await runner.waitForSessions(0, limitMs)} s`;
}

/** What the page says when the runner ends in good order. */
export async function endRunner(context, runner, url) {
	const page = await context.newPage();
	await connect(page, url);
	const code = await runner.terminate();
	await isPhase(page, 'idle');
	const status = await text(page, 'status');
	await page.close();
	if (code !== 0) throw new Error(`the runner ended with ${code}`);
	return status;
}

/** What the page says of a runner that is killed. */
export async function loseRunner(context, runner, url, out, name) {
	const page = await context.newPage();
	await connect(page, url);
	runner.child.kill('SIGKILL');
	await page.locator('#problem').waitFor({ state: 'visible', timeout: 60000 });
	const problem = await text(page, 'problem');
	if (!/connection was lost/i.test(problem) || !/runner still running/i.test(problem)) throw new Error(problem);
	await isPhase(page, 'idle');
	await shoot(page, out, name);
	await assertFits(page);
	await page.close();
}

export const checks = {
	async 'page: opens at /, connects, hears the parrot, disconnects'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/`);
		if (new URL(page.url()).pathname !== '/client/') throw new Error(`at ${page.url()}`);
		await shoot(page, out, 'idle');
		await assertFits(page);
		await connect(page, page.url());
		const heard = await talk(page, out, 'call', async () => (await received(page)).energy);
		return `${heard}, ${await hangUp(page, runner, faults)}`;
	},

	async 'page: the keyboard alone connects and disconnects'(context, runner) {
		const page = await context.newPage();
		const faults = watch(page);
		await page.goto(`${runner.url}/client/`);
		await page.locator('#server[data-ok=true]').waitFor();
		const focused = () => page.evaluate(() => document.activeElement?.id);
		for (let presses = 0; (await focused()) !== 'connect'; presses++) {
			if (presses === 12) throw new Error('the button is not within twelve presses of Tab');
			await page.keyboard.press('Tab');
		}
		await page.keyboard.press('Enter');
		await isPhase(page, 'ready');
		await page.keyboard.press('Enter');
		await isPhase(page, 'idle');
		await runner.waitForSessions(0);
		if (faults.length) throw new Error(faults.join('\n'));
		await page.close();
	},

	async 'page: Cancel while it connects is the end of it, and it connects again'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		// The first answer is held back until the check releases it.
		await page.evaluate(() => {
			const native = globalThis.fetch;
			const held = new Promise((done) => { globalThis.letGo = done; });
			globalThis.fetch = async (url, options) => {
				const answer = await native(url, options);
				if (String(url).includes('api/offer')) await held;
				return answer;
			};
		});
		await page.locator('#connect').click();
		await isPhase(page, 'connecting');
		await until(async () => (await runner.sessions()) === 1, 'the session has begun');
		if ((await text(page, 'connect')) !== 'Cancel') throw new Error(`the button says ${await text(page, 'connect')}`);
		await shoot(page, out, 'connecting');
		await assertFits(page);
		await page.locator('#connect').click();
		await isPhase(page, 'idle');
		await page.evaluate(() => globalThis.letGo());
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		const { connections, state } = await received(page);
		if (connections !== 2 || state !== 'connected') throw new Error(`${connections} connections, the last one is ${state}`);
		if (faults.length) throw new Error(faults.join('\n'));
		await page.close();
	},

	async 'page: a closed tab ends the session'(context, runner) {
		return closeTab(context, runner, `${runner.url}/client/`, 35000);
	},

	async 'page: a runner that is gone is said in plain words'(context, runner, out) {
		const page = await context.newPage();
		await connect(page, `${runner.url}/client/`);
		const code = await runner.terminate();
		await isPhase(page, 'idle', 60000);
		await says(page, 'status', 'the runner is stopping');
		await shoot(page, out, 'ended');
		await page.close();
		if (code !== 0) throw new Error(`the runner ended with ${code}`);
		return 'the runner ended with 0';
	},

	async 'page: a killed runner is not shown as connected'(context, runner, out) {
		const page = await context.newPage();
		await connect(page, `${runner.url}/client/`);
		runner.child.kill('SIGKILL');
		await isPhase(page, 'trouble', 10000);
		const status = await text(page, 'status');
		if (!/Nothing arrives|does not answer|Connection lost/.test(status)) throw new Error(status);
		const times = await page.evaluateHandle(() => {
			const seen = [];
			const elapsed = document.getElementById('elapsed');
			new MutationObserver(() => seen.push(elapsed.textContent)).observe(elapsed, { childList: true });
			return seen;
		});
		await shoot(page, out, 'trouble');
		await isPhase(page, 'idle', 60000);
		// The end of the call removes it.
		const shown = await times.jsonValue();
		if (shown.join()) throw new Error(`the timer ran on while nothing arrived: ${shown}`);
		await page.close();
		return status;
	},

	async 'page: a mistake in the start request is explained at the top, and the choice stays'(context, runner, out) {
		const page = await context.newPage();
		await page.goto(`${runner.url}/client/?transport=websocket`);
		await page.locator('#server[data-ok=true]').waitFor();
		await page.locator('#options summary').click();
		await page.locator('#start-body').fill('{ "transport": "websocket", ');
		const chosen = () => page.evaluate(() => document.querySelector('#transports :checked')?.value);
		if ((await chosen()) !== 'websocket') throw new Error(`the choice is ${await chosen()}`);
		await page.locator('#connect').click();
		await says(page, 'problem', 'The start request has a mistake');
		await shoot(page, out, 'mistake');
		await assertFits(page);
		await page.locator('#problem-reset').click();
		if (JSON.parse(await page.evaluate(() => document.getElementById('start-body').value)).transport !== 'webrtc') throw new Error('not reset');
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		await page.close();
	},

	async 'page: a room without credentials is not offered'(context, runner) {
		const page = await context.newPage();
		await page.goto(`${runner.url}/client/`);
		await page.locator('#server[data-ok=true]').waitFor();
		const rooms = await page.evaluate(() => ['mediaroom', 'videoroom'].map((name) => {
			const radio = document.querySelector(`[name=transport][value=${name}]`);
			return `${radio.disabled} ${radio.parentElement.lastElementChild.textContent}`;
		}));
		if (!rooms.every((said) => /^true (needs its credentials|not with this bot)/.test(said))) throw new Error(`${rooms}`);
		await page.close();
	},

	async 'page: who only listens sees that, and has nothing to mute'(context, runner, out) {
		const page = await context.newPage();
		await page.goto(`${runner.url}/client/`);
		await page.locator('#server[data-ok=true]').waitFor();
		await until(() => page.evaluate(() => [...document.getElementById('mic').options].some(({ value }) => value === 'none')), 'the list of microphones');
		await page.evaluate(() => {
			const select = document.getElementById('mic');
			select.value = 'none';
			select.dispatchEvent(new Event('change'));
		});
		await page.locator('#connect').click();
		await isPhase(page, 'ready');
		const [chosen, isMuteOff, icon] = await page.evaluate(() => [
			document.getElementById('mic').value, document.getElementById('mute').disabled, document.querySelector('#you use').getAttribute('href'),
		]);
		if (chosen !== 'none' || !isMuteOff || icon !== '#i-mic-off') throw new Error(`${chosen}, ${isMuteOff}, ${icon}`);
		// Both lists tell the time in the same form.
		await page.locator('#text').fill('typed');
		await page.keyboard.press('Enter');
		await says(page, 'transcript', 'typed');
		const times = await page.evaluate(() => ['#transcript time', '#log time'].map((name) => document.querySelector(name).textContent));
		if (!/^\d\d:\d\d:\d\d$/.test(times[0]) || !/^\d\d:\d\d:\d\d\.\d{3}$/.test(times[1])) throw new Error(`${times}`);
		await shoot(page, out, 'listening');
		await page.close();
	},

	async 'page: over a WebSocket it connects, hears the parrot, is muted, disconnects'(context, runner, out) {
		const { page, faults } = await open(context, `${runner.url}/client/`);
		await page.locator('#options summary').click();
		await page.locator('input[value=websocket]').check();
		await shoot(page, out, 'options');
		// The address keeps the choice.
		await connect(page, page.url());
		if ((await received(page)).connections) throw new Error('over WebRTC');
		const sound = await listen(page);
		const heard = await talk(page, out, 'socket', async () => (await sound.read()).energy);
		return `${heard}, ${await hangUp(page, runner, faults)}`;
	},

	async 'page: over a WebSocket it falls silent when the bot is interrupted'(context, runner) {
		return interrupt(context, `${runner.url}/client/?transport=websocket`, 'interruption');
	},

	async 'page: the keypad presses keys for the bot, over either transport'(context, runner) {
		for (const transport of ['webrtc', 'websocket']) {
			const page = await context.newPage();
			const faults = watch(page);
			await connect(page, `${runner.url}/client/?transport=${transport}`);
			await page.locator('#keypad-open').focus();
			await page.keyboard.press('Enter');
			await page.locator('#keypad button', { hasText: '7' }).click();
			await says(page, 'transcript', 'You pressed 7.');
			await page.keyboard.press('#');
			await says(page, 'transcript', 'You pressed #.');
			if (faults.length) throw new Error(faults.join('\n'));
			await page.close();
		}
	},

	async 'page: over a WebSocket a closed tab ends the session'(context, runner) {
		return closeTab(context, runner, `${runner.url}/client/?transport=websocket`);
	},

	async 'page: over a WebSocket a runner that ends is said in plain words'(context, runner) {
		const status = await endRunner(context, runner, `${runner.url}/client/?transport=websocket`);
		if (!status.includes('the runner is stopping')) throw new Error(status);
	},

	async 'page: over a WebSocket a lost runner is said in plain words'(context, runner, out) {
		await loseRunner(context, runner, `${runner.url}/client/?transport=websocket`, out, 'lost');
	},
};
