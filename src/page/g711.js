// Samples of 16 bits as the bytes of a telephone line, and back: G.711 with both laws, and little-endian PCM. Source: ITU-T G.711.

const BIAS = 0x84;
const CLIP = 32635;

function ulaw(sample) {
	const sign = sample < 0 ? 0x80 : 0;
	const value = Math.min(CLIP, Math.abs(sample)) + BIAS;
	const exponent = 24 - Math.clz32(value);
	return ~(sign | (exponent << 4) | ((value >> (exponent + 3)) & 15)) & 255;
}

function fromUlaw(byte) {
	const bits = ~byte & 255;
	const value = ((((bits & 15) << 3) + BIAS) << ((bits >> 4) & 7)) - BIAS;
	return bits & 0x80 ? -value : value;
}

function alaw(sample) {
	const sign = sample < 0 ? 0 : 0x80;
	const value = sample < 0 ? -sample - 1 : sample;
	const exponent = value < 256 ? 0 : 24 - Math.clz32(value);
	const bits = exponent ? (exponent << 4) | ((value >> (exponent + 3)) & 15) : value >> 4;
	return (sign | bits) ^ 0x55;
}

function fromAlaw(byte) {
	const bits = byte ^ 0x55;
	const [exponent, mantissa] = [(bits >> 4) & 7, bits & 15];
	const value = exponent ? ((mantissa << 4) + 0x108) << (exponent - 1) : (mantissa << 4) + 8;
	return bits & 0x80 ? value : -value;
}

const table = (decode) => Int16Array.from({ length: 256 }, (_, byte) => decode(byte));

const coded = (encode, decode) => {
	const values = table(decode);
	return {
		encode: (samples) => Uint8Array.from(samples, encode),
		decode: (bytes) => Int16Array.from(bytes, (byte) => values[byte]),
	};
};

export const CODECS = {
	mulaw: coded(ulaw, fromUlaw),
	alaw: coded(alaw, fromAlaw),
	pcm: {
		encode: (samples) => new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength),
		decode: (bytes) => new Int16Array(bytes.slice().buffer, 0, bytes.length >> 1),
	},
};

export function base64(bytes) {
	let text = '';
	for (const byte of bytes) text += String.fromCharCode(byte);
	return btoa(text);
}

/** Throws if the text is not base64. */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
