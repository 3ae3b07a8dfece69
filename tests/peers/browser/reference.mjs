// What a check of sound in a browser is held against, and whether the machine let it be judged: tests/peers/reference.py and
// tests/peers/busy.py say more.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const METER = join(dirname(fileURLToPath(import.meta.url)), '../busy.py');

/** Samples what others took of the machine beside this process and those it has started. */
export class Busy {
	constructor() {
		this.folder = mkdtempSync(join(tmpdir(), 'busy-'));
		this.file = join(this.folder, 'samples');
		this.process = spawn('python3', [METER, '--pid', String(process.pid), '--samples', this.file], { stdio: ['ignore', 'ignore', 'inherit'] });
	}

	/** Why what began then could not be judged, in words; empty where it could. */
	starved(beganMs) {
		return execFileSync('python3', [METER, '--judge', this.file, '--since', String(beganMs / 1000)], { encoding: 'utf8' }).trim();
	}

	stop() {
		this.process.kill();
		rmSync(this.folder, { recursive: true });
	}
}

/** Of a tone that was coded once more than the control, and resampled. */
export const SHARE_SPREAD = 0.02;
/** Of the player of a page, which fills what has not come in time with silence. */
export const SILENT_SPREAD = 0.02;
/** Of the player that a library brings, beside it: one that was in a group of late frames drops it as a whole. */
export const GROUP_SPREAD = 0.05;

/** Fails where `measured` is lower than the control by more than the spread, or higher with `atMost`. Gives it in words. */
export function judge(what, measured, control, spread, atMost = false) {
	const words = `${what} ${measured.toFixed(3)}, control ${control.toFixed(3)}`;
	const isGood = atMost ? measured <= control + spread : measured >= control - spread;
	if (!isGood) throw new Error(`${words}, spread ${spread.toFixed(3)}`);
	return words;
}

let control;

/**
 * What a page of the same browser hears of its own tone without the runner: it comes back by way of two connections of its own.
 * `page` has `talk` with `control`, its microphone hums, and it has not connected yet. Made once in a process.
 */
export async function withoutRunner(page, hz) {
	// The connections of the control then name addresses, in place of names that need a resolver of multicast DNS.
	await page.context().grantPermissions(['microphone']);
	control ??= await page.evaluate((each) => globalThis.talk.control(2, each), hz);
	if (control.share < 0.9) throw new Error(`the control itself is no tone: ${JSON.stringify(control)}`);
	return control;
}

/** Holds what `hear` has measured against the control, in words. */
export function judgeSound(heard, reference, shareSpread = SHARE_SPREAD, silentSpread = SILENT_SPREAD) {
	return [
		judge('share', heard.share, reference.share, shareSpread),
		judge('silent', heard.silent, reference.silent, silentSpread, true),
	].join(', ');
}
