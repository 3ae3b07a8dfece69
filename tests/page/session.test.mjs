// session.js over a WebSocket in memory: the phases of a call, what a user sees of each failure, and that nothing of an abandoned call
// reaches the next one.

import assert from 'node:assert/strict';
import test, { afterEach } from 'node:test';
import { makePeerConnections, makeSockets, makeSound } from './support/browser.mjs';
import { stopClock } from './support/clock.mjs';
import { makeDocument } from './support/dom.mjs';
import { page, setGlobal, settle, until } from './support/page.mjs';

makeDocument();
const clock = stopClock();
const { messageFrame, readFrame } = await page('frames.js');
globalThis.isSecureContext = true;
setGlobal('navigator', { userAgent: 'a test', maxTouchPoints: 0, mediaDevices: { getUserMedia() {} } });
setGlobal('AudioWorkletNode', class {});
const { session } = await page('session.js');

let track, live;
afterEach(() => live?.disconnect());

/** A page; `reply` is the answer of /start, an error, or a promise. */
function open({ reply = [200, { sessionId: '17', wsUrl: 'ws://h/ws-client', token: 'secret' }], microphone, failed = [] } = {}) {
	const [sound, sockets, seen, logged] = [makeSound(), makeSockets(), [], []];
	const to = new Proxy({}, { get: (_, name) => (...args) => { seen.push([name, ...args]); } });
	const requests = [];
	setGlobal('fetch', async (url, { method, body, signal }) => {
		requests.push([method, url.pathname, body && JSON.parse(body)]);
		const list = url.pathname === '/sessions' && [200, { sessions: [], failed }];
		const outcome = await Promise.race([list || reply, new Promise((_, fail) => { signal.addEventListener('abort', () => fail(signal.reason)); })]);
		if (outcome instanceof Error) throw outcome;
		return new Response(JSON.stringify(outcome[1]), { status: outcome[0] });
	});
	navigator.mediaDevices.getUserMedia = microphone ?? (async () => {
		track = { label: 'Built-in', enabled: true, readyState: 'live', stop() { this.readyState = 'ended'; } };
		const own = track;
		return { getAudioTracks: () => [own] };
	});
	live = session({ to, log: (...args) => logged.push(args) });
	const connect = (more = {}) => live.connect({
		transport: 'websocket', startRequest: { transport: 'websocket', body: { a: 1 } }, deviceId: '', version: '0.1.0', context: sound.context, line: null, ...more,
	});
	return {
		own: live, sound, sockets, seen, logged, requests, connect,
		of: (name) => seen.filter(([own]) => own === name).map(([, ...args]) => args),
		phases: () => seen.filter(([name]) => name === 'phase').map(([, phase]) => phase),
		said: () => seen.findLast(([name]) => name === 'phase')?.[2],
		problem: () => seen.findLast(([name]) => name === 'problem')?.[1].title,
		hear: (type, data, more) => sockets.at(-1).tell(messageFrame({ label: 'rtvi-ai', type, data, ...more }).slice().buffer),
		sent: () => sockets.at(-1).sent.map((bytes) => JSON.parse(readFrame(bytes).message)),
		/** Up to the open socket. */
		async begin(more) {
			const before = sockets.length;
			connect(more);
			// Some transports are loaded from files.
			await until(() => sockets.length > before);
			sockets.at(-1).accept();
			await settle();
		},
	};
}

test('a call goes through its phases, and the bot is greeted', async () => {
	const { begin, phases, said, requests, of, sent, hear, own } = open();
	await begin();
	assert.deepEqual(phases(), ['starting', 'starting', 'connecting', 'waiting']);
	assert.deepEqual(requests, [['POST', '/start', { transport: 'websocket', body: { a: 1 } }]]);
	assert.deepEqual(of('ids')[0], [{ session: '17' }]);
	assert.deepEqual([sent()[0].type, sent()[0].data.about.library_version], ['client-ready', '0.1.0']);
	hear('bot-ready', {}, { id: sent()[0].id });
	assert.deepEqual([own.phase, said()], ['ready', 'Connected']);
	own.disconnect();
	assert.deepEqual([own.phase, said(), track.readyState], ['idle', 'Call ended: you hung up', 'ended']);
});

test('tokens stay out of the log', async () => {
	const { begin, logged } = open({ reply: [200, { sessionId: '17', wsUrl: 'ws://h/ws-client', token: 'secret', videoroomToken: 'secret', dailyToken: 'secret' }] });
	await begin();
	assert.ok(!JSON.stringify(logged).includes('secret'));
	assert.ok(JSON.stringify(logged).includes('ws-client'));
});

test('a bot that never says that it is ready is talked to after ten seconds, or when it is heard', async () => {
	const silent = open();
	await silent.begin();
	clock.pass(9999);
	assert.equal(silent.own.phase, 'waiting');
	clock.pass(1);
	assert.deepEqual([silent.own.phase, silent.said()], ['ready', 'Connected; the bot has not said that it is ready']);
	silent.own.disconnect();
	const heard = open();
	await heard.begin();
	heard.own.heard();
	assert.deepEqual([heard.own.phase, heard.said()], ['ready', 'Connected']);
	const phases = heard.phases().length;
	heard.own.heard();
	heard.hear('bot-ready', {}, { id: heard.sent()[0].id });
	clock.pass(20000);
	assert.equal(heard.phases().length, phases, 'it is said once');
});

test('a microphone that does not open is explained, and nothing is started', async () => {
	const { connect, requests, problem, own } = open({ microphone: async () => { throw Object.assign(new Error('x'), { name: 'NotFoundError' }); } });
	await connect();
	assert.deepEqual([requests, problem(), own.phase], [[], 'No microphone found', 'idle']);
});

test('without a microphone none is asked for', async () => {
	const { begin, of, own } = open({ microphone: () => assert.fail('it asks') });
	await begin({ deviceId: 'none' });
	assert.deepEqual([of('microphone'), own.phase], [[], 'waiting']);
});

test('a start that is refused is explained, and the microphone closed', async () => {
	const { connect, problem, own } = open({ reply: [503, { detail: 'full' }] });
	await connect();
	assert.deepEqual([problem(), own.phase, track.readyState], ['All sessions are in use', 'idle', 'ended']);
});

test('a call that is given up while it starts leaves nothing behind', async () => {
	const { connect, own, problem, sockets, said } = open({ reply: new Promise(() => {}) });
	const outcome = connect();
	await settle();
	own.disconnect();
	await outcome;
	assert.deepEqual([own.phase, said(), problem(), sockets.length, track.readyState], ['idle', 'Call ended: you hung up', undefined, 0, 'ended']);
});

test('a microphone that opens after the call was given up is closed', async () => {
	let opened;
	const late = { label: 'late', stop() { this.isStopped = true; } };
	const { connect, own, of, requests } = open({ microphone: () => new Promise((done) => { opened = () => done({ getAudioTracks: () => [late] }); }) });
	const outcome = connect();
	await settle();
	own.disconnect();
	opened();
	await outcome;
	assert.deepEqual([late.isStopped, of('microphone'), requests], [true, [], []]);
});

test('an abandoned call does not disturb the next one', async () => {
	const { begin, own, sockets, phases, hear } = open();
	await begin();
	const [first] = sockets;
	own.disconnect();
	await begin();
	const before = phases().length;
	first.end(1011);
	first.tell(messageFrame({ label: 'rtvi-ai', type: 'bot-ready' }).slice().buffer);
	assert.deepEqual([phases().length, own.phase], [before, 'waiting']);
	hear('bot-ready', {});
	assert.equal(own.phase, 'ready');
});

test('a lost connection is a problem, and a bot that leaves is none', async () => {
	const lost = open();
	await lost.begin();
	lost.sockets[0].end(1006);
	assert.deepEqual([lost.own.phase, lost.problem()], ['idle', 'The connection was lost']);
	const left = open();
	await left.begin();
	left.sockets[0].end(1000, 'good bye');
	assert.deepEqual([left.own.phase, left.problem(), left.said()], ['idle', undefined, 'Call ended: good bye']);
});

test('why a bot failed to start is asked of the runner, by a page that may know it', async () => {
	const failed = [{ id: '3', last_line: 'another' }, { id: '17', last_line: 'ImportError: no pipecatt' }];
	const texts = async (hostname, list) => {
		location.hostname = hostname;
		const { begin, sockets, of, requests } = open({ failed: list });
		await begin();
		sockets[0].end(1011, 'the bot failed');
		await settle();
		const asked = requests.filter(([, path]) => path === '/sessions').length;
		return [asked, of('problem').map(([{ title, steps }]) => [title, ...steps.flat()])];
	};
	assert.deepEqual(await texts('127.0.0.1', failed), [1, [['The bot failed'], ['The bot failed', 'The bot did not start; its last lines:', 'ImportError: no pipecatt']]]);
	assert.deepEqual(await texts('localhost', []), [1, [['The bot failed']]], 'it failed in the call');
	assert.deepEqual(await texts('board.local', failed), [0, [['The bot failed']]], 'the log shows no refusal');
	// A simulated call learns its session from the runner.
	location.hostname = '127.0.0.1';
	setGlobal('crypto', { getRandomValues: (words) => words });
	const line = { from: '+1', to: '+2', format: { codec: 'mulaw', rate: 8000 } };
	const call = open({ reply: [200, { wsUrl: 'ws://h/ws' }], failed });
	await call.begin({ transport: 'telephony_a', line });
	call.sockets[0].tell(JSON.stringify({ event: 'edge_runner', session: '17' }));
	call.sockets[0].end(1011, 'the bot failed');
	await settle();
	assert.deepEqual(call.of('problem').at(-1)[0].steps, [['The bot did not start; its last lines:', 'ImportError: no pipecatt']]);
	delete location.hostname;
});

test('an error of the bot is a note, a fatal one the end', async () => {
	const { begin, hear, of, own, problem } = open();
	await begin();
	own.heard();
	hear('error', { error: 'odd' });
	assert.deepEqual(of('note'), [['The bot reports an error', 'odd', true]]);
	assert.equal(of('failed').length, 1, 'what sounds next is no answer');
	hear('error', { error: 'broken', fatal: true });
	assert.deepEqual([own.phase, problem()], ['idle', 'The bot gave up']);
});

test('an error before the bot is ready is a card, until it is ready', async () => {
	const { begin, hear, of, own, problem, sent } = open();
	await begin();
	hear('error', { error: 'The program has not opened its media.', fatal: false });
	assert.equal(problem(), 'The bot is not ready');
	assert.match(of('problem')[0][0].text, /^The program has not opened its media\. The log/);
	clock.pass(10000);
	assert.deepEqual([own.phase, of('solved').length], ['ready', 0], 'it may be talked to, and the card stays');
	hear('bot-ready', {}, { id: sent()[0].id });
	assert.equal(of('solved').length, 1);
	hear('error', { error: 'odd' });
	assert.deepEqual([of('problem').length, of('note').length], [1, 1], 'later errors are notes');
});

test('an interruption drops the sound before the page hears of it', async () => {
	const { begin, hear, of, sound } = open();
	await begin();
	hear('bot-interrupted');
	assert.deepEqual([sound.hushes(), of('interrupted')], [1, [[]]]);
});

test('doubts hold a call until all are gone', async () => {
	const { begin, own, hear, said } = open();
	own.doubt('The runner does not answer', true);
	assert.equal(own.phase, 'idle', 'without a call there is no doubt');
	await begin();
	own.doubt('The runner does not answer', true);
	assert.equal(own.phase, 'waiting');
	hear('bot-ready', {});
	own.doubt('The runner does not answer', true);
	assert.deepEqual([own.phase, said()], ['trouble', 'The runner does not answer; waiting for it']);
	own.doubt('Nothing arrives', true);
	own.doubt('The runner does not answer', false);
	assert.equal(own.phase, 'trouble');
	own.doubt('Nothing arrives', false);
	assert.deepEqual([own.phase, said()], ['ready', 'Connected again']);
});

/** Over WebRTC, up to the open channel. */
async function beginWebrtc(own) {
	const pcs = makePeerConnections();
	own.connect({ transport: 'webrtc' });
	await until(() => pcs.length);
	await settle();
	const open = async () => {
		const { channel } = pcs.at(-1);
		channel.readyState = 'open';
		channel.onopen();
		await settle();
	};
	await open();
	return { pcs, open };
}

test('while a connection is made again, doubts do not end the trouble', async () => {
	const page = open({ reply: [200, { sessionId: '17', sdp: 'v=0', pc_id: 'pc' }] });
	const { pcs, open: connected } = await beginWebrtc(page);
	page.own.heard();
	assert.equal(page.own.phase, 'ready');
	Object.assign(pcs[0], { iceConnectionState: 'failed', connectionState: 'failed' });
	pcs[0].oniceconnectionstatechange();
	assert.deepEqual([page.own.phase, page.said()], ['trouble', 'Connection lost; trying again (1 of 3)']);
	page.own.doubt('x', true);
	page.own.doubt('x', false);
	assert.equal(page.own.phase, 'trouble');
	clock.pass(0);
	await settle();
	await connected();
	assert.deepEqual([page.own.phase, page.said()], ['ready', 'Connected again']);
	page.own.doubt('x', true);
	page.own.doubt('x', false);
	assert.equal(page.own.phase, 'ready', 'and then they do');
});

test('a connection that takes long is explained, and goes on', async () => {
	const page = open({ reply: [200, { sessionId: '17', sdp: 'v=0', pc_id: 'pc' }] });
	const pcs = makePeerConnections();
	page.connect({ transport: 'webrtc' });
	await until(() => pcs.length);
	await settle();
	clock.pass(10000);
	await settle();
	assert.deepEqual([page.own.phase, page.said(), page.problem()], ['connecting', 'Still connecting', 'No network path to the bot']);
	assert.equal(page.of('problem')[0][0].retry, false, 'it is still being tried');
});

test('muting holds from before the call to the next microphone', async () => {
	const { begin, own, sound } = open();
	own.setMuted(true);
	await begin();
	assert.equal(track.enabled, false);
	const first = track;
	own.setMuted(false);
	assert.equal(first.enabled, true);
	own.setMuted(true);
	own.changeMicrophone('m2');
	await settle();
	assert.deepEqual([track !== first, track.enabled, first.readyState, sound.listened.length], [true, false, 'ended', 2]);
});

test('a microphone that is unplugged is replaced by the default', async () => {
	const { begin, sound, own } = open();
	await begin();
	const first = track;
	first.readyState = 'ended';
	first.onended();
	await settle();
	assert.deepEqual([track !== first, sound.listened, own.phase], [true, [first, track], 'waiting']);
});

test('a microphone that cannot be changed leaves the old one; one that is gone leaves none', async () => {
	const { begin, own, problem, of } = open();
	await begin();
	navigator.mediaDevices.getUserMedia = async () => { throw Object.assign(new Error('x'), { name: 'NotReadableError' }); };
	own.changeMicrophone('m2');
	await settle();
	assert.deepEqual([problem(), track.readyState, of('microphone').length, own.phase], ['The microphone is busy', 'live', 1, 'waiting']);
	track.readyState = 'ended';
	track.onended();
	await settle();
	assert.deepEqual([of('microphone').at(-1), own.phase], [[null], 'waiting']);
});

test('a call in a room ends here with the way to it', async () => {
	const { connect, problem, own, of } = open({ reply: [200, { dailyRoom: 'https://r.example/x', dailyToken: 't' }], microphone: () => assert.fail('it asks') });
	await connect({ transport: 'videoroom' });
	assert.deepEqual([problem(), own.phase], ['The bot is on its way into the room', 'idle']);
	assert.equal(of('problem')[0][0].steps[0][1].href, 'https://r.example/x?t=t');
});

test('a room whose answer cannot be used is explained', async () => {
	const { connect, problem } = open({ reply: [200, { dailyRoom: 'no URL' }] });
	await connect({ transport: 'videoroom' });
	assert.equal(problem(), 'The answer cannot be used');
});

test('a transport that this browser lacks is explained before anything is asked', async () => {
	const { connect, problem, requests, own } = open({ microphone: () => assert.fail('it asks') });
	await connect({ transport: 'moq' });
	assert.deepEqual([problem(), requests, own.phase], ['This browser cannot speak MoQ', [], 'idle']);
});

test('a simulated call is ready at once, presses keys, and takes no text', async () => {
	const { begin, own, sockets } = open({ reply: [200, { wsUrl: 'ws://h/ws' }] });
	await begin({ transport: 'telephony_a', line: { from: '1', to: '2', format: { codec: 'mulaw', rate: 8000 } } });
	assert.equal(own.phase, 'ready');
	own.press('5');
	assert.equal(JSON.parse(sockets[0].sent.at(-1)).dtmf.digit, '5');
	assert.equal(own.sendText('x'), false);
	assert.deepEqual(JSON.parse(sockets[0].sent[1]).start.customParameters, { from_number: '1', to_number: '2', a: 1 });
});
