// WebTransport in memory: streams that hold as much as is written to them.

import { settle } from './page.mjs';

/** One direction. */
export function pipe() {
	const room = { highWaterMark: 1000 };
	return new TransformStream({}, room, room);
}

/** Two ends of a stream of both directions. */
export function both() {
	const [there, back] = [pipe(), pipe()];
	return [{ readable: back.readable, writable: there.writable }, { readable: there.readable, writable: back.writable }];
}

/** All bytes of a stream that has ended, or of one that has not ended yet what is there. */
export async function read(readable) {
	const from = readable.getReader();
	const all = [];
	for (;;) {
		const next = await Promise.race([from.read(), settle().then(() => null)]);
		if (!next || next.done) {
			from.releaseLock();
			return Buffer.concat(all);
		}
		all.push(next.value);
	}
}

/** The page's end as `transport`. What it opens arrives in `opened` (both directions, the other end) and `sent` (one direction). */
export function makeTransport() {
	const [opened, sent] = [[], []];
	let bidirectional, unidirectional;
	const transport = {
		incomingBidirectionalStreams: new ReadableStream({ start: (controller) => { bidirectional = controller; } }),
		incomingUnidirectionalStreams: new ReadableStream({ start: (controller) => { unidirectional = controller; } }),
		async createBidirectionalStream() {
			const [own, theirs] = both();
			opened.push(theirs);
			return own;
		},
		async createUnidirectionalStream() {
			const { readable, writable } = pipe();
			sent.push(readable);
			return writable;
		},
	};
	return {
		transport,
		opened,
		sent,
		/** Opens a stream to the page; returns the other end. */
		open() {
			const [own, theirs] = both();
			bidirectional.enqueue(own);
			return theirs;
		},
		/** Opens a stream of one direction to the page; returns its writer. */
		openUni() {
			const { readable, writable } = pipe();
			unidirectional.enqueue(readable);
			return writable.getWriter();
		},
	};
}
