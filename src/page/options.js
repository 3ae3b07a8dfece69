// Session options: the transport and the request to /start. The JSON text is authoritative: choosing a transport rewrites
// its `transport`, and editing that changes the choice and the page's URL. While the text has a mistake, the choice stays. Telephone
// transports have more settings, of the simulated call. A runner with several bots lets one be chosen, which is the `bot` of the text;
// without it the number that is called decides, or the first bot answers.
// Out: the request, or an error message.

import { $, make, on } from './dom.js';
import { PROVIDERS } from './providers.js';
import { connectorOf, labelOf, rows } from './transports.js';
import { json } from './words.js';

const DEFAULT = { transport: 'webrtc', enableDefaultIceServers: false, body: {} };

/** Requests a new video room unless the text says otherwise. */
const wanted = (request, transport) => ({ ...request, transport, createVideoroomRoom: transport === 'videoroom' || undefined });

const addressed = () => new URLSearchParams(location.search).get('transport');

export function startOptions() {
	const [text, list, picker] = [$('start-body'), $('transports'), $('bot-pick')];
	let chosen = DEFAULT.transport;
	/** The names of the bots, if there are several; the first is the default. */
	let bots = [];
	let listed = '';
	const choices = rows(null).map(({ name, label }) => {
		const radio = Object.assign(make('input'), { type: 'radio', name: 'transport', value: name });
		list.append(make('label', 'transport', radio, label, make('small')));
		return radio;
	});

	function read() {
		let request;
		try { request = JSON.parse(text.value); } catch (error) { return { wrong: json(text.value, error) }; }
		if ({}.toString.call(request) !== '[object Object]') return { wrong: 'The request must be an object: { … }' };
		const { transport = 'webrtc', enableDefaultIceServers: ice = false } = request;
		if (typeof ice !== 'boolean') return { wrong: '“enableDefaultIceServers” must be true or false.' };
		if (!connectorOf(transport)) return { wrong: `This page cannot connect there: ${JSON.stringify(transport)} is for other clients.` };
		return { request, transport };
	}

	function check() {
		const { transport, wrong = '' } = read();
		chosen = transport ?? chosen;
		$('start-problem').textContent = wrong;
		$('chosen').textContent = labelOf(chosen);
		text.setAttribute('aria-invalid', Boolean(wrong));
		for (const radio of choices) radio.checked = radio.value === chosen;
		showBots();
		showLine(PROVIDERS[chosen]);
		if (!wrong && transport !== (addressed() ?? DEFAULT.transport)) history.replaceState(null, '', `?transport=${transport}${location.hash}`);
	}

	/** The name of the chosen bot, if there are several; empty if the number decides. */
	function bot() {
		const asked = read().request?.bot;
		if (bots.includes(asked)) return asked;
		return bots.length > 1 && PROVIDERS[chosen] ? '' : bots[0];
	}

	function showBots() {
		const names = PROVIDERS[chosen] ? ['', ...bots] : bots;
		if (names.join() !== listed) picker.replaceChildren(...names.map((name) => new Option(name || 'By the number', name)));
		listed = names.join();
		picker.value = bot() ?? '';
	}

	function setBots(names) {
		bots = names;
		$('bot-choice').hidden = bots.length < 2;
		showBots();
	}

	/** What a simulated call of a provider can be told. */
	function showLine(provider) {
		$('line').hidden = !provider;
		if (!provider || $('line-codec').name === chosen) return;
		$('line-codec').name = chosen;
		$('line-codec').replaceChildren(...provider.codecs.map(([label], index) => new Option(label, index)));
	}

	const line = () => PROVIDERS[chosen] && {
		from: $('line-from').value.trim(),
		to: $('line-to').value.trim(),
		format: PROVIDERS[chosen].codecs[$('line-codec').value][1],
	};

	function write(request) {
		text.value = JSON.stringify(request, null, 2);
		check();
	}

	function setStatus(status) {
		// While the runner does not answer, its bots stay.
		if (status) setBots(status.bots?.map(({ name }) => name) ?? []);
		const now = rows(status);
		now.forEach(({ word, usable }, index) => {
			choices[index].disabled = !usable;
			Object.assign(choices[index].parentElement.lastElementChild, { textContent: word, className: usable ? 'usable' : '' });
		});
		const { request, transport } = read();
		const served = now.filter(({ usable }) => usable).map(({ name }) => name);
		// The runner may be restricted to a transport other than the one chosen before.
		if (list.disabled || !transport || !served.length || served.includes(transport)) check();
		else write(wanted(request, served[0]));
		return served.length > 0;
	}

	on('start-body', 'input', check);
	on('transports', 'change', ({ target }) => write(wanted(read().request ?? DEFAULT, target.value)));
	on('bot-pick', 'change', () => write({ ...read().request ?? DEFAULT, bot: picker.value || undefined }));
	on('start-reset', 'click', () => write(DEFAULT));
	write(wanted(DEFAULT, connectorOf(addressed()) ? addressed() : DEFAULT.transport));
	setStatus(null);

	return {
		read,
		line,
		bot,
		reset: () => write(DEFAULT),
		setStatus,
		/** The request cannot change during a session. */
		lock(on) {
			list.disabled = picker.disabled = $('line').disabled = $('start-reset').disabled = text.readOnly = on;
		},
	};
}
