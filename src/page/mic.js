// Lists and opens microphones, and lists loudspeakers. Needs a secure context; `allowed` tells whether the page has one.

export const NONE = 'none';

export const allowed = Boolean(globalThis.isSecureContext && navigator.mediaDevices?.getUserMedia);

/** Opens a microphone. The empty id is the system's default, which also replaces an unplugged one. */
export async function open(id) {
	const get = (choice) => navigator.mediaDevices.getUserMedia({
		audio: { ...choice, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
	});
	const stream = await get(id && { deviceId: { exact: id } }).catch((error) => {
		if (id && ['OverconstrainedError', 'NotFoundError'].includes(error.name)) return get();
		throw error;
	});
	return stream.getAudioTracks()[0];
}

/** Browsers hide names, and often all but one device, until the user allows a microphone. */
export async function list() {
	const devices = allowed ? await navigator.mediaDevices.enumerateDevices() : [];
	return devices
		.filter(({ kind, deviceId }) => kind === 'audioinput' && !['', 'default', 'communications'].includes(deviceId))
		.map(({ deviceId, label }, index) => ({ id: deviceId, label: label || `Microphone ${index + 1}` }));
}

/** Loudspeakers, where the browser lets a page choose one. */
export async function speakers() {
	if (!allowed || !('setSinkId' in HTMLMediaElement.prototype)) return [];
	const devices = await navigator.mediaDevices.enumerateDevices();
	return devices
		.filter(({ kind, deviceId, label }) => kind === 'audiooutput' && label && !['', 'default', 'communications'].includes(deviceId))
		.map(({ deviceId, label }) => ({ id: deviceId, label }));
}
