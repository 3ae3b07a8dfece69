// settings.js: the settings of the runner, as it describes them, and what the page sends.

import assert from 'node:assert/strict';
import test from 'node:test';
import { stopClock } from './support/clock.mjs';
import { Element, makeDocument } from './support/dom.mjs';
import { page, setGlobal, settle } from './support/page.mjs';

makeDocument();
const clock = stopClock();
const { apiKey, keepKey } = await page('api.js');
const { settingsView } = await page('settings.js');

const FIELDS = [
	{ name: 'bot', is_set: true, value: 'cascade' },
	{ name: 'REALTIME_API_KEY', is_set: true },
	{ name: 'CASCADE_LLM_URL', is_set: true, value: 'http://nas:11434/v1' },
	{ name: 'CASCADE_LLM_API_KEY', is_set: true },
	{ name: 'CASCADE_LANGUAGE', is_set: true, value: 'de', locked: 'CASCADE_LANGUAGE' },
	{ name: 'CASCADE_INSTRUCTIONS', is_set: false },
	{ name: 'api-key', is_set: true },
];
const SETTINGS = { run: 'a', file: '/etc/a.toml', rejected: null, sessions: 1, assistants: true, devices: null, fields: FIELDS };

/** The view, with the answers of the runner. */
async function open(settings = [200, SETTINGS], change = [200, { key: null, waiting: [], restarts: false }]) {
	const view = new Element('main');
	const own = { answers: { settings, change, check: [200, { services: [] }], 'sound-test': null }, sent: [], keys: [] };
	setGlobal('fetch', async (url, { method = 'GET', headers, body }) => {
		own.keys.push(headers?.Authorization ?? '');
		if (method === 'POST') own.sent.push([url.pathname, JSON.parse(body)]);
		const outcome = await (method === 'GET' ? own.answers.settings : own.answers[url.pathname.split('/')[2]] ?? own.answers.change);
		if (outcome instanceof Error) throw outcome;
		return new Response(JSON.stringify(outcome[1]), { status: outcome[0] });
	});
	settingsView(view).show(true);
	await settle();
	const find = (id) => view.all().find((element) => element.id === id);
	const form = () => view.querySelector('.form');
	return Object.assign(own, {
		view, find, form,
		problem: () => view.querySelector('.problem'),
		said: () => view.all().filter((element) => element.classList.contains('said')).at(-1).textContent,
		async save() {
			form().fire('submit');
			await settle();
		},
	});
}

const radio = (own, value) => own.form().querySelectorAll('[data-bot]').find((each) => each.value === value);

test('what the runner says is in the fields, and a secret is not', async () => {
	const own = await open();
	assert.equal(own.problem().hidden, true);
	assert.equal(radio(own, 'cascade').checked, true);
	assert.equal(own.find('CASCADE_LLM_URL').value, 'http://nas:11434/v1');
	assert.deepEqual([own.find('CASCADE_LLM_API_KEY').value, own.find('CASCADE_LLM_API_KEY').placeholder], ['', 'is set, and not shown']);
	assert.deepEqual([own.find('CASCADE_LANGUAGE').value, own.find('CASCADE_LANGUAGE').disabled], ['de', true]);
	assert.match(own.form().textContent, /Set by CASCADE_LANGUAGE/);
	assert.match(own.form().textContent, /ends the calls that are live/);
	assert.equal(own.form().querySelectorAll('[data-for]').find((part) => part.dataset.for === 'bot=realtime').hidden, true);
	assert.ok(!own.find('local-volume'), 'in a build without the sound card');
});

test('only what differs is sent', async () => {
	const own = await open();
	await own.save();
	assert.deepEqual(own.sent, [['/settings', { values: {}, new_key: false, restart: true }]]);
	own.find('CASCADE_LLM_URL').value = ' http://other:1/v1 ';
	own.find('CASCADE_LLM_API_KEY').value = 'sk';
	own.find('REALTIME_API_KEY').parentElement.all().find((box) => box.type === 'checkbox').checked = true;
	radio(own, 'cascade').checked = false;
	radio(own, 'parrot').checked = true;
	await own.save();
	assert.deepEqual(own.sent[1][1].values, {
		bot: 'parrot', REALTIME_API_KEY: null, CASCADE_LLM_URL: 'http://other:1/v1', CASCADE_LLM_API_KEY: 'sk',
	});
	own.find('CASCADE_LLM_URL').value = '';
	await own.save();
	assert.equal(own.sent[2][1].values.CASCADE_LLM_URL, null);
});

test('an error is said, and its field has the focus', async () => {
	const own = await open(undefined, [400, { detail: 'no such model', field: 'CASCADE_LLM_URL' }]);
	await own.save();
	assert.equal(own.said(), 'no such model');
	assert.equal(own.find('CASCADE_LLM_URL').getAttribute('aria-invalid'), 'true');
	assert.equal(document.activeElement, own.find('CASCADE_LLM_URL'));
	own.answers.change = [400, { detail: 'nothing changes', field: null }];
	await own.save();
	assert.equal(own.said(), 'nothing changes');
	assert.equal(own.find('CASCADE_LLM_URL').getAttribute('aria-invalid'), null);
});

test('the page waits for the restart, and says when the change was taken back', async () => {
	const own = await open(undefined, [200, { key: null, waiting: ['bot'], restarts: true }]);
	await own.save();
	assert.match(own.said(), /restarts/);
	for (const answer of [[200, SETTINGS], new TypeError('refused'), [200, { ...SETTINGS, run: 'b', rejected: 'a port is taken' }]]) {
		own.answers.settings = answer;
		assert.match(own.said(), /restarts/);
		clock.pass(1000);
		await settle();
	}
	assert.match(own.problem().textContent, /taken back.*a port is taken/);
	assert.equal(own.said(), '');
});

test('the page waits for the restart no longer than it may take', async () => {
	for (const [drain, more] of [[undefined, {}], [30, { drain_s: 30 }]]) {
		const own = await open([200, { ...SETTINGS, ...more }], [200, { key: null, waiting: ['bot'], restarts: true }]);
		own.answers.change = [200, { key: null, waiting: ['bot'], restarts: true }];
		await own.save();
		own.answers.settings = new TypeError('refused');
		for (let second = 1; second < (drain ?? 0) + 60; second += 1) {
			clock.pass(1000);
			await settle();
			assert.match(own.said(), /restarts/, `after ${second} s`);
		}
		clock.pass(1000);
		await settle();
		assert.match(own.said(), drain ? /not come back for 1 min 30 s/ : /not come back for 1 min 0 s/);
		// The page can be used, and finds a runner that is back.
		own.answers.settings = [200, { ...SETTINGS, run: 'b' }];
		own.answers.change = [200, { key: null, waiting: [], restarts: false }];
		await own.save();
		assert.match(own.said(), /applied/);
	}
});

test('the new key is shown once, and used from then on', async () => {
	const own = await open(undefined, [200, { key: 'the-new-key', waiting: [], restarts: false }]);
	keepKey('the-old-key');
	await own.save();
	assert.equal(apiKey(), 'the-new-key');
	assert.equal(own.keys.at(-1), 'Bearer the-new-key');
	assert.match(own.problem().textContent, /The new key.*the-new-key/);
	assert.match(own.said(), /applied/);
	keepKey('');
});

test('the key is asked for, and other refusals are explained', async () => {
	const own = await open([401, { detail: 'no API key' }]);
	assert.equal(own.form().hidden, true);
	assert.match(own.problem().textContent, /need the key/);
	own.answers.settings = [200, SETTINGS];
	own.problem().querySelector('input').value = 'k';
	own.problem().querySelector('form').fire('submit');
	await settle();
	assert.deepEqual([own.form().hidden, own.problem().hidden, own.keys.at(-1)], [false, true, 'Bearer k']);
	keepKey('');
	assert.match((await open([404, { detail: 'that needs --settings page' }])).problem().textContent, /that needs --settings page/);
	assert.match((await open(new TypeError('refused'))).problem().textContent, /does not answer/);
});

/** What the runner lists of the sound devices. */
const DEVICES = {
	in: [{ name: 'default', what: '' }, { name: 'plughw:CARD=USB,DEV=0', what: 'Jabra SPEAK 510 USB' }],
	out: [{ name: 'plughw:CARD=USB,DEV=0', what: 'Jabra SPEAK 510 USB' }],
	problems: ['this user may not open PCH'],
};
const LOCAL_FIELDS = ['local', 'local-in', 'local-out', 'local-start', 'local-volume'].map((name) => ({ name, is_set: false }));

test('the sound card is switched on and off, and its devices are chosen', async () => {
	const own = await open([200, { ...SETTINGS, devices: DEVICES, fields: [...FIELDS, ...LOCAL_FIELDS] }]);
	const choices = (id) => own.find(id).children.map(({ value, textContent }) => [value, textContent]);
	assert.deepEqual(choices('local'), [['', 'No'], ['voice', 'Yes']]);
	assert.deepEqual(choices('local-in'), [['', 'The default'], ['default', 'default'], ['plughw:CARD=USB,DEV=0', 'Jabra SPEAK 510 USB']]);
	assert.deepEqual(choices('local-out').length, 2);
	assert.match(own.form().textContent, /may not open PCH/);
	assert.ok(!own.view.all().some((each) => each.textContent === 'Test the sound card'), 'it is no caller yet');
	own.find('local').value = 'voice';
	own.find('local-in').value = 'plughw:CARD=USB,DEV=0';
	await own.save();
	assert.deepEqual(own.sent[0][1].values, { local: 'voice', 'local-in': 'plughw:CARD=USB,DEV=0' });
	// What the file has and the list lacks is kept: a command, and a card that is not plugged in.
	const set = { local: 'voice', 'local-in': 'sh -c mic', 'local-out': 'plughw:CARD=Gone,DEV=0' };
	const fields = [...FIELDS, ...LOCAL_FIELDS.map((state) => (state.name in set ? { ...state, is_set: true, value: set[state.name] } : state))];
	const other = await open([200, { ...SETTINGS, local: true, devices: DEVICES, fields }]);
	assert.deepEqual(['local', 'local-in', 'local-out'].map((id) => other.find(id).value), Object.values(set));
	await other.save();
	assert.deepEqual(other.sent[0][1].values, {});
	for (const id of ['local', 'local-in']) other.find(id).value = '';
	await other.save();
	assert.deepEqual(other.sent[1][1].values, { local: null, 'local-in': null });
});

test('the sound card is tested, one test at a time', async () => {
	const local = { ...SETTINGS, local: true, devices: DEVICES, fields: [...FIELDS, ...LOCAL_FIELDS] };
	const own = await open([200, local]);
	const button = own.view.all().find((each) => each.textContent === 'Test the sound card' && each.tagName === 'BUTTON');
	const said = () => button.parentElement.all().find((each) => each.classList.contains('said'));
	for (const [outcome, state, text] of [
		[[200, { state: 'ok', peak_dbfs: -12, text: 'The microphone works.' }], 'ok', 'The microphone works.'],
		[[200, { state: 'silent', peak_dbfs: null, text: 'It is muted.' }], 'failed', 'It is muted.'],
		[[409, { detail: 'the sound card is in a call' }], 'failed', 'the sound card is in a call'],
	]) {
		let end;
		own.answers['sound-test'] = new Promise((done) => { end = done; });
		button.fire('click');
		await settle();
		assert.deepEqual([button.disabled, said().textContent.slice(0, 14)], [true, 'After the tone']);
		end(outcome);
		await settle();
		assert.deepEqual([button.disabled, said().textContent, said().classList.contains(state)], [false, text, true]);
		assert.deepEqual(own.sent.at(-1), ['/settings/sound-test', {}]);
	}
	// Without a sound card as a caller there is nothing to test.
	const none = await open([200, { ...local, local: false }]);
	assert.ok(!none.view.all().some((each) => each.textContent === 'Test the sound card'));
});
