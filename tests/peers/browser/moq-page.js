// The official client with its transport of Media over QUIC as an application uses it, on a page of another origin. `talk`
// holds the calls for the check.

import { MoqTransport } from '@pipecat-ai/moq-transport';
import { PipecatClient } from '@pipecat-ai/client-js';
import { hear, hum } from './sound.js';

const events = [];
const note = (name) => (data) => events.push({ name, data });
let client;

globalThis.talk = {
	events,
	hum,
	hear,
	state: () => client.state,
	/** Starts and connects, and gives what `/start` and `bot-ready` said. */
	async start(url) {
		client = new PipecatClient({
			transport: new MoqTransport({ relayUrl: '' }),
			enableMic: true,
			enableCam: false,
			callbacks: {
				onTransportStateChanged: note('state'),
				onConnected: note('connected'),
				onBotReady: note('bot-ready'),
				onDisconnected: note('disconnected'),
				onMessageError: note('message-error'),
				onError: note('error'),
			},
		});
		const answer = await client.startBot({ endpoint: `${url}/start`, requestData: { transport: 'moq' } });
		return { answer, ready: await client.connect(answer) };
	},
	request: (type, data) => client.sendClientRequest(type, data),
	muted: (muted) => client.enableMic(!muted),
	disconnect: () => client.disconnect(),
};
