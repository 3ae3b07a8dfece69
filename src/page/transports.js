// The runner's nine transports: wire names, display names, and their modules. A new one is a module with this interface and
// an entry in the table. In: `started`, the answer of /start; `context`, a running AudioContext; `track`,
// the microphone or null; `muted`. Out: on.open(first), on.audio(stream), on.message(object), on.slow(problem), on.trouble(attempt, most),
// on.doubt(why, isDoubtful) while it is not known whether the runner is there, on.ids(object), on.closed(problem, reason), on.log(...).
// On the result: open(), close(), send(message), hush() for an interruption, setTrack(track), setMuted(on), stats() for a sample of
// charts.js. One that is `elsewhere` takes the answer alone, and gives what to show to the user. One with `load` is loaded when it is
// chosen, and connects only if `works` is true. One that `isLine` is a telephone: it takes `line` and `parameters`, presses keys
// itself, and has no messages.

import { webrtc } from './call.js';
import { PROVIDERS } from './providers.js';
import { mediaroom, videoroom } from './rooms.js';
import { websocket } from './socket.js';

const moq = {
	load: async () => (await import('./moq.js')).moq,
	works: Boolean(globalThis.AudioEncoder) && 'protocol' in (globalThis.WebTransport?.prototype ?? {}),
};

const phoneOf = (transport) => ({
	load: async () => (await import('./phone.js')).phone(transport),
	works: Boolean(globalThis.AudioWorkletNode),
	isLine: true,
});

const TABLE = [
	['webrtc', 'WebRTC', webrtc],
	['websocket', 'WebSocket', websocket],
	['moq', 'MoQ', moq],
	['videoroom', 'Daily', videoroom],
	['mediaroom', 'LiveKit', mediaroom],
	...Object.entries(PROVIDERS).map(([name, { label }]) => [name, label, phoneOf(name)]),
];

const row = (name) => TABLE.find(([own]) => own === name);

export const connectorOf = (name) => row(name)?.[2];
export const labelOf = (name) => row(name)?.[1] ?? name ?? '';

/** Each transport with a short note on whether this page can connect it. `status` is null without an answer of the runner. */
export const rows = (status) => TABLE.map(([name, label, connect]) => {
	const served = status?.transports?.includes(name);
	const without = status?.without_bot?.includes(name);
	const keyless = status?.without_credentials?.includes(name);
	const word = !status ? 'not known'
		: status.unavailable?.includes(name) ? 'not in this build'
			: !served ? (connect === moq ? 'needs -t moq' : 'excluded by -t')
				: without ? 'not with this bot'
					: keyless ? 'needs its credentials'
						: connect.elsewhere ? 'opens elsewhere'
							: connect.works === false ? (globalThis.isSecureContext ? 'not in this browser' : 'needs HTTPS')
								: connect.isLine ? 'simulated call' : 'ready';
	// A runner that does not answer /status may still serve.
	return { name, label, word, usable: Boolean(!without && !keyless && (served || !status)) };
});
