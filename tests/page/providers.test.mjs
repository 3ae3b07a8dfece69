// providers.js beside the captured calls of each provider: the simulated ones send the same messages, and the answers of the
// runner mean what they mean to a provider.

import assert from 'node:assert/strict';
import test from 'node:test';
import { page, repositoryFile } from './support/page.mjs';

const { meaning, PROVIDERS } = await page('providers.js');

const FILES = { telephony_a: 'twilio', telephony_b: 'telnyx', telephony_c: 'plivo', telephony_d: 'exotel' };
const PLAIN = new Set(['number', 'string', 'boolean']);

const captured = (transport) => repositoryFile(`tests/data/telephony/${FILES[transport]}.jsonl`).toString().trim().split('\n').map((line) => JSON.parse(line));

const call = (transport, more = {}) => ({
	stream: 'S1', call: 'simulated-C1', from: '+15550001111', to: '+15550002222', parameters: { language: 'en' },
	format: PROVIDERS[transport].codecs[0][1], ...more,
});

/** The paths of all values, without the names of parameters. */
function paths(value, path = '') {
	if (PLAIN.has(typeof value) || value === null) return [path];
	if (Array.isArray(value)) return [`${path}[]`];
	return Object.entries(value).flatMap(([key, inner]) => (/parameters$/i.test(path) ? [path] : paths(inner, path ? `${path}.${key}` : key)));
}

const byEvent = (messages, event) => messages.filter((message) => message.event === event);

test('each telephony transport has a provider', () => assert.deepEqual(Object.keys(PROVIDERS).sort(), Object.keys(FILES)));

for (const [transport, file] of Object.entries(FILES)) {
	const provider = PROVIDERS[transport];
	const frame = { ...call(transport), sequence: 7, chunk: 3, ms: 60, payload: 'AAAA', digit: '5', name: 'm-1' };

	test(`${file}: a simulated call sends no field that real ones lack`, () => {
		const real = captured(transport);
		const sent = [...provider.opening(call(transport)), provider.media(frame), provider.key(frame), provider.mark(frame), provider.stop(frame)];
		assert.deepEqual(sent.map(({ event }) => event).filter((event) => event !== 'connected'),
			['start', 'media', 'dtmf', transport === 'telephony_c' ? 'playedStream' : 'mark', 'stop']);
		for (const message of sent) {
			const known = new Set(byEvent(real, message.event).flatMap((one) => paths(one)));
			assert.ok(known.size, `the capture has ${message.event}`);
			// Plivo's capture numbers the messages of its first part only.
			if (transport === 'telephony_c') known.add('sequenceNumber');
			const more = paths(message).filter((path) => !known.has(path));
			assert.deepEqual(more, [], `${message.event} has other fields`);
		}
	});

	test(`${file}: values have the types of a real call`, () => {
		const [real] = byEvent(captured(transport), 'media');
		const own = provider.media(frame);
		for (const path of paths(own)) {
			const at = (message) => path.split('.').reduce((value, key) => value[key], message);
			assert.equal(typeof at(own), typeof at(real), path);
		}
	});

	test(`${file}: the first messages come as in a real call, and name stream and call`, () => {
		const opening = provider.opening(call(transport));
		const events = captured(transport).map(({ event }) => event);
		assert.deepEqual(opening.map(({ event }) => event), events.slice(0, events.indexOf('start') + 1));
		const text = JSON.stringify(opening);
		assert.ok(text.includes('"S1"') && text.includes('"simulated-C1"'), text);
		assert.ok(text.includes('language') && text.includes('en'), 'parameters reach the bot');
		assert.ok(text.includes('+15550001111'), 'numbers');
	});

	test(`${file}: sound is counted and timed`, () => {
		const { media } = provider.media(frame);
		assert.deepEqual([media.payload, String(media.chunk)], ['AAAA', '3']);
		assert.match(JSON.stringify(provider.media(frame)), /"sequence_?[Nn]umber":"?7"?/);
		// Plivo's times are those of the day.
		if (transport === 'telephony_c') assert.ok(Math.abs(Number(media.timestamp) - Date.now()) < 60000);
		else assert.equal(media.timestamp, '60');
	});

	test(`${file}: keys, marks and the end are told`, () => {
		assert.equal(provider.key(frame).dtmf.digit, '5');
		assert.equal(provider.mark(frame).mark?.name ?? provider.mark(frame).name, 'm-1');
		assert.ok(JSON.stringify(provider.stop(frame)).includes(transport === 'telephony_c' ? '"S1"' : '"simulated-C1"'));
	});

	test(`${file}: each encoding that is offered is announced`, () => {
		for (const [label, format] of provider.codecs) {
			const text = JSON.stringify(provider.opening(call(transport, { format })));
			assert.ok(label.includes(`${format.rate / 1000} kHz`), label);
			assert.match(text, new RegExp(`"sample_?[rR]ate":"?${format.rate}"?`), label);
			if (format.name) assert.ok(text.includes(JSON.stringify(format.name)), label);
			assert.ok(['mulaw', 'alaw', 'pcm'].includes(format.codec));
		}
	});

	test(`${file}: values of a user stay values`, () => {
		const odd = '"}],"event":"stop';
		const [start] = JSON.parse(JSON.stringify(provider.opening(call(transport, { from: odd, parameters: { x: odd } })))).slice(-1);
		assert.equal(start.event, 'start');
		assert.ok(JSON.stringify(start).includes(JSON.stringify(JSON.stringify(odd)).slice(1, -1)) || JSON.stringify(start).includes(JSON.stringify(odd)));
	});
}

test('one channel is sent, at the rates that providers offer', () => {
	const channels = (transport) => JSON.stringify(PROVIDERS[transport].opening(call(transport))).match(/"channels":(\d+)/)?.[1];
	assert.deepEqual(Object.keys(FILES).map(channels), ['1', '1', undefined, undefined]);
	const offered = Object.values(PROVIDERS).map(({ codecs }) => codecs.map(([, { codec, rate }]) => `${codec} ${rate}`));
	assert.deepEqual(offered, [
		['mulaw 8000'], ['mulaw 8000', 'alaw 8000', 'pcm 16000'], ['mulaw 8000', 'pcm 8000', 'pcm 16000'], ['pcm 8000', 'pcm 16000', 'pcm 24000'],
	]);
});

test('plivo’s parameters are JSON in one field', () => {
	const [start] = PROVIDERS.telephony_c.opening(call('telephony_c', { parameters: { a: 1, b: 'ü"' } }));
	assert.deepEqual(JSON.parse(start.extra_headers), { a: 1, b: 'ü"', from: '+15550001111', to: '+15550002222' });
});

test('parameters of a request win over the numbers of a call', () => {
	const [, { start }] = PROVIDERS.telephony_a.opening(call('telephony_a', { parameters: { from_number: 'x', more: 1 } }));
	assert.deepEqual(start.customParameters, { from_number: 'x', to_number: '+15550002222', more: 1 });
});

test('the runner’s messages are understood in the words of each provider', () => {
	assert.deepEqual(meaning({ event: 'media', media: { payload: 'AA==' } }), { payload: 'AA==' });
	assert.deepEqual(meaning({ event: 'playAudio', media: { payload: 'AA==' } }), { payload: 'AA==' });
	assert.deepEqual(meaning({ event: 'mark', mark: { name: 'u-1' } }), { mark: 'u-1' });
	assert.deepEqual(meaning({ event: 'checkpoint', name: 'u-2' }), { mark: 'u-2' });
	assert.deepEqual(meaning({ event: 'clear' }), { clear: true });
	assert.deepEqual(meaning({ event: 'clearAudio' }), { clear: true });
	assert.deepEqual(meaning({ event: 'edge_runner', transfer: '+1' }), { transfer: '+1', keys: undefined, session: undefined });
	assert.deepEqual(meaning({ event: 'edge_runner', keys: '12' }), { transfer: undefined, keys: '12', session: undefined });
	assert.deepEqual(meaning({ event: 'edge_runner', session: '17' }), { transfer: undefined, keys: undefined, session: '17' });
});

test('other messages mean nothing, and broken ones stop nothing', () => {
	for (const event of ['connected', 'start', 'dtmf', 'stop', 'Media', '', null, 5, {}]) assert.deepEqual(meaning({ event }), {});
	assert.deepEqual(meaning({}), {});
	assert.deepEqual(meaning({ event: 'media' }), { payload: undefined });
	assert.deepEqual(meaning({ event: 'media', media: null }), { payload: undefined });
	assert.deepEqual(meaning({ event: 'mark' }), { mark: undefined });
});
