"""One aiortc peer as the stock web client behaves: /start, offer, channel `chat`, RTVI, pings; a tone for a microphone."""

import array
import asyncio
import fractions
import json
import time

import aioice.ice
import aiortc
import av
from aiortc.rtcdtlstransport import RTCDtlsTransport, generate_certificate
from OpenSSL import SSL

from checks import until
from reference import sine, tone_share

# The checks stay on loopback, which aioice would leave out.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]

RATE = 48_000
FRAME = RATE // 50


def frame_of(samples, rate, number):
    """20 ms of samples, by the number of the frame."""
    frame = av.AudioFrame(format="s16", layout="mono", samples=len(samples))
    frame.planes[0].update(samples.tobytes())
    frame.sample_rate, frame.pts, frame.time_base = rate, number * len(samples), fractions.Fraction(1, rate)
    return frame


def tone_frame(hz, number):
    return frame_of(sine(hz, RATE, number * FRAME, FRAME), RATE, number)


def samples_of(frame):
    """One channel: the decoder of Opus gives two equal ones."""
    channels = len(frame.layout.channels)
    return array.array("h", bytes(frame.planes[0])[: frame.samples * 2 * channels])[::channels]


class Tone(aiortc.MediaStreamTrack):
    """20 ms frames of a sine on an even clock."""

    kind = "audio"

    def __init__(self, hz):
        super().__init__()
        self.hz, self.sent, self.start = hz, 0, None

    async def recv(self):
        self.start = self.start or time.monotonic()
        await asyncio.sleep(max(0, self.start + self.sent * 0.02 - time.monotonic()))
        frame = tone_frame(self.hz, self.sent)
        self.sent += 1
        return frame


async def write_ssl(transport):
    """A record per datagram. aiortc sends 1500 bytes of them, wherever that cuts the last one: a flight with a longer certificate
    than its own is lost."""
    try:
        data = transport._ssl.bio_read(1 << 16)
    except SSL.Error:
        return
    while data:
        length = 13 + int.from_bytes(data[11:13], "big")
        await transport.transport._send(data[:length])
        data = data[length:]


class Client:
    def __init__(self, runner, hz=440, relay=None, trickle=False, videos=0, codec=None, key=None):
        self.runner, self.hz, self.relay, self.trickle, self.videos = runner, hz, relay, trickle, videos
        # The one codec to offer, in place of all that aiortc has, and a key of another kind than it makes.
        self.codec, self.key = codec, key
        self.path, self.pc_id, self.pc, self.channel = None, None, None, None
        self.config = aiortc.RTCConfiguration(iceServers=[])
        self.received = array.array("h")
        # Samples per second of what is heard: G.711 comes out at its own rate.
        self.rate, self.frames, self.messages = RATE, 0, []
        self.tasks = []

    async def start(self):
        status, reply = await self.runner.fetch("POST", "/start", {"transport": "webrtc"})
        assert status == 200, (status, reply)
        self.path = f"/sessions/{reply['sessionId']}/api/offer"

    async def connect(self, restart=False, limit_s=30):
        """A new peer connection; with `restart` in place of the one before, under the same bot."""
        if self.path is None:
            await self.start()
        old, self.pc = self.pc, aiortc.RTCPeerConnection(self.config)
        if self.key:
            # aiortc has no other way to bring a certificate.
            certificate = aiortc.RTCCertificate(self.key, generate_certificate(self.key))
            self.pc._RTCPeerConnection__certificates = [certificate]
        self.pc.addTrack(self.track())
        if self.codec:
            known = aiortc.RTCRtpSender.getCapabilities("audio").codecs
            wanted = [each for each in known if each.mimeType == f"audio/{self.codec}"]
            self.pc.getTransceivers()[0].setCodecPreferences(wanted)
        for _ in range(self.videos):
            self.pc.addTransceiver("video")
        self.channel = self.pc.createDataChannel("chat")
        self.channel.on("message", self.messages.append)
        self.pc.on("track", self.on_track)
        await self.offer(restart)
        await self.until(lambda: self.pc.connectionState == "connected" and self.channel.readyState == "open", "connected",
                         limit_s)
        self.tasks.append(asyncio.create_task(self.ping(self.channel)))
        if old:
            await old.close()

    def track(self):
        """A microphone."""
        return Tone(self.hz)

    async def offer(self, restart=False):
        """Sends an offer for the connection as it is, the first one or a renegotiation."""
        await self.pc.setLocalDescription(await self.pc.createOffer())
        sdp = self.pc.localDescription.sdp
        if self.relay or self.trickle:
            from relay import without_candidates
            bare = without_candidates(sdp)
        body = {"sdp": bare if self.relay or self.trickle else sdp, "type": "offer", "pc_id": self.pc_id, "restart_pc": restart}
        status, reply = await self.runner.fetch("POST", self.path, body)
        assert status == 200, (status, reply)
        self.pc_id = reply["pc_id"]
        answer = reply["sdp"]
        if self.relay:
            answer = await self.relay.answer(answer)
        await self.pc.setRemoteDescription(aiortc.RTCSessionDescription(answer, reply["type"]))
        if self.trickle:
            await self.send_candidates(sdp)

    async def send_candidates(self, sdp):
        lines = [line[2:] for line in sdp.splitlines() if line.startswith("a=candidate:")]
        # A hidden address and the end mark are what browsers send besides.
        lines += ["candidate:9 1 udp 2122194687 0a1b2c3d-0000-4000-8000-000000000000.local 50000 typ host", ""]
        body = {"pc_id": self.pc_id, "candidates": [
            {"candidate": line, "sdp_mid": "0", "sdp_mline_index": 0} for line in lines]}
        status, reply = await self.runner.fetch("PATCH", self.path, body)
        assert (status, reply) == (200, {"status": "success"}), (status, reply)

    def on_track(self, track):
        self.tasks.append(asyncio.create_task(self.listen(track)))

    async def listen(self, track):
        while True:
            try:
                frame = await track.recv()
            except aiortc.mediastreams.MediaStreamError:
                return
            self.frames, self.rate = self.frames + 1, frame.sample_rate
            self.received.extend(samples_of(frame))

    async def ping(self, channel):
        while channel.readyState == "open":
            channel.send(f"ping: {int(time.time() * 1000)}")
            await asyncio.sleep(1)

    def send(self, message):
        self.channel.send(json.dumps(message))

    def message(self, kind, **fields):
        """The first message of that type whose fields have these values."""
        for text in self.messages:
            found = json.loads(text)
            if found.get("type") == kind and all(found.get(k) == v for k, v in fields.items()):
                return found
        return None

    async def until(self, condition, what, limit_s=30):
        return await until(condition, what, limit_s)

    def share(self, samples):
        """The share of its own tone in what it has heard."""
        return tone_share(samples, self.hz, self.rate)

    async def listen_for(self, seconds):
        """What comes in the next seconds."""
        self.received = array.array("h")
        self.frames = 0
        await self.until(lambda: len(self.received) >= seconds * self.rate, f"{seconds} s of audio", seconds * 4 + 20)
        return self.received

    async def close(self):
        for task in self.tasks:
            task.cancel()
        if self.pc:
            await self.pc.close()
        if self.relay:
            self.relay.close()

