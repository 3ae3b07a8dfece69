// rtvi.js: the handshake, the messages of a user, and what each message of a bot does; messages of no known shape do nothing.

import assert from 'node:assert/strict';
import test from 'node:test';
import { makeDocument } from './support/dom.mjs';
import { page } from './support/page.mjs';

makeDocument();
const { rtvi } = await page('rtvi.js');

/** A client that records: `said` to the bot, `seen` by the page, `logged`. */
function client({ isOpen = true } = {}) {
	const [said, seen, logged] = [[], [], []];
	const to = new Proxy({}, { get: (_, name) => (...args) => { seen.push([name, ...args]); } });
	const own = rtvi({
		send(message) {
			if (isOpen) said.push(message);
			return isOpen;
		},
		to,
		log: (...args) => logged.push(args),
	});
	return { own, said, seen, logged, hear: (type, data, more) => own.receive({ label: 'rtvi-ai', type, data, ...more }) };
}

test('the greeting says who is there, once for each bot', () => {
	const { own, said } = client();
	own.greet('0.1.0');
	own.greet('0.1.0');
	assert.equal(said.length, 1);
	const { id, ...message } = said[0];
	assert.match(id, /^[0-9a-f]{8}$/);
	assert.deepEqual(message, {
		label: 'rtvi-ai', type: 'client-ready',
		data: { version: '2.1.0', about: { library: 'edge-runner-page', library_version: '0.1.0', platform_details: { browser: 'a test' } } },
	});
});

test('a greeting that was not sent is sent again', () => {
	let isOpen = false;
	const said = [];
	const own = rtvi({ send: (message) => isOpen && Boolean(said.push(message)), to: {}, log() {} });
	own.greet();
	isOpen = true;
	own.greet();
	assert.deepEqual(said.map(({ type, data }) => [type, data.about.library_version]), [['client-ready', 'unknown']]);
});

test('typed text and keys are sent with ids of their own', () => {
	const { own, said } = client();
	assert.ok(own.sendText('hello "you"'));
	assert.ok(own.press('#'));
	assert.deepEqual(said.map(({ type, data }) => [type, data]), [
		['send-text', { content: 'hello "you"', options: {} }], ['dtmf', { buttons: ['#'] }],
	]);
	assert.notEqual(said[0].id, said[1].id);
});

test('what a closed channel does not take is logged', () => {
	const { own, logged } = client({ isOpen: false });
	assert.equal(own.sendText('x'), false);
	assert.deepEqual(logged[0].slice(0, 2), ['error', 'send-text: not sent, the channel is closed']);
});

test('each message of a bot has its effect', () => {
	const effects = [
		['user-started-speaking', undefined, ['speaking', 'user', true]],
		['user-stopped-speaking', undefined, ['speaking', 'user', false]],
		['bot-started-speaking', undefined, ['speaking', 'bot', true]],
		['bot-stopped-speaking', undefined, ['speaking', 'bot', false]],
		['bot-llm-started', undefined, ['thinking', true]],
		['bot-llm-stopped', undefined, ['thinking', false]],
		['bot-ready', { version: '2.1.0' }, ['ready']],
		['user-mute-started', undefined, ['held', true]],
		['user-mute-stopped', undefined, ['held', false]],
		['user-transcription', { text: 'hi', final: true }, ['heard', 'hi', true]],
		['user-transcription', { text: 'h' }, ['heard', 'h', false]],
		['user-transcription', { text: 'h', final: 'true' }, ['heard', 'h', false]],
		['bot-transcription', { text: 'a' }, ['said', 2, 'a']],
		['bot-tts-text', { text: 'b' }, ['said', 1, 'b']],
		['bot-llm-text', { text: 'c' }, ['said', 0, 'c']],
		['bot-output', { text: 'd', segment_id: 1 }, ['output', { text: 'd', segment_id: 1 }]],
		['metrics', { ttfb: [{ processor: 'p', value: 1 }] }, ['waited', [{ processor: 'p', value: 1 }]]],
		['metrics', { tokens: [] }, ['waited', []]],
		['llm-function-call-in-progress', { tool_call_id: 'i', function_name: 'f', arguments: { a: 1 } }, ['called', 'i', 'f', { a: 1 }]],
		['llm-function-call-stopped', { tool_call_id: 'i', cancelled: true }, ['returned', 'i', true]],
		['llm-function-call-stopped', { tool_call_id: 'i' }, ['returned', 'i', false]],
		['bot-interrupted', undefined, ['interrupted']],
		['server-message', { any: 1 }, ['note', 'Message from the bot', { any: 1 }]],
		['error-response', { error: 'no' }, ['note', 'The bot refused a request', 'no', true]],
		['error', { error: 'broken', fatal: true }, ['error', 'broken', true]],
		['error', { error: 'odd' }, ['error', 'odd', false]],
		['error', {}, ['error', 'no reason given', false]],
	];
	for (const [type, data, effect] of effects) {
		const { hear, seen } = client();
		hear(type, data);
		assert.deepEqual(seen, [effect], type);
	}
});

test('a ready bot that answers another greeting is served, and logged', () => {
	const { own, hear, said, seen, logged } = client();
	own.greet();
	hear('bot-ready', {}, { id: said[0].id });
	assert.ok(!logged.some(([kind]) => kind === 'error'));
	hear('bot-ready', {}, { id: 'other' });
	assert.deepEqual(logged.at(-1), ['error', 'bot-ready answers another client-ready']);
	assert.deepEqual(seen, [['ready'], ['ready']]);
});

test('frequent messages and errors are logged as such', () => {
	const kinds = [
		['user-audio-level', 'levels'], ['bot-audio-level', 'levels'], ['bot-tts-audio', 'levels'], ['error', 'error'], ['error-response', 'error'],
		['bot-ready', 'received'], ['anything', 'received'],
	];
	for (const [type, kind] of kinds) {
		const { hear, logged } = client();
		hear(type, { value: 1 });
		assert.deepEqual(logged[0], [kind, type, { value: 1 }], type);
	}
});

test('messages of no known shape do nothing', () => {
	const odd = [
		null, undefined, 5, 'text', [], {}, { label: 'rtvi-ai' }, { label: 'rtvi-ai', type: 5 }, { label: 'other', type: 'bot-ready' }, { type: 'bot-ready' },
	];
	for (const message of odd) {
		const { own, seen, logged } = client();
		own.receive(message);
		assert.deepEqual([seen, logged[0].slice(0, 2)], [[], ['error', 'not RTVI, ignored']], JSON.stringify(message));
	}
	for (const type of ['', 'x', 'constructor', 'toString', 'user-started-speaking ', 'bot-llm-', '__proto__']) {
		const { hear, seen } = client();
		hear(type, {});
		assert.deepEqual(seen, [], type);
	}
});

test('data of another type is an empty text, not a text of it', () => {
	for (const data of [null, 5, 'text', [1], { text: 7 }, { text: null }, { text: { a: 1 } }]) {
		for (const [type, effect] of [['bot-transcription', ['said', 2, '']], ['user-transcription', ['heard', '', false]], ['error', ['error', 'no reason given', false]]]) {
			const { hear, seen } = client();
			hear(type, data);
			assert.deepEqual(seen, [effect], `${type} ${JSON.stringify(data)}`);
		}
		const { hear, seen } = client();
		hear('metrics', data);
		assert.deepEqual(seen, [['waited', []]]);
	}
});
