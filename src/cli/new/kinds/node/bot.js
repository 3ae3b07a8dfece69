// A voice bot: it plays back what it hears, and answers texts and keys.
//
//     edge-runner -- node bot.js
//
// Then open http://localhost:7860, press Connect and talk. The file runs once for each call.

import { pathToFileURL } from 'node:url';

import { answer } from './call.js';

/** Returns the answer to a typed text. */
export function reply(text) {
  return `You wrote: ${text}`;
}

async function main() {
  const caller = await answer();
  console.log('a call of kind', caller.arguments.kind);
  for await (const [kind, value] of caller.events()) {
    // Speech is 16-bit mono PCM at 16000 Hz. Replace this line by what your bot hears and says.
    if (kind === 'audio') caller.say(value);
    else if (kind === 'ready') caller.show('Hello! I play back what you say.');
    else if (kind === 'text') caller.show(reply(value));
    else if (kind === 'key') caller.show(`You pressed ${value}.`);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();
