// A simulated telephone call: this page plays a provider and speaks its media socket protocol to `/ws`, with the sound of a
// telephone line. In: the answer of /start, a microphone, numbers, an encoding. Implements the interface of transports.js; a call has
// neither messages of RTVI nor text. What the bot does with the call, the runner tells a simulated provider in place of a real one.

import { BASE } from './api.js';
import { base64, CODECS, fromBase64 } from './g711.js';
import { meaning, PROVIDERS } from './providers.js';
import { noMicrophone } from './secure.js';
import { sound } from './sound.js';
import * as words from './words.js';

const OPEN_MS = 15000;
const FRAME_MS = 20;
/** This provider sends five frames at once. */
const EXOTEL_FRAMES = 5;
/** Two seconds of audio as base64 in JSON. */
const WAITING_BYTES_MAX = 100000;
const STALLED_MS = 10000;
/** The runner recognises simulated calls by it. */
const SIMULATED = 'simulated-';

const newId = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16).padStart(8, '0')).join('');

export const phone = (transport) => ({ started, context, track, line, parameters, on }) => {
	const provider = PROVIDERS[transport];
	const format = line.format;
	const { encode } = CODECS[format.codec];
	const down = provider.repliesInKind ? format : { codec: 'mulaw', rate: 8000 };
	const { decode } = CODECS[down.codec];
	const call = { stream: newId(), call: SIMULATED + newId(), from: line.from, to: line.to, parameters, format };
	const marks = new Map();
	let isTransferred = false;
	let socket, audio, timer, stalled, opened, over;
	let [sequence, chunk, playedUntil] = [1, 0, 0];
	let held = [];
	let [received, sent] = [0, 0];
	let counted = { at: performance.now(), received, sent };

	async function open() {
		if (!context.audioWorklet) {
			return end({ ...await noMicrophone(), title: 'This page cannot play the sound of a call', listen: false });
		}
		try {
			audio = await sound(context, format.rate, speak);
			if (over) return audio.stop();
			audio.listen(track);
			socket = new WebSocket(address());
			socket.onopen = begin;
			socket.onmessage = ({ data }) => receive(data);
			socket.onclose = closed;
			timer = setTimeout(() => end(words.noSocket()), OPEN_MS);
		} catch (error) {
			end(words.noConnection(error, 'Load the page anew.'));
		}
	}

	/** As in socket.js: the runner's path under this page's origin. */
	function address() {
		const { pathname, search } = new URL(started.wsUrl);
		const url = new URL(pathname.slice(1) + search, BASE);
		url.protocol = url.protocol.replace('http', 'ws');
		if (started.token) url.pathname = `${url.pathname.replace(/\/$/, '')}/${started.token}`;
		return url;
	}

	function begin() {
		opened = true;
		clearTimeout(timer);
		for (const message of provider.opening(call)) post(message, true);
		on.ids({ call: call.call, stream: call.stream });
		on.audio(audio.stream);
		on.open(true);
	}

	function closed({ code, reason }) {
		on.log('call', `the socket was closed with ${code}`, reason);
		if (!opened) end(words.noSocket());
		else if ([1000, 1001, 1005].includes(code)) end(null, reason || (isTransferred ? 'the bot transferred it' : 'the bot hung up'));
		else end(code === 1008 ? words.refusedCall(reason) : words.lostSocket(code, reason));
	}

	// ---- to the runner

	function post(message, isLogged) {
		if (socket?.readyState !== WebSocket.OPEN) return false;
		const text = JSON.stringify(message);
		sent += text.length;
		socket.send(text);
		if (isLogged) on.log('sent', message.event, message);
		return true;
	}

	function speak(samples) {
		if (!opened || over) return;
		held.push(encode(samples));
		if (provider.repliesInKind && held.length < EXOTEL_FRAMES) return;
		const now = performance.now();
		if (socket.bufferedAmount > WAITING_BYTES_MAX) {
			held = [];
			if (now - (stalled ??= now) > STALLED_MS) end(words.lostSocket());
			return;
		}
		stalled = null;
		const all = new Uint8Array(held.reduce((sum, { length }) => sum + length, 0));
		held.reduce((at, part) => (all.set(part, at), at + part.length), 0);
		const ms = chunk * FRAME_MS * held.length;
		held = [];
		chunk += 1;
		post(provider.media({ ...call, sequence: sequence += 1, chunk, ms, payload: base64(all) }));
	}

	// ---- from the runner

	function receive(data) {
		received += data.length ?? 0;
		let message;
		try { message = JSON.parse(data) ?? {}; } catch { return on.log('error', 'a message that is not JSON', String(data)); }
		const { payload, mark, clear, transfer, keys, session } = meaning(message);
		if (payload === undefined) on.log('received', String(message.event), message);
		if (payload !== undefined) play(payload);
		else if (mark !== undefined) returnMark(String(mark));
		else if (clear) hush();
		else if (transfer) {
			isTransferred = true;
			on.note('The bot transfers the call', `to ${transfer}. A real call would go on there; this one ends here.`);
		}
		else if (keys) on.note('The bot presses keys', keys);
		else if (session) on.ids({ call: call.call, stream: call.stream, session });
	}

	function play(payload) {
		let samples;
		try { samples = decode(fromBase64(payload)); } catch { return on.log('error', 'audio that is not base64'); }
		playedUntil = Math.max(playedUntil, performance.now()) + samples.length * 1000 / down.rate;
		audio.play(samples, down.rate);
	}

	/** A mark returns when everything before it was played. */
	function returnMark(name) {
		const send = () => {
			marks.delete(timerOf);
			post(provider.mark({ ...call, sequence: sequence += 1, name }), true);
		};
		const timerOf = setTimeout(send, Math.max(0, playedUntil - performance.now()));
		marks.set(timerOf, send);
	}

	function hush() {
		audio.hush();
		playedUntil = 0;
		for (const [waiting, send] of [...marks]) {
			clearTimeout(waiting);
			if (provider.returnsCleared) send();
			marks.delete(waiting);
		}
	}

	function end(problem, reason) {
		if (over) return;
		over = true;
		clearTimeout(timer);
		for (const waiting of marks.keys()) clearTimeout(waiting);
		audio?.stop();
		if (opened) post(provider.stop({ ...call, sequence: sequence += 1 }), true);
		socket?.close();
		on.closed(problem, reason);
	}

	return {
		open,
		close: () => end(null, 'you hung up'),
		hush,
		send: () => false,
		press(digit) {
			return post(provider.key({ ...call, sequence: sequence += 1, digit }), true);
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
		// A muted telephone sends silence.
		setMuted() {},
	};
};
