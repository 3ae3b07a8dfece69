// The event log: what went over the wire and what happened to the connection. Out: a list that can be filtered, copied and
// cleared, a text file, and the ids of the session to copy. Kept: the last ENTRIES_MAX entries, each detail cut at CHARS_MAX.
// Keys and passwords never enter, since a saved log is made to be shown to others; and what is saved or copied has the
// beginnings of ids alone, as the id of a session or of a connection lets its holder act as its owner.

import { $, atEnd, clock, copy, keep, keepEnd, kept, make, on, save, stamped } from './dom.js';

const ENTRIES_MAX = 1000;
const CHARS_MAX = 6000;
const BRIEF_CHARS = 240;
const IDS_MAX = 50;
/** Enough to find the session in the runner's log. */
const ID_CHARS = 8;

/** Removes keys and passwords from a text. */
const redacted = (text) => text
	.replaceAll('\\r\\n', '\n')
	.replace(/("(?:credential|password|pwd|token|api_?key|authorization)"\s*:\s*)"[^"]*"/gi, '$1"(left out)"')
	.replace(/([?&]token=)[^&#\s"]*/gi, '$1(left out)')
	.replace(/("relayUrl"\s*:\s*"https:\/\/[^/"]*)\/[^"]*/g, '$1/(left out)')
	.replace(/(ice-pwd:)[^\s"\\]*/g, '$1(left out)');

/** Cuts ids in fields, in paths, and where `told` has them. */
function shortened(text, told) {
	let short = text
		.replace(/("(?:session_?id|pc_?id|namespace)"\s*:\s*"[^"]{8})[^"]+"/gi, '$1…"')
		.replace(/([?&](?:session_?id|pc_?id)=[^&#\s"]{8})[^&#\s"]+/gi, '$1…')
		.replace(/(\b(?:sessions|whip\/s|whep\/s|calls)\/[\w.~-]{8})[\w.~-]+/g, '$1…');
	for (const id of told) short = short.replaceAll(id, `${id.slice(0, ID_CHARS)}…`);
	return short;
}

function asText(detail) {
	const text = typeof detail === 'string' ? detail : JSON.stringify(detail ?? '', null, 1).replace(/^""$/, '');
	return redacted(text).slice(0, CHARS_MAX);
}

export function eventLog() {
	const list = $('log');
	let entries = [];
	const told = new Set();
	keepEnd(list);

	function shows({ kind, title, detail }) {
		const wanted = $('log-kind').value;
		return (wanted ? kind === wanted : kind !== 'levels')
			&& `${title} ${detail}`.toLowerCase().includes($('log-filter').value.trim().toLowerCase());
	}

	function draw(entry) {
		const { at, kind, title, detail } = entry;
		const line = [make('time', '', clock(at)), make('span', 'kind', kind), make('span', 'title', title)];
		entry.item = make('li', kind, ...line);
		if (detail) {
			const brief = make('span', 'brief', detail.slice(0, BRIEF_CHARS).replace(/\s+/g, ' '));
			const details = make('details', '', make('summary', '', ...line, brief));
			// Most entries are never opened, so their text is put in when one is.
			details.addEventListener('toggle', () => details.append(make('pre', '', detail)), { once: true });
			entry.item.append(details);
		}
		return entry.item;
	}

	function render() {
		list.replaceChildren(...entries.filter(shows).map(draw));
		list.scrollTop = list.scrollHeight;
	}

	function asFile() {
		const lines = entries.filter(shows).map(({ at, kind, title, detail }) => (
			`${at.toISOString()} ${kind} ${title}${detail && `\n${detail}`}`.replaceAll('\n', '\n    ')));
		return shortened([location.origin, navigator.userAgent, '', ...lines, ''].join('\n'), told);
	}

	function open(isOpen) {
		$('log-body').hidden = !isOpen;
		$('log-open').setAttribute('aria-expanded', isOpen);
		keep('log', isOpen ? 'open' : '');
		list.scrollTop = list.scrollHeight;
	}

	on('log-open', 'click', () => open($('log-body').hidden));
	on('log-kind', 'change', render);
	on('log-filter', 'input', render);
	on('log-save', 'click', () => save(stamped('log'), new Blob([asFile()], { type: 'text/plain' })));
	on('log-copy', 'click', ({ currentTarget }) => copy(currentTarget, asFile()));
	on('log-clear', 'click', () => {
		entries = [];
		$('log-last').textContent = '';
		render();
	});
	open(kept('log', '') === 'open');

	function log(kind, title, detail) {
		const entry = { at: new Date(), kind, title: redacted(String(title)).slice(0, 300), detail: asText(detail) };
		entries.push(entry);
		if (entries.length > ENTRIES_MAX) entries.shift().item?.remove();
		if (!shows(entry)) return;
		$('log-last').textContent = `${clock(entry.at)} ${entry.title}`;
		atEnd(list, () => list.append(draw(entry)));
	}

	/** The ids of a session, each in a button that copies it: an object of names and values. */
	function ids(all) {
		for (const id of Object.values(all)) if (String(id ?? '').length > ID_CHARS) told.add(String(id));
		while (told.size > IDS_MAX) told.delete(told.keys().next().value);
		$('ids').replaceChildren(...Object.entries(all).filter(([, value]) => value).map(([name, value]) => {
			const button = make('button', '', `${name} ${value}`);
			button.title = `Copy the ${name}`;
			button.addEventListener('click', () => copy(button, value));
			return make('li', '', button);
		}));
	}
	return Object.assign(log, { ids });
}
