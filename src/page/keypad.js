// A telephone keypad of twelve keys. Out: one call of `press` per key, from a click or, while the pad has focus, from the
// keyboard.

import { $, make, on } from './dom.js';

export function keypad(press) {
	const keys = [...'123456789*0#'].map((key) => Object.assign(make('button', '', key), { value: key, disabled: true }));
	$('keys').append(...keys);
	on('keys', 'click', ({ target }) => target.value && press(target.value));
	on('keypad', 'keydown', ({ key, ctrlKey, altKey, metaKey }) => {
		if (!ctrlKey && !altKey && !metaKey) keys.find(({ value }) => value === key)?.click();
	});
	return {
		lock(on) {
			for (const key of keys) key.disabled = on;
		},
	};
}
