// The keypad of a telephone: twelve keys with their letters. Out: one call of `press` per key, from a click or, while the keypad is
// open, from the keyboard.

import { $, make, on } from './dom.js';

const LETTERS = { 2: 'ABC', 3: 'DEF', 4: 'GHI', 5: 'JKL', 6: 'MNO', 7: 'PQRS', 8: 'TUV', 9: 'WXYZ' };

export function keypad(press) {
	const keys = [...'123456789*0#'].map((key) => {
		const letters = LETTERS[key] ? [make('small', '', LETTERS[key])] : [];
		letters.forEach((each) => each.setAttribute('aria-hidden', true));
		const button = Object.assign(make('button', '', key, ...letters), { value: key, disabled: true });
		button.addEventListener('click', () => press(key));
		return button;
	});
	const [pad, opener] = [$('keypad'), $('keypad-open')];
	pad.append(...keys);

	function show(open) {
		pad.hidden = !open;
		opener.setAttribute('aria-expanded', open);
	}

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
