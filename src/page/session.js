// A session with a bot over any transport: microphone, /start, transport, RTVI, and cleanup. In: actions of the user. Out:
// calls on `to`: phase(name, text), problem(problem), microphone(track), sound(stream), ids(object), and RTVI events. Each connect() has
// a number, so that results of an abandoned one are ignored.

import { isOperator, ownCall, request } from './api.js';
import * as mic from './mic.js';
import { rtvi } from './rtvi.js';
import { noMicrophone } from './secure.js';
import { connectorOf } from './transports.js';
import * as words from './words.js';

// A bot may need long to load a model: show that and keep waiting.
const SLOW_MS = 10000;
const READY = 'Connected';

export function session({ to, log }) {
	let phase = 'idle';
	let run = 0;
	let muted = false;
	let greeted = false;
	let restarts = false;
	let isHinted = false;
	let said = '';
	let session = null;
	const doubts = new Set();
	let giveUp, call, bot, track, slow;

	function enter(next, text) {
		clearTimeout(slow);
		phase = next;
		said = text;
		log('call', text);
		to.phase(next, text);
	}

	/** Asks why a bot failed to start, if this page may know it. */
	async function explain(session) {
		const own = run;
		const { failed = [] } = await request('GET', 'sessions').catch(() => ({}));
		const line = failed.find(({ id }) => id === session)?.last_line;
		if (line && run === own) to.problem(words.botFailed(line));
	}

	function end(problem, reason) {
		run += 1;
		giveUp.abort();
		call?.close();
		track?.stop();
		call = bot = track = null;
		restarts = false;
		doubts.clear();
		enter('idle', problem?.title ?? `Call ended: ${reason}`);
		if (problem) to.problem(problem);
		if (problem?.title === words.botFailed().title && session && isOperator()) explain(session);
		session = null;
	}

	/** Why this browser lacks what a transport needs. */
	const cannot = async ({ isLine }) => (globalThis.isSecureContext ? words.notHere(isLine)
		: { ...await noMicrophone(), title: `${isLine ? 'A simulated call' : 'MoQ'} needs HTTPS`, listen: false });

	async function connect({ transport, startRequest, deviceId, version, context, line }) {
		const own = ++run;
		const mine = (handle) => (...args) => { if (run === own) return handle(...args); };
		giveUp = new AbortController();
		let connector = connectorOf(transport);
		const { isLine } = connector;
		if (connector.works === false) return end(await cannot(connector));
		if (connector.load) {
			enter('starting', 'Loading');
			try {
				connector = await connector.load();
			} catch (error) {
				return mine(end)(words.noConnection(error, 'Load the page anew.'));
			}
			if (run !== own) return;
		}
		if (deviceId !== mic.NONE && !connector.elsewhere) {
			enter('starting', 'Opening the microphone; allow it if the browser asks');
			try {
				const opened = await mic.open(deviceId);
				if (run !== own) return opened.stop();
				use(opened);
			} catch (error) {
				return mine(end)(words.microphone(error));
			}
		}
		enter('starting', 'Starting a session');
		let started;
		try {
			started = await request('POST', 'start', startRequest, giveUp.signal);
		} catch (error) {
			return mine(end)(words.runner('The start', error));
		}
		if (run !== own) return;
		// Users save and share the log, so tokens stay out of it.
		const { token, videoroomToken, dailyToken, ...shown } = started ?? {};
		log('http', 'started', shown);
		session = ownCall.session = started?.sessionId;
		to.ids({ session });
		if (connector.elsewhere) {
			let notice;
			try {
				notice = connector(started);
			} catch (error) {
				notice = words.runner('The start', { status: -1, message: error.message });
			}
			return end(notice);
		}
		enter('connecting', 'Connecting');
		greeted = isHinted = false;
		bot = isLine
			? { receive() {}, greet: () => ready(), press: (key) => call?.press(key), sendText: () => false }
			: rtvi({ log, send: (message) => call?.send(message) ?? false, to: { ...to, ready: () => ready(), interrupted, error: botFails } });
		call = connector({
			started,
			context,
			track,
			muted,
			line,
			parameters: startRequest.body ?? {},
			on: {
				log,
				note: mine(to.note),
				// A simulated call learns its session when it begins.
				ids: mine((more) => {
					session = ownCall.session = more.session ?? session;
					to.ids({ session, ...more });
				}),
				doubt: mine(doubt),
				audio: mine(to.sound),
				message: mine((message) => bot.receive(message)),
				open: mine(() => open(version)),
				slow: mine((problem) => {
					enter('connecting', 'Still connecting');
					to.problem({ ...problem, retry: false });
				}),
				trouble: mine((attempt, most) => {
					restarts = true;
					enter('trouble', `Connection lost; trying again (${attempt} of ${most})`);
				}),
				closed: mine(end),
			},
		});
		call.open();
	}

	function open(version) {
		restarts = false;
		doubts.clear();
		if (greeted) return enter('ready', 'Connected again');
		enter('waiting', 'Waiting for the bot');
		// Many bots never say that they are ready.
		slow = setTimeout(() => ready('Connected; the bot has not said that it is ready'), SLOW_MS);
		bot.greet(version);
	}

	function ready(text = READY) {
		greeted = true;
		// A bot may be heard before it says that it is ready.
		if (phase !== 'ready' || said !== text) enter('ready', text);
		if (isHinted && text === READY) to.solved();
		if (text === READY) isHinted = false;
	}

	/** A call whose runner may be gone is not shown as connected. */
	function doubt(why, isDoubtful) {
		if (isDoubtful) doubts.add(why);
		else doubts.delete(why);
		if (isDoubtful && phase === 'ready') enter('trouble', `${why}; waiting for it`);
		else if (!doubts.size && phase === 'trouble' && !restarts) enter('ready', 'Connected again');
	}

	function interrupted() {
		call.hush();
		to.interrupted();
	}

	function botFails(why, isFatal) {
		to.failed();
		if (isFatal) end(words.fatal(why));
		else if (phase !== 'waiting') to.note('The bot reports an error', why, true);
		else {
			isHinted = true;
			to.problem(words.notReady(why));
		}
	}

	// ---- the microphone

	function use(next) {
		if (track !== next) track?.stop();
		track = next;
		if (track) {
			track.enabled = !muted;
			track.onended = () => replace('');
			log('call', `microphone: ${track.label}`);
		}
		to.microphone(track);
	}

	async function replace(deviceId) {
		const [own, gone] = [run, track?.readyState === 'ended'];
		let next = null;
		try {
			if (deviceId !== mic.NONE) next = await mic.open(deviceId);
		} catch (error) {
			to.problem({ ...words.microphone(error), listen: false, retry: false });
			if (!gone) return;
		}
		if (run !== own) return next?.stop();
		use(next);
		await call?.setTrack(next);
	}

	return {
		connect,
		get phase() { return phase; },
		doubt: (why, isDoubtful) => { if (phase === 'ready' || phase === 'trouble') doubt(why, isDoubtful); },
		/** Sound of the bot: it is there, even if it never says so. */
		heard() { if (phase === 'waiting') ready(); },
		disconnect() { if (phase !== 'idle') end(null, 'you hung up'); },
		changeMicrophone(deviceId) { if (phase !== 'idle') replace(deviceId); },
		setMuted(on) {
			muted = on;
			if (track) track.enabled = !on;
			call?.setMuted(on);
		},
		sendText: (text) => bot?.sendText(text),
		press: (key) => bot?.press(key),
		stats: () => call?.stats(),
	};
}
