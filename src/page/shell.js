// What surrounds a call: colours, tabs, keys of the keyboard, the help, the phone's QR code, and the screen that stays on. Knows
// no session; `actions` act on one.

import { apiKey, BASE } from './api.js';
import { $, keep, kept, on, setIcon } from './dom.js';

const THEMES = ['auto', 'light', 'dark'];
const FIELDS = 'input:not([type=checkbox], [type=radio]), select, textarea';

// ---- colours

function theme(next) {
	const { dataset } = document.documentElement;
	const at = THEMES.includes(next) ? next : 'auto';
	if (at === 'auto') delete dataset.theme;
	else dataset.theme = at;
	keep('theme', at);
	setIcon($('theme'), at);
	const said = `Colours: ${at === 'auto' ? 'as the system' : at}`;
	$('theme').setAttribute('aria-label', said);
	$('theme').title = said;
	$('theme').value = at;
	dispatchEvent(new Event('themechange'));
}

/** Phones colour the bar of the system with it. */
function paintBar() {
	const colour = getComputedStyle(document.documentElement).getPropertyValue('--bg').trim();
	document.querySelector('meta[name=theme-color]').content = colour;
}

// ---- tabs

export function showTab(name) {
	document.documentElement.dataset.tab = name;
	for (const button of $('tabs').children) {
		if (button.dataset.tab === name) button.setAttribute('aria-current', 'true');
		else button.removeAttribute('aria-current');
	}
}

// ---- the phone

const leadsHere = ({ host }) => /^(localhost|127\.|\[::1\])/.test(host);

/** `address`: of the page over HTTPS, if this one came otherwise; `reached`: what the runner calls itself in the network. */
async function showPhone({ address, reached }) {
	const { qrCode } = await import('./qr.js');
	const own = new URL('client/', BASE);
	const url = new URL(address ?? (leadsHere(own) && reached ? reached : own));
	const isLocal = leadsHere(url);
	if (apiKey() && !isLocal) url.hash = `key=${encodeURIComponent(apiKey())}`;
	const hint = url.protocol === 'https:'
		? ' The phone warns once, unless it trusts this runner.'
		: ' Its browser gives the microphone to HTTPS only: start the runner with --tls auto.';
	$('phone-text').textContent = isLocal
		? 'This address leads to this machine only. For one that phones reach, start the runner with --host 0.0.0.0 --tls auto.'
		: `Scan this with the phone’s camera, in the same network.${hint}${apiKey() ? ' The code contains the key of the runner.' : ''}`;
	$('phone-code').replaceChildren(...isLocal ? [] : [qrCode(url.href)]);
	$('phone-address').textContent = isLocal ? url.origin : url.origin + url.pathname;
	$('phone').showModal();
}

// ---- the screen

let lock, wanted;

/** Keeps the screen on, where the browser lets a page. Browsers end that when the page is hidden. */
export async function stayAwake(isWanted) {
	wanted = isWanted;
	if (!isWanted) {
		await lock?.release();
		lock = null;
	} else if (!document.hidden && (!lock || lock.released)) {
		lock = await navigator.wakeLock?.request('screen').catch(() => null);
		if (!wanted) stayAwake(false);
	}
}

// ---- keys

function keys({ mute, talk, escape, keypad }) {
	let holds = false;

	const isTyping = ({ target }) => target.matches?.(FIELDS) || document.querySelector('dialog[open]');

	addEventListener('keydown', (event) => {
		const { key, ctrlKey, altKey, metaKey, repeat, target } = event;
		if (!$('keys-on').checked || ctrlKey || altKey || metaKey || event.defaultPrevented) return;
		if (key === ' ' && holds) return event.preventDefault();
		// Dialogs close by themselves.
		if (isTyping(event)) return;
		if (key === 'Escape') return escape();
		if (repeat) return;
		if (keypad.isOpen && keypad.type(key)) return;
		if (key === '?') $('help').showModal();
		else if (key.toLowerCase() === 'm') mute();
		// Space presses a button that has the focus, and opens a summary.
		else if (key === ' ' && !target.closest?.('button, a, summary, [type=checkbox], [type=radio]')) {
			holds = talk(true);
			if (holds) event.preventDefault();
		}
	});
	const release = () => {
		if (holds) talk(false);
		holds = false;
	};
	addEventListener('keyup', ({ key }) => key === ' ' && release());
	addEventListener('blur', release);
}

/** `actions`: mute(), talk(on), which tells whether it took effect, escape(), keypad. `addresses()`: those for a phone. */
export function shell(actions, addresses) {
	theme(kept('theme', 'auto'));
	on('theme', 'click', () => theme(THEMES[(THEMES.indexOf($('theme').value) + 1) % THEMES.length]));
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', paintBar);
	addEventListener('themechange', paintBar);
	paintBar();
	on('tabs', 'click', ({ target }) => target.dataset.tab && showTab(target.dataset.tab));
	on('help-open', 'click', () => $('help').showModal());
	on('phone-open', 'click', () => showPhone(addresses()));
	$('keys-on').checked = kept('keys', 'on') === 'on';
	on('keys-on', 'change', () => keep('keys', $('keys-on').checked ? 'on' : 'off'));
	document.addEventListener('visibilitychange', () => wanted && stayAwake(true));
	keys(actions);
}
