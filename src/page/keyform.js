// Asks for the key of the runner where a view needs it.

import { apiKey, keepKey, keyWaits } from './api.js';
import { make } from './dom.js';

/** `took` is called when the user has entered one. */
export function keyForm(words, took) {
	const key = Object.assign(make('input'), { type: 'password', autocomplete: 'off', required: true, placeholder: 'Key' });
	key.setAttribute('aria-label', 'Key of the runner');
	const form = make('form', 'row', key, make('button', 'main', words));
	form.addEventListener('submit', (event) => {
		event.preventDefault();
		keepKey(key.value.trim());
		key.value = '';
		took();
	});
	/** To agree is one click. */
	const suggest = () => { if (keyWaits() && !key.value) key.value = apiKey(); };
	return { form, key, suggest };
}
