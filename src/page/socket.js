// One WebSocket to a bot: protobuf frames, the microphone as 16 kHz PCM up, the bot's PCM down, both through worklet.js. It
// has the shape that transports.js describes. A lost socket is the end of its session: there is nothing to come back to.

import { BASE } from './api.js';
import { audioFrame, messageFrame, readFrame } from './frames.js';
import { noMicrophone } from './secure.js';
import * as words from './words.js';

const RATE_HZ = 16000;
const OPEN_MS = 15000;
/** A runner that takes no more sound for so long is gone, though nobody closed the socket. */
const STALLED_MS = 10000;
/** Two seconds of sound: what waits longer is of no use to anyone. */
const WAITING_BYTES_MAX = 64000;

export function websocket({ started, context, track, on }) {
	let socket, ear, voice, source, timer, stalled, wrongRate;
	let [received, sent] = [0, 0];
	let counted = { at: performance.now(), received, sent };
	let opened = false;
	let over = false;

	async function open() {
		if (!context.audioWorklet) {
			return end({ ...await noMicrophone(), title: 'This page cannot play the sound of a WebSocket', listen: false });
		}
		try {
			await context.audioWorklet.addModule(new URL('worklet.js', import.meta.url));
			if (over) return;
			ear = new AudioWorkletNode(context, 'ear', { channelCount: 1, channelCountMode: 'explicit' });
			voice = new AudioWorkletNode(context, 'voice', { numberOfInputs: 0, outputChannelCount: [1] });
			const speaker = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
			voice.connect(speaker);
			// The ear is silent, but only what leads to an output is run everywhere.
			ear.connect(context.destination);
			ear.port.onmessage = ({ data }) => sendSound(data);
			listen();
			socket = new WebSocket(address());
			socket.binaryType = 'arraybuffer';
			socket.onopen = () => {
				opened = true;
				clearTimeout(timer);
				on.audio(speaker.stream);
				on.open(true);
			};
			socket.onmessage = ({ data }) => receive(data);
			socket.onclose = closed;
			timer = setTimeout(() => end(words.noSocket()), OPEN_MS);
		} catch (error) {
			end(words.noConnection(error, 'Load the page anew.'));
		}
	}

	/** The runner's address under this page's origin and prefix, which a proxy may have changed, and none other is allowed. */
	function address() {
		const { pathname, search } = new URL(started.wsUrl);
		const url = new URL(pathname.slice(1) + search, BASE);
		url.protocol = url.protocol.replace('http', 'ws');
		// By its session's name the bot gets the body of the start.
		if (started.sessionId) url.searchParams.set('sessionId', started.sessionId);
		if (started.token) url.searchParams.set('token', started.token);
		return url;
	}

	function closed({ code, reason }) {
		on.log('call', `the socket was closed with ${code}`, reason);
		if (!opened) end(words.noSocket());
		else if ([1000, 1001, 1005].includes(code)) end(null, reason || 'the bot left');
		else end(words.lostSocket(code, reason));
	}

	// ---- up

	function listen() {
		source?.disconnect();
		source = track && context.createMediaStreamSource(new MediaStream([track]));
		source?.connect(ear);
	}

	const isOpen = () => socket?.readyState === WebSocket.OPEN;

	function sendSound(samples) {
		if (!isOpen()) return;
		const now = performance.now();
		if (socket.bufferedAmount < WAITING_BYTES_MAX) {
			stalled = null;
			post(audioFrame(new Uint8Array(samples.buffer), RATE_HZ));
		} else if (now - (stalled ??= now) > STALLED_MS) end(words.lostSocket());
	}

	function post(bytes) {
		sent += bytes.length;
		socket.send(bytes);
	}

	// ---- down

	function receive(data) {
		if (typeof data === 'string') return on.log('error', 'a text message, which has no place here', data);
		let frame;
		try {
			frame = readFrame(new Uint8Array(data));
		} catch (error) {
			return on.log('error', `a frame that cannot be read: ${error.message}`);
		}
		received += data.byteLength;
		if (frame.message) hear(frame.message);
		else if (frame.interruption) {
			on.log('received', 'interruption');
			hush();
		} else if (frame.audio) play(frame);
	}

	function hear(text) {
		let message;
		try { message = JSON.parse(text); } catch { return on.log('error', 'a message that is not JSON', text); }
		on.message(message);
	}

	function play({ audio, rate }) {
		// Others have no common measure with the browser's rate, and would need endless filters.
		if (rate % 25 === 0 && rate >= 8000 && rate <= 192000) return voice.port.postMessage({ audio, rate }, [audio.buffer]);
		if (rate !== wrongRate) on.log('error', `sound at ${rate} Hz cannot be played`);
		wrongRate = rate;
	}

	const hush = () => voice?.port.postMessage(null);

	function end(problem, reason) {
		if (over) return;
		over = true;
		clearTimeout(timer);
		source?.disconnect();
		ear?.disconnect();
		voice?.disconnect();
		socket?.close();
		on.closed(problem, reason);
	}

	return {
		open,
		close: () => end(null, 'you hung up'),
		hush,
		send(message) {
			if (isOpen()) post(messageFrame(message));
			return isOpen();
		},
		stats() {
			const [was, at] = [counted, performance.now()];
			counted = { at, received, sent };
			return { rate: (received - was.received) * 8 / (at - was.at), rateOut: (sent - was.sent) * 8 / (at - was.at) };
		},
		setTrack(next) {
			track = next;
			if (ear) listen();
		},
		// A muted track is silent by itself, and a bot that hears silence knows that the sentence is over.
		setMuted() {},
	};
}
