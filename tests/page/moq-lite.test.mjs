// moq-lite.js over streams in memory: what it writes, byte for byte, and what it does with the bytes of a peer. Sources: RFC 9000,
// section 16 and appendix A.1, and draft-lcurley-moq-lite-04.

import assert from 'node:assert/strict';
import test from 'node:test';
import { page, setGlobal, settle } from './support/page.mjs';
import { makeTransport, read } from './support/transport.mjs';

setGlobal('WebTransportError', class extends Error {});
const { moqLite, reader, varint, VERSION } = await page('moq-lite.js');

const utf8 = (string) => Buffer.from(string);
const bytes = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const sized = (...parts) => bytes(varint(bytes(...parts).length), ...parts);
const text = (string) => sized(utf8(string));

// ---- integers

test('integers have the lengths and bytes of RFC 9000', () => {
	assert.deepEqual([...varint(37)], [0x25]);
	assert.deepEqual([...varint(15293)], [0x7b, 0xbd]);
	assert.deepEqual([...varint(494878333)], [0x9d, 0x7f, 0x3e, 0x7d]);
	assert.deepEqual([...varint(Number.MAX_SAFE_INTEGER)], [0xc0, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
	const lengths = [0, 63, 64, 16383, 16384, 2 ** 30 - 1, 2 ** 30, 2 ** 40].map((value) => varint(value).length);
	assert.deepEqual(lengths, [1, 1, 2, 2, 4, 4, 8, 8]);
});

test('integers are read at their first and last value of each length', async () => {
	for (const value of [0, 1, 63, 64, 255, 256, 16383, 16384, 2 ** 30 - 1, 2 ** 30, 2 ** 32, 2 ** 40 + 1, Number.MAX_SAFE_INTEGER]) {
		assert.equal(await reader(varint(value)).number(), value);
	}
	// Twice as long as needed, which RFC 9000 allows.
	assert.equal(await reader(Uint8Array.of(0x40, 0x25)).number(), 37);
	assert.equal(await reader(Uint8Array.of(0x9d, 0x7f, 0x3e, 0x7d)).number(), 494878333);
});

// ---- the reader

/** A stream of these bytes in pieces of one size. */
const inPieces = (all, size) => new ReadableStream({
	start(controller) {
		for (let at = 0; at < all.length; at += size) controller.enqueue(all.subarray(at, at + size));
		controller.close();
	},
});

test('a stream is read in pieces of any size', async () => {
	const all = bytes(varint(70000), text('namespace/ü'), sized(sized([1, 2, 3]), [4]), [9, 8]);
	for (let size = 1; size <= all.length; size++) {
		const stream = reader(inPieces(all, size));
		assert.equal(await stream.number(), 70000);
		assert.equal(await stream.text(), 'namespace/ü');
		const message = await stream.message();
		assert.deepEqual([...await message.sized()], [1, 2, 3]);
		assert.deepEqual([...message.rest()], [4]);
		assert.equal(await stream.ended(), false);
		assert.deepEqual([...await stream.take(2)], [9, 8]);
		assert.equal(await stream.ended(), true);
		assert.equal(await stream.ended(), true);
	}
});

test('a stream that is cut off throws, whatever is read', async () => {
	const cut = [
		[[], 'number'], [[0x40], 'number'], [[0xc0, 1, 2], 'number'], [[5, 1, 2], 'sized'], [[3, 0x61], 'text'], [[9], 'message'],
	];
	for (const [all, read] of cut) {
		await assert.rejects(reader(Uint8Array.from(all))[read](), { name: 'RangeError', message: 'a stream was cut off' }, read);
		await assert.rejects(reader(inPieces(Uint8Array.from(all), 1))[read](), { name: 'RangeError', message: 'a stream was cut off' }, read);
	}
});

test('no message above half a megabyte is waited for', async () => {
	const most = 512 * 1024;
	const stream = reader(new ReadableStream({ start: (controller) => controller.enqueue(varint(most + 1)) }));
	await assert.rejects(stream.sized(), { name: 'RangeError', message: `${most + 1} bytes at once` });
	await assert.rejects(reader(varint(2 ** 52)).message(), RangeError);
	const whole = bytes(varint(most), new Uint8Array(most).fill(7));
	assert.equal((await reader(inPieces(whole, 100000)).sized()).length, most);
});

// ---- a session

/** A session, with functions that act for the other side. */
function connect(tracks = new Map()) {
	const errors = [];
	const { transport, opened, sent, open, openUni } = makeTransport();
	const lite = moqLite(transport, { path: 'room/client', tracks, log: (why) => errors.push(why) });
	return {
		lite,
		errors,
		opened,
		sent,
		/** Opens a stream to the session and writes to it. */
		ask(...parts) {
			const { readable, writable } = open();
			const writer = writable.getWriter();
			const failed = writer.write(bytes(...parts)).then(() => writer.closed).then(() => null, (error) => error ?? 'aborted');
			return { writer, failed, readable, get stream() { return reader(readable); } };
		},
		/** Opens a stream without an answer. */
		give(...parts) {
			const writer = openUni();
			writer.closed.catch(() => {});
			for (const part of parts) writer.write(part).catch(() => {});
			return writer;
		},
	};
}

test('the version is the one that this file speaks', () => assert.equal(VERSION, 'moq-lite-04'));

test('the own broadcast is announced below each of its prefixes, by whole segments', async () => {
	for (const [prefix, suffix] of [['', 'room/client'], ['room', 'client'], ['room/client', '']]) {
		const { stream } = connect().ask([1], sized(text(prefix), [0]));
		const announcement = await stream.message();
		assert.deepEqual([...await announcement.take(1)], [1], 'it is active');
		assert.equal(await announcement.text(), suffix);
		assert.deepEqual([...await announcement.take(1)], [1], 'one hop');
		const hop = await announcement.number();
		assert.ok(hop >= 1 && hop <= 2 ** 52, String(hop));
		assert.equal(announcement.rest().length, 0);
	}
	for (const prefix of ['roo', 'room/', 'room/clien', 'room/client/', 'other', 'client']) {
		const { readable } = connect().ask([1], sized(text(prefix), [0]));
		assert.equal((await read(readable)).length, 0, prefix);
	}
});

const subscription = (id, path, track) => [[2], sized(varint(id), text(path), text(track), [1, 1], varint(500), [0, 0])];

test('a track is served to its subscriber until that ends', async () => {
	const served = [];
	const serve = (id) => {
		served.push(`from ${id}`);
		return () => served.push(`until ${id}`);
	};
	const { ask, errors } = connect(new Map([['audio/data', serve]]));
	const { writer, stream } = ask(...subscription(7, 'room/client', 'audio/data'));
	assert.equal(await stream.number(), 0, 'the subscription is taken');
	const info = await stream.message();
	assert.deepEqual([...info.rest()], [1, 1, ...varint(500), 0, 0]);
	assert.deepEqual(served, ['from 7']);
	// An update changes nothing.
	await writer.write(sized([3]));
	await settle();
	assert.deepEqual(served, ['from 7']);
	await writer.close();
	assert.equal(await stream.ended(), true);
	await settle();
	assert.deepEqual([served, errors], [['from 7', 'until 7'], []]);
});

test('a subscriber whose stream breaks is served no more', async () => {
	const served = [];
	const { ask, errors } = connect(new Map([['t', () => () => served.push('until')]]));
	const { writer } = ask(...subscription(1, 'room/client', 't'));
	await settle();
	writer.abort(new WebTransportError('reset'));
	await settle();
	assert.deepEqual([served, errors], [['until'], []], 'a reset is no error');
	const { writer: other } = ask(...subscription(2, 'room/client', 't'));
	await settle();
	await other.write(Uint8Array.of(200, 1));
	await other.close();
	await settle();
	assert.deepEqual([served, errors], [['until', 'until'], ['a stream was cut off']]);
});

test('what is not there is refused', async () => {
	const tracks = new Map([['t', () => assert.fail('it is not asked for')]]);
	const asked = [
		subscription(1, 'room/client', 'other'), subscription(1, 'room', 't'), subscription(1, 'room/client/x', 't'), [[3]], [[0]], [varint(77)],
	];
	for (const parts of asked) {
		const { ask, errors } = connect(tracks);
		const { failed, readable } = ask(...parts);
		await assert.rejects(readable.getReader().read(), 'the answer is a reset');
		assert.notEqual(await failed, null, 'nothing more is read');
		assert.deepEqual(errors, []);
	}
});

test('broken requests end their own stream alone', async () => {
	const served = [];
	const { ask, errors } = connect(new Map([['t', (id) => { served.push(id); return () => {}; }]]));
	for (const parts of [[[]], [[2], [200]], [[2], sized([1], [9])], [[1], sized([60], utf8('short'))], [[2], varint(2 ** 40)]]) {
		const { writer } = ask(...parts);
		await writer.close();
	}
	await settle();
	assert.deepEqual(errors, [
		'a stream was cut off', 'a stream was cut off', 'a stream was cut off', 'a stream was cut off', `${2 ** 40} bytes at once`,
	]);
	ask(...subscription(5, 'room/client', 't'));
	await settle();
	assert.deepEqual(served, [5]);
});

test('broadcasts below a prefix are discovered as they come and go', async () => {
	const { lite, opened } = connect();
	const found = [];
	const over = lite.discover('room', (suffix, isActive) => found.push([suffix, isActive]));
	await settle();
	const writer = opened[0].writable.getWriter();
	assert.deepEqual([...await read(opened[0].readable)], [...bytes([1], sized(text('room'), [0]))]);
	await writer.write(sized([1], text('bot'), [0]));
	// More fields than this version knows of.
	await writer.write(sized([0], text('bot'), [2, 5, 6, 7]));
	await settle();
	assert.deepEqual(found, [['bot', true], ['bot', false]]);
	await writer.close();
	await over;
});

test('a subscription receives the frames of its groups, and the end of each', async () => {
	const { lite, opened, give, errors } = connect();
	const taken = [];
	const take = (sequence, frame) => taken.push([sequence, frame && Buffer.from(frame).toString()]);
	const over = lite.subscribe('room/bot', 'audio', 1, 500, take);
	await settle();
	assert.deepEqual([...await read(opened[0].readable)],
		[...bytes([2], sized(varint(0), text('room/bot'), text('audio'), [1, 1], varint(500), [0, 0]))]);
	const writer = opened[0].writable.getWriter();
	await writer.write(bytes([0], sized([0, 0, 0, 0])));
	// In pieces that are no frames.
	const group = bytes([0], sized([0], varint(300)), sized(utf8('one')), sized(utf8('')), sized(utf8('three')));
	const uni = give(group.subarray(0, 7), group.subarray(7, 8), group.subarray(8));
	await settle();
	assert.deepEqual(taken, [[300, 'one'], [300, ''], [300, 'three']]);
	uni.close();
	await settle();
	assert.deepEqual(taken.at(-1), [300, null]);
	await writer.close();
	await over;
	// What arrives late is for no one.
	give(bytes([0], sized([0, 5]), sized(utf8('late')))).close();
	await settle();
	assert.deepEqual([taken.length, errors], [4, []]);
});

test('subscriptions have ids of their own', async () => {
	const { lite, opened, give } = connect();
	const taken = [];
	for (const name of ['a', 'b']) lite.subscribe('room/bot', name, 0, 0, (_, frame) => frame && taken.push(`${name} ${Buffer.from(frame)}`));
	await settle();
	const asked = await Promise.all(opened.map(({ readable }) => read(readable)));
	assert.deepEqual(asked.map((all) => all[2]), [0, 1]);
	give(bytes([0], sized([1, 0]), sized(utf8('x'))));
	give(bytes([0], sized([0, 0]), sized(utf8('y'))));
	await settle();
	assert.deepEqual(taken.sort(), ['a y', 'b x']);
});

test('a group that breaks is told, and ends', async () => {
	const { lite, give, errors } = connect();
	const taken = [];
	lite.subscribe('room/bot', 'a', 0, 0, (sequence, frame) => taken.push([sequence, frame && frame.length]));
	await settle();
	give(bytes([0], sized([0, 1]), sized(utf8('ab')), [5, 1])).close();
	await settle();
	give(bytes([0], sized([0, 2]), varint(512 * 1024 + 1)));
	await settle();
	// The publisher gives the group up, which is no error.
	const reset = give(bytes([0], sized([0, 3]), sized(utf8('abc'))));
	await settle();
	reset.abort(new WebTransportError('too late'));
	await settle();
	assert.deepEqual(taken, [[1, 2], [1, null], [2, null], [3, 3], [3, null]]);
	assert.deepEqual(errors, ['a stream was cut off', `${512 * 1024 + 1} bytes at once`]);
});

test('groups of no subscription and unknown streams are cancelled', async () => {
	const { give, errors } = connect();
	for (const all of [bytes([0], sized([9, 0]), sized(utf8('x'))), bytes([1], sized([0, 0])), Uint8Array.of(0x40, 0x99)]) {
		const writer = give(all);
		await settle();
		await assert.rejects(writer.write(Uint8Array.of(1)), 'it is cancelled');
	}
	assert.deepEqual(errors, []);
});

test('a group that is sent begins with its number, and grows by frames', async () => {
	const { lite, sent } = connect();
	const group = await lite.group(3, 70000, utf8('one'), utf8(''));
	await group.write(utf8('two'), utf8('three'));
	await group.close();
	assert.deepEqual([...await read(sent[0])],
		[...bytes([0], sized(varint(3), varint(70000)), sized(utf8('one')), [0], sized(utf8('two')), sized(utf8('three')))]);
	const empty = await lite.group(0, 0);
	await empty.close();
	assert.deepEqual([...await read(sent[1])], [0, 2, 0, 0]);
});

test('the hop differs from page to page', async () => {
	const hops = new Set();
	for (let nth = 0; nth < 3; nth++) {
		const { stream } = connect().ask([1], sized(text('room/client'), [0]));
		hops.add(String((await stream.message()).rest()));
	}
	assert.equal(hops.size, 3);
});
