// The published clients of WHIP, WHEP and the realtime calls, unmodified, on a page of another
// origin. Each sends a steady tone and plays what it receives, because a browser decodes only what
// it plays. `post` holds the calls for the check.

import { WHIPClient as Eyevinn } from '@eyevinn/whip-web-client';
import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession } from '@openai/agents-realtime';
import { WHEPClient } from 'whip-whep/whep.js';
import { WHIPClient } from 'whip-whep/whip.js';

/** A stream with a tone. */
async function tone() {
	const context = new AudioContext();
	await context.resume();
	const oscillator = new OscillatorNode(context, { frequency: 440 });
	const level = new GainNode(context, { gain: 0.25 });
	const microphone = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
	oscillator.connect(level).connect(microphone);
	oscillator.start();
	return microphone.stream;
}

const audio = document.createElement('audio');
document.body.append(audio);

function play({ track, streams }) {
	if (track.kind !== 'audio') return;
	audio.srcObject = streams[0] ?? new MediaStream([track]);
	audio.play();
}

let client;

globalThis.post = {
	/** Both ways: the transceiver that the library is given stays what it is. */
	async whip(url, token) {
		const stream = await tone();
		const pc = new RTCPeerConnection();
		pc.ontrack = play;
		pc.addTransceiver(stream.getAudioTracks()[0], { direction: 'sendrecv', streams: [stream] });
		client = new WHIPClient();
		await client.publish(pc, url, token);
	},
	async whep(url, token) {
		const pc = new RTCPeerConnection();
		pc.ontrack = play;
		pc.addTransceiver('audio', { direction: 'recvonly' });
		client = new WHEPClient();
		await client.view(pc, url, token);
	},
	restart: () => client.restart(),
	stop: () => client.stop(),
	/** One way, with a picture that is declined; asks by itself whether the endpoint takes candidates later. */
	async eyevinn(endpoint) {
		client = new Eyevinn({ endpoint, opts: {} });
		const stream = await tone();
		const picture = document.createElement('canvas');
		picture.getContext('2d').fillRect(0, 0, 1, 1);
		stream.addTrack(picture.captureStream(1).getVideoTracks()[0]);
		await client.ingest(stream);
	},
	destroy: () => client.destroy(),
	/** Gives the milliseconds that `connect()` took. */
	async call(baseUrl, apiKey) {
		const transport = new OpenAIRealtimeWebRTC({ baseUrl, mediaStream: await tone(), audioElement: audio });
		client = new RealtimeSession(new RealtimeAgent({ name: 'check' }), { transport });
		const events = [];
		transport.on('*', ({ type }) => events.push(type));
		globalThis.events = events;
		const begun = performance.now();
		await client.connect({ apiKey });
		return { took: performance.now() - begun, call: transport.callId };
	},
	close: () => client.close(),
};
