// Requests to the runner over HTTP. Out: parsed JSON, or a Failure, which words.js explains. URLs are relative to this
// file, so the page works below any path prefix.

export const BASE = new URL('../', import.meta.url);

// The key of --api-key, typed or from the fragment of the URL, which browsers do not send to servers. Over plain HTTP from another
// machine others can read it, so one that was not typed there waits until the user agrees.
let key = '';
let agreed = '';
try {
	key = sessionStorage.apiKey ?? '';
	agreed = sessionStorage.agreedKey ?? '';
} catch { /* A browser that keeps nothing asks anew on each visit. */ }

export const apiKey = () => key;

/** Whether others on the way to the runner can read what is sent. */
export const isExposed = () => !globalThis.isSecureContext;

/** Whether the key is not sent before the user agrees. */
export const keyWaits = () => key !== '' && isExposed() && agreed !== key;

function store() {
	try { Object.assign(sessionStorage, { apiKey: key, agreedKey: agreed }); } catch { /* As above. */ }
}

/** The page's own call, live or the last one: the id of its session. */
export const ownCall = { session: null };

/** Takes a key that the user typed, or agreed to send. */
export function keepKey(next) {
	key = agreed = next;
	store();
}

/** Whether the runner may tell this page of all sessions: others are refused, which its log would show. */
export const isOperator = () => Boolean(key && !keyWaits()) || /^(localhost|127\.|\[::1\])/.test(location.hostname);

const bearer = () => (key && !keyWaits() ? { Authorization: `Bearer ${key}` } : {});

function takeKey() {
	const parts = new URLSearchParams(location.hash.slice(1).replaceAll('+', '%2B'));
	const given = parts.get('key');
	if (!given) return;
	key = given;
	store();
	const view = ['sessions', 'settings'].find((name) => parts.has(name));
	history.replaceState(null, '', location.pathname + location.search + (view ? `#${view}` : ''));
}
takeKey();
addEventListener('hashchange', takeKey);

/** An answer that is not JSON; empty if there is none. */
export const text = (path) => fetch(new URL(path, BASE), {
	cache: 'no-store', signal: AbortSignal.timeout(5000), headers: bearer(),
}).then((response) => (response.ok ? response.text() : ''), () => '');

/** The bytes of a file of the runner. */
export async function file(path) {
	const response = await fetch(new URL(path, BASE), { cache: 'no-store', headers: bearer() });
	if (!response.ok) throw new Failure(response.status, response.statusText);
	return response.blob();
}

/** `status` is that of the response; 0 without a response, -1 if it is unusable. */
export class Failure extends Error {
	constructor(status, message, retryAfter) {
		super(message);
		Object.assign(this, { status, retryAfter });
	}
}

/** `detail` is a sentence, or for 422 a list with one `{loc, msg}` per invalid field. */
const sentence = (detail) => (Array.isArray(detail)
	? detail.map(({ loc, msg }) => `${[].concat(loc ?? []).join('.')}: ${msg}`).join('; ')
	: detail);

export async function request(method, path, body, signal, timeoutMs = 15000) {
	let response, json;
	try {
		response = await fetch(new URL(path, BASE), {
			method,
			cache: 'no-store',
			signal: AbortSignal.any([AbortSignal.timeout(timeoutMs), signal].filter(Boolean)),
			...(body && { body: JSON.stringify(body) }),
			headers: {
				...(body && { 'Content-Type': 'application/json' }),
				...bearer(),
			},
		});
		json = await response.json();
	} catch (error) {
		if (!response || response.ok) throw new Failure(response ? -1 : 0, error.message);
	}
	if (response.ok) return json;
	const detail = sentence(json?.info ?? json?.detail) || response.statusText || 'no reason given';
	throw Object.assign(new Failure(response.status, String(detail), response.headers.get('Retry-After')), { field: json?.field });
}

/** Posts an offer of WebRTC; returns the answer, and the path of what was made. */
export async function postOffer(path, offer) {
	const response = await fetch(new URL(path, BASE), {
		method: 'POST', body: offer, cache: 'no-store', signal: AbortSignal.timeout(15000), headers: { 'Content-Type': 'application/sdp', ...bearer() },
	});
	if (!response.ok) throw new Failure(response.status, sentence((await response.json().catch(() => null))?.detail) || response.statusText);
	return { sdp: await response.text(), location: response.headers.get('Location') ?? '' };
}

/** Reads a stream of events of the runner until it ends. `took` is called when it opens and when an event comes. */
export async function follow(path, signal, took) {
	const response = await fetch(new URL(path, BASE), { cache: 'no-store', signal, headers: bearer() });
	if (!response.ok || !response.headers.get('Content-Type')?.startsWith('text/event-stream')) throw new Failure(response.status, 'no stream');
	const [pieces, decoder] = [response.body.getReader(), new TextDecoder()];
	let rest = '';
	took();
	for (;;) {
		const { done, value } = await pieces.read();
		if (done) return;
		const events = (rest + decoder.decode(value, { stream: true })).split('\n\n');
		rest = events.pop();
		if (events.some((event) => /^event:/m.test(event))) took();
	}
}

export const status = () => request('GET', 'status', null, null, 5000);
