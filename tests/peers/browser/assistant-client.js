// An application with the official client, in a call with an assistant. `talk` holds the calls for the check, `talk.answer` the
// result of the function `weather`.

import { SmallWebRTCTransport, WavMediaManager } from '@pipecat-ai/small-webrtc-transport';
import { calls, note, play, withTransport } from './application.js';

const NAMES = [
	'UserStartedSpeaking', 'UserStoppedSpeaking', 'UserTranscript', 'BotStartedSpeaking', 'BotStoppedSpeaking', 'BotLlmStarted',
	'BotLlmText', 'BotLlmStopped', 'BotOutput', 'BotTtsStarted', 'BotTtsText', 'BotTtsStopped', 'LLMFunctionCallStarted',
	'LLMFunctionCallInProgress', 'LLMFunctionCallStopped', 'Metrics',
];
const callbacks = Object.fromEntries(NAMES.map((name) => [`on${name}`, note(name)]));

// The default media manager loads a script from a public host; this one is local.
const transport = new SmallWebRTCTransport({ mediaManager: new WavMediaManager() });
const client = withTransport(transport, { ...callbacks, onTrackStarted: play });
client.registerFunctionCallHandler('weather', async (call) => {
	note('handler')(call);
	return { degrees: 21 };
});

globalThis.talk = {
	...calls,
	start: (url) => client.startBotAndConnect({ endpoint: `${url}/start`, requestData: { transport: 'webrtc', body: {} } }),
	type: (text) => client.sendText(text),
};
