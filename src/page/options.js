// Session options: the transport, and the request that goes to /start. The JSON text is what counts; choosing a transport
// rewrites its `transport`, and one that is typed moves the choice. Out: the request, or a sentence on what is wrong.

import { $, make, on } from './dom.js';
import { connectorOf, rows } from './transports.js';
import { json } from './words.js';

const DEFAULT = { transport: 'webrtc', enableDefaultIceServers: false, body: {} };

export function startOptions() {
	const [text, list] = [$('start-body'), $('transports')];
	let shown = '';

	function read() {
		let request;
		try { request = JSON.parse(text.value); } catch (error) { return { wrong: json(text.value, error) }; }
		if ({}.toString.call(request) !== '[object Object]') return { wrong: 'The request must be an object: { … }' };
		const { transport = 'webrtc', enableDefaultIceServers: ice = false } = request;
		if (typeof ice !== 'boolean') return { wrong: '“enableDefaultIceServers” must be true or false.' };
		if (!connectorOf(transport)) return { wrong: `This page connects over "webrtc"; ${JSON.stringify(transport)} is for other clients.` };
		return { request, transport };
	}

	function check() {
		const { transport, wrong = '' } = read();
		$('start-problem').textContent = wrong;
		text.setAttribute('aria-invalid', Boolean(wrong));
		for (const radio of list.querySelectorAll('input')) radio.checked = radio.value === transport;
	}

	function write(request) {
		text.value = JSON.stringify(request, null, 2);
		check();
	}

	function setStatus(status) {
		const now = rows(status);
		// Drawn anew only after a change: a row in use keeps its focus.
		if (JSON.stringify(now) === shown) return;
		shown = JSON.stringify(now);
		list.replaceChildren(list.firstElementChild, ...now.map(({ name, label, word, usable }) => {
			const radio = Object.assign(make('input'), { type: 'radio', name: 'transport', value: name, disabled: !usable });
			return make('label', 'transport', radio, label, make('small', usable ? 'usable' : '', word));
		}));
		check();
	}

	on('start-body', 'input', check);
	on('transports', 'change', ({ target }) => write({ ...(read().request ?? DEFAULT), transport: target.value }));
	on('start-reset', 'click', () => write(DEFAULT));
	setStatus(null);
	write(DEFAULT);

	return {
		read,
		setStatus,
		/** During a session the request is history. */
		lock(on) {
			list.disabled = $('start-reset').disabled = text.readOnly = on;
		},
		show() {
			$('options').open = true;
			text.focus();
		},
	};
}
