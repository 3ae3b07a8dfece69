// Microphone and speaker of a transport that carries samples itself, both through worklet.js. In: an AudioContext, the rate of the
// microphone's chunks. Out: chunks of 20 ms as Int16Array to `onChunk`, and a stream of what is played.

/** Throws if the browser refuses the worklet. */
export async function sound(context, rate, onChunk) {
	await context.audioWorklet.addModule(new URL('worklet.js', import.meta.url));
	const recorder = new AudioWorkletNode(context, 'recorder', { channelCount: 1, channelCountMode: 'explicit', processorOptions: { rate } });
	const player = new AudioWorkletNode(context, 'player', { numberOfInputs: 0, outputChannelCount: [1] });
	const speaker = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
	let source;
	player.connect(speaker);
	// The recorder has no output, but some browsers run only nodes that are connected to one.
	recorder.connect(context.destination);
	recorder.port.onmessage = ({ data }) => onChunk(data);
	return {
		stream: speaker.stream,
		/** Records a track; null records nothing. */
		listen(track) {
			source?.disconnect();
			source = track && context.createMediaStreamSource(new MediaStream([track]));
			source?.connect(recorder);
		},
		/** Plays mono samples of 16 bits. The rate must be a multiple of 25 Hz. */
		play: (audio, rate) => player.port.postMessage({ audio, rate }, [audio.buffer]),
		hush: () => player.port.postMessage(null),
		stop() {
			recorder.port.onmessage = null;
			for (const node of [source, recorder, player]) node?.disconnect();
		},
	};
}
