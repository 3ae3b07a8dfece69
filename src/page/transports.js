// The runner's nine transports: names on the wire, names in words, and who connects them here. A new connector is a module
// with the shape that call.js describes, and its function in this table.

import { webrtc } from './call.js';

const TABLE = [
	['webrtc', 'WebRTC', webrtc],
	['websocket', 'WebSocket'],
	['videoroom', 'Video room'],
	['mediaroom', 'Media room'],
	['telephony_a', 'Telephony A'],
	['telephony_b', 'Telephony B'],
	['telephony_c', 'Telephony C'],
	['telephony_d', 'Telephony D'],
	['moq', 'Media over QUIC'],
];

export const connectorOf = (name) => TABLE.find((row) => row[0] === name)?.[2];

/** Each transport with a short word on whether this page can connect it. `status` is null while the runner is silent. */
export const rows = (status) => TABLE.map(([name, label, connect]) => {
	const usable = Boolean(connect && status?.transports?.includes(name));
	const word = usable ? 'ready'
		: !status ? 'not known'
			: status.unavailable?.includes(name) ? 'not in this build'
				: status.transports?.includes(name) ? 'not from this page' : 'switched off';
	return { name, label, word, usable };
});
