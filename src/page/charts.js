// Charts of the connection, one small canvas each. In: a sample per second, a latency per turn. Out: drawings, the latest
// values as text, and a sentence for screen readers. Keeps the last POINTS_MAX samples and BARS_MAX turns.

import { $, make } from './dom.js';

const POINTS_MAX = 120;
const BARS_MAX = 40;

// Name, keys of a sample (the second in another colour), unit, minimum of the scale's top, digits.
const CHARTS = [
	['Response latency', ['latency'], 'ms', 500, 0],
	['Round trip', ['rtt'], 'ms', 20, 1],
	['Jitter', ['jitter'], 'ms', 10, 1],
	['Loss in, out', ['loss', 'lossOut'], '%', 5, 1],
	['kb/s in, out', ['rate', 'rateOut'], '', 40, 0],
];

function chart([name, keys, unit, least, digits]) {
	const bars = keys[0] === 'latency';
	const most = bars ? BARS_MAX : POINTS_MAX;
	const canvas = make('canvas');
	const values = keys.map((key) => Object.assign(make('b', '', '–'), { id: `stat-${key}` }));
	canvas.setAttribute('role', 'img');
	$('charts').append(make('div', 'chart', make('h3', '', name), make('p', '', values[0], ' ', ...values.slice(1), ` ${unit}`), canvas));
	let points = [];

	function draw() {
		const known = points.flat().filter((value) => value !== null);
		const told = (value) => value.toFixed(digits);
		canvas.setAttribute('aria-label', known.length
			? `${name}: between ${told(Math.min(...known))} and ${told(Math.max(...known))} ${unit}` : `${name}: not measured yet`);
		const { clientWidth: width, clientHeight: height } = canvas;
		Object.assign(canvas, { width: width * devicePixelRatio, height: height * devicePixelRatio });
		const pen = canvas.getContext('2d');
		const style = getComputedStyle(canvas);
		const colour = (variable) => style.getPropertyValue(variable);
		const top = Math.max(least, ...known) * 1.1;
		const y = (value) => height - 2 - (value / top) * (height - 4);
		const step = width / most;
		pen.scale(devicePixelRatio, devicePixelRatio);
		pen.fillStyle = colour('--line');
		pen.fillRect(0, height - 1, width, 1);
		keys.forEach((_, index) => {
			pen.fillStyle = pen.strokeStyle = colour(index ? '--second' : '--accent');
			pen.lineWidth = 1.75;
			pen.beginPath();
			let [x, wasKnown] = [width - points.length * step, false];
			for (const { [index]: value } of points) {
				if (value !== null && bars) pen.fillRect(x + 1, y(value), step - 2, height - y(value));
				else if (value !== null) {
					// A path of one point draws nothing, so draw a dot.
					if (!wasKnown) pen.moveTo(x, y(value));
					pen.lineTo(x + step, y(value));
				}
				wasKnown = value !== null;
				x += step;
			}
			pen.stroke();
		});
	}

	new ResizeObserver(draw).observe(canvas);
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);

	return (sample) => {
		if (!sample) {
			points = [];
			values.forEach((value) => { value.textContent = '–'; });
		} else if (keys[0] in sample) {
			points = [...points, keys.map((key) => sample[key])].slice(-most);
			keys.forEach((key, index) => { values[index].textContent = sample[key]?.toFixed(digits) ?? '–'; });
		}
		draw();
	};
}

/** Returns a function that takes samples; null clears the charts. */
export function charts() {
	const all = CHARTS.map(chart);
	return (sample) => all.forEach((take) => take(sample));
}
