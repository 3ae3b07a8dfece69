// transcript.js: which of a bot's texts is shown, in which bubble, and what a screen reader and a saved file get.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Element, makeDocument } from './support/dom.mjs';
import { page } from './support/page.mjs';
import { stopClock } from './support/clock.mjs';

makeDocument();
const { transcript } = await page('transcript.js');
const clock = stopClock();

function conversation() {
	const list = new Element('ol');
	const said = [];
	const own = transcript(list, (text) => said.push(text));
	return {
		own,
		list,
		said,
		/** Each bubble as `class: words`. */
		shown: () => list.children.map((item) => `${item.className}: ${item.querySelector('.words').textContent}`),
	};
}

test('words of a user grow until they are final, in one bubble', () => {
	const { own, shown, said, list } = conversation();
	own.heard('Hel', false);
	assert.deepEqual(shown(), ['user: Hel']);
	own.heard('Hello', false);
	own.heard('Hello.', true);
	own.heard('How', false);
	assert.deepEqual(shown(), ['user: Hello. How']);
	assert.equal(list.querySelector('i').textContent, ' How', 'what may still change');
	own.heard('How are you?', true);
	assert.deepEqual(shown(), ['user: Hello. How are you?']);
	assert.deepEqual(said, ['You: Hello.', 'You: How are you?'], 'only what is final is announced');
});

test('turns of user and bot have bubbles of their own', () => {
	const { own, shown } = conversation();
	own.heard('Hello.', true);
	own.said(2, 'Good day.');
	own.said(2, 'What is it?');
	own.heard('Nothing.', true);
	own.said(2, 'Fine.');
	assert.deepEqual(shown(), ['user: Hello.', 'bot: Good day. What is it?', 'user: Nothing.', 'bot: Fine.']);
});

test('a final text that comes after the answer began belongs to its own bubble', () => {
	const { own, shown } = conversation();
	own.heard('Hel', false);
	own.said(2, 'Good day.');
	own.heard('Hello.', true);
	own.heard('Another.', true);
	assert.deepEqual(shown(), ['user: Hello.', 'bot: Good day.', 'user: Another.']);
});

test('the best source is shown; a better one replaces what came before', () => {
	const { own, shown } = conversation();
	own.said(0, 'Good ');
	own.said(0, 'day.');
	assert.deepEqual(shown(), ['bot: Good day.']);
	own.said(1, 'Good');
	assert.deepEqual(shown(), ['bot: Good']);
	own.said(1, 'day');
	own.said(1, '.');
	own.said(0, 'ignored');
	assert.deepEqual(shown(), ['bot: Good day.']);
	own.said(2, 'Good day.');
	own.said(1, 'ignored');
	assert.deepEqual(shown(), ['bot: Good day.']);
	own.output({ text: 'Good day.', segment_id: 1 });
	own.said(2, 'ignored');
	assert.deepEqual(shown(), ['bot: Good day.']);
	own.closeBot();
	own.said(1, 'ignored in the next turn too');
	assert.deepEqual(shown(), ['bot: Good day.']);
});

test('words are joined with spaces where they need one', () => {
	const { own, shown } = conversation();
	for (const word of ['Well', ',', 'yes', '(really', ')', ' of', ' course', '!', '…']) own.said(1, word);
	assert.deepEqual(shown(), ['bot: Well, yes (really) of course!…']);
});

test('words of a script without spaces are joined without them', () => {
	const { own, shown } = conversation();
	for (const word of ['你好', '，', '世界', '。', '再见']) own.said(1, word);
	assert.deepEqual(shown(), ['bot: 你好，世界。再见']);
});

test('a text that goes on within a word gets no space', () => {
	const { own, shown } = conversation();
	const text = 'Set for ten minutes.';
	for (const done of ['Set for te', 'Set for ten']) {
		own.output({ text, segment_id: 1, spoken_status: 'in-progress', spoken_progress: { accumulated_text: done, remaining_text: text.slice(done.length) } });
		assert.deepEqual(shown(), ['bot: Set for ten minutes.']);
	}
	own.interrupted();
	assert.deepEqual(shown(), ['bot: Set for ten minutes.interrupted']);
});

test('tokens of a model are joined as they are', () => {
	const { own, shown } = conversation();
	for (const token of ['un', 'believ', 'able', ' ', 'x']) own.said(0, token);
	assert.deepEqual(shown(), ['bot: unbelievable x']);
});

test('what is spoken of a segment is set off from what is not', () => {
	const { own, list } = conversation();
	const parts = () => list.lastElementChild.querySelector('.words').children.map(({ className, textContent }) => `${className}|${textContent}`);
	own.output({ text: 'Good day to you.', segment_id: 1, spoken_status: 'new', spoken_progress: { accumulated_text: '', remaining_text: 'Good day to you.' } });
	assert.deepEqual(parts(), ['|', 'soft|Good day to you.']);
	own.output({ text: 'Good day to you.', segment_id: 1, spoken_status: 'in-progress', spoken_progress: { accumulated_text: 'Good day', remaining_text: 'to you.' } });
	assert.deepEqual(parts(), ['|Good day', 'soft| to you.']);
	own.output({ text: 'Good day to you.', segment_id: 1, spoken_status: 'completed', spoken_progress: {} });
	assert.deepEqual(parts(), ['|Good day to you.', 'soft|']);
	own.output({ text: 'Bye.', segment_id: 2, will_be_spoken: false });
	assert.deepEqual(parts(), ['|Good day to you.', 'soft|', '|Bye.', 'soft|']);
	assert.equal(list.children.length, 1);
});

test('a segment without progress is shown whole, and announced once', () => {
	const { own, shown, said } = conversation();
	own.output({ text: 'One.', segment_id: 1 });
	own.output({ text: 'One.', segment_id: 1, spoken_status: 'completed' });
	own.output({ text: 'Two.' });
	own.output({ text: 'Three.' });
	assert.deepEqual([shown(), said], [['bot: One. Two. Three.'], ['Bot: One.', 'Bot: Two.', 'Bot: Three.']]);
});

test('output that has no text, or is none, is left out', () => {
	const { own, shown } = conversation();
	for (const odd of [{}, { text: 5 }, { text: '' }, { text: null }, { text: ['x'] }, 'text', 5]) own.output(odd);
	assert.deepEqual(shown(), []);
	own.output({ text: 'x', segment_id: { odd: 1 } });
	own.output({ text: 'y', segment_id: 2, spoken_progress: { accumulated_text: 7, remaining_text: [8] } });
	own.output({ text: 'z', segment_id: 3, spoken_progress: 5 });
	assert.deepEqual(shown(), ['bot: x 7 8 z']);
});

test('an interruption is marked on the turn that it ended, once the user began', () => {
	const { own, shown } = conversation();
	own.said(2, 'A long answer');
	own.closeBot(true);
	own.interrupted();
	own.said(2, 'Yes?');
	assert.deepEqual(shown(), ['bot: A long answerinterrupted', 'bot: Yes?']);
	own.interrupted();
	assert.deepEqual(shown().at(-1), 'bot: Yes?interrupted');
	own.interrupted();
	assert.equal(shown().length, 2);
});

test('an interruption of a turn that was over marks nothing', () => {
	const { own, shown } = conversation();
	own.said(2, 'Done.');
	own.closeBot();
	own.interrupted();
	assert.deepEqual(shown(), ['bot: Done.']);
});

test('a bot’s text is announced when its turn ends, unless its sentences were', () => {
	const { own, said } = conversation();
	own.said(1, 'Good');
	own.said(1, 'day.');
	assert.deepEqual(said, []);
	own.closeBot();
	own.said(2, 'Sentence.');
	own.closeBot();
	assert.deepEqual(said, ['Bot: Good day.', 'Bot: Sentence.']);
});

test('keys that follow each other share a bubble', () => {
	const { own, list } = conversation();
	for (const key of '12') own.pressed(key);
	own.said(2, 'One moment.');
	own.pressed('#');
	assert.deepEqual(list.children.map((item) => item.querySelector('.words').textContent), ['12', 'One moment.', '#']);
	assert.match(own.asText(), /You, by keypad: 12\n.*Bot: One moment\.\n.*You, by keypad: #/);
	own.reset();
	own.pressed('3');
	assert.equal(list.children.length, 1, 'a new conversation has new bubbles');
});

test('typed text, notes and functions have bubbles of their own', () => {
	const { own, shown, list } = conversation();
	own.said(2, 'Hello');
	own.typed('a <b>');
	own.said(2, 'Yes');
	own.note('The bot says', { a: 1 });
	own.note('Wrong', 'text', true);
	own.note('Nothing', undefined);
	assert.deepEqual(shown(), ['bot: Hello', 'user: a <b>', 'bot: Yes', 'note: {\n "a": 1\n}', 'note wrong: text', 'note: undefined']);
	assert.deepEqual(list.all().filter(({ tagName }) => tagName === 'B'), []);
});

test('a function tells how long it ran', () => {
	const { own, shown } = conversation();
	own.called('c1', 'weather', { town: 'Bonn' });
	own.called('c2', 5);
	assert.deepEqual(shown(), ['note: weather({"town":"Bonn"})runs …', 'note: a functionruns …']);
	clock.pass(1500);
	own.returned('c1', false);
	own.returned('c2', true);
	own.returned('c1', true);
	own.returned('other', false);
	assert.deepEqual(shown(), ['note: weather({"town":"Bonn"})done after 1.5 s', 'note: a functionfailed after 1.5 s']);
});

test('functions that never return are forgotten, the oldest first', () => {
	const { own } = conversation();
	assert.equal(own.isCalling(), false);
	for (let nth = 0; nth < 1000; nth++) own.called(nth, 'endless');
	assert.equal(own.isCalling(), true);
	for (let nth = 701; nth < 1000; nth++) own.returned(nth, false);
	assert.equal(own.isCalling(), true);
	own.returned(700, false);
	assert.equal(own.isCalling(), false, 'three hundred are kept');
	own.called('x', 'one more');
	own.reset();
	assert.equal(own.isCalling(), false);
});

test('markup of user and bot stays text', () => {
	const { own, list } = conversation();
	const hostile = '<img src=x onerror=alert(1)>';
	own.heard(hostile, true);
	own.said(2, hostile);
	own.output({ text: hostile, segment_id: 1 });
	own.note(hostile, hostile);
	own.called('i', hostile, { [hostile]: hostile });
	const tags = new Set(list.all().map(({ tagName }) => tagName));
	assert.deepEqual([...tags].sort(), ['I', 'LI', 'P', 'SMALL', 'SPAN', 'TIME']);
});

test('lengths are bounded: bubbles, texts, names', () => {
	const { own, list } = conversation();
	for (let nth = 0; nth < 400; nth++) own.typed(String(nth));
	assert.deepEqual([list.children.length, list.firstElementChild.querySelector('.words').textContent], [300, '100']);
	own.heard('x'.repeat(9000), true);
	own.said(2, 'y'.repeat(9000));
	own.note('z', 'z'.repeat(9000));
	own.called('i', 'f'.repeat(9000), 'v'.repeat(9000));
	const lengths = list.children.slice(-4).map((item) => item.querySelector('.words').textContent.length);
	assert.deepEqual(lengths, [4000, 4000, 4000, 64 + 2 + 4000 + 'runs …'.length]);
	own.reset();
	own.output({ text: 'o'.repeat(9000), segment_id: 1 });
	assert.equal(list.lastElementChild.querySelector('.words').textContent.length, 4000);
});

test('a turn of endless segments is continued in another bubble', () => {
	const { own, list } = conversation();
	for (let nth = 0; nth < 2000; nth++) own.output({ text: 'x', segment_id: nth });
	assert.ok(list.children.every((item) => item.querySelector('.words').childNodes.length <= 304));
	assert.ok(list.children.length > 1 && list.children.length <= 300);
});

test('a new call begins with an empty list, and takes any source again', () => {
	const { own, shown } = conversation();
	own.said(2, 'old');
	own.reset();
	assert.deepEqual([shown(), own.isEmpty()], [[], true]);
	own.said(0, 'new');
	assert.deepEqual([shown(), own.isEmpty()], [['bot: new'], false]);
});

test('the saved text has a line for each turn, with its time', () => {
	const { own } = conversation();
	own.heard('Hello.', true);
	own.said(2, 'One\ntwo');
	const lines = own.asText().split('\n');
	assert.match(lines[0], /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z You: Hello\.$/);
	assert.match(lines[1], /Z Bot: One$/);
	assert.equal(lines[2], '    two');
});
