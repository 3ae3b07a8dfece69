"""A scripted caller on `/ws-client`: waits for the greeting, says a sentence, waits for the answer, and hangs up."""

import array
import asyncio
import contextlib
import json
import time

from pipecat.frames.protobufs import frames_pb2
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

RATE, FRAME_S = 24_000, 0.04
LOUD = 500
PAUSE_S = 0.7
READY = {"label": "rtvi-ai", "type": "client-ready", "id": "ready", "data": {"version": "2.1.0", "about": {"library": "check"}}}


class Caller:
    def __init__(self, url, sentence):
        self.url, self.sentence = url, sentence
        self.messages = []
        self.heard_at, self.frames = None, 0
        self._to_say = b""

    async def __aenter__(self):
        self.socket = await connect(self.url, proxy=None, max_size=None)
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._speak())]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(ConnectionClosed):
            await self.socket.close()

    @property
    def is_over(self):
        return self._tasks[0].done()

    async def _listen(self):
        async for data in self.socket:
            frame = frames_pb2.Frame.FromString(data)
            kind = frame.WhichOneof("frame")
            if kind == "message":
                self.messages.append(json.loads(frame.message.data))
            elif kind == "audio" and max(array.array("h", frame.audio.audio), default=0) > LOUD:
                self.heard_at, self.frames = time.monotonic(), self.frames + 1

    async def _speak(self):
        await self.send(READY)
        size = int(RATE * FRAME_S) * 2
        start, count = time.monotonic(), 0
        while True:
            pcm, self._to_say = self._to_say[:size], self._to_say[size:]
            frame = frames_pb2.Frame()
            frame.audio.audio, frame.audio.sample_rate, frame.audio.num_channels = pcm.ljust(size, b"\0"), RATE, 1
            await self.socket.send(frame.SerializeToString())
            count += 1
            await asyncio.sleep(max(0, start + count * FRAME_S - time.monotonic()))

    async def send(self, message):
        frame = frames_pb2.Frame()
        frame.message.data = json.dumps(message)
        await self.socket.send(frame.SerializeToString())

    def say(self):
        self._to_say += self.sentence

    async def hears(self, limit_s):
        """Whether the bot says something that it has not said before."""
        before, end = self.frames, time.monotonic() + limit_s
        while self.frames == before and time.monotonic() < end and not self.is_over:
            await asyncio.sleep(0.05)
        return self.frames > before

    def was_understood(self):
        return any(message.get("type") == "user-transcription" for message in self.messages)

    async def pause(self, limit_s):
        end = time.monotonic() + limit_s
        while time.monotonic() - self.heard_at < PAUSE_S and time.monotonic() < end:
            await asyncio.sleep(0.05)

    async def until(self, condition, limit_s):
        end = time.monotonic() + limit_s
        while not (met := condition()) and time.monotonic() < end and not self.is_over:
            await asyncio.sleep(0.05)
        return met
