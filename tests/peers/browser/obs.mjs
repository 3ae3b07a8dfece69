// A broadcaster: libdatachannel, which OBS uses, sends OBS's offer the way OBS does: audio and
// H.264 one way, no candidates, 201 expected, DELETE at the end.

import nodeDataChannel from 'node-datachannel';
import { sleep, until } from './runner.mjs';

/** 20 ms of silence in Opus. */
const SILENCE = [0xf8, 0xff, 0xfe];
const SSRC = 0x0b5;

/** An RTP packet, RFC 3550 section 5.1. */
function packet(number) {
	const head = Buffer.alloc(12);
	head.writeUInt8(0x80, 0);
	head.writeUInt8(111, 1);
	head.writeUInt16BE(number & 0xffff, 2);
	head.writeUInt32BE(number * 960, 4);
	head.writeUInt32BE(SSRC, 8);
	return Buffer.concat([head, Buffer.from(SILENCE)]);
}

export const checks = {
	async 'whip: the engine of OBS publishes sound beside H.264, without candidates'(runner) {
		const pc = new nodeDataChannel.PeerConnection('obs', { iceServers: [], disableAutoNegotiation: true });
		let state = 'new';
		pc.onStateChange((now) => { state = now; });
		const sound = new nodeDataChannel.Audio('0', 'SendOnly');
		sound.addOpusCodec(111);
		sound.addSSRC(SSRC, 'obs', 'obs', 'sound');
		const picture = new nodeDataChannel.Video('1', 'SendOnly');
		picture.addH264Codec(96);
		picture.addSSRC(SSRC + 1, 'obs', 'obs', 'picture');
		const track = pc.addTrack(sound);
		pc.addTrack(picture);
		pc.setLocalDescription('offer');
		const offer = await until(() => pc.localDescription()?.sdp, 'an offer');
		const body = offer.replaceAll(/a=(candidate:.*|end-of-candidates)\r\n/g, '');
		const reply = await fetch(`${runner.url}/whip/studio`, {
			method: 'POST', body, headers: { 'Content-Type': 'application/sdp', 'User-Agent': 'Mozilla/5.0 (OBS-Studio/30.2)' },
		});
		const answer = await reply.text();
		if (reply.status !== 201) throw new Error(`${reply.status}: ${answer}`);
		const location = reply.headers.get('location');
		if (!/^\/whip\/s\/[0-9a-f]+$/.test(location)) throw new Error(`its session is ${location}`);
		if (!/m=audio[^]*a=recvonly/.test(answer.split('m=video')[0])) throw new Error(answer);
		pc.setRemoteDescription(answer, 'answer');
		await until(() => state === 'connected', `the connection, which is ${state}`);
		for (let number = 0; number < 60; number += 1) {
			track.sendMessageBinary(packet(number));
			await sleep(20);
		}
		const { status } = await fetch(runner.url + location, { method: 'DELETE' });
		if (status !== 200) throw new Error(`DELETE was answered with ${status}`);
		pc.close();
		await runner.waitForSessions(0);
		const line = await until(() => runner.log.find((each) => each.includes('session ended')), 'the last line of the session');
		const frames = Number(/(\d+) frames to the bot/.exec(line)[1]);
		if (frames < 40) throw new Error(line);
		return `${frames} frames to the bot`;
	},
};
