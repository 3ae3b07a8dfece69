// call.js with a connection that a test moves: the offer, candidates, signalling, outages and reconnects, and every way to end.

import assert from 'node:assert/strict';
import test, { afterEach } from 'node:test';
import { listener, makePeerConnections } from './support/browser.mjs';
import { stopClock } from './support/clock.mjs';
import { makeDocument } from './support/dom.mjs';
import { page, setGlobal, settle } from './support/page.mjs';

makeDocument();
const clock = stopClock();
const { webrtc } = await page('call.js');
const { botFailed, noPath } = await page('words.js');

const ANSWER = { sdp: 'v=0\r\na=candidate:1 1 udp 2130706431 192.168.1.5 7860 typ host\r\n', type: 'answer', pc_id: 'pc-1' };

const live = [];
afterEach(() => { for (const own of live.splice(0)) own.close(); });

/** A call; `answers` gives a status and a body for each request, or an error. */
async function call({ answers = () => [200, ANSWER], track = 'mic', muted = false, refuses = null } = {}) {
	const { on, told, of } = listener();
	const requests = [];
	const pcs = makePeerConnections(refuses);
	setGlobal('fetch', async (url, { method, body, signal }) => {
		requests.push({ method, path: url.pathname, body: body && JSON.parse(body), signal });
		const outcome = await answers(requests.length, method);
		if (outcome instanceof Error) throw outcome;
		return new Response(JSON.stringify(outcome[1]), { status: outcome[0] });
	});
	const own = webrtc({ started: { sessionId: 's/1', iceConfig: { iceServers: [] } }, track, muted, on });
	live.push(own);
	own.open();
	await settle();
	return {
		own, told, of, pcs, requests,
		pc: () => pcs.at(-1),
		/** The channel opens. */
		async connect() {
			const { channel } = pcs.at(-1);
			channel.readyState = 'open';
			channel.onopen();
			await settle();
		},
		tell: (message) => pcs.at(-1).channel.onmessage({ data: typeof message === 'string' ? message : JSON.stringify(message) }),
		/** The network changes. */
		async network(ice, whole = ice) {
			Object.assign(pcs.at(-1), { iceConnectionState: ice, connectionState: whole });
			pcs.at(-1).oniceconnectionstatechange();
			await settle();
		},
		messages: () => pcs.at(-1).channel.sent.filter((text) => text.startsWith('{')).map((text) => JSON.parse(text)),
	};
}

const closed = ({ of }) => of('closed').map(([problem, reason]) => [problem?.title ?? null, reason ?? null]);
const trackStatus = (enabled) => ({ type: 'signalling', message: { type: 'trackStatus', receiver_index: 0, enabled } });

// ---- the offer

test('an offer goes to the session that /start began, and its answer is taken', async () => {
	const { requests, pc, of } = await call();
	assert.deepEqual(requests.map(({ method, path, body }) => [method, path, body]),
		[['POST', '/sessions/s%2F1/api/offer', { sdp: 'offer 1', type: 'offer', pc_id: null, restart_pc: false }]]);
	assert.deepEqual([pc().config, pc().remote, pc().channel.label], [{ iceServers: [] }, { type: 'answer', sdp: ANSWER.sdp }, 'chat']);
	assert.deepEqual(of('ids'), [[{ connection: 'pc-1' }]]);
});

test('without a microphone the section is ready for one', async () => {
	const silent = await call({ track: null });
	assert.deepEqual([silent.pc().what, silent.pc().how], ['audio', { direction: 'sendrecv', streams: [] }]);
	const speaking = await call();
	assert.deepEqual([speaking.pc().what, speaking.pc().how.streams[0].tracks], ['mic', ['mic']]);
});

test('candidates are sent together, after the answer', async () => {
	let answer;
	const { pc, requests } = await call({ answers: (nth) => (nth === 1 ? new Promise((done) => { answer = done; }) : [200, {}]) });
	const candidate = (text) => pc().onicecandidate({ candidate: text && { candidate: text, sdpMid: '0', sdpMLineIndex: 0 } });
	candidate('candidate:1 1 udp 1 192.168.1.9 5000 typ host');
	clock.pass(5000);
	assert.equal(requests.length, 1);
	candidate('candidate:2 1 udp 1 203.0.113.9 5000 typ srflx');
	answer([200, ANSWER]);
	await settle();
	assert.deepEqual(requests.slice(1).map(({ method, body }) => [method, body]), [['PATCH', {
		pc_id: 'pc-1',
		candidates: [
			{ candidate: 'candidate:1 1 udp 1 192.168.1.9 5000 typ host', sdp_mid: '0', sdp_mline_index: 0 },
			{ candidate: 'candidate:2 1 udp 1 203.0.113.9 5000 typ srflx', sdp_mid: '0', sdp_mline_index: 0 },
		],
	}]]);
	candidate('candidate:3 1 udp 1 192.168.1.9 5001 typ host');
	candidate('candidate:4 1 udp 1 192.168.1.9 5002 typ host');
	candidate(null);
	clock.pass(199);
	assert.equal(requests.length, 2);
	clock.pass(1);
	assert.equal(requests.at(-1).body.candidates.length, 2);
});

test('candidates that are refused are only logged', async () => {
	const own = await call({ answers: (nth, method) => (method === 'PATCH' ? [404, { detail: 'gone' }] : [200, ANSWER]) });
	own.pc().onicecandidate({ candidate: { candidate: 'x' } });
	clock.pass(200);
	await settle();
	assert.deepEqual(own.of('log').at(-1), ['error', 'candidates: gone']);
	assert.deepEqual(closed(own), []);
});

test('a browser that refuses a connection is quoted', async () => {
	const own = await call({ refuses: new Error('blocked') });
	assert.match(own.of('closed')[0][0].text, /“blocked”.*--ice-servers/);
});

test('an offer that is refused for good ends the call with the reason', async () => {
	for (const [status, title] of [[400, 'The offer was refused (400)'], [401, 'The runner requires a key'], [404, 'The offer was refused (404)'], [503, 'All sessions are in use']]) {
		const own = await call({ answers: () => [status, { detail: 'no' }] });
		assert.deepEqual(closed(own), [[title, null]], String(status));
		clock.pass(60000);
		assert.equal(own.pcs.length, 1);
	}
});

test('an offer that fails otherwise is made again, three times', async () => {
	for (const outcome of [[500, { detail: 'x' }], new TypeError('fetch failed')]) {
		const own = await call({ answers: () => outcome });
		for (let attempt = 1; attempt <= 3; attempt++) {
			assert.deepEqual(own.of('trouble').at(-1), [attempt, 3]);
			assert.equal(own.pcs.length, attempt);
			clock.pass(2000);
			await settle();
		}
		assert.equal(own.pcs.length, 4);
		assert.equal(own.requests.at(-1).body.restart_pc, true);
		assert.equal(closed(own).length, 1);
		assert.ok(own.pcs.every(({ isClosed }) => isClosed));
	}
});

// ---- the call

test('an open channel starts the call, and says whether a microphone is on', async () => {
	for (const [track, muted, enabled] of [['mic', false, true], ['mic', true, false], [null, false, false]]) {
		const own = await call({ track, muted });
		await own.connect();
		assert.deepEqual([own.of('open'), own.messages()], [[[true]], [trackStatus(enabled)]]);
	}
});

test('pings go out each second', async () => {
	const own = await call();
	await own.connect();
	clock.pass(3000);
	const pings = own.pc().channel.sent.filter((text) => text.startsWith('ping: '));
	assert.deepEqual([pings.length, Number(pings[0].slice(6)) > 1e6 - 1], [3, true]);
});

test('muting and another microphone are told', async () => {
	const own = await call();
	await own.connect();
	own.own.setMuted(true);
	own.own.setMuted(false);
	await own.own.setTrack(null);
	await own.own.setTrack('other');
	assert.deepEqual(own.messages().slice(1).map(({ message: { enabled } }) => enabled), [false, true, false, true]);
	assert.equal(own.pc().what, 'other');
});

test('messages go both ways, those of signalling to the connection', async () => {
	const own = await call();
	assert.equal(own.own.send({ a: 1 }), false);
	await own.connect();
	assert.equal(own.own.send({ a: 1 }), true);
	assert.deepEqual(own.messages().at(-1), { a: 1 });
	own.tell({ label: 'rtvi-ai', type: 'x' });
	own.tell('{');
	own.tell('null');
	own.tell({ type: 'signalling' });
	own.tell({ type: 'signalling', message: null });
	assert.deepEqual(own.of('message'), [[{ label: 'rtvi-ai', type: 'x' }], [null]]);
	assert.equal(own.of('log').filter(([kind]) => kind === 'error').length, 1);
	assert.deepEqual(closed(own), []);
});

test('the sound of the bot is handed over, with or without a stream', async () => {
	const own = await call();
	own.pc().ontrack({ streams: ['stream'], track: 't' });
	own.pc().ontrack({ streams: [], track: 't' });
	const [[first], [second]] = own.of('audio');
	assert.deepEqual([first, second.tracks], ['stream', ['t']]);
});

test('a bot that asks to negotiate again gets an offer of the same connection', async () => {
	const own = await call();
	await own.connect();
	own.tell({ type: 'signalling', message: { type: 'renegotiate' } });
	await settle();
	assert.deepEqual(own.requests.map(({ body }) => [body.pc_id, body.restart_pc]), [[null, false], ['pc-1', false]]);
	assert.equal(own.pcs.length, 1);
	own.pc().signalingState = 'have-local-offer';
	own.tell({ type: 'signalling', message: { type: 'renegotiate' } });
	await settle();
	assert.equal(own.requests.length, 2);
});

test('a bot that leaves ends the call in its own words, and a failed one as a problem', async () => {
	const ends = [
		[undefined, null, 'the bot left'], ['the runner is stopping', null, 'the runner is stopping'], ['bot failed', botFailed().title, null], [5, null, 'the bot left'],
	];
	for (const [reason, title, said] of ends) {
		const own = await call();
		await own.connect();
		own.tell({ type: 'signalling', message: { type: 'peerLeft', reason } });
		assert.deepEqual(closed(own), [[title, said]]);
	}
});

// ---- outages

test('a short silence of the network is waited for', async () => {
	const own = await call();
	await own.connect();
	await own.network('disconnected');
	clock.pass(4999);
	await own.network('connected');
	clock.pass(60000);
	assert.deepEqual([own.pcs.length, own.of('trouble')], [1, []]);
});

test('after five seconds another connection to the same bot is made', async () => {
	const own = await call();
	await own.connect();
	const first = own.pc();
	await own.network('disconnected');
	clock.pass(5000);
	assert.equal(first.isClosed, true);
	assert.deepEqual(own.of('trouble'), [[1, 3]]);
	clock.pass(0);
	await settle();
	assert.deepEqual(own.requests.at(-1).body, { sdp: 'offer 2', type: 'offer', pc_id: 'pc-1', restart_pc: true });
	await own.connect();
	assert.deepEqual(own.of('open'), [[true], [false]], 'the second is no new bot');
	// The count of attempts begins anew.
	await own.network('failed');
	assert.deepEqual(own.of('trouble').at(-1), [1, 3]);
});

test('a failed network is given up at once, and the call after three attempts', async () => {
	const own = await call();
	await own.connect();
	for (let attempt = 1; attempt <= 3; attempt++) {
		await own.network('failed');
		clock.pass(0);
		await settle();
		assert.equal(own.pcs.length, attempt + 1);
	}
	await own.network('connected', 'failed');
	assert.deepEqual(closed(own), [['No network path to the bot', null]]);
});

test('a channel that closes counts as an outage', async () => {
	const own = await call();
	await own.connect();
	own.pc().channel.readyState = 'closed';
	own.pc().channel.onclose();
	await own.network('connected');
	clock.pass(5000);
	assert.deepEqual(own.of('trouble'), [[1, 3]]);
});

test('a bot that ended during an outage ends the call without a problem', async () => {
	const own = await call({ answers: (nth) => (nth === 1 ? [200, ANSWER] : [404, { detail: 'gone' }]) });
	await own.connect();
	await own.network('failed');
	clock.pass(0);
	await settle();
	assert.deepEqual(closed(own), [[null, 'the session is over']]);
});

test('a connection that never opens is explained after ten seconds, and made again after thirty', async () => {
	const own = await call();
	own.pc().onicecandidate({ candidate: { candidate: 'candidate:1 1 udp 1 192.168.1.9 5000 typ host' } });
	own.pc().reports = new Map([['p', { type: 'candidate-pair', requestsReceived: 2, responsesReceived: 1 }], ['q', { type: 'candidate-pair' }], ['r', { type: 'other' }]]);
	clock.pass(10000);
	await settle();
	assert.deepEqual(own.of('slow'), [[noPath({ own: new Set(['host']), theirs: [['192.168.1.5', '7860']], heard: 3 })]]);
	clock.pass(20000);
	assert.deepEqual(own.of('trouble'), [[1, 3]]);
});

test('events of a former connection do nothing', async () => {
	const own = await call();
	await own.connect();
	const first = own.pc();
	await own.network('failed');
	clock.pass(0);
	await settle();
	const before = own.told.length;
	first.ontrack({ streams: ['late'] });
	first.channel.onmessage({ data: '{"a":1}' });
	first.channel.onclose();
	first.oniceconnectionstatechange();
	assert.equal(own.told.length, before);
});

test('a runner that sends nothing for three seconds is doubted until it does', async () => {
	const own = await call();
	await own.connect();
	const arrives = (bytes) => { own.pc().reports = new Map([['p', { type: 'candidate-pair', nominated: true, bytesReceived: bytes }]]); };
	arrives(100);
	const silent = [];
	for (let sample = 0; sample < 3; sample++) silent.push((await own.own.stats()).isSilent);
	assert.deepEqual(own.of('doubt'), []);
	assert.deepEqual(silent, [false, true, true], 'a second of it is enough to ask the runner');
	await own.own.stats();
	await own.own.stats();
	assert.deepEqual(own.of('doubt'), [['Nothing arrives from the runner', true]]);
	arrives(200);
	await own.own.stats();
	assert.deepEqual(own.of('doubt'), [['Nothing arrives from the runner', true], ['Nothing arrives from the runner', false]]);
});

test('a call that is hung up ends once, and gives up what it asked for', async () => {
	const own = await call({ answers: () => new Promise(() => {}) });
	own.own.close();
	own.own.close();
	assert.deepEqual(closed(own), [[null, 'you hung up']]);
	assert.ok(own.requests[0].signal.aborted && own.pc().isClosed);
	clock.pass(120000);
	await settle();
	assert.deepEqual([own.pcs.length, await own.own.stats(), own.own.send({})], [1, null, false]);
});
