// Measures the levels of user and bot. In: two audio streams, and whether the user is muted, who then gives no latency. Out, 50 times a second: a level from 0 to 1 and a speaking
// flag per side; once per turn the response latency in ms, from the end of the user's speech to the bot's first sound as it
// leaves the browser's jitter buffer. The delay of the output device is not included. `onDraw` is called when meters are to be drawn:
// 12.5 times a second while the page is visible.

const TICK_MS = 20;
/** Ticks from one drawing to the next. */
const DRAWN_EVERY = 4;
const WINDOW = 1024;
const SILENCE_DB = -100;
const ATTACK_MS = 50;
const HANG_MS = 250;
// Range of the meter in dBFS.
const [SHOWN_FROM_DB, SHOWN_TO_DB] = [-60, -6];

const SILENT = { speaking: false, began: null, ended: -Infinity };

/** Detects speech: louder than an adaptive noise floor by a margin. Levels in dBFS, times in ms. */
function gate(floorDb, leastDb) {
	let since = null;
	const state = { ...SILENT };
	return (db, now) => {
		// The noise floor falls at once and rises by 3 dB per second, so speech hardly raises it.
		floorDb = Math.max(SILENCE_DB, Math.min(db, floorDb + (3 * TICK_MS) / 1000));
		if (db > Math.max(leastDb, floorDb + 12) - (state.speaking ? 4 : 0)) {
			since ??= now;
			state.ended = now;
			if (!state.speaking && now - since >= ATTACK_MS) Object.assign(state, { speaking: true, began: since });
		} else if (now - state.ended >= HANG_MS) {
			state.speaking = false;
			since = null;
		}
		return state;
	};
}

/** `tick` returns the latency in ms from the end of an utterance to the bot's next start, once per answer; else null. After
	`noAnswer` that start is none. */
function turnClock() {
	let [waitingSince, userSpoke, botSpoke] = [null, false, false];
	const noAnswer = () => { waitingSince = null; };
	const tick = (user, bot) => {
		let latency = null;
		if (user.speaking) waitingSince = null;
		else if (userSpoke) waitingSince = user.ended;
		if (bot.speaking && !botSpoke) {
			// A bot that started before the user ended gives no latency.
			if (waitingSince !== null && bot.began >= waitingSince) latency = bot.began - waitingSince;
			waitingSince = null;
		}
		[userSpoke, botSpoke] = [user.speaking, bot.speaking];
		return latency;
	};
	return { tick, noAnswer };
}

export function levels({ onLevels, onLatency, onDraw }) {
	const buffer = new Float32Array(WINDOW);
	let context, timer, turns, muted;
	let ticks = 0;
	let sides = {};

	function measure({ analyser }) {
		if (!analyser) return SILENCE_DB;
		analyser.getFloatTimeDomainData(buffer);
		let sum = 0;
		for (const sample of buffer) sum += sample * sample;
		return Math.max(SILENCE_DB, 10 * Math.log10(sum / WINDOW));
	}

	function tick() {
		const now = performance.now();
		for (const side of Object.values(sides)) {
			const db = measure(side);
			side.heard = side.gate(db, now);
			side.level = Math.min(1, Math.max(0, (db - SHOWN_FROM_DB) / (SHOWN_TO_DB - SHOWN_FROM_DB)));
		}
		const latency = turns.tick(muted ? SILENT : sides.user.heard, sides.bot.heard);
		if (latency !== null) onLatency(latency);
		for (const [name, { level, heard }] of Object.entries(sides)) onLevels(name, level, heard.speaking);
		ticks += 1;
		if (ticks % DRAWN_EVERY === 0 && !document.hidden) onDraw();
	}

	function stop() {
		clearInterval(timer);
		context?.close();
		context = null;
		sides = {};
	}

	return {
		stop,
		/** Returns the AudioContext. Call it from a click handler, or the browser suspends it. */
		start() {
			stop();
			context = new AudioContext();
			turns = turnClock();
			sides = {
				user: { gate: gate(-60, -48) },
				bot: { gate: gate(SILENCE_DB, -50) },
			};
			timer = setInterval(tick, TICK_MS);
			return context;
		},
		resume: () => context?.resume(),
		setMuted(on) { muted = on; },
		/** The bot failed to answer: its next sound has no latency. */
		noAnswer: () => turns?.noAnswer(),
		/** Replaces the stream that a side measures; null detaches it. */
		attach(name, stream) {
			const side = sides[name];
			if (!side) return;
			side.source?.disconnect();
			side.source = stream && context.createMediaStreamSource(stream);
			side.analyser = stream && new AnalyserNode(context, { fftSize: WINDOW });
			side.source?.connect(side.analyser);
		},
	};
}
