// The published relay of Media over QUIC, with a self-signed certificate. It can be ended and started again at the same port.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export class Relay {
	constructor(program) {
		this.program = program;
		this.port = 0;
		// The relay watches the folder of the files, so nothing else is in there.
		this.folder = mkdtempSync(join(tmpdir(), 'relay-'));
		[this.cert, this.key] = ['cert.pem', 'key.pem'].map((name) => join(this.folder, name));
		execFileSync('openssl', [
			'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '13',
			'-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-keyout', this.key, '-out', this.cert,
		], { stdio: 'ignore' });
	}

	async start() {
		this.child = spawn(this.program, [
			'--listen', `[::]:${this.port}`, '--listen-tls-cert', this.cert, '--listen-tls-key', this.key, '--auth-public', '**',
		], { stdio: ['ignore', 'ignore', 'pipe'] });
		this.ended = new Promise((done) => this.child.on('exit', done));
		this.port = await new Promise((done, fail) => {
			createInterface({ input: this.child.stderr }).on('line', (line) => {
				const found = line.replace(/\x1b\[\d+m/g, '').match(/listening addr=\S+:(\d+)/);
				if (found) done(Number(found[1]));
			});
			this.ended.then(() => fail(new Error('the relay ended at start')));
		});
		/** The arguments of a runner behind it. */
		this.args = ['--moq-connect', `https://localhost:${this.port}/moq`, '--moq-tls-cert', this.cert, '--moq-tls-insecure'];
		return this;
	}

	async kill() {
		this.child.kill('SIGKILL');
		await this.ended;
	}

	async stop() {
		await this.kill();
		rmSync(this.folder, { recursive: true });
	}
}
