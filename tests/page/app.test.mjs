// app.js: the page as a whole, on elements that have what it looks for, without a runner.

import assert from 'node:assert/strict';
import test from 'node:test';
import { stopClock } from './support/clock.mjs';
import { Element, makeDocument } from './support/dom.mjs';
import { page, setGlobal, settle } from './support/page.mjs';

const { byId } = makeDocument();
const clock = stopClock();

// Each element has a symbol and a state, and the document has what is found by attributes.
const find = document.getElementById;
document.getElementById = (id) => {
	const element = find(id);
	if (!element.firstChild) element.append(new Element('use'), Object.assign(new Element('span'), { className: 'state' }));
	return element;
};
document.querySelector = () => new Element('meta');
setGlobal('isSecureContext', true);
setGlobal('fetch', async () => { throw new TypeError('refused'); });
const contexts = [];
setGlobal('AudioContext', class {
	constructor() { contexts.push(this); }
	async close() { this.isClosed = true; }
});
let refuse;
navigator.mediaDevices = Object.assign(new EventTarget(), {
	getUserMedia: () => new Promise((_, reject) => { refuse = reject; }),
	enumerateDevices: async () => [],
});
setGlobal('HTMLMediaElement', class {});

test('a microphone that cannot be tested leaves nothing that runs', async () => {
	await page('app.js');
	await settle();
	const waiting = clock.waiting();
	byId('mic-test').click();
	await settle();
	assert.equal(clock.waiting(), waiting + 1, 'the levels are measured');
	refuse(Object.assign(new Error('no'), { name: 'NotAllowedError' }));
	await settle();
	assert.equal(clock.waiting(), waiting);
	assert.ok(contexts.length === 1 && contexts[0].isClosed);
	assert.equal(byId('problem').hidden, false);
});
