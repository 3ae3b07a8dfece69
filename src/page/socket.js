// One WebSocket to a bot: protobuf frames, 16 kHz PCM from the microphone, PCM from the bot.
// Implements the interface of transports.js. A lost socket ends its session.

import { BASE } from './api.js';
import { audioFrame, messageFrame, readFrame } from './frames.js';
import { noMicrophone } from './secure.js';
import { sound } from './sound.js';
import * as words from './words.js';

const RATE_HZ = 16000;
const OPEN_MS = 15000;
/** A runner that accepts no audio for this long is gone, even if the socket is open. */
const STALLED_MS = 10000;
/** Two seconds of audio; older audio is dropped. */
const WAITING_BYTES_MAX = 64000;

export function websocket({ started, context, track, on }) {
	let socket, audio, timer, stalled, wrongRate;
	let [received, sent] = [0, 0];
	let counted = { at: performance.now(), received, sent };
	let opened = false;
	let over = false;

	async function open() {
		if (!context.audioWorklet) {
			return end({ ...await noMicrophone(), title: 'This page cannot play the sound of a WebSocket', listen: false });
		}
		try {
			audio = await sound(context, RATE_HZ, sendSound);
			if (over) return audio.stop();
			audio.listen(track);
			socket = new WebSocket(address());
			socket.binaryType = 'arraybuffer';
			socket.onopen = () => {
				opened = true;
				clearTimeout(timer);
				on.audio(audio.stream);
				on.open(true);
			};
			socket.onmessage = ({ data }) => receive(data);
			socket.onclose = closed;
			timer = setTimeout(() => end(words.noSocket()), OPEN_MS);
		} catch (error) {
			end(words.noConnection(error, 'Load the page anew.'));
		}
	}

	/** The runner's URL under this page's origin and prefix, which a proxy may have changed. The CSP allows no other. */
	function address() {
		const { pathname, search } = new URL(started.wsUrl);
		const url = new URL(pathname.slice(1) + search, BASE);
		url.protocol = url.protocol.replace('http', 'ws');
		// With the session id the bot gets the body of /start.
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
		} else if (frame.audio) play(frame.audio, frame.rate);
	}

	function hear(text) {
		let message;
		try { message = JSON.parse(text); } catch { return on.log('error', 'a message that is not JSON', text); }
		on.message(message);
	}

	function play(samples, rate) {
		// Other rates have no small common multiple with the browser's and would need large filters.
		if (rate % 25 === 0 && rate >= 8000 && rate <= 192000) return audio.play(samples, rate);
		if (rate !== wrongRate) on.log('error', `sound at ${rate} Hz cannot be played`);
		wrongRate = rate;
	}

	const hush = () => audio?.hush();

	function end(problem, reason) {
		if (over) return;
		over = true;
		clearTimeout(timer);
		audio?.stop();
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
			audio?.listen(track);
		},
		// A muted track sends silence, so that the bot detects the end of the sentence.
		setMuted() {},
	};
}
