// Shows at the fields of each service what the board found when it asked that service, and how the test of the sound card ended.

import { make } from './dom.js';

const fieldsOf = (part) => [...part.querySelectorAll('[data-variable]')];

/** The variables of these parts of the form whose fields are filled in. */
export function filled(parts) {
	const fields = parts.flatMap(fieldsOf).filter((field) => field.value.trim());
	return Object.fromEntries(fields.map((field) => [field.dataset.variable, field.value]));
}

/** The last question about each service: the answer to an earlier one is not shown. */
const latest = new WeakMap();

/** Marks a field that is wrong, and shows it. */
export function mark(field) {
	field.setAttribute('aria-invalid', 'true');
	for (let at = field.parentElement; at; at = at.parentElement) if (at.tagName === 'DETAILS') at.open = true;
}

function show(part, text, state = '', wrong = null) {
	for (const field of fieldsOf(part)) field.removeAttribute('aria-invalid');
	const said = part.querySelector('.said');
	if (wrong) {
		mark(wrong);
		wrong.setAttribute('aria-describedby', said.id);
		wrong.after(said);
	}
	said.textContent = text;
	said.className = `said ${state}`;
}

/** Forgets what was found of a service. */
export function clear(part) {
	latest.delete(part);
	show(part, '');
}

/**
 * Asks the board about services, and shows what it found at their fields. Returns the worst state, and the first field that is wrong or
 * whose service failed. `isEarly`: while the form is filled in, when no field has to be there yet.
 */
export async function check(parts, post, isEarly = false) {
	const question = Object.assign(new AbortController(), { parts });
	for (const part of parts) {
		const before = latest.get(part);
		if (before?.parts.every((own) => parts.includes(own))) before.abort();
		latest.set(part, question);
		show(part, 'The board asks the service…');
	}
	const found = { state: 'ok', field: null };
	const note = (state, field) => {
		found.field ??= field;
		if (found.state !== 'wrong') found.state = state;
	};
	try {
		const body = { services: parts.map((part) => part.dataset.service), variables: filled(parts) };
		const { services } = await post('/check', body, question.signal);
		for (const part of parts) {
			const { state, variable, text } = services.find(({ service }) => service === part.dataset.service);
			const field = fieldsOf(part).find((own) => own.dataset.variable === variable);
			if (latest.get(part) !== question) {
				// It was changed meanwhile.
				note('failed', field);
			} else if (state === 'ok') {
				show(part, text, state);
			} else if (isEarly && state === 'wrong' && !field.value.trim()) {
				clear(part);
			} else {
				note(state, field);
				show(part, text, state, field);
			}
		}
	} catch (error) {
		for (const part of parts) if (latest.get(part) === question) show(part, isEarly ? error.message : '');
		throw error;
	}
	return found;
}

/** A button that tests the sound card, and what was found. `works` is called after a test that found nothing wrong. */
export function soundTest(post, works = () => {}) {
	const button = Object.assign(make('button', '', 'Test the sound card'), { type: 'button' });
	const said = make('p', 'said');
	said.setAttribute('role', 'status');
	button.addEventListener('click', async () => {
		const show = (text, state = '') => Object.assign(said, { textContent: text, className: `said ${state}` });
		button.disabled = true;
		show('After the tone, speak for 3 seconds. Then you hear yourself.');
		const { state, text } = await post('/sound-test', {}).catch(({ message }) => ({ text: message }));
		show(text, state === 'ok' ? state : 'failed');
		if (state === 'ok') works();
		button.disabled = false;
	});
	return [button, said];
}
