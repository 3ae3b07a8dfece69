// words.js: every problem has a title and a text, buttons where they help, and repeats what a runner says as text alone.

import assert from 'node:assert/strict';
import test from 'node:test';
import { makeDocument } from './support/dom.mjs';
import { page, setGlobal } from './support/page.mjs';

makeDocument();
const { keepKey } = await page('api.js');
const { noMicrophone } = await page('secure.js');
const words = await page('words.js');

const KNOWN = ['title', 'text', 'steps', 'more', 'note', 'go', 'listen', 'retry', 'play', 'key', 'reset', 'good'];

const moqAddress = new URL('https://runner.example:4443/moq/room');
const problems = {
	microphone: [{ name: 'NotAllowedError', message: '' }], runner: ['The start', { status: 0, message: 'x' }], noConnection: [{ message: 'x' }, 'Load the page anew.'],
	noPath: [{ own: new Set(), theirs: null }], noSocket: [], botFailed: [], notReady: ['It waits.'], refusedCall: ['no proof'], lostSocket: [1006, ''], notHere: [false],
	badRequest: ['wrong.'], noMoq: [moqAddress, {}], otherMoq: ['v'], noBroadcast: ['h'], lostMoq: [null], noSound: [], fatal: ['why'],
};

test('each problem has words, and nothing that app.js does not show', () => {
	const made = Object.keys(words).filter((name) => !['json', 'keyWanted'].includes(name)).sort();
	assert.deepEqual(made, Object.keys(problems).sort());
	for (const [name, args] of Object.entries(problems)) {
		const problem = words[name](...args);
		assert.ok(problem.title && !/[.!]$/.test(problem.title), `${name}: ${problem.title}`);
		assert.match(problem.text, /[.?)]$/, name);
		assert.doesNotMatch(JSON.stringify(problem), /undefined|null|\[object|NaN/, name);
		for (const key of Object.keys(problem)) assert.ok(KNOWN.includes(key), `${name} has ${key}`);
		for (const step of problem.steps ?? []) assert.ok(Array.isArray(step) && step.every((part) => part instanceof URL || part.length), name);
	}
});

test('errors of the microphone are told apart', () => {
	const titles = [
		['NotAllowedError', 'Permission denied', 'The microphone was not allowed'],
		['NotAllowedError', 'Permission denied by system', 'The system blocks the microphone'],
		['NotFoundError', '', 'No microphone found'],
		['NotReadableError', '', 'The microphone is busy'],
		['AbortError', '', 'The microphone is busy'],
		['TypeError', 'odd', 'The microphone does not open'],
	];
	for (const [name, message, title] of titles) {
		const problem = words.microphone({ name, message });
		assert.deepEqual([problem.title, problem.listen, problem.retry], [title, true, true], `${name} ${message}`);
	}
	assert.match(words.microphone({ name: 'X', message: 'odd' }).text, /says “odd”/);
	assert.match(words.microphone({ name: 'X', message: '' }).text, /says “X”/);
});

test('refusals of the runner say what to change', () => {
	const of = (status, what = 'The offer', retryAfter = null) => words.runner(what, { status, message: 'no', retryAfter });
	assert.match(of(0).text, /still running on 192\.168\.1\.5:7860.*\(no\)/);
	assert.equal(of(0).retry, true);
	assert.match(of(-1).text, /Is it really edge-runner/);
	assert.match(of(403).text, /“no”.*--allowed-origins/);
	assert.match(of(421).text, /--allowed-hosts/);
	assert.deepEqual([of(403).retry, of(500).retry, of(400).title], [false, true, 'The offer was refused (400)']);
	assert.match(of(400, 'The start').text, /session options/);
	assert.doesNotMatch(of(400).text, /session options/);
});

test('a quoted sentence has one full stop', () => {
	assert.equal(words.fatal('The assistant is not available.').text, 'It says “The assistant is not available”.');
	assert.equal(words.fatal('no reason given').text, 'It says “no reason given”.');
});

test('a full runner says when to come back', () => {
	const of = (retryAfter) => words.runner('The start', { status: 503, message: 'full', retryAfter });
	assert.match(of('5').text, /Try again in 5 s\.$/);
	assert.match(of(null).text, /Try again later\.$/);
	assert.deepEqual([of('5').title, of('5').retry], ['All sessions are in use', true]);
});

test('a runner that stops is not called full', () => {
	const { title, text, retry } = words.runner('The start', { status: 503, message: 'this runner is stopping', retryAfter: '5' });
	assert.deepEqual([title, retry], ['The runner is stopping', true]);
	assert.match(text, /no new calls/);
});

test('a key is asked for, and a wrong one is called wrong', () => {
	const of = () => words.runner('The start', { status: 401, message: 'unauthorised' });
	assert.match(of().text, /--api-key/);
	assert.equal(of().good, true, 'to sign in is no failure');
	keepKey('wrong');
	assert.match(of().text, /rejected the key/);
	assert.equal(of().good, false);
	assert.equal(of().key, true);
	keepKey('');
});

test('who asks for a key over plain HTTP says who can read it, and leads to HTTPS', async () => {
	const of = () => words.runner('The start', { status: 401, message: 'unauthorised' });
	assert.match(of().text, /plain HTTP.*others in the network can read the key/);
	location.hash = '#key=of-the-link';
	dispatchEvent(new Event('hashchange'));
	assert.match(of().text, /was not sent yet.*plain HTTP/);
	assert.deepEqual([of().key, of().good, of().go], [true, false, null], 'the runner speaks no HTTPS, as far as is known');
	setGlobal('fetch', async () => ({ ok: true, type: 'opaque' }));
	await noMicrophone();
	assert.equal(of().go.href, 'https://192.168.1.5:7860/client/#key=of-the-link');
	globalThis.isSecureContext = true;
	assert.match(of().text, /rejected the key/, 'it was sent');
	keepKey('');
	assert.doesNotMatch(of().text, /plain HTTP/);
	delete globalThis.isSecureContext;
});

test('a failed path tells which addresses were tried, and the ports to open', () => {
	const theirs = [['192.168.1.5', '7860'], ['203.0.113.1', '7860'], ['192.168.1.5', '7861']];
	const { text, steps } = words.noPath({ own: new Set(['host', 'srflx', 'relay']), theirs, heard: 0 });
	assert.match(text, /tries local and public and relayed addresses; the runner offers 192\.168\.1\.5 port 7860, 203/);
	assert.match(text, /no packet came back\.$/);
	assert.match(steps[0][0], /at port 7860, 7861\.$/);
	assert.match(words.noPath({ own: new Set(['host']), theirs, heard: 3 }).text, /some packets come/);
	const blind = words.noPath({ own: new Set(), theirs: null });
	assert.match(blind.text, /no address to try.*the runner has not answered yet\.$/);
	assert.match(blind.steps[0][0], /--rtc-port/);
	assert.match(words.noPath({ own: new Set(), theirs: [] }).text, /the runner offers none/);
});

test('the end of a socket tells its code, but for a failed bot', () => {
	assert.deepEqual(words.lostSocket(1011, 'x'), words.botFailed());
	assert.match(words.lostSocket(1006, '').text, /\(WebSocket 1006\)$/);
	assert.match(words.lostSocket(1008, 'policy').text, /\(WebSocket 1008: policy\)$/);
	assert.match(words.lostSocket().text, /accepts no more sound/);
});

test('a call that lacks proof is told how to get it; others are repeated', () => {
	for (const reason of ['a call without proof', 'the token was used before']) {
		const problem = words.refusedCall(reason);
		assert.deepEqual([problem.title, problem.key], ['This runner takes proven calls only', true]);
		assert.ok(problem.steps.some((step) => step.includes('--unverified-calls')));
	}
	assert.match(words.refusedCall('too many').text, /“too many”/);
});

test('a failed MoQ connection tells who does not answer, and how', () => {
	const of = (about) => words.noMoq(moqAddress, about);
	assert.match(of({ silent: true, serve: true }).title, /UDP is blocked on the way to the bot/);
	assert.match(of({ silent: true, serve: true }).text, /runner\.example, UDP port 4443/);
	const relay = of({ silent: true, serve: false });
	assert.match(relay.title, /to the relay/);
	assert.ok(relay.steps.some((step) => step.includes('edge-runner doctor -t moq --moq-connect https://runner.example:4443/moq/room')));
	assert.match(of({ serve: true, hash: 'x' }).steps[0][0], /another program at that port/);
	assert.match(of({ serve: false, hash: 'x' }).steps[0][0], /the file of --moq-tls-cert/);
	assert.match(of({ serve: false }).steps[0][0], /certificate must be for runner\.example/);
	assert.match(words.noMoq(new URL('https://r.example/x'), { silent: true }).text, /UDP port 443\.$/);
});

test('a browser that lacks something is told what', () => {
	assert.match(words.notHere(true).text, /audio worklets/);
	assert.match(words.notHere(false).text, /WebTransport and WebCodecs/);
	assert.match(words.lostMoq(new Error('gone')).text, /\(gone\)$/);
	assert.match(words.lostMoq().text, /\(it accepts no more sound\)$/);
});

// ---- mistakes in JSON

/** The error of Firefox, which reports the place. */
const placed = (text, at) => {
	const before = text.slice(0, at).split('\n');
	return { message: `JSON.parse: bad character at line ${before.length} column ${before.at(-1).length + 1} of the JSON data` };
};

test('an end that comes too early is told without a place, whatever the browser says', () => {
	for (const message of ['Unexpected end of JSON input', 'JSON Parse error: Unexpected EOF', 'JSON.parse: unterminated string literal']) {
		assert.match(words.json('{"a', { message }), /ends too early/);
	}
	for (const text of ['{', '{"a":', '[1,']) {
		try { JSON.parse(text); } catch (error) { assert.match(words.json(text, error), /ends too early|Not JSON yet/); }
	}
	assert.match(words.json('{\n', placed('{\n', 2)), /ends too early/);
});

test('a mistake is told with its line and column, and how to mend it', () => {
	const of = (text, at) => words.json(text, placed(text, at));
	assert.equal(of('{"a": 1,}', 8), 'Line 1, column 9: remove the comma before }');
	assert.equal(of('{\n  "a": [1, 2,\n]}', 16), 'Line 3, column 1: remove the comma before ]');
	assert.equal(of('{a: 1}', 1), 'Line 1, column 2: names and texts need double quotes.');
	assert.equal(of("{'a': 1}", 1), 'Line 1, column 2: names and texts need double quotes.');
	assert.equal(of('{"a" 1}', 5), 'Line 1, column 6: 1 is not expected here; is a comma or a colon missing?');
	assert.equal(of('{"a": }', 6), 'Line 1, column 7: } is not expected here; is a comma or a colon missing?');
});

test('browsers that tell no place are quoted', () => {
	const message = 'Unexpected token } in JSON at position 8';
	assert.equal(words.json('{"a": 1,}', { message }), `Not JSON yet: ${message}`);
});
