// RTVI 2.1.0 over any transport: the handshake, typed text, and the bot's messages as calls on `to`. Unknown types are only
// logged.

const LABEL = 'rtvi-ai';
const VERSION = '2.1.0';
/** Sent many times a second, so the log can hide them. */
const FREQUENT = ['user-audio-level', 'bot-audio-level', 'bot-tts-audio'];

/** Eight hexadecimal digits; crypto.randomUUID needs a secure context. */
const newId = () => crypto.getRandomValues(new Uint32Array(1))[0].toString(16).padStart(8, '0');

const asText = (value) => (typeof value === 'string' ? value : '');

export function rtvi({ send, to, log }) {
	let greeting = null;

	function post(type, data) {
		const id = newId();
		const sent = send({ label: LABEL, type, data, id });
		log(sent ? 'sent' : 'error', sent ? type : `${type}: not sent, the channel is closed`, data);
		return sent && id;
	}

	function receive(message) {
		if (message?.label !== LABEL || typeof message.type !== 'string') return log('error', 'not RTVI, ignored', message);
		const { type, id } = message;
		const data = message.data ?? {};
		log(FREQUENT.includes(type) ? 'levels' : type.startsWith('error') ? 'error' : 'received', type, message.data);
		const [, who, change] = /^(user|bot)-(started|stopped)-speaking$/.exec(type) ?? [];
		if (who) return to.speaking(who, change === 'started');
		const [, writing] = /^bot-llm-(started|stopped)$/.exec(type) ?? [];
		if (writing) return to.thinking(writing === 'started');
		switch (type) {
			case 'bot-ready':
				if (id !== greeting) log('error', 'bot-ready answers another client-ready');
				return to.ready();
			case 'user-mute-started': return to.held(true);
			case 'user-mute-stopped': return to.held(false);
			case 'user-transcription': return to.heard(asText(data.text), data.final === true);
			case 'bot-output': return to.output(data);
			case 'bot-transcription': return to.said(2, asText(data.text));
			case 'bot-tts-text': return to.said(1, asText(data.text));
			case 'bot-llm-text': return to.said(0, asText(data.text));
			case 'metrics': return to.waited(Array.isArray(data.ttfb) ? data.ttfb : []);
			case 'llm-function-call-in-progress': return to.called(data.tool_call_id, data.function_name, data.arguments);
			case 'llm-function-call-stopped': return to.returned(data.tool_call_id, data.cancelled === true);
			case 'bot-interrupted': return to.interrupted();
			case 'server-message': return to.note('Message from the bot', message.data);
			case 'error-response': return to.note('The bot refused a request', data.error ?? data, true);
			case 'error': return to.error(asText(data.error) || 'no reason given', data.fatal === true);
			default:
		}
	}

	return {
		receive,
		/** Sent once per bot; after a reconnect the bot is the same. */
		greet(version = 'unknown') {
			const about = { library: 'edge-runner-page', library_version: version, platform_details: { browser: navigator.userAgent } };
			greeting ||= post('client-ready', { version: VERSION, about });
		},
		press: (button) => post('dtmf', { buttons: [button] }),
		sendText: (content) => post('send-text', { content, options: {} }),
	};
}
