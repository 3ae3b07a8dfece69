"""Callers of three kinds with one interface: a telephone of any provider, a page over WebRTC, a plain client on `/ws-client`.

The peers are those of the folders `pipecat` and `aiortc`. A caller says tones; what it heard is measured in played audio, so that
speech that was thrown away before its time does not count.
"""

import asyncio
import fractions
import importlib.util
import json
import pathlib
import sys
import time

import av
import numpy
from audio import loudest_hz, tone

PEERS = pathlib.Path(__file__).resolve().parents[1]
# Modules of the folder, which has the name of the package.
sys.path.append(str(PEERS / "pipecat"))


def module(folder):
    """The module `client` of that folder."""
    spec = importlib.util.spec_from_file_location(f"client_of_{folder}", PEERS / folder / "client.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


import call as telephone
import providers

plain, web = module("pipecat"), module("aiortc")


class Played:
    """What a caller played of the pieces that came, in order: those that a clear overtook are cut."""

    def __init__(self):
        # Time at which a piece begins to play, its samples.
        self.pieces, self.until = [], 0.0

    def add(self, at, samples, rate):
        self.rate = rate
        start = max(at, self.until)
        self.pieces.append((start, samples))
        self.until = start + len(samples) / rate

    def clear(self, at):
        kept = []
        for start, samples in self.pieces:
            left = round((at - start) * self.rate)
            if left > 0:
                kept.append((start, samples[:left]))
        self.pieces, self.until = kept, at

    def received(self, since):
        """What began to play after that time, in order."""
        return numpy.concatenate([numpy.zeros(0, "i2"), *(samples for at, samples in self.pieces if at >= since)])


def loud(samples, rate):
    """The windows of 20 ms with sound, joined."""
    window = rate // 50
    frames = samples[:len(samples) // window * window].reshape(-1, window)
    return frames[(frames.astype("f8") ** 2).mean(axis=1) > 1000**2].reshape(-1)


def in_tune_ms(caller, hz, since):
    """How long the caller heard that tone."""
    total = 0
    for at, samples in caller.played().pieces:
        sound = loud(samples, caller.rate) if at >= since else []
        if len(sound) and abs(loudest_hz(sound, caller.rate) - hz) < 60:
            total += len(sound)
    return total * 1000 // caller.rate


class Caller:
    """The common part. A kind gives `rate`, `played()`, `messages()` and `say(samples)`."""

    def received(self, since):
        """The sound of the bot since that time: its frequency and its length in ms."""
        rate, sound = self.rate, loud(self.played().received(since), self.rate)
        return loudest_hz(sound, rate), len(sound) * 1000 // rate

    def ask(self, hz, seconds=0.6):
        """Says a tone. Returns when."""
        self.say(tone(hz, self.said_rate, 0, round(seconds * self.said_rate)))
        return time.monotonic()

    async def hears(self, hz, since, ms, limit_s=30):
        """Waits until that much of a tone was heard."""
        found = ()
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    self.alive()
                    found = self.received(since)
                    if found[1] >= ms and abs(found[0] - hz) < 15:
                        return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{self.name} does not hear {ms} ms of {hz} Hz, but {found}; messages "
                                 f"{[each['type'] for each in self.messages()]}") from None

    async def quiet(self, seconds=0.5, limit_s=30):
        """Waits for the end of the bot's sound."""
        async with asyncio.timeout(limit_s):
            while self.received(time.monotonic() - seconds - 0.1)[1] > 20:
                await asyncio.sleep(0.1)

    def alive(self):
        pass

    def of_type(self, kind):
        return [each for each in self.messages() if each.get("type") == kind]

    async def told(self, kind, count=1, limit_s=30):
        """The message of that type with that number."""
        try:
            async with asyncio.timeout(limit_s):
                while len(self.of_type(kind)) < count:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{self.name}: no {kind}, but {[each['type'] for each in self.messages()]}") from None
        return self.of_type(kind)[count - 1]


class Phone(Caller):
    def __init__(self, runner, provider):
        self.name, self.rate, self.said_rate = provider.name, provider.rate, provider.rate
        self.call = telephone.Call(provider, runner.url.replace("http", "ws", 1) + "/ws")

    async def __aenter__(self):
        await self.call.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.call.__aexit__(*error)

    def say(self, samples):
        self.call.say(samples)

    def messages(self):
        return []

    def alive(self):
        for task in self.call._tasks:
            if task.done() and task.exception():
                raise task.exception()

    def played(self):
        return in_order([(chunk.at, chunk.samples) for chunk in self.call.chunks], self.call.clears, self.rate)

    def is_over(self):
        return self.call.socket.close_code is not None


def in_order(pieces, clears, rate):
    """Plays pieces and clears in the order of their times."""
    played = Played()
    for at, samples in sorted([*pieces, *((at, None) for at in clears)], key=lambda each: each[0]):
        played.clear(at) if samples is None else played.add(at, samples, rate)
    return played


class Plain(Caller):
    """Pipecat's client transport."""

    name, rate, said_rate = "plain client", plain.RATE, plain.RATE

    def __init__(self, runner):
        self.client = plain.Client(runner.url.replace("http", "ws", 1) + "/ws-client")

    async def __aenter__(self):
        await self.client.__aenter__()
        await self.client.ready()
        return self

    async def __aexit__(self, *error):
        await self.client.__aexit__(*error)

    def say(self, samples):
        self.client.say(samples)

    def messages(self):
        return list(self.client.receiver.messages)

    async def send(self, message):
        await self.client.send(message)

    def played(self):
        receiver = self.client.receiver
        return in_order([(chunk.at, chunk.samples) for chunk in receiver.chunks], receiver.interruptions, self.rate)

    def is_over(self):
        return self.client.gone.is_set()


class Microphone(web.Tone):
    """Says what it is given, and is silent between."""

    def __init__(self):
        super().__init__(0)
        self.to_say = numpy.zeros(0, "i2")

    async def recv(self):
        self.start = self.start or time.monotonic()
        await asyncio.sleep(max(0, self.start + self.sent * 0.02 - time.monotonic()))
        samples, self.to_say = self.to_say[:web.FRAME], self.to_say[web.FRAME:]
        frame = av.AudioFrame(format="s16", layout="mono", samples=web.FRAME)
        frame.planes[0].update(numpy.pad(samples, (0, web.FRAME - len(samples))).astype("<i2").tobytes())
        frame.sample_rate, frame.pts, frame.time_base = web.RATE, self.sent * web.FRAME, fractions.Fraction(1, web.RATE)
        self.sent += 1
        return frame


class PageClient(web.Client):
    """An aiortc client with a microphone, which notes when it heard what."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.microphone, self.pieces = Microphone(), []

    def track(self):
        return self.microphone

    async def listen(self, track):
        while True:
            try:
                frame = await track.recv()
            except web.aiortc.mediastreams.MediaStreamError:
                return
            channels = len(frame.layout.channels)
            samples = numpy.frombuffer(bytes(frame.planes[0])[: frame.samples * 2 * channels], "<i2")[::channels]
            self.rate = frame.sample_rate
            self.pieces.append((time.monotonic(), samples))


class Page(Caller):
    name, said_rate = "page", web.RATE

    def __init__(self, runner, **named):
        self.client = PageClient(runner, **named)

    @property
    def rate(self):
        return self.client.rate

    async def __aenter__(self):
        await self.client.connect()
        about = {"version": "2.1.0", "about": {"library": "check"}}
        self.client.send({"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": about})
        await self.told("bot-ready")
        return self

    async def __aexit__(self, *error):
        await self.client.close()

    def say(self, samples):
        self.client.microphone.to_say = numpy.concatenate([self.client.microphone.to_say, samples])

    def messages(self):
        return [each for each in map(parsed, self.client.messages) if each.get("label") == "rtvi-ai"]

    async def send(self, message):
        self.client.send(message)

    def played(self):
        return in_order(self.client.pieces, [], self.rate)

    def is_over(self):
        return self.client.pc.connectionState in ("closed", "failed") or self.client.channel.readyState == "closed"


def parsed(text):
    try:
        message = json.loads(text)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
