// A clock that stands still until a test moves it. Replaces the timers, `performance.now` and `Date.now`.

import { setGlobal } from './page.mjs';

/** Returns `now()` in milliseconds and `pass(ms)`, which runs what is due in order. */
export function stopClock(start = 1_000_000) {
	const timers = new Map();
	let now = start;
	let last = 0;
	const add = (run, ms, every) => {
		last += 1;
		timers.set(last, { run, at: now + Math.max(0, ms || 0), every });
		return last;
	};
	const clear = (id) => { timers.delete(id); };
	setGlobal('setTimeout', (run, ms) => add(run, ms));
	setGlobal('setInterval', (run, ms) => add(run, ms, Math.max(1, ms)));
	// Browsers use the same ids for both.
	setGlobal('clearTimeout', clear);
	setGlobal('clearInterval', clear);
	setGlobal('performance', { now: () => now });
	Date.now = () => now;
	return {
		now: () => now,
		/** How many timers wait. */
		waiting: () => timers.size,
		pass(ms) {
			const end = now + ms;
			for (;;) {
				const due = [...timers].filter(([, { at }]) => at <= end).sort(([a, one], [b, two]) => one.at - two.at || a - b)[0];
				if (!due) break;
				const [id, timer] = due;
				now = timer.at;
				if (timer.every) timer.at += timer.every;
				else timers.delete(id);
				timer.run();
			}
			now = end;
		},
	};
}
