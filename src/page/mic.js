// The microphone: which ones there are, and opening one. Nothing here works on a page that is not secure; `allowed` tells.

export const NONE = 'none';

export const allowed = Boolean(globalThis.isSecureContext && navigator.mediaDevices?.getUserMedia);

/** Opens one; the empty id is the system's default, which also takes the place of one that was unplugged. */
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

/** Browsers hide names, and often all but one device, until a microphone was allowed. */
export async function list() {
	const devices = allowed ? await navigator.mediaDevices.enumerateDevices() : [];
	return devices
		.filter(({ kind, deviceId }) => kind === 'audioinput' && !['', 'default', 'communications'].includes(deviceId))
		.map(({ deviceId, label }, index) => ({ id: deviceId, label: label || `Microphone ${index + 1}` }));
}
