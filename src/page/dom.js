// Short helpers for the DOM.

export const $ = (id) => document.getElementById(id);

export const on = (id, type, handle) => $(id).addEventListener(type, handle);

export function make(tag, className = '', ...children) {
	const element = document.createElement(tag);
	element.className = className;
	element.append(...children);
	return element;
}

/** Changes a list and keeps its end visible if it was. */
export function atEnd(list, change) {
	const stuck = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
	change();
	if (stuck) list.scrollTop = list.scrollHeight;
}
