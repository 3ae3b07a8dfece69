// The list of calls, live and past, and an opened one: what was said, its times, its network, its recording. In: `GET /calls` and
// `GET /calls/ID`, asked again when `GET /calls/events` says so, or now and then without that stream.

import { file, follow, ownCall, request } from './api.js';
import { pastCharts } from './charts.js';
import { duration, make } from './dom.js';
import { listenBox } from './listen.js';
import { rich } from './rich.js';
import { labelOf } from './transports.js';

const PAGE = 25;
const LOADED_MAX = 200;
// Events of one moment are shown at once; a stream that fails rests.
const SETTLED_MS = 250;
const FOLLOWED_AGAIN_MS = 30000;

const time = (date) => date.toTimeString().slice(0, 5);
const isToday = (date) => date.toDateString() === new Date().toDateString();
const when = (text) => {
	const date = new Date(text);
	return Object.assign(make('time', '', isToday(date) ? time(date) : `${date.toLocaleDateString()} ${time(date)}`), { dateTime: text, title: date.toLocaleString() });
};
const isMs = (value) => typeof value === 'number';
const ms = (value) => (value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`);

/** A call in a line. */
function words({ bot, direction, duration_ms: lasted, state, reason, answers, latency_ms: latency, interruptions }) {
	const parts = [direction === 'outbound' ? 'dialled' : '', bot, state === 'live' ? 'now' : duration(lasted / 1000), state === 'live' ? '' : reason];
	if (answers && isMs(latency)) parts.push(`answers after ${ms(latency)}`);
	if (interruptions) parts.push(`${interruptions} interruption${interruptions === 1 ? '' : 's'}`);
	return parts.filter(Boolean).join(' · ');
}

/** A text, with the time of an answer. */
function said({ by, text, at_ms: at, latency_ms: latency, stages = [] }) {
	const parts = stages.filter(({ ms: took }) => isMs(took)).map(({ name, ms: took }) => `${String(name).replaceAll('_', ' ')} ${ms(took)}`);
	const timing = [isMs(latency) ? `after ${ms(latency)}` : '', ...parts].filter(Boolean).join(' · ');
	const who = make('p', 'who', `${by === 'bot' ? 'Bot' : 'Caller'} · ${duration(at / 1000)}`);
	return make('li', by === 'bot' ? 'bot' : 'user', who, make('p', 'words', ...by === 'bot' ? rich(text) : [text]), ...timing ? [make('p', 'small', timing)] : []);
}

/** The network of a past call, as far as it was measured. A stream has no jitter, and loses nothing. */
function network({ counts = {}, network: { jitter_ms: jitter, round_trip_ms: trip } = {} }) {
	const { packets_in: received, packets_lost: lost, packets_late: late, frames_concealed: concealed } = counts;
	const parts = [
		isMs(trip) ? `round trip ${ms(trip)}` : '', isMs(jitter) ? `jitter ${ms(jitter)}` : '',
		...isMs(jitter) ? [`${lost} of ${received + lost} packets lost`, `${late} late`, `${concealed} frames concealed`] : [],
	].filter(Boolean);
	return parts.length ? `Network: ${parts.join(', ')}.` : '';
}

let played = '';

/** Plays the sound of a call that is over. The last one that was loaded is kept. */
function player({ id }) {
	const button = make('button', '', 'Play the recording');
	const box = make('p', '', button);
	button.addEventListener('click', async () => {
		Object.assign(button, { disabled: true, textContent: 'Loading the recording' });
		try {
			const sound = await file(`calls/${encodeURIComponent(id)}/recording`);
			URL.revokeObjectURL(played);
			played = URL.createObjectURL(sound);
			const audio = Object.assign(make('audio'), { controls: true, autoplay: true, src: played });
			audio.setAttribute('aria-label', 'Recording of the call');
			box.replaceChildren(audio);
		} catch (error) {
			box.replaceChildren(error.status === 404 ? 'Its recording is gone.' : `Its recording cannot be played: ${error.message}`);
		}
	});
	return box;
}

function conversation(call) {
	const turns = Array.isArray(call.turns) ? call.turns : [];
	const facts = [
		call.turns_cut ? `${call.turns_cut} earlier texts were dropped.` : '',
		turns.length ? '' : 'Nothing was said, or the bot reports no texts.',
		call.keys ? `${call.keys} key${call.keys === 1 ? '' : 's'} pressed.` : '',
		call.functions?.length ? `Functions: ${call.functions.join(', ')}.` : '',
		call.recording ? `Its sound is in ${call.recording}.` : '',
		call.answered_by ? `Answered by: ${call.answered_by}.` : '',
		call.transferred_to ? `Transferred to ${call.transferred_to}.` : '',
		call.endedBy ? `Ended by the ${[call.endedBy, call.hang_up_reason].filter(Boolean).join(': ')}.` : '',
		call.listeners ? `Listeners: ${call.listeners}.` : '',
		network(call),
		call.errors?.length ? `The bot reports: ${call.errors.join('; ')}.` : '',
		call.bot_error ? `The bot failed: ${call.bot_error}` : '',
		call.provider_error ? `The provider says: ${call.provider_error}` : '',
	].filter(Boolean);
	const sound = call.recording && call.state === 'ended' ? [player(call)] : [];
	return [...sound, make('ol', 'talk', ...turns.map(said)), ...facts.length ? [make('p', 'soft', facts.join(' '))] : [], ...pastCharts(call.network?.series)];
}

/** What calls are chosen by: the field, its words, and its value of a call. */
const FILTERS = [
	['number', 'Number or name', ({ caller, callee }) => caller ?? callee],
	['day', 'Day', ({ startedAt }) => new Date(startedAt).toDateString()],
	['bot', 'All bots', ({ bot }) => bot],
	['transport', 'All transports', ({ transport }) => transport, ({ transport }) => labelOf(transport)],
	['outcome', 'All ends', ({ outcome }) => outcome, ({ reason }) => reason],
];

/** Chooses among calls. `changed` is called after each choice. */
function filters(changed) {
	const box = make('form', 'row filters');
	const offers = FILTERS.map(([name, label, read, words = read]) => {
		const type = { number: 'search', day: 'date' }[name];
		const field = make(type ? 'input' : 'select');
		const known = new Set();
		Object.assign(field, { name, hidden: true }, type && { type, placeholder: label });
		field.setAttribute('aria-label', label);
		if (!type) field.append(new Option(label, ''));
		box.append(field);
		return (call) => {
			const value = read(call);
			if (!value || known.has(value) || (type && known.size > 1)) return;
			known.add(value);
			if (!type) field.append(new Option(words(call), value));
			field.hidden = known.size < 2;
		};
	});
	box.addEventListener('input', changed);
	box.addEventListener('submit', (event) => event.preventDefault());
	return {
		box,
		offer: (calls) => calls.forEach((call) => offers.forEach((offer) => offer(call))),
		/** The choice as a query; empty for all calls. */
		query() {
			const query = new URLSearchParams();
			for (const { name, value } of box.children) {
				if (name !== 'day') value && query.append(name, value);
				else if (value) [0, 24].forEach((hour) => query.append(hour ? 'until' : 'since', new Date(new Date(`${value}T00:00`).setHours(hour)).toISOString()));
			}
			return String(query);
		},
	};
}

/** `shown` is called after each change of the list. */
export function callList(shown) {
	const list = Object.assign(make('ul'), { id: 'calls-list' });
	const more = make('button', 'quiet', 'Earlier calls');
	const none = make('p', 'soft', 'No call is of this kind.');
	const choice = filters(() => {
		clearTimeout(timer);
		timer = setTimeout(load, SETTLED_MS);
	});
	const box = make('section', '', choice.box, none, list, more);
	const items = new Map();
	let wanted = PAGE;
	let isKept = true;
	let stream = null;
	let [isFollowed, isAlone, hasFailed, timer] = [false, false, false, 0];
	box.hidden = true;
	more.addEventListener('click', () => {
		wanted = Math.min(LOADED_MAX, wanted + PAGE);
		load();
	});

	function item(id) {
		const [summary, body] = [make('summary'), make('div')];
		const details = make('details', '', summary, body);
		const listening = listenBox(id);
		const entry = { summary, box: make('li', 'card', details), state: '' };
		// The sound goes on while the texts change.
		entry.listen = (may) => {
			if (may && !listening.box.parentElement) body.after(listening.box);
			if (may || !listening.box.parentElement) return;
			listening.stop();
			listening.box.remove();
		};
		entry.load = async () => {
			if (!details.open) return;
			try {
				body.replaceChildren(...conversation(await request('GET', `calls/${encodeURIComponent(id)}`, null, null, 5000)));
			} catch (error) {
				body.replaceChildren(make('p', 'soft', error.status === 404 ? 'Its record is gone.' : `It cannot be shown: ${error.message}`));
			}
		};
		details.addEventListener('toggle', entry.load);
		return entry;
	}

	function show(calls) {
		for (const [id, entry] of items) {
			if (calls.some((call) => call.id === id)) continue;
			entry.listen(false);
			items.delete(id);
		}
		for (const call of calls) {
			if (!items.has(call.id)) items.set(call.id, item(call.id));
			const entry = items.get(call.id);
			const numbers = [call.caller ?? call.address, call.callee && `→ ${call.callee}`].filter(Boolean).join(' ');
			const who = [labelOf(call.provider === 'whatsapp' ? 'WhatsApp' : call.transport) || 'no transport', numbers, call.id === ownCall.session ? 'your call' : ''].filter(Boolean).join(' · ');
			entry.summary.replaceChildren(when(call.startedAt), make('b', '', who), make('span', '', words(call)));
			// A live conversation goes on, and ends once.
			if (call.state === 'live' || entry.state === 'live') entry.load();
			entry.listen(call.state === 'live' && call.listen_in);
			entry.state = call.state;
		}
		const boxes = calls.map(({ id }) => items.get(id).box);
		// What is open, or has the focus, stays.
		if (boxes.length !== list.children.length || boxes.some((each, nth) => list.children[nth] !== each)) list.replaceChildren(...boxes);
		shown();
	}

	/** Puts what a live call is like into its entry. Returns whether the list has it. */
	function place(id, live) {
		const entry = !box.hidden && items.get(id);
		if (entry && live.parentElement !== entry.box) entry.box.append(live);
		return Boolean(entry || choice.query());
	}

	/** Loads the list when something happened. */
	async function start() {
		const own = stream = new AbortController();
		try {
			await follow('calls/events', own.signal, () => {
				isFollowed = true;
				clearTimeout(timer);
				timer = setTimeout(load, SETTLED_MS);
			});
		} catch { /* The list is asked for now and then. */ }
		if (stream !== own) return;
		isFollowed = false;
		isAlone = true;
		stream = null;
		setTimeout(() => { isAlone = false; }, FOLLOWED_AGAIN_MS);
	}

	function stop() {
		clearTimeout(timer);
		stream?.abort();
		stream = null;
		isFollowed = false;
	}

	/** Called now and then while the list is shown. */
	async function refresh() {
		if (isFollowed && !hasFailed) return;
		if (await load() && !stream && !isAlone) start();
	}

	async function load() {
		if (!isKept) return false;
		const chosen = choice.query();
		try {
			const { calls, next } = await request('GET', `calls?limit=${wanted}&${chosen}`, null, null, 5000);
			// Another choice was made meanwhile.
			if (chosen !== choice.query()) return true;
			choice.offer(calls);
			none.hidden = Boolean(calls.length);
			box.hidden = !calls.length && !chosen;
			more.hidden = !next || wanted === LOADED_MAX;
			show(calls);
			hasFailed = false;
			return true;
		} catch ({ status }) {
			hasFailed = true;
			// Why is said above, or this runner keeps no records.
			box.hidden = true;
			shown();
			isKept = status !== 404 && status !== 501;
			return false;
		}
	}
	return { box, place, refresh, stop };
}
