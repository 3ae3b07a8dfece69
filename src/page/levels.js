// How loud user and bot are, measured here. In: the two audio streams. Out, 50 times a second: for each side a level from
// 0 to 1 and whether it speaks; once per turn the response latency in ms, from the end of the user's speech to the bot's
// first sound as it leaves this browser's jitter buffer. The loudspeaker's own delay is not in it.

const TICK_MS = 20;
const WINDOW = 1024;
const SILENCE_DB = -100;
const ATTACK_MS = 50;
const HANG_MS = 250;
// Shown from room noise to shouting, in dBFS.
const [SHOWN_FROM_DB, SHOWN_TO_DB] = [-60, -6];

/** Tells speech from background: louder by a margin than a slowly learnt floor. Levels in dBFS, times in ms. */
function gate(floorDb, leastDb) {
	let since = null;
	const state = { speaking: false, began: null, ended: -Infinity };
	return (db, now) => {
		// Down at once, up by 3 dB a second: a pause teaches the floor, speech hardly does.
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

/** Pairs the end of an utterance with the bot's next beginning: a latency in ms once per answer, else null. */
function turnClock() {
	let [waitingSince, userSpoke, botSpoke] = [null, false, false];
	return (user, bot) => {
		let latency = null;
		if (user.speaking) waitingSince = null;
		else if (userSpoke) waitingSince = user.ended;
		if (bot.speaking && !botSpoke) {
			// A bot that began before the user had ended answers nothing: it talked over them.
			if (waitingSince !== null && bot.began >= waitingSince) latency = bot.began - waitingSince;
			waitingSince = null;
		}
		[userSpoke, botSpoke] = [user.speaking, bot.speaking];
		return latency;
	};
}

export function levels({ onLevels, onLatency }) {
	const buffer = new Float32Array(WINDOW);
	let context, timer, turns;
	let sides = {};

	function measure({ analyser }) {
		if (!analyser) return SILENCE_DB;
		analyser.getFloatTimeDomainData(buffer);
		return Math.max(SILENCE_DB, 10 * Math.log10(buffer.reduce((sum, sample) => sum + sample * sample, 0) / WINDOW));
	}

	function tick() {
		const now = performance.now();
		for (const side of Object.values(sides)) {
			const db = measure(side);
			side.heard = side.gate(db, now);
			side.level = Math.min(1, Math.max(0, (db - SHOWN_FROM_DB) / (SHOWN_TO_DB - SHOWN_FROM_DB)));
		}
		const latency = turns(sides.user.heard, sides.bot.heard);
		if (latency !== null) onLatency(latency);
		for (const [name, { level, heard }] of Object.entries(sides)) onLevels(name, level, heard.speaking);
	}

	function stop() {
		clearInterval(timer);
		context?.close();
		context = null;
		sides = {};
	}

	return {
		stop,
		/** Gives the context of the talk. To be called from a click, or the browser keeps it asleep. */
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
		/** Measures a stream in place of the side's former one; null only detaches. */
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
