// QR codes as SVG. In: a text of up to 520 bytes. Out: an element of black modules on nothing, without a border. Byte mode, error
// correction L, versions 1 to 15. Source: ISO/IEC 18004. Loaded when a code is shown.

/** By version, from 1: error correction bytes of each block, and blocks. */
const CHECK_BYTES = [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22];
const BLOCKS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6];

// ---- bytes

/** The product in GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1. */
function times(a, b) {
	let product = 0;
	for (let bit = 7; bit >= 0; bit--) product = (product << 1) ^ ((product >> 7) * 0x11d) ^ (((b >> bit) & 1) * a);
	return product;
}

/** The generator polynomial of Reed-Solomon, without its first coefficient. */
function generator(degree) {
	const found = [...Array(degree - 1).fill(0), 1];
	for (let root = 1, nth = 0; nth < degree; nth++, root = times(root, 2)) {
		for (let at = 0; at < degree; at++) found[at] = times(found[at], root) ^ (found[at + 1] ?? 0);
	}
	return found;
}

function checkBytes(data, divisor) {
	const rest = Array(divisor.length).fill(0);
	for (const byte of data) {
		const factor = byte ^ rest.shift();
		rest.push(0);
		divisor.forEach((coefficient, at) => { rest[at] ^= times(coefficient, factor); });
	}
	return rest;
}

const sizeOf = (version) => version * 4 + 17;

function alignments(version) {
	if (version === 1) return [];
	const count = Math.floor(version / 7) + 2;
	const step = Math.ceil((version * 4 + 4) / (count * 2 - 2)) * 2;
	const rest = Array.from({ length: count - 1 }, (_, nth) => sizeOf(version) - 7 - nth * step);
	return [6, ...rest.reverse()];
}

/** Modules that are not taken by patterns. */
function rawBits(version) {
	const count = version > 1 ? Math.floor(version / 7) + 2 : 0;
	const patterns = count ? (25 * count - 10) * count - 55 : 0;
	return (16 * version + 128) * version + 64 - patterns - (version >= 7 ? 36 : 0);
}

const dataBytes = (version) => Math.floor(rawBits(version) / 8) - CHECK_BYTES[version - 1] * BLOCKS[version - 1];

/** The text in blocks with their error correction, interleaved. */
function codewords(bytes, version) {
	const lengthBits = version < 10 ? 8 : 16;
	let bits = `0100${bytes.length.toString(2).padStart(lengthBits, '0')}`;
	for (const byte of bytes) bits += byte.toString(2).padStart(8, '0');
	const capacity = dataBytes(version);
	bits += '0'.repeat(Math.min(4, capacity * 8 - bits.length));
	bits += '0'.repeat((8 - (bits.length % 8)) % 8);
	const data = bits.match(/.{8}/g).map((octet) => parseInt(octet, 2));
	for (let pad = 0xec; data.length < capacity; pad ^= 0xec ^ 0x11) data.push(pad);

	const [blocks, check] = [BLOCKS[version - 1], CHECK_BYTES[version - 1]];
	const divisor = generator(check);
	const short = Math.floor(capacity / blocks);
	const longer = capacity % blocks;
	let at = 0;
	const parts = Array.from({ length: blocks }, (_, nth) => {
		const part = data.slice(at, at += short + (nth >= blocks - longer ? 1 : 0));
		return { part, rest: checkBytes(part, divisor) };
	});
	const all = [];
	for (let nth = 0; nth <= short; nth++) for (const { part } of parts) if (nth < part.length) all.push(part[nth]);
	for (let nth = 0; nth < check; nth++) for (const { rest } of parts) all.push(rest[nth]);
	return all;
}

// ---- modules

const MASKS = [
	(x, y) => (x + y) % 2,
	(x, y) => y % 2,
	(x) => x % 3,
	(x, y) => (x + y) % 3,
	(x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2,
	(x, y) => ((x * y) % 2) + ((x * y) % 3),
	(x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2,
	(x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2,
];

/** The remainder of a BCH code. */
function bch(value, polynomial, degree) {
	let rest = value;
	for (let nth = 0; nth < degree; nth++) rest = (rest << 1) ^ ((rest >> (degree - 1)) * polynomial);
	return (value << degree) | rest;
}

function draw(version, octets, mask) {
	const size = sizeOf(version);
	const grid = Array.from({ length: size }, () => Array(size).fill(false));
	const taken = Array.from({ length: size }, () => Array(size).fill(false));
	const set = (x, y, dark) => {
		if (x < 0 || y < 0 || x >= size || y >= size) return;
		grid[y][x] = Boolean(dark);
		taken[y][x] = true;
	};
	const square = (cx, cy, reach, isDark) => {
		for (let dy = -reach; dy <= reach; dy++) {
			for (let dx = -reach; dx <= reach; dx++) set(cx + dx, cy + dy, isDark(Math.max(Math.abs(dx), Math.abs(dy))));
		}
	};
	for (let at = 0; at < size; at++) {
		set(6, at, at % 2 === 0);
		set(at, 6, at % 2 === 0);
	}
	for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) square(x, y, 4, (far) => far !== 2 && far !== 4);
	const places = alignments(version);
	const last = places.length - 1;
	places.forEach((x, i) => places.forEach((y, j) => {
		if (!((i === 0 && (j === 0 || j === last)) || (i === last && j === 0))) square(x, y, 2, (far) => far !== 1);
	}));
	// Level L is 01.
	const format = bch(8 | mask, 0x537, 10) ^ 0x5412;
	for (let bit = 0; bit < 15; bit++) {
		const dark = (format >> bit) & 1;
		set(8, bit < 6 ? bit : bit < 8 ? bit + 1 : size - 15 + bit, dark);
		set(bit < 8 ? size - 1 - bit : bit < 9 ? 7 : 14 - bit, 8, dark);
	}
	set(8, size - 8, true);
	if (version >= 7) {
		const about = bch(version, 0x1f25, 12);
		for (let bit = 0; bit < 18; bit++) {
			const [near, far] = [Math.floor(bit / 3), size - 11 + (bit % 3)];
			set(far, near, (about >> bit) & 1);
			set(near, far, (about >> bit) & 1);
		}
	}
	let nth = 0;
	for (let right = size - 1; right >= 1; right -= 2) {
		if (right === 6) right = 5;
		for (let step = 0; step < size; step++) {
			const y = ((right + 1) & 2) === 0 ? size - 1 - step : step;
			for (const x of [right, right - 1]) {
				if (taken[y][x]) continue;
				const dark = nth < octets.length * 8 && ((octets[nth >> 3] >> (7 - (nth & 7))) & 1) === 1;
				grid[y][x] = dark !== (MASKS[mask](x, y) === 0);
				nth += 1;
			}
		}
	}
	return grid;
}

/** How hard a code is to read: long runs, squares of one colour, patterns like a finder, an uneven share of dark modules. */
function penalty(grid) {
	const size = grid.length;
	let sum = 0;
	let dark = 0;
	const columns = grid[0].map((_, x) => grid.map((row) => row[x]));
	for (const line of [...grid, ...columns]) {
		const text = line.map(Number).join('');
		for (const run of text.match(/0{5,}|1{5,}/g) ?? []) sum += run.length - 2;
		for (let at = 0; at + 11 <= size; at++) if (/^(10111010000|00001011101)/.test(text.slice(at))) sum += 40;
	}
	for (let y = 0; y < size; y++) {
		for (let x = 0; x < size; x++) {
			dark += grid[y][x];
			if (x && y && new Set([grid[y][x], grid[y - 1][x], grid[y][x - 1], grid[y - 1][x - 1]]).size === 1) sum += 3;
		}
	}
	return sum + Math.floor(Math.abs(dark * 20 - size * size * 10) / (size * size)) * 10;
}

/** The modules of a code, by row. */
export function modules(text) {
	const bytes = new TextEncoder().encode(text);
	const fits = (version) => dataBytes(version) * 8 >= 4 + (version < 10 ? 8 : 16) + bytes.length * 8;
	const version = BLOCKS.findIndex((_, at) => fits(at + 1)) + 1;
	if (!version) throw new RangeError('the text is too long for a code');
	const octets = codewords(bytes, version);
	const all = MASKS.map((_, mask) => draw(version, octets, mask));
	return all.reduce((best, grid) => (penalty(grid) < penalty(best) ? grid : best));
}

const SVG = 'http://www.w3.org/2000/svg';

export function qrCode(text) {
	const grid = modules(text);
	const svg = document.createElementNS(SVG, 'svg');
	svg.setAttribute('viewBox', `0 0 ${grid.length} ${grid.length}`);
	svg.setAttribute('shape-rendering', 'crispEdges');
	svg.setAttribute('role', 'img');
	svg.setAttribute('aria-label', 'QR code of the address');
	const path = document.createElementNS(SVG, 'path');
	path.setAttribute('d', grid.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : ''))).join(''));
	svg.append(path);
	return svg;
}
