// The parts of a browser around a call: sound, sockets, and what a transport tells the session.

import { setGlobal } from './page.mjs';

/** Makes nodes of Web Audio that carry nothing. `chunk(samples)` is what a microphone would give; `played` is what is to be heard. */
export function makeSound() {
	const own = { played: [], nodes: [], listened: [], rates: [] };
	class Node {
		constructor(context, name, about = {}) {
			Object.assign(this, { name, about, port: { postMessage: (message) => own.played.push(message) } });
			own.nodes.push(this);
			if (name === 'recorder') own.rates.push(about.processorOptions.rate);
		}

		connect() {}
		disconnect() { this.isOff = true; }
	}
	setGlobal('AudioWorkletNode', Node);
	setGlobal('MediaStreamAudioDestinationNode', class { stream = 'what is played'; });
	setGlobal('MediaStream', class {
		constructor(tracks) { this.tracks = tracks; }
	});
	own.context = {
		currentTime: 0,
		audioWorklet: { addModule: async (url) => { own.worklet = url.href; } },
		createMediaStreamSource({ tracks: [track] }) {
			own.listened.push(track);
			return { connect() {}, disconnect() {} };
		},
	};
	own.chunk = (samples) => own.nodes.findLast(({ name }) => name === 'recorder').port.onmessage?.({ data: samples });
	own.hushes = () => own.played.filter((message) => message === null).length;
	return own;
}

/** Replaces WebSocket. Returns the sockets that were opened. */
export function makeSockets() {
	const sockets = [];
	setGlobal('WebSocket', class {
		static OPEN = 1;
		readyState = 0;
		bufferedAmount = 0;
		sent = [];

		constructor(url) {
			this.url = String(url);
			sockets.push(this);
		}

		send(data) { this.sent.push(data); }
		close() { this.readyState = 3; }

		/** What the other side does. */
		accept() {
			this.readyState = 1;
			this.onopen();
		}

		tell(data) { this.onmessage({ data }); }

		end(code, reason = '') {
			this.readyState = 3;
			this.onclose({ code, reason });
		}
	});
	return sockets;
}

/** Replaces RTCPeerConnection. Returns the connections that were made; `refuses` is an error of the browser. */
export function makePeerConnections(refuses = null) {
	const pcs = [];
	setGlobal('MediaStream', class { constructor(tracks) { this.tracks = tracks; } });
	setGlobal('RTCPeerConnection', class {
		constructor(config) {
			if (refuses) throw refuses;
			Object.assign(this, { config, signalingState: 'stable', iceConnectionState: 'new', connectionState: 'new', reports: new Map() });
			pcs.push(this);
		}

		addTransceiver(what, how) {
			Object.assign(this, { what, how });
			return { sender: { replaceTrack: async (next) => { this.what = next; } } };
		}

		createDataChannel(label) {
			this.channel = {
				label, readyState: 'connecting', sent: [],
				send(text) { this.sent.push(text); },
				close() { this.readyState = 'closed'; },
			};
			return this.channel;
		}

		async setLocalDescription() { this.localDescription = { type: 'offer', sdp: `offer ${pcs.length}` }; }
		async setRemoteDescription(description) { this.remote = description; }
		async getStats() { return this.reports; }
		close() { this.isClosed = true; }
	});
	return pcs;
}

/** `on` of a transport, which records: `told` as `[name, ...args]`. */
export function listener() {
	const told = [];
	const on = new Proxy({}, { get: (_, name) => (...args) => { told.push([name, ...args]); } });
	return { on, told, of: (name) => told.filter(([own]) => own === name).map(([, ...args]) => args) };
}
