// Short helpers for the DOM, and what this browser keeps for the page.

export const $ = (id) => document.getElementById(id);

export const on = (id, type, handle) => $(id).addEventListener(type, handle);

export function make(tag, className = '', ...children) {
	const element = document.createElement(tag);
	element.className = className;
	element.append(...children);
	return element;
}

/** Keeps the end of a list visible when its height changes, if it was visible. */
export function keepEnd(list) {
	let stuck = true;
	list.addEventListener('scroll', () => { stuck = list.scrollHeight - list.scrollTop - list.clientHeight < 80; });
	new ResizeObserver(() => { if (stuck) list.scrollTop = list.scrollHeight; }).observe(list);
}

/** Changes a list and keeps its end visible if it was. */
export function atEnd(list, change) {
	const stuck = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
	change();
	if (stuck) list.scrollTop = list.scrollHeight;
}

/** Shows another symbol of the page in a button. */
export const setIcon = (button, name) => button.querySelector('use').setAttribute('href', `#i-${name}`);

/** Time of day with milliseconds, in the form of all lists of the page. */
export const clock = (date) => `${date.toTimeString().slice(0, 8)}.${String(date.getMilliseconds()).padStart(3, '0')}`;

/** A number of seconds in two units at most. */
export const duration = (s) => (s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`);

/** Offers a file to the user. */
export function save(name, blob) {
	const link = make('a');
	link.href = URL.createObjectURL(blob);
	link.download = name;
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A name for a file of now. */
export const stamped = (ending) => `edge-runner-${new Date().toISOString().slice(0, 19).replaceAll(':', '')}.${ending}`;

/** Copies a text and says so on the button; without access to the clipboard the text is selected in place. */
export async function copy(button, text) {
	const said = button.textContent;
	try {
		await navigator.clipboard.writeText(text);
		button.textContent = 'Copied';
	} catch {
		// Browsers give the clipboard to secure pages only.
		const area = Object.assign(make('textarea', 'hidden'), { value: text });
		button.after(area);
		area.select();
		button.textContent = document.execCommand('copy') ? 'Copied' : 'Not allowed';
		area.remove();
	}
	setTimeout(() => { button.textContent = said; }, 1500);
}

/** A setting of this browser. Browsers that keep nothing have the value given. */
export function kept(name, value) {
	try { return localStorage[name] ?? value; } catch { return value; }
}

export function keep(name, value) {
	try { localStorage[name] = value; } catch { /* It lasts as long as the page. */ }
}
