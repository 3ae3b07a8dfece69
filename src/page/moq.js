// Media over QUIC to a bot, directly or through a relay: both ends publish a broadcast with their sound and their RTVI messages.
// Implements the interface of transports.js. A lost connection ends its session. This file is loaded when it is chosen.

import { joined } from './frames.js';
import { moqLite, reader, varint, VERSION } from './moq-lite.js';
import { decoder, encoder, inOrder, OPUS } from './opus.js';
import { sound } from './sound.js';
import * as words from './words.js';

/** From the connection to the bot's announcement. */
const BOT_MS = 15000;
/** Browsers give up after four seconds without an answer; an answer that they refuse comes earlier. */
const NO_ANSWER_MS = 3500;
/** How late sound may be. */
const LATE_MS = 500;
/** A second of packets; newer ones are dropped. */
const UNSENT_MAX = 50;
/** A runner that accepts no sound for this long is gone. */
const STALLED_MS = 10000;
/** For the last record to be sent. */
const GOODBYE_MS = 250;
/** Above the longest message of a bot. */
const RECORD_CHARS_MAX = 1024 * 1024;

const CATALOG = { audio: { renditions: { 'audio/data': { ...OPUS, container: { kind: 'legacy' }, jitter: 20 } } } };

const utf8 = new TextEncoder();
const asJson = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

/** RFC 7396. */
function patched(target, patch) {
	if ({}.toString.call(patch) !== '[object Object]') return patch;
	const all = { ...target };
	for (const [key, value] of Object.entries(patch)) {
		if (value === null) delete all[key];
		else all[key] = patched(all[key], value);
	}
	return all;
}

/** What a sync flush ends with; senders leave it out. */
const FLUSHED = [0, 0, 255, 255];
const STORED_MAX = 65535;

/** A record as stored blocks of a DEFLATE stream, because the browser's compressor cannot flush. */
function stored(record) {
	const bytes = utf8.encode(JSON.stringify(record));
	const blocks = [];
	for (let at = 0; at < bytes.length; at += STORED_MAX) {
		const block = bytes.subarray(at, at + STORED_MAX);
		const { length } = block;
		blocks.push([0, length & 255, length >> 8, ~length & 255, (~length >> 8) & 255], block);
	}
	return joined(...blocks, [0]);
}

/** Inflates the frames of a log. Calls `take` with each record, or `fails`. */
function inflater(take, fails) {
	const { readable, writable } = new DecompressionStream('deflate-raw');
	const [writer, from] = [writable.getWriter(), readable.pipeThrough(new TextDecoderStream()).getReader()];
	async function read() {
		for (let text = ''; ;) {
			const { value, done } = await from.read();
			if (done) return;
			text += value;
			if (text.length > RECORD_CHARS_MAX) throw new RangeError('a record is too long');
			let record;
			// A long record comes in pieces.
			try { record = JSON.parse(text); } catch { continue; }
			text = '';
			take(record);
		}
	}
	read().catch(fails);
	return (frame) => writer.write(joined(frame, FLUSHED)).catch(fails);
}

export function moq({ started, context, track, on }) {
	const { relayUrl, certHash, serve, namespace, clientId, botId, transcriptTrack } = started.moq ?? {};
	const log = [];
	const logReaders = new Set();
	const listeners = new Set();
	let transport, lite, audio, encode, decode, timer, stalled, isOpen, over;
	let [unsent, packets, received, sent] = [0, 0, 0, 0];
	let counted = { at: performance.now(), received, sent, came: 0, lost: 0 };

	async function open() {
		let asked, ready;
		try {
			audio = await sound(context, OPUS.sampleRate, (samples) => listeners.size && encode(samples));
			if (over) return audio.stop();
			encode = encoder(context, sendSound);
			audio.listen(track);
			asked = performance.now();
			transport = new WebTransport(address(), {
				protocols: [VERSION],
				congestionControl: 'low-latency',
				...(certHash && { serverCertificateHashes: [{ algorithm: 'sha-256', value: Uint8Array.from(atob(certHash), (c) => c.charCodeAt(0)) }] }),
			});
		} catch (error) {
			return end(words.noConnection(error, 'Load the page anew.'));
		}
		transport.closed.then(({ reason }) => end(null, reason || 'the bot left'), (error) => ready && end(words.lostMoq(error)));
		try {
			await transport.ready;
			ready = true;
		} catch {
			const silent = performance.now() - asked > NO_ANSWER_MS;
			return end(words.noMoq(address(), { serve, silent, hash: certHash }));
		}
		if (transport.protocol !== VERSION) return end(words.otherMoq(VERSION));
		lite = moqLite(transport, {
			path: `${namespace}/${clientId}`,
			tracks: new Map([['catalog.json', sendCatalog], [transcriptTrack, sendLog], ['audio/data', sendTo]]),
			log: (why) => on.log('error', `a stream of MoQ: ${why}`),
		});
		timer = setTimeout(() => end(words.noBroadcast(address().host)), BOT_MS);
		lite.discover(namespace, (id, isActive) => {
			if (id !== botId) return;
			on.log('call', `the bot's broadcast is ${isActive ? 'there' : 'gone'}`);
			if (!isActive) end(null, 'the bot left');
			else if (!isOpen) meet();
		}).catch(ignore);
	}

	/** The runner names itself “localhost” unless it was told its name, and this page knows a better one. */
	function address() {
		const url = new URL(relayUrl);
		if (serve && url.hostname === 'localhost') url.hostname = location.hostname;
		return url;
	}

	/** Whatever breaks a stream of its own accord closes the session too, and that is reported. */
	const ignore = () => {};

	function meet() {
		clearTimeout(timer);
		isOpen = true;
		const theirs = `${namespace}/${botId}`;
		const subscribe = (...args) => lite.subscribe(theirs, ...args)
			.catch((error) => over || on.log('error', `${args[0]}: ${error.message}`));
		let catalog;
		subscribe('catalog.json', 0, 0, (_, frame) => {
			catalog = frame ? patched(catalog, asJson(frame)) : null;
			const [[name, { codec, numberOfChannels = 1 }] = ['', {}]] = Object.entries(catalog?.audio?.renditions ?? {});
			if (codec !== 'opus' || decode) return;
			decode = decoder(numberOfChannels, audio.play, (error) => on.log('error', `the sound: ${error.message}`));
			subscribe(name, 1, LATE_MS, listen);
		});
		const inflate = inflater(hear, (error) => end(words.lostMoq(error)));
		subscribe(transcriptTrack, 2, 0, (_, frame) => {
			received += frame?.length ?? 0;
			if (frame) inflate(frame);
		});
		on.audio(audio.stream);
		on.ids({ namespace });
		on.open(true);
	}

	// ---- up

	function sendCatalog(id) {
		lite.group(id, 0, utf8.encode(JSON.stringify(CATALOG))).then((group) => group.close()).catch(ignore);
		return ignore;
	}

	function sendLog(id) {
		let group;
		const write = (record) => { group = group.then((open) => open.write(record).then(() => open)); group.catch(ignore); };
		group = lite.group(id, 0, ...log);
		group.catch(ignore);
		logReaders.add(write);
		return () => logReaders.delete(write);
	}

	function sendTo(id) {
		listeners.add(id);
		return () => listeners.delete(id);
	}

	async function sendSound(timestamp, packet, error) {
		if (over) return;
		if (!packet) return end(words.noConnection(error, 'It cannot encode sound.'));
		const now = performance.now();
		if (unsent > UNSENT_MAX) return now - (stalled ??= now) > STALLED_MS && end(words.lostMoq());
		stalled = null;
		const [sequence, frame] = [packets++, joined(varint(timestamp), packet)];
		for (const id of listeners) {
			unsent += 1;
			sent += frame.length;
			lite.group(id, sequence, frame).then((group) => group.close()).catch(ignore).finally(() => { unsent -= 1; });
		}
	}

	// ---- down

	const listen = inOrder(async (frame) => {
		received += frame.length;
		const data = reader(frame);
		const timestamp = await data.number();
		if (!over) decode(timestamp, data.rest());
	});

	function hear(record) {
		if (over) return;
		// Runners number their records, for readers that connect again.
		const { seq, epoch, ...message } = record ?? {};
		if (message.type === 'session-ending' && message.label === 'moq-transport') return end(null, 'the bot left');
		if (message.label === 'moq-transport') return;
		if (/^(bot-interrupted|user-started-speaking)$/.test(message.type)) audio.hush();
		on.message(message);
	}

	function end(problem, reason, lingerMs) {
		if (over) return;
		over = true;
		clearTimeout(timer);
		audio?.stop();
		encode?.(null);
		decode?.(0, null);
		const leave = () => { try { transport?.close(); } catch { /* It has failed already. */ } };
		if (lingerMs) setTimeout(leave, lingerMs);
		else leave();
		on.closed(problem, reason);
	}

	function send(message) {
		if (!isOpen || over) return false;
		const record = stored(message);
		log.push(record);
		sent += record.length;
		logReaders.forEach((write) => write(record));
		return true;
	}

	return {
		open,
		/** Behind a relay, a runner waits for a page that left without a word. */
		close: () => end(null, 'you hung up', !serve && send({ label: 'moq-transport', type: 'session-ending' }) && GOODBYE_MS),
		hush: () => audio?.hush(),
		send,
		stats() {
			const was = counted;
			counted = { at: performance.now(), received, sent, came: listen.came, lost: listen.lost };
			const grown = (key) => counted[key] - was[key];
			return {
				loss: grown('came') + grown('lost') > 0 ? grown('lost') / (grown('came') + grown('lost')) * 100 : null,
				lossOut: null,
				rate: grown('received') * 8 / grown('at'),
				rateOut: grown('sent') * 8 / grown('at'),
			};
		},
		setTrack(next) {
			track = next;
			audio?.listen(track);
		},
		// As over a WebSocket, a muted track sends silence.
		setMuted() {},
	};
}
