// charts.js: the scale, and what is drawn on a canvas that records.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Element, makeDocument } from './support/dom.mjs';
import { page, settle } from './support/page.mjs';

const { byId } = makeDocument();
const { charts, plot, redrawn, roundUp } = await page('charts.js');

/** A canvas with a pen that records its calls and its state at each. */
function canvas(width = 200, height = 100) {
	const own = Object.assign(new Element('canvas'), { clientWidth: width, clientHeight: height });
	const done = [];
	const pen = { measureText: (text) => ({ width: text.length * 6 }) };
	for (const name of ['scale', 'fillRect', 'fillText', 'beginPath', 'moveTo', 'lineTo', 'stroke']) {
		pen[name] = (...args) => done.push([name, ...args.map((arg) => (typeof arg === 'number' ? Math.round(arg * 100) / 100 : arg)), pen.fillStyle]);
	}
	own.getContext = () => pen;
	return { own, of: (name) => done.filter(([called]) => called === name).map(([, ...args]) => args), done };
}

test('a scale ends at 1, 2 or 5 with zeros, not below the largest value', () => {
	const tops = [[0.3, 0.5], [1, 1], [1.01, 2], [2, 2], [3, 5], [5, 5], [5.1, 10], [9.99, 10], [10, 10], [11, 20], [499, 500], [501, 1000], [99999, 100000]];
	for (const [value, top] of tops) assert.ok(Math.abs(roundUp(value) - top) < top * 1e-9, `${value}: ${roundUp(value)}, not ${top}`);
	for (let value = 0.01; value < 1e6; value *= 1.07) {
		const top = roundUp(value);
		assert.ok(top >= value * 0.999 && top <= value * 2.5 * 1.001, `${value}: ${top}`);
		const lead = top / 10 ** Math.floor(Math.log10(top * 1.0001));
		assert.ok([1, 2, 5].some((step) => Math.abs(lead - step) < 1e-6), `${top}`);
	}
});

test('a value a thousandth above a step does not double the scale', () => {
	assert.equal(roundUp(500.4), 500);
	assert.equal(roundUp(500.6), 1000);
});

test('lines go through their values from the left, on a scale from zero', () => {
	const { own, of } = canvas(230, 120);
	plot(own, [[0, 50, 100]], { least: 20, most: 3, span: '2 s' });
	// The scale is 100: 6 from the top, 106 at the bottom; 30 of the width are for its numbers.
	assert.deepEqual(of('lineTo').map(([x, y]) => [x, y]), [[30, 106], [130, 56], [230, 6]]);
	assert.deepEqual(of('fillText').map(([text]) => text), ['0', '100', '2 s']);
	assert.equal(of('stroke').length, 1);
});

test('few points keep the width that they mean', () => {
	const { own, of } = canvas(230, 120);
	plot(own, [[1, 2]], { least: 1, most: 11 });
	assert.deepEqual(of('lineTo').map(([x]) => x), [30, 50]);
});

test('an unknown value interrupts a line, and a single known one is a dot', () => {
	const { own, of } = canvas(230, 120);
	plot(own, [[10, null, 10, 10, null, 10]], { least: 10, most: 6 });
	assert.deepEqual(of('moveTo').map(([x]) => x), [29, 109, 229]);
	assert.deepEqual(of('lineTo').map(([x]) => x), [30, 110, 150, 230]);
});

test('bars stand on the floor', () => {
	const { own, of } = canvas(230, 120);
	plot(own, [[500, 250, null]], { least: 500, most: 10, bars: true });
	const bars = of('fillRect').filter((args) => args.at(-1) === '--accent').map(([x, y, width, height]) => [x, y, width, height]);
	assert.deepEqual(bars, [[31, 6, 17, 100], [51, 56, 17, 50]]);
	assert.equal(of('lineTo').length, 0);
});

test('a second line has another colour', () => {
	const { own, of } = canvas();
	plot(own, [[1], [1]], { least: 1, most: 2 });
	assert.deepEqual(of('beginPath').map((args) => args.at(-1)), ['--accent', '--second']);
});

test('without labels the whole width is used', () => {
	const { own, of } = canvas(100, 50);
	plot(own, [[0, 1]], { least: 1, most: 2, label: null });
	assert.deepEqual(of('lineTo').map(([x, y]) => [x, y]), [[0, 48], [100, 2]]);
	assert.deepEqual(of('fillText'), []);
});

test('wide numbers push the lines to the right', () => {
	const { own, of } = canvas(200, 100);
	plot(own, [[100000]], { least: 1, most: 2 });
	assert.equal(of('lineTo')[0][0], 42, '36 for six digits, and 6');
});

test('nothing is drawn where there is no room, or no value', () => {
	for (const [width, height] of [[0, 100], [100, 0]]) {
		const { own, done } = canvas(width, height);
		plot(own, [[1]], { least: 1, most: 2 });
		assert.deepEqual(done, []);
	}
	const { own, of } = canvas();
	plot(own, [[]], { least: 20, most: 15 });
	assert.deepEqual(of('lineTo'), []);
	assert.deepEqual(of('fillText').map(([text]) => text), ['0', '20', '']);
});

test('a canvas has as many pixels as the screen', () => {
	globalThis.devicePixelRatio = 3;
	const { own, of } = canvas(100, 50);
	plot(own, [[1]], { least: 1, most: 2 });
	assert.deepEqual([own.width, own.height, of('scale')[0].slice(0, 2)], [300, 150, [3, 3]]);
	globalThis.devicePixelRatio = 1;
});

test('a change of the colours draws again what is on the page', () => {
	let drawn = 0;
	const shown = new Element('canvas');
	byId('charts').append(shown);
	redrawn(shown, () => { drawn += 1; });
	dispatchEvent(new Event('themechange'));
	assert.equal(drawn, 1);
	shown.remove();
	dispatchEvent(new Event('themechange'));
	byId('charts').append(shown);
	dispatchEvent(new Event('themechange'));
	assert.equal(drawn, 1, 'it was forgotten');
	shown.remove();
});

test('samples become the latest values, words for screen readers, and a bounded line', async () => {
	const show = charts();
	await settle();
	const box = (key) => byId('charts').all().find(({ id }) => id === `stat-${key}`);
	const label = (name) => byId('charts').all().filter(({ tagName }) => tagName === 'CANVAS').map((own) => own.getAttribute('aria-label')).find((text) => text.startsWith(name));
	assert.equal(label('Jitter'), 'Jitter: not measured yet');
	show({ rtt: 12.34, jitter: 1, loss: null, lossOut: 0.5, rate: 31.6, rateOut: 30 });
	show({ rtt: 20, jitter: 2.25, loss: 3, lossOut: null, rate: 31.6, rateOut: 30 });
	assert.deepEqual(['rtt', 'jitter', 'loss', 'lossOut', 'rate'].map((key) => box(key).textContent), ['20.0', '2.3', '3.0', '–', '32']);
	assert.equal(label('Jitter'), 'Jitter: between 1.0 and 2.3 ms');
	assert.equal(label('Answer after'), 'Answer after: not measured yet');
	show({ latency: 812.6 });
	assert.equal(box('latency').textContent, '813');
	assert.equal(box('rtt').textContent, '20.0', 'a latency is no sample of the connection');
	for (let nth = 0; nth < 300; nth++) show({ rtt: 1000 + nth });
	assert.equal(label('Round trip'), 'Round trip: between 1180.0 and 1299.0 ms', 'of the last 120');
	show(null);
	assert.deepEqual([box('rtt').textContent, label('Round trip')], ['–', 'Round trip: not measured yet']);
});

test('a chart that a transport has no values for is hidden', () => {
	const show = charts();
	const shown = () => byId('charts').all().filter(({ className }) => className === 'chart').slice(-5)
		.filter(({ hidden }) => !hidden).map((box) => box.querySelector('h3').textContent);
	const all = ['Answer after', 'Round trip', 'Jitter', 'Lost packets', 'Audio'];
	assert.deepEqual(shown(), all);
	show({ rate: 64, rateOut: 64 });
	show({ latency: 700 });
	assert.deepEqual(shown(), ['Answer after', 'Audio'], 'a telephone');
	show(null);
	assert.deepEqual(shown(), ['Answer after', 'Audio'], 'until a call has others');
	show({ rtt: null, jitter: null, loss: null, lossOut: null, rate: null, rateOut: null });
	assert.deepEqual(shown(), all, 'not known yet');
});

test('services are listed by name with their latest time, six at most', () => {
	const show = charts();
	const rows = () => byId('ttfb').children.map(({ textContent }) => textContent);
	show({ ttfb: [{ processor: 'stt', value: 0.1234 }, { processor: 'llm', value: 1 }] });
	show({ ttfb: [{ processor: 'stt', value: 0.2 }, { value: 0.5 }] });
	assert.deepEqual(rows(), ['First byte of stt', '200 ms', 'First byte of llm', '1000 ms', 'First byte of a service', '500 ms']);
	show({ ttfb: [{ processor: 'x', value: 'fast' }, { processor: 'y'.repeat(100), value: 0 }] });
	assert.deepEqual(rows().slice(-2), [`First byte of ${'y'.repeat(60)}`, '0 ms']);
	show(null);
	show({ ttfb: [{ processor: 'cascade', value: 1.407 }] });
	assert.deepEqual(rows(), ['Answer after: in the bot', '1407 ms'], 'its part of what the page measures');
	for (let nth = 0; nth < 20; nth++) show({ ttfb: [{ processor: `p${nth}`, value: 1 }] });
	assert.equal(rows().length, 12);
	show(null);
	assert.deepEqual(rows(), []);
});
