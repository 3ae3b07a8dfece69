// A second opinion on a record of the scripted service: the event schemas of `@openai/agents-realtime`, which its own client uses.
//
//     node zod.mjs RECORD      prints how many messages passed, and each that did not

import { readFileSync } from 'node:fs';

const published = new URL('../browser/node_modules/@openai/agents-realtime/dist/openaiRealtimeEvents.mjs', import.meta.url);
const { realtimeClientEventSchema, realtimeServerEventSchema } = await import(published);
const schemas = { client: realtimeClientEventSchema, server: realtimeServerEventSchema };

const wrong = [], passed = { client: 0, server: 0 };
for (const line of readFileSync(process.argv[2], 'utf8').split('\n').filter(Boolean)) {
    const { from, message } = JSON.parse(line);
    const result = schemas[from].safeParse(message);
    if (result.success) passed[from]++;
    else wrong.push(`${from} ${message.type}: ${JSON.stringify(result.error.issues).slice(0, 300)}`);
}
console.log(`${passed.server} messages of the service and ${passed.client} of clients`);
for (const each of new Set(wrong)) console.error(each);
process.exit(wrong.length ? 1 : 0);
