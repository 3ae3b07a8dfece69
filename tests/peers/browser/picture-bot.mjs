// A program as a bot for the pictures of README: it answers the sentences of pictures.mjs in their order, in the voice of espeak-ng.
// It finds where a sentence ends by its level, and knows the words from the order.

import { execFileSync } from 'node:child_process';
import { DIALOGUE } from './dialogue.mjs';

const { media_url: url } = JSON.parse(process.env.RUNNER_ARGUMENTS);
const RATE_HZ = 16000;
const LOUD = 300;
const PAUSE_MS = 500;
const THINKS_MS = 400;

const varint = (value) => (value > 127 ? [(value % 128) + 128, ...varint(Math.floor(value / 128))] : [value]);
const sized = (field, bytes) => Buffer.concat([Buffer.from([field * 8 + 2, ...varint(bytes.length)]), bytes]);

/** A protobuf frame of audio: samples of 16 bits, rate, channels. */
const audio = (pcm, rate) => sized(2, Buffer.concat([sized(3, pcm), Buffer.from([4 * 8, ...varint(rate), 5 * 8, 1])]));
const message = (type, data) => sized(4, sized(1, Buffer.from(JSON.stringify({ label: 'rtvi-ai', type, data }))));

/** The samples of a frame of the runner: its audio is a field within a field. */
function samplesOf(frame) {
	const fields = (bytes) => {
		const found = new Map();
		for (let at = 0; at < bytes.length;) {
			const number = () => {
				let value = 0;
				for (let shift = 1; ; shift *= 128) {
					const byte = bytes[at++];
					value += (byte & 127) * shift;
					if (byte < 128) return value;
				}
			};
			const key = number();
			const value = number();
			if ((key & 7) !== 2) continue;
			found.set(key >> 3, bytes.subarray(at, at + value));
			at += value;
		}
		return found;
	};
	const sound = fields(frame).get(2);
	return sound && fields(sound).get(3);
}

function level(pcm) {
	let sum = 0;
	for (let at = 0; at + 1 < pcm.length; at += 2) sum += Math.abs(pcm.readInt16LE(at));
	return sum / Math.max(1, pcm.length / 2);
}

/** Speech as PCM and its rate, after the 44 bytes of a WAV header. */
function spoken(text) {
	const wav = execFileSync('espeak-ng', ['--stdout', '-v', 'en+f3', text]);
	return [wav.subarray(44), wav.readUInt32LE(24)];
}

const voices = DIALOGUE.map(({ bot }) => spoken(bot));
const socket = new WebSocket(url);
socket.binaryType = 'arraybuffer';
const tell = (type, data) => socket.send(message(type, data));
let [nth, quietMs, isSpeaking] = [0, 0, false];

function answer() {
	const { user, bot, runs } = DIALOGUE[nth % DIALOGUE.length];
	const [pcm, rate] = voices[nth % DIALOGUE.length];
	tell('user-transcription', { text: user, final: true, user_id: 'user', timestamp: new Date().toISOString() });
	tell('bot-llm-started');
	if (runs) tell('llm-function-call-in-progress', { tool_call_id: `${nth}`, ...runs });
	setTimeout(() => {
		if (runs) tell('llm-function-call-stopped', { tool_call_id: `${nth}`, cancelled: false });
		tell('bot-llm-stopped');
		tell('bot-output', { text: bot, segment_id: nth, will_be_spoken: true, spoken_status: 'completed', aggregated_by: 'sentence' });
		tell('bot-started-speaking');
		socket.send(audio(pcm, rate));
		setTimeout(() => tell('bot-stopped-speaking'), (pcm.length / 2 / rate) * 1000);
		nth += 1;
	}, THINKS_MS);
}

socket.onmessage = ({ data }) => {
	const pcm = samplesOf(Buffer.from(data));
	if (!pcm) return;
	const isLoud = level(pcm) > LOUD;
	quietMs = isLoud ? 0 : quietMs + (pcm.length / 2 / RATE_HZ) * 1000;
	if (isLoud && !isSpeaking) tell('user-started-speaking');
	if (isLoud) isSpeaking = true;
	if (!isSpeaking || quietMs < PAUSE_MS) return;
	isSpeaking = false;
	tell('user-stopped-speaking');
	answer();
};
socket.onclose = () => process.exit(0);
