"""One telephone call: the provider's end of the socket, on the provider's clock. What it hears is decoded by Pipecat."""

import asyncio
import base64
import contextlib
import json
import time

import numpy
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from checks import until


class Chunk:
    """One piece of audio from the runner."""

    def __init__(self, at, samples, size):
        self.at, self.samples, self.size = at, samples, size


class Call:
    def __init__(self, provider, url, headers=None):
        self.provider, self.url, self.headers = provider, url, headers
        # Marks come with the number of samples before them.
        self.chunks, self.clears, self.marks = [], [], []
        self.voice = None
        # Of its own clock at the most, so far.
        self.sent, self.own_late_s = 0, 0.0
        self._to_say = numpy.zeros(0, "<i2")
        self._tasks = []
        self._unplayed = []
        self._plays_until = 0.0

    async def __aenter__(self):
        await self.provider.open()
        self.socket = await connect(self.url, additional_headers=self.headers, proxy=None)
        for message in self.provider.handshake():
            await self.send(message)
        self._media, self._clear = await self.provider.expected_media(), await self.provider.expected_clear()
        self._tasks = [asyncio.create_task(self._speak()), asyncio.create_task(self._listen())]
        return self

    async def __aexit__(self, *error):
        for task in [*self._tasks, *self._unplayed]:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.socket.close()
        for end in ends:
            if isinstance(end, AssertionError) and not any(error):
                raise end

    async def send(self, message):
        await self.socket.send(json.dumps(message))

    def say(self, samples):
        """Speaks that next; between what it is told to say the caller is silent."""
        self._to_say = numpy.concatenate([self._to_say, samples])

    async def _speak(self):
        """A frame at a time, silence included, for as long as the call lasts."""
        size = int(self.provider.rate * self.provider.frame_s)
        start, count = time.monotonic(), 0
        while True:
            frame, self._to_say = self._to_say[:size], self._to_say[size:]
            if self.voice and not len(frame):
                frame = self.voice(count * size, size)
            self.sent += len(frame)
            frame = numpy.pad(frame, (0, size - len(frame)))
            self.own_late_s = max(self.own_late_s, time.monotonic() - start - count * self.provider.frame_s)
            count += 1
            await self.send(self.provider.media(await self.provider.audio(frame), count))
            await asyncio.sleep(max(0, start + count * self.provider.frame_s - time.monotonic()))

    async def _listen(self):
        async for text in self.socket:
            assert isinstance(text, str), "a binary message"
            await self._take(json.loads(text), time.monotonic())

    async def _take(self, message, now):
        event = message.get("event")
        assert event in self.provider.events, f"the provider knows no {message}"
        if event == self.provider.media_event:
            payload = message["media"].pop("payload")
            assert message == self._media, f"not the message that Pipecat would send: {message}, {self._media}"
            size = len(base64.b64decode(payload, validate=True))
            message["media"]["payload"] = payload
            samples = numpy.frombuffer(await self.provider.decode(message), "<i2")
            assert len(samples) * self.provider.sample_bytes == size, "audio that Pipecat takes apart differently"
            self.chunks.append(Chunk(now, samples, size))
            self._plays_until = max(now, self._plays_until) + len(samples) / self.provider.rate
        elif event == self.provider.clear_event:
            assert message == self._clear, f"not the message that Pipecat would send: {message}, {self._clear}"
            self.clears.append(now)
            self._plays_until = now
            for mark in self._unplayed:
                mark.cancel()
        else:
            self.marks.append((message, len(self.received())))
            self._unplayed.append(asyncio.create_task(self._play_to(message)))

    async def _play_to(self, mark):
        """Gives a mark back once what came before it is played, or at once when that is thrown away."""
        try:
            await asyncio.sleep(max(0, self._plays_until - time.monotonic()))
        except asyncio.CancelledError:
            pass
        with contextlib.suppress(ConnectionClosed):
            await self.send(self.provider.played(mark))

    def received(self, first=0):
        """The samples of all chunks since the `first`."""
        return numpy.concatenate([numpy.zeros(0, "<i2"), *(chunk.samples for chunk in self.chunks[first:])])

    async def until(self, condition, what, limit_s=30):
        def met():
            for task in self._tasks:
                if task.done() and task.exception():
                    raise task.exception()
            return condition()

        return await until(met, f"{self.provider.name}: {what}", limit_s)

    async def listen_for(self, seconds):
        """What comes in the next seconds."""
        first = len(self.chunks)
        wanted = seconds * self.provider.rate
        await self.until(lambda: len(self.received(first)) >= wanted, f"{seconds} s of audio", seconds * 3 + 10)
        return self.received(first)

    async def pause(self, seconds, limit_s=30):
        """Waits until the runner has said something, and then nothing for so long."""
        await self.until(lambda: self.chunks and time.monotonic() - self.chunks[-1].at > seconds, "a pause", limit_s)

    async def hang_up(self, limit_s=20):
        """The caller hangs up; the code with which the runner closes."""
        self._tasks[0].cancel()
        await self.send(self.provider.stop())
        try:
            await asyncio.wait_for(self.socket.wait_closed(), limit_s)
        except TimeoutError:
            raise AssertionError(f"{self.provider.name}: the socket is open {limit_s} s after stop") from None
        return self.socket.close_code

    def illegal_sizes(self):
        """Chunks that this provider plays badly; one before a pause may be short."""
        pauses = [after.at - before.at > 2 * len(before.samples) / self.provider.rate + 0.1
                  for before, after in zip(self.chunks, self.chunks[1:])] + [True]
        return [chunk.size for chunk, last in zip(self.chunks, pauses) if not self.provider.is_legal(chunk.size, last)]
