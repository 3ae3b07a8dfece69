"""A Pipecat pipeline behind the runner: its WebSocket client transport speaks to `media_url`.

    pip install -r requirements-pipecat.txt
    edge-runner -- python3 pipecat_bot.py

The pipeline plays back what it hears; put speech recognition, a language model and a synthesiser in the place of `Echo`.
RTVI comes with the pipeline: it answers the client's `client-ready` and tells who speaks.
"""

import asyncio
import json
import os
import sys

from loguru import logger
from pipecat.frames.frames import Frame, InputAudioRawFrame, OutputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.client import WebsocketClientParams, WebsocketClientTransport
from pipecat.workers.runner import WorkerRunner


class Echo(FrameProcessor):
    """Turns what the caller said into what the bot says."""

    async def process_frame(self, frame: Frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            await self.push_frame(
                OutputAudioRawFrame(audio=frame.audio, sample_rate=frame.sample_rate, num_channels=frame.num_channels)
            )
        else:
            await self.push_frame(frame, direction)


class Media(WebsocketClientTransport):
    """The runner's media. Pipecat connects before its pipeline runs, and loses the connection when speech comes that early:
    it waits at the door until then, and the runner keeps the last second of it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.running = asyncio.Event()

    async def _on_message(self, websocket, message):
        await self.running.wait()
        await super()._on_message(websocket, message)


async def main():
    arguments = json.loads(os.environ["RUNNER_ARGUMENTS"])
    transport = Media(
        uri=arguments["media_url"],
        params=WebsocketClientParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            add_wav_header=False,
            serializer=ProtobufFrameSerializer(),
        ),
    )
    worker = PipelineWorker(
        Pipeline([transport.input(), Echo(), transport.output()]),
        # What the runner sends is at 16 kHz; what the pipeline says may have any rate.
        params=PipelineParams(audio_in_sample_rate=16000, audio_out_sample_rate=24000),
        idle_timeout_secs=arguments["idle_timeout"],
    )

    @worker.event_handler("on_pipeline_started")
    async def on_pipeline_started(worker, frame):
        transport.running.set()

    @transport.event_handler("on_disconnected")
    async def on_disconnected(transport, websocket):
        await worker.cancel()

    # SIGTERM is how the runner ends a bot that runs as a process of its own, whatever `handle_sigterm` says of others.
    runner = WorkerRunner(handle_sigint=False, handle_sigterm=True)
    await runner.add_workers(worker)
    await runner.run()


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="INFO", format="{level} {name}: {message}")
    asyncio.run(main())
