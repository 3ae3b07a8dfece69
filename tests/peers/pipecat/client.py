"""Pipecat's own WebSocket client transport, in a pipeline of its own, as a plain client of the runner."""

import asyncio
import time

import numpy
from pipecat.frames.frames import (
    EndFrame, InputAudioRawFrame, InputTransportMessageFrame, InterruptionFrame, OutputAudioRawFrame,
    OutputTransportMessageUrgentFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.websocket.client import WebsocketClientParams, WebsocketClientTransport
from pipecat.workers.runner import WorkerRunner

from checks import until

# The default rates of Pipecat.
RATE = 24_000
FRAME_S = 0.04


class Chunk:
    """A chunk of audio from the runner."""

    def __init__(self, at, frame):
        self.at, self.rate, self.channels = at, frame.sample_rate, frame.num_channels
        self.samples = numpy.frombuffer(frame.audio, "<i2")


class Receiver(FrameProcessor):
    """Records received frames and does not pass them on, because the transport would send them back."""

    def __init__(self):
        super().__init__()
        self.chunks, self.messages, self.interruptions = [], [], []

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if direction == FrameDirection.DOWNSTREAM and isinstance(frame, InputAudioRawFrame):
            self.chunks.append(Chunk(time.monotonic(), frame))
            return
        if direction == FrameDirection.DOWNSTREAM and isinstance(frame, InputTransportMessageFrame):
            self.messages.append(frame.message)
            return
        if isinstance(frame, InterruptionFrame):
            self.interruptions.append(time.monotonic())
        await self.push_frame(frame, direction)


class Transport(WebsocketClientTransport):
    """Delays audio until the pipeline runs: Pipecat 1.14 connects earlier, and earlier audio ends its reading."""

    def __init__(self, *args):
        super().__init__(*args)
        self.started = asyncio.Event()

    async def _on_message(self, websocket, message):
        await self.started.wait()
        await super()._on_message(websocket, message)


class Client:
    def __init__(self, url, headers=None):
        self.transport = Transport(url, WebsocketClientParams(
            audio_in_enabled=True, audio_out_enabled=True, audio_out_end_silence_secs=0,
            # The bytes of a WAV header would be played as sound.
            add_wav_header=False, additional_headers=headers))
        self.gone = asyncio.Event()
        self.transport.add_event_handler("on_disconnected", self._on_disconnected)
        self.receiver = Receiver()
        self.voice = None
        # Of its own clock at the most, so far.
        self.sent, self.own_late_s = 0, 0.0
        self._to_say = numpy.zeros(0, "<i2")
        self._tasks = []

    async def _on_disconnected(self, *_):
        self.gone.set()

    async def __aenter__(self):
        pipeline = Pipeline([self.transport.input(), self.receiver, self.transport.output()])
        self.worker = PipelineWorker(
            pipeline, params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE),
            enable_rtvi=False, enable_turn_tracking=False, idle_timeout_secs=None)
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)

        async def on_started(*_):
            self.transport.started.set()

        self.worker.add_event_handler("on_pipeline_started", on_started)
        self._run = asyncio.create_task(runner.run())
        await asyncio.wait_for(self.transport.started.wait(), 15)
        self._tasks = [asyncio.create_task(self._speak())]
        return self

    async def __aexit__(self, *error):
        await self.leave()

    async def leave(self):
        """Ends the pipeline, which closes the socket."""
        for task in self._tasks:
            task.cancel()
        if not self._run.done():
            await self.worker.queue_frame(EndFrame())
            await asyncio.wait_for(self._run, 10)

    def say(self, samples):
        """Queues speech; the caller is silent in between."""
        self._to_say = numpy.concatenate([self._to_say, samples])

    async def _speak(self):
        size = int(RATE * FRAME_S)
        start, count = time.monotonic(), 0
        while True:
            frame, self._to_say = self._to_say[:size], self._to_say[size:]
            if self.voice and not len(frame):
                frame = self.voice(count * size, size)
            self.sent += len(frame)
            frame = numpy.pad(frame, (0, size - len(frame)))
            self.own_late_s = max(self.own_late_s, time.monotonic() - start - count * FRAME_S)
            count += 1
            await self.worker.queue_frame(OutputAudioRawFrame(frame.tobytes(), RATE, 1))
            await asyncio.sleep(max(0, start + count * FRAME_S - time.monotonic()))

    async def send(self, message):
        await self.worker.queue_frame(OutputTransportMessageUrgentFrame(message))

    async def ready(self, id="d2d923ea", limit_s=30):
        """Sends client-ready. Returns the data of bot-ready."""
        about = {"library": "pipecat check"}
        await self.send({"label": "rtvi-ai", "type": "client-ready", "id": id, "data": {"version": "2.1.0", "about": about}})
        return (await self.until(lambda: self.message("bot-ready", id=id), "bot-ready", limit_s))["data"]

    def message(self, kind, **fields):
        """Returns the first message of that type whose fields have these values."""
        for found in self.receiver.messages:
            if found.get("type") == kind and all(found.get(k) == v for k, v in fields.items()):
                return found
        return None

    def received(self, first=0):
        return numpy.concatenate([numpy.zeros(0, "<i2"), *(chunk.samples for chunk in self.receiver.chunks[first:])])

    async def until(self, condition, what, limit_s=30):
        return await until(condition, what, limit_s)

    async def listen_for(self, seconds):
        """Returns the audio of the next seconds."""
        first = len(self.receiver.chunks)
        await self.until(lambda: len(self.received(first)) >= seconds * RATE, f"{seconds} s of audio", seconds * 3 + 10)
        return self.received(first)

    async def pause(self, seconds, limit_s=30):
        """Waits until the runner has sent speech, and then a pause of this length."""
        chunks = self.receiver.chunks
        await self.until(lambda: chunks and time.monotonic() - chunks[-1].at > seconds, "a pause", limit_s)
