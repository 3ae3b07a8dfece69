// qr.js, read by a decoder of its own: patterns, format and version bits, the mask, the codewords and their Reed-Solomon
// syndromes, and the text. Tables are copied from ISO/IEC 18004, not computed.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import { makeDocument } from './support/dom.mjs';
import { page, random } from './support/page.mjs';

const { modules, qrCode } = await page('qr.js');

// ---- ISO/IEC 18004: table 9 for level L, annex E, annex D

/** By version: all codewords, those of error correction in a block, and the blocks with their data codewords. */
const CODES = [
	null,
	[26, 7, [[1, 19]]], [44, 10, [[1, 34]]], [70, 15, [[1, 55]]], [100, 20, [[1, 80]]], [134, 26, [[1, 108]]],
	[172, 18, [[2, 68]]], [196, 20, [[2, 78]]], [242, 24, [[2, 97]]], [292, 30, [[2, 116]]], [346, 18, [[2, 68], [2, 69]]],
	[404, 20, [[4, 81]]], [466, 24, [[2, 92], [2, 93]]], [532, 26, [[4, 107]]], [581, 30, [[3, 115], [1, 116]]],
	[655, 22, [[5, 87], [1, 88]]],
];
const ALIGNMENTS = [
	null, [], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46], [6, 28, 50], [6, 30, 54], [6, 32, 58],
	[6, 34, 62], [6, 26, 46, 66], [6, 26, 48, 70],
];
const VERSION_BITS = { 7: 0x07c94, 8: 0x085bc, 9: 0x09a99, 10: 0x0a4d3, 11: 0x0bbf6, 12: 0x0c762, 13: 0x0d847, 14: 0x0e60d, 15: 0x0f928 };
/** Level L with each mask. */
const FORMATS = [0x77c4, 0x72f3, 0x7daa, 0x789d, 0x662f, 0x6318, 0x6c41, 0x6976];
/** The longest text of each version in bytes: table 7. */
const CAPACITY = [0, 17, 32, 53, 78, 106, 134, 154, 192, 230, 271, 321, 367, 425, 458, 520];

/** Row i, column j: table 10. */
const MASKS = [
	(i, j) => (i + j) % 2 === 0,
	(i) => i % 2 === 0,
	(i, j) => j % 3 === 0,
	(i, j) => (i + j) % 3 === 0,
	(i, j) => (Math.floor(i / 2) + Math.floor(j / 3)) % 2 === 0,
	(i, j) => ((i * j) % 2) + ((i * j) % 3) === 0,
	(i, j) => (((i * j) % 2) + ((i * j) % 3)) % 2 === 0,
	(i, j) => (((i + j) % 2) + ((i * j) % 3)) % 2 === 0,
];

// ---- the decoder

const EXP = [1];
for (let power = 1; power < 255; power++) EXP.push((EXP[power - 1] << 1) ^ (EXP[power - 1] & 128 ? 0x11d : 0));
const LOG = new Map(EXP.map((value, power) => [value, power]));

/** Evaluates a codeword at the roots of the generator: all zero if it has no error. */
const syndromes = (block, count) => Array.from({ length: count }, (_, root) => block.reduce((sum, byte, at) => (
	byte ? sum ^ EXP[(LOG.get(byte) + root * (block.length - 1 - at)) % 255] : sum), 0));

const versionOf = (grid) => (grid.length - 17) / 4;

/** Whether a module belongs to a pattern, the format or the version. */
function isFunction(version, i, j) {
	const size = version * 4 + 17;
	if (i === 6 || j === 6) return true;
	if ((i < 9 && j < 9) || (i < 9 && j >= size - 8) || (i >= size - 8 && j < 9)) return true;
	if (version >= 7 && ((i < 6 && j >= size - 11) || (j < 6 && i >= size - 11))) return true;
	const places = ALIGNMENTS[version];
	return places.some((y) => places.some((x) => (
		Math.abs(i - y) <= 2 && Math.abs(j - x) <= 2
		&& !(y === 6 && x === 6) && !(y === 6 && x === size - 7) && !(y === size - 7 && x === 6))));
}

/** The two copies of the format, from the highest bit. */
function formats(grid) {
	const last = grid.length - 1;
	const near = [[8, 0], [8, 1], [8, 2], [8, 3], [8, 4], [8, 5], [8, 7], [8, 8], [7, 8], [5, 8], [4, 8], [3, 8], [2, 8], [1, 8], [0, 8]];
	const far = [...Array.from({ length: 7 }, (_, nth) => [last - nth, 8]), ...Array.from({ length: 8 }, (_, nth) => [8, last - 7 + nth])];
	return [near, far].map((places) => places.reduce((bits, [i, j]) => (bits << 1) | Number(grid[i][j]), 0));
}

/** The two copies of the version, whose lowest bit comes first. */
function versions(grid) {
	const copies = [[], []];
	for (let nth = 17; nth >= 0; nth--) {
		const [a, b] = [Math.floor(nth / 3), grid.length - 11 + (nth % 3)];
		copies[0].push(grid[a][b]);
		copies[1].push(grid[b][a]);
	}
	return copies.map((bits) => bits.reduce((value, bit) => (value << 1) | Number(bit), 0));
}

/** Columns in pairs from the right, upwards and downwards in turn, without the vertical timing pattern. */
function* places(version) {
	const size = version * 4 + 17;
	let isUp = true;
	for (let right = size - 1; right > 0; right -= right === 8 ? 3 : 2, isUp = !isUp) {
		for (let step = 0; step < size; step++) {
			const i = isUp ? size - 1 - step : step;
			for (const j of [right, right - 1]) if (!isFunction(version, i, j)) yield [i, j];
		}
	}
}

/** Returns `{ version, mask, text }`, and asserts everything on the way. */
function decode(grid) {
	const version = versionOf(grid);
	assert.ok(Number.isInteger(version) && version >= 1 && version <= 15, `${grid.length} modules`);
	assert.ok(grid.every((row) => row.length === grid.length));
	const [near, far] = formats(grid);
	assert.equal(near, far);
	const mask = FORMATS.indexOf(near);
	assert.notEqual(mask, -1, `format ${near.toString(16)}`);
	if (version >= 7) assert.deepEqual(versions(grid), [VERSION_BITS[version], VERSION_BITS[version]]);

	const bits = Array.from(places(version), ([i, j]) => Number(grid[i][j] !== MASKS[mask](i, j)));
	const [total, check, groups] = CODES[version];
	assert.equal(Math.floor(bits.length / 8), total);
	assert.ok(bits.slice(total * 8).every((bit) => bit === 0), 'the rest is empty');
	const octets = Array.from({ length: total }, (_, at) => parseInt(bits.slice(at * 8, at * 8 + 8).join(''), 2));

	const blocks = groups.flatMap(([count, length]) => Array.from({ length: count }, () => ({ length, bytes: [] })));
	let at = 0;
	for (let nth = 0; nth < Math.max(...blocks.map(({ length }) => length)); nth++) {
		for (const { length, bytes } of blocks) if (nth < length) bytes.push(octets[at++]);
	}
	for (let nth = 0; nth < check; nth++) for (const { bytes } of blocks) bytes.push(octets[at++]);
	assert.equal(at, total);
	for (const { bytes } of blocks) assert.deepEqual(syndromes(bytes, check), Array(check).fill(0));

	const data = blocks.flatMap(({ length, bytes }) => bytes.slice(0, length)).map((byte) => byte.toString(2).padStart(8, '0')).join('');
	assert.equal(data.slice(0, 4), '0100', 'bytes');
	const countBits = version < 10 ? 8 : 16;
	const count = parseInt(data.slice(4, 4 + countBits), 2);
	const content = data.slice(4 + countBits);
	const text = Buffer.from((content.slice(0, count * 8).match(/.{8}/g) ?? []).map((octet) => parseInt(octet, 2))).toString();
	const rest = content.slice(count * 8);
	// A terminator of four zeros if there is room, zeros to the next whole byte, then two bytes in turn.
	assert.match(rest.slice(0, 4), /^0*$/);
	const padding = rest.slice(4).match(/.{8}/g) ?? [];
	assert.deepEqual(padding, padding.map((_, nth) => (nth % 2 ? '00010001' : '11101100')));
	return { version, mask, text };
}

// ---- texts

test('texts are read as they were given', () => {
	for (const text of ['', 'a', 'https://192.168.1.5:7860/client/#key=0123456789abcdef', 'grüße „\u{1f399}“', '\0\u{7f}', '0123456789', 'ABC']) {
		assert.equal(decode(modules(text)).text, text);
	}
});

test('each version is used up to its last byte, and the next one from there', () => {
	for (let version = 1; version <= 15; version++) {
		for (const length of [CAPACITY[version - 1] + 1, CAPACITY[version]]) {
			const text = Array.from({ length }, (_, at) => String.fromCharCode(33 + ((at * 7) % 90))).join('');
			const read = decode(modules(text));
			assert.deepEqual([read.version, read.text], [version, text]);
		}
	}
});

test('a text above 520 bytes is refused, counted in bytes', () => {
	assert.equal(versionOf(modules('x'.repeat(520))), 15);
	assert.throws(() => modules('x'.repeat(521)), { name: 'RangeError', message: 'the text is too long for a code' });
	assert.equal(versionOf(modules('ü'.repeat(260))), 15);
	assert.throws(() => modules('ü'.repeat(261)), RangeError);
});

test('random texts of every length are read', () => {
	const next = random(11);
	for (let length = 0; length <= 520; length += 13) {
		const text = Array.from({ length }, () => String.fromCharCode(next(128))).join('');
		assert.equal(decode(modules(text)).text, text, `${length} bytes`);
	}
});

// ---- patterns

test('finders, timing and alignment are where a camera looks for them', () => {
	const finder = ['1111111', '1000001', '1011101', '1011101', '1011101', '1000001', '1111111'];
	const alignment = ['11111', '10001', '10101', '10001', '11111'];
	for (let version = 1; version <= 15; version++) {
		const grid = modules('x'.repeat(CAPACITY[version]));
		const size = grid.length;
		const part = (i, j, length) => grid.slice(i, i + length).map((row) => row.slice(j, j + length).map(Number).join(''));
		for (const [i, j] of [[0, 0], [0, size - 7], [size - 7, 0]]) assert.deepEqual(part(i, j, 7), finder, `version ${version}`);
		for (let at = 0; at < 8; at++) {
			const separators = [[7, at], [at, 7], [7, size - 1 - at], [at, size - 8], [size - 8, at], [size - 1 - at, 7]];
			assert.ok(separators.every(([i, j]) => !grid[i][j]), 'light around each finder');
		}
		for (let at = 8; at < size - 8; at++) assert.deepEqual([grid[6][at], grid[at][6]], [at % 2 === 0, at % 2 === 0]);
		assert.equal(grid[size - 8][8], true, 'the dark module');
		for (const y of ALIGNMENTS[version]) {
			for (const x of ALIGNMENTS[version]) {
				const isFinder = (y === 6 && (x === 6 || x === size - 7)) || (y === size - 7 && x === 6);
				if (!isFinder) assert.deepEqual(part(y - 2, x - 2, 5), alignment, `version ${version} at ${x}, ${y}`);
			}
		}
	}
});

// ---- the mask

/** The rules of table 11, in points. */
function penalty(grid) {
	const size = grid.length;
	const at = (i, j) => Number(grid[i][j]);
	let points = 0;
	for (const line of [(n, k) => at(n, k), (n, k) => at(k, n)]) {
		for (let n = 0; n < size; n++) {
			let run = 1;
			for (let k = 1; k <= size; k++) {
				if (k < size && line(n, k) === line(n, k - 1)) run += 1;
				else {
					if (run >= 5) points += run - 2;
					run = 1;
				}
			}
			for (let k = 0; k + 11 <= size; k++) {
				const eleven = Array.from({ length: 11 }, (_, more) => line(n, k + more)).join('');
				if (eleven === '10111010000' || eleven === '00001011101') points += 40;
			}
		}
	}
	let dark = 0;
	for (let i = 0; i < size; i++) {
		for (let j = 0; j < size; j++) {
			dark += at(i, j);
			if (i && j && at(i, j) === at(i - 1, j) && at(i, j) === at(i, j - 1) && at(i, j) === at(i - 1, j - 1)) points += 3;
		}
	}
	const share = (dark * 100) / (size * size);
	return points + 10 * Math.floor(Math.abs(share - 50) / 5);
}

/** The same code with another mask. */
function masked(grid, from, to) {
	const version = versionOf(grid);
	const other = grid.map((row) => [...row]);
	for (const [i, j] of places(version)) other[i][j] = grid[i][j] !== (MASKS[from](i, j) !== MASKS[to](i, j));
	const last = grid.length - 1;
	for (let nth = 0; nth < 15; nth++) {
		const bit = ((FORMATS[to] >> (14 - nth)) & 1) === 1;
		const near = [[8, 0], [8, 1], [8, 2], [8, 3], [8, 4], [8, 5], [8, 7], [8, 8], [7, 8], [5, 8], [4, 8], [3, 8], [2, 8], [1, 8], [0, 8]][nth];
		const far = nth < 7 ? [last - nth, 8] : [8, last - 14 + nth];
		for (const [i, j] of [near, far]) other[i][j] = bit;
	}
	return other;
}

test('of eight masks the one is taken that is the easiest to read', () => {
	const used = new Set();
	for (const text of ['a', 'https://192.168.1.5:7860/client/', ...Array.from({ length: 24 }, (_, nth) => `http://edge-runner.local:${7860 + nth}/`)]) {
		const grid = modules(text);
		const { mask } = decode(grid);
		const points = FORMATS.map((_, to) => penalty(masked(grid, mask, to)));
		assert.equal(points[mask], Math.min(...points), `${text}: ${points}, and ${mask} was taken`);
		used.add(mask);
	}
	assert.ok(used.size >= 4, `masks ${[...used]}`);
});

// Made with Python's qrcodegen 1.8.0, of another author: SHA-256 of the rows as zeros and ones.
const OTHERS = [
	['a', 0, 'bf35b1e154e92eb4f32a6bae5b813d5809763714b28b6d0e376fe986c07c6d1f'],
	['https://192.168.1.5:7860/client/#key=0123456789abcdef', 3, 'd9c3ae972862ca02f9a1cf3ec07ca3d62155881b1e88134e7f7ab3cd2bd8b66f'],
	['grüße „\u{1f399}“', 5, '2575dc5091e2f587af23ea7a9e0c525c4c4690ec14b047a116e2e21610f51f3d'],
	['x'.repeat(300), 7, '44874a4f4cac40c63df9b231d344abff708ea94b653588a55274007d68a27e12'],
	['y'.repeat(520), 2, '1562fa994edd3b4cfea4d6948d95b584e44ffd52222981328f6f3db7a327b8ce'],
];

test('the modules are those of another implementation', () => {
	for (const [text, mask, hash] of OTHERS) {
		const grid = modules(text);
		const other = masked(grid, decode(grid).mask, mask);
		const rows = other.map((row) => row.map(Number).join('')).join('\n');
		assert.equal(createHash('sha256').update(rows).digest('hex'), hash, text);
	}
});

// ---- the picture

test('the picture has one square for each dark module', () => {
	makeDocument();
	const grid = modules('https://192.168.1.5:7860/client/');
	const svg = qrCode('https://192.168.1.5:7860/client/');
	const size = grid.length;
	assert.deepEqual([svg.tagName, svg.getAttribute('viewBox'), svg.getAttribute('role')], ['SVG', `0 0 ${size} ${size}`, 'img']);
	const path = svg.firstElementChild.getAttribute('d');
	const drawn = new Set([...path.matchAll(/M(\d+) (\d+)h1v1h-1z/g)].map(([, x, y]) => `${x} ${y}`));
	const dark = new Set(grid.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`${x} ${y}`] : []))));
	assert.deepEqual(drawn, dark);
	assert.equal(path.replace(/M\d+ \d+h1v1h-1z/g, ''), '');
});
