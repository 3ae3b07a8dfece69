// The event log: what went over the wire and what happened to the connection. Out: a list that can be filtered, and a text
// file. Kept: the last ENTRIES_MAX entries, each detail cut at CHARS_MAX. Keys and passwords never enter, since a saved log
// is made to be shown to others.

import { $, atEnd, make, on } from './dom.js';

const ENTRIES_MAX = 1000;
const CHARS_MAX = 6000;

/** Removes keys and passwords from a text. */
const redacted = (text) => text
	.replaceAll('\\r\\n', '\n')
	.replace(/("(?:credential|password|pwd|token|api_?key|authorization)"\s*:\s*)"[^"]*"/gi, '$1"(left out)"')
	.replace(/([?&]token=)[^&#\s"]*/gi, '$1(left out)')
	.replace(/("relayUrl"\s*:\s*"https:\/\/[^/"]*)\/[^"]*/g, '$1/(left out)')
	.replace(/(ice-pwd:)[^\s"\\]*/g, '$1(left out)');

function asText(detail) {
	const text = typeof detail === 'string' ? detail : JSON.stringify(detail ?? '', null, 1).replace(/^""$/, '');
	return redacted(text).slice(0, CHARS_MAX);
}

export function eventLog() {
	const list = $('log');
	const entries = [];

	function shows({ kind, title, detail }) {
		const wanted = $('log-kind').value;
		return (wanted ? kind === wanted : kind !== 'levels')
			&& `${title} ${detail}`.toLowerCase().includes($('log-filter').value.trim().toLowerCase());
	}

	function draw(entry) {
		const { at, kind, title, detail } = entry;
		const line = [make('time', '', at.toTimeString().slice(0, 8)), make('span', 'kind', kind), make('span', 'title', title)];
		entry.item = make('li', kind, ...line);
		if (detail) {
			const details = make('details', '', make('summary', '', ...line));
			// Most entries are never opened, so their text is put in when one is.
			details.addEventListener('toggle', () => details.append(make('pre', '', detail)), { once: true });
			entry.item.append(details);
		}
		return entry.item;
	}

	const render = () => list.replaceChildren(...entries.filter(shows).map(draw));

	function save() {
		const lines = entries.filter(shows).map(({ at, kind, title, detail }) => (
			`${at.toISOString()} ${kind} ${title}${detail && `\n${detail}`}`.replaceAll('\n', '\n    ')));
		const text = [location.origin, navigator.userAgent, '', ...lines, ''].join('\n');
		const link = make('a');
		link.href = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
		link.download = `edge-runner-${new Date().toISOString().slice(0, 19).replaceAll(':', '')}.log`;
		link.click();
		setTimeout(() => URL.revokeObjectURL(link.href), 10000);
	}

	on('log-kind', 'change', render);
	on('log-filter', 'input', render);
	on('log-save', 'click', save);

	return (kind, title, detail) => {
		const entry = { at: new Date(), kind, title: redacted(String(title)).slice(0, 300), detail: asText(detail) };
		entries.push(entry);
		if (entries.length > ENTRIES_MAX) entries.shift().item?.remove();
		if (shows(entry)) atEnd(list, () => list.append(draw(entry)));
	};
}
