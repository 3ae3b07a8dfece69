// Chromium with a microphone that plays a file, in a fresh profile, confined to this machine.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { watchConnections } from './watch.mjs';

const WORDS = 'Hello there, can you hear me?';
// Long enough for a bot to detect the end of the sentence and to answer for some seconds.
const PAUSE_S = 6;

/** Sentences, each with a pause behind it, as the WAV file that the fake microphone repeats. */
function speech(folder, sentences) {
	const path = join(folder, 'speech.wav');
	const parts = sentences.map((sentence) => {
		execFileSync('espeak-ng', ['-w', path, sentence]);
		return readFileSync(path);
	});
	// 44 bytes of header, then 16-bit samples; the header states both lengths.
	const [first] = parts;
	const bytesPerSecond = first.readUInt32LE(28);
	const pause = Buffer.alloc(bytesPerSecond * PAUSE_S);
	const wav = Buffer.concat([first.subarray(0, 44), ...parts.flatMap((part) => [part.subarray(44), pause])]);
	wav.writeUInt32LE(wav.length - 8, 4);
	wav.writeUInt32LE(wav.length - 44, 40);
	writeFileSync(path, wav);
	return path;
}

/** In a home of its own, since that is where Chromium looks for the authorities that its user trusts. */
function trust(home, certificate) {
	const database = join(home, '.pki/nssdb');
	mkdirSync(database, { recursive: true });
	const certutil = (...args) => execFileSync('certutil', ['-d', `sql:${database}`, ...args]);
	certutil('-N', '--empty-password');
	writeFileSync(join(home, 'ca.crt'), certificate);
	certutil('-A', '-n', 'edge-runner', '-t', 'C,,', '-i', join(home, 'ca.crt'));
}

/** Microphones: one that speaks and that nobody asks about, one that asks first, none. */
const MICROPHONES = {
	speaks: (folder, sentences) => [
		'--use-fake-ui-for-media-stream', '--use-fake-device-for-media-stream',
		`--use-file-for-fake-audio-capture=${speech(folder, sentences)}`,
	],
	asks: () => ['--use-fake-device-for-media-stream'],
	none: () => ['--use-fake-ui-for-media-stream', '--disable-audio-input'],
};

/** Chromium's headless shell has the same engine and network stack, and opens a page for a third of the CPU time. It has no permission
	settings, no installed pages, no screen to keep on, no interstitial pages and no policy of the profile: `fullBrowser` is for checks
	of those. */
function executable(fullBrowser) {
	const shell = '/usr/bin/chromium-headless-shell';
	return process.env.CHROMIUM ?? (!fullBrowser && existsSync(shell) ? shell : '/usr/bin/chromium');
}

/** Starts a browser. It and its folder are there until `close`. */
async function start({ trusts = '', microphone = 'speaks', sentences = [WORDS], args = [], fullBrowser = false }) {
	const folder = mkdtempSync(join(tmpdir(), 'chromium-'));
	if (trusts) trust(folder, trusts);
	const browser = await chromium.launch({
		executablePath: executable(fullBrowser),
		headless: true,
		env: { ...process.env, HOME: folder },
		args: [
			'--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
			'--disable-component-update', '--disable-sync', '--autoplay-policy=no-user-gesture-required',
			...MICROPHONES[microphone](folder, sentences),
			// Host names of the checks resolve to this machine; every other name fails.
			`--host-resolver-rules=MAP *.test.local 127.0.0.1, MAP board.local 127.0.0.1, MAP *.example 127.0.0.1, MAP * ~NOTFOUND, ${
				['localhost', '127.0.0.1', ...ownAddresses()].map((name) => `EXCLUDE ${name}`).join(', ')}`,
			...args,
		],
	});
	const close = async () => {
		await browser.close();
		rmSync(folder, { recursive: true, force: true });
	};
	return { browser, close };
}

/** Hands a fresh profile of a browser to `use`. */
async function withProfileOf(browser, use) {
	const context = await browser.newContext();
	await context.addInitScript(watchConnections);
	try {
		return await use(context);
	} finally {
		// A reply that a check changes on its way may still be under way.
		await Promise.all(context.pages().map((page) => page.unrouteAll({ behavior: 'ignoreErrors' })));
		await context.close();
	}
}

/** Opens a browser, hands it to `use`, and leaves nothing behind. `trusts` is a certificate of an authority, in PEM. */
export async function withBrowser(use, options = {}) {
	const { browser, close } = await start(options);
	try {
		return await withProfileOf(browser, use);
	} finally {
		await close();
	}
}

/** Browsers that stay open, by their options: a start takes a second of a core. */
const open = new Map();

/** As `withBrowser`, in a browser that stays open for later checks with the same options, until `closeBrowsers`. */
export async function withProfile(use, options = {}) {
	const key = JSON.stringify(options);
	if (!open.has(key)) {
		const starting = start(options);
		open.set(key, starting);
		// One that does not start, or has ended, is no browser for the next check.
		const forget = () => open.delete(key);
		starting.then(({ browser }) => browser.on('disconnected', forget), forget);
	}
	const { browser } = await open.get(key);
	return withProfileOf(browser, use);
}

export async function closeBrowsers() {
	for (const starting of [...open.values()]) await starting.then(({ close }) => close(), () => {});
}

/** This machine as others in its network see it. */
export const ownAddresses = () => Object.values(networkInterfaces()).flat()
	.filter(({ family, internal }) => family === 'IPv4' && !internal)
	.map(({ address }) => address);
