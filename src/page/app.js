// Connects the elements of the page to a session. Contains no protocol.

import { apiKey, keepKey, keyWaits, status } from './api.js';
import { charts } from './charts.js';
import { $, keep, kept, make, on, save, setIcon, stamped } from './dom.js';
import { keypad } from './keypad.js';
import { levels } from './levels.js';
import { eventLog } from './log.js';
import * as mic from './mic.js';
import { notices } from './notices.js';
import { startOptions } from './options.js';
import { canRecord, recorder } from './recorder.js';
import { noMicrophone, phoneAddress } from './secure.js';
import { session } from './session.js';
import { shell, showTab, stayAwake } from './shell.js';
import { transcript } from './transcript.js';
import { connectorOf, labelOf } from './transports.js';
import * as words from './words.js';

const STATUS_MS = 10000;
/** While a call lives, so that a runner that is gone is noticed. */
const STATUS_IN_CALL_MS = 3000;
const STATS_MS = 1000;
const MUTED_HINT_MS = 4000;
const log = eventLog();
const text = transcript($('transcript'), (say) => { $('announce').textContent = say; });
const figures = charts();
const options = startOptions();
const keys = keypad((key) => {
	text.pressed(key);
	call.press(key);
});
let runner = null;
let muted = false;
let chosen = mic.allowed ? '' : mic.NONE;

// ---- levels and speaking state

const sides = { user: { box: $('you') }, bot: { box: $('bot') } };
const forget = () => {
	for (const side of Object.values(sides)) Object.assign(side, { level: 0, loud: false, told: null, held: false, thinks: null });
};
forget();

const sound = levels({
	onLevels(name, level, loud) {
		Object.assign(sides[name], { level, loud });
		if (!loud) return;
		if (name === 'bot') call.heard();
		else if (muted) hintMuted();
	},
	onDraw: draw,
	onLatency(latency) {
		log('call', `answer after ${Math.round(latency)} ms`);
		$('waited').textContent = `answer after ${(latency / 1000).toFixed(2)} s`;
		figures({ latency });
	},
});

function stateOf(name) {
	const { told, loud, track, held, thinks } = sides[name];
	if (tested && name === 'user') return loud ? 'Heard' : 'Testing';
	if (call.phase === 'idle') return '–';
	if (name === 'user' && !track) return 'Listening only';
	if (!/ready|trouble/.test(call.phase)) return 'Not connected yet';
	if (name === 'user' && muted) return 'Muted';
	if (held) return 'On hold by the bot';
	// Reports of the bot take precedence; without any, the local detection applies.
	// While the connection is lost they are old.
	if (call.phase === 'trouble' ? loud : told ?? loud) return 'Speaking';
	if (thinks || (name === 'bot' && text.isCalling())) return 'Thinking';
	return thinks === null ? 'Quiet' : 'Listening';
}

function draw() {
	// The speakers are in this view.
	if ($('talk-view').hidden) return;
	for (const [name, { box, level }] of Object.entries(sides)) {
		const state = stateOf(name);
		box.style.setProperty('--level', name === 'user' && state === 'Muted' ? 0 : level.toFixed(2));
		if (box.dataset.state === state) continue;
		box.dataset.state = box.querySelector('.state').textContent = state;
		box.dataset.speaking = state === 'Speaking' || state === 'Heard';
		if (name === 'user') showMicrophone(state);
		else $('thinking').hidden = state !== 'Thinking';
	}
}

function showMicrophone(state) {
	const isOff = state === 'Muted' || state === 'Listening only';
	$('you').dataset.muted = state === 'Muted';
	setIcon($('you'), isOff ? 'mic-off' : 'mic');
}

let hinting;
function hintMuted() {
	if (call.phase !== 'ready') return;
	// A phone has no such keys.
	const isTouched = matchMedia('(hover: none)').matches;
	$('hint').textContent = `You are muted, but speaking.${isTouched ? '' : ' Press M, or hold Space to talk.'}`;
	clearTimeout(hinting);
	hinting = setTimeout(() => { $('hint').textContent = ''; }, MUTED_HINT_MS);
}

// ---- the session

const call = session({
	log,
	to: {
		...text,
		phase,
		problem,
		ids: log.ids,
		sound: play,
		microphone,
		speaking(name, told) {
			sides[name].told = told;
			// Only a bot with a language model reports that it thinks.
			if (sides.bot.thinks !== null) sides.bot.thinks = name === 'user' && !told;
			if (told === (name === 'user')) text.closeBot(told);
		},
		thinking: (thinks) => { sides.bot.thinks = thinks; },
		// The model has stopped writing, and writes on when it has the output.
		called: text.called,
		returned: text.returned,
		waited(ttfb) {
			// Pipecat announces each service with a zero.
			const measured = ttfb.filter((report) => report?.value > 0);
			figures({ ttfb: measured });
		},
		held: (held) => { sides.user.held = held; },
		// What sounds next is a tone or an excuse.
		failed: sound.noAnswer,
		solved: () => { $('problem').hidden = true; },
	},
});

function phase(next, say) {
	const { dataset } = document.documentElement;
	const was = dataset.phase;
	dataset.phase = next;
	$('status').textContent = say;
	const isLine = Boolean(connectorOf(options.read().transport)?.isLine);
	$('text').disabled = $('send').disabled = next !== 'ready' || isLine;
	$('text').placeholder = isLine ? 'A telephone takes no text' : 'Type to the bot';
	keys.lock(next !== 'ready');
	options.lock(next !== 'idle');
	showLabel();
	showMute();
	if (was === 'idle' && next !== 'idle') {
		if (isLine) keys.show(true);
		stayAwake(true);
		poll(STATUS_IN_CALL_MS);
	}
	// Clears hints about slowness; a hint that playback needs a click stays.
	if (next === 'waiting' && $('problem-play').hidden) $('problem').hidden = true;
	if (/waiting|ready/.test(next) && !counter) count();
	if (next === 'idle') end();
	if (next === 'idle' && isLine) keys.show(false);
	draw();
	// The number of calls has changed.
	if (/ready|idle/.test(next)) lookForRunner();
}

function end() {
	stayAwake(false);
	saveRecording();
	listen(null);
	sound.stop();
	forget();
	sides.user.track = null;
	$('bot-audio').srcObject = null;
	$('elapsed').textContent = $('waited').textContent = $('hint').textContent = '';
	counter = clearInterval(counter);
	text.closeBot();
	$('talk-save').disabled = text.isEmpty();
	poll(STATUS_MS);
}

function connect(deviceId) {
	const { request, transport, wrong } = options.read();
	if (wrong) return problem(words.badRequest(wrong));
	stopTest();
	// Listening only is a choice, which the select shows.
	if (deviceId === mic.NONE) choose(mic.NONE);
	$('problem').hidden = true;
	$('record-save').hidden = true;
	if (document.documentElement.dataset.tab === 'settings') showTab('talk');
	text.reset();
	figures(null);
	log.ids({});
	forget();
	const context = sound.start();
	sound.setMuted(muted);
	recording = $('record').checked && canRecord ? recorder(context) : null;
	call.connect({ transport, startRequest: request, deviceId, version: runner?.version, context, line: options.line() });
}

async function play(stream) {
	const audio = $('bot-audio');
	audio.srcObject = stream;
	sound.attach('bot', stream);
	recording?.side('bot', stream);
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
		// Time without an answer is no talk.
		if (document.documentElement.dataset.phase !== 'trouble') $('elapsed').textContent = new Date(Date.now() - begun).toISOString().slice(11, 19);
		for (const { box, level } of Object.values(sides)) box.lastElementChild.setAttribute('aria-valuenow', Math.round(level * 100));
		$('talk-save').disabled = text.isEmpty();
		const sample = await call.stats();
		if (sample) figures(sample);
		if (sample?.isSilent) lookForRunner();
	}, STATS_MS);
}

// ---- the recording

let recording, recorded;

async function saveRecording() {
	const own = recording;
	recording = null;
	const taken = await own?.stop();
	if (!taken?.blob.size) return;
	recorded = taken;
	$('record-save').textContent = `Save recording (${taken.seconds} s)`;
	$('record-save').hidden = false;
}

on('record-save', 'click', () => save(stamped(recorded.ending), recorded.blob));
on('talk-save', 'click', () => save(stamped('txt'), new Blob([`${text.asText()}\n`], { type: 'text/plain' })));
$('record').checked = kept('record', '') === 'on' && canRecord;
$('record').disabled = !canRecord;
on('record', 'change', () => keep('record', $('record').checked ? 'on' : ''));

// ---- the microphone

let probe;

/** Levels are measured on a copy, which a muted microphone does not silence. */
function listen(track) {
	probe?.stop();
	probe = track?.clone();
	if (probe) probe.enabled = true;
	sound.attach('user', probe && new MediaStream([probe]));
}

function microphone(track) {
	sides.user.track = track;
	listen(track);
	recording?.side('user', track && new MediaStream([track]));
	showMute();
	listMicrophones();
}

async function listMicrophones() {
	const system = mic.allowed ? [{ id: '', label: 'System default' }] : [];
	const all = [...system, ...await mic.list(), { id: mic.NONE, label: 'None, listen only' }];
	if (!all.some(({ id }) => id === chosen)) chosen = '';
	$('mic').replaceChildren(...all.map(({ id, label }) => new Option(label, id, false, id === chosen)));
	$('mic').disabled = !mic.allowed;
	$('mic-test').disabled = !mic.allowed || chosen === mic.NONE || call.phase !== 'idle';
	listSpeakers();
	showLabel();
	showMute();
}

function choose(id) {
	chosen = id;
	$('mic').value = id;
	showLabel();
}

async function listSpeakers() {
	const all = await mic.speakers();
	$('speaker-choice').hidden = !all.length;
	const own = $('speaker').value;
	$('speaker').replaceChildren(new Option('System default', ''), ...all.map(({ id, label }) => new Option(label, id, false, id === own)));
}

function showLabel() {
	const listens = chosen === mic.NONE;
	const isLine = Boolean(connectorOf(options.read().transport)?.isLine);
	const dial = isLine ? 'Call' : 'Connect';
	showLine();
	const idle = listens ? `${dial}, listen only` : dial;
	$('dial').textContent = dial;
	// To talk is the main way.
	$('connect').classList.toggle('main', !listens);
	$('connect').textContent = { idle, starting: 'Cancel', connecting: 'Cancel' }[call.phase] ?? (isLine ? 'Hang up' : 'Disconnect');
}

/** A simulated call looks like a telephone: the provider, and the number that is called. */
function showLine() {
	const line = options.line();
	document.documentElement.dataset.line = Boolean(line);
	$('bot-title').textContent = line ? labelOf(options.read().transport) : 'Bot';
	$('bot-name').textContent = options.bot() ?? runner?.bot ?? '';
	const isCalled = line?.to && call.phase !== 'idle';
	$('line-number').textContent = isCalled ? line.to : '';
}

on('transports', 'change', showLabel);
on('line', 'input', showLine);

function showMute() {
	const has = call.phase === 'idle' ? chosen !== mic.NONE : Boolean(sides.user.track);
	$('mute').disabled = !has;
	$('mute').dataset.muted = muted && has;
	$('mute').lastElementChild.textContent = muted && has ? 'Unmute' : 'Mute';
	setIcon($('mute'), muted || !has ? 'mic-off' : 'mic');
	$('mic-test').disabled = !mic.allowed || chosen === mic.NONE || call.phase !== 'idle';
}

function mute(isMuted) {
	muted = isMuted;
	call.setMuted(muted);
	sound.setMuted(muted);
	if (!muted) $('hint').textContent = '';
	showMute();
}

// ---- the test of the microphone

let tested = null;
let opening = false;

function stopTest() {
	if (!tested) return;
	tested.stop();
	tested = null;
	sound.stop();
	forget();
	draw();
	$('mic-test').setAttribute('aria-pressed', false);
	$('mic-test').textContent = 'Test';
	$('mic-said').textContent = '';
}

async function test() {
	// The browser may still be asking for the microphone.
	if (opening) return;
	opening = true;
	sound.start();
	try {
		const track = await mic.open(chosen);
		if (call.phase !== 'idle') return track.stop();
		tested = track;
		sound.attach('user', new MediaStream([track]));
		$('mic-test').setAttribute('aria-pressed', true);
		$('mic-test').textContent = 'Stop';
		$('mic-said').textContent = 'Speak, and watch the level above “You”. Nothing is sent.';
		listMicrophones();
	} catch (error) {
		// A call that began meanwhile has sound of its own.
		if (call.phase === 'idle') sound.stop();
		problem({ ...words.microphone(error), retry: false });
	} finally {
		opening = false;
	}
}

on('mic-test', 'click', () => (tested ? stopTest() : test()));

// ---- problems

function step(part, index) {
	if (part instanceof URL) {
		const link = Object.assign(make('a', '', part.origin + part.pathname), { href: part, target: part.target ?? '', rel: 'noopener' });
		return [link, ' '];
	}
	return [index % 2 ? make('code', '', part) : part, ' '];
}

const list = (steps) => steps.map((parts) => make('li', '', ...parts.flatMap(step)));

function problem({ title, text: why, steps = [], more, note = '', go, good = false, ...offers }) {
	log(good ? 'call' : 'error', title, why);
	$('problem').classList.toggle('good', good || Boolean(go));
	$('problem-title').textContent = title;
	$('problem-text').textContent = why;
	$('problem-note').textContent = note;
	$('problem-steps').replaceChildren(...list(steps));
	$('problem-more').hidden = !more;
	$('problem-more').open = false;
	$('problem-more').firstElementChild.textContent = more?.title ?? '';
	$('problem-more').lastElementChild.replaceChildren(...list(more?.steps ?? []));
	$('problem-go').hidden = !go;
	$('problem-go').href = go ?? '';
	// To agree is one click.
	$('key').value = offers.key && keyWaits() ? apiKey() : '';
	for (const offer of ['play', 'retry', 'listen', 'key', 'reset']) $(`problem-${offer}`).hidden = !offers[offer];
	$('problem').hidden = false;
	$('problem').scrollTop = 0;
}

const answer = (id, act) => on(`problem-${id}`, 'click', () => {
	$('problem').hidden = true;
	$('connect').focus();
	act?.();
});
answer('close');
answer('retry', () => connect(chosen));
answer('listen', () => connect(mic.NONE));
answer('reset', options.reset);
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

let polling, isAsking, isWanted;
function poll(everyMs) {
	clearInterval(polling);
	polling = setInterval(() => document.hidden || lookForRunner(), everyMs);
}

async function lookForRunner() {
	isWanted = true;
	// A runner that answers slowly is asked one thing at a time.
	if (isAsking) return;
	isAsking = true;
	try {
		while (isWanted) {
			isWanted = false;
			await askRunner();
		}
	} finally {
		isAsking = false;
	}
}

async function askRunner() {
	const pill = $('server');
	let [isGone, isStopping] = [false, false];
	try {
		runner = await status();
		const { version, sessions } = runner;
		isStopping = runner.status === 'draining';
		const calls = ` · ${sessions} call${sessions === 1 ? '' : 's'}`;
		pill.replaceChildren(isStopping ? 'Stopping' : 'Ready', make('span', 'version', ` · ${version}`), make('span', 'calls', calls));
	} catch (error) {
		if (pill.dataset.ok !== 'false') log('error', `/status: ${error.message}`);
		runner = null;
		// A refusal is an answer too.
		isGone = error.status === 0;
		// A replica that stops refuses, for its balancer.
		isStopping = error.status === 503;
		pill.textContent = isGone ? 'No answer' : isStopping ? 'Stopping' : `Refused (${error.status})`;
	}
	pill.dataset.ok = Boolean(runner);
	$('to-settings').hidden = !runner?.settings;
	$('new-version').hidden = !runner?.new_version;
	$('new-version').textContent = `Version ${runner?.new_version} is out: edge-runner update`;
	call.doubt('The runner does not answer', isGone);
	const usable = options.setStatus(runner);
	showLabel();
	const said = notices(runner, isStopping, options.bot());
	$('notice').hidden = !said.length;
	$('notice').textContent = said.join(' ');
	// With -t the runner may accept only transports that a page cannot use.
	$('connect').disabled = call.phase === 'idle' && Boolean(runner) && !usable;
	if (runner && !usable) pill.textContent = `Accepts ${runner.transports.map(labelOf).join(', ')} only (-t)`;
}

// ---- actions of the user

/** Space is to talk, and not to press the button that was clicked last. */
const byPointer = ({ detail, currentTarget }) => detail && currentTarget.blur();

on('connect', 'click', (event) => {
	byPointer(event);
	if (call.phase === 'idle') connect(chosen);
	else call.disconnect();
});
on('mute', 'click', (event) => {
	byPointer(event);
	mute(!muted);
});
on('mic', 'change', () => {
	choose($('mic').value);
	stopTest();
	call.changeMicrophone(chosen);
	showMute();
});
on('bot-pick', 'change', lookForRunner);
on('speaker', 'change', () => $('bot-audio').setSinkId($('speaker').value)
	.catch((error) => log('error', `the loudspeaker: ${error.message}`)));
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

shell({
	keypad: keys,
	mute: () => $('mute').disabled || mute(!muted),
	talk(isOn) {
		if (isOn && (!muted || !sides.user.track)) return false;
		mute(!isOn);
		return true;
	},
	escape() {
		if (!$('problem').hidden) $('problem').hidden = true;
		else keys.show(false);
	},
}, () => ({ address: phoneAddress, reached: runner?.page }));

// ---- live sessions and settings

const VIEWS = ['talk', 'sessions', 'settings'];
let sessions, settings;
async function view() {
	const name = VIEWS.find((own) => location.hash === `#${own}`) ?? 'talk';
	document.documentElement.dataset.view = name;
	for (const own of VIEWS) $(`${own}-view`).hidden = own !== name;
	$('to-sessions').href = name === 'sessions' ? '#' : '#sessions';
	// One's own call goes on beside the view.
	if (name === 'talk') $('speakers').after($('controls'));
	else $(`${name}-view`).prepend($('controls'));
	if (name === 'sessions') sessions ??= (await import('./sessions.js')).sessionsView($('sessions-view'));
	if (name === 'settings') settings ??= (await import('./settings.js')).settingsView($('settings-view'));
	sessions?.show(location.hash === '#sessions');
	settings?.show(location.hash === '#settings');
	draw();
}
addEventListener('hashchange', view);
view();

poll(STATUS_MS);
listMicrophones();
lookForRunner();
if (!mic.allowed) noMicrophone().then(problem);
