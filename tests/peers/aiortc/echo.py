"""aiortc in the place of the runner: what a caller of the checks hears and how soon it is connected without it."""

import array
import statistics
import time

import aiortc
from aiortc.codecs.g711 import PcmaDecoder, PcmaEncoder, PcmuDecoder, PcmuEncoder
from aiortc.codecs.opus import OpusDecoder, OpusEncoder
from aiortc.jitterbuffer import JitterFrame

from client import RATE, Client, frame_of, samples_of, tone_frame
from reference import RETRANSMIT_S, SHARE_SPREAD, judge, judge_share, mean_tone_share, once, sine, tone_share

CODECS = {None: (OpusEncoder, OpusDecoder), "PCMU": (PcmuEncoder, PcmuDecoder), "PCMA": (PcmaEncoder, PcmaDecoder)}
# Two packets of eight seconds: a row of losses may have begun before them.
HOLES = 0.005


class Echo:
    """Answers offers, and gives each caller its own sound back: decoded, and encoded once more, as the bot `echo` does."""

    def __init__(self):
        self.connections, self.answered_s = [], 0.0

    async def fetch(self, method, path, body=None):
        """As `Runner.fetch`; a request for a session, or an offer."""
        if path == "/start":
            return 200, {"sessionId": "control"}
        begun = time.monotonic()
        connection = aiortc.RTCPeerConnection(aiortc.RTCConfiguration(iceServers=[]))
        self.connections.append(connection)

        @connection.on("track")
        def on_track(track):
            if track.kind == "audio":
                connection.addTrack(track)

        await connection.setRemoteDescription(aiortc.RTCSessionDescription(body["sdp"], body["type"]))
        await connection.setLocalDescription(await connection.createAnswer())
        answer, self.answered_s = connection.localDescription, time.monotonic() - begun
        return 200, {"sdp": answer.sdp, "type": answer.type, "pc_id": str(len(self.connections))}

    async def close(self):
        for connection in self.connections:
            await connection.close()


class Control:
    """What a caller measures at an `Echo`."""

    def __init__(self, answered_s, connected_s, received, client):
        self.answered_s, self.connected_s, self.received, self.hz, self.rate = answered_s, connected_s, received, client.hz, client.rate

    def share(self, hz=None):
        """The share of its own tone, or of another that is not in there."""
        return tone_share(self.received, hz or self.hz, self.rate)


@once
async def control(seconds=2, **how):
    """A call of that length without the runner; `how` is what the caller is made with. Each is made once in a process."""
    echo = Echo()
    client = Client(echo, **how)
    try:
        begun = time.monotonic()
        await client.connect()
        connected_s = time.monotonic() - begun
        return Control(echo.answered_s, connected_s, await client.listen_for(seconds), client)
    finally:
        await client.close()
        await echo.close()


async def hears_itself(client, seconds, spread=SHARE_SPREAD):
    """Listens; the share of the caller's own tone against that of one with the same codec without the runner."""
    share = client.share(await client.listen_for(seconds))
    return judge_share(share, (await control(codec=client.codec)).share(), spread)


async def connects(client):
    """Connects; the seconds against those of the same caller without the runner."""
    begun = time.monotonic()
    await client.connect()
    took = time.monotonic() - begun
    reference = await control(codec=client.codec, videos=client.videos)
    return judge("connected after", took, reference.connected_s, RETRANSMIT_S, at_most=True)


class Leg:
    """One way of a path: what aiortc encodes and decodes, and between them a loss of packets, by their number."""

    def __init__(self, codec, fates):
        encoder, decoder = CODECS[codec]
        self.encoder, self.decoder, self.fates = encoder(), decoder(), iter(fates)

    def carry(self, frame):
        """The samples that arrive of this frame; none where its packet is lost, nor after the last of the fates."""
        payloads, timestamp = self.encoder.encode(frame)
        kept = [payload for payload in payloads if not next(self.fates, True)]
        return [samples_of(one) for payload in kept for one in self.decoder.decode(JitterFrame(payload, timestamp or 0))]


def carried(hz, codec, fates, instead):
    """A tone by way of an echo. In the place of a packet that is lost on the way there it sends the tone times `instead`; on the
    way back nothing is put in its place, which is how aiortc plays."""
    there, back, received = Leg(codec, fates["up"]), Leg(codec, fates["down"]), array.array("h")
    rate = rate_of(codec)
    for number in range(min(map(len, fates.values()))):
        arrived = there.carry(tone_frame(hz, number))
        samples = arrived[0] if arrived else sine(hz, rate, number * rate // 50, rate // 50, instead)
        for last in back.carry(frame_of(samples, rate, number)):
            received.extend(last)
    return received


def rate_of(codec):
    return 8_000 if codec else RATE


def silence(samples, rate):
    """The share of windows of 10 ms that are 26 dB below the usual level: a hole of a packet has one whole window."""
    size = rate // 100
    peaks = [max(map(abs, samples[at:at + size])) for at in range(0, len(samples) - size + 1, size)]
    return sum(peak < statistics.median(peaks) / 20 for peak in peaks) / len(peaks)


def not_made_up(fates):
    """The share of packets that were lost behind four others: a concealment that is halved with each is 26 dB below by then."""
    return sum(all(fates[at - 4:at + 1]) for at in range(4, len(fates))) / len(fates)


async def hears_itself_through(client, seconds, instead):
    """Listens behind a relay that drops packets. Held against an echo by the same codec that loses the same packets: one that
    sends the tone times `instead` in their place has no higher share of it."""
    relay, rate = client.relay, rate_of(client.codec)
    # The runner learns from the first losses how long to wait for packets.
    await client.listen_for(2)
    before = {way: len(fates) for way, fates in relay.fates.items()}
    received = await client.listen_for(seconds)
    fates = {way: relay.fates[way][number:] for way, number in before.items()}
    lost = {way: sum(each) / len(each) for way, each in fates.items()}
    reference = carried(client.hz, client.codec, fates, instead)
    # The windows of the measure begin at any of the five frames in one.
    control = min(mean_tone_share(reference[frame * rate // 50:], client.hz, rate) for frame in range(5))
    share = judge("share of the tone", mean_tone_share(received, client.hz, rate), control, SHARE_SPREAD)
    holes = judge("silence", silence(received, rate), not_made_up(fates["up"]), HOLES, at_most=True)
    return f"{share}; {holes}; lost {lost['up']:.1%} up, {lost['down']:.1%} down"
