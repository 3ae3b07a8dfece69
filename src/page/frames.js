// Protobuf frames of a WebSocket client, encoded by hand. One `Frame` per binary message. Unknown fields are skipped, and
// unset ones have proto3's defaults; invalid bytes throw a RangeError.

/** A tag combines field number and wire type. */
const VARINT = 0;
const SIZED = 2;
const tag = (field, type) => field * 8 + type;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

// ---- writing

function varint(value) {
	const bytes = [];
	for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
	return [...bytes, value];
}

export function joined(...parts) {
	const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
	let at = 0;
	for (const part of parts) {
		all.set(part, at);
		at += part.length;
	}
	return all;
}

const number = (field, value) => [tag(field, VARINT), ...varint(value)];
const sized = (field, bytes) => joined([tag(field, SIZED)], varint(bytes.length), bytes);

/** `pcm`: bytes of 16-bit little-endian samples, one channel. */
export const audioFrame = (pcm, rate) => (
	sized(2, joined(sized(2, encoder.encode('audio')), sized(3, pcm), number(4, rate), number(5, 1))));

export const messageFrame = (message) => sized(4, sized(1, encoder.encode(JSON.stringify(message))));

// ---- reading

/** The last value of each tag: a number, or a view of its bytes. */
function fields(bytes) {
	const found = {};
	let at = 0;
	const take = (length) => {
		if (length > bytes.length - at) throw new RangeError('a frame was cut off');
		at += length;
		return bytes.subarray(at - length, at);
	};
	const number = () => {
		let value = 0;
		for (let scale = 1; scale <= 2 ** 63; scale *= 128) {
			const [byte] = take(1);
			value += (byte % 128) * scale;
			if (byte < 128) return value;
		}
		throw new RangeError('a number of more than ten bytes');
	};
	const read = { 0: number, 1: () => take(8), 2: () => take(number()), 5: () => take(4) };
	while (at < bytes.length) {
		const key = number();
		const value = read[key % 8];
		if (!value) throw new RangeError(`unknown wire type ${key % 8}`);
		found[key] = value();
	}
	return found;
}

/** Returns `{ audio, rate }` with mono samples, `{ message }` with its text, `{ interruption: true }`, or `{}`. */
export function readFrame(bytes) {
	const { [tag(2, SIZED)]: audio, [tag(4, SIZED)]: message, [tag(5, SIZED)]: interruption } = fields(bytes);
	if (message) return { message: decoder.decode(fields(message)[tag(1, SIZED)]) };
	if (interruption) return { interruption: true };
	if (!audio) return {};
	const { [tag(3, SIZED)]: pcm = [], [tag(4, VARINT)]: rate = 0, [tag(5, VARINT)]: channels = 1 } = fields(audio);
	// A copy, because a view of 16-bit samples needs an even offset.
	const samples = new Int16Array(Uint8Array.from(pcm).buffer, 0, Math.floor(pcm.length / 2));
	return { rate, audio: channels > 1 ? samples.filter((_, index) => index % channels === 0) : samples };
}
