// What checks observe of a page in either browser: connections, playback, and forbidden requests.

/** In the page: keeps every peer connection, so that what was received can be asked of the browser itself. */
export function watchConnections() {
	const Native = globalThis.RTCPeerConnection;
	if (!Native) return;
	const all = [];
	globalThis.RTCPeerConnection = class extends Native {
		constructor(...args) {
			super(...args);
			all.push(this);
		}
	};
	// The official client has two faults on its second connection: it stops the shared microphone, and
	// does not announce the bot's track. Only audio that is played is decoded.
	globalThis.completeNewest = async () => {
		const { sender, receiver } = all.at(-1).getTransceivers().find(({ mid }) => mid === '0');
		const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
		await sender.replaceTrack(microphone.getAudioTracks()[0]);
		const audio = document.createElement('audio');
		audio.srcObject = new MediaStream([receiver.track]);
		document.body.append(audio);
		await audio.play();
	};
	globalThis.received = async () => {
		const pc = all.at(-1);
		const sum = { connections: all.length, state: pc?.connectionState, packets: 0, energy: 0, concealed: 0, out: 0, sent: 0, over: '' };
		const stats = await pc?.getStats();
		for (const report of stats?.values() ?? []) {
			if (report.type === 'transport') {
				sum.over = stats.get(stats.get(report.selectedCandidatePairId)?.localCandidateId)?.protocol;
			}
			if (report.type === 'inbound-rtp' && report.kind === 'audio') {
				sum.packets += report.packetsReceived;
				sum.energy += report.totalAudioEnergy ?? 0;
				sum.concealed += report.concealedSamples ?? 0;
				sum.codec = stats.get(report.codecId)?.mimeType;
			}
			if (report.type === 'outbound-rtp' && report.kind === 'audio') sum.out += report.packetsSent;
			if (report.type === 'media-source' && report.kind === 'audio') sum.sent += report.totalAudioEnergy ?? 0;
		}
		return sum;
	};
}

/** Collects what a page must not do: errors, warnings, violations of its policy. */
export function watch(page) {
	const faults = [];
	page.on('console', (message) => {
		if (['error', 'warning'].includes(message.type())) faults.push(`${message.type()}: ${message.text()}`);
	});
	page.on('pageerror', (error) => faults.push(`thrown: ${error.stack}`));
	page.on('requestfailed', (request) => {
		const why = request.failure()?.errorText;
		// The browser cancels what a page no longer wants: pending candidates at the end of a call, the icons of a page
		// that a check leaves at once.
		const isIcon = ['image', 'other', 'manifest'].includes(request.resourceType?.());
		// The page leaves the stream of events when its list is not shown any more.
		if (request.url().endsWith('/calls/events') && ['net::ERR_ABORTED', 'NS_BINDING_ABORTED'].includes(why)) return;
		if (why === 'net::ERR_ABORTED' && (isIcon || request.method?.() === 'PATCH')) return;
		faults.push(`request failed: ${request.url()} ${why}`);
	});
	return faults;
}

export const received = (page) => page.evaluate(() => globalThis.received());

/** Energy of one spoken sentence is far above this, that of silence and of comfort noise far below. */
export const HEARD = 0.01;
