// The runner over HTTP. Out: parsed JSON, or a Failure, which words.js explains. Addresses are relative to this file, so
// the page works below any path prefix.

export const BASE = new URL('../', import.meta.url);

/** `status` is that of the answer; 0 if there was none, -1 if it cannot be used. */
export class Failure extends Error {
	constructor(status, message, retryAfter) {
		super(message);
		Object.assign(this, { status, retryAfter });
	}
}

/** A sentence, or the list of a 422: one `{loc, msg}` for each wrong field. */
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
			...(body && { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }),
		});
		json = await response.json();
	} catch (error) {
		if (!response || response.ok) throw new Failure(response ? -1 : 0, error.message);
	}
	if (response.ok) return json;
	const detail = sentence(json?.info ?? json?.detail) || response.statusText || 'no reason given';
	throw new Failure(response.status, String(detail), response.headers.get('Retry-After'));
}

export const status = () => request('GET', 'status', null, null, 5000);
