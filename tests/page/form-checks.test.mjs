// What the setup page of a board shows of services that the board has asked.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Element, makeDocument } from './support/dom.mjs';
import { page, settle } from './support/page.mjs';

makeDocument();
const { check, clear, filled } = await page('form-checks.js');

/** A service of the form with its fields, of which the last is in `details`. */
function makePart(service, values) {
	const part = new Element('div');
	part.dataset.service = service;
	const fields = Object.entries(values).map(([variable, value]) => {
		const field = new Element('input');
		field.dataset.variable = variable;
		field.value = value;
		return field;
	});
	const said = Object.assign(new Element('p', `said-${service}`), { className: 'said' });
	const details = new Element('details');
	details.append(fields.pop());
	part.append(...fields, said, details);
	return { part, said, details, field: (variable) => part.querySelectorAll('[data-variable]').find((own) => own.dataset.variable === variable) };
}

const makeChat = (model = 'm') => makePart('chat', { URL: 'http://nas:11434', MODEL: model, KEY: '' });

/** What the page asks with; each request is answered by the test. */
function makeBoard() {
	const asked = [];
	const post = (path, body, signal) => new Promise((answer, fail) => { asked.push({ path, body, signal, answer, fail }); });
	return { asked, post };
}

const report = (state, variable, text = `${state} ${variable}`, service = 'chat') => ({ service, state, variable, text });

test('only what is filled in is sent, and an answer is shown at its field', async () => {
	const { asked, post } = makeBoard();
	const chat = makeChat();
	assert.deepEqual(filled([chat.part]), { URL: 'http://nas:11434', MODEL: 'm' });
	const found = check([chat.part], post);
	assert.match(chat.said.textContent, /asks/);
	assert.deepEqual([asked[0].path, asked[0].body], ['/check', { services: ['chat'], variables: { URL: 'http://nas:11434', MODEL: 'm' } }]);
	asked[0].answer({ services: [report('failed', 'MODEL')] });
	assert.deepEqual(await found, { state: 'failed', field: chat.field('MODEL') });
	assert.equal(chat.said.textContent, 'failed MODEL');
	assert.ok(chat.said.classList.contains('failed'));
	assert.equal(chat.part.children[chat.part.children.indexOf(chat.field('MODEL')) + 1], chat.said);
	assert.deepEqual(['aria-invalid', 'aria-describedby'].map((name) => chat.field('MODEL').getAttribute(name)), ['true', 'said-chat']);
	assert.equal(chat.field('URL').getAttribute('aria-invalid'), null);

	clear(chat.part);
	assert.deepEqual([chat.said.textContent, chat.field('MODEL').getAttribute('aria-invalid')], ['', null]);
});

test('a field in closed details is opened', async () => {
	const { asked, post } = makeBoard();
	const chat = makeChat();
	const found = check([chat.part], post);
	asked[0].answer({ services: [report('failed', 'KEY')] });
	await found;
	assert.ok(chat.details.open);
	assert.equal(chat.details.lastElementChild, chat.said);
});

test('a field that is wrong counts more than a service that failed', async () => {
	const { asked, post } = makeBoard();
	const [chat, voice] = [makeChat(), makePart('voice', { TTS: '', KEY: '' })];
	for (const [states, worst] of [[['failed', 'wrong'], 'wrong'], [['wrong', 'failed'], 'wrong'], [['ok', 'failed'], 'failed'], [['ok', 'ok'], 'ok']]) {
		const found = check([chat.part, voice.part], post);
		asked.at(-1).answer({ services: [report(states[1], 'TTS', '', 'voice'), report(states[0], 'URL')] });
		const { state, field } = await found;
		assert.equal(state, worst);
		assert.equal(field, worst === 'ok' ? null : states[0] === 'ok' ? voice.field('TTS') : chat.field('URL'));
	}
	assert.ok(chat.said.classList.contains('ok'));
});

test('while the form is filled in, an empty field is not missed yet', async () => {
	const { asked, post } = makeBoard();
	const chat = makeChat('');
	for (const [isEarly, text] of [[true, ''], [false, 'wrong MODEL']]) {
		const found = check([chat.part], post, isEarly);
		asked.at(-1).answer({ services: [report('wrong', 'MODEL')] });
		assert.equal((await found).state, isEarly ? 'ok' : 'wrong');
		assert.equal(chat.said.textContent, text);
	}
	const found = check([chat.part], post, true);
	asked.at(-1).answer({ services: [report('wrong', 'URL')] });
	assert.equal((await found).field, chat.field('URL'), 'what is filled in wrongly is shown at once');
});

test('the answer to an earlier question is not shown', async () => {
	const { asked, post } = makeBoard();
	const chat = makeChat();
	const first = check([chat.part], post, true);
	const second = check([chat.part], post);
	assert.ok(asked[0].signal.aborted && !asked[1].signal.aborted);
	asked[1].answer({ services: [report('ok', 'URL')] });
	await second;
	asked[0].fail(new Error('aborted'));
	await assert.rejects(first);
	assert.equal(chat.said.textContent, 'ok URL');
});

test('a service that is changed while the form is checked keeps the form open', async () => {
	const { asked, post } = makeBoard();
	const [chat, voice] = [makeChat(), makePart('voice', { TTS: 'tcp://nas:10200', KEY: '' })];
	const whole = check([chat.part, voice.part], post);
	clear(chat.part);
	const early = check([chat.part], post, true);
	assert.ok(!asked[0].signal.aborted, 'it asks about the voice too');
	asked[0].answer({ services: [report('ok', 'URL'), report('ok', 'TTS', 'good', 'voice')] });
	assert.deepEqual(await whole, { state: 'failed', field: chat.field('URL') });
	assert.match(chat.said.textContent, /asks/);
	assert.equal(voice.said.textContent, 'good');
	asked[1].answer({ services: [report('ok', 'URL')] });
	await early;
});

test('a board that does not check says why, and keeps nothing of an earlier answer', async () => {
	const { asked, post } = makeBoard();
	const chat = makeChat();
	for (const [isEarly, text] of [[true, 'try again in 6 s'], [false, '']]) {
		const found = check([chat.part], post, isEarly);
		asked.at(-1).fail(new Error('try again in 6 s'));
		await assert.rejects(found, /try again/);
		await settle();
		assert.equal(chat.said.textContent, text);
	}
});
