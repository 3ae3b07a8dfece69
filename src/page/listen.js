// Listening to a live call, with `--listen-in`: both sides in one channel, a second late. In: the id of the call. Out: a box with a
// button and, while it plays, a meter and a player, which mutes. WebRTC towards `POST /calls/ID/listen`; the button or the call ends it.

import { postOffer, request } from './api.js';
import { make } from './dom.js';
import { levels } from './levels.js';

// A runner that is reached directly needs no candidates of the browser.
const GATHER_MS = 1000;

export function listenBox(id) {
	const button = make('button', '', 'Listen');
	const said = make('span', 'soft');
	const bar = make('span', 'bar');
	const audio = Object.assign(make('audio'), { controls: true, autoplay: true });
	const box = make('div', 'listen', button, said);
	const meter = levels({
		onLevels(name, now) { if (name === 'bot') level = now; },
		onDraw() {
			bar.style.setProperty('--level', level.toFixed(2));
			bar.setAttribute('aria-valuenow', Math.round(level * 100));
		},
		onLatency() {},
	});
	let level = 0;
	let pc = null;
	let made = '';
	said.setAttribute('role', 'status');
	audio.setAttribute('aria-label', 'Sound of the call');
	for (const [name, value] of [['role', 'meter'], ['aria-label', 'Level of the call'], ['aria-valuenow', 0]]) bar.setAttribute(name, value);

	/** Ends it; `why` is shown. */
	function stop(why = '') {
		if (!pc) return;
		pc.close();
		pc = null;
		if (made) request('DELETE', made).catch(() => {});
		made = '';
		meter.stop();
		audio.srcObject = null;
		button.textContent = 'Listen';
		said.textContent = why;
		box.replaceChildren(button, said);
	}

	async function start() {
		const own = pc = new RTCPeerConnection();
		const path = `calls/${encodeURIComponent(id)}/listen`;
		button.textContent = 'Stop listening';
		said.textContent = 'Connecting';
		meter.start();
		own.addTransceiver('audio', { direction: 'recvonly' });
		own.ontrack = ({ track }) => {
			audio.srcObject = new MediaStream([track]);
			meter.attach('bot', audio.srcObject);
		};
		own.onconnectionstatechange = () => {
			if (own !== pc) return;
			if (own.connectionState === 'connected') said.textContent = 'It plays a second late.';
			if (['failed', 'closed'].includes(own.connectionState)) stop('The connection is lost.');
		};
		try {
			const gathered = new Promise((done) => {
				own.onicecandidate = ({ candidate }) => candidate || done();
				setTimeout(done, GATHER_MS);
			});
			await own.setLocalDescription();
			await gathered;
			const { sdp, location } = await postOffer(path, own.localDescription.sdp);
			const place = `${path}/${location.split('/').pop()}`;
			// It was stopped meanwhile.
			if (own !== pc) return void request('DELETE', place).catch(() => {});
			made = place;
			await own.setRemoteDescription({ type: 'answer', sdp });
			if (own === pc) box.replaceChildren(button, bar, audio, said);
		} catch (error) {
			if (own === pc) stop(`It cannot be played: ${error.message}`);
		}
	}

	button.addEventListener('click', () => (pc ? stop() : start()));
	return { box, stop };
}
