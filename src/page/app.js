// Connects the elements of the page to a session. Contains no protocol.

import { keepKey, status } from './api.js';
import { charts } from './charts.js';
import { $, make, on } from './dom.js';
import { keypad } from './keypad.js';
import { levels } from './levels.js';
import { eventLog } from './log.js';
import * as mic from './mic.js';
import { startOptions } from './options.js';
import { noMicrophone } from './secure.js';
import { session } from './session.js';
import { transcript } from './transcript.js';
import { labelOf } from './transports.js';
import * as words from './words.js';

const STATUS_MS = 10000;
const STATS_MS = 1000;

const log = eventLog();
const text = transcript($('transcript'), (say) => { $('announce').textContent = say; });
const figures = charts();
const options = startOptions();
const keys = keypad((key) => call.press(key));
let runner = null;
let muted = false;
let chosen = mic.allowed ? '' : mic.NONE;

// ---- levels and speaking state

const sides = { user: { box: $('you') }, bot: { box: $('bot') } };
const forget = () => {
	for (const side of Object.values(sides)) Object.assign(side, { level: 0, loud: false, told: null, held: false, thinks: null });
};

const sound = levels({
	onLevels: (name, level, loud) => Object.assign(sides[name], { level, loud }),
	onLatency(latency) {
		log('call', `response latency ${Math.round(latency)} ms`);
		figures({ latency });
	},
});

function stateOf(name) {
	const { told, loud, track, held, thinks } = sides[name];
	if (call.phase === 'idle') return '–';
	if (name === 'user' && !track) return 'Listening only';
	if (call.phase !== 'ready') return 'Not connected yet';
	if (name === 'user' && muted) return 'Muted';
	if (held) return 'On hold by the bot';
	// Reports of the bot take precedence; without any, the local detection applies.
	if (told ?? loud) return 'Speaking';
	return thinks === null ? 'Quiet' : thinks ? 'Thinking' : 'Listening';
}

function draw() {
	for (const [name, { box, level }] of Object.entries(sides)) {
		const state = stateOf(name);
		box.style.setProperty('--level', level.toFixed(3));
		if (box.dataset.state === state) continue;
		box.dataset.state = box.querySelector('.state').textContent = state;
		box.dataset.speaking = state === 'Speaking';
	}
	if (call.phase !== 'idle') requestAnimationFrame(draw);
}

// ---- the session

const call = session({
	log,
	to: {
		...text,
		phase,
		problem,
		sound: play,
		microphone(track) {
			sides.user.track = track;
			sound.attach('user', track && new MediaStream([track]));
			listMicrophones();
		},
		speaking(name, told) {
			sides[name].told = told;
			// Only a bot with a language model reports that it thinks.
			if (sides.bot.thinks !== null) sides.bot.thinks = name === 'user' && !told;
			if (told === (name === 'user')) text.closeBot();
		},
		thinking: (thinks) => { sides.bot.thinks = thinks; },
		waited(seconds) {
			if (typeof seconds !== 'number') return;
			$('waited').textContent = `first sound after ${seconds.toFixed(2)} s`;
			log('call', `time to first sound ${Math.round(seconds * 1000)} ms`);
		},
		held: (held) => { sides.user.held = held; },
	},
});

function phase(next, say) {
	const { dataset } = document.documentElement;
	const was = dataset.phase;
	dataset.phase = next;
	$('status').textContent = say;
	$('text').disabled = $('send').disabled = next !== 'ready';
	keys.lock(next !== 'ready');
	options.lock(next !== 'idle');
	showLabel();
	if (was === 'idle') draw();
	// Clears hints about slowness; a hint that playback needs a click stays.
	if (next === 'waiting' && $('problem-play').hidden) $('problem').hidden = true;
	if (next === 'ready' && !counter) count();
	if (next === 'idle') {
		sound.stop();
		forget();
		sides.user.track = null;
		$('bot-audio').srcObject = null;
		$('elapsed').textContent = $('waited').textContent = '';
		counter = clearInterval(counter);
		text.closeBot();
	}
	// The number of calls has changed.
	if (/ready|idle/.test(next)) lookForRunner();
}

function connect(deviceId) {
	const { request, transport, wrong } = options.read();
	if (wrong) return options.show();
	$('problem').hidden = true;
	text.reset();
	figures(null);
	forget();
	call.connect({ transport, startRequest: request, deviceId, version: runner?.version, context: sound.start() });
}

async function play(stream) {
	const audio = $('bot-audio');
	audio.srcObject = stream;
	sound.attach('bot', stream);
	try {
		await audio.play();
	} catch (error) {
		if (error.name === 'NotAllowedError') problem(words.noSound());
		else log('error', `playing: ${error.message}`);
	}
}

let counter;
function count() {
	const begun = Date.now();
	counter = setInterval(async () => {
		$('elapsed').textContent = new Date(Date.now() - begun).toISOString().slice(11, 19);
		for (const { box, level } of Object.values(sides)) box.lastElementChild.setAttribute('aria-valuenow', Math.round(level * 100));
		const sample = await call.stats();
		if (sample) figures(sample);
	}, STATS_MS);
}

// ---- the microphone

async function listMicrophones() {
	const system = mic.allowed ? [{ id: '', label: 'System default' }] : [];
	const all = [...system, ...await mic.list(), { id: mic.NONE, label: 'None, listen only' }];
	if (!all.some(({ id }) => id === chosen)) chosen = '';
	$('mic').replaceChildren(...all.map(({ id, label }) => new Option(label, id, false, id === chosen)));
	$('mic').disabled = !mic.allowed;
	showLabel();
}

function showLabel() {
	const idle = chosen === mic.NONE ? 'Connect, listen only' : 'Connect';
	$('connect').textContent = { idle, starting: 'Cancel', connecting: 'Cancel' }[call.phase] ?? 'Disconnect';
}

// ---- problems

function step(part, index) {
	if (part instanceof URL) {
		const link = Object.assign(make('a', '', part.origin + part.pathname), { href: part, target: part.target ?? '', rel: 'noopener' });
		return [link, ' '];
	}
	return [index % 2 ? make('code', '', part) : part, ' '];
}

function problem({ title, text: why, steps = [], good = false, ...offers }) {
	log(good ? 'call' : 'error', title, why);
	$('problem').classList.toggle('good', good);
	$('problem-title').textContent = title;
	$('problem-text').textContent = why;
	$('problem-steps').replaceChildren(...steps.map((parts) => make('li', '', ...parts.flatMap(step))));
	for (const offer of ['play', 'retry', 'listen', 'key']) $(`problem-${offer}`).hidden = !offers[offer];
	$('problem').hidden = false;
	$('problem').scrollIntoView({ block: 'nearest' });
}

const answer = (id, act) => on(`problem-${id}`, 'click', () => {
	$('problem').hidden = true;
	$('connect').focus();
	act?.();
});
answer('close');
answer('retry', () => connect(chosen));
answer('listen', () => connect(mic.NONE));
on('problem-key', 'submit', (event) => {
	event.preventDefault();
	keepKey($('key').value.trim());
	$('key').value = '';
	connect(chosen);
});
answer('play', () => {
	sound.resume();
	play($('bot-audio').srcObject);
});

// ---- the runner

async function lookForRunner() {
	const pill = $('server');
	try {
		runner = await status();
		const { version, sessions } = runner;
		pill.textContent = `Ready · ${version} · ${sessions} call${sessions === 1 ? '' : 's'}`;
	} catch (error) {
		if (pill.dataset.ok !== 'false') log('error', `/status: ${error.message}`);
		runner = null;
		pill.textContent = 'No answer';
	}
	pill.dataset.ok = Boolean(runner);
	$('bot-name').textContent = runner?.bot ?? '';
	const far = runner?.speech_to ?? [];
	$('notice').hidden = !far.length;
	$('notice').textContent = `What you say and type goes to ${far.join(' and ')}, a third party, while the call lasts.`;
	const usable = options.setStatus(runner);
	// With -t the runner may accept only transports that a page cannot use.
	$('connect').disabled = call.phase === 'idle' && Boolean(runner) && !usable;
	if (runner && !usable) pill.textContent = `Accepts ${runner.transports.map(labelOf).join(', ')} only (-t)`;
}

// ---- actions of the user

on('connect', 'click', () => (call.phase === 'idle' ? connect(chosen) : call.disconnect()));
on('mute', 'click', () => {
	muted = !muted;
	$('mute').setAttribute('aria-pressed', muted);
	call.setMuted(muted);
});
on('mic', 'change', () => {
	chosen = $('mic').value;
	showLabel();
	call.changeMicrophone(chosen);
});
on('text-form', 'submit', (event) => {
	event.preventDefault();
	const typed = $('text').value.trim();
	if (!typed || !call.sendText(typed)) return;
	text.typed(typed);
	$('text').value = '';
});
addEventListener('pagehide', call.disconnect);
navigator.mediaDevices?.addEventListener('devicechange', listMicrophones);
document.addEventListener('visibilitychange', () => document.hidden || lookForRunner());
setInterval(() => document.hidden || lookForRunner(), STATUS_MS);

listMicrophones();
lookForRunner();
if (!mic.allowed) noMicrophone().then(problem);
