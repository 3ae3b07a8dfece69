// socket.js over a socket in memory: where it connects, what it sends and plays, and how it ends.

import assert from 'node:assert/strict';
import test from 'node:test';
import { listener, makeSockets, makeSound } from './support/browser.mjs';
import { stopClock } from './support/clock.mjs';
import { makeDocument } from './support/dom.mjs';
import { page, settle } from './support/page.mjs';

makeDocument();
const clock = stopClock();
const { audioFrame, joined, messageFrame, readFrame } = await page('frames.js');
const { websocket } = await page('socket.js');
const { botFailed, lostSocket, noSocket } = await page('words.js');

async function call(started = { wsUrl: 'ws://10.0.0.7:7860/ws-client' }, { accepts = true } = {}) {
	const [sound, sockets, { on, told, of }] = [makeSound(), makeSockets(), listener()];
	const own = websocket({ started, context: sound.context, track: 'mic', on });
	own.open();
	await settle();
	const [socket] = sockets;
	if (accepts) socket.accept();
	return { own, sound, socket, sockets, told, of };
}

const pcm = (...samples) => new Uint8Array(Int16Array.from(samples).buffer);
const down = (frame) => frame.slice().buffer;

test('it connects below the page’s own origin, with what /start gave', async () => {
	const addresses = [
		[{ wsUrl: 'ws://10.0.0.7:7860/ws-client' }, 'ws://192.168.1.5:7860/ws-client'],
		[{ wsUrl: 'wss://other.example/ws-client?a=1', sessionId: '17' }, 'ws://192.168.1.5:7860/ws-client?a=1&sessionId=17'],
		[{ wsUrl: 'ws://h/ws-client', sessionId: 'a&b', token: 'x+y' }, 'ws://192.168.1.5:7860/ws-client?sessionId=a%26b&token=x%2By'],
	];
	for (const [started, url] of addresses) assert.equal((await call(started)).socket.url, url);
});

test('an open socket starts the call with the sound of the bot', async () => {
	const { socket, sound, told, of } = await call(undefined, { accepts: false });
	assert.deepEqual(told, []);
	assert.equal(sound.worklet, 'http://192.168.1.5:7860/client/worklet.js');
	assert.deepEqual([sound.listened, sound.rates, socket.binaryType], [['mic'], [16000], 'arraybuffer']);
	socket.accept();
	assert.deepEqual([of('audio'), of('open')], [[['what is played']], [[true]]]);
});

test('the microphone is sent at 16 kHz', async () => {
	const { sound, socket } = await call();
	sound.chunk(Int16Array.of(1, -1));
	assert.deepEqual(readFrame(socket.sent[0]), { rate: 16000, audio: Int16Array.of(1, -1) });
});

test('nothing is sent before the socket is open, nor after its end', async () => {
	const { own, sound, socket } = await call(undefined, { accepts: false });
	sound.chunk(Int16Array.of(1));
	assert.equal(own.send({}), false);
	socket.accept();
	socket.end(1000);
	sound.chunk(Int16Array.of(1));
	assert.deepEqual([socket.sent, own.send({})], [[], false]);
});

test('a slow connection loses sound, and one that takes none for ten seconds is lost', async () => {
	const { sound, socket, of } = await call();
	socket.bufferedAmount = 64000;
	sound.chunk(Int16Array.of(1));
	clock.pass(9990);
	sound.chunk(Int16Array.of(2));
	assert.deepEqual([socket.sent, of('closed')], [[], []]);
	socket.bufferedAmount = 63999;
	sound.chunk(Int16Array.of(3));
	assert.equal(socket.sent.length, 1);
	socket.bufferedAmount = 64000;
	sound.chunk(Int16Array.of(4));
	clock.pass(10000);
	sound.chunk(Int16Array.of(5));
	assert.deepEqual(of('closed'), [], 'exactly ten seconds');
	clock.pass(1);
	sound.chunk(Int16Array.of(6));
	assert.deepEqual(of('closed'), [[lostSocket(), undefined]]);
});

test('messages go both ways', async () => {
	const { own, socket, of } = await call();
	assert.equal(own.send({ type: 'x' }), true);
	assert.deepEqual(JSON.parse(readFrame(socket.sent[0]).message), { type: 'x' });
	socket.tell(down(messageFrame({ label: 'rtvi-ai' })));
	assert.deepEqual(of('message'), [[{ label: 'rtvi-ai' }]]);
});

test('sound of the bot is played at its rate; a rate that cannot be is told once', async () => {
	const { socket, sound, of } = await call();
	for (const rate of [8000, 24000, 44100, 48000, 192000]) socket.tell(down(audioFrame(pcm(rate % 100, 7), rate)));
	assert.deepEqual(sound.played.map(({ rate, audio }) => [rate, ...audio]), [[8000, 0, 7], [24000, 0, 7], [44100, 0, 7], [48000, 0, 7], [192000, 0, 7]]);
	for (const rate of [11026, 11026, 7975, 200000, 0]) socket.tell(down(audioFrame(pcm(1), rate)));
	assert.equal(sound.played.length, 5);
	assert.deepEqual(of('log').map(([, text]) => text), ['sound at 11026 Hz cannot be played', 'sound at 7975 Hz cannot be played', 'sound at 200000 Hz cannot be played', 'sound at 0 Hz cannot be played']);
});

test('an interruption drops what is to be played', async () => {
	const { own, socket, sound } = await call();
	socket.tell(Uint8Array.of(0x2a, 0).buffer);
	own.hush();
	assert.equal(sound.hushes(), 2);
});

test('what cannot be read is logged, and ends nothing', async () => {
	const { socket, of } = await call();
	socket.tell('{"a": 1}');
	socket.tell(Uint8Array.of(0xff).buffer);
	socket.tell(down(joined([0x22, 4, 0x0a, 2], [0x7b, 0x7b])));
	socket.tell(new ArrayBuffer(0));
	assert.deepEqual(of('log').map(([kind, text]) => [kind, text]), [
		['error', 'a text message, which has no place here'], ['error', 'a frame that cannot be read: a frame was cut off'], ['error', 'a message that is not JSON'],
	]);
	assert.deepEqual(of('closed'), []);
});

test('a socket that does not open is explained, at once or after fifteen seconds', async () => {
	const refused = await call(undefined, { accepts: false });
	refused.socket.end(1006);
	assert.deepEqual(refused.of('closed'), [[noSocket(), undefined]]);
	const silent = await call(undefined, { accepts: false });
	clock.pass(14999);
	assert.deepEqual(silent.of('closed'), []);
	clock.pass(1);
	assert.deepEqual([silent.of('closed'), silent.socket.readyState], [[[noSocket(), undefined]], 3]);
	const open = await call();
	clock.pass(60000);
	assert.deepEqual(open.of('closed'), []);
});

test('the code of a close tells how the call ended', async () => {
	const ends = [
		[1000, '', null, 'the bot left'], [1005, '', null, 'the bot left'], [1001, 'the runner is stopping', null, 'the runner is stopping'],
		[1011, 'x', botFailed(), undefined], [1006, '', lostSocket(1006, ''), undefined], [1008, 'policy', lostSocket(1008, 'policy'), undefined],
	];
	for (const [code, reason, problem, said] of ends) {
		const { socket, of } = await call();
		socket.end(code, reason);
		assert.deepEqual(of('closed'), [[problem, said]], String(code));
	}
});

test('a call ends once, and lets go of its sound', async () => {
	const { own, socket, sound, of } = await call();
	own.close();
	own.close();
	socket.end(1006);
	assert.deepEqual([of('closed'), socket.readyState], [[[null, 'you hung up']], 3]);
	assert.ok(sound.nodes.every(({ isOff }) => isOff));
});

test('a call that is given up while its sound is prepared opens no socket', async () => {
	const [sound, sockets, { on, of }] = [makeSound(), makeSockets(), listener()];
	const own = websocket({ started: { wsUrl: 'ws://h/ws-client' }, context: sound.context, track: null, on });
	own.open();
	own.close();
	await settle();
	assert.deepEqual([sockets.length, of('closed').length], [0, 1]);
});

test('a page without worklets is told how to get them', async () => {
	const { on, of } = listener();
	globalThis.fetch = async () => { throw new TypeError('x'); };
	await websocket({ started: {}, context: {}, track: null, on }).open();
	assert.match(of('closed')[0][0].title, /cannot play the sound of a WebSocket/);
});

test('a browser that refuses the worklet or the address is quoted', async () => {
	const [sound, { on, of }] = [makeSound(), listener()];
	makeSockets();
	sound.context.audioWorklet.addModule = async () => { throw new Error('blocked'); };
	await websocket({ started: { wsUrl: 'ws://h/' }, context: sound.context, track: null, on }).open();
	await websocket({ started: { wsUrl: 'no URL' }, context: makeSound().context, track: null, on }).open();
	assert.equal(of('closed').length, 2);
	assert.match(of('closed')[0][0].text, /“blocked”/);
});

test('rates are those since the last look', async () => {
	const { own, sound, socket } = await call();
	clock.pass(1000);
	own.stats();
	sound.chunk(new Int16Array(320));
	socket.tell(down(audioFrame(pcm(...Array(480).fill(0)), 24000)));
	clock.pass(1000);
	const { rate, rateOut } = own.stats();
	assert.deepEqual([rate, rateOut], [audioFrame(new Uint8Array(960), 24000).length * 8 / 1000, audioFrame(new Uint8Array(640), 16000).length * 8 / 1000]);
	clock.pass(1000);
	assert.deepEqual(own.stats(), { rate: 0, rateOut: 0 });
});

test('another microphone takes the place of the first', async () => {
	const { own, sound } = await call();
	own.setTrack('other');
	own.setTrack(null);
	assert.deepEqual(sound.listened, ['mic', 'other']);
});
