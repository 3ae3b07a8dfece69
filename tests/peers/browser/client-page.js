// The official client as an application uses it, on a page of another origin. `talk` holds the
// calls for the check.

import { SmallWebRTCTransport, WavMediaManager } from '@pipecat-ai/small-webrtc-transport';
import { calls, note, play, withTransport } from './application.js';

// The default media manager loads a script from a public host; this one is local.
const transport = new SmallWebRTCTransport({ mediaManager: new WavMediaManager() });
const client = withTransport(transport, {
	onBotDisconnected: note('bot-left'),
	onTrackStarted: play,
	onBotStartedSpeaking: note('bot-started-speaking'),
	onBotStoppedSpeaking: note('bot-stopped-speaking'),
	onUserStartedSpeaking: note('user-started-speaking'),
	onUserStoppedSpeaking: note('user-stopped-speaking'),
});

globalThis.talk = {
	...calls,
	start: (url) => client.startBotAndConnect({ endpoint: `${url}/start`, requestData: { transport: 'webrtc', body: { from: 'check' } } }),
	// What the transport does when ICE fails.
	restart: () => transport.attemptReconnection(true),
};
