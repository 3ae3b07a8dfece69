// A session with a bot over any transport: microphone, /start, transport, RTVI, and cleanup. In: actions of the user. Out:
// calls on `to`: phase(name, text), problem(problem), microphone(track), sound(stream), and RTVI events. Each connect() has
// a number, so that results of an abandoned one are ignored.

import { request } from './api.js';
import * as mic from './mic.js';
import { rtvi } from './rtvi.js';
import { noMicrophone } from './secure.js';
import { connectorOf } from './transports.js';
import * as words from './words.js';

// A bot may need long to load a model: show that and keep waiting.
const SLOW_MS = 10000;

export function session({ to, log }) {
	let phase = 'idle';
	let run = 0;
	let muted = false;
	let greeted = false;
	let giveUp, call, bot, track, slow;

	function enter(next, text) {
		clearTimeout(slow);
		phase = next;
		log('call', text);
		to.phase(next, text);
	}

	function end(problem, reason) {
		run += 1;
		giveUp.abort();
		call?.close();
		track?.stop();
		call = bot = track = null;
		enter('idle', problem?.title ?? `Call ended: ${reason}`);
		if (problem) to.problem(problem);
	}

	/** Why this browser lacks what a transport needs. */
	const cannot = async () => (globalThis.isSecureContext ? words.noMoqHere()
		: { ...await noMicrophone(), title: 'MoQ needs HTTPS', listen: false });

	async function connect({ transport, startRequest, deviceId, version, context }) {
		const own = ++run;
		const mine = (handle) => (...args) => { if (run === own) return handle(...args); };
		giveUp = new AbortController();
		let connector = connectorOf(transport);
		if (connector.works === false) return end(await cannot());
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
		greeted = false;
		bot = rtvi({ log, send: (message) => call?.send(message) ?? false, to: { ...to, ready, interrupted, error: botFails } });
		call = connector({
			started,
			context,
			track,
			muted,
			on: {
				log,
				audio: mine(to.sound),
				message: mine((message) => bot.receive(message)),
				open: mine(() => open(version)),
				slow: mine((problem) => {
					enter('connecting', 'Still connecting');
					to.problem({ ...problem, retry: false });
				}),
				trouble: mine((attempt, most) => enter('trouble', `Connection lost; trying again (${attempt} of ${most})`)),
				closed: mine(end),
			},
		});
		call.open();
	}

	function open(version) {
		if (greeted) return enter('ready', 'Connected again');
		enter('waiting', 'Waiting for the bot');
		slow = setTimeout(() => enter('waiting', 'The line is open; the bot takes its time'), SLOW_MS);
		bot.greet(version);
	}

	function ready() {
		greeted = true;
		enter('ready', 'Connected');
	}

	function interrupted() {
		call.hush();
		to.interrupted();
	}

	function botFails(why, isFatal) {
		if (isFatal) end(words.fatal(why));
		else to.note('The bot reports an error', why, true);
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
