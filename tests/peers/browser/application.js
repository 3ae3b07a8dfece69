// What the pages with an official client share: its events, and the calls for the check that are the same over each
// transport.

import { PipecatClient } from '@pipecat-ai/client-js';

const events = [];
let client;

export const note = (name) => (data) => events.push({ name, data });

/** The transport leaves playing to the application, and a browser decodes only what is played. */
export function play(track, participant) {
	if (participant?.local || track.kind !== 'audio') return;
	note('track')();
	const audio = document.createElement('audio');
	audio.srcObject = new MediaStream([track]);
	document.body.append(audio);
	audio.play();
}

/** A client for this transport, whose events are noted. */
export function withTransport(transport, callbacks = {}) {
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
			...callbacks,
		},
	});
	return client;
}

export const calls = {
	events,
	state: () => client.state,
	request: (type, data) => client.sendClientRequest(type, data),
	muted: (muted) => client.enableMic(!muted),
	disconnectBot: () => client.disconnectBot(),
	disconnect: () => client.disconnect(),
};
