// log.js: what is kept, shown and saved of a call, and that no key or password is among it; and dom.js, which it stands on.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Element, makeDocument } from './support/dom.mjs';
import { page, setGlobal, settle } from './support/page.mjs';
import { stopClock } from './support/clock.mjs';

const clock = stopClock(Date.UTC(2026, 10, 27, 12, 0, 0));
const { byId } = makeDocument();
const { eventLog } = await page('log.js');
const { atEnd, clock: timeOfDay, copy, keep, keepEnd, kept, make, stamped } = await page('dom.js');

/** A log on a new document; `saved()` resolves to the text of its file. */
function open() {
	const own = makeDocument();
	const log = eventLog();
	return {
		log,
		...own,
		items: () => own.byId('log').children.map((item) => item.querySelector('.title').textContent),
		async saved() {
			let blob;
			URL.createObjectURL = (given) => {
				blob = given;
				return 'blob:x';
			};
			own.byId('log-save').click();
			return blob.text();
		},
	};
}

test('entries are shown in order, levels only when they are asked for', () => {
	const { log, items, byId: at } = open();
	log('call', 'one');
	log('levels', 'two');
	log('error', 'three');
	assert.deepEqual(items(), ['one', 'three']);
	for (const [kind, titles] of [['levels', ['two']], ['error', ['three']], ['http', []], ['', ['one', 'three']]]) {
		at('log-kind').value = kind;
		at('log-kind').fire('change');
		assert.deepEqual(items(), titles, kind);
	}
	assert.match(at('log-last').textContent, / three$/);
});

test('a filter looks in titles and details, in any case', () => {
	const { log, items, byId: at } = open();
	log('call', 'Alpha', { x: 'needle' });
	log('call', 'Beta');
	at('log-filter').value = ' NEEDLE ';
	at('log-filter').fire('input');
	assert.deepEqual(items(), ['Alpha']);
	log('call', 'no');
	log('call', 'a Needle');
	assert.deepEqual(items(), ['Alpha', 'a Needle']);
	at('log-filter').value = '.*';
	at('log-filter').fire('input');
	assert.deepEqual(items(), [], 'it is no pattern');
});

test('a thousand entries are kept', async () => {
	const { log, items, saved } = open();
	for (let nth = 0; nth < 1100; nth++) log('call', `t${nth}`);
	assert.deepEqual([items().length, items()[0], items().at(-1)], [1000, 't100', 't1099']);
	assert.equal((await saved()).match(/ call t/g).length, 1000);
});

test('a detail is put in when it is opened, and cut', () => {
	const { log, byId: at } = open();
	log('received', 'big', 'x'.repeat(10000));
	const details = at('log').querySelector('details');
	assert.equal(details.querySelector('pre'), null);
	details.fire('toggle');
	details.fire('toggle');
	const pres = details.children.filter(({ tagName }) => tagName === 'PRE');
	assert.deepEqual(pres.map(({ textContent }) => textContent.length), [6000]);
	assert.equal(details.querySelector('.brief').textContent.length, 240);
	log('call', 'y'.repeat(1000));
	assert.equal(at('log').lastElementChild.querySelector('.title').textContent.length, 300);
});

const SECRET = 'hunter2';
const LEAKS = [
	['an object', { credential: SECRET, password: SECRET, pwd: SECRET, token: SECRET, api_key: SECRET, apiKey: SECRET, Authorization: SECRET }],
	['an object within', { iceConfig: { iceServers: [{ urls: ['turn:a'], username: 'u', credential: SECRET }] } }],
	['JSON as text', `{"token" : "${SECRET}","more":1}`],
	['a URL', `wss://runner.example/ws?token=${SECRET}&x=1`],
	['a URL in an object', { wsUrl: `wss://runner.example/ws?a=1&token=${SECRET}` }],
	['a relay’s path', { moq: { relayUrl: `https://relay.example:4443/moq/${SECRET}` } }],
	['a description', { sdp: `v=0\r\na=ice-ufrag:abcd\r\na=ice-pwd:${SECRET}\r\na=mid:0\r\n` }],
	['a description as text', `a=ice-pwd:${SECRET}\r\na=mid:0`],
];

test('no key or password enters, in whatever form it is told', async () => {
	for (const [what, detail] of LEAKS) {
		const { log, byId: at, saved } = open();
		log('http', 'answer', detail);
		log('http', typeof detail === 'string' ? detail : JSON.stringify(detail));
		at('log').querySelector('details').fire('toggle');
		const text = `${at('log').textContent} ${at('log-last').textContent} ${await saved()}`;
		assert.ok(!text.includes(SECRET), `${what}: ${text}`);
		assert.ok(text.includes('(left out)'), what);
	}
});

test('what stands beside a secret is kept', async () => {
	const { log, saved } = open();
	log('http', 'a', { token: 'x', sessionId: '17' });
	log('http', 'b', 'wss://h/ws?token=x&sessionId=18');
	log('http', 'c', { sdp: 'a=ice-pwd:x\r\na=mid:19\r\n' });
	log('http', 'd', { relayUrl: 'https://relay.example:4443/moq/x', namespace: '20' });
	const text = await saved();
	for (const kept of ['"token": "(left out)"', '?token=(left out)&', 'a=ice-pwd:(left out)', '4443/(left out)"', '"sessionId": "17"', 'sessionId=18', 'a=mid:19', 'https://relay.example:4443/', '"namespace": "20"']) assert.ok(text.includes(kept), kept);
});

test('what is saved or copied has the beginnings of ids alone; what is shown has all of them', async () => {
	const { log, byId: at, saved } = open();
	const [session, connection, room] = ['5e551011-aaaa-bbbb', 'c0nnect1-cccc-dddd', 'r00m5abc-eeee-ffff'];
	log('http', 'started', { sessionId: session, url: `http://a.example/x?sessionId=${session}&y=1` });
	log('http', `POST /sessions/${session}/api/offer`, { pc_id: connection });
	log('http', 'answer', `{"pc_id": "${connection}", "session_id":"${session}"}`);
	log('error', `of https://a.example/whip/s/${connection}: gone`);
	log('call', `joined ${room}`);
	log.ids({ room, call: undefined, number: 5, short: 'call' });
	const copied = [];
	navigator.clipboard = { writeText: async (text) => { copied.push(text); } };
	at('log-copy').click();
	const text = await saved();
	assert.deepEqual(copied, [text]);
	for (const id of [session, connection, room]) {
		assert.ok(text.includes(`${id.slice(0, 8)}…`) && !text.includes(id.slice(0, 9)), `${id}: ${text}`);
		assert.ok(at('log').textContent.includes(id) || id !== room, id);
	}
	for (const kept of ['&y=1', '/api/offer', 'call joined', ': gone']) assert.ok(text.includes(kept), kept);
});

test('a saved log tells page, browser and times, and indents details', async () => {
	const { log, saved } = open();
	log('call', 'Connected', 'two\nlines');
	const lines = (await saved()).split('\n');
	assert.deepEqual(lines.slice(0, 3), ['http://192.168.1.5:7860', 'a test', '']);
	assert.match(lines[3], /^\d{4}-\d\d-\d\dT[\d:.]+Z call Connected$/);
	assert.deepEqual(lines.slice(4), ['    two', '    lines', '']);
});

test('a detail of any type is text', () => {
	const { log, byId: at } = open();
	for (const detail of [0, false, null, undefined, '', [], {}, 'text', 5]) log('call', 'x', detail);
	const briefs = at('log').children.map((item) => item.querySelector('.brief')?.textContent ?? null);
	assert.deepEqual(briefs, ['0', 'false', null, null, null, '[]', '{}', 'text', '5']);
});

test('clear removes all', async () => {
	const { log, items, byId: at, saved } = open();
	log('call', 'x');
	at('log-clear').click();
	assert.deepEqual([items(), at('log-last').textContent], [[], '']);
	assert.equal((await saved()).split('\n').length, 4);
});

test('the log stays open on the next visit', () => {
	const { byId: at } = open();
	assert.equal(at('log-body').hidden, true);
	at('log-open').click();
	assert.deepEqual([at('log-body').hidden, at('log-open').getAttribute('aria-expanded'), localStorage.log], [false, 'true', 'open']);
	const { log } = localStorage;
	makeDocument();
	localStorage.log = log;
	eventLog();
	assert.equal(document.getElementById('log-body').hidden, false);
});

test('ids that there are get a button each, which copies', async () => {
	const { log, byId: at } = open();
	const copied = [];
	navigator.clipboard = { writeText: async (text) => { copied.push(text); } };
	log.ids({ session: 's1', call: undefined, connection: '<b>' });
	const buttons = at('ids').children.map((item) => item.children[0]);
	assert.deepEqual(buttons.map(({ textContent }) => textContent), ['session s1', 'connection <b>']);
	buttons[1].click();
	await settle();
	assert.deepEqual([copied, buttons[1].textContent], [['<b>'], 'Copied']);
	clock.pass(1500);
	assert.equal(buttons[1].textContent, 'connection <b>');
});

// ---- dom.js

test('without a clipboard a text is selected and copied', async () => {
	delete navigator.clipboard;
	const commands = [];
	for (const [works, said] of [[true, 'Copied'], [false, 'Not allowed']]) {
		document.execCommand = (name) => {
			commands.push([name, document.documentElement.all().find(({ tagName }) => tagName === 'TEXTAREA')?.value]);
			return works;
		};
		const button = make('button', '', 'Copy');
		document.documentElement.append(button);
		await copy(button, 'secret text');
		assert.equal(button.textContent, said);
		clock.pass(1500);
		assert.equal(button.textContent, 'Copy');
	}
	assert.deepEqual(commands, [['copy', 'secret text'], ['copy', 'secret text']]);
	assert.ok(!document.documentElement.all().some(({ tagName }) => tagName === 'TEXTAREA'), 'nothing is left behind');
});

test('what is kept is found again; a browser that keeps nothing has the default', () => {
	keep('theme', 'dark');
	assert.deepEqual([kept('theme', 'auto'), kept('other', 'x')], ['dark', 'x']);
	Object.defineProperty(globalThis, 'localStorage', { get() { throw new Error('denied'); }, configurable: true });
	keep('theme', 'light');
	assert.equal(kept('theme', 'auto'), 'auto');
	setGlobal('localStorage', {});
});

test('the end of a list stays in view while it grows, unless the user looks further up', async () => {
	const list = Object.assign(new Element('ol'), { clientHeight: 100, scrollHeight: 500, scrollTop: 400 });
	const grow = (pixels) => () => { list.scrollHeight += pixels; };
	atEnd(list, grow(50));
	assert.equal(list.scrollTop, 550);
	list.scrollTop = 550 - 100 - 79;
	atEnd(list, grow(50));
	assert.equal(list.scrollTop, 600, '79 pixels above the end');
	list.scrollTop = 600 - 100 - 80;
	atEnd(list, grow(50));
	assert.equal(list.scrollTop, 420, '80 pixels are a choice');
});

test('a list that becomes lower keeps its end in view, if it was', async () => {
	let resize;
	setGlobal('ResizeObserver', class {
		constructor(run) { resize = run; }
		observe() {}
	});
	const list = Object.assign(new Element('ol'), { clientHeight: 100, scrollHeight: 500, scrollTop: 0 });
	keepEnd(list);
	resize();
	assert.equal(list.scrollTop, 500, 'at first it is');
	for (const [above, follows] of [[79, true], [80, false]]) {
		list.scrollTop = 400 - above;
		list.fire('scroll');
		resize();
		assert.equal(list.scrollTop, follows ? 500 : 320, `${above} pixels`);
	}
});

test('times have milliseconds, and names of files no colons', () => {
	assert.equal(timeOfDay(new Date(2026, 0, 2, 3, 4, 5, 6)), '03:04:05.006');
	assert.equal(timeOfDay(new Date(2026, 0, 2, 23, 59, 59, 999)), '23:59:59.999');
	assert.match(stamped('txt'), /^edge-runner-\d{4}-\d\d-\d\dT\d{6}\.txt$/);
});

test('an element has its class and its children', () => {
	const element = make('p', 'a b', 'text', make('b', '', 'bold'), '');
	assert.deepEqual([element.tagName, element.className, element.textContent, element.children.length], ['P', 'a b', 'textbold', 1]);
	assert.ok(byId);
});
