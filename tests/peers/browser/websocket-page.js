// The official client with its WebSocket transport as an application uses it, on a page of another
// origin. `talk` holds the calls for the check. Audio is measured at its output.

import { PipecatClient } from '@pipecat-ai/client-js';
import {
	ProtobufFrameSerializer, TwilioSerializer, WavMediaManager, WebSocketTransport,
} from '@pipecat-ai/websocket-transport';

const events = [];
const note = (name) => (data) => events.push({ name, data });

// Audio played since `played` was cleared: blocks of samples with the time of each.
let played = [];
const TAP = `registerProcessor('tap', class extends AudioWorkletProcessor {
	process([[samples]]) {
		if (samples) this.port.postMessage({ at: currentTime, rate: sampleRate, samples: samples.slice() });
		return true;
	}
});`;
const tapUrl = URL.createObjectURL(new Blob([TAP], { type: 'text/javascript' }));
const taps = new WeakMap();

/** The tap of a context; its input is what goes to the loudspeaker. */
function tapOf(context) {
	if (!taps.has(context)) {
		taps.set(context, context.audioWorklet.addModule(tapUrl).then(() => {
			const tap = new AudioWorkletNode(context, 'tap', { numberOfOutputs: 0, channelCount: 1, channelCountMode: 'explicit' });
			tap.port.onmessage = ({ data }) => played.push(data);
			return tap;
		}));
	}
	return taps.get(context);
}

const { connect } = AudioNode.prototype;
AudioNode.prototype.connect = function (to, ...more) {
	if (to instanceof AudioDestinationNode) tapOf(this.context).then((tap) => connect.call(this, tap));
	return connect.call(this, to, ...more);
};

/** Replaces the microphone by a tone of this pitch. */
async function hum(hz) {
	const context = new AudioContext();
	await context.resume();
	const oscillator = new OscillatorNode(context, { frequency: hz });
	const level = new GainNode(context, { gain: 0.25 });
	const microphone = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
	oscillator.connect(level).connect(microphone);
	oscillator.start();
	navigator.mediaDevices.getUserMedia = async () => microphone.stream.clone();
}

/** Measures playback for some seconds: energy, its share at `hz`, and the share of silence. */
async function hear(seconds, hz) {
	played = [];
	await new Promise((done) => setTimeout(done, seconds * 1000));
	const blocks = played;
	if (!blocks.length) return { seconds: 0, energy: 0, share: 0, silent: 1 };
	const { rate } = blocks[0];
	const samples = blocks.flatMap((block) => [...block.samples]);
	const step = 2 * Math.PI * hz / rate;
	const window = Math.round(rate / 20);
	const shares = [];
	let energy = 0;
	for (let at = 0; at + window <= samples.length; at += window) {
		let [sum, re, im] = [0, 0, 0];
		for (let n = 0; n < window; n++) {
			const s = samples[at + n];
			sum += s * s;
			re += s * Math.cos(step * n);
			im += s * Math.sin(step * n);
		}
		energy += sum / rate;
		shares.push(sum / window < 1e-6 ? 0 : 2 * (re * re + im * im) / window / sum);
	}
	const silent = samples.filter((s) => s === 0).length / samples.length;
	const spoken = shares.filter((share) => share > 0).sort((a, b) => a - b);
	return { seconds: samples.length / rate, energy, share: spoken[spoken.length >> 1] ?? 0, silent };
}

let client;
let transport;

/** A client of its own for each connection. The default media manager loads a script from a public host; this one is local. */
function fresh(serializer, rate, playedRate) {
	const mediaManager = new WavMediaManager(512, rate);
	// The argument of the default one.
	mediaManager._wavStreamPlayer.sampleRate = playedRate;
	transport = new WebSocketTransport({ mediaManager, serializer, recorderSampleRate: rate });
	client = new PipecatClient({
		transport,
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
}

const ask = (url, transportName) => ({ endpoint: `${url}/start`, requestData: { transport: transportName } });
/** What the transport takes of an answer; it refuses any other key, so applications that get more pick, too. */
const pick = ({ wsUrl, token }) => (token ? { wsUrl, token } : { wsUrl });

globalThis.talk = {
	events,
	hum,
	hear,
	state: () => client.state,
	/** Starts and connects, and gives what `/start` and `bot-ready` said. */
	async start(url) {
		fresh(new ProtobufFrameSerializer(), 16_000, 24_000);
		const answer = await client.startBot(ask(url, 'websocket'));
		return { answer, ready: await client.connect(pick(answer)) };
	},
	/** Connects without asking first. */
	connect(params) {
		fresh(new ProtobufFrameSerializer(), 16_000, 24_000);
		return client.connect(params);
	},
	/** The same client in the role of a telephone; its messages begin a call, and `connect` never ends. */
	async telephone(url) {
		fresh(new TwilioSerializer(), 8_000, 8_000);
		const answer = await client.startBot(ask(url, 'twilio'));
		client.connect(pick(answer));
		while (client.state !== 'ready') await new Promise((done) => setTimeout(done, 10));
		transport.sendRawMessage({ event: 'connected', protocol: 'Call', version: '1.0.0' });
		transport.sendRawMessage({ event: 'start', start: { streamSid: 'mock', callSid: 'mock' } });
		return answer;
	},
	request: (type, data) => client.sendClientRequest(type, data),
	muted: (muted) => client.enableMic(!muted),
	disconnectBot: () => client.disconnectBot(),
	disconnect: () => client.disconnect(),
};
