// A program as a bot that only sends sound, as first bots do: it neither says that it is ready nor reads messages. With a number
// of seconds as its argument it fails then; with `keys` it asks the runner to press keys at the caller's end; with `metrics` it
// reports its services as Pipecat does: all of them with a zero, then each as it answers; with `thinks` it says that it thinks, and
// calls a function that never returns.

const { media_url: url } = JSON.parse(process.env.RUNNER_ARGUMENTS);
const [, , wish = ''] = process.argv;
const FAILS_AFTER_S = Number(wish) || 0;
const RATE_HZ = 16000;
const FRAME_MS = 20;
const TONE_HZ = 330;

const varint = (value) => (value > 127 ? [(value % 128) + 128, ...varint(Math.floor(value / 128))] : [value]);
const sized = (field, bytes) => [field * 8 + 2, ...varint(bytes.length), ...bytes];

/** A protobuf frame of audio: name, samples of 16 bits, rate, channels. */
function audio(at) {
	const samples = Int16Array.from({ length: RATE_HZ * FRAME_MS / 1000 }, (_, nth) => 8000 * Math.sin(2 * Math.PI * TONE_HZ * (at + nth) / RATE_HZ));
	const body = [...sized(2, Buffer.from('audio')), ...sized(3, new Uint8Array(samples.buffer)), 4 * 8, ...varint(RATE_HZ), 5 * 8, 1];
	return Uint8Array.from(sized(2, body));
}

const message = (json) => Uint8Array.from(sized(4, sized(1, Buffer.from(JSON.stringify(json)))));

const socket = new WebSocket(url);
socket.onopen = () => {
	let at = 0;
	if (wish === 'keys') socket.send(message({ type: 'keys', keys: '12#' }));
	if (wish === 'metrics') {
		for (const ttfb of [[['LLM#0', 0], ['TTS#0', 0]], [['LLM#0', 0.3]], [['TTS#0', 0.15]]]) {
			const data = { ttfb: ttfb.map(([processor, value]) => ({ processor, value })) };
			socket.send(message({ label: 'rtvi-ai', type: 'metrics', data }));
		}
	}
	if (wish === 'thinks') {
		const call = { tool_call_id: '1', function_name: 'weather', arguments: { city: 'Bremen' } };
		for (const [type, data] of [['bot-stopped-speaking'], ['bot-llm-started'], ['llm-function-call-in-progress', call]]) {
			socket.send(message({ label: 'rtvi-ai', type, data }));
		}
	}
	setInterval(() => {
		socket.send(audio(at));
		at += RATE_HZ * FRAME_MS / 1000;
	}, FRAME_MS);
	if (FAILS_AFTER_S) setTimeout(() => process.exit(3), FAILS_AFTER_S * 1000);
};
socket.onclose = () => process.exit(0);
