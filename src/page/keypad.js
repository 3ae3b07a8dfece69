// A telephone keypad of twelve keys. Out: one call of `press` per key, from a click or, while the keypad is open, from the
// keyboard.

import { $, make, on } from './dom.js';

export function keypad(press) {
	const keys = [...'123456789*0#'].map((key) => Object.assign(make('button', '', key), { value: key, disabled: true }));
	const [pad, opener] = [$('keypad'), $('keypad-open')];
	pad.append(...keys);

	function show(open) {
		pad.hidden = !open;
		opener.setAttribute('aria-expanded', open);
	}

	on('keypad', 'click', ({ target }) => target.value && press(target.value));
	on('keypad-open', 'click', () => show(pad.hidden));
	return {
		lock(on) {
			for (const key of keys) key.disabled = on;
		},
		get isOpen() { return !pad.hidden; },
		show,
		/** Presses a key of the keyboard; tells whether it is one of the pad. */
		type(name) {
			const key = keys.find(({ value, disabled }) => value === name && !disabled);
			key?.click();
			return Boolean(key);
		},
	};
}
