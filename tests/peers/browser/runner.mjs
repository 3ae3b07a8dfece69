// The runner for a check: started on free ports, queried over HTTP, ended by its process id.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Waits until `condition` gives something, or fails with `what`. */
export async function until(condition, what, limitMs = 30000) {
	const start = Date.now();
	for (;;) {
		const result = await condition();
		if (result) return result;
		if (Date.now() - start > limitMs) throw new Error(`not within ${limitMs / 1000} s: ${what}`);
		await sleep(50);
	}
}

export class Runner {
	/** Arguments that are objects are variables of its environment. */
	static async start(binary, ...given) {
		const args = given.filter((each) => typeof each === 'string');
		const env = Object.assign({}, process.env, ...given.filter((each) => typeof each !== 'string'));
		const runner = new Runner();
		runner.folder = mkdtempSync(join(tmpdir(), 'edge-runner-'));
		runner.log = [];
		runner.child = spawn(binary, ['--port', '0', '--rtc-port', '0', ...args], {
			cwd: runner.folder,
			env,
			stdio: ['ignore', 'pipe', 'pipe'],
		});
		runner.ended = new Promise((done) => runner.child.on('exit', done));
		createInterface({ input: runner.child.stderr }).on('line', (line) => runner.log.push(line));
		runner.url = await new Promise((done, fail) => {
			createInterface({ input: runner.child.stdout }).on('line', (line) => {
				const found = line.match(/listening on (http:\/\/\S+)/);
				if (found) done(found[1].replace(/\/$/, ''));
			});
			runner.ended.then(() => fail(new Error(`the runner ended at start:\n${runner.log.join('\n')}`)));
		});
		return runner;
	}

	async sessions() {
		const reply = await fetch(`${this.url}/status`);
		return (await reply.json()).sessions;
	}

	/**
	 * Seconds until as many sessions live as wanted. A clean leave is noticed at once; the time limit
	 * is below every time after which the runner frees a session by itself.
	 */
	async waitForSessions(wanted, limitMs = 20000) {
		const start = Date.now();
		await until(async () => (await this.sessions()) === wanted, `${wanted} sessions`, limitMs);
		return ((Date.now() - start) / 1000).toFixed(1);
	}

	terminate() {
		this.child.kill('SIGTERM');
		return this.ended;
	}

	async stop() {
		this.child.kill('SIGKILL');
		await this.ended;
		rmSync(this.folder, { recursive: true });
	}
}
