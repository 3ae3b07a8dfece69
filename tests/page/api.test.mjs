// api.js: requests below any prefix, the key of the runner and where it may be seen, and failures that words.js can explain.

import assert from 'node:assert/strict';
import test, { beforeEach } from 'node:test';
import { makeDocument } from './support/dom.mjs';
import { anew, page, setGlobal } from './support/page.mjs';

makeDocument('http://192.168.1.5:7860/client/?transport=moq#key=from-the-url');
const { apiKey, Failure, isExposed, keepKey, keyWaits, request, status, text } = await page('api.js');

let asked;

/** Answers each request with a status, a body and headers. */
function answer(code, body, headers = {}, statusText = '') {
	setGlobal('fetch', async (url, options) => {
		asked.push({ url: url.href, ...options });
		return new Response(body, { status: code, headers, statusText });
	});
}

beforeEach(() => {
	asked = [];
	keepKey('');
});

test('the key comes from the fragment of the URL, and leaves it', async () => {
	assert.deepEqual(history.replaced, ['/client/?transport=moq']);
	assert.ok(!location.href.includes('from-the-url'));
	globalThis.location = new URL('http://h/client/#sessions&key=a+b%2Fc%26d');
	dispatchEvent(new Event('hashchange'));
	assert.deepEqual([apiKey(), sessionStorage.apiKey, history.replaced.at(-1)], ['a+b/c&d', 'a+b/c&d', '/client/#sessions']);
	globalThis.location = new URL('http://h/client/#log');
	dispatchEvent(new Event('hashchange'));
	assert.equal(apiKey(), 'a+b/c&d', 'another fragment changes nothing');
});

test('over plain HTTP from another machine, a key of a link is sent when the user agrees, and not before', async () => {
	answer(200, '{}');
	const open = (key) => {
		globalThis.location = new URL(`http://192.168.1.5:7860/client/#key=${key}`);
		dispatchEvent(new Event('hashchange'));
	};
	const sent = async () => {
		asked = [];
		await request('POST', 'start', {});
		await text('metrics');
		return asked.map(({ headers }) => headers.Authorization);
	};
	open('k1');
	assert.deepEqual([isExposed(), keyWaits(), apiKey()], [true, true, 'k1']);
	assert.deepEqual(await sent(), [undefined, undefined]);
	keepKey('k1');
	assert.equal(keyWaits(), false);
	assert.deepEqual(await sent(), ['Bearer k1', 'Bearer k1']);
	const { keyWaits: waitsAnew } = await anew('api.js');
	assert.equal(waitsAnew(), false, 'loaded anew, it is not asked again');
	open('k2');
	assert.deepEqual([keyWaits(), await sent()], [true, [undefined, undefined]], 'another key is another question');
	const { keyWaits: stillWaits } = await anew('api.js');
	assert.equal(stillWaits(), true, 'loading the page anew is no consent');
	// HTTPS, or this machine.
	globalThis.isSecureContext = true;
	assert.deepEqual([isExposed(), keyWaits(), await sent()], [false, false, ['Bearer k2', 'Bearer k2']]);
	delete globalThis.isSecureContext;
});

test('requests go below the folder of the page, with the key as a bearer', async () => {
	answer(200, '{"a": 1}');
	keepKey('k');
	assert.deepEqual(await request('POST', 'start', { b: 'ü' }), { a: 1 });
	const [{ url, method, body, headers, cache }] = asked;
	assert.deepEqual([method, JSON.parse(body), cache], ['POST', { b: 'ü' }, 'no-store']);
	assert.deepEqual(headers, { 'Content-Type': 'application/json', Authorization: 'Bearer k' });
	assert.equal(url, 'http://192.168.1.5:7860/start', 'one above the page');
});

test('without body and key there are no headers of them', async () => {
	answer(200, '{}');
	await status();
	assert.deepEqual([asked[0].method, asked[0].url, asked[0].body, asked[0].headers], ['GET', 'http://192.168.1.5:7860/status', undefined, {}]);
});

const failure = async (...args) => {
	try {
		await request(...args);
	} catch (error) {
		assert.ok(error instanceof Failure, error.stack);
		return [error.status, error.message, error.retryAfter ?? null];
	}
	return assert.fail('it succeeds');
};

test('a refusal has the runner’s own words', async () => {
	const bodies = [
		['{"detail": "no such transport"}', 'no such transport'],
		['{"info": "no room", "detail": "x"}', 'no room'],
		['{"detail": [{"loc": ["body", "port"], "msg": "too large"}, {"msg": "odd"}, {"loc": "x", "msg": "y"}]}', 'body.port: too large; : odd; x: y'],
		['{"detail": ""}', 'Bad Request'], ['{}', 'Bad Request'], ['null', 'Bad Request'], ['<html>', 'Bad Request'], ['', 'Bad Request'],
	];
	for (const [body, message] of bodies) {
		answer(400, body, {}, 'Bad Request');
		assert.deepEqual(await failure('POST', 'start', {}), [400, message, null], body);
	}
	answer(418, '{}');
	assert.equal((await failure('GET', 'x'))[1], 'no reason given');
});

test('a full runner tells when to come again', async () => {
	answer(503, '{"detail": "full"}', { 'Retry-After': '5' });
	assert.deepEqual(await failure('POST', 'start', {}), [503, 'full', '5']);
});

test('no answer is status 0, and an answer that is no JSON is -1', async () => {
	setGlobal('fetch', async () => { throw new TypeError('fetch failed'); });
	assert.deepEqual(await failure('GET', 'status'), [0, 'fetch failed', null]);
	answer(200, '<html>');
	assert.equal((await failure('GET', 'status'))[0], -1);
});

test('a request that is given up fails without an answer', async () => {
	setGlobal('fetch', (_, { signal }) => new Promise((_done, fail) => { signal.addEventListener('abort', () => fail(signal.reason)); }));
	const giveUp = new AbortController();
	const outcome = failure('POST', 'start', {}, giveUp.signal);
	giveUp.abort(new Error('given up'));
	assert.deepEqual(await outcome, [0, 'given up', null]);
	// Timers of AbortSignal keep no process alive.
	const alive = setInterval(() => {}, 1000);
	assert.equal((await failure('GET', 'status', null, null, 5))[0], 0, 'and one that takes too long');
	clearInterval(alive);
});

test('a text is what is there, else empty', async () => {
	answer(200, 'edge_runner_sessions 1\n');
	keepKey('k');
	assert.equal(await text('metrics'), 'edge_runner_sessions 1\n');
	assert.deepEqual(asked[0].headers, { Authorization: 'Bearer k' });
	answer(403, 'no');
	assert.equal(await text('metrics'), '');
	setGlobal('fetch', async () => { throw new TypeError('x'); });
	assert.equal(await text('metrics'), '');
});

test('a browser that keeps nothing keeps the key as long as the page', () => {
	Object.defineProperty(globalThis, 'sessionStorage', { get() { throw new Error('denied'); }, configurable: true });
	keepKey('once');
	assert.equal(apiKey(), 'once');
});
