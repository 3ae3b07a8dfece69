// moq.js against a bot in memory: the connection and each way that it fails, the catalog, sound, the log of messages, and the end.

import assert from 'node:assert/strict';
import test from 'node:test';
import { constants, deflateRawSync, inflateRawSync } from 'node:zlib';
import { listener, makeSound } from './support/browser.mjs';
import { stopClock } from './support/clock.mjs';
import { makeDocument } from './support/dom.mjs';
import { page, setGlobal, settle, until } from './support/page.mjs';
import { makeTransport, read } from './support/transport.mjs';

makeDocument();
setGlobal('WebTransportError', class extends Error {});
const clock = stopClock();
const { moq } = await page('moq.js');
const { reader, varint } = await page('moq-lite.js');
const { lostMoq, noBroadcast, noMoq, otherMoq } = await page('words.js');

const bytes = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const sized = (...parts) => bytes(varint(bytes(...parts).length), ...parts);
const text = (string) => sized(Buffer.from(string));
const group = (id, sequence, ...frames) => bytes([0], sized(varint(id), varint(sequence)), ...frames.map((frame) => sized(frame)));

const STARTED = {
	relayUrl: 'https://localhost:4443/moq/token', serve: true, namespace: 'room', clientId: 'request', botId: 'response', transcriptTrack: 'transcript.json.z',
};

/** A call whose transport is in memory; `url` and `options` are those of the constructor. */
async function call({ started = STARTED, ready = Promise.resolve(), protocol = 'moq-lite-04' } = {}) {
	const [sound, { on, told, of }, memory] = [makeSound(), listener(), makeTransport()];
	const own = { isClosed: false };
	const codecs = { encoded: [], decoded: [] };
	let ends;
	setGlobal('WebTransport', class {
		constructor(url, options) {
			Object.assign(own, { url: String(url), options, session: this });
			Object.assign(this, memory.transport, { ready, protocol, closed: new Promise((done, fail) => { ends = { done, fail }; }) });
			this.closed.catch(() => {});
		}

		close() { own.isClosed = true; }
	});
	setGlobal('AudioEncoder', class {
		constructor(handlers) {
			Object.assign(this, handlers);
			codecs.encoder = this;
		}
		configure() { this.state = 'configured'; }
		encode({ data }) { this.output({ byteLength: 2, copyTo: (to) => to.set([0xab, data[0]]) }); }
		close() { this.state = 'closed'; }
	});
	setGlobal('AudioDecoder', class {
		constructor(handlers) {
			Object.assign(this, handlers);
			codecs.decoder = this;
		}
		configure(config) { Object.assign(this, { config, state: 'configured' }); }
		decode({ timestamp, data }) { codecs.decoded.push([timestamp, ...data]); }
		close() { this.state = 'closed'; }
	});
	setGlobal('AudioData', class {
		constructor(about) { Object.assign(this, about); }
		close() {}
	});
	setGlobal('EncodedAudioChunk', class { constructor(about) { Object.assign(this, about); } });
	const client = moq({ started: { moq: started }, context: sound.context, track: 'mic', on });
	client.open();
	await settle();
	const requests = () => memory.opened.slice(1);
	return {
		client, sound, told, of, own, codecs, memory,
		end: (how, value) => ends[how](value),
		/** The bot announces a broadcast, or takes it back. */
		async announce(isActive = true, name = 'response') {
			own.announcements ??= memory.opened[0].writable.getWriter();
			await own.announcements.write(sized([Number(isActive)], text(name), [0]));
			await settle();
		},
		/** The names that the page subscribed to, with their ids. */
		async subscribed() {
			own.tracks ??= new Map();
			for (const { readable } of requests()) {
				const all = reader(Uint8Array.from(await read(readable)));
				if (await all.ended()) continue;
				await all.number();
				const message = await all.message();
				const id = await message.number();
				assert.equal(await message.text(), 'room/response');
				own.tracks.set(await message.text(), id);
			}
			return own.tracks;
		},
		/** The bot sends a group of a track. */
		async give(track, sequence, ...frames) {
			const writer = memory.openUni();
			writer.write(group(own.tracks.get(track), sequence, ...frames));
			writer.close();
			await settle();
		},
		/** Subscribes to a track of the page; returns its bytes later. */
		async take(track, id = 7) {
			const { writable, readable } = memory.open();
			const writer = writable.getWriter();
			await writer.write(bytes([2], sized(varint(id), text('room/request'), text(track), [1, 1], varint(500), [0, 0])));
			await settle();
			return { writer, readable };
		},
	};
}

const catalog = (renditions) => Buffer.from(JSON.stringify({ audio: { renditions } }));
const OPUS = { 'bot-audio': { codec: 'opus', numberOfChannels: 1 } };

/** A call that has begun. */
async function begun(more) {
	const own = await call(more);
	await own.announce();
	await own.subscribed();
	return own;
}

// ---- the connection

test('the session is opened for speech, with the hash of the certificate', async () => {
	const { own } = await call({ started: { ...STARTED, certHash: 'AAEC' } });
	assert.equal(own.url, 'https://192.168.1.5:4443/moq/token', 'the runner does not know its own name');
	assert.deepEqual(own.options, {
		protocols: ['moq-lite-04'], congestionControl: 'low-latency', serverCertificateHashes: [{ algorithm: 'sha-256', value: Uint8Array.of(0, 1, 2) }],
	});
	const relay = await call({ started: { ...STARTED, serve: false } });
	assert.equal(relay.own.url, 'https://localhost:4443/moq/token', 'a relay was named by the operator');
	assert.ok(!('serverCertificateHashes' in relay.own.options));
});

test('a refusal at once and a silence are told apart', async () => {
	const url = new URL('https://192.168.1.5:4443/moq/token');
	let fail;
	const failing = () => new Promise((_, reject) => { fail = reject; });
	const quick = await call({ ready: failing() });
	fail(new Error('x'));
	await settle();
	assert.deepEqual(quick.of('closed'), [[noMoq(url, { serve: true, silent: false, hash: undefined }), undefined]]);
	const slow = await call({ ready: failing() });
	clock.pass(3501);
	fail(new Error('x'));
	await settle();
	assert.deepEqual(slow.of('closed'), [[noMoq(url, { serve: true, silent: true, hash: undefined }), undefined]]);
});

test('a server without the version, and a browser without the means, are explained', async () => {
	const { of } = await call({ protocol: 'moqt-16' });
	assert.deepEqual(of('closed'), [[otherMoq('moq-lite-04'), undefined]]);
	const wrong = await call({ started: { ...STARTED, relayUrl: 'no URL' } });
	assert.match(wrong.of('closed')[0][0].title, /refuses to connect/);
	const none = await call({ started: {} });
	assert.equal(none.of('closed').length, 1);
});

test('a bot that does not appear within fifteen seconds is missed', async () => {
	const { of, announce } = await call();
	await announce(true, 'another');
	clock.pass(14999);
	assert.deepEqual(of('closed'), []);
	clock.pass(1);
	assert.deepEqual(of('closed'), [[noBroadcast('192.168.1.5:4443'), undefined]]);
});

test('a bot that appears is met once, and its tracks are subscribed to', async () => {
	const { announce, subscribed, of } = await call();
	await announce();
	await announce();
	assert.deepEqual([of('open'), of('ids'), of('audio')], [[[true]], [[{ namespace: 'room' }]], [['what is played']]]);
	assert.deepEqual([...await subscribed()], [['catalog.json', 0], ['transcript.json.z', 1]]);
	clock.pass(60000);
	assert.deepEqual(of('closed'), []);
});

test('a bot that takes its broadcast back has left', async () => {
	const { announce, of, own } = await begun();
	await announce(false, 'another');
	assert.deepEqual(of('closed'), []);
	await announce(false);
	assert.deepEqual([of('closed'), own.isClosed], [[[null, 'the bot left']], true]);
});

test('the end of the session has its reason, and a failure its error', async () => {
	const closed = await begun();
	closed.end('done', { reason: 'the runner is stopping' });
	await settle();
	assert.deepEqual(closed.of('closed'), [[null, 'the runner is stopping']]);
	const failed = await begun();
	const error = new Error('timed out');
	failed.end('fail', error);
	await settle();
	assert.deepEqual(failed.of('closed'), [[lostMoq(error), undefined]]);
});

// ---- sound

test('the bot’s sound is played in order, once its catalog came', async () => {
	const { give, subscribed, codecs } = await begun();
	await give('catalog.json', 0, catalog(OPUS));
	assert.equal((await subscribed()).get('bot-audio'), 2);
	assert.equal(codecs.decoder.config.numberOfChannels, 1);
	await give('bot-audio', 5, bytes(varint(100000), [1]));
	await give('bot-audio', 7, bytes(varint(140000), [3]));
	await give('bot-audio', 6, bytes(varint(120000), [2]));
	assert.deepEqual(codecs.decoded, [[100000, 1], [120000, 2], [140000, 3]]);
});

test('a catalog that comes in patches is put together', async () => {
	const { give, subscribed, codecs } = await begun();
	await give('catalog.json', 0, Buffer.from('{"audio": {"renditions": {}}, "x": {"y": 1}}'),
		Buffer.from('{"x": null}'), catalog({ other: { codec: 'opus', numberOfChannels: 2 } }));
	assert.ok((await subscribed()).has('other'));
	assert.equal(codecs.decoder.config.numberOfChannels, 2);
	await give('catalog.json', 1, catalog(OPUS));
	assert.ok(!(await subscribed()).has('bot-audio'), 'a second sound is not played beside the first');
});

test('a rendition that does not say it has one channel', async () => {
	const { give, codecs } = await begun();
	await give('catalog.json', 0, catalog({ voice: { codec: 'opus' } }));
	assert.equal(codecs.decoder.config.numberOfChannels, 1);
});

test('a catalog without Opus plays nothing, and a broken one is logged', async () => {
	const { give, subscribed, of } = await begun();
	for (const odd of [catalog({ a: { codec: 'mp4a.40.2' } }), catalog({}), Buffer.from('{}'), Buffer.from('null'), Buffer.from('[1]')]) await give('catalog.json', 0, odd);
	assert.deepEqual([...await subscribed()].length, 2);
	assert.deepEqual(of('log').filter(([kind]) => kind === 'error'), []);
	await give('catalog.json', 1, Buffer.from('{'));
	assert.equal(of('log').filter(([kind]) => kind === 'error').length, 1);
	assert.deepEqual(of('closed'), []);
});

test('the microphone is sent to those that listen, a packet in each group', async () => {
	const { sound, take, memory, codecs } = await begun();
	sound.chunk(Int16Array.of(1));
	assert.equal(memory.sent.length, 0, 'no one listens');
	const { writer } = await take('audio/data', 9);
	sound.context.currentTime = 1;
	sound.chunk(Int16Array.of(2));
	sound.chunk(Int16Array.of(3));
	await settle();
	assert.deepEqual([...await read(memory.sent[0])], [...group(9, 0, bytes(varint(1000000), [0xab, 2]))]);
	assert.deepEqual([...await read(memory.sent[1])], [...group(9, 1, bytes(varint(1020000), [0xab, 3]))]);
	await writer.close();
	await settle();
	sound.chunk(Int16Array.of(4));
	assert.equal(memory.sent.length, 2);
	assert.equal(codecs.encoder.state, 'configured');
});

test('an encoder that fails ends the call', async () => {
	const { codecs, of } = await begun();
	codecs.encoder.error(new Error('no encoder'));
	await settle();
	assert.match(of('closed')[0][0].text, /“no encoder”.*cannot encode/);
});

test('a runner that takes no sound for ten seconds is lost', async () => {
	const { sound, take, own, of } = await begun();
	await take('audio/data', 9);
	let asked = 0;
	own.session.createUnidirectionalStream = () => {
		asked += 1;
		return new Promise(() => {});
	};
	for (let packet = 0; packet < 60; packet++) sound.chunk(Int16Array.of(1));
	assert.equal(asked, 51, 'newer packets are dropped');
	clock.pass(10000);
	sound.chunk(Int16Array.of(1));
	assert.deepEqual(of('closed'), []);
	clock.pass(1);
	sound.chunk(Int16Array.of(1));
	assert.deepEqual(of('closed'), [[lostMoq(), undefined]]);
});

test('the catalog of the page is one rendition of Opus', async () => {
	const { take, memory } = await begun();
	await take('catalog.json', 3);
	const all = reader(Uint8Array.from(await read(memory.sent[0])));
	assert.equal(await all.number(), 0);
	assert.deepEqual([...(await all.message()).rest()], [3, 0]);
	const { audio: { renditions } } = JSON.parse(Buffer.from(await all.sized()).toString());
	assert.deepEqual(renditions, { 'audio/data': { codec: 'opus', sampleRate: 48000, numberOfChannels: 1, bitrate: 32000, container: { kind: 'legacy' }, jitter: 20 } });
});

// ---- messages

const FLUSHED = [0, 0, 255, 255];

/** A record as a runner sends it: deflated, without the end of its flush. */
const record = (message) => deflateRawSync(JSON.stringify(message), { finishFlush: constants.Z_SYNC_FLUSH }).subarray(0, -4);

test('messages of the bot are inflated, without their numbers', async () => {
	const { give, of } = await begun();
	await give('transcript.json.z', 0, record({ label: 'rtvi-ai', type: 'a', seq: 1, epoch: 'x' }));
	await until(() => of('message').length);
	assert.deepEqual(of('message'), [[{ label: 'rtvi-ai', type: 'a' }]]);
});

test('a message is taken apart from the next one by its own end', async () => {
	const { memory, own, of } = await begun();
	const stream = memory.openUni();
	const all = bytes(...['{"n":1}', '{"n":{"m":"}{"}}', `{"n":"${'x'.repeat(100000)}"}`].map((text) => {
		// Stored blocks, as the page writes them.
		const parts = [];
		const data = Buffer.from(text);
		for (let at = 0; at < data.length; at += 65535) {
			const block = data.subarray(at, at + 65535);
			parts.push(Buffer.from([0, block.length & 255, block.length >> 8, ~block.length & 255, (~block.length >> 8) & 255]), block);
		}
		return sized(bytes(...parts, [0]));
	}));
	stream.write(bytes([0], sized(varint(own.tracks.get('transcript.json.z')), [0]), all));
	await until(() => of('message').length === 3);
	assert.deepEqual(of('message').map(([{ n }]) => (typeof n === 'string' ? n.length : n)), [1, { m: '}{' }, 100000]);
});

test('a log that is no DEFLATE, and one without end, end the call', async () => {
	const broken = await begun();
	await broken.give('transcript.json.z', 0, Buffer.from([0xff, 0xff, 0xff]));
	await until(() => broken.of('closed').length);
	assert.match(broken.of('closed')[0][0].title, /connection was lost/);
	const endless = await begun();
	await endless.give('transcript.json.z', 0, record('x'.repeat(1024 * 1024)));
	await until(() => endless.of('closed').length);
	assert.match(endless.of('closed')[0][0].text, /a record is too long/);
});

test('what a user says and an interruption drop the sound, and the bot’s goodbye ends the call', async () => {
	const { give, sound, of } = await begun();
	for (const type of ['user-started-speaking', 'bot-interrupted', 'user-stopped-speaking']) {
		await give('transcript.json.z', 0, record({ label: 'moq-transport', type: 'unknown' }), record({ label: 'rtvi-ai', type }));
	}
	await until(() => of('message').length === 3);
	assert.deepEqual([sound.hushes(), of('message').map(([{ type }]) => type)], [2, ['user-started-speaking', 'bot-interrupted', 'user-stopped-speaking']]);
	await give('transcript.json.z', 0, record({ label: 'moq-transport', type: 'session-ending' }));
	await until(() => of('closed').length);
	assert.deepEqual(of('closed'), [[null, 'the bot left']]);
});

test('messages of the page are a log that inflates, for readers of any time', async () => {
	const { client, take, memory } = await begun();
	assert.equal(client.send({ n: 1 }), true);
	await take('transcript.json.z', 4);
	client.send({ n: 2 });
	const long = { text: 'ü'.repeat(70000) };
	client.send(long);
	await settle();
	const all = reader(Uint8Array.from(await read(memory.sent[0])));
	await all.number();
	assert.deepEqual([...(await all.message()).rest()], [4, 0]);
	const frames = [];
	while (!(await all.ended())) frames.push(Buffer.concat([await all.sized(), Buffer.from(FLUSHED)]));
	assert.equal(frames.length, 3);
	const plain = inflateRawSync(Buffer.concat(frames), { finishFlush: constants.Z_SYNC_FLUSH }).toString();
	assert.equal(plain, `{"n":1}{"n":2}${JSON.stringify(long)}`);
});

test('nothing is sent before the bot is there, nor after the end', async () => {
	const early = await call();
	assert.equal(early.client.send({}), false);
	const { client } = await begun();
	client.close();
	assert.equal(client.send({}), false);
});

// ---- the end

test('behind a relay the page says goodbye before it goes', async () => {
	const { client, own, of, take, memory } = await begun({ started: { ...STARTED, serve: false } });
	await take('transcript.json.z', 4);
	client.close();
	await settle();
	assert.deepEqual([of('closed'), own.isClosed], [[[null, 'you hung up']], false]);
	const sent = (await read(memory.sent[0])).toString();
	assert.ok(sent.includes('"type":"session-ending"'), sent);
	clock.pass(250);
	assert.equal(own.isClosed, true);
	const direct = await begun();
	direct.client.close();
	assert.equal(direct.own.isClosed, true, 'a runner sees the end of the session itself');
});

test('a call ends once, and lets go of sound and codecs', async () => {
	const { client, of, sound, codecs, give } = await begun();
	await give('catalog.json', 0, catalog(OPUS));
	client.close();
	client.close();
	assert.equal(of('closed').length, 1);
	assert.deepEqual([codecs.encoder.state, codecs.decoder.state], ['closed', 'closed']);
	assert.ok(sound.nodes.every(({ isOff }) => isOff));
});

test('figures are those since the last look', async () => {
	const { client, give, subscribed } = await begun();
	await give('catalog.json', 0, catalog(OPUS));
	await subscribed();
	clock.pass(1000);
	client.stats();
	for (const sequence of [1, 2, 4]) await give('bot-audio', sequence, bytes(varint(100), [1, 2, 3]));
	clock.pass(1000);
	const { loss, rate } = client.stats();
	assert.deepEqual([loss, rate], [25, 3 * 5 * 8 / 1000]);
	clock.pass(1000);
	assert.deepEqual(client.stats(), { loss: null, lossOut: null, rate: 0, rateOut: 0 });
});
