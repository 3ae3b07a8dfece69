// options.js on a document of its own: the text of the request decides, the choice follows it, and the URL of the page follows
// the choice.

import assert from 'node:assert/strict';
import test from 'node:test';
import { makeDocument } from './support/dom.mjs';
import { page, setGlobal } from './support/page.mjs';

makeDocument();
setGlobal('AudioWorkletNode', class {});
const { startOptions } = await page('options.js');

const ALL = ['webrtc', 'websocket', 'moq', 'videoroom', 'mediaroom', 'telephony_a', 'telephony_b', 'telephony_c', 'telephony_d'];

/** The options on a page with that query. */
function open(query = '') {
	const { byId } = makeDocument(`http://192.168.1.5:7860/client/${query}`);
	const own = startOptions();
	const radios = () => byId('transports').children.map((label) => label.children[0]);
	return {
		own,
		byId,
		text: () => JSON.parse(byId('start-body').value),
		type(value) {
			byId('start-body').value = value;
			byId('start-body').fire('input');
		},
		choose(name) {
			const radio = radios().find(({ value }) => value === name);
			radio.checked = true;
			radio.fire('change');
		},
		chosen: () => radios().filter(({ checked }) => checked).map(({ value }) => value),
		notes: () => byId('transports').children.map((label) => label.lastElementChild.textContent),
		enabled: () => radios().filter(({ disabled }) => !disabled).map(({ value }) => value),
		wrong: () => byId('start-problem').textContent,
	};
}

const status = (transports, more = {}) => ({ transports, without_bot: [], without_credentials: [], unavailable: [], ...more });

test('at first WebRTC is asked for, without servers and without a body', () => {
	const { own, text, chosen, byId } = open();
	assert.deepEqual(text(), { transport: 'webrtc', enableDefaultIceServers: false, body: {} });
	assert.deepEqual([chosen(), byId('chosen').textContent], [['webrtc'], 'WebRTC']);
	assert.deepEqual(own.read(), { request: text(), transport: 'webrtc' });
	assert.ok(byId('start-body').value.startsWith('{\n  "transport"'), 'in lines that can be edited');
	assert.deepEqual(history.replaced, [], 'the URL stays as it was');
});

test('the URL chooses a transport that there is', () => {
	for (const name of ALL) assert.deepEqual(open(`?transport=${name}`).chosen(), [name]);
	for (const name of ['', 'zoom', 'WEBRTC', 'constructor', '__proto__']) assert.deepEqual(open(`?transport=${name}`).chosen(), ['webrtc'], name);
});

test('a choice rewrites the text alone in its transport, and the URL', () => {
	const { type, choose, text, chosen } = open('#log');
	type('{"transport": "webrtc", "body": {"language": "de"}, "more": 1}');
	choose('websocket');
	assert.deepEqual(text(), { transport: 'websocket', body: { language: 'de' }, more: 1 });
	assert.deepEqual([chosen(), history.replaced.at(-1)], [['websocket'], '?transport=websocket#log']);
	choose('videoroom');
	assert.equal(text().createVideoroomRoom, true);
	choose('webrtc');
	assert.ok(!('createVideoroomRoom' in text()), 'which is for one transport alone');
	assert.deepEqual(text().body, { language: 'de' });
});

test('a text chooses too; without a transport it is WebRTC', () => {
	const { type, chosen, byId } = open();
	type('{"transport": "telephony_b"}');
	assert.deepEqual([chosen(), byId('chosen').textContent, location.search], [['telephony_b'], 'Telnyx', '?transport=telephony_b']);
	type('{}');
	assert.deepEqual([chosen(), location.search], [['webrtc'], '?transport=webrtc']);
});

test('a text with a mistake keeps the choice, and says what is wrong', () => {
	const mistakes = [
		['{', /ends too early|Not JSON yet/], ['', /ends too early|Not JSON yet/], ['[]', /must be an object/], ['null', /must be an object/], ['"x"', /must be an object/],
		['{"enableDefaultIceServers": "yes"}', /must be true or false/], ['{"transport": "zoom"}', /cannot connect there: "zoom"/],
		['{"transport": null}', /null is for other clients/], ['{"transport": 5}', /5 is for other clients/], ['{"transport": ["webrtc"]}', /is for other clients/],
	];
	for (const [text, why] of mistakes) {
		const { own, type, chosen, wrong, byId } = open('?transport=moq');
		type(text);
		assert.match(wrong(), why, text);
		assert.match(own.read().wrong, why);
		assert.deepEqual([chosen(), byId('start-body').getAttribute('aria-invalid'), own.read().request], [['moq'], 'true', undefined]);
		assert.deepEqual(history.replaced, [], 'nor does the URL change');
		type('{"transport": "moq"}');
		assert.deepEqual([wrong(), byId('start-body').getAttribute('aria-invalid')], ['', 'false']);
	}
});

test('a choice mends a text that cannot be read', () => {
	const { type, choose, text } = open();
	type('{oops');
	choose('websocket');
	assert.deepEqual(text(), { transport: 'websocket', enableDefaultIceServers: false, body: {} });
});

test('reset brings the first request back', () => {
	const { own, type, text, byId } = open('?transport=moq');
	type('{"transport": "websocket", "body": {"a": 1}}');
	byId('start-reset').click();
	assert.deepEqual(text(), { transport: 'webrtc', enableDefaultIceServers: false, body: {} });
	type('{oops');
	own.reset();
	assert.equal(text().transport, 'webrtc');
});

test('what the runner serves can be chosen, and the rest says why not', () => {
	const { own, enabled, notes } = open();
	assert.deepEqual([enabled(), notes()], [ALL, Array(9).fill('not known')], 'as long as it has not answered');
	assert.equal(own.setStatus(status(['webrtc', 'telephony_a'], { unavailable: ['mediaroom'] })), true);
	assert.deepEqual(enabled(), ['webrtc', 'telephony_a']);
	assert.deepEqual(notes(), [
		'ready', 'excluded by -t', 'needs -t moq', 'excluded by -t', 'not in this build', 'simulated call', 'excluded by -t', 'excluded by -t', 'excluded by -t',
	]);
	assert.equal(own.setStatus(null), true);
	assert.deepEqual(enabled(), ALL);
});

test('a transport that is not served is replaced by the first that is', () => {
	const { own, text, chosen } = open('?transport=websocket');
	own.setStatus(status(['moq', 'webrtc']));
	assert.deepEqual([chosen(), text().transport], [['webrtc'], 'webrtc']);
	own.setStatus(status(['moq']));
	assert.deepEqual(chosen(), ['moq']);
	assert.equal(own.setStatus(status(['moq'], { without_bot: ['moq'] })), false);
	assert.deepEqual(chosen(), ['moq'], 'there is none to go to');
});

test('a transport is not replaced during a session, nor under a mistake', () => {
	const { own, type, chosen, byId } = open('?transport=websocket');
	own.lock(true);
	own.setStatus(status(['webrtc']));
	assert.deepEqual([chosen(), byId('start-body').readOnly, byId('start-reset').disabled], [['websocket'], true, true]);
	own.lock(false);
	type('{oops');
	own.setStatus(status(['webrtc']));
	assert.equal(byId('start-body').value, '{oops');
});

test('a simulated call has numbers and the encodings of its provider', () => {
	const { own, choose, byId } = open();
	assert.deepEqual([own.line(), byId('line').hidden], [undefined, true]);
	choose('telephony_b');
	byId('line-from').value = ' +1555 ';
	byId('line-to').value = '+1666';
	assert.deepEqual(own.line(), { from: '+1555', to: '+1666', format: { codec: 'mulaw', rate: 8000, name: 'PCMU' } });
	assert.equal(byId('line').hidden, false);
	byId('line-codec').value = '2';
	assert.deepEqual(own.line().format, { codec: 'pcm', rate: 16000, name: 'L16' });
	own.setStatus(status(ALL));
	assert.equal(own.line().format.rate, 16000, 'a chosen encoding stays');
	choose('telephony_a');
	assert.equal(own.line().format.codec, 'mulaw');
	assert.equal(byId('line-codec').children.length, 1);
});

test('one of several bots is chosen, by its name or by the number', () => {
	const { own, byId, text, type } = open();
	const names = () => byId('bot-pick').children.map(({ value }) => value);
	assert.equal(own.bot(), undefined);
	own.setStatus(status(ALL, { bots: [{ name: 'sales' }, { name: 'home' }] }));
	assert.deepEqual([byId('bot-choice').hidden, names(), own.bot()], [false, ['sales', 'home'], 'sales']);
	byId('bot-pick').value = 'home';
	byId('bot-pick').fire('change');
	assert.deepEqual([text().bot, own.bot()], ['home', 'home']);
	own.setStatus(status(ALL, { bots: [{ name: 'sales' }, { name: 'home' }] }));
	own.setStatus(null);
	assert.deepEqual([byId('bot-pick').value, own.bot()], ['home', 'home'], 'a choice stays');
	type('{"transport": "websocket", "body": {"a": 1}, "bot": "home"}');
	byId('bot-pick').value = 'sales';
	byId('bot-pick').fire('change');
	assert.deepEqual([text(), own.bot()], [{ transport: 'websocket', body: { a: 1 }, bot: 'sales' }, 'sales']);
	type('{"transport": "telephony_a"}');
	assert.deepEqual([names(), byId('bot-pick').value, own.bot()], [['', 'sales', 'home'], '', ''], 'the number decides');
	byId('bot-pick').value = 'sales';
	byId('bot-pick').fire('change');
	assert.deepEqual([text().bot, own.bot()], ['sales', 'sales']);
	byId('bot-pick').value = '';
	byId('bot-pick').fire('change');
	assert.deepEqual([text().bot, own.bot()], [undefined, '']);
	type('{"transport": "websocket"}');
	assert.deepEqual([names(), own.bot()], [['sales', 'home'], 'sales'], 'it has no numbers');
	own.lock(true);
	assert.equal(byId('bot-pick').disabled, true);
	own.lock(false);
	own.setStatus(status(ALL));
	assert.deepEqual([byId('bot-choice').hidden, own.bot()], [true, undefined], 'a runner with one bot');
});
