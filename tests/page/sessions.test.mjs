// sessions.js, keypad.js, recorder.js and the QR code of shell.js: the other parts of the page, each on a document of its own.

import assert from 'node:assert/strict';
import test from 'node:test';
import { stopClock } from './support/clock.mjs';
import { Element, makeDocument } from './support/dom.mjs';
import { anew, page, setGlobal, settle, until } from './support/page.mjs';

const { byId } = makeDocument();
const clock = stopClock();
const { apiKey, keepKey } = await page('api.js');
const { keypad } = await page('keypad.js');
const { sessionsView } = await page('sessions.js');
const { labelOf } = await page('transports.js');

// ---- live sessions

const SESSION = { id: 'a1', transport: 'webrtc', age_s: 75, state: 'talking', loss_percent: 1.25, messages_in: 3, messages_out: 4, speech_queued_ms: 119.6 };

/** The list, with the answers of the runner. */
function list({ sessions = [200, { sessions: [SESSION] }], metrics = '', end = [200, {}], calls = [404, {}], call = {}, events = null } = {}) {
	const view = new Element('main');
	const own = { answers: { sessions, metrics, end, calls, call }, requests: [] };
	setGlobal('fetch', async (url, { method = 'GET', headers, signal }) => {
		if (url.pathname === '/calls/events') own.followed = [...own.followed ?? [], signal];
		else if (url.pathname.startsWith('/calls')) own.asked = [...own.asked ?? [], url.pathname + url.search];
		else own.requests.push([method, url.pathname, headers?.Authorization ?? '']);
		if (url.pathname === '/metrics') return new Response(own.answers.metrics);
		if (url.pathname === '/calls/events' && events) return events();
		const id = url.pathname.split('/calls/')[1];
		if (id) return new Response(JSON.stringify(own.answers.call[decodeURIComponent(id)] ?? {}), { status: id in own.answers.call ? 200 : 404 });
		const outcome = url.pathname === '/calls' ? own.answers.calls : method === 'DELETE' ? own.answers.end : own.answers.sessions;
		if (outcome instanceof Error) throw outcome;
		return new Response(JSON.stringify(outcome[1]), { status: outcome[0] });
	});
	const shown = sessionsView(view);
	const find = (id) => view.all().find((element) => element.id === id);
	return Object.assign(own, {
		shown, view, find,
		items: () => find('sessions-list').children,
		rows: (nth = 0) => Object.fromEntries(find('sessions-list').children[nth].querySelector('dl').children.map((row) => row.children.map(({ textContent }) => textContent))),
		problem: () => view.querySelector('.problem'),
		figures: () => find('sessions-figures').children.map((box) => box.querySelector('b').textContent),
		async show() {
			shown.show(true);
			await settle();
		},
		async later() {
			clock.pass(2000);
			await settle();
		},
	});
}

test('each session is listed with what the runner tells', async () => {
	const own = list();
	await own.show();
	assert.deepEqual(own.rows(), {
		Transport: 'WebRTC', Age: '1 min 15 s', State: 'talking', Loss: '1.3 %', Messages: '3 in, 4 out', 'Speech queued': '120 ms',
	});
	assert.equal(own.items()[0].querySelector('.id').textContent, 'a1');
	assert.equal(own.view.all().find(({ textContent }) => textContent === 'No one is in a call.').hidden, true);
	own.shown.show(false);
});

test('ages are told in two units at most, and unknown values as such', async () => {
	for (const [age, text] of [[0, '0 s'], [59.9, '59 s'], [60, '1 min 0 s'], [3599, '59 min 59 s'], [3600, '1 h 0 min'], [90061, '25 h 1 min']]) {
		const own = list({ sessions: [200, { sessions: [{ ...SESSION, age_s: age, loss_percent: null, transport: 'new' }] }] });
		await own.show();
		assert.deepEqual([own.rows().Age, own.rows().Loss, own.rows().Transport], [text, '–', 'new']);
		own.shown.show(false);
	}
});

test('the list follows the runner, and a session that stays keeps its place and its button', async () => {
	const own = list();
	await own.show();
	const [first] = own.items();
	own.answers.sessions = [200, { sessions: [{ ...SESSION, age_s: 77 }, { ...SESSION, id: 'b2' }] }];
	await own.later();
	assert.deepEqual([own.items().length, own.items()[0] === first, own.rows().Age], [2, true, '1 min 17 s']);
	own.answers.sessions = [200, { sessions: [] }];
	await own.later();
	assert.deepEqual([own.items().length, own.view.all().find(({ textContent }) => textContent === 'No one is in a call.').hidden], [0, false]);
	own.shown.show(false);
	const asked = own.requests.length;
	await own.later();
	assert.equal(own.requests.length, asked, 'nothing is asked for a list that is not shown');
});

test('a page in the background asks nothing', async () => {
	const own = list();
	document.hidden = true;
	await own.show();
	await own.later();
	assert.deepEqual(own.requests, []);
	document.hidden = false;
	await own.later();
	assert.equal(own.items().length, 1);
	own.shown.show(false);
});

test('a session is hung up by its id, whatever characters that has', async () => {
	const own = list({ sessions: [200, { sessions: [{ ...SESSION, id: 'a/b c' }] }] });
	await own.show();
	own.items()[0].querySelector('button').click();
	await settle();
	assert.deepEqual(own.requests.find(([method]) => method === 'DELETE'), ['DELETE', '/sessions/a%2Fb%20c', '']);
	const said = () => own.view.all().find((element) => element.getAttribute('role') === 'status').textContent;
	assert.equal(said(), 'The call ends.');
	own.answers.end = [404, { detail: 'x' }];
	own.items()[0].querySelector('button').disabled = false;
	own.items()[0].querySelector('button').click();
	await settle();
	assert.equal(said(), 'That call is over.');
	own.answers.end = [403, { detail: 'not yours' }];
	own.items()[0].querySelector('button').click();
	await settle();
	assert.equal(said(), 'It was not ended: not yours');
	own.shown.show(false);
});

test('a list that is refused says why, and asks for the key where one helps', async () => {
	const reasons = [
		[[401, { detail: 'x' }], 'The list of calls needs the key', true], [[403, { detail: 'x' }], 'The list of calls is not for this browser', false],
		[[404, { detail: 'x' }], 'This runner lists no calls', false], [new TypeError('x'), 'The runner does not answer', false],
	];
	for (const [answer, title, asks] of reasons) {
		const own = list({ sessions: answer });
		await own.show();
		assert.deepEqual([own.problem().querySelector('h2').textContent, own.problem().querySelector('form') !== null], [title, asks]);
		assert.deepEqual([own.items().length, own.find('sessions-figures').hidden], [0, true]);
		own.answers.sessions = [200, { sessions: [SESSION] }];
		await (asks ? own.show() : own.later());
		assert.deepEqual([own.problem().hidden, own.find('sessions-figures').hidden], [true, false]);
		own.shown.show(false);
	}
});

test('without a key the list is asked for once, and again with one', async () => {
	const own = list({ sessions: [401, { detail: 'x' }] });
	const asked = () => own.requests.filter(([, path]) => path === '/sessions').length;
	await own.show();
	await own.later();
	await own.later();
	assert.equal(asked(), 1);
	const form = own.problem().querySelector('form');
	form.querySelector('input').value = 'wrong';
	form.fire('submit');
	await settle();
	await own.later();
	assert.equal(asked(), 2);
	own.answers.sessions = [200, { sessions: [] }];
	own.shown.show(false);
	await own.show();
	await own.later();
	assert.equal(asked(), 4, 'a list that is shown again is followed');
	own.shown.show(false);
	keepKey('');
});

test('a key of a link is put into the field, and sent over plain HTTP when the user agrees', async () => {
	location.hash = '#key=of-the-link';
	dispatchEvent(new Event('hashchange'));
	const own = list({ sessions: [401, { detail: 'x' }] });
	await own.show();
	const form = own.problem().querySelector('form');
	assert.match(own.problem().textContent, /not sent yet.*plain HTTP/);
	assert.equal(form.querySelector('input').value, 'of-the-link');
	assert.ok(own.requests.every(([, , sent]) => sent === ''), 'nothing was sent');
	form.fire('submit');
	await settle();
	assert.equal(own.requests.at(-1)[2], 'Bearer of-the-link');
	keepKey('');
	own.shown.show(false);
});

test('a key that is typed is used, kept and not shown again; typing is not disturbed', async () => {
	const own = list({ sessions: [401, { detail: 'x' }] });
	own.view.isRoot = true;
	await own.show();
	const form = own.problem().querySelector('form');
	const input = form.querySelector('input');
	assert.equal(input.type, 'password');
	input.value = ' the key ';
	const asked = own.requests.length;
	await own.later();
	assert.equal(own.requests.length, asked, 'it is still being typed');
	own.answers.sessions = [200, { sessions: [SESSION] }];
	form.fire('submit');
	await settle();
	assert.deepEqual([apiKey(), input.value, own.requests.at(-1)[2], own.items().length], ['the key', '', 'Bearer the key', 1]);
	keepKey('');
	own.shown.show(false);
});

test('figures are sums over labels and rates between two looks', async () => {
	const metrics = (cpu, received, lost) => `# HELP edge_runner_sessions x
edge_runner_sessions{transport="webrtc"} 2
edge_runner_sessions{transport="websocket"} 3
edge_runner_sessions_max 100
process_cpu_seconds_total ${cpu}
process_resident_memory_bytes 12345678
edge_runner_received_bytes_total ${received}
edge_runner_sent_bytes_total 1e3
edge_runner_audio_packets_lost_total{direction="in"} ${lost}
`;
	const own = list({ metrics: metrics(10, 1000, 0) });
	await own.show();
	assert.deepEqual(own.figures(), ['5', '–', '12.3 MB', '–', '–', '–']);
	own.answers.metrics = metrics(10.5, 11000, 4);
	await own.later();
	assert.deepEqual(own.figures(), ['5', '25.0 %', '12.3 MB', '40 kb/s', '0 kb/s', '2.0 /s']);
	own.answers.metrics = metrics(0, 0, 0);
	await own.later();
	assert.deepEqual(own.figures().slice(1), ['0.0 %', '12.3 MB', '0 kb/s', '0 kb/s', '0.0 /s'], 'a runner that was restarted');
	own.answers.metrics = 'edge_runner_sessions NaN\n';
	await own.later();
	assert.deepEqual(own.figures()[0], '–');
	own.shown.show(false);
});

test('what a runner tells is text', async () => {
	const hostile = '<img src=x onerror=alert(1)>';
	const own = list({ sessions: [200, { sessions: [{ ...SESSION, id: hostile, state: hostile, transport: hostile }] }] });
	await own.show();
	assert.ok(!own.view.all().some(({ tagName }) => tagName === 'IMG'));
	assert.equal(own.rows().State, hostile);
	own.shown.show(false);
});

// ---- calls

const CALL = {
	id: 'c1', transport: 'telephony_a', caller: '+4366012345', callee: '+431', startedAt: '2026-01-02T09:14:00.000Z', duration_ms: 75_400, state: 'ended',
	outcome: 'left', reason: 'caller left', endedBy: 'caller', interruptions: 1, answers: 2, latency_ms: 812, latency_max_ms: 900,
};
const TEXTS = [
	{ at_ms: 1200, by: 'caller', text: 'What time is it?' },
	{ at_ms: 2400, by: 'bot', text: 'Noon.', latency_ms: 812, stages: [{ name: 'first_token', ms: 300 }, { name: 'TTS', ms: 1204 }] },
];

/** Opens a call, as a click on its summary does. */
async function open(own, nth = 0) {
	const details = own.find('calls-list').children[nth].querySelector('details');
	details.open = true;
	details.fire('toggle');
	await settle();
	return details;
}

test('calls are listed with who called and why they ended, and a call opens with what was said', async () => {
	const own = list({ calls: [200, { calls: [CALL, { ...CALL, id: 'c2', caller: null, answers: 0, latency_ms: null, interruptions: 0 }, { ...CALL, id: 'c3', transport: 'webrtc', provider: 'whatsapp' }], next: null }], call: { c1: { ...CALL, turns: TEXTS, keys: 3, functions: ['light_on'] } } });
	await own.show();
	const summaries = own.find('calls-list').children.map((item) => item.querySelector('summary').children.slice(1).map(({ textContent }) => textContent));
	const label = labelOf('telephony_a');
	assert.deepEqual(summaries, [
		[`${label} · +4366012345 → +431`, '1 min 15 s · caller left · answers after 812 ms · 1 interruption'],
		[`${label} · → +431`, '1 min 15 s · caller left'],
		['WhatsApp · +4366012345 → +431', '1 min 15 s · caller left · answers after 812 ms · 1 interruption'],
	]);
	assert.deepEqual(own.asked, ['/calls?limit=25&'], 'what was said is asked for when the call is opened');
	const details = await open(own);
	assert.deepEqual(own.asked.at(-1), '/calls/c1');
	assert.deepEqual(details.querySelector('ol').children.map((item) => item.children.map(({ textContent }) => textContent)), [
		['Caller · 1 s', 'What time is it?'], ['Bot · 2 s', 'Noon.', 'after 812 ms · first token 300 ms · TTS 1.2 s'],
	]);
	assert.match(details.textContent, /3 keys pressed\. Functions: light_on\./);
	assert.equal((await open(own, 1)).querySelector('.soft').textContent, 'Its record is gone.');
	own.shown.show(false);
});

test('the texts of an opened call look as they did in it', async () => {
	const turns = [{ by: 'caller', text: '**Now** or later?', at_ms: 1000 }, { by: 'bot', text: 'At **noon**.', at_ms: 2000 }];
	const own = list({ calls: [200, { calls: [CALL], next: null }], call: { c1: { ...CALL, turns } } });
	await own.show();
	const [caller, bot] = (await open(own)).querySelector('ol').children;
	assert.equal(caller.textContent, 'Caller · 1 s**Now** or later?');
	assert.equal(bot.textContent, 'Bot · 2 sAt noon.');
	assert.equal(bot.querySelector('strong').textContent, 'noon');
	own.shown.show(false);
});

test('an opened call tells how it ended, in sentences', async () => {
	const dialled = { ...CALL, direction: 'outbound', answered_by: 'human', transferred_to: '+15550001111', endedBy: 'bot', hang_up_reason: 'the caller said goodbye', listeners: 2, errors: ['no voice', 'too late'] };
	const own = list({ calls: [200, { calls: [dialled, { ...CALL, id: 'c2' }], next: null }], call: { c1: dialled, c2: CALL } });
	await own.show();
	assert.match(own.find('calls-list').children[0].querySelector('summary').textContent, /dialled · 1 min 15 s/);
	const said = (await open(own)).textContent;
	for (const sentence of [
		'Answered by: human. Transferred to +15550001111. Ended by the bot: the caller said goodbye. Listeners: 2.',
		'The bot reports: no voice; too late.',
	]) assert.ok(said.includes(sentence), said);
	const plain = (await open(own, 1)).textContent;
	assert.match(plain, /Ended by the caller\./);
	assert.doesNotMatch(plain, /Answered|Transferred|Listeners|reports:/);
	own.shown.show(false);
});

/** A field of the choice among calls, by its name. */
const field = (own, name) => own.view.querySelector('form').children.find((element) => element.name === name);
/** Chooses, as a user does, and waits until that is asked for. */
async function choose(own, name, value) {
	field(own, name).value = value;
	field(own, name).fire('input');
	clock.pass(250);
	await settle();
}

test('calls are chosen by what they differ in', async () => {
	const own = list({ calls: [200, { calls: [CALL, CALL], next: null }] });
	await own.show();
	const shown = () => own.view.querySelector('form').children.filter(({ hidden }) => !hidden).map(({ name }) => name);
	assert.deepEqual(shown(), [], 'nothing to choose');
	const other = { ...CALL, id: 'c2', transport: 'webrtc', caller: null, callee: null, bot: 'sales', startedAt: '2026-01-04T09:14:00.000Z', outcome: 'bot_failed', reason: 'the bot failed' };
	own.answers.calls = [200, { calls: [{ ...CALL, bot: 'menu' }, other, { ...CALL, caller: '+499999' }], next: null }];
	await own.later();
	assert.deepEqual(shown(), ['number', 'day', 'bot', 'transport', 'outcome']);
	const words = (name) => field(own, name).children.map(({ textContent }) => textContent);
	assert.deepEqual(words('bot'), ['All bots', 'menu', 'sales']);
	assert.deepEqual(words('transport'), ['All transports', labelOf('telephony_a'), 'WebRTC']);
	assert.deepEqual(words('outcome'), ['All ends', 'caller left', 'the bot failed']);
	await choose(own, 'outcome', 'bot_failed');
	assert.equal(own.asked.at(-1), '/calls?limit=25&outcome=bot_failed');
	own.answers.calls = [200, { calls: [other], next: null }];
	await choose(own, 'number', '+43 6');
	assert.equal(own.asked.at(-1), '/calls?limit=25&number=%2B43+6&outcome=bot_failed');
	assert.deepEqual(shown(), ['number', 'day', 'bot', 'transport', 'outcome'], 'what was offered stays');
	await choose(own, 'number', '');
	await choose(own, 'outcome', '');
	await choose(own, 'day', '2026-01-04');
	const asked = new URLSearchParams(own.asked.at(-1).split('?')[1]);
	assert.deepEqual(['since', 'until'].map((name) => asked.get(name)), [4, 5].map((day) => new Date(2026, 0, day).toISOString()));
	own.shown.show(false);
});

test('a choice without calls says so, and hides live calls of another kind', async () => {
	const live = { ...CALL, id: 'a1', state: 'live', outcome: null, reason: null, transport: 'webrtc' };
	const own = list({ calls: [200, { calls: [live, CALL], next: null }] });
	await own.show();
	own.answers.calls = [200, { calls: [], next: null }];
	await choose(own, 'transport', 'telephony_a');
	const none = own.view.all().find(({ textContent }) => textContent === 'No call is of this kind.');
	assert.deepEqual([none.hidden, own.find('calls-list').children.length, own.items().length], [false, 0, 0]);
	assert.equal(own.view.querySelector('section').hidden, true, 'no problem');
	own.answers.calls = [200, { calls: [live], next: null }];
	await choose(own, 'transport', '');
	assert.deepEqual([none.hidden, own.find('calls-list').children.length], [true, 1]);
	own.shown.show(false);
});

test('an answer to an earlier choice is not shown', async () => {
	const own = list({ calls: [200, { calls: [CALL, { ...CALL, id: 'c2', transport: 'webrtc' }], next: null }] });
	await own.show();
	let answer;
	const early = new Promise((done) => { answer = done; });
	const { fetch } = globalThis;
	setGlobal('fetch', async (url, options) => {
		if (url.search.includes('transport=webrtc')) await early;
		return fetch(url, options);
	});
	await choose(own, 'transport', 'webrtc');
	own.answers.calls = [200, { calls: [CALL], next: null }];
	await choose(own, 'transport', 'telephony_a');
	own.answers.calls = [200, { calls: [], next: null }];
	answer();
	await settle();
	assert.equal(own.find('calls-list').children.length, 1);
	own.shown.show(false);
});

test('an opened call tells how its network was', async () => {
	const counts = { packets_in: 900, packets_lost: 100, packets_late: 3, frames_recovered: 1, frames_concealed: 40 };
	const measured = { ...CALL, counts, network: { jitter_ms: 4, round_trip_ms: 1250 } };
	const phone = { ...CALL, id: 'c2', counts: { packets_in: 900, packets_lost: 0 }, network: { jitter_ms: null, round_trip_ms: null } };
	const own = list({ calls: [200, { calls: [measured, phone, { ...CALL, id: 'c3' }], next: null }], call: { c1: measured, c2: phone, c3: CALL } });
	await own.show();
	assert.match((await open(own)).textContent, /Network: round trip 1\.3 s, jitter 4 ms, 100 of 1000 packets lost, 3 late, 40 frames concealed\./);
	assert.doesNotMatch((await open(own, 1)).textContent, /Network/);
	assert.doesNotMatch((await open(own, 2)).textContent, /Network/);
	own.shown.show(false);
});

test('an opened call has charts of what was measured over its time', async () => {
	const series = { every_s: 2, lost_percent: [0, 12.5], jitter_ms: [null, null], round_trip_ms: [40, null] };
	const measured = { ...CALL, network: { jitter_ms: null, round_trip_ms: 40, series } };
	const own = list({ calls: [200, { calls: [measured, { ...CALL, id: 'c2' }], next: null }], call: { c1: measured, c2: { ...CALL, id: 'c2', network: { series: null } } } });
	await own.show();
	const labels = (item) => item.all().filter(({ tagName }) => tagName === 'CANVAS').map((canvas) => canvas.getAttribute('aria-label'));
	assert.deepEqual(labels(await open(own)), ['Round trip: between 40.0 and 40.0 ms', 'Lost packets: between 0.0 and 12.5 %']);
	assert.match((await open(own)).textContent, /Lost packetsat most 12\.5 %/);
	assert.deepEqual(labels(await open(own, 1)), []);
	own.shown.show(false);
});

test('a caller without a number is known by the address', async () => {
	const own = list({ calls: [200, { calls: [{ ...CALL, caller: null, callee: null, address: '192.0.2.1' }], next: null }] });
	await own.show();
	assert.match(own.find('calls-list').textContent, /192\.0\.2\.1/);
	own.shown.show(false);
});

test('a live call is listed once: its record has what the session says, and the button that ends it', async () => {
	const live = { ...CALL, id: 'a1', state: 'live', reason: null };
	const own = list({ sessions: [200, { sessions: [SESSION, { ...SESSION, id: 'b2' }] }], calls: [200, { calls: [live, CALL], next: null }] });
	await own.show();
	const [first, past] = own.find('calls-list').children;
	const values = first.querySelector('.live');
	assert.match(values.textContent, /talking/);
	assert.equal(past.querySelector('.live'), null);
	assert.deepEqual(own.items().map((item) => item.querySelector('.id').textContent), ['b2'], 'one without a record');
	await own.later();
	assert.equal(first.querySelector('.live'), values, 'it keeps its button');
	values.querySelector('button').click();
	await settle();
	assert.ok(own.requests.some(([method, path]) => method === 'DELETE' && path === '/sessions/a1'));
	own.answers.sessions = [200, { sessions: [] }];
	own.answers.calls = [200, { calls: [{ ...CALL, id: 'a1' }, CALL], next: null }];
	await own.later();
	assert.equal(first.querySelector('.live'), null);
	assert.match(first.textContent, /caller left/);
	own.shown.show(false);
});

test('the recording of a call that is over is played', async () => {
	const recorded = { ...CALL, recording: 'call-c1.wav', turns: [] };
	const live = { ...recorded, id: 'c2', state: 'live' };
	const own = list({ calls: [200, { calls: [recorded, live, { ...recorded, id: 'c3' }], next: null }], call: { c1: recorded, c2: live, c3: { ...recorded, id: 'c3' }, 'c1/recording': 'sound' } });
	await own.show();
	const details = await open(own);
	details.querySelector('button').click();
	await settle();
	assert.equal(own.asked.at(-1), '/calls/c1/recording');
	const audio = details.querySelector('audio');
	assert.deepEqual([audio.controls, audio.src.slice(0, 5)], [true, 'blob:']);
	assert.equal((await open(own, 1)).querySelector('button'), null, 'it is not whole yet');
	const gone = await open(own, 2);
	gone.querySelector('button').click();
	await settle();
	assert.match(gone.textContent, /Its recording is gone\./);
	own.shown.show(false);
});

test('a live call that is open goes on, and one that is closed is not asked for', async () => {
	const live = { ...CALL, state: 'live', reason: null };
	const own = list({ calls: [200, { calls: [live, { ...live, id: 'c2' }], next: null }], call: { c1: { ...live, turns: [] } } });
	await own.show();
	const details = await open(own);
	assert.match(details.textContent, /Nothing was said/);
	own.answers.call.c1 = { ...live, turns: TEXTS };
	await own.later();
	assert.equal(details.querySelector('ol').children.length, 2);
	assert.ok(!own.asked.includes('/calls/c2'));
	own.answers.calls = [200, { calls: [CALL], next: null }];
	own.answers.call.c1 = { ...CALL, turns: TEXTS };
	await own.later();
	assert.match(own.find('calls-list').textContent, /caller left/);
	const asked = own.asked.length;
	await own.later();
	assert.deepEqual(own.asked.slice(asked), ['/calls?limit=25&'], 'what is over stays');
	own.shown.show(false);
});

test('earlier calls are asked for, and a runner without records has no list', async () => {
	const own = list({ calls: [200, { calls: [CALL], next: 'c1' }] });
	await own.show();
	const box = own.find('calls-list').parentElement ?? own.view.all().find((element) => element.children?.includes(own.find('calls-list')));
	const more = box.querySelector('button');
	assert.deepEqual([box.hidden, more.hidden], [false, false]);
	more.click();
	await settle();
	assert.equal(own.asked.at(-1), '/calls?limit=50&');
	own.answers.calls = [404, { detail: 'x' }];
	await own.later();
	assert.equal(box.hidden, true);
	const asked = own.asked.length;
	await own.later();
	assert.equal(own.asked.length, asked, 'it is not asked again');
	own.shown.show(false);
});

test('the list follows the stream of events, and is asked for now and then without one', async () => {
	let stream;
	const events = () => new Response(new ReadableStream({ start: (controller) => { stream = controller; } }), { headers: { 'Content-Type': 'text/event-stream' } });
	const own = list({ calls: [200, { calls: [CALL], next: null }], events });
	const send = async (text) => {
		stream.enqueue(new TextEncoder().encode(text));
		for (let turn = 0; turn < 3; turn += 1) await settle();
		const before = own.asked.length;
		clock.pass(250);
		await settle();
		return own.asked.length - before;
	};
	await own.show();
	await until(() => own.followed);
	assert.equal(await send(':\n\n'), 1, 'what happened before it opened');
	const asked = own.asked.length;
	await own.later();
	assert.deepEqual([own.asked.length - asked, own.followed.length], [0, 1], 'nothing happened');
	assert.deepEqual([await send('event: sta'), await send('rted\ndata: {}\n\nevent: text\ndata: {}\n\n'), await send(':\n\n')], [0, 1, 0]);
	stream.close();
	for (let turn = 0; turn < 3; turn += 1) await settle();
	const polled = own.asked.length;
	await own.later();
	assert.deepEqual([own.asked.length - polled, own.followed.length], [1, 1], 'it is not opened again at once');
	clock.pass(30_000);
	await until(() => own.followed.length === 2);
	own.shown.show(false);
	assert.ok(own.followed[1].aborted, 'a list that is not shown follows nothing');
});

test('a list that is followed comes back after a request that failed', async () => {
	let stream;
	const events = () => new Response(new ReadableStream({ start: (controller) => { stream = controller; } }), { headers: { 'Content-Type': 'text/event-stream' } });
	const calls = [200, { calls: [CALL], next: null }];
	const own = list({ calls, events });
	const happened = async (answer) => {
		own.answers.calls = answer;
		stream.enqueue(new TextEncoder().encode('event: started\ndata: {}\n\n'));
		for (let turn = 0; turn < 3; turn += 1) await settle();
		clock.pass(250);
		await settle();
	};
	await own.show();
	await until(() => own.followed);
	const box = own.find('calls-list').parentElement;
	await happened(calls);
	assert.equal(box.hidden, false);
	await happened(new TypeError('refused'));
	assert.equal(box.hidden, true);
	own.answers.calls = calls;
	await own.later();
	assert.deepEqual([box.hidden, own.followed.length], [false, 1], 'without another event');
	const asked = own.asked.length;
	await own.later();
	assert.equal(own.asked.length, asked, 'the stream is enough again');
	own.shown.show(false);
});

test('what callers said is text', async () => {
	const hostile = '<img src=x onerror=alert(1)>';
	const own = list({ calls: [200, { calls: [{ ...CALL, caller: hostile, reason: hostile }], next: null }], call: { c1: { ...CALL, turns: [{ ...TEXTS[1], text: hostile, stages: [{ name: hostile, ms: 1 }] }], functions: [hostile], bot_error: hostile, provider_error: hostile } } });
	await own.show();
	await open(own);
	assert.ok(!own.view.all().some(({ tagName }) => tagName === 'IMG'));
	assert.ok(own.view.all().some(({ textContent }) => textContent.includes(`The provider says: ${hostile}`)));
	own.shown.show(false);
});

// ---- the keypad

test('twelve keys are pressed by click, and by the keyboard while they are unlocked', () => {
	const pressed = [];
	const keys = keypad((key) => pressed.push(key));
	const buttons = byId('keypad').children;
	assert.deepEqual(buttons.map(({ value }) => value), ['1', '2', '3', '4', '5', '6', '7', '8', '9', '*', '0', '#']);
	assert.deepEqual([buttons[1].textContent, buttons[11].textContent], ['2ABC', '#']);
	buttons[0].click();
	assert.deepEqual([pressed, keys.type('1')], [[], false], 'as long as there is no call');
	keys.lock(false);
	buttons[11].click();
	assert.deepEqual([keys.type('5'), keys.type('*'), keys.type('a'), keys.type('')], [true, true, false, false]);
	assert.deepEqual(pressed, ['#', '5', '*']);
	keys.lock(true);
	assert.equal(keys.type('5'), false);
	keys.show(false);
	byId('keypad-open').click();
	assert.deepEqual([keys.isOpen, byId('keypad-open').getAttribute('aria-expanded')], [true, 'true']);
});

// ---- the recorder

test('a recording has the caller on the left, the bot on the right, and an end', async () => {
	const connected = [];
	setGlobal('ChannelMergerNode', class { connect() {} });
	setGlobal('MediaStreamAudioDestinationNode', class { stream = 'mixed'; });
	let own;
	setGlobal('MediaRecorder', class {
		static isTypeSupported = (type) => type.startsWith('audio/ogg');
		state = 'recording';
		constructor(stream, about) { own = Object.assign(this, { stream, about }); }
		start(ms) { this.everyMs = ms; }
		stop() {
			this.state = 'inactive';
			this.onstop?.();
		}
	});
	const { canRecord, recorder } = await anew('recorder.js');
	const context = { createMediaStreamSource: (stream) => ({ connect: (_, output, input) => connected.push([stream, output, input]), disconnect: () => connected.push([stream, 'off']) }) };
	const taken = recorder(context);
	taken.side('user', 'mic');
	taken.side('bot', 'speech');
	taken.side('user', null);
	assert.deepEqual([canRecord, connected, own.about.mimeType, own.everyMs], [true, [['mic', 0, 0], ['speech', 0, 1], ['mic', 'off']], 'audio/ogg;codecs=opus', 1000]);
	own.ondataavailable({ data: new Blob(['abc']) });
	clock.pass(2400);
	const { blob, ending, seconds } = await taken.stop();
	assert.deepEqual([await blob.text(), ending, seconds, own.state], ['abc', 'ogg', 2, 'inactive']);
	const long = recorder(context);
	own.ondataavailable({ data: { size: 64 * 1024 * 1024 } });
	assert.equal(own.state, 'recording');
	own.ondataavailable({ data: { size: 1 } });
	assert.equal(own.state, 'inactive', 'at 64 MB');
	assert.ok(long);
	globalThis.MediaRecorder = class { static isTypeSupported = () => false; };
	assert.equal((await anew('recorder.js')).canRecord, false);
});

// ---- the phone

/** Presses the button for a phone on a page at that address; `addresses` are those that a phone may use. */
async function phone(address, addresses, key = '') {
	const { byId: at } = makeDocument(address);
	document.querySelector = () => ({});
	at('theme').append(new Element('use'));
	keepKey(key);
	const { shell } = await anew('shell.js');
	shell({ keypad: {} }, () => addresses);
	at('phone-open').click();
	await until(() => at('phone').open);
	keepKey('');
	return { text: at('phone-text').textContent, address: at('phone-address').textContent, hasCode: at('phone-code').children.length === 1 };
}

test('the code for a phone leads to this page, over HTTPS where the runner speaks it', async () => {
	const plain = await phone(undefined, { address: null, reached: null });
	assert.deepEqual([plain.address, plain.hasCode], ['http://192.168.1.5:7860/client/', true]);
	assert.match(plain.text, /start the runner with --tls auto/);
	const twin = await phone(undefined, { address: new URL('https://192.168.1.5:7860/client/'), reached: null });
	assert.equal(twin.address, 'https://192.168.1.5:7860/client/');
	assert.match(twin.text, /warns once/);
});

test('the code has the key, and says so; the address beside it has not', async () => {
	const { text, address, hasCode } = await phone(undefined, { address: null, reached: null }, 'a key');
	assert.match(text, /contains the key/);
	assert.deepEqual([address, hasCode], ['http://192.168.1.5:7860/client/', true]);
});
