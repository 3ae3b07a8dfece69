// notices.js: what a caller is to know before a call.

import assert from 'node:assert/strict';
import test from 'node:test';
import { page } from './support/page.mjs';

const { notices } = await page('notices.js');
const ofBot = (state, error) => notices({ bot_process: { state, error } }, false);

test('a bot that is ready, and a runner that does not answer, need no words', () => {
	for (const status of [null, {}, { speech_to: [] }, { bot_process: { state: 'ready' } }]) assert.deepEqual(notices(status, false), []);
});

test('a bot that starts, or cannot be loaded, is a sentence with its error where that is known', () => {
	const error = "ModuleNotFoundError: No module named 'x' (bot.py, line 3)";
	assert.deepEqual(ofBot('starting'), ['The bot is starting: a call waits until it is loaded.']);
	assert.deepEqual(ofBot('failed', error), [`The bot cannot be loaded: ${error}`]);
	assert.deepEqual(ofBot('failed'), ['The bot cannot be loaded: its operator finds the reason in the log of the runner.']);
	assert.deepEqual(ofBot('ready', error), [`The bot has changed and cannot be loaded again: ${error}`]);
});

test('a caller learns that calls are recorded', () => {
	assert.deepEqual(notices({ recording: true }, false), ['The runner records the sound of calls.']);
	assert.deepEqual(notices({ listen_in: true }, false), ['The operator of this runner can listen to calls.']);
});

test('the host of a third party comes first, the end of the runner last', () => {
	const said = notices({ speech_to: ['a.example', 'b.example'], bot_process: { state: 'starting' } }, true);
	assert.equal(said.length, 3);
	assert.match(said[0], /goes to a\.example and b\.example, a third party/);
	assert.match(said[2], /stopping/);
});

test('of several bots, the chosen one has the word', () => {
	const failed = { state: 'failed', error: 'SyntaxError' };
	const status = { bot_process: { state: 'starting' }, bots: [{ name: 'sales' }, { name: 'home', process: failed }] };
	assert.deepEqual(notices(status, false, 'sales'), []);
	assert.deepEqual(notices(status, false, 'home'), ['The bot cannot be loaded: SyntaxError']);
	assert.deepEqual(notices(null, false, 'home'), []);
});
