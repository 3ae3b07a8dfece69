"""Calls of each kind through the balancer: WebRTC by aiortc, the four telephony providers, `/ws-client`.

Each caller sends an even tone and expects it back, without a gap, until it leaves by itself. Anything else is a refusal (the
call did not begin) or a loss (it ended, or fell silent).
"""

import asyncio
import base64
import fractions
import json
import math
import time

import aiortc
import av
import numpy
from pipecat.frames.protobufs import frames_pb2
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

import providers
from client import Client
from reference import judge

# A whole number of periods per frame, at every rate: each frame has the same samples, which costs no time to make.
HZ = 400
# The longest silence of an echo: four retransmissions of TCP, which double from 0.2 s, take 3 s, and those of ICE are as slow.
# It is counted in the caller's own steps, so a caller that stood still itself has heard no silence meanwhile.
GAP_S, STEP_S = 5.0, 0.1
# A tone that came whole for a tenth of a second somewhere is so much above the same measure of noise.
ABOVE_NOISE = 0.2


def wave(rate, count):
    return (8000 * numpy.sin(2 * math.pi * HZ * numpy.arange(count) / rate)).astype("<i2")


def assert_tone(kind, received, rate):
    """The tone is what was heard, wherever it came whole for a tenth of a second: more of it than noise has."""
    noise = best_share(numpy.random.default_rng(1).normal(0, 5000, len(received)), rate)
    judge(f"{kind}: share of the tone", best_share(received, rate), noise, -ABOVE_NOISE)


def best_share(received, rate):
    window = rate // 10
    received = numpy.asarray(received, float)
    parts = received[: len(received) // window * window].reshape(-1, window)
    powers = (parts ** 2).mean(axis=1)
    found = numpy.abs(parts @ numpy.exp(-2j * math.pi * HZ * numpy.arange(window) / rate)) ** 2 * 2 / window ** 2
    loud = powers > 100
    return float((found[loud] / powers[loud]).max(initial=0))


class Silence:
    """Counts the steps without audio, in seconds."""

    def __init__(self, received):
        self.received, self.before, self.steps = received, received(), 0

    async def step(self):
        """Returns whether the silence has been too long."""
        await asyncio.sleep(STEP_S)
        if (now := self.received()) != self.before:
            self.before, self.steps = now, 0
        else:
            self.steps += 1
        return self.steps * STEP_S > GAP_S


class Refused(Exception):
    """The call did not begin."""


class Lost(Exception):
    """The call ended, or its echo stopped."""


class Tone(aiortc.MediaStreamTrack):
    """20 ms frames of the wave on an even clock."""

    kind = "audio"
    samples = wave(48_000, 960).tobytes()

    def __init__(self):
        super().__init__()
        self.sent, self.start = 0, None

    async def recv(self):
        self.start = self.start or time.monotonic()
        await asyncio.sleep(max(0, self.start + self.sent * 0.02 - time.monotonic()))
        frame = av.AudioFrame(format="s16", layout="mono", samples=960)
        frame.planes[0].update(self.samples)
        frame.sample_rate, frame.pts, frame.time_base = 48_000, 960 * self.sent, fractions.Fraction(1, 48_000)
        self.sent += 1
        return frame


class WebRtc(Client):
    """aiortc. It trickles its candidates, and renegotiates in the middle of the call: each is a request of its own."""

    kind = "webrtc"

    def __init__(self, cluster):
        super().__init__(cluster, hz=HZ, trickle=True)
        self.renegotiated = 0

    def track(self):
        return Tone()

    async def open(self):
        try:
            await self.connect()
        except (AssertionError, OSError) as error:
            raise Refused(f"{self.kind}: {error}") from error

    @property
    def replica(self):
        return self.pc_id.split(".")[0]

    async def hold(self, seconds, renegotiates=True):
        end = time.monotonic() + seconds
        at = time.monotonic() + seconds / 2 if renegotiates else math.inf
        silence = Silence(lambda: self.frames)
        while time.monotonic() < end:
            is_silent = await silence.step()
            if time.monotonic() > at:
                at = math.inf
                was = self.pc_id
                await self.offer()
                assert self.pc_id == was, "another connection answered"
                self.renegotiated += 1
            # The last seconds are enough.
            del self.received[: -3 * self.rate]
            if is_silent or self.pc.connectionState != "connected":
                raise Lost(f"{self.kind} at {self.replica}: {self.pc.connectionState}, no audio for {GAP_S} s")
        assert_tone(self.kind, self.received, self.rate)


class Socket:
    """A call over a WebSocket, with the token of `/start`."""

    def __init__(self, cluster):
        self.cluster, self.socket, self.tasks = cluster, None, []
        self.received, self.messages = [], 0

    async def open(self):
        try:
            status, reply = await self.cluster.fetch("POST", "/start", {"transport": self.transport})
            if status != 200:
                raise Refused(f"{self.kind}: /start answered {status} {reply}")
            url = f"{reply['wsUrl']}?token={reply['token']}"
            self.socket = await connect(url, proxy=None, open_timeout=20)
        except (OSError, WebSocketException) as error:
            raise Refused(f"{self.kind}: {error!r}") from error
        await self.begin()
        self.tasks = [asyncio.create_task(self.speak()), asyncio.create_task(self.listen())]

    async def speak(self):
        start, count = time.monotonic(), 0
        while True:
            count += 1
            await self.socket.send(self.frame(count))
            await asyncio.sleep(max(0, start + count * self.frame_s - time.monotonic()))

    async def listen(self):
        async for message in self.socket:
            samples = await self.samples(message)
            if samples is not None and len(samples):
                self.received.append(samples)
                self.messages += 1
                del self.received[:-200]

    async def hold(self, seconds, renegotiates=False):
        end, silence = time.monotonic() + seconds, Silence(lambda: self.messages)
        while time.monotonic() < end:
            if await silence.step() or any(task.done() for task in self.tasks):
                raise Lost(f"{self.kind}: closed with {self.socket.close_code}, no audio for {silence.steps * STEP_S:.1f} s")
        assert_tone(self.kind, numpy.concatenate(self.received), self.rate)

    async def close(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.socket:
            await self.socket.close()


class Plain(Socket):
    """A client of `/ws-client`, with Pipecat's frames."""

    kind, transport, rate, frame_s = "websocket", "websocket", 16_000, 0.02

    async def begin(self):
        audio = frames_pb2.AudioRawFrame(audio=wave(self.rate, 320).tobytes(), sample_rate=self.rate, num_channels=1)
        self.sent = frames_pb2.Frame(audio=audio).SerializeToString()

    def frame(self, _count):
        return self.sent

    async def samples(self, message):
        frame = frames_pb2.Frame.FromString(message)
        if frame.WhichOneof("frame") != "audio":
            return None
        self.rate = frame.audio.sample_rate
        return numpy.frombuffer(frame.audio.audio, "<i2")


class Telephone(Socket):
    """The provider's end of a call; Pipecat's serializer makes its audio and reads that of the runner."""

    def __init__(self, cluster, kind, number):
        super().__init__(cluster)
        self.provider = kind(number)
        self.kind, self.transport = self.provider.name, self.provider.transport
        self.rate, self.frame_s = self.provider.rate, self.provider.frame_s

    async def begin(self):
        await self.provider.open()
        count = round(self.rate * self.frame_s)
        self.payload = await self.provider.audio(wave(self.rate, count))
        for message in self.provider.handshake():
            await self.socket.send(json.dumps(message))

    def frame(self, count):
        return json.dumps(self.provider.media(self.payload, count))

    async def samples(self, message):
        message = json.loads(message)
        if message.get("event") != self.provider.media_event:
            return None
        assert base64.b64decode(message["media"]["payload"])
        return numpy.frombuffer(await self.provider.decode(message), "<i2")

    async def close(self):
        if self.socket:
            try:
                await self.socket.send(json.dumps(self.provider.stop()))
            except WebSocketException:
                pass
        await super().close()


def caller(cluster, number):
    """The kinds in turn: of six calls two are WebRTC, two `/ws-client`, and two of a provider."""
    match number % 3:
        case 0:
            return WebRtc(cluster)
        case 1:
            return Plain(cluster)
    return Telephone(cluster, providers.EACH[number // 3 % len(providers.EACH)], number + 1)
