// Converts a WebRTC statistics report for the charts: round trip and jitter in ms, loss in per cent, audio bit rates in
// kbit/s; each null while unknown. Rates need the previous sample.

export function sample(report, before) {
	const entries = [...report.values()];
	const find = (type) => entries.find((entry) => entry.type === type && entry.kind === 'audio');
	const selected = entries.find(({ type }) => type === 'transport')?.selectedCandidatePairId;
	const pair = report.get(selected) ?? entries.find(({ type, nominated }) => type === 'candidate-pair' && nominated);
	const [inbound, outbound, remote] = ['inbound-rtp', 'outbound-rtp', 'remote-inbound-rtp'].map(find);

	const times = (value, factor) => (Number.isFinite(value) ? value * factor : null);
	// After a restart the counters start at zero, under another id.
	const grown = (now, then, key) => (now && now.id === then?.id ? now[key] - then[key] : NaN);
	const rate = (now, then, key) => times(grown(now, then, key) / grown(now, then, 'timestamp'), 8);
	// Late packets count as lost first and as received later, so the difference can be negative.
	const lost = Math.max(0, grown(inbound, before?.inbound, 'packetsLost'));
	const received = Math.max(0, grown(inbound, before?.inbound, 'packetsReceived'));

	return {
		bytes: pair?.bytesReceived,
		inbound,
		outbound,
		rtt: times(pair?.currentRoundTripTime ?? remote?.roundTripTime, 1000),
		jitter: times(inbound?.jitter, 1000),
		loss: times(lost / (lost + received), 100),
		lossOut: times(remote?.fractionLost, 100),
		rate: rate(inbound, before?.inbound, 'bytesReceived'),
		rateOut: rate(outbound, before?.outbound, 'bytesSent'),
	};
}
