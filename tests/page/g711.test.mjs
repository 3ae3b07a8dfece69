// g711.js against the tables of ITU-T G.711, built here from their interval sizes, and against calls that another
// implementation encoded.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import { page, random, repositoryFile } from './support/page.mjs';

const { base64, CODECS, fromBase64 } = await page('g711.js');

/** The decision values of a law, from [number of intervals, their size] upwards. */
function decisions(...segments) {
	const values = [0];
	for (const [count, size] of segments) for (let nth = 0; nth < count; nth++) values.push(values.at(-1) + size);
	return values;
}

// Tables 1a and 2a, in units of 13 and 14 bits.
const ALAW = decisions([32, 2], [16, 4], [16, 8], [16, 16], [16, 32], [16, 64], [16, 128]);
const ULAW = decisions([1, 1], [15, 2], [16, 4], [16, 8], [16, 16], [16, 32], [16, 64], [16, 128], [16, 256]);
const ALL = Int16Array.from({ length: 65536 }, (_, index) => index - 32768);
const BYTES = Uint8Array.from({ length: 256 }, (_, index) => index);

/** The number of the interval that a magnitude of 16 bits lies in. */
const interval = (values, scale, magnitude) => Math.min(127, values.findLastIndex((value) => value * scale <= magnitude));

test('the decision values end where the tables of G.711 end', () => {
	assert.deepEqual([ALAW.length, ALAW.at(-1)], [129, 4096]);
	assert.deepEqual([ULAW.length, ULAW.at(-1)], [129, 8159]);
});

test('μ-law decodes each byte to the middle of its interval', () => {
	const expected = Array.from(BYTES, (byte) => {
		const n = ~byte & 127;
		const value = n ? ((ULAW[n] + ULAW[n + 1]) / 2) * 4 : 0;
		return byte & 0x80 ? value : 0 - value;
	});
	assert.deepEqual([...CODECS.mulaw.decode(BYTES)], expected);
	assert.deepEqual([...CODECS.mulaw.decode([0x00, 0x80, 0x7f, 0xff])], [-32124, 32124, 0, 0]);
});

test('A-law decodes each byte to the middle of its interval', () => {
	const expected = Array.from(BYTES, (byte) => {
		const bits = byte ^ 0x55;
		const n = bits & 127;
		const value = ((ALAW[n] + ALAW[n + 1]) / 2) * 8;
		return bits & 0x80 ? value : -value;
	});
	assert.deepEqual([...CODECS.alaw.decode(BYTES)], expected);
	assert.deepEqual([...CODECS.alaw.decode([0xd5, 0x55, 0xaa, 0x2a])], [8, -8, 32256, -32256]);
});

test('every sample is encoded as the interval that it lies in', () => {
	const [mulaw, alaw] = [CODECS.mulaw.encode(ALL), CODECS.alaw.encode(ALL)];
	ALL.forEach((sample, at) => {
		const u = 0xff - interval(ULAW, 4, Math.abs(sample));
		assert.equal(mulaw[at], sample < 0 ? u & 0x7f : u, `μ-law of ${sample}`);
		const a = (0x80 + interval(ALAW, 8, sample < 0 ? -1 - sample : sample)) ^ 0x55;
		assert.equal(alaw[at], sample < 0 ? a ^ 0x80 : a, `A-law of ${sample}`);
	});
});

test('a code survives decoding and encoding; only the two zeros of μ-law become one', () => {
	const again = (codec) => [...codec.encode(codec.decode(BYTES))];
	assert.deepEqual(again(CODECS.alaw), [...BYTES]);
	assert.deepEqual(again(CODECS.mulaw), Array.from(BYTES, (byte) => (byte === 0x7f ? 0xff : byte)));
});

// Python's audioop, of another author: SHA-256 of all 256 values as little-endian samples.
test('the values are those of another implementation', () => {
	const hash = (samples) => createHash('sha256').update(new Uint8Array(samples.buffer)).digest('hex');
	assert.equal(hash(CODECS.mulaw.decode(BYTES)), '3dab54339e520bb2c924826e3b72a917a2b612e9fd12fc867500f1d983a75827');
	assert.equal(hash(CODECS.alaw.decode(BYTES)), 'e04788d110e58ff8c70c93b8480190d973e3b67876b6119abbaec766cc75c174');
});

test('captured calls decode to the tone that was encoded', () => {
	// The tone is a sine of 8000; half an interval there is 128, and the encoder drops two bits.
	for (const [provider, codec, off] of [['twilio', 'mulaw', 132], ['telnyx', 'alaw', 132], ['plivo', 'mulaw', 132], ['exotel', 'pcm', 1]]) {
		const lines = repositoryFile(`tests/data/telephony/${provider}.jsonl`).toString().trim().split('\n').map((line) => JSON.parse(line));
		const samples = CODECS[codec].decode(fromBase64(lines.find(({ event }) => event === 'media').media.payload));
		assert.equal(samples.length, provider === 'exotel' ? 800 : 160);
		samples.forEach((sample, at) => {
			const expected = 8000 * Math.sin((2 * Math.PI * 437 * at) / 8000);
			assert.ok(Math.abs(sample - expected) <= off, `${provider}: ${sample} at ${at}, not ${expected}`);
		});
	}
});

test('PCM is little-endian, and leaves out half a sample at the end', () => {
	assert.deepEqual([...CODECS.pcm.encode(Int16Array.of(1, -2, 32767))], [1, 0, 0xfe, 0xff, 0xff, 0x7f]);
	assert.deepEqual([...CODECS.pcm.decode(Uint8Array.of(1, 0, 0xfe, 0xff, 7))], [1, -2]);
	assert.equal(CODECS.pcm.decode(new Uint8Array()).length, 0);
});

test('PCM is taken from a view in the middle of a buffer', () => {
	const part = ALL.subarray(32768 + 5, 32768 + 8);
	assert.deepEqual([...CODECS.pcm.encode(part)], [5, 0, 6, 0, 7, 0]);
	// An odd offset, which no view of 16 bits can have.
	const bytes = Uint8Array.of(9, 5, 0, 6, 0).subarray(1);
	assert.deepEqual([...CODECS.pcm.decode(bytes)], [5, 6]);
});

test('base64 is that of RFC 4648, for each length modulo three', () => {
	const vectors = [['', ''], ['f', 'Zg=='], ['fo', 'Zm8='], ['foo', 'Zm9v'], ['foobar', 'Zm9vYmFy']];
	for (const [text, encoded] of vectors) {
		assert.equal(base64(Buffer.from(text)), encoded);
		assert.equal(Buffer.from(fromBase64(encoded)).toString(), text);
	}
	const next = random(1);
	for (let length = 0; length < 400; length++) {
		const bytes = Uint8Array.from({ length }, () => next(256));
		assert.equal(base64(bytes), Buffer.from(bytes).toString('base64'));
		assert.deepEqual(fromBase64(base64(bytes)), bytes);
	}
});

test('a long payload does not overflow the stack', () => {
	const bytes = new Uint8Array(1_000_000).fill(0xff);
	assert.deepEqual(fromBase64(base64(bytes)), bytes);
});

test('text that is not base64 throws', () => {
	for (const wrong of ['!', 'Zg=', 'Zm9v=Zm9v', 'ä', '****']) assert.throws(() => fromBase64(wrong), { name: 'InvalidCharacterError' }, wrong);
});
