// transports.js, rooms.js and stats.js: which transports can be used and why not, where rooms are, and the figures of a report.

import assert from 'node:assert/strict';
import test from 'node:test';
import { makeDocument } from './support/dom.mjs';
import { anew, page, scripts } from './support/page.mjs';

makeDocument();
const { connectorOf, labelOf, rows } = await page('transports.js');
const { mediaroom, videoroom } = await page('rooms.js');
const { sample } = await page('stats.js');

const row = (status, name) => {
	const { word, usable } = rows(status).find((one) => one.name === name);
	return [word, usable];
};

// ---- transports

test('there are nine transports with names of their own', () => {
	const all = rows(null);
	assert.equal(all.length, 9);
	assert.equal(new Set(all.map(({ name }) => name)).size, 9);
	assert.equal(new Set(all.map(({ label }) => label)).size, 9);
	for (const { name, label } of all) assert.deepEqual([labelOf(name), typeof connectorOf(name)], [label, /moq|telephony/.test(name) ? 'object' : 'function']);
	for (const name of ['zoom', '', undefined, null, 'toString', '__proto__']) assert.deepEqual([labelOf(name), connectorOf(name)], [name ?? '', undefined]);
});

test('what stands in the way is told, the nearest obstacle first', () => {
	const all = { transports: ['webrtc', 'moq', 'telephony_a', 'mediaroom'], without_bot: [], without_credentials: [], unavailable: [] };
	assert.deepEqual(row(null, 'webrtc'), ['not known', true]);
	assert.deepEqual(row(all, 'webrtc'), ['ready', true]);
	assert.deepEqual(row(all, 'mediaroom'), ['opens elsewhere', true]);
	assert.deepEqual(row({ ...all, unavailable: ['webrtc'] }, 'webrtc'), ['not in this build', true]);
	assert.deepEqual(row({ ...all, transports: [] }, 'webrtc'), ['excluded by -t', false]);
	assert.deepEqual(row({ ...all, transports: [] }, 'moq'), ['needs -t moq', false]);
	assert.deepEqual(row({ ...all, without_bot: ['webrtc'] }, 'webrtc'), ['not with this bot', false]);
	assert.deepEqual(row({ ...all, without_credentials: ['mediaroom'] }, 'mediaroom'), ['needs its credentials', false]);
	// This process has neither WebTransport nor worklets, and is no secure context.
	assert.deepEqual(row(all, 'moq'), ['needs HTTPS', true]);
	globalThis.isSecureContext = true;
	assert.deepEqual([row(all, 'moq'), row(all, 'telephony_a')], [['not in this browser', true], ['not in this browser', true]]);
	delete globalThis.isSecureContext;
});

test('an older runner, whose status has fewer lists, is served', () => {
	assert.deepEqual(row({ transports: ['webrtc'] }, 'webrtc'), ['ready', true]);
	assert.deepEqual(row({}, 'webrtc'), ['excluded by -t', false]);
});

test('MoQ needs both its means', async () => {
	const works = async () => (await anew('transports.js')).connectorOf('moq').works;
	globalThis.AudioEncoder = class {};
	assert.equal(await works(), false);
	globalThis.WebTransport = class { get protocol() { return ''; } };
	assert.equal(await works(), true);
	delete globalThis.AudioEncoder;
	assert.equal(await works(), false);
	globalThis.AudioEncoder = class {};
	globalThis.WebTransport = class {};
	assert.equal(await works(), false, 'an older WebTransport chooses no protocol');
});

test('transports that are loaded when they are chosen can be loaded', async () => {
	for (const name of ['moq', 'telephony_a']) assert.equal(typeof await connectorOf(name).load(), 'function');
	assert.ok(scripts.includes('moq.js') && scripts.includes('phone.js'));
});

// ---- rooms

test('a video room opens with its token in another tab, by either name', () => {
	for (const started of [
		{ videoroomRoom: 'https://r.example/x?a=1', videoroomToken: 'a+b&c' }, { dailyRoom: 'https://r.example/x?a=1', dailyToken: 'a+b&c' },
	]) {
		const { good, steps: [[, url]] } = videoroom(started);
		assert.deepEqual([good, url.target, url.searchParams.get('t'), url.searchParams.get('a')], [true, '_blank', 'a+b&c', '1']);
		assert.equal(url.origin + url.pathname, 'https://r.example/x');
	}
});

test('a bot without a room is explained, and a room that is no URL throws', () => {
	assert.match(videoroom({}).title, /without a room/);
	assert.throws(() => videoroom({ videoroomRoom: 'no URL' }), TypeError);
});

test('a media room is told as text', () => {
	assert.deepEqual(mediaroom({ url: 'wss://r', token: 't', roomName: 'n' }).steps, [['Server:', 'wss://r'], ['Room:', 'n'], ['Token:', 't']]);
	assert.ok(mediaroom.elsewhere && videoroom.elsewhere && mediaroom({}).good);
});

// ---- figures

/** A report of a browser. */
const report = (more = {}) => new Map(Object.entries({
	T: { type: 'transport', selectedCandidatePairId: 'P' },
	P: { type: 'candidate-pair', bytesReceived: 1000, currentRoundTripTime: 0.0421 },
	Q: { type: 'candidate-pair', bytesReceived: 5, currentRoundTripTime: 9, nominated: true },
	I: { type: 'inbound-rtp', kind: 'audio', id: 'I', timestamp: 1000, packetsLost: 5, packetsReceived: 100, bytesReceived: 10000, jitter: 0.0123 },
	V: { type: 'inbound-rtp', kind: 'video', id: 'V', timestamp: 1000, jitter: 7 },
	O: { type: 'outbound-rtp', kind: 'audio', id: 'O', timestamp: 1000, bytesSent: 4000 },
	R: { type: 'remote-inbound-rtp', kind: 'audio', id: 'R', roundTripTime: 0.5, fractionLost: 0.25 },
	...more,
}));

const rounded = ({ rtt, jitter, loss, lossOut, rate, rateOut }) => [rtt, jitter, loss, lossOut, rate, rateOut]
	.map((value) => (value === null ? null : Math.round(value * 1000) / 1000));

test('a first report has no rates; a second has those of the time between', () => {
	const first = sample(report());
	assert.deepEqual(rounded(first), [42.1, 12.3, null, 25, null, null]);
	assert.equal(first.bytes, 1000);
	const later = report({
		I: { ...report().get('I'), timestamp: 2000, packetsLost: 6, packetsReceived: 149, bytesReceived: 14000 },
		O: { ...report().get('O'), timestamp: 2000, bytesSent: 8500 },
	});
	assert.deepEqual(rounded(sample(later, first)), [42.1, 12.3, 2, 25, 32, 36]);
});

test('counters of another connection are not compared', () => {
	const first = sample(report());
	const other = report({ I: { ...report().get('I'), id: 'J', timestamp: 2000, bytesReceived: 50 } });
	assert.deepEqual(rounded(sample(other, first)).slice(2), [null, 25, null, null]);
});

test('packets that come late are no negative loss', () => {
	const first = sample(report());
	const later = report({ I: { ...report().get('I'), timestamp: 2000, packetsLost: 3, packetsReceived: 152 } });
	assert.equal(sample(later, first).loss, 0);
});

test('two reports of one moment, and reports that lack all, have no figures', () => {
	const first = sample(report());
	assert.deepEqual(rounded(sample(report(), first)).slice(2), [null, 25, null, null]);
	assert.deepEqual(rounded(sample(new Map())), [null, null, null, null, null, null]);
	assert.equal(sample(new Map()).bytes, undefined);
});

test('without a transport the nominated pair counts, and the other end’s round trip', () => {
	const all = report();
	all.delete('T');
	assert.deepEqual([sample(all).bytes, sample(all).rtt], [5, 9000]);
	all.delete('Q');
	assert.deepEqual([sample(all).bytes, sample(all).rtt], [undefined, 500]);
});
