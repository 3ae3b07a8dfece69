// The official client with its WebSocket transport as an application uses it, on a page of another
// origin. `talk` holds the calls for the check.

import {
	ProtobufFrameSerializer, TwilioSerializer, WavMediaManager, WebSocketTransport,
} from '@pipecat-ai/websocket-transport';
import { calls, withTransport } from './application.js';
import { control, hear, hum } from './sound.js';

let transport;

/** A client of its own for each connection. The default media manager loads a script from a public host; this one is local. */
function fresh(serializer, rate, playedRate) {
	const mediaManager = new WavMediaManager(512, rate);
	// The argument of the default one.
	mediaManager._wavStreamPlayer.sampleRate = playedRate;
	transport = new WebSocketTransport({ mediaManager, serializer, recorderSampleRate: rate });
	return withTransport(transport);
}

const ask = (url, transportName) => ({ endpoint: `${url}/start`, requestData: { transport: transportName } });
/** What the transport takes of an answer; it refuses any other key, so applications that get more pick, too. */
const pick = ({ wsUrl, token }) => (token ? { wsUrl, token } : { wsUrl });

globalThis.talk = {
	...calls,
	hum,
	hear,
	control,
	/** Starts and connects, and gives what `/start` and `bot-ready` said. */
	async start(url) {
		const client = fresh(new ProtobufFrameSerializer(), 16_000, 24_000);
		const answer = await client.startBot(ask(url, 'websocket'));
		// As docs/callers.md says.
		const { wsUrl, token, sessionId } = answer;
		const ready = await client.connect({ wsUrl: `${wsUrl}?sessionId=${sessionId}`, ...(token && { token }) });
		return { answer, ready };
	},
	/** Connects without asking first. */
	connect(params) {
		return fresh(new ProtobufFrameSerializer(), 16_000, 24_000).connect(params);
	},
	/** The same client in the role of a telephone; its messages begin a call, and `connect` never ends. */
	async telephone(url) {
		const client = fresh(new TwilioSerializer(), 8_000, 8_000);
		const answer = await client.startBot(ask(url, 'twilio'));
		client.connect(pick(answer));
		while (client.state !== 'ready') await new Promise((done) => setTimeout(done, 10));
		transport.sendRawMessage({ event: 'connected', protocol: 'Call', version: '1.0.0' });
		transport.sendRawMessage({ event: 'start', start: { streamSid: 'mock', callSid: 'mock' } });
		return answer;
	},
};
