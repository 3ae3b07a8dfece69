// Explains errors so that a user can act on them. In: errors of the browser or the runner. Out: a problem, shown by
// app.js: { title, text, steps: [[text, code, text, code...]], more: { title, steps }, note, go, listen, retry, play, key, reset }. A URL in
// place of code is a link; `go` is a URL for the first button; the last five offer a button.

import { apiKey, isExposed, keyWaits } from './api.js';
import { overHttps } from './secure.js';

/** What was said, inside a sentence. */
const quoted = (said) => `“${String(said).replace(/\.$/, '')}”`;

/** The errors of getUserMedia, by DOMException name. */
export function microphone({ name, message }) {
	const [title, text] = {
		NotAllowedError: /system/i.test(message)
			? ['The system blocks the microphone', 'Allow it for this browser in the privacy settings of the system.']
			: ['The microphone was not allowed', 'Press the symbol beside the address, allow the microphone for this page, and try again.'],
		NotFoundError: ['No microphone found', 'Plug one in or switch it on, and try again.'],
		NotReadableError: ['The microphone is busy', 'Another program or tab may use it: close that one, or choose another microphone.'],
	}[name === 'AbortError' ? 'NotReadableError' : name] ?? ['The microphone does not open', `The browser says ${quoted(message || name)}.`];
	return { title, text, listen: true, retry: true };
}

/** Why a key is asked for. */
export function keyWanted() {
	if (apiKey() && !keyWaits()) return 'The runner rejected the key of this page.';
	const why = keyWaits() ? 'The key of this page was not sent yet.' : 'Enter the key that the runner was started with (--api-key).';
	return isExposed() ? `${why} This page came over plain HTTP, where others in the network can read the key: use HTTPS if you can.` : why;
}

/** A failed request; `what` starts the title. */
export function runner(what, { status, message, retryAfter }) {
	if (!status) {
		return {
			title: 'The runner does not answer',
			text: `Is edge-runner still running on ${location.host}, and is this device in the same network? (${message})`,
			retry: true,
		};
	}
	if (status < 0) {
		return { title: 'The answer cannot be used', text: `Is it really edge-runner that answers at ${location.host}? (${message})` };
	}
	if (status === 401) {
		return {
			title: 'The runner requires a key',
			text: keyWanted(),
			key: true,
			go: isExposed() ? overHttps() : null,
			// To sign in is no failure.
			good: !apiKey(),
		};
	}
	if (status === 503 && /stopping/.test(message)) {
		return { title: 'The runner is stopping', text: 'It takes no new calls. Try again once it has started again, or ask who runs it.', retry: true };
	}
	if (status === 503) {
		const when = retryAfter ? `in ${retryAfter} s` : 'later';
		return { title: 'All sessions are in use', text: `The runner says ${quoted(message)}. Try again ${when}.`, retry: true };
	}
	const hint = {
		403: 'Open the page from an origin that --allowed-origins lists.',
		421: 'Open the page under another name of the runner, or add this one with --allowed-hosts.',
		500: 'See the log of the runner.',
	}[status] ?? (what === 'The start' ? 'Check the start request in the session options.' : '');
	return { title: `${what} was refused (${status})`, text: `The runner says ${quoted(message)}. ${hint}`, retry: status >= 500 };
}

export const noConnection = ({ message }, hint) => ({
	title: 'The browser refuses to connect',
	text: `It says ${quoted(message)}. ${hint}`,
});

const KINDS = { host: 'local', srflx: 'public', relay: 'relayed' };

/** `own`: kinds of the candidates of this browser. `theirs`: [address, port] of those in the answer; null without an answer.
	`heard`: how many packets of ICE came, once it was counted. */
export function noPath({ own, theirs, heard }) {
	const seen = [
		own.size ? `This browser tries ${[...own].map((kind) => KINDS[kind]).join(' and ')} addresses` : 'This browser has no address to try: a VPN or a privacy setting hides them',
		theirs ? `the runner offers ${theirs.map((pair) => pair.join(' port ')).join(', ') || 'none'}` : 'the runner has not answered yet',
		heard === undefined ? '' : heard ? 'some packets come, but not both ways' : 'no packet came back',
	];
	const ports = [...new Set(theirs?.map(([, port]) => port))].join(', ');
	return {
		title: 'No network path to the bot',
		text: `The page arrives, but the sound does not: it travels over UDP. ${seen.filter(Boolean).join('; ')}.`,
		steps: [
			[`Let UDP through firewalls to the runner, ${ports ? `at port ${ports}` : 'at the number of its HTTP port or that of --rtc-port'}.`],
			['Switch off a VPN, and check that both are in the same network; public Wi-Fi networks often isolate devices.'],
			['From another network, or with the runner behind NAT or in a container, it needs --ice-address, or a TURN server in --ice-servers.'],
			['On the machine of the runner, run the checks:', 'edge-runner doctor'],
		],
		retry: true,
	};
}

export const noSocket = () => ({
	title: 'The WebSocket does not open',
	text: 'The runner started the session, but the WebSocket to it does not open.',
	steps: [
		['A proxy in front of the runner must let WebSockets through.'],
		['With --allowed-origins, the origin of this page must be in the list:', location.origin],
		['If all sessions are in use, the log of the runner says so.'],
	],
	retry: true,
});

/** `line`: what the bot’s program wrote last, if the runner says it. */
export const botFailed = (line) => ({
	title: 'The bot failed',
	text: `The call is over. The log of the runner says ${line ? 'more' : 'why'}.`,
	steps: line ? [['The bot did not start; its last lines:', line]] : [],
	retry: true,
});

/** `why`: what the runner or the bot said. */
export const notReady = (why) => ({ title: 'The bot is not ready', text: `${why} The log of the runner says more.` });

/** The runner took no call: it wants proof, or did not recognise it. */
export const refusedCall = (reason) => (/proof|token/.test(reason) ? {
	title: 'This runner takes proven calls only',
	text: 'It has the credentials of this provider, so a call needs the provider’s signature, or a token that only a holder of the API key gets.',
	steps: [
		['Start the runner with', '--api-key KEY', 'and enter that key here: the page then calls with a token.'],
		['Or, on a machine that strangers cannot reach, start it with', '--unverified-calls'],
		['Or start it without the credentials of the provider: simulated calls need none.'],
	],
	key: true,
} : { title: 'The runner refused the call', text: `It says ${quoted(reason)}.`, retry: true });

/** `code` and `reason` of the close event; neither if the socket stalled. */
export function lostSocket(code, reason) {
	if (code === 1011) return botFailed();
	const why = code ? [`WebSocket ${code}`, reason].filter(Boolean).join(': ') : 'it accepts no more sound';
	return {
		title: 'The connection was lost',
		text: `Is the runner still running, and this device in its network? (${why})`,
		retry: true,
	};
}

export const notHere = (isLine) => (isLine
	? { title: 'This browser cannot make a simulated call', text: 'That needs audio worklets. Use a recent browser.' }
	: {
		title: 'This browser cannot speak MoQ',
		text: 'That needs WebTransport and WebCodecs. Use a recent Chrome or Edge, or start the runner without -t moq and talk over WebRTC.',
	});

export const badRequest = (wrong) => ({
	title: 'The start request has a mistake',
	text: `${wrong} It is in the settings, under “Session options”.`,
	reset: true,
});

/** Browsers do not tell a page why. `url`: of the MoQ server. `serve`: whether that is the runner, and not a relay. `silent`:
	whether nothing came back. `hash`: of its certificate, if it is self-signed. */
export function noMoq({ origin, pathname, hostname, host, port }, { serve, silent, hash }) {
	const at = `UDP port ${port || 443}`;
	const other = ['Or start the runner without -t moq: WebRTC needs no certificate and also goes over TCP.'];
	if (silent) {
		return {
			title: `UDP is blocked on the way to the ${serve ? 'bot' : 'relay'}`,
			text: `The page arrives, but MoQ travels over UDP, and no answer came from ${hostname}, ${at}.`,
			steps: [[serve ? `Let UDP through firewalls and containers to the runner, at ${at} (--moq-bind).`
				: `Let UDP out of this network to the relay, at ${at}.`],
				[serve ? 'Switch off a VPN, and check that both are in the same network.' : 'Switch off a VPN.'],
				...serve ? [] : [['On the machine of the runner, check the relay:', `edge-runner doctor -t moq --moq-connect ${origin}${pathname}`]],
				other],
			retry: true,
		};
	}
	return {
		title: `The browser rejects the MoQ ${serve ? 'server' : 'relay'}`,
		text: `It gave up at once on ${host}: the certificate there is not the expected one, or nothing listens at that UDP port.`,
		steps: [
			[hash ? `The certificate must have the hash that the runner gave (certHash): ${serve
				? 'is another program at that port, or the clock of one device wrong?'
				: 'is the file of --moq-tls-cert the one that the relay serves now, or the clock of one device wrong?'}`
				: `The certificate must be for ${hostname}, and of an authority that this browser trusts; ${serve
					? 'without --moq-tls-cert the runner makes one that browsers accept by its hash.'
					: 'if it is self-signed, start the runner with --moq-tls-cert.'}`],
			[serve ? `The log of the runner says whether it listens at ${at}.` : 'The runner is connected to this relay: is this browser on the way to another one?'], other,
		],
		retry: true,
	};
}

export const otherMoq = (version) => ({
	title: 'No common version of MoQ',
	text: `The server did not choose ${version}. Is it really edge-runner, or a recent relay?`,
});

export const noBroadcast = (host) => ({
	title: 'The bot does not appear',
	text: `The connection to ${host} is open, but the bot announced no broadcast there. See the log of the runner.`,
	retry: true,
});

export const lostMoq = (error) => ({
	title: 'The connection was lost',
	text: `Is the runner still running, and this device in its network? (${error?.message || 'it accepts no more sound'})`,
	retry: true,
});

export const noSound = () => ({
	title: 'The browser blocks the sound',
	text: 'It needs a click before it plays sound.',
	play: true,
});

export const fatal = (why) => ({ title: 'The bot gave up', text: `It says ${quoted(why)}.`, retry: true });

const OPEN = 'The text ends too early: a quote or a bracket is still open.';

/** The error of a text that is not JSON, with its position if the browser reports it. */
export function json(text, { message }) {
	if (/end of|eof|untermin/i.test(message)) return OPEN;
	const [, row, column] = /line (\d+) column (\d+)/.exec(message) ?? [];
	if (!row) return `Not JSON yet: ${message}`;
	const lines = text.split('\n').slice(0, row - 1);
	const at = [...lines, ''].join('\n').length + Number(column) - 1;
	const next = text[at];
	const where = `Line ${row}, column ${column}`;
	if (next === undefined) return OPEN;
	if (/[}\]]/.test(next) && /,\s*$/.test(text.slice(0, at))) return `${where}: remove the comma before ${next}`;
	if (/['_a-z]/i.test(next)) return `${where}: names and texts need double quotes.`;
	return `${where}: ${next} is not expected here; is a comma or a colon missing?`;
}
