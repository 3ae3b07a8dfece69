// Loads modules of the page. In: the name of a file of src/page. Out: its exports. Each module is at the URL that a runner serves it
// under, since they ask for others relative to their own.

import { webcrypto } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { register } from 'node:module';
import { Duplex } from 'node:stream';
import { createInflateRaw } from 'node:zlib';

const FOLDER = new URL('../../../src/page/', import.meta.url);

/** The folder of the page on a runner. */
export const ADDRESS = 'http://192.168.1.5:7860/client/';

const hooks = `
import { readFileSync } from 'node:fs';
const [address, folder] = ${JSON.stringify([ADDRESS, FOLDER.href])};
export function resolve(specifier, context, next) {
	const isOfPage = specifier.startsWith(address) || context.parentURL?.startsWith(address);
	return isOfPage ? { url: new URL(specifier, context.parentURL).href, shortCircuit: true } : next(specifier, context);
}
export function load(url, context, next) {
	if (!url.startsWith(address)) return next(url, context);
	const source = readFileSync(new URL(url.slice(address.length).replace(/[?].*/, ''), folder), 'utf8');
	return { format: 'module', source, shortCircuit: true };
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);

// Browsers have these three; Node 18 has none of them.
globalThis.crypto ??= webcrypto;
AbortSignal.any ??= (signals) => {
	const own = new AbortController();
	for (const signal of signals) {
		if (signal.aborted) own.abort(signal.reason);
		else signal.addEventListener('abort', () => own.abort(signal.reason), { once: true });
	}
	return own.signal;
};

try {
	new DecompressionStream('deflate-raw');
} catch {
	globalThis.DecompressionStream = class {
		constructor() { return Duplex.toWeb(createInflateRaw()); }
	};
}

export const page = (name) => import(ADDRESS + name);

let copies = 0;

/** A new copy of a module, for one that looks at its browser once. */
export const anew = (name) => page(`${name}?${copies += 1}`);

/** A file of the page as text. */
export const source = (name) => readFileSync(new URL(name, FOLDER), 'utf8');

/** The names of all scripts of the page. */
export const scripts = readdirSync(FOLDER).filter((name) => name.endsWith('.js')).sort();

/** The text of a file of the repository, by its path from the root. */
export const repositoryFile = (path) => readFileSync(new URL(`../../${path}`, FOLDER));

export const repositoryFiles = (path) => readdirSync(new URL(`../../${path}`, FOLDER)).sort();

/** Sets a global, also one that Node makes read-only. */
export const setGlobal = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });

/** Numbers that repeat from run to run: a function of an upper end, which is not reached. */
export function random(seed) {
	let state = seed;
	return (end) => {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		return Math.floor((state / 2 ** 32) * end);
	};
}

/** Lets everything run that waits for promises alone. */
export async function settle() {
	for (let turn = 0; turn < 30; turn++) await new Promise((done) => { setImmediate(done); });
}

/** Waits for what threads of Node do, such as inflating. */
export async function until(isSo) {
	const began = process.hrtime.bigint();
	while (!isSo()) {
		if (process.hrtime.bigint() - began > 20_000_000_000n) throw new Error(`not within 20 s: ${isSo}`);
		await new Promise((done) => { setImmediate(done); });
	}
}
