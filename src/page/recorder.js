// Records a call in this browser: the caller on the left channel, the bot on the right. In: an AudioContext, and streams that may
// change. Out: one file in the format that the browser encodes, at most RECORDED_BYTES_MAX.

const RECORDED_BYTES_MAX = 64 * 1024 * 1024;
const PIECE_MS = 1000;
const BITS_PER_S = 64000;
const FORMATS = [['audio/webm;codecs=opus', 'webm'], ['audio/ogg;codecs=opus', 'ogg'], ['audio/mp4', 'm4a']];

const format = FORMATS.find(([type]) => globalThis.MediaRecorder?.isTypeSupported(type));

export const canRecord = Boolean(format);

/** Returns `side(name, stream)` for `user` and `bot`, and `stop()`, which resolves to `{ blob, ending, seconds }`. */
export function recorder(context) {
	const begun = Date.now();
	const merger = new ChannelMergerNode(context, { numberOfInputs: 2 });
	const taken = new MediaStreamAudioDestinationNode(context, { channelCount: 2 });
	const sources = {};
	const pieces = [];
	let bytes = 0;
	merger.connect(taken);
	const own = new MediaRecorder(taken.stream, { mimeType: format[0], audioBitsPerSecond: BITS_PER_S });
	own.ondataavailable = ({ data }) => {
		pieces.push(data);
		bytes += data.size;
		if (bytes > RECORDED_BYTES_MAX && own.state !== 'inactive') own.stop();
	};
	own.start(PIECE_MS);
	return {
		side(name, stream) {
			sources[name]?.disconnect();
			sources[name] = stream && context.createMediaStreamSource(stream);
			sources[name]?.connect(merger, 0, name === 'user' ? 0 : 1);
		},
		async stop() {
			const seconds = Math.round((Date.now() - begun) / 1000);
			if (own.state !== 'inactive') {
				await new Promise((done) => {
					own.onstop = done;
					own.stop();
				});
			}
			return { blob: new Blob(pieces, { type: format[0] }), ending: format[1], seconds };
		},
	};
}
