// opus.js: the order of packets that travel apart, in virtual time, and the calls of the browser's codecs.

import assert from 'node:assert/strict';
import test, { beforeEach } from 'node:test';
import { page, random, setGlobal } from './support/page.mjs';
import { stopClock } from './support/clock.mjs';

const { decoder, encoder, inOrder, OPUS } = await page('opus.js');

const clock = stopClock();

// ---- the order

/** What came out of `inOrder`, and its input. */
function ordered() {
	const out = [];
	const take = inOrder(({ name }) => out.push(name));
	const arrive = (sequence, name) => take(sequence, name === null ? null : { name });
	const whole = (sequence, ...names) => [...names, null].forEach((name) => arrive(sequence, name));
	return { arrive, whole, out, counts: () => [take.came, take.lost] };
}

test('groups in order pass at once, and leave no timer', () => {
	const { whole, out, counts } = ordered();
	for (let group = 0; group < 100; group++) whole(group, group);
	assert.deepEqual(out, Array.from({ length: 100 }, (_, group) => group));
	assert.deepEqual([counts(), clock.waiting()], [[100, 0], 0]);
});

test('the first group sets the beginning, whatever its number', () => {
	const { whole, out, counts } = ordered();
	whole(70000, 'a');
	whole(69999, 'too late');
	whole(70001, 'b');
	assert.deepEqual([out, counts()], [['a', 'b'], [2, 0]]);
});

test('frames of the group that is due are not held until its end', () => {
	const { arrive, out, counts } = ordered();
	arrive(5, 'a');
	arrive(5, 'b');
	assert.deepEqual([out, counts()], [['a', 'b'], [0, 0]]);
	arrive(5, null);
	arrive(6, 'c');
	assert.deepEqual([out, counts()], [['a', 'b', 'c'], [1, 0]]);
});

test('a group that overtook another waits for it', () => {
	const { whole, out, counts } = ordered();
	whole(1, 'a');
	whole(3, 'c');
	clock.pass(149);
	assert.deepEqual(out, ['a']);
	whole(2, 'b');
	assert.deepEqual([out, counts(), clock.waiting()], [['a', 'b', 'c'], [3, 0], 0]);
});

test('a missing group is waited for as long as 150 ms, from the first that came after it', () => {
	const { whole, out, counts } = ordered();
	whole(1, 'a');
	whole(3, 'c');
	clock.pass(100);
	whole(4, 'd');
	clock.pass(49);
	assert.deepEqual(out, ['a']);
	clock.pass(1);
	assert.deepEqual([out, counts(), clock.waiting()], [['a', 'c', 'd'], [3, 1], 0]);
	whole(2, 'too late');
	assert.deepEqual([out, counts()], [['a', 'c', 'd'], [3, 1]]);
});

test('of two gaps each is waited for from its own beginning', () => {
	const { whole, out, counts } = ordered();
	whole(1, 'a');
	whole(3, 'c');
	clock.pass(130);
	whole(5, 'e');
	clock.pass(10);
	// It closes the first gap, which says nothing of the second.
	whole(2, 'b');
	clock.pass(139);
	assert.deepEqual(out, ['a', 'b', 'c']);
	clock.pass(1);
	assert.deepEqual([out, counts()], [['a', 'b', 'c', 'e'], [4, 1]]);
});

test('gaps that opened at the same time are given up at the same time', () => {
	const { whole, out, counts } = ordered();
	whole(1, 'a');
	whole(3, 'c');
	whole(6, 'f');
	clock.pass(149);
	assert.deepEqual(out, ['a']);
	clock.pass(1);
	assert.deepEqual([out, counts(), clock.waiting()], [['a', 'c', 'f'], [3, 3], 0]);
});

test('more than fifty waiting groups are not held', () => {
	const { whole, out, counts } = ordered();
	whole(0, 0);
	for (let group = 2; group < 52; group++) whole(group, group);
	assert.deepEqual(out, [0], 'fifty wait');
	whole(52, 52);
	assert.equal(out.length, 52);
	assert.deepEqual([counts(), clock.waiting()], [[52, 1], 0]);
});

test('a group that never ends is skipped when others wait', () => {
	const { arrive, whole, out } = ordered();
	arrive(1, 'a');
	whole(2, 'b');
	assert.deepEqual(out, ['a']);
	clock.pass(150);
	assert.deepEqual(out, ['a', 'b']);
});

test('an end counts once', () => {
	const { arrive, counts } = ordered();
	arrive(1, 'a');
	arrive(3, null);
	arrive(3, null);
	assert.deepEqual(counts(), [1, 0]);
	clock.pass(150);
	assert.deepEqual(counts(), [1, 2], 'and 1 has not ended');
});

test('any order within the patience yields all frames in order', () => {
	const next = random(3);
	for (let round = 0; round < 50; round++) {
		const { whole, out, counts } = ordered();
		const groups = Array.from({ length: 200 }, (_, group) => ({ group, at: group ? group * 20 + next(140) : 0 }));
		groups.sort((a, b) => a.at - b.at);
		let now = 0;
		for (const { group, at } of groups) {
			clock.pass(at - now);
			now = at;
			whole(group, group);
		}
		assert.deepEqual(out, Array.from({ length: 200 }, (_, group) => group));
		assert.deepEqual([counts(), clock.waiting()], [[200, 0], 0]);
	}
});

test('losses of any kind never reorder, repeat or block', () => {
	const next = random(4);
	for (let round = 0; round < 50; round++) {
		const { whole, out, counts } = ordered();
		const groups = Array.from({ length: 300 }, (_, group) => ({ group, at: group * 20 + next(400) }))
			.filter(({ group }) => group === 0 || next(4)).sort((a, b) => a.at - b.at);
		let now = 0;
		for (const { group, at } of groups) {
			clock.pass(at - now);
			now = at;
			whole(group, group);
		}
		clock.pass(100000);
		assert.ok(out.every((group, at) => at === 0 || group > out[at - 1]));
		assert.deepEqual([counts()[0], clock.waiting()], [out.length, 0]);
		assert.equal(out.length + counts()[1], out.at(-1) - out[0] + 1, 'each group came or was lost');
	}
});

// ---- the codecs

let codecs;

beforeEach(() => {
	codecs = { encoders: [], decoders: [], data: [] };
	const codec = (all) => class {
		state = 'unconfigured';
		taken = [];

		constructor(handlers) {
			Object.assign(this, handlers);
			all.push(this);
		}

		configure(config) { Object.assign(this, { config, state: 'configured' }); }
		close() { this.state = 'closed'; }
		encode(data) { this.taken.push({ ...data }); }
		decode(chunk) { this.taken.push(chunk); }
	};
	setGlobal('AudioEncoder', codec(codecs.encoders));
	setGlobal('AudioDecoder', codec(codecs.decoders));
	setGlobal('AudioData', class {
		constructor(about) {
			Object.assign(this, about);
			codecs.data.push(this);
		}

		close() { this.isClosed = true; }
	});
	setGlobal('EncodedAudioChunk', class {
		constructor(about) { Object.assign(this, about); }
	});
});

const packet = (...bytes) => ({ byteLength: bytes.length, copyTo: (to) => to.set(bytes) });

test('the encoder makes packets of 20 ms for speech', () => {
	const send = encoder({ currentTime: 0 }, () => {});
	assert.deepEqual(codecs.encoders[0].config, {
		codec: 'opus', sampleRate: 48000, numberOfChannels: 1, bitrate: 32000, opus: { application: 'voip', frameDuration: 20000 },
	});
	assert.deepEqual(OPUS, { codec: 'opus', sampleRate: 48000, numberOfChannels: 1, bitrate: 32000 });
	const samples = new Int16Array(960);
	send(samples);
	const [{ data, format, sampleRate, numberOfFrames, numberOfChannels }] = codecs.encoders[0].taken;
	assert.deepEqual([data, format, sampleRate, numberOfFrames, numberOfChannels], [samples, 's16', 48000, 960, 1]);
	assert.ok(codecs.data.every(({ isClosed }) => isClosed), 'its memory is given back');
});

test('times of packets are 20 ms apart, and follow the context after a pause', () => {
	const context = { currentTime: 10 };
	const taken = [];
	encoder(context, (at, bytes) => taken.push([at, ...bytes]));
	const { output } = codecs.encoders[0];
	output(packet(1));
	// Late and early by less than a quarter of a second.
	context.currentTime = 10.2;
	output(packet(2));
	context.currentTime = 10.2;
	output(packet(3));
	context.currentTime = 10.3;
	output(packet(4));
	assert.deepEqual(taken, [[10000000, 1], [10020000, 2], [10040000, 3], [10300000, 4]], 'the last one came after 260 ms');
	context.currentTime = 10.55;
	output(packet(5));
	assert.deepEqual(taken.at(-1), [10320000, 5], 'a gap of exactly 250 ms is none');
});

test('a call that begins with the context begins at 20 ms', () => {
	const taken = [];
	encoder({ currentTime: 0 }, (at) => taken.push(at));
	codecs.encoders[0].output(packet(1));
	codecs.encoders[0].output(packet(2));
	assert.deepEqual(taken, [20000, 40000]);
});

test('the encoder tells its error, and takes nothing once it is closed', () => {
	const taken = [];
	const send = encoder({ currentTime: 0 }, (...args) => taken.push(args));
	const own = codecs.encoders[0];
	own.error(new Error('no'));
	assert.deepEqual(taken.map(([, bytes, error]) => [bytes, error.message]), [[null, 'no']]);
	send(null);
	assert.equal(own.state, 'closed');
	send(new Int16Array(960));
	send(null);
	assert.equal(own.taken.length, 0);
});

test('the decoder plays its first channel as samples of 16 bits, within their range', () => {
	const played = [];
	const decode = decoder(2, (samples, rate) => played.push([[...samples], rate]), () => {});
	assert.deepEqual(codecs.decoders[0].config, { codec: 'opus', sampleRate: 48000, numberOfChannels: 2 });
	const data = Uint8Array.of(1, 2);
	decode(20000, data);
	assert.deepEqual({ ...codecs.decoders[0].taken[0] }, { type: 'key', timestamp: 20000, data });
	let closed = 0;
	codecs.decoders[0].output({
		numberOfFrames: 6, sampleRate: 24000, close: () => { closed += 1; },
		copyTo(to, { planeIndex, format }) {
			assert.deepEqual([planeIndex, format], [0, 'f32-planar']);
			to.set([0, 0.5, -0.5, 1, -1.5, 3]);
		},
	});
	assert.deepEqual([played, closed], [[[[0, 16383, -16383, 32767, -32767, 32767], 24000]], 1]);
});

test('a decoder that a bad packet closed is replaced', () => {
	const errors = [];
	const decode = decoder(1, () => {}, (error) => errors.push(error.message));
	decode(0, Uint8Array.of(0xff));
	codecs.decoders[0].error(new Error('bad'));
	codecs.decoders[0].state = 'closed';
	decode(20000, Uint8Array.of(1));
	assert.deepEqual([errors, codecs.decoders.length], [['bad'], 2]);
	assert.deepEqual([codecs.decoders[1].config.codec, codecs.decoders[1].taken.length], ['opus', 1]);
	decode(0, null);
	assert.equal(codecs.decoders[1].state, 'closed');
});
