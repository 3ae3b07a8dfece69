// phone.js over a socket in memory: a simulated call in the words of each provider, in the time of a telephone line.

import assert from 'node:assert/strict';
import test from 'node:test';
import { listener, makeSockets, makeSound } from './support/browser.mjs';
import { stopClock } from './support/clock.mjs';
import { makeDocument } from './support/dom.mjs';
import { page, settle } from './support/page.mjs';

makeDocument();
const clock = stopClock();
const { base64, CODECS } = await page('g711.js');
const { phone } = await page('phone.js');
const { PROVIDERS } = await page('providers.js');
const { botFailed, lostSocket, noSocket, refusedCall } = await page('words.js');

const ALL = Object.keys(PROVIDERS);
const [TWILIO, TELNYX, PLIVO, EXOTEL] = ALL;

async function call(transport, { codec = 0, started = { wsUrl: 'ws://h/ws' }, accepts = true } = {}) {
	const [sound, sockets, { on, told, of }] = [makeSound(), makeSockets(), listener()];
	const line = { from: '+15550001111', to: '+15550002222', format: PROVIDERS[transport].codecs[codec][1] };
	const own = phone(transport)({ started, context: sound.context, track: 'mic', line, parameters: { language: 'en' }, on });
	own.open();
	await settle();
	const [socket] = sockets;
	if (accepts) socket.accept();
	return {
		own, sound, socket, sockets, told, of,
		sent: (event) => socket.sent.map((text) => JSON.parse(text)).filter((message) => !event || message.event === event),
		tell: (message) => socket.tell(JSON.stringify(message)),
	};
}

/** A message of the runner with sound at its rate. */
const media = (transport, samples) => ({
	event: transport === PLIVO ? 'playAudio' : 'media',
	media: { payload: base64(CODECS[transport === EXOTEL ? 'pcm' : 'mulaw'].encode(Int16Array.from(samples))) },
});

test('the token of /start is in the path', async () => {
	assert.equal((await call(TWILIO)).socket.url, 'ws://192.168.1.5:7860/ws');
	assert.equal((await call(TWILIO, { started: { wsUrl: 'wss://other.example/ws', token: 'a.b' } })).socket.url, 'ws://192.168.1.5:7860/ws/a.b');
	assert.equal((await call(TWILIO, { started: { wsUrl: 'wss://other.example/ws/', token: 'a.b' } })).socket.url, 'ws://192.168.1.5:7860/ws/a.b');
});

test('a call begins with its provider’s messages, under ids that tell that it is simulated', async () => {
	for (const transport of ALL) {
		const { sent, of } = await call(transport);
		const [[{ call: id, stream }]] = of('ids');
		assert.match(id, /^simulated-[0-9a-f]{32}$/);
		assert.match(stream, /^[0-9a-f]{32}$/);
		const format = PROVIDERS[transport].codecs[0][1];
		const opening = PROVIDERS[transport].opening({ stream, call: id, from: '+15550001111', to: '+15550002222', parameters: { language: 'en' }, format });
		assert.deepEqual(sent(), JSON.parse(JSON.stringify(opening)));
		assert.ok(['+15550001111', '+15550002222'].every((number) => JSON.stringify(sent()).includes(number)), 'the runner gets the numbers');
		assert.deepEqual([of('open'), of('audio')], [[[true]], [['what is played']]]);
	}
});

test('sound is encoded, numbered and timed', async () => {
	for (const transport of [TWILIO, TELNYX, PLIVO]) {
		for (const codec of PROVIDERS[transport].codecs.keys()) {
			const { sound, sent } = await call(transport, { codec });
			const format = PROVIDERS[transport].codecs[codec][1];
			assert.deepEqual(sound.rates, [format.rate]);
			const samples = Int16Array.of(0, 1000, -1000, 32767);
			for (let nth = 0; nth < 3; nth++) sound.chunk(samples);
			const frames = sent('media');
			assert.deepEqual(frames.map((frame) => frame.media.payload), Array(3).fill(base64(CODECS[format.codec].encode(samples))));
			assert.deepEqual(frames.map((frame) => Number(frame.media.chunk)), [1, 2, 3]);
			assert.deepEqual(frames.map((frame) => Number(frame.sequenceNumber ?? frame.sequence_number)), [2, 3, 4]);
			if (transport !== PLIVO) assert.deepEqual(frames.map((frame) => frame.media.timestamp), ['0', '20', '40']);
		}
	}
});

test('exotel sends five frames at once', async () => {
	const { sound, sent } = await call(EXOTEL);
	for (let nth = 0; nth < 14; nth++) sound.chunk(Int16Array.of(nth));
	const frames = sent('media');
	assert.deepEqual(frames.map((frame) => frame.media.payload), [base64(CODECS.pcm.encode(Int16Array.of(0, 1, 2, 3, 4))), base64(CODECS.pcm.encode(Int16Array.of(5, 6, 7, 8, 9)))]);
	assert.deepEqual(frames.map((frame) => frame.media.timestamp), ['0', '100']);
});

test('nothing is sent before the call began or after its end', async () => {
	const { own, sound, socket } = await call(TWILIO, { accepts: false });
	sound.chunk(Int16Array.of(1));
	assert.equal(own.press('1'), false);
	assert.deepEqual(socket.sent, []);
	socket.accept();
	own.close();
	const before = socket.sent.length;
	sound.chunk(Int16Array.of(1));
	assert.equal(socket.sent.length, before);
});

test('a line that takes no sound for ten seconds is lost', async () => {
	const { sound, socket, of, sent } = await call(TWILIO);
	socket.bufferedAmount = 100001;
	sound.chunk(Int16Array.of(1));
	clock.pass(10000);
	sound.chunk(Int16Array.of(1));
	assert.deepEqual([sent('media'), of('closed')], [[], []]);
	clock.pass(1);
	sound.chunk(Int16Array.of(1));
	assert.deepEqual(of('closed'), [[lostSocket(), undefined]]);
});

test('sound of the runner is played at the rate of the line', async () => {
	for (const transport of ALL) {
		const last = PROVIDERS[transport].codecs.length - 1;
		const { tell, sound } = await call(transport, { codec: last });
		tell(media(transport, [0, 8, -8]));
		const [{ rate, audio }] = sound.played;
		assert.equal(rate, transport === EXOTEL ? 24000 : 8000);
		assert.deepEqual([...audio], [0, 8, -8]);
	}
});

test('a mark returns when the sound before it was played', async () => {
	const { tell, sent } = await call(TWILIO);
	tell(media(TWILIO, Array(8000).fill(0)));
	tell({ event: 'mark', mark: { name: 'm-1' } });
	tell(media(TWILIO, Array(4000).fill(0)));
	tell({ event: 'mark', mark: { name: 'm-2' } });
	clock.pass(999);
	assert.deepEqual(sent('mark'), []);
	clock.pass(1);
	assert.deepEqual(sent('mark').map(({ mark }) => mark.name), ['m-1']);
	clock.pass(500);
	assert.deepEqual(sent('mark').map(({ mark }) => mark.name), ['m-1', 'm-2']);
	tell({ event: 'mark', mark: { name: 'm-3' } });
	clock.pass(0);
	assert.deepEqual(sent('mark').map(({ mark }) => mark.name), ['m-1', 'm-2', 'm-3'], 'at once without sound');
});

test('an interruption drops the sound; twilio returns its marks at once, others not at all', async () => {
	for (const transport of [TWILIO, TELNYX]) {
		const { tell, sent, sound } = await call(transport);
		tell(media(transport, Array(16000).fill(0)));
		tell({ event: 'mark', mark: { name: 'm-1' } });
		clock.pass(100);
		tell({ event: 'clear' });
		assert.equal(sound.hushes(), 1);
		const names = () => sent('mark').map(({ mark }) => mark.name);
		assert.deepEqual(names(), transport === TWILIO ? ['m-1'] : []);
		clock.pass(5000);
		assert.equal(names().length, transport === TWILIO ? 1 : 0);
		tell(media(transport, Array(800).fill(0)));
		tell({ event: 'mark', mark: { name: 'm-2' } });
		clock.pass(100);
		assert.equal(names().at(-1), 'm-2', 'what comes after it is played from its beginning');
	}
});

test('plivo and exotel have their own words for marks and interruptions', async () => {
	const plivo = await call(PLIVO);
	plivo.tell({ event: 'checkpoint', streamId: 'x', name: 'm-1' });
	clock.pass(0);
	assert.deepEqual(plivo.sent('playedStream').map(({ name }) => name), ['m-1']);
	plivo.tell({ event: 'clearAudio' });
	assert.equal(plivo.sound.hushes(), 1);
	const exotel = await call(EXOTEL);
	exotel.tell({ event: 'mark', mark: { name: 7 } });
	clock.pass(0);
	assert.deepEqual(exotel.sent('mark').map(({ mark }) => mark.name), ['7']);
});

test('keys are pressed, and text cannot be sent', async () => {
	const { own, sent } = await call(TWILIO);
	assert.equal(own.press('5'), true);
	assert.equal(own.press('#'), true);
	assert.deepEqual(sent('dtmf').map(({ dtmf, sequenceNumber }) => [dtmf.digit, sequenceNumber]), [['5', '2'], ['#', '3']]);
	assert.equal(own.send({ type: 'send-text' }), false);
});

test('what the bot does with the call is told', async () => {
	const { tell, of } = await call(TWILIO);
	tell({ event: 'edge_runner', transfer: '+1555' });
	tell({ event: 'edge_runner', keys: '12#' });
	assert.deepEqual(of('note'), [['The bot transfers the call', 'to +1555. A real call would go on there; this one ends here.'], ['The bot presses keys', '12#']]);
});

test('a call learns which session it is', async () => {
	const { tell, of } = await call(TWILIO);
	const [before] = of('ids').at(-1);
	tell({ event: 'edge_runner', session: '17' });
	assert.deepEqual(of('ids').at(-1), [{ ...before, session: '17' }]);
});

test('messages that are broken or unknown are logged, and end nothing', async () => {
	const { tell, socket, of, sound } = await call(TWILIO);
	socket.tell('{');
	tell({ event: 'media', media: { payload: '!' } });
	tell({ event: 'new' });
	tell({});
	assert.deepEqual(of('log').filter(([kind]) => kind !== 'sent').map(([, text]) => text), ['a message that is not JSON', 'audio that is not base64', 'new', 'undefined']);
	assert.deepEqual([of('closed'), sound.played], [[], []]);
});

test('JSON that is no object is logged, and ends nothing', async () => {
	const { tell, of } = await call(TWILIO);
	for (const odd of [null, 5, 'text', [], true]) tell(odd);
	assert.equal(of('log').filter(([kind]) => kind !== 'sent').length, 5);
	assert.deepEqual(of('closed'), []);
});

test('rates are those since the last look', async () => {
	const { own, sound, tell, socket } = await call(TWILIO);
	clock.pass(1000);
	own.stats();
	const before = socket.sent.length;
	sound.chunk(new Int16Array(160));
	const message = media(TWILIO, Array(160).fill(0));
	tell(message);
	clock.pass(1000);
	assert.deepEqual(own.stats(), { rate: JSON.stringify(message).length * 8 / 1000, rateOut: socket.sent[before].length * 8 / 1000 });
	clock.pass(1000);
	assert.deepEqual(own.stats(), { rate: 0, rateOut: 0 });
});

test('a page without worklets is told how to get them, and offers no call without a microphone', async () => {
	const { on, of } = listener();
	globalThis.fetch = async () => { throw new TypeError('x'); };
	const line = { from: '', to: '', format: PROVIDERS[TWILIO].codecs[0][1] };
	await phone(TWILIO)({ started: {}, context: {}, track: null, line, parameters: {}, on }).open();
	const [[{ title, listen }]] = of('closed');
	assert.deepEqual([title, listen], ['This page cannot play the sound of a call', false]);
});

test('the end of a call is told to the runner and to the user', async () => {
	for (const transport of ALL) {
		const { own, socket, sent, of } = await call(transport);
		own.close();
		assert.deepEqual([sent().at(-1).event, socket.readyState, of('closed')], ['stop', 3, [[null, 'you hung up']]]);
	}
	const unopened = await call(TWILIO, { accepts: false });
	unopened.own.close();
	assert.deepEqual(unopened.socket.sent, []);
});

test('marks that wait at the end are not sent later', async () => {
	const { own, tell, socket } = await call(TWILIO);
	tell(media(TWILIO, Array(8000).fill(0)));
	tell({ event: 'mark', mark: { name: 'm' } });
	own.close();
	const before = socket.sent.length;
	clock.pass(5000);
	assert.equal(socket.sent.length, before);
});

test('the code of a close tells how the call ended', async () => {
	const ends = [
		[1000, '', null, 'the bot hung up'], [1001, 'stopping', null, 'stopping'], [1008, 'no proof', refusedCall('no proof'), undefined],
		[1011, '', botFailed(), undefined], [1006, '', lostSocket(1006, ''), undefined],
	];
	for (const [code, reason, problem, said] of ends) {
		const { socket, of } = await call(TWILIO);
		socket.end(code, reason);
		assert.deepEqual(of('closed'), [[problem, said]], String(code));
	}
	const passed = await call(TWILIO);
	passed.tell({ event: 'edge_runner', transfer: '+1555' });
	passed.socket.end(1000, '');
	assert.deepEqual(passed.of('closed'), [[null, 'the bot transferred it']]);
	const refused = await call(TWILIO, { accepts: false });
	refused.socket.end(1006);
	assert.deepEqual(refused.of('closed'), [[noSocket(), undefined]]);
});
