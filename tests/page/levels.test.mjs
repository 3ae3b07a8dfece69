// levels.js in virtual time, over analysers that give a level: when somebody speaks, and how long the bot took to answer.

import assert from 'node:assert/strict';
import test, { beforeEach } from 'node:test';
import { page, setGlobal } from './support/page.mjs';
import { stopClock } from './support/clock.mjs';

const { levels } = await page('levels.js');
const clock = stopClock();

/** The level in dBFS that each stream has now. */
let loudness, context, analysers;

beforeEach(() => {
	loudness = { user: -Infinity, bot: -Infinity };
	setGlobal('document', { hidden: false });
	analysers = [];
	setGlobal('AudioContext', class {
		constructor() { context = this; }
		createMediaStreamSource(stream) { return { stream, connect: (to) => { to.stream = stream; }, disconnect() { this.isOff = true; } }; }
		close() { this.isClosed = true; }
		resume() { this.isResumed = true; }
	});
	setGlobal('AnalyserNode', class {
		constructor(_, about) {
			Object.assign(this, about);
			analysers.push(this);
		}
		getFloatTimeDomainData(buffer) { buffer.fill(10 ** (loudness[this.stream] / 20)); }
	});
});

/** A running meter, and what it told last. */
function meter() {
	const seen = { user: [0, false], bot: [0, false], latencies: [], ticks: 0, drawn: 0 };
	const own = levels({
		onLevels(name, level, speaking) {
			seen[name] = [Math.round(level * 1000) / 1000, speaking];
			seen.ticks += 1;
		},
		onDraw() { seen.drawn += 1; },
		onLatency: (ms) => seen.latencies.push(ms),
	});
	own.start();
	for (const name of ['user', 'bot']) own.attach(name, name);
	return {
		own,
		seen,
		/** Sets levels for a time. */
		pass(ms, more = {}) {
			Object.assign(loudness, more);
			clock.pass(ms);
		},
	};
}

const SILENCE = -70;
const SPEECH = -20;

test('levels are told fifty times a second, between -60 and -6 dB', () => {
	const { own, seen, pass } = meter();
	for (const [db, level] of [[-100, 0], [-60, 0], [-33, 0.5], [-6, 1], [0, 1], [6, 1]]) {
		pass(20, { user: db });
		assert.equal(seen.user[0], level, `${db} dB`);
	}
	const before = seen.ticks;
	pass(1000);
	assert.equal(seen.ticks - before, 100, 'for each of two sides');
	own.stop();
});

test('meters are drawn at most 15 times a second, and not while no one sees the page', () => {
	const { own, seen, pass } = meter();
	pass(10_000, { user: SPEECH });
	assert.ok(seen.drawn >= 100 && seen.drawn <= 150, `${seen.drawn} drawings in 10 s`);
	const before = seen.drawn;
	document.hidden = true;
	pass(1000);
	assert.equal(seen.drawn, before);
	document.hidden = false;
	pass(100);
	assert.ok(seen.drawn > before);
	own.stop();
});

test('silence of digital zeros has a level', () => {
	const { own, seen, pass } = meter();
	pass(1000, { user: -Infinity, bot: -Infinity });
	assert.deepEqual([seen.user, seen.bot], [[0, false], [0, false]]);
	own.stop();
});

test('speech begins after 50 ms of it, and ends after 250 ms without', () => {
	const { own, seen, pass } = meter();
	pass(500, { user: SILENCE });
	pass(40, { user: SPEECH });
	assert.equal(seen.user[1], false);
	pass(40);
	assert.equal(seen.user[1], true);
	pass(2000);
	assert.equal(seen.user[1], true);
	pass(240, { user: SILENCE });
	assert.equal(seen.user[1], true);
	pass(20);
	assert.equal(seen.user[1], false);
	own.stop();
});

test('a click is no speech, and a pause between words ends none', () => {
	const { own, seen, pass } = meter();
	pass(500, { user: SILENCE });
	pass(40, { user: SPEECH });
	pass(300, { user: SILENCE });
	assert.equal(seen.user[1], false);
	pass(200, { user: SPEECH });
	for (let word = 0; word < 5; word++) {
		pass(200, { user: SILENCE });
		assert.equal(seen.user[1], true);
		pass(100, { user: SPEECH });
	}
	own.stop();
});

test('a noise of the room is no speech once it is known', () => {
	const { own, seen, pass } = meter();
	// 50 dB below full scale: above the floor of -60, below the least of -48.
	pass(3000, { user: -50 });
	assert.equal(seen.user[1], false);
	pass(100, { user: -30 });
	assert.equal(seen.user[1], true);
	// A louder noise is speech at first; the floor rises by 3 dB each second until it is not.
	pass(12000, { user: -40 });
	assert.equal(seen.user[1], false);
	pass(100, { user: -20 });
	assert.equal(seen.user[1], true);
	own.stop();
});

test('speech that is a little quieter than its beginning goes on', () => {
	const { own, seen, pass } = meter();
	pass(500, { user: SILENCE });
	pass(100, { user: -47 });
	assert.equal(seen.user[1], true);
	pass(1000, { user: -51 });
	assert.equal(seen.user[1], true, '4 dB below what begins it');
	pass(1000, { user: -53 });
	assert.equal(seen.user[1], false);
	pass(1000, { user: -51 });
	assert.equal(seen.user[1], false, 'it would not begin so');
	own.stop();
});

test('a bot is heard from -50 dB on', () => {
	const { own, seen, pass } = meter();
	pass(1000, { bot: -51 });
	assert.equal(seen.bot[1], false);
	pass(1000, { bot: SILENCE });
	pass(100, { bot: -49 });
	assert.equal(seen.bot[1], true);
	own.stop();
});

test('the latency is the time from the end of the user’s speech to the bot’s sound', () => {
	const { own, seen, pass } = meter();
	pass(500, { user: SILENCE, bot: SILENCE });
	pass(1000, { user: SPEECH });
	pass(800, { user: SILENCE });
	pass(500, { bot: SPEECH });
	// Between the last loud tick and the first of the bot.
	assert.deepEqual(seen.latencies, [820]);
	pass(2000, { bot: SILENCE });
	pass(500, { bot: SPEECH });
	assert.deepEqual(seen.latencies, [820], 'what the bot adds is no answer');
	own.stop();
});

test('a quick answer has its latency although the end is known later', () => {
	const { own, seen, pass } = meter();
	pass(500, { user: SILENCE, bot: SILENCE });
	pass(1000, { user: SPEECH });
	pass(300, { user: SILENCE });
	pass(300, { bot: SPEECH });
	assert.deepEqual(seen.latencies, [320]);
	own.stop();
});

test('a bot that speaks before the user has ended gives no latency, and its next start gives one', () => {
	const { own, seen, pass } = meter();
	pass(500, { user: SILENCE, bot: SILENCE });
	pass(500, { user: SPEECH });
	pass(500, { bot: SPEECH });
	pass(1000, { user: SILENCE });
	assert.deepEqual(seen.latencies, []);
	pass(1000, { bot: SILENCE });
	pass(500, { bot: SPEECH });
	assert.deepEqual(seen.latencies, [2020]);
	own.stop();
});

test('each turn has a latency of its own, counted from its last word', () => {
	const { own, seen, pass } = meter();
	pass(500, { user: SILENCE, bot: SILENCE });
	for (const waited of [400, 700]) {
		pass(500, { user: SPEECH });
		pass(300, { user: SILENCE });
		pass(500, { user: SPEECH });
		pass(waited, { user: SILENCE });
		pass(500, { bot: SPEECH });
		pass(500, { bot: SILENCE });
	}
	assert.deepEqual(seen.latencies, [420, 720]);
	own.stop();
});

test('the sound of a bot that failed to answer is no answer', () => {
	const { own, seen, pass } = meter();
	own.noAnswer();
	pass(500, { user: SILENCE, bot: SILENCE });
	pass(500, { user: SPEECH });
	pass(500, { user: SILENCE });
	own.noAnswer();
	pass(500, { bot: SPEECH });
	assert.deepEqual(seen.latencies, []);
	pass(500, { bot: SILENCE });
	pass(500, { user: SPEECH });
	pass(500, { user: SILENCE });
	pass(500, { bot: SPEECH });
	assert.deepEqual(seen.latencies, [520], 'the next one is');
	own.stop();
	own.noAnswer();
});

test('a muted user has a level and gives no latency', () => {
	const { own, seen, pass } = meter();
	pass(500, { user: SILENCE, bot: SILENCE });
	own.setMuted(true);
	pass(1000, { user: SPEECH });
	assert.equal(seen.user[1], true, 'so that the page can say that he is muted');
	pass(500, { user: SILENCE });
	pass(500, { bot: SPEECH });
	assert.deepEqual(seen.latencies, []);
	pass(500, { bot: SILENCE });
	own.setMuted(false);
	pass(500, { user: SPEECH });
	pass(500, { user: SILENCE });
	pass(500, { bot: SPEECH });
	assert.deepEqual(seen.latencies, [520]);
	own.stop();
});

test('a side without a stream is silent, and another stream takes its place', () => {
	const { own, seen, pass } = meter();
	pass(200, { user: SPEECH });
	assert.equal(seen.user[1], true);
	own.attach('user', null);
	pass(300);
	assert.deepEqual(seen.user, [0, false]);
	loudness.other = SPEECH;
	own.attach('user', 'other');
	pass(200, { user: SILENCE });
	assert.equal(seen.user[1], true);
	assert.ok(analysers.every(({ fftSize }) => fftSize === 1024));
	own.stop();
});

test('after the end nothing is measured, and a start begins anew', () => {
	const { own, seen, pass } = meter();
	pass(200, { user: SPEECH });
	own.stop();
	assert.equal(context.isClosed, true);
	const before = seen.ticks;
	pass(1000);
	assert.deepEqual([seen.ticks, clock.waiting()], [before, 0]);
	own.attach('user', 'user');
	const first = own.start();
	assert.equal(first, context);
	own.resume();
	assert.equal(first.isResumed, true);
	own.start();
	assert.equal(first.isClosed, true, 'only one runs');
	own.stop();
	assert.equal(clock.waiting(), 0);
});
