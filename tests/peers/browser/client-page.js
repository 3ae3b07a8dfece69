// The official client as an application uses it, on a page of another origin. `talk` holds the
// calls for the check.

import { PipecatClient } from '@pipecat-ai/client-js';
import { SmallWebRTCTransport, WavMediaManager } from '@pipecat-ai/small-webrtc-transport';

const events = [];
const note = (name) => (data) => events.push({ name, data });

/** The transport leaves playing to the application, and a browser decodes only what is played. */
function play(track, participant) {
	if (participant?.local || track.kind !== 'audio') return;
	events.push({ name: 'track' });
	const audio = document.createElement('audio');
	audio.srcObject = new MediaStream([track]);
	document.body.append(audio);
	audio.play();
}

// The default media manager loads a script from a public host; this one is local.
const transport = new SmallWebRTCTransport({ mediaManager: new WavMediaManager() });
const client = new PipecatClient({
	transport,
	enableMic: true,
	enableCam: false,
	callbacks: {
		onTransportStateChanged: note('state'),
		onBotReady: note('bot-ready'),
		onBotDisconnected: note('bot-left'),
		onTrackStarted: play,
		onBotStartedSpeaking: note('bot-started-speaking'),
		onBotStoppedSpeaking: note('bot-stopped-speaking'),
		onUserStartedSpeaking: note('user-started-speaking'),
		onUserStoppedSpeaking: note('user-stopped-speaking'),
		onMessageError: note('message-error'),
		onError: note('error'),
	},
});

globalThis.talk = {
	events,
	state: () => client.state,
	start: (url) => client.startBotAndConnect({ endpoint: `${url}/start`, requestData: { transport: 'webrtc', body: { from: 'check' } } }),
	request: (type, data) => client.sendClientRequest(type, data),
	// What the transport does when ICE fails.
	restart: () => transport.attemptReconnection(true),
	muted: (muted) => client.enableMic(!muted),
	disconnect: () => client.disconnect(),
};
