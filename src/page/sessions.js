// Calls for the operator: figures of `/metrics`, and one list of live and past calls (calls.js). A live one has what `GET /sessions`
// says and a button that ends it; where no record of it is kept, it is listed by itself. Shown at `#sessions`, loaded when it is. The
// runner answers only those that may read the metrics.

import { request, text } from './api.js';
import { callList } from './calls.js';
import { plot, redrawn } from './charts.js';
import { duration, make } from './dom.js';
import { keyForm } from './keyform.js';
import { labelOf } from './transports.js';
import { keyWanted } from './words.js';

const REFRESH_MS = 2000;
const [POINTS_MIN, POINTS_MAX] = [15, 90];

/** The sum of a metric over its labels; null if there is none. */
function total(metrics, name) {
	const values = [...metrics.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))].map(([, value]) => Number(value));
	return values.length ? values.reduce((sum, value) => sum + value, 0) : null;
}

/** Figures: a name, digits, a unit, and what they are of the metrics now and before, `s` seconds apart. */
const FIGURES = [
	['Sessions', 0, '', (now) => now('edge_runner_sessions')],
	['Processor', 1, '%', (now, before, s) => rate(now, before, s, 'process_cpu_seconds_total', 100)],
	['Memory', 1, 'MB', (now) => now('process_resident_memory_bytes') / 1e6],
	['Received', 0, 'kb/s', (now, before, s) => rate(now, before, s, 'edge_runner_received_bytes_total', 0.008)],
	['Sent', 0, 'kb/s', (now, before, s) => rate(now, before, s, 'edge_runner_sent_bytes_total', 0.008)],
	['Lost packets', 1, '/s', (now, before, s) => rate(now, before, s, 'edge_runner_audio_packets_lost_total', 1)],
];

const rate = (now, before, s, name, factor) => (before ? Math.max(0, (now(name) - before(name)) / s) * factor : null);

function figure([name, digits, unit, read]) {
	const value = make('b', '', '–');
	const canvas = make('canvas');
	const box = make('div', 'card figure', make('span', 'small', name), value, make('div', 'plot', canvas));
	let points = [];
	canvas.setAttribute('aria-hidden', 'true');
	const draw = () => plot(canvas, [points], { least: 1, most: Math.max(POINTS_MIN, points.length), label: null });
	redrawn(canvas, draw);
	return {
		box,
		take(...args) {
			const known = read(...args);
			const isKnown = Number.isFinite(known);
			value.textContent = isKnown ? `${known.toFixed(digits)} ${unit}`.trim() : '–';
			points = [...points, isKnown ? known : null].slice(-POINTS_MAX);
			draw();
		},
	};
}

/** Why the list is not shown, and whether a key may help. */
function refusal({ status, message }) {
	if (!status) return ['The runner does not answer', `Is it still running? (${message})`];
	if (status === 401) return ['The list of calls needs the key', keyWanted(), true];
	if (status === 404) return ['This runner lists no calls', 'It is of another version than this page.'];
	return ['The list of calls is not for this browser', `The runner says “${message}”. It answers those that may read its metrics.`];
}

export function sessionsView(view) {
	const heading = make('h2', '', 'Calls');
	const problem = make('section', 'problem');
	const { form, key, suggest } = keyForm('Show the calls', start);
	const figures = FIGURES.map(figure);
	const graphs = Object.assign(make('div', '', ...figures.map(({ box }) => box)), { id: 'sessions-figures' });
	const list = Object.assign(make('ul'), { id: 'sessions-list' });
	const none = make('p', 'soft', 'No one is in a call.');
	const said = make('p', 'soft');
	let timer, before, at;
	let live = [];
	said.setAttribute('role', 'status');
	const calls = callList(() => show(live));
	view.append(heading, problem, graphs, none, said, list, calls.box);

	function tell(title, why, asks) {
		problem.hidden = !title;
		graphs.hidden = Boolean(title);
		if (!title) return;
		show([]);
		none.hidden = calls.box.hidden = true;
		const had = document.activeElement === key;
		if (asks) suggest();
		problem.replaceChildren(make('h2', '', title), make('p', '', why), ...asks ? [form] : []);
		if (had) key.focus();
	}

	async function hangUp(id, button) {
		button.disabled = true;
		try {
			await request('DELETE', `sessions/${encodeURIComponent(id)}`);
			said.textContent = 'The call ends.';
		} catch (error) {
			said.textContent = error.status === 404 ? 'That call is over.' : `It was not ended: ${error.message}`;
			button.disabled = false;
		}
		refresh();
	}

	const items = new Map();
	function item(id) {
		const button = make('button', '', 'Hang up');
		button.setAttribute('aria-label', `Hang up ${id}`);
		button.addEventListener('click', () => hangUp(id, button));
		const values = make('dl');
		return { values, box: make('div', 'live', values, button), alone: make('li', 'card', make('span', 'id', id)) };
	}

	function show(all) {
		live = all;
		for (const [id, { box }] of items) {
			if (all.some((session) => session.id === id)) continue;
			box.remove();
			items.delete(id);
		}
		for (const session of all) {
			if (!items.has(session.id)) items.set(session.id, item(session.id));
			const { bot, loss_percent: loss, transport, age_s: age, state, messages_in: received, messages_out: sent, speech_queued_ms: waiting } = session;
			const rows = [
				...bot ? [['Bot', bot]] : [], ['Transport', labelOf(transport)], ['Age', duration(age)], ['State', state],
				['Loss', typeof loss === 'number' ? `${loss.toFixed(1)} %` : '–'], ['Messages', `${received} in, ${sent} out`],
				['Speech queued', `${Math.round(waiting)} ms`],
			];
			items.get(session.id).values.replaceChildren(...rows.map(([name, value]) => make('div', '', make('dt', '', name), make('dd', '', value))));
		}
		// What stays in its place keeps the focus of its button.
		const alone = all.filter(({ id }) => !calls.place(id, items.get(id).box)).map(({ id }) => items.get(id));
		for (const { alone: own, box } of alone) if (box.parentElement !== own) own.append(box);
		if (alone.length !== list.children.length || alone.some((each, nth) => list.children[nth] !== each.alone)) list.replaceChildren(...alone.map((each) => each.alone));
		none.hidden = all.length > 0;
	}

	async function refresh() {
		// A browser opens few connections to a server: a page that no one sees holds none.
		if (document.hidden) return calls.stop();
		// What is being typed stays.
		if (key.value && form.isConnected) return;
		try {
			const { sessions } = await request('GET', 'sessions', null, null, 5000);
			tell('');
			show(sessions);
			calls.refresh();
		} catch (error) {
			// Only a key changes this answer, and each is a line in the runner's log.
			if (error.status === 401) clearInterval(timer);
			return tell(...refusal(error));
		}
		const metrics = await text('metrics');
		const [now, was] = [(name) => total(metrics, name), at];
		at = performance.now();
		if (metrics) for (const each of figures) each.take(now, before, (at - was) / 1000);
		before = now;
	}

	function start() {
		clearInterval(timer);
		timer = setInterval(refresh, REFRESH_MS);
		refresh();
	}

	return {
		show(isShown) {
			clearInterval(timer);
			if (isShown) start();
			else calls.stop();
		},
	};
}
