// What telephone providers send and take on a media socket, from the provider's side. In: a call, and counters of its messages. Out:
// objects to send as JSON; and the meaning of what the runner sends. The encodings are those that a provider offers to its callers.
// Source: docs/spec/telephony.md of the runner, and its captures.

const MULAW = ['μ-law, 8 kHz', { codec: 'mulaw', rate: 8000 }];

const twilio = {
	label: 'Twilio',
	codecs: [MULAW],
	opening: ({ stream, call, from, to, parameters }) => [
		{ event: 'connected', protocol: 'Call', version: '1.0.0' },
		{
			event: 'start', sequenceNumber: '1', streamSid: stream,
			start: {
				accountSid: 'simulated', streamSid: stream, callSid: call, tracks: ['inbound'],
				mediaFormat: { encoding: 'audio/x-mulaw', sampleRate: 8000, channels: 1 },
				customParameters: { from_number: from, to_number: to, ...parameters },
			},
		},
	],
	media: ({ stream, sequence, chunk, ms, payload }) => ({
		event: 'media', sequenceNumber: String(sequence), streamSid: stream, media: { track: 'inbound', chunk: String(chunk), timestamp: String(ms), payload },
	}),
	key: ({ stream, sequence, digit }) => ({ event: 'dtmf', sequenceNumber: String(sequence), streamSid: stream, dtmf: { track: 'inbound_track', digit } }),
	mark: ({ stream, sequence, name }) => ({ event: 'mark', sequenceNumber: String(sequence), streamSid: stream, mark: { name } }),
	stop: ({ stream, call, sequence }) => ({ event: 'stop', sequenceNumber: String(sequence), streamSid: stream, stop: { accountSid: 'simulated', callSid: call } }),
	returnsCleared: true,
};

const telnyx = {
	label: 'Telnyx',
	codecs: [
		['G.711 μ-law (PCMU), 8 kHz', { codec: 'mulaw', rate: 8000, name: 'PCMU' }],
		['G.711 A-law (PCMA), 8 kHz', { codec: 'alaw', rate: 8000, name: 'PCMA' }],
		['L16, 16 kHz', { codec: 'pcm', rate: 16000, name: 'L16' }],
	],
	opening: ({ stream, call, from, to, parameters, format }) => [
		{ event: 'connected', version: '1.0.0' },
		{
			event: 'start', sequence_number: '1', stream_id: stream,
			start: {
				user_id: 'simulated', call_control_id: call, call_session_id: call, from, to, custom_parameters: parameters,
				media_format: { encoding: format.name, sample_rate: format.rate, channels: 1 },
			},
		},
	],
	media: ({ stream, sequence, chunk, ms, payload }) => ({
		event: 'media', sequence_number: String(sequence), stream_id: stream, media: { track: 'inbound', chunk: String(chunk), timestamp: String(ms), payload },
	}),
	key: ({ stream, sequence, digit }) => ({ event: 'dtmf', sequence_number: String(sequence), stream_id: stream, dtmf: { digit } }),
	mark: ({ stream, sequence, name }) => ({ event: 'mark', sequence_number: String(sequence), stream_id: stream, mark: { name } }),
	stop: ({ stream, call, sequence }) => ({ event: 'stop', sequence_number: String(sequence), stream_id: stream, stop: { user_id: 'simulated', call_control_id: call } }),
};

const plivo = {
	label: 'Plivo',
	codecs: [
		[MULAW[0], { ...MULAW[1], name: 'audio/x-mulaw' }],
		['L16, 8 kHz', { codec: 'pcm', rate: 8000, name: 'audio/x-l16' }],
		['L16, 16 kHz', { codec: 'pcm', rate: 16000, name: 'audio/x-l16' }],
	],
	opening: ({ stream, call, from, to, parameters, format }) => [{
		event: 'start', sequenceNumber: 1, extra_headers: JSON.stringify({ from, to, ...parameters }),
		start: { callId: call, streamId: stream, accountId: 'simulated', tracks: ['inbound'], mediaFormat: { encoding: format.name, sampleRate: format.rate } },
	}],
	media: ({ stream, sequence, chunk, payload }) => ({
		event: 'media', sequenceNumber: sequence, streamId: stream, media: { track: 'inbound', chunk, timestamp: String(Date.now()), payload },
	}),
	key: ({ stream, sequence, digit }) => ({ event: 'dtmf', sequenceNumber: sequence, streamId: stream, dtmf: { track: 'inbound', digit, timestamp: String(Date.now()) } }),
	mark: ({ stream, sequence, name }) => ({ event: 'playedStream', sequenceNumber: sequence, streamId: stream, name }),
	stop: ({ stream, sequence }) => ({ event: 'stop', sequenceNumber: sequence, streamId: stream }),
};

const exotel = {
	label: 'Exotel',
	codecs: [8000, 16000, 24000].map((rate) => [`PCM, ${rate / 1000} kHz`, { codec: 'pcm', rate }]),
	opening: ({ stream, call, from, to, parameters, format }) => [
		{ event: 'connected' },
		{
			event: 'start', sequence_number: '1', stream_sid: stream,
			start: {
				stream_sid: stream, call_sid: call, account_sid: 'simulated', from, to, custom_parameters: parameters,
				media_format: { encoding: 'audio/x-raw', sample_rate: String(format.rate), bit_rate: '16' },
			},
		},
	],
	media: ({ stream, sequence, chunk, ms, payload }) => ({
		event: 'media', sequence_number: String(sequence), stream_sid: stream, media: { chunk: String(chunk), timestamp: String(ms), payload },
	}),
	key: ({ stream, sequence, digit }) => ({ event: 'dtmf', sequence_number: String(sequence), stream_sid: stream, dtmf: { duration: '100', digit } }),
	mark: ({ stream, sequence, name }) => ({ event: 'mark', sequence_number: String(sequence), stream_sid: stream, mark: { name } }),
	stop: ({ stream, call, sequence }) => ({ event: 'stop', sequence_number: String(sequence), stream_sid: stream, stop: { call_sid: call, account_sid: 'simulated' } }),
	repliesInKind: true,
};

export const PROVIDERS = { telephony_a: twilio, telephony_b: telnyx, telephony_c: plivo, telephony_d: exotel };

/** A message of the runner: `{ payload }` of audio, `{ mark }` with its name, `{ clear: true }`, or what the bot does with a
	simulated call, `{ transfer }` or `{ keys }`, and which `{ session }` that call is. */
export function meaning({ event, media, mark, name, transfer, keys, session }) {
	if (event === 'media' || event === 'playAudio') return { payload: media?.payload };
	if (event === 'mark' || event === 'checkpoint') return { mark: mark?.name ?? name };
	if (event === 'clear' || event === 'clearAudio') return { clear: true };
	if (event === 'edge_runner') return { transfer, keys, session };
	return {};
}
