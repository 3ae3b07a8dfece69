// frames.js: Protobuf by hand, against vectors of the encoding's specification and a second writer; and bytes of a hostile
// runner.

import assert from 'node:assert/strict';
import test from 'node:test';
import { page, random, repositoryFile, repositoryFiles } from './support/page.mjs';

const { audioFrame, joined, messageFrame, readFrame } = await page('frames.js');

// ---- a writer with other means: BigInt, and a field at a time

const VARINT = 0;
const SIZED = 2;

function number(value) {
	const bytes = [];
	for (let rest = BigInt(value); ; rest >>= 7n) {
		if (rest < 128n) return [...bytes, Number(rest)];
		bytes.push(Number(rest & 127n) | 128);
	}
}

const tag = (field, type) => number((BigInt(field) << 3n) | BigInt(type));
const varint = (field, value) => [...tag(field, VARINT), ...number(value)];
const sized = (field, bytes) => [...tag(field, SIZED), ...number(bytes.length), ...bytes];
const text = (field, string) => sized(field, Buffer.from(string));
const bytes = (...parts) => Uint8Array.from(parts.flat());

const audio = (pcm, ...more) => bytes(sized(2, [...sized(3, pcm), ...more.flat()]));

// ---- writing

test('a frame of sound is the bytes that protobuf writes', () => {
	// Field 2: name "audio", sound, 16000 Hz, one channel.
	const expected = [0x12, 16, 0x12, 5, ...Buffer.from('audio'), 0x1a, 2, 0x34, 0x12, 0x20, 0x80, 0x7d, 0x28, 1];
	assert.deepEqual([...audioFrame(Uint8Array.of(0x34, 0x12), 16000)], expected);
});

test('a message is JSON in field 4', () => {
	assert.deepEqual([...messageFrame({ a: 'ü' })], [0x22, 12, 0x0a, 10, ...Buffer.from('{"a":"ü"}')]);
});

test('frames of every length are written as another writer does', () => {
	for (const length of [0, 1, 2, 100, 110, 127, 128, 640, 16000, 16384, 70000]) {
		const pcm = Uint8Array.from({ length }, (_, at) => at % 251);
		const inner = [...text(2, 'audio'), ...sized(3, pcm), ...varint(4, 48000), ...varint(5, 1)];
		assert.deepEqual(audioFrame(pcm, 48000), bytes(sized(2, inner)), `${length} bytes`);
		const message = { text: 'x'.repeat(length) };
		assert.deepEqual(messageFrame(message), bytes(sized(4, text(1, JSON.stringify(message)))));
	}
});

test('parts are joined in order, empty ones and lists too', () => {
	assert.deepEqual([...joined([1], Uint8Array.of(2, 3), new Uint8Array(), [], [4])], [1, 2, 3, 4]);
	assert.deepEqual([...joined()], []);
});

// ---- reading

test('what is written is read again', () => {
	const pcm = Int16Array.of(0, 1, -1, 32767, -32768);
	for (const rate of [8000, 16000, 24000, 44100, 48000]) {
		const frame = readFrame(audioFrame(new Uint8Array(pcm.buffer), rate));
		assert.deepEqual(frame, { rate, audio: pcm });
	}
	const message = { label: 'rtvi-ai', type: 'x', data: { text: '„Ü“ \u{1f399}' } };
	assert.deepEqual(JSON.parse(readFrame(messageFrame(message)).message), message);
});

test('fields come in any order, and the last of several counts', () => {
	const frame = audio([], varint(5, 1), varint(4, 8000), sized(3, [7, 0]), varint(4, 24000));
	assert.deepEqual(readFrame(frame), { rate: 24000, audio: Int16Array.of(7) });
});

test('unset fields have the defaults of proto3', () => {
	assert.deepEqual(readFrame(bytes(sized(2, []))), { rate: 0, audio: new Int16Array() });
	assert.deepEqual(readFrame(bytes(sized(4, []))), { message: '' });
	assert.deepEqual(readFrame(new Uint8Array()), {});
});

test('an interruption is told, and a message goes before it', () => {
	assert.deepEqual(readFrame(bytes(sized(5, []))), { interruption: true });
	assert.deepEqual(readFrame(bytes(sized(5, []), sized(4, text(1, '{}')))), { message: '{}' });
	assert.deepEqual(readFrame(bytes(sized(5, []), sized(2, []))), { interruption: true });
});

test('unknown fields of each wire type are skipped', () => {
	const unknown = [
		varint(1, 5), varint(1000, 2n ** 64n - 1n), sized(9, [1, 2, 3]), sized(536870911, []),
		[...tag(7, 1), 1, 2, 3, 4, 5, 6, 7, 8], [...tag(7, 5), 1, 2, 3, 4],
		// Fields of the right number and the wrong type.
		varint(2, 1), varint(4, 1),
	];
	for (const field of unknown) {
		assert.deepEqual(readFrame(bytes(field)), {});
		assert.deepEqual(readFrame(bytes(field, sized(4, [...field, ...text(1, 'x')]), field)), { message: 'x' });
	}
});

test('of several channels the first is played', () => {
	const pcm = new Uint8Array(Int16Array.of(1, 100, 2, 200, 3, 300).buffer);
	assert.deepEqual(readFrame(audio(pcm, varint(5, 2))).audio, Int16Array.of(1, 2, 3));
	assert.deepEqual(readFrame(audio(pcm, varint(5, 3))).audio, Int16Array.of(1, 200));
	assert.deepEqual(readFrame(audio(pcm, varint(5, 0))).audio.length, 6);
});

test('half a sample at the end is left out', () => {
	assert.deepEqual(readFrame(audio([1, 0, 2])).audio, Int16Array.of(1));
	assert.deepEqual(readFrame(audio([1])).audio, new Int16Array());
});

test('samples are read at odd offsets, and are a copy', () => {
	const frame = audio([1, 0, 2, 0]);
	const shifted = new Uint8Array(frame.length + 1);
	shifted.set(frame, 1);
	const read = readFrame(shifted.subarray(1)).audio;
	shifted.fill(0xff);
	assert.deepEqual(read, Int16Array.of(1, 2));
});

test('text that is not UTF-8 does not stop the page', () => {
	assert.equal(readFrame(bytes(sized(4, sized(1, [0x61, 0xff, 0x62])))).message, 'a\ufffdb');
});

// ---- hostile input

test('a frame that is cut off throws a RangeError at every place', () => {
	const whole = bytes(varint(9, 300), sized(2, [...text(2, 'audio'), ...sized(3, [1, 0]), ...varint(4, 16000)]));
	// Between two fields a shorter frame ends.
	const ends = new Set([0, 3]);
	for (let length = 0; length < whole.length; length++) {
		const cut = whole.subarray(0, length);
		if (ends.has(length)) assert.deepEqual(readFrame(cut), {});
		else assert.throws(() => readFrame(cut), RangeError, `${length} bytes`);
	}
	assert.equal(readFrame(whole).rate, 16000);
});

test('lengths beyond the end throw, up to the largest', () => {
	for (const length of [1, 127, 2 ** 31 - 1, 2 ** 32, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n]) {
		assert.throws(() => readFrame(bytes(tag(2, SIZED), number(length))), { name: 'RangeError', message: 'a frame was cut off' });
	}
});

test('numbers have at most ten bytes', () => {
	const longest = [...Array(9).fill(0x80), 1];
	assert.deepEqual(readFrame(bytes(tag(1, VARINT), longest)), {});
	assert.throws(() => readFrame(bytes(tag(1, VARINT), Array(10).fill(0x80), 0)), /more than ten bytes/);
	assert.throws(() => readFrame(new Uint8Array(1000).fill(0xff)), /more than ten bytes/);
});

test('groups and other unknown wire types throw', () => {
	for (const type of [3, 4, 6, 7]) assert.throws(() => readFrame(bytes(tag(1, type))), { name: 'RangeError', message: `unknown wire type ${type}` });
});

test('of any bytes a frame is read, or a RangeError thrown', () => {
	const seeds = repositoryFiles('tests/corpus/frames').map((name) => repositoryFile(`tests/corpus/frames/${name}`));
	assert.ok(seeds.length >= 10);
	const next = random(7);
	let [read, refused] = [0, 0];
	const attempt = (hostile) => {
		try {
			const frame = readFrame(hostile);
			assert.ok(Object.keys(frame).every((key) => ['audio', 'rate', 'message', 'interruption'].includes(key)));
			read += 1;
		} catch (error) {
			assert.equal(error.constructor, RangeError, error.stack);
			refused += 1;
		}
	};
	for (const seed of seeds) {
		attempt(new Uint8Array(seed));
		for (let round = 0; round < 200; round++) {
			const changed = new Uint8Array(seed);
			for (let change = 0; change <= next(4); change++) if (changed.length) changed[next(changed.length)] = next(256);
			attempt(changed.subarray(0, changed.length - (next(3) ? 0 : next(changed.length + 1))));
		}
	}
	for (let round = 0; round < 3000; round++) attempt(Uint8Array.from({ length: next(40) }, () => next(256)));
	assert.ok(read > 500 && refused > 500, `${read} read, ${refused} refused`);
});
