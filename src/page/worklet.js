// Audio processors of sound.js, on the audio thread. `recorder`: the microphone at the browser's rate in, chunks of
// 20 ms and 16 bits out, at the rate of its options. `player`: { rate, audio } in, played after LEAD_S; `null` clears it at once. It resamples,
// because some browsers do not allow a context with another rate than the microphone's.

/** Buffered before playback starts, against network jitter. */
const LEAD_S = 0.06;
/** A longer backlog after a stall is reduced by skipping silence. */
const LATE_S = 0.25;
const QUIET = 100;
/** The runner sends in real time, so only a faulty bot reaches this. */
const QUEUE_S = 3;
/** Zero crossings on each side of the filter. */
const CROSSINGS = 12;

const divisor = (a, b) => (b ? divisor(b, a % b) : a);

/** Resamples between integer rates with a windowed sinc: one filter per phase. */
function resampler(from, to) {
	if (from === to) return (samples) => samples;
	const unit = divisor(from, to);
	const [up, down] = [to / unit, from / unit];
	const cut = 0.92 * Math.min(1, to / from);
	const reach = Math.ceil(CROSSINGS / cut);
	const filters = [];
	let line = new Float32Array(2 * reach);
	let at = 0;

	function filterAt(phase) {
		const weights = Float32Array.from({ length: 2 * reach }, (_, tap) => {
			const x = tap + 1 - reach - phase / up;
			const sinc = x ? Math.sin(Math.PI * cut * x) / (Math.PI * x) : cut;
			return sinc * Math.cos((Math.PI * x) / (2 * reach)) ** 2;
		});
		const sum = weights.reduce((a, b) => a + b);
		return weights.map((weight) => weight / sum);
	}

	return (samples) => {
		const whole = new Float32Array(line.length + samples.length);
		whole.set(line);
		whole.set(samples, line.length);
		const out = [];
		let first = 0;
		for (; ; at += down) {
			first = Math.floor(at / up);
			if (first + 2 * reach > whole.length) break;
			const filter = filters[at % up] ??= filterAt(at % up);
			out.push(filter.reduce((sum, weight, tap) => sum + weight * whole[first + tap], 0));
		}
		line = whole.slice(first);
		at -= first * up;
		return out;
	};
}

registerProcessor('recorder', class extends AudioWorkletProcessor {
	chunk = [];

	constructor({ processorOptions: { rate } }) {
		super();
		this.size = rate / 50;
		this.resample = resampler(sampleRate, rate);
	}

	process([[samples]]) {
		for (const sample of samples ? this.resample(samples) : []) {
			this.chunk.push(Math.max(-1, Math.min(1, sample)) * 32767);
			if (this.chunk.length < this.size) continue;
			this.port.postMessage(Int16Array.from(this.chunk));
			this.chunk = [];
		}
		return true;
	}
});

registerProcessor('player', class extends AudioWorkletProcessor {
	// A ring buffer; both positions only grow.
	ring = new Float32Array(QUEUE_S * sampleRate);
	read = 0;
	written = 0;
	held = 0;

	constructor() {
		super();
		this.port.onmessage = ({ data }) => (data ? this.take(data) : this.hush());
	}

	take({ rate, audio }) {
		if (rate !== this.rate) this.resample = resampler(rate, sampleRate);
		this.rate = rate;
		const samples = this.resample(Float32Array.from(audio, (sample) => sample / 32768));
		const isLate = this.written - this.read > LATE_S * sampleRate;
		if (isLate && audio.every((sample) => Math.abs(sample) < QUIET)) return;
		for (const sample of samples) this.ring[this.written++ % this.ring.length] = sample;
		this.read = Math.max(this.read, this.written - this.ring.length);
	}

	/** Drops pending audio with a short fade, to avoid a click. */
	hush() {
		const slope = this.held < LEAD_S * sampleRate ? 0 : Math.min(128, this.written - this.read);
		this.written = this.read + slope;
		for (let left = slope; left > 0; left--) this.ring[(this.written - left) % this.ring.length] *= left / slope;
	}

	process(_, [[out]]) {
		const ready = Math.min(out.length, this.written - this.read);
		if (!ready) this.held = 0;
		else if (this.held < LEAD_S * sampleRate) this.held += out.length;
		else for (let index = 0; index < ready; index++) out[index] = this.ring[this.read++ % this.ring.length];
		return true;
	}
});
