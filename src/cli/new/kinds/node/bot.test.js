// Calls the bot through a runner: `npm test`.

import assert from 'node:assert/strict';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

import { reply } from './bot.js';
import { Connection, rtvi, startRunner } from './call.js';

const FILE = fileURLToPath(new URL('bot.js', import.meta.url));
const SPEECH = Buffer.from(Array(8000).fill([0, 16, 0, 240]).flat());

test('replies to a text', () => assert.equal(reply('hi'), 'You wrote: hi'));

test('greets, plays back and answers', { timeout: 60_000 }, async () => {
  const runner = await startRunner('--', process.execPath, FILE);
  try {
    const caller = await Connection.open(runner.url);
    caller.send(rtvi('client-ready', { version: '2.1.0' }));
    caller.send(rtvi('send-text', { content: 'hi' }));
    caller.say(SPEECH);
    const shown = [];
    let heard = 0;
    for await (const [kind, value] of caller.frames()) {
      if (kind === 'audio') heard += value.some(Boolean) ? value.length : 0;
      else if (value.type === 'bot-output') shown.push(value.data.text);
      if (heard > 10_000 && shown.length === 2) break;
    }
    caller.close();
    assert.deepEqual(shown, ['Hello! I play back what you say.', reply('hi')]);
    assert.ok(heard > 10_000);
  } finally {
    await runner.stop();
  }
});
