// `moq-lite-04` on the streams of a WebTransport session: the part that a page needs. Announces one broadcast and serves its
// tracks; discovers and subscribes to those of the bot. A message or a frame above BYTES_MAX is an error of its stream.

import { joined } from './frames.js';

export const VERSION = 'moq-lite-04';
const BYTES_MAX = 512 * 1024;

// Types of streams.
const GROUP = 0;
const ANNOUNCE = 1;
const SUBSCRIBE = 2;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** The integers of QUIC: RFC 9000, section 16. */
export function varint(value) {
	const size = [64, 2 ** 14, 2 ** 30].filter((end) => value >= end).length;
	const bytes = new Uint8Array(2 ** size);
	for (let at = bytes.length - 1; at >= 0; at--) {
		bytes[at] = value % 256;
		value = Math.floor(value / 256);
	}
	bytes[0] += size * 64;
	return bytes;
}

const sized = (bytes) => joined(varint(bytes.length), bytes);
const text = (string) => sized(encoder.encode(string));
const message = (...parts) => sized(joined(...parts));

/** Reads a stream, or bytes, piece by piece. */
export function reader(source) {
	const from = source.getReader?.();
	let held = from ? new Uint8Array() : source;
	async function more() {
		const { value, done } = from ? await from.read() : { done: true };
		if (!done) held = joined(held, value);
		return !done;
	}
	const own = {
		rest: () => held,
		cancel: () => from.cancel(),
		async ended() {
			while (!held.length) if (!(await more())) return true;
			return false;
		},
		async take(length) {
			if (length > BYTES_MAX) throw new RangeError(`${length} bytes at once`);
			while (held.length < length) if (!(await more())) throw new RangeError('a stream was cut off');
			const taken = held.subarray(0, length);
			held = held.subarray(length);
			return taken;
		},
		async number() {
			const [first] = await own.take(1);
			let value = first % 64;
			for (const byte of await own.take(2 ** (first >> 6) - 1)) value = value * 256 + byte;
			return value;
		},
		sized: async () => own.take(await own.number()),
		text: async () => decoder.decode(await own.sized()),
		message: async () => reader(await own.sized()),
	};
	return own;
}

/** The path relative to a prefix of whole segments; null if it is elsewhere. */
function below(path, prefix) {
	if (!prefix) return path;
	if (path === prefix) return '';
	return path.startsWith(`${prefix}/`) ? path.slice(prefix.length + 1) : null;
}

/** `path`: of the own broadcast. `tracks`: Map of a name to a function, which takes the id of a new subscription and returns what
	to do at its end. `log` takes errors. */
export function moqLite(transport, { path, tracks, log }) {
	// Tells relays where a broadcast comes from.
	const hop = 1 + Math.floor(Math.random() * 2 ** 52);
	const subscriptions = new Map();
	let nextId = 0;

	async function each(streams, handle) {
		const from = streams.getReader();
		for (;;) {
			const { value, done } = await from.read();
			if (done) return;
			// A reset is how a peer ends a subscription or gives up a group.
			handle(value).catch((error) => error instanceof WebTransportError || log(error.message));
		}
	}

	async function answer({ readable, writable }) {
		const stream = reader(readable);
		const writer = writable.getWriter();
		const type = await stream.number();
		if (type === ANNOUNCE) {
			const suffix = below(path, await (await stream.message()).text());
			if (suffix !== null) await writer.write(message([1], text(suffix), [1], varint(hop)));
			return;
		}
		let serve, id;
		if (type === SUBSCRIBE) {
			const wanted = await stream.message();
			id = await wanted.number();
			const [broadcast, name] = [await wanted.text(), await wanted.text()];
			serve = broadcast === path ? tracks.get(name) : null;
			// Priority, order and latest time are accepted as they come; the range of groups is not limited.
			const [fixed, latency] = [await wanted.take(2), varint(await wanted.number())];
			if (serve) await writer.write(joined([0], message(fixed, latency, [0, 0])));
		}
		if (!serve) {
			stream.cancel().catch(() => {});
			return writer.abort();
		}
		const stop = serve(id);
		try {
			// Updates change nothing here.
			while (!(await stream.ended())) await stream.message();
			await writer.close();
		} finally {
			stop();
		}
	}

	async function receive(readable) {
		const stream = reader(readable);
		if ((await stream.number()) !== GROUP) return stream.cancel();
		const head = await stream.message();
		const [take, sequence] = [subscriptions.get(await head.number()), await head.number()];
		if (!take) return stream.cancel();
		try {
			while (!(await stream.ended())) take(sequence, await stream.sized());
		} finally {
			take(sequence, null);
		}
	}

	async function ask(...parts) {
		const { readable, writable } = await transport.createBidirectionalStream();
		await writable.getWriter().write(joined(...parts));
		return reader(readable);
	}

	each(transport.incomingBidirectionalStreams, answer).catch(() => {});
	each(transport.incomingUnidirectionalStreams, receive).catch(() => {});

	return {
		/** Calls `found(suffix, isActive)` for each broadcast below a prefix, as long as the session lives. */
		async discover(prefix, found) {
			const stream = await ask([ANNOUNCE], message(text(prefix), [0]));
			while (!(await stream.ended())) {
				const told = await stream.message();
				const [active] = await told.take(1);
				found(await told.text(), active === 1);
			}
		},
		/** Calls `take(sequence, frame)` for each frame, in order within a group, and with null at the end of a group. `lateMs`: how
			long a publisher tries to deliver a group after a newer one. Ends with the track. */
		async subscribe(broadcast, track, priority, lateMs, take) {
			const id = nextId++;
			subscriptions.set(id, take);
			const stream = await ask([SUBSCRIBE], message(varint(id), text(broadcast), text(track), [priority, 1], varint(lateMs), [0, 0]));
			try {
				while (!(await stream.ended())) {
					await stream.number();
					await stream.message();
				}
			} finally {
				subscriptions.delete(id);
			}
		},
		/** Opens a group and writes frames to it. Returns a writer of further ones. */
		async group(id, sequence, ...frames) {
			const writer = (await transport.createUnidirectionalStream()).getWriter();
			const write = (...more) => writer.write(joined(...more.map(sized)));
			writer.write(joined([GROUP], message(varint(id), varint(sequence)))).catch(() => {});
			if (frames.length) write(...frames).catch(() => {});
			return { write, close: () => writer.close() };
		},
	};
}
