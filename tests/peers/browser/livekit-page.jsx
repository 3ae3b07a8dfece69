// A page made of LiveKit's agent components, as its starter applications use them. `globalThis.talk` is its state for the check.

import { SessionProvider, useAgent, useSession, useSessionMessages, useVoiceAssistant, RoomAudioRenderer } from '@livekit/components-react';
import { TokenSource } from 'livekit-client';
import { useEffect } from 'react';
import { createRoot } from 'react-dom/client';

const talk = globalThis.talk = { states: [], voiceStates: [], messages: [], problem: null };
const note = (list, state) => list.at(-1) === state || list.push(state);

function Watch({ session }) {
	const agent = useAgent(session);
	const voice = useVoiceAssistant();
	const { messages, send } = useSessionMessages(session);
	useEffect(() => {
		note(talk.states, agent.state);
		note(talk.voiceStates, voice.state);
		talk.isConnected = agent.isConnected;
		talk.failures = agent.failureReasons;
		talk.agent = voice.agent && { identity: voice.agent.identity, kind: voice.agent.kind, attributes: voice.agent.attributes };
		talk.hasAudio = Boolean(voice.audioTrack);
		talk.messages = messages.map(({ type, message, attributes }) => ({ type, message, attributes }));
		talk.type = (text) => send(text).then(() => true);
	});
	return null;
}

function Page({ url, agentName }) {
	const session = useSession(TokenSource.endpoint(url), { agentName });
	talk.room = session.room;
	talk.end = () => session.end();
	useEffect(() => {
		session.start().catch((error) => { talk.problem = String(error); });
	}, []);
	return <SessionProvider session={session}><Watch session={session} /><RoomAudioRenderer /></SessionProvider>;
}

talk.start = (url, agentName) => createRoot(document.body.appendChild(document.createElement('div'))).render(<Page url={url} agentName={agentName} />);
talk.call = (method, payload) => talk.room.localParticipant
	.performRpc({ destinationIdentity: talk.agent.identity, method, payload, responseTimeout: 10000 })
	.then((answer) => ({ answer }), ({ code, message, data }) => ({ code, message, data }));
