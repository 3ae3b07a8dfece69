// Charts of the connection, one canvas each. In: a sample per second, a latency per turn, times of the services of a bot; of a past
// call what its record has. Out: drawings, the latest values as text, and a sentence for screen readers.

import { $, duration, make } from './dom.js';

const POINTS_MAX = 120;
const BARS_MAX = 40;
/** So that the first samples are not drawn wider than they mean. */
const POINTS_MIN = 15;
const BARS_MIN = 8;
const SERVICES_MAX = 6;
const OWN_BOTS = ['parrot', 'realtime', 'cascade'];
const [AXIS_TOP, AXIS_BELOW] = [6, 14];
/** Room for four digits, so that charts begin at one line. */
const GUTTER = 30;

// Name, keys of a sample with their words (the second in another colour), unit, minimum of the scale's top, digits.
const CHARTS = [
	['Answer after', [['latency', '']], 'ms', 500, 0],
	['Round trip', [['rtt', '']], 'ms', 20, 1],
	['Jitter', [['jitter', '']], 'ms', 10, 1],
	['Lost packets', [['loss', 'from the bot'], ['lossOut', 'to it']], '%', 5, 1],
	['Audio', [['rate', 'from the bot'], ['rateOut', 'to it']], 'kb/s', 40, 0],
];

/** The next round number: 1, 2 or 5 with zeros. */
export function roundUp(value) {
	const unit = 10 ** Math.floor(Math.log10(value));
	return [1, 2, 5, 10].find((step) => step * unit >= value * 0.999) * unit;
}

/** Draws lines, or bars of the first of `series`: lists of numbers, null where nothing is known. */
export function plot(canvas, series, { least, most, bars = false, label = String, span = '' }) {
	const { clientWidth: width, clientHeight: height } = canvas;
	if (!width || !height) return;
	Object.assign(canvas, { width: width * devicePixelRatio, height: height * devicePixelRatio });
	const pen = canvas.getContext('2d');
	const style = getComputedStyle(canvas);
	const colour = (variable) => style.getPropertyValue(variable);
	const known = series.flat().filter((value) => value !== null);
	const top = roundUp(Math.max(least, ...known));
	const [floor, ceiling] = [height - (label ? AXIS_BELOW : 2), label ? AXIS_TOP : 2];
	const y = (value) => floor - (value / top) * (floor - ceiling);
	pen.scale(devicePixelRatio, devicePixelRatio);
	pen.font = `10.5px ${style.fontFamily}`;
	const left = label ? Math.max(GUTTER, Math.ceil(pen.measureText(label(top)).width) + 6) : 0;
	pen.fillStyle = colour('--line');
	for (const value of label ? [0, top / 2, top] : [0]) pen.fillRect(left, Math.round(y(value)), width - left, 1);
	pen.fillStyle = colour('--soft');
	if (label) {
		pen.textAlign = 'right';
		pen.textBaseline = 'middle';
		for (const value of [0, top]) pen.fillText(label(value), left - 5, Math.max(6, y(value)));
		pen.textBaseline = 'alphabetic';
		pen.fillText(span, width, height - 2);
	}
	const step = (width - left) / (bars ? most : Math.max(1, most - 1));
	series.forEach((values, index) => {
		pen.fillStyle = pen.strokeStyle = colour(index ? '--second' : '--accent');
		pen.lineWidth = 1.75;
		pen.beginPath();
		let wasKnown = false;
		values.forEach((value, nth) => {
			const x = left + nth * step;
			if (value !== null && bars) pen.fillRect(x + 1, y(value), Math.max(1, step - 3), floor - y(value));
			else if (value !== null) {
				// A path of one point draws nothing, so draw a dot.
				if (!wasKnown) pen.moveTo(x - 1, y(value));
				pen.lineTo(x, y(value));
			}
			wasKnown = value !== null;
		});
		pen.stroke();
	});
}

/** Calls `draw` when a canvas has another size, or the page other colours. */
export function redrawn(canvas, draw) {
	const gone = new AbortController();
	const again = () => (canvas.isConnected ? draw() : gone.abort());
	new ResizeObserver(draw).observe(canvas);
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again, gone);
	addEventListener('themechange', again, gone);
}

function boxOf(canvas, name, ...legend) {
	canvas.setAttribute('role', 'img');
	return make('div', 'chart', make('h3', '', name), make('p', '', ...legend), make('div', 'plot', canvas));
}

function describe(canvas, name, known, unit, digits) {
	const [least, most] = [Math.min, Math.max].map((of) => of(...known).toFixed(digits));
	canvas.setAttribute('aria-label', `${name}: ${known.length ? `between ${least} and ${most} ${unit}` : 'not measured yet'}`);
	return most;
}

/** The network of a past call. */
export function pastCharts(series) {
	return ['round_trip_ms', 'jitter_ms', 'lost_percent'].flatMap((key, nth) => {
		const [name,, unit, least, digits] = CHARTS[nth + 1];
		const values = series?.[key] ?? [];
		const known = values.filter(Number.isFinite);
		if (!known.length) return [];
		const canvas = make('canvas');
		const most = describe(canvas, name, known, unit, digits);
		redrawn(canvas, () => plot(canvas, [values], { least, most: values.length, span: duration(values.length * series.every_s) }));
		return boxOf(canvas, name, `at most ${most} ${unit}`);
	});
}

function chart([name, keys, unit, least, digits]) {
	const bars = keys[0][0] === 'latency';
	const [fewest, kept] = bars ? [BARS_MIN, BARS_MAX] : [POINTS_MIN, POINTS_MAX];
	const canvas = make('canvas');
	const values = keys.map(([key], index) => Object.assign(make('b', index ? 'other' : '', '–'), { id: `stat-${key}` }));
	const legend = keys.flatMap(([, word], index) => [index ? ', ' : '', word && `${word} `, values[index]]);
	const box = boxOf(canvas, name, ...legend, ` ${unit}`);
	$('charts').append(box);
	let points = [];

	function draw() {
		const known = points.flat().filter((value) => value !== null);
		describe(canvas, name, known, unit, digits);
		const most = Math.max(fewest, points.length);
		const span = bars ? `${points.length || 'no'} turn${points.length === 1 ? '' : 's'}` : `${most - 1} s`;
		plot(canvas, keys.map((_, index) => points.map((point) => point[index])), { least, most, bars, span });
	}

	redrawn(canvas, draw);

	return (sample) => {
		if (!sample) {
			points = [];
			values.forEach((value) => { value.textContent = '–'; });
		} else if (keys[0][0] in sample) {
			box.hidden = false;
			points = [...points, keys.map(([key]) => sample[key] ?? null)].slice(-kept);
			keys.forEach(([key], index) => { values[index].textContent = sample[key]?.toFixed(digits) ?? '–'; });
		} else if (!bars && !('latency' in sample)) {
			// Not every transport measures it, and an axis alone says nothing.
			box.hidden = true;
		}
		draw();
	};
}

/** A bot of the runner reports its part of an answer; a service, the time to its first byte. */
const nameOf = (processor) => (OWN_BOTS.includes(processor) ? 'Answer after: in the bot' : `First byte of ${String(processor ?? 'a service').slice(0, 60)}`);

/** The time to the first byte of each service, as the bot reports it. */
function services() {
	const all = new Map();
	return (reports) => {
		if (!reports) all.clear();
		for (const { processor, value } of reports ?? []) {
			if (typeof value === 'number' && (all.has(processor) || all.size < SERVICES_MAX)) all.set(processor, value);
		}
		const rows = [...all].flatMap(([name, value]) => (
			[make('dt', '', nameOf(name)), make('dd', '', `${Math.round(value * 1000)} ms`)]));
		$('ttfb').replaceChildren(...rows);
	};
}

/** Returns a function that takes samples; null clears the charts. `ttfb` in a sample is a list of reports. */
export function charts() {
	const all = CHARTS.map(chart);
	const told = services();
	return (sample) => {
		if (!sample || sample.ttfb) told(sample?.ttfb);
		if (!sample?.ttfb) all.forEach((take) => take(sample));
	};
}
