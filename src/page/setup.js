// The setup page of a board: shows its network, has services and sound checked, sends the form, shows the new key, and finishes.

import { $, copy, make, on } from './dom.js';
import { botFields } from './form-bot.js';
import { check, clear, filled, soundTest } from './form-checks.js';

const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

let board = { name: 'edge-runner', runnerPort: 7860, assistants: true, networks: [] };
let draft = null;
/** Of services that are to be asked soon. */
const timers = new Map();

/** Shows what belongs to the chosen answers. */
function adapt() {
	for (const part of document.querySelectorAll('[data-for]')) {
		part.hidden = !part.dataset.for.split(' ').some((answer) => {
			const [name, value] = answer.split('=');
			return chosen(name) === value;
		});
	}
	$('address').textContent = `Its page will be at http://${$('name').value.trim().toLowerCase() || '…'}.local:${board.runnerPort}`;
}

/** Shows one part of the page and moves the focus there. */
function show(id) {
	for (const part of ['form', 'confirm', 'done']) $(part).hidden = part !== id;
	$('problem').hidden = true;
	if (id !== 'form') $(id).focus();
	scrollTo(0, 0);
}

function fail(text) {
	$('problem-text').textContent = text;
	$('problem').hidden = false;
	$('problem').focus();
}

async function post(path, body, signal) {
	let reply;
	try {
		reply = await fetch(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body), signal });
	} catch {
		throw new Error('The board does not answer. Is this device still in its network?');
	}
	if (!reply.ok) throw new Error(await reply.text());
	return reply.json();
}

/** Runs a step while its button is disabled. */
async function step(button, run) {
	$(button).disabled = true;
	try {
		await run();
	} catch (error) {
		fail(error.message);
	}
	$(button).disabled = false;
}

/** The form as `POST /settings` takes it. Only the variables of the chosen bot are sent. */
function answers() {
	const variables = filled([...document.querySelectorAll(`[data-for="bot=${chosen('bot')}"]`)]);
	const ssh = chosen('ssh');
	const value = { none: '', key: $('ssh-key').value, password: $('ssh-password').value }[ssh];
	return { name: $('name').value, access: chosen('access'), ssh, ssh_value: value, bot: chosen('bot'), local: $('local').checked, variables };
}

/** Sends the form if all services of the bot pass, else offers to send it all the same: a service may come later. */
async function save() {
	for (const timer of timers.values()) clearTimeout(timer);
	const parts = [...document.querySelectorAll(`[data-for="bot=${chosen('bot')}"] [data-service]`)];
	if (parts.length) {
		let found;
		try {
			found = await check(parts, post);
		} catch (error) {
			$('anyway-part').hidden = false;
			throw error;
		}
		$('anyway-part').hidden = found.state !== 'failed';
		if (found.field) {
			found.field.focus();
			return;
		}
	}
	await send();
}

async function send() {
	draft = await post('/settings', answers());
	$('confirm-title').textContent = draft.key ? 'Your key' : 'All set';
	$('key-part').hidden = !draft.key;
	$('key').textContent = draft.key ?? '';
	show('confirm');
}

async function finish() {
	await post('/finish', { token: draft.token });
	show('done');
	// The way that led here leads to the runner too, unless it is the old name of the board.
	const host = location.hostname.endsWith('.local') ? `${draft.name}.local` : location.hostname;
	const runner = `http://${host}:${board.runnerPort}`;
	// Boards speak HTTPS on the same port. A machine that answers in place of the board would get the key over plain HTTP.
	const secure = `https://${host}:${board.runnerPort}`;
	const key = draft.key ? `#key=${draft.key}` : '';
	draft = null;
	$('open').href = `${secure}/${key}`;
	await pageEnds();
	const isReady = await runnerAnswers(runner);
	$('done-text').textContent = isReady ? `The board is ready: ${runner}` : `The board has not answered. Try ${runner} yourself.`;
	$('open').hidden = false;
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Of another origin only whether it answers can be seen. */
const answersAt = (url) => fetch(url, { mode: 'no-cors', cache: 'no-store', signal: AbortSignal.timeout(3000) }).then(() => true, () => false);

/** Waits until this page is no longer served. */
async function pageEnds() {
	for (let tries = 0; tries < 30 && await answersAt('/state'); tries++) await pause(500);
}

/** Waits until the runner answers in a row for longer than a board takes that rejects the settings and serves this page again. */
async function runnerAnswers(runner) {
	for (let tries = 0, good = 0; tries < 240; tries++) {
		await pause(2000);
		if (await answersAt('/state')) {
			show('form');
			throw new Error('The board rejected the settings, and kept none of them. Check them and go on again; its journal tells the reason.');
		}
		good = await answersAt(`${runner}/status`) ? good + 1 : 0;
		if (good === 5) return true;
		if (tries === 60) $('done-text').textContent = `This takes long. Try ${runner} yourself; a phone may need the board’s IP address in place of its name.`;
	}
	return false;
}

function describe(network) {
	const kind = network.kind === 'wifi' ? 'Wi-Fi' : 'Cable';
	const state = network.address ? `connected, ${network.address}` : network.up ? 'connected, no address yet' : 'not connected';
	return make('li', network.address ? 'up' : '', `${kind}: ${state}`);
}

on('form', 'input', (event) => {
	$('problem').hidden = $('anyway-part').hidden = true;
	const part = event.target.closest('[data-service]');
	if (part && event.target.dataset.variable) clear(part);
	adapt();
});
// When a field is left, its service is asked if what belongs to it is there. Not at once: a text that appears while a button is pressed
// would move it from under the pointer, and the press would be lost.
on('form', 'change', (event) => {
	const part = event.target.closest('[data-service]');
	if (!part || !event.target.value.trim()) return;
	clearTimeout(timers.get(part));
	timers.set(part, setTimeout(() => check([part], post, true).catch(() => {}), 400));
});
on('form', 'submit', (event) => {
	event.preventDefault();
	step('save', save);
});
on('anyway', 'click', () => step('anyway', send));
on('back', 'click', () => show('form'));
on('finish', 'click', () => step('finish', finish));
on('copy', 'click', () => copy($('copy'), $('key').textContent));

$('bots').append(...botFields());
$('sound').append(...soundTest(post, () => { $('local').checked = true; }));
document.querySelector('input[name=bot]').checked = true;
try {
	board = await (await fetch('/state', { cache: 'no-store' })).json();
	$('name').value = board.name;
	$('version').textContent = `edge-runner ${board.version}`;
	$('sound').hidden = !board.sound;
	$('networks').replaceChildren(...board.networks.map(describe));
	for (const choice of document.querySelectorAll('[data-assistant]')) choice.hidden = !board.assistants;
} catch {
	fail('The board does not answer. Reload the page.');
}
adapt();
