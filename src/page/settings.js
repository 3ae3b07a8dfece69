// The settings of the runner: bot, services, voice, instructions, language, sound card, key. Shown at `#settings`, loaded when it
// is. Secrets are written and never read: the runner only says that one is set. What the file of settings does not decide is locked.

import { isExposed, keepKey, request } from './api.js';
import { copy, duration, make } from './dom.js';
import { botFields, field } from './form-bot.js';
import { check, clear, mark, soundTest } from './form-checks.js';
import { keyForm } from './keyform.js';
import { keyWanted } from './words.js';

const ASK_AGAIN_MS = 1000;
/** What a restart takes after the drain, on a slow board. */
const RESTART_MS = 60000;
const none = (what) => ({ name: '', what });
const localFields = (devices) => [
	['local', 'Talk to the runner itself, through its sound card', '', [none('No'), { name: 'voice', what: 'Yes' }]],
	['local-in', 'Microphone', '', [none('The default'), ...devices.in]],
	['local-out', 'Loudspeaker', '', [none('The default'), ...devices.out]],
	['local-start', 'When its session begins: `always`, `speech`, `key` or `wake`'],
	['local-wake', 'Service of wake words', 'tcp://127.0.0.1:10400'],
	['local-wake-words', 'Wake words, by their names at the service', 'okay_nabu'],
	['local-volume', 'Volume in percent', '100'],
];

/** Why the settings are not shown, and whether a key may help. */
function refusal({ status, message }) {
	if (!status) return ['The runner does not answer', `Is it still running? (${message})`];
	if (status === 401) return ['The settings need the key', keyWanted(), true];
	return ['The settings cannot be changed here', `The runner says “${message}”.`];
}

const button = (words, act) => {
	const own = Object.assign(make('button', '', words), { type: 'button' });
	own.addEventListener('click', act);
	return own;
};

const card = (title, ...parts) => make('fieldset', 'card', make('legend', '', title), ...parts);

const isSetBy = (what) => make('p', 'small', `Set by ${what}, which takes precedence over the file of settings.`);

const checkbox = (words, isDisabled = false) => {
	const box = Object.assign(make('input'), { type: 'checkbox', checked: false, disabled: isDisabled });
	return [box, make('label', 'check', box, ` ${words}`)];
};

export function settingsView(view) {
	document.head?.append(Object.assign(make('link'), { rel: 'stylesheet', href: new URL('form.css', import.meta.url) }));
	const problem = make('section', 'problem');
	problem.setAttribute('role', 'alert');
	const { form: keys, suggest } = keyForm('Show the settings', load);
	const said = make('p', 'said');
	said.setAttribute('role', 'status');
	const form = make('form', 'form');
	form.noValidate = form.hidden = problem.hidden = true;
	view.className = 'form';
	view.append(make('p', '', Object.assign(make('a', '', 'Back to the bot'), { href: '#' })), problem, form);
	/** The fields by their names: what the runner said, the field, and the box that removes a secret. */
	let fields = new Map();
	let run, renew, patienceMs;

	const say = (text, state = '') => { Object.assign(said, { textContent: text, className: `said ${state}` }); };

	function tell(kind, title, why, ...parts) {
		problem.className = `problem ${kind}`;
		problem.replaceChildren(make('h2', '', title), make('p', '', why), ...parts);
		problem.hidden = false;
	}

	const radios = () => form.querySelectorAll('[data-bot]');
	const chosen = () => [...radios()].find(({ checked }) => checked)?.value;

	/** Shows what belongs to the chosen bot. */
	function adapt() {
		for (const part of form.querySelectorAll('[data-for]')) part.hidden = part.dataset.for !== `bot=${chosen()}`;
	}

	/** What differs from what the runner said. */
	function changes() {
		const values = {};
		for (const [name, { state, input, remove }] of fields) {
			if (state.locked) continue;
			const value = (input ? input.value : chosen() ?? '').trim();
			if (remove?.checked) values[name] = null;
			else if (remove ? value : value !== (state.value ?? '')) values[name] = value || null;
		}
		return values;
	}

	/** Puts what the runner says into a field, and returns the box that removes a secret. */
	function fill(state, input) {
		const [remove, label] = checkbox('Remove it');
		const isHidden = state.is_set && state.value === undefined;
		const value = state.value ?? '';
		input.value = value;
		// A command, or a device that is not here now.
		if (input.value !== value) input.append(new Option(value, value, true, true));
		input.disabled = Boolean(state.locked);
		if (isHidden) input.placeholder = 'is set, and not shown';
		if (state.locked) input.after(isSetBy(state.locked));
		else if (isHidden) input.after(label);
		return isHidden ? remove : null;
	}

	/** The requests of form-checks.js. */
	const post = (path, body, signal) => request('POST', `settings${path}`, body, signal);

	function show(settings) {
		const states = new Map(settings.fields.map((state) => [state.name, state]));
		// Without a setting the bot is the parrot.
		const bot = { value: 'parrot', ...states.get('bot') };
		const key = states.get('api-key');
		const [box, label] = checkbox('Make a new key', Boolean(key.locked));
		renew = box;
		form.replaceChildren(
			card('Bot', ...bot.locked ? [isSetBy(bot.locked)] : [], ...botFields(true)),
			...settings.devices ? [card('Sound card', ...localFields(settings.devices).flatMap(field),
				...settings.devices.problems.map((text) => make('p', 'small', text)), ...settings.local ? soundTest(post) : [])] : [],
			card('Key of callers', label, key.locked ? isSetBy(key.locked) : make('p', 'small', 'The old one is refused from then on. Calls go on.')),
			...isExposed() ? [make('p', 'small', 'This page came over plain HTTP: others in the network can read the keys that you type here.')] : [],
			make('p', 'small', `The file is ${settings.file}. Most changes restart the runner${settings.sessions ? ', which ends the calls that are live' : ''}.`),
			make('button', 'main', 'Save'), said,
		);
		fields = new Map([['bot', { state: bot }]]);
		for (const input of form.querySelectorAll('[data-variable]')) {
			const state = states.get(input.dataset.variable);
			if (state) fields.set(state.name, { state, input, remove: fill(state, input) });
		}
		for (const radio of radios()) {
			radio.checked = !bot.locked && radio.value === bot.value;
			radio.disabled = Boolean(bot.locked);
		}
		for (const part of form.querySelectorAll('[data-assistant]')) part.hidden = !settings.assistants;
		for (const part of form.querySelectorAll('[data-service]')) {
			part.append(button('Test', () => check([part], post).catch((error) => say(error.message))));
		}
		form.hidden = false;
		adapt();
	}

	/** Shows what the runner says; `null` if it says nothing. */
	async function load() {
		try {
			const settings = await request('GET', 'settings');
			run = settings.run;
			patienceMs = (settings.drain_s ?? 0) * 1000 + RESTART_MS;
			problem.hidden = true;
			show(settings);
			if (settings.rejected) tell('', 'The last change was taken back', `The runner did not start with it: ${settings.rejected}`);
			return settings;
		} catch (error) {
			const [title, why, asks] = refusal(error);
			if (asks) suggest();
			form.hidden = true;
			tell('', title, why, ...asks ? [keys] : []);
			return null;
		}
	}

	/** Waits for another run of the runner. Returns whether there is one in time. */
	async function restarted() {
		const until = performance.now() + patienceMs;
		while (performance.now() < until) {
			await new Promise((done) => { setTimeout(done, ASK_AGAIN_MS); });
			const now = await request('GET', 'settings', null, null, 5000).catch(() => null);
			if (now && now.run !== run) return true;
		}
		return false;
	}

	/** What is wrong is said at its field. */
	function wrong({ field: name, message }) {
		const input = fields.get(name)?.input;
		say(message, 'wrong');
		if (input) mark(input);
		input?.focus();
	}

	async function save() {
		for (const { input } of fields.values()) input?.removeAttribute('aria-invalid');
		say('The runner checks the settings…');
		let taken;
		try {
			taken = await request('POST', 'settings', { values: changes(), new_key: renew.checked, restart: true });
		} catch (error) {
			return wrong(error);
		}
		if (taken.key) keepKey(taken.key);
		if (taken.restarts) {
			say('Saved. The runner restarts…');
			if (!await restarted()) return say(`Saved, but the runner has not come back for ${duration(patienceMs / 1000)}. Is it still running? Its log says why.`, 'wrong');
		}
		const settings = await load();
		say(settings?.rejected ? '' : 'Saved, and applied.');
		if (!taken.key || !settings || settings.rejected) return;
		const copied = button('Copy the key', () => copy(copied, taken.key));
		tell('good', 'The new key', 'Callers need it from now on. Keep it: it is not shown again.', make('code', '', taken.key), make('div', 'row', copied));
	}

	form.addEventListener('submit', (event) => {
		event.preventDefault();
		save();
	});
	form.addEventListener('input', ({ target }) => {
		const part = target.closest('[data-service]');
		if (part && target.dataset.variable) clear(part);
	});
	form.addEventListener('change', adapt);

	return { show: (isShown) => { if (isShown) load(); } };
}
