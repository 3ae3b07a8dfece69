// Opus by the browser's codecs, in packets of 20 ms with times in microseconds, and the order of packets that travel apart.

const RATE_HZ = 48000;
const PACKET_US = 20000;
/** Beyond it the clock of the packets follows that of the context: nothing was recorded for a while. */
const GAP_US = 250000;
/** How long a missing packet is waited for when later ones are there, and how many of them. */
const MISSING_MS = 150;
const WAITING_MAX = 50;

export const OPUS = { codec: 'opus', sampleRate: RATE_HZ, numberOfChannels: 1, bitrate: 32000 };

/** Calls `take(timestamp, packet)`. Returns a function of 20 ms of samples; null ends it. */
export function encoder(context, take) {
	let at = 0;
	const own = new AudioEncoder({
		output(chunk) {
			const packet = new Uint8Array(chunk.byteLength);
			chunk.copyTo(packet);
			const now = Math.round(context.currentTime * 1e6);
			at = now - at > GAP_US ? now : at + PACKET_US;
			take(at, packet);
		},
		error: (error) => take(at, null, error),
	});
	own.configure({ ...OPUS, opus: { application: 'voip', frameDuration: PACKET_US } });
	return (samples) => {
		if (own.state !== 'configured') return;
		if (!samples) return own.close();
		const data = new AudioData({
			data: samples, format: 's16', sampleRate: RATE_HZ, numberOfChannels: 1, numberOfFrames: samples.length, timestamp: at,
		});
		own.encode(data);
		data.close();
	};
}

const toInt16 = (sample) => Math.max(-1, Math.min(1, sample)) * 32767;

/** Calls `play(samples, rate)` with the first channel. Returns a function of a timestamp and a packet; without a packet it ends. */
export function decoder(numberOfChannels, play, fails) {
	let own;
	function open() {
		own = new AudioDecoder({
			output(data) {
				const samples = new Float32Array(data.numberOfFrames);
				data.copyTo(samples, { planeIndex: 0, format: 'f32-planar' });
				play(Int16Array.from(samples, toInt16), data.sampleRate);
				data.close();
			},
			error: fails,
		});
		own.configure({ codec: 'opus', sampleRate: RATE_HZ, numberOfChannels });
	}
	open();
	return (timestamp, data) => {
		// A packet that cannot be decoded closes a decoder.
		if (own.state === 'closed') open();
		if (data) own.decode(new EncodedAudioChunk({ type: 'key', timestamp, data }));
		else own.close();
	};
}

/** Puts the frames of groups in order: `take(frame)`. Returns a function of a sequence number and a frame, null at the end of its
	group, with the counts `came` and `lost` of groups. */
export function inOrder(take) {
	const waiting = new Map();
	let next, timer;

	function flow() {
		for (let group; (group = waiting.get(next)); next++) {
			group.frames.splice(0).forEach(take);
			if (!group.ended) break;
			waiting.delete(next);
		}
		timer = clearTimeout(timer);
		const behind = [...waiting].filter(([sequence]) => sequence !== next);
		if (!behind.length) return;
		// The one that is due is missing since the first of them came.
		const left = Math.min(...behind.map(([, { at }]) => at)) + MISSING_MS - performance.now();
		if (behind.length > WAITING_MAX || left <= 0) skip();
		else timer = setTimeout(skip, left);
	}

	function skip() {
		waiting.delete(next);
		const first = Math.min(...waiting.keys());
		arrive.lost += first - next;
		next = first;
		flow();
	}

	function arrive(sequence, frame) {
		next ??= sequence;
		if (sequence < next) return;
		if (!waiting.has(sequence)) waiting.set(sequence, { frames: [], at: performance.now() });
		const group = waiting.get(sequence);
		if (frame) group.frames.push(frame);
		else if (!group.ended) {
			group.ended = true;
			arrive.came += 1;
		}
		flow();
	}
	return Object.assign(arrive, { came: 0, lost: 0 });
}
