// One WebRTC connection to a bot: offer, trickled candidates, the channel `chat`, renegotiation, and a new connection to
// the same bot after a network failure. Implements the interface of transports.js.

import { Failure, request } from './api.js';
import { sample } from './stats.js';
import * as words from './words.js';

const TRICKLE_MS = 200;
const PING_MS = 1000;
const DISCONNECTED_MS = 5000;
const RETRY_MS = 2000;
const RESTARTS_MAX = 3;
// ICE without any usable candidate never fails by itself; other failures come earlier than this.
const OPEN_MS = 30000;
// The runner sends a packet every 20 ms, silence included.
const SILENT_SAMPLES = 3;
// A working network takes a second.
const SLOW_MS = 10000;

export function webrtc({ started, track, muted, on }) {
	const url = `sessions/${encodeURIComponent(started.sessionId)}/api/offer`;
	const giveUp = new AbortController();
	let pc, channel, sender, answered, offering, failure, figures, seen;
	let pcId = null;
	let waiting = [];
	let timers = {};
	let restarts = 0;
	let silent = 0;
	let opened = false;
	let over = false;

	// ---- one connection

	function dial(restart) {
		try {
			pc = new RTCPeerConnection(started.iceConfig);
		} catch (error) {
			return end(words.noConnection(error, 'Is WebRTC switched on in it, and is --ice-servers of the runner right?'));
		}
		const own = pc;
		const mine = (handle) => (event) => { if (pc === own) handle(event); };
		answered = false;
		seen = { own: new Set(), theirs: null };
		waiting = [];
		timers.slow = setTimeout(mine(slow), SLOW_MS);
		// Without a microphone the section is still sendrecv, so that a track can be added without negotiation.
		sender = pc.addTransceiver(track ?? 'audio', {
			direction: 'sendrecv',
			streams: track ? [new MediaStream([track])] : [],
		}).sender;
		pc.ontrack = mine((event) => on.audio(event.streams[0] ?? new MediaStream([event.track])));
		pc.onicecandidate = mine(({ candidate }) => candidate && trickle(candidate));
		pc.oniceconnectionstatechange = pc.onconnectionstatechange = mine(watch);
		channel = pc.createDataChannel('chat');
		channel.onopen = mine(isOpen);
		channel.onmessage = mine(({ data }) => receive(data));
		channel.onclose = mine(() => lost('the data channel was closed'));
		offer(restart);
	}

	/** The connection may still succeed; this explains a likely failure. */
	async function slow() {
		const own = pc;
		const pairs = [...(await own.getStats()).values()].filter(({ type }) => type === 'candidate-pair');
		seen.heard = pairs.reduce((sum, { requestsReceived: asked = 0, responsesReceived: told = 0 }) => sum + asked + told, 0);
		if (pc === own && channel.readyState === 'connecting') on.slow(words.noPath(seen));
	}

	function isOpen() {
		clearTimeout(timers.open);
		clearTimeout(timers.slow);
		restarts = 0;
		tellTrack();
		on.open(!opened);
		opened = true;
		timers.ping = setInterval(() => channel.readyState === 'open' && channel.send(`ping: ${Date.now()}`), PING_MS);
	}

	async function offer(restart) {
		const own = pc;
		offering = true;
		try {
			await pc.setLocalDescription();
			const { sdp, type } = own.localDescription;
			on.log('http', `offer${restart ? ' in place of the lost connection' : ''}`, { pc_id: pcId, sdp });
			const answer = await request('POST', url, { sdp, type, pc_id: pcId, restart_pc: restart }, giveUp.signal, 30000);
			if (pc !== own) return;
			on.log('http', 'answer', answer);
			seen.theirs = Array.from(answer.sdp.matchAll(/^a=candidate:\S+ \d+ udp \d+ (\S+) (\d+)/gim), ([, ...pair]) => pair);
			await pc.setRemoteDescription({ type: 'answer', sdp: answer.sdp });
			if (pc !== own) return;
			pcId = answer.pc_id;
			on.ids({ connection: pcId });
			answered = true;
			if (channel.readyState === 'connecting') timers.open = setTimeout(() => again(0, words.noPath(seen)), OPEN_MS);
			flush();
		} catch (error) {
			if (pc === own) refused(error);
		} finally {
			offering = false;
		}
	}

	function refused(error) {
		on.log('error', `offer: ${error.message}`);
		const problem = words.runner('The offer', error instanceof Failure ? error : new Failure(-1, error.message));
		// 404 after a lost connection: the bot has ended. 503 stays 503.
		if (error.status === 404 && pcId) end(opened ? null : failure, 'the session is over');
		else if ((error.status >= 400 && error.status < 500) || error.status === 503) end(problem);
		else again(RETRY_MS, problem);
	}

	function trickle({ candidate, sdpMid, sdpMLineIndex }) {
		const [, kind] = / typ (\w+)/.exec(candidate) ?? [];
		if (kind) seen.own.add(kind);
		waiting.push({ candidate, sdp_mid: sdpMid, sdp_mline_index: sdpMLineIndex });
		timers.trickle ??= setTimeout(flush, TRICKLE_MS);
	}

	function flush() {
		timers.trickle = clearTimeout(timers.trickle);
		if (!answered || !waiting.length) return;
		const candidates = waiting.splice(0);
		on.log('http', `${candidates.length} candidates`, candidates);
		// Most connections succeed without them, so an error is only logged.
		request('PATCH', url, { pc_id: pcId, candidates }, giveUp.signal)
			.catch((error) => over || on.log('error', `candidates: ${error.message}`));
	}

	// ---- messages

	function send(message) {
		if (channel?.readyState !== 'open') return false;
		channel.send(JSON.stringify(message));
		return true;
	}

	function tellTrack() {
		const enabled = Boolean(track) && !muted;
		send({ type: 'signalling', message: { type: 'trackStatus', receiver_index: 0, enabled } });
	}

	function receive(data) {
		let message;
		try { message = JSON.parse(data); } catch { return on.log('error', 'a message that is not JSON', String(data)); }
		if (message?.type !== 'signalling') return on.message(message);
		const type = message.message?.type;
		on.log('received', `signalling: ${type}`);
		if (type === 'peerLeft') left(message.message.reason);
		if (type === 'renegotiate' && !offering && pc.signalingState === 'stable') offer(false);
	}

	/** The runner gives a reason where the bot did not end by itself. */
	function left(reason) {
		if (reason === 'bot failed') end(words.botFailed());
		else end(null, typeof reason === 'string' ? reason : 'the bot left');
	}

	// ---- network failures

	function watch() {
		const { iceConnectionState: ice, connectionState: whole } = pc;
		on.log('call', `network ${ice}, connection ${whole}`);
		if (ice === 'failed' || whole === 'failed') again(0, words.noPath(seen));
		else if (ice === 'disconnected') lost('the network is silent');
		else if (channel.readyState !== 'closed') timers.lost = clearTimeout(timers.lost);
	}

	function lost(why) {
		if (timers.lost) return;
		on.log('call', `${why}; waiting for it to come back`);
		timers.lost = setTimeout(() => again(0, words.noPath(seen)), DISCONNECTED_MS);
	}

	function again(delayMs, problem) {
		drop();
		if (restarts >= RESTARTS_MAX) return end(problem);
		failure = problem;
		restarts += 1;
		on.trouble(restarts, RESTARTS_MAX);
		timers.again = setTimeout(() => dial(true), delayMs);
	}

	function drop() {
		// Timeouts and intervals share their ids, so one call clears both.
		Object.values(timers).forEach(clearTimeout);
		timers = {};
		silent = 0;
		const [former, chat] = [pc, channel];
		pc = channel = sender = null;
		chat?.close();
		former?.close();
	}

	function end(problem, reason) {
		if (over) return;
		over = true;
		giveUp.abort();
		drop();
		on.closed(problem, reason);
	}

	return {
		open: () => dial(false),
		close: () => end(null, 'you hung up'),
		send,
		/** Pending audio is in the browser's jitter buffer, which is short and cannot be cleared. */
		hush() {},
		async stats() {
			const report = await pc?.getStats();
			if (!report) return null;
			const { bytes } = figures ?? {};
			figures = sample(report, figures);
			const wasSilent = silent >= SILENT_SAMPLES;
			silent = figures.bytes !== undefined && figures.bytes === bytes ? silent + 1 : 0;
			// The page then asks the runner over HTTP, which tells sooner.
			figures.isSilent = silent > 0;
			if (silent >= SILENT_SAMPLES !== wasSilent) on.doubt('Nothing arrives from the runner', !wasSilent);
			return figures;
		},
		async setTrack(next) {
			track = next;
			await sender?.replaceTrack(next);
			tellTrack();
		},
		setMuted(next) {
			muted = next;
			tellTrack();
		},
	};
}
