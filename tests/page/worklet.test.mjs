// worklet.js as an audio thread runs it, block by block: rates, lengths, clipping, what is late, and what an interruption leaves.

import assert from 'node:assert/strict';
import test from 'node:test';
import { page, setGlobal } from './support/page.mjs';

const processors = {};
setGlobal('registerProcessor', (name, Processor) => { processors[name] = Processor; });
setGlobal('AudioWorkletProcessor', class {
	constructor() {
		this.port = { messages: [], postMessage: (message) => this.port.messages.push(message) };
	}
});
setGlobal('sampleRate', 48000);
await page('worklet.js');

const BLOCK = 128;
const RATES = [8000, 16000, 24000, 44100, 48000];

/** Half of full scale at a frequency. */
const tone = (hz, rate, length) => Float32Array.from({ length }, (_, at) => 0.5 * Math.sin((2 * Math.PI * hz * at) / rate));

/** How much of the power of these samples is at a frequency, and the amplitude there. */
function at(samples, hz, rate) {
	let [re, im, power] = [0, 0, 0];
	samples.forEach((sample, n) => {
		re += sample * Math.cos((2 * Math.PI * hz * n) / rate);
		im += sample * Math.sin((2 * Math.PI * hz * n) / rate);
		power += sample * sample;
	});
	const amplitude = (2 * Math.hypot(re, im)) / samples.length;
	return { amplitude, share: (amplitude * amplitude * samples.length) / 2 / power };
}

/** Records sound at the browser's rate in blocks; returns the chunks. */
function record(samples, own, rate) {
	globalThis.sampleRate = own;
	const recorder = new processors.recorder({ processorOptions: { rate } });
	for (let from = 0; from + BLOCK <= samples.length; from += BLOCK) assert.equal(recorder.process([[samples.subarray(from, from + BLOCK)]]), true);
	return recorder.port.messages;
}

/** A player at the browser's rate. */
function player(own = 48000) {
	globalThis.sampleRate = own;
	const it = new processors.player();
	return {
		it,
		/** Takes samples of 16 bits. */
		give: (audio, rate) => it.port.onmessage({ data: { audio: Int16Array.from(audio), rate } }),
		hush: () => it.port.onmessage({ data: null }),
		/** Plays a time in seconds. */
		play(seconds) {
			const played = [];
			for (let blocks = Math.round((seconds * own) / BLOCK); blocks > 0; blocks--) {
				const out = new Float32Array(BLOCK);
				assert.equal(it.process([], [[out]]), true);
				played.push(...out);
			}
			return played;
		},
	};
}

const loud = (samples, limit = 0.01) => samples.filter((sample) => Math.abs(sample) > limit).length;

// ---- the recorder

test('chunks have 20 ms at the rate that is asked for', () => {
	for (const own of [44100, 48000]) {
		for (const rate of RATES) {
			const chunks = record(tone(440, own, own), own, rate);
			assert.ok(chunks.every((chunk) => chunk instanceof Int16Array && chunk.length === rate / 50), `${own} to ${rate}`);
			// The filter holds less than a chunk back.
			assert.ok(chunks.length >= 48 && chunks.length <= 50, `${own} to ${rate}: ${chunks.length} chunks`);
		}
	}
});

test('a tone keeps its frequency and its level at each rate', () => {
	for (const own of [44100, 48000]) {
		for (const rate of RATES) {
			for (const hz of [300, 1000, 3000]) {
				const samples = record(tone(hz, own, own), own, rate).flatMap((chunk) => [...chunk]).slice(rate / 10);
				const { amplitude, share } = at(samples, hz, rate);
				assert.ok(Math.abs(amplitude / 32767 - 0.5) < 0.01, `${hz} Hz, ${own} to ${rate}: ${amplitude}`);
				assert.ok(share > 0.999, `${hz} Hz, ${own} to ${rate}: ${share}`);
			}
		}
	}
});

test('what the lower rate cannot hold is filtered out', () => {
	for (const [rate, hz] of [[8000, 5000], [8000, 11000], [16000, 9500], [16000, 15900]]) {
		const samples = record(tone(hz, 48000, 48000), 48000, rate).flatMap((chunk) => [...chunk]).slice(rate / 10);
		const loudest = Math.max(...samples.map(Math.abs));
		assert.ok(loudest < 32767 * 0.5 * 0.01, `${hz} Hz at ${rate}: ${loudest}`);
	}
});

test('too loud a microphone is clipped, and does not wrap around', () => {
	const chunks = record(Float32Array.from({ length: 9600 }, (_, n) => (n % 200 < 100 ? 3 : -3)), 48000, 48000);
	assert.deepEqual(new Set(chunks.flatMap((chunk) => [...chunk])), new Set([32767, -32767]));
});

test('a microphone that gives nothing makes no chunk', () => {
	globalThis.sampleRate = 48000;
	const recorder = new processors.recorder({ processorOptions: { rate: 16000 } });
	for (let block = 0; block < 100; block++) assert.equal(recorder.process([[]]), true);
	assert.deepEqual(recorder.port.messages, []);
});

// ---- the player

test('playback begins after a lead of 60 ms, and plays what came, unchanged', () => {
	const { give, play } = player();
	const said = Array.from({ length: 4800 }, (_, n) => 1000 + n);
	give(said, 48000);
	const played = play(0.3);
	const first = played.findIndex((sample) => sample !== 0);
	assert.ok(first >= 0.06 * 48000 && first < 0.06 * 48000 + BLOCK, `${first} samples`);
	assert.deepEqual(played.slice(first, first + 4800).map((sample) => sample * 32768), said);
	assert.equal(loud(played.slice(first + 4800)), 0);
});

test('speech that arrives in pieces is played without a gap', () => {
	const { give, play } = player();
	const said = tone(440, 24000, 24000);
	const played = [];
	for (let from = 0; from < said.length; from += 480) {
		give(Array.from(said.subarray(from, from + 480), (sample) => sample * 32767), 24000);
		played.push(...play(0.02));
	}
	played.push(...play(0.2));
	const first = played.findIndex((sample) => Math.abs(sample) > 0.01);
	const speech = played.slice(first, first + 47000);
	const { amplitude, share } = at(speech.slice(2000, -2000), 440, 48000);
	assert.ok(Math.abs(amplitude - 0.5) < 0.01 && share > 0.999, `${amplitude}, ${share}`);
});

test('sound of any rate is played in its own time', () => {
	for (const own of [44100, 48000]) {
		for (const rate of [8000, 22050, 24000, 48000]) {
			const { give, play } = player(own);
			const piece = rate / 50;
			const said = tone(440, rate, rate);
			const played = [];
			for (let from = 0; from + piece <= said.length; from += piece) {
				give(Array.from(said.subarray(from, from + piece), (sample) => sample * 32767), rate);
				played.push(...play(0.02));
			}
			played.push(...play(0.3));
			const heard = loud(played, 0.001) / own;
			assert.ok(Math.abs(heard - 1) < 0.01, `${rate} on ${own}: ${heard} s`);
		}
	}
});

test('a lower rate brings no images of itself', () => {
	for (const own of [44100, 48000]) {
		for (const [rate, hz] of [[8000, 3000], [16000, 6000], [24000, 9000]]) {
			const { give, play } = player(own);
			give(Array.from(tone(hz, rate, rate), (sample) => sample * 32767), rate);
			const { share } = at(play(0.8).slice(0.3 * own), hz, own);
			assert.ok(share > 0.9999, `${hz} Hz, ${rate} on ${own}: ${share}`);
		}
	}
});

test('an interruption ends the sound within three milliseconds, without a click', () => {
	const { give, play, hush } = player();
	give(Array(48000).fill(16384), 48000);
	play(0.2);
	hush();
	const rest = play(0.2);
	assert.equal(loud(rest.slice(128), 0), 0, '128 samples');
	assert.ok(loud(rest) > 100, 'which fade');
	const steps = rest.slice(0, 129).map((sample, n) => Math.abs(sample - (n ? rest[n - 1] : 0.5)));
	assert.ok(Math.max(...steps) < 0.01, `a step of ${Math.max(...steps)}`);
	give(Array(4800).fill(16384), 48000);
	assert.ok(loud(play(0.3)) >= 4800, 'and what follows is heard');
});

test('an interruption before the playback began leaves nothing', () => {
	const { give, play, hush } = player();
	give(Array(4800).fill(16384), 48000);
	play(0.02);
	hush();
	assert.equal(loud(play(0.5), 0), 0);
});

test('after a stall silence is left out until the backlog is short', () => {
	const { give, play } = player();
	give(Array(48000).fill(16384), 48000);
	const silence = Array(960).fill(99);
	for (let nth = 0; nth < 50; nth++) give(silence, 48000);
	give(Array(4800).fill(-16384), 48000);
	const played = play(2.5);
	const between = played.lastIndexOf(0.5) + 1;
	assert.equal(played[between], -0.5, 'the silence between two speeches is gone');
	// Without a backlog silence is part of the speech.
	const calm = player();
	calm.give(Array(4800).fill(16384), 48000);
	calm.give(silence, 48000);
	calm.give(Array(4800).fill(-16384), 48000);
	const heard = calm.play(0.5);
	assert.ok(heard.slice(heard.lastIndexOf(0.5) + 1, heard.lastIndexOf(0.5) + 961).every((sample) => sample === 99 / 32768 || Math.abs(sample) < 0.01));
	assert.equal(heard[heard.lastIndexOf(0.5) + 961], -0.5);
});

test('a faulty bot’s backlog is three seconds at most, and the latest are kept', () => {
	const { it, give, play } = player();
	for (let second = 1; second <= 10; second++) give(Array(48000).fill(second * 1000), 48000);
	assert.equal(it.written - it.read, 3 * 48000);
	const played = play(4);
	assert.deepEqual([...new Set(played.map((sample) => Math.round(sample * 32768)))], [0, 8000, 9000, 10000]);
});

test('after the end of a speech the next one has its lead again', () => {
	const { give, play } = player();
	give(Array(4800).fill(16384), 48000);
	play(0.5);
	give(Array(4800).fill(16384), 48000);
	const played = play(0.5);
	const first = played.findIndex((sample) => sample !== 0);
	assert.ok(first >= 0.06 * 48000 && first < 0.06 * 48000 + BLOCK, `${first}`);
});
