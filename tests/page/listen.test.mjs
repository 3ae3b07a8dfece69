// listen.js with a connection that a test moves: the offer of a listener, its end by the button and by the call, and what the runner
// refuses; and where the calls show it.

import assert from 'node:assert/strict';
import test, { beforeEach } from 'node:test';
import { makePeerConnections } from './support/browser.mjs';
import { stopClock } from './support/clock.mjs';
import { Element, makeDocument } from './support/dom.mjs';
import { page, setGlobal, settle } from './support/page.mjs';

makeDocument();
const clock = stopClock();
const { keepKey } = await page('api.js');
const { callList } = await page('calls.js');
const { listenBox } = await page('listen.js');

let pcs, requests, contexts;

beforeEach(() => {
	pcs = makePeerConnections();
	requests = [];
	contexts = [];
	setGlobal('AudioContext', class {
		constructor() { contexts.push(this); }
		createMediaStreamSource() { return { connect() {}, disconnect() {} }; }
		close() { this.isClosed = true; }
	});
	setGlobal('AnalyserNode', class { getFloatTimeDomainData(buffer) { buffer.fill(0.1); } });
});

/** The runner, which answers an offer so. */
function runner(answer = () => new Response('the answer', { status: 201, headers: { Location: '/calls/a%2Fb/listen/l1' } })) {
	setGlobal('fetch', async (url, { method, body, headers }) => {
		requests.push([method, url.pathname, body ?? '', headers?.Authorization ?? '']);
		return method === 'POST' ? answer() : new Response('{}');
	});
}

/** A box whose button was clicked, and whose connection has no more candidates. */
async function listening() {
	const own = listenBox('a/b');
	const [button, said] = own.box.children;
	button.click();
	await settle();
	pcs[0].onicecandidate({ candidate: null });
	await settle();
	return { ...own, button, said, pc: pcs[0] };
}

test('an offer that only receives goes to the call, with the key, and its answer is taken', async () => {
	runner();
	keepKey('the key');
	const { box, button, pc } = await listening();
	assert.deepEqual(requests, [['POST', '/calls/a%2Fb/listen', 'offer 1', 'Bearer the key']]);
	assert.deepEqual([pc.what, pc.how, pc.remote], ['audio', { direction: 'recvonly' }, { type: 'answer', sdp: 'the answer' }]);
	assert.deepEqual([button.textContent, box.children.map(({ tagName }) => tagName)], ['Stop listening', ['BUTTON', 'SPAN', 'AUDIO', 'SPAN']]);
	pc.ontrack({ track: 'sound' });
	const [bar, audio] = box.children.slice(1);
	assert.deepEqual([audio.controls, audio.srcObject.tracks], [true, ['sound']]);
	clock.pass(100);
	assert.ok(Number(bar.getAttribute('aria-valuenow')) > 0);
	assert.deepEqual([bar.getAttribute('role'), bar.getAttribute('aria-label')], ['meter', 'Level of the call']);
	button.click();
	await settle();
	assert.deepEqual(requests.at(-1).slice(0, 2), ['DELETE', '/calls/a%2Fb/listen/l1']);
	assert.deepEqual([pc.isClosed, audio.srcObject, contexts[0].isClosed, box.children.length], [true, null, true, 2]);
	keepKey('');
});

test('an offer waits for candidates, but not for long', async () => {
	runner();
	listenBox('a').box.children[0].click();
	await settle();
	assert.deepEqual(requests, []);
	clock.pass(1000);
	await settle();
	assert.equal(requests.length, 1);
});

test('what the runner refuses is said, and can be tried again', async () => {
	runner(() => new Response('{"detail": "4 listen to this call, as many as may"}', { status: 503 }));
	const { button, said, pc } = await listening();
	assert.deepEqual([said.textContent, button.textContent, pc.isClosed], ['It cannot be played: 4 listen to this call, as many as may', 'Listen', true]);
	assert.equal(requests.length, 1, 'nothing was made that could be ended');
});

test('a lost connection ends it, and one that was stopped before the answer is ended at the runner', async () => {
	runner();
	const first = await listening();
	first.pc.connectionState = 'connected';
	first.pc.onconnectionstatechange();
	assert.equal(first.said.textContent, 'It plays a second late.');
	first.pc.connectionState = 'failed';
	first.pc.onconnectionstatechange();
	assert.deepEqual([first.said.textContent, first.button.textContent], ['The connection is lost.', 'Listen']);
	pcs.length = 0;
	let answer;
	runner(() => new Promise((done) => { answer = done; }));
	const late = await listening();
	late.button.click();
	answer(new Response('the answer', { status: 201, headers: { Location: '/calls/a%2Fb/listen/l2' } }));
	await settle();
	assert.deepEqual(requests.at(-1).slice(0, 2), ['DELETE', '/calls/a%2Fb/listen/l2']);
	assert.equal(late.pc.remote, undefined);
});

test('a live call that allows listening has the button, until it ends', async () => {
	const call = { id: 'c1', transport: 'webrtc', startedAt: '2026-01-02T09:14:00.000Z', duration_ms: 1000, state: 'live', listen_in: true };
	let calls = [call, { ...call, id: 'c2', listen_in: false }, { ...call, id: 'c3', state: 'ended' }];
	setGlobal('fetch', async (url) => (url.pathname === '/calls' ? new Response(JSON.stringify({ calls, next: null })) : new Response('{}', { status: 404 })));
	const own = callList(() => {});
	new Element('main').append(own.box);
	const buttons = () => own.box.all().filter(({ className }) => className === 'listen').length;
	await own.refresh();
	assert.equal(buttons(), 1);
	calls = calls.map((each) => ({ ...each, state: 'ended' }));
	await own.refresh();
	assert.equal(buttons(), 0);
	own.stop();
});
