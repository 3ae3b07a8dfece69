// In a page: a tone in place of the microphone, and measures of what is played.

// Audio played since `played` was cleared: blocks of samples with the time of each.
let played = [];
const TAP = `registerProcessor('tap', class extends AudioWorkletProcessor {
	process([[samples]]) {
		if (samples) this.port.postMessage({ at: currentTime, rate: sampleRate, samples: samples.slice() });
		return true;
	}
});`;
const tapUrl = URL.createObjectURL(new Blob([TAP], { type: 'text/javascript' }));
const taps = new WeakMap();

/** The tap of a context; its input is what goes to the loudspeaker. */
function tapOf(context) {
	if (!taps.has(context)) {
		taps.set(context, context.audioWorklet.addModule(tapUrl).then(() => {
			const tap = new AudioWorkletNode(context, 'tap', { numberOfOutputs: 0, channelCount: 1, channelCountMode: 'explicit' });
			tap.port.onmessage = ({ data }) => played.push(data);
			return tap;
		}));
	}
	return taps.get(context);
}

const { connect } = AudioNode.prototype;
AudioNode.prototype.connect = function (to, ...more) {
	if (to instanceof AudioDestinationNode) tapOf(this.context).then((tap) => connect.call(this, tap));
	return connect.call(this, to, ...more);
};

/** Replaces the microphone by a tone of this pitch. */
export async function hum(hz) {
	const context = new AudioContext();
	await context.resume();
	const oscillator = new OscillatorNode(context, { frequency: hz });
	const level = new GainNode(context, { gain: 0.25 });
	const microphone = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
	oscillator.connect(level).connect(microphone);
	oscillator.start();
	navigator.mediaDevices.getUserMedia = async () => microphone.stream.clone();
}

/** The same measures of the microphone's tone by way of two connections in this page, which is what it hears without a runner. */
export async function control(seconds, hz) {
	const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
	const [near, far] = [new RTCPeerConnection(), new RTCPeerConnection()];
	near.onicecandidate = ({ candidate }) => far.addIceCandidate(candidate);
	far.onicecandidate = ({ candidate }) => near.addIceCandidate(candidate);
	const arrived = new Promise((done) => { far.ontrack = ({ track }) => done(track); });
	near.addTrack(stream.getAudioTracks()[0], stream);
	await near.setLocalDescription();
	await far.setRemoteDescription(near.localDescription);
	await far.setLocalDescription();
	await near.setRemoteDescription(far.localDescription);
	const back = new MediaStream([await arrived]);
	// A browser decodes only what an element plays.
	const element = document.createElement('audio');
	element.muted = true;
	element.srcObject = back;
	await element.play();
	const context = new AudioContext();
	await context.resume();
	new MediaStreamAudioSourceNode(context, { mediaStream: back }).connect(context.destination);
	await new Promise((done) => setTimeout(done, 1000));
	const measured = await hear(seconds, hz);
	for (const connection of [near, far]) connection.close();
	await context.close();
	return measured;
}

/** Measures playback for some seconds: energy, its share at `hz`, and the share of silence. */
export async function hear(seconds, hz) {
	played = [];
	await new Promise((done) => setTimeout(done, seconds * 1000));
	const blocks = played;
	if (!blocks.length) return { seconds: 0, energy: 0, share: 0, silent: 1 };
	const { rate } = blocks[0];
	const samples = blocks.flatMap((block) => [...block.samples]);
	const step = 2 * Math.PI * hz / rate;
	const window = Math.round(rate / 20);
	const shares = [];
	let energy = 0;
	for (let at = 0; at + window <= samples.length; at += window) {
		let [sum, re, im] = [0, 0, 0];
		for (let n = 0; n < window; n++) {
			const s = samples[at + n];
			sum += s * s;
			re += s * Math.cos(step * n);
			im += s * Math.sin(step * n);
		}
		energy += sum / rate;
		shares.push(sum / window < 1e-6 ? 0 : 2 * (re * re + im * im) / window / sum);
	}
	const silent = samples.filter((s) => s === 0).length / samples.length;
	const spoken = shares.filter((share) => share > 0).sort((a, b) => a - b);
	return { seconds: samples.length / rate, energy, share: spoken[spoken.length >> 1] ?? 0, silent };
}
