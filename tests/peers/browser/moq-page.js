// The official client with its transport of Media over QUIC as an application uses it, on a page of another origin. `talk`
// holds the calls for the check.

import { MoqTransport } from '@pipecat-ai/moq-transport';
import { calls, withTransport } from './application.js';
import { control, hear, hum } from './sound.js';

globalThis.talk = {
	...calls,
	hum,
	hear,
	control,
	/** Starts and connects, and gives what `/start` and `bot-ready` said. */
	async start(url) {
		const client = withTransport(new MoqTransport({ relayUrl: '' }));
		const answer = await client.startBot({ endpoint: `${url}/start`, requestData: { transport: 'moq' } });
		return { answer, ready: await client.connect(answer) };
	},
};
