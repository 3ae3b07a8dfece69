"""A Pipecat pipeline as a bot: its WebSocket client transport connects to `media_url`.

    pip install -r requirements-pipecat.txt
    edge-runner -- python3 pipecat_bot.py

The pipeline plays back what it hears. Replace `Echo` with speech recognition, a language model and
speech synthesis. The pipeline includes RTVI: it answers `client-ready` and reports who speaks.
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
    """Turns audio of the caller into audio of the bot."""

    async def process_frame(self, frame: Frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            await self.push_frame(
                OutputAudioRawFrame(audio=frame.audio, sample_rate=frame.sample_rate, num_channels=frame.num_channels)
            )
        else:
            await self.push_frame(frame, direction)


class Media(WebsocketClientTransport):
    """The runner's media. Pipecat connects before its pipeline runs, and loses the connection if
    audio arrives that early. Reading therefore starts with the pipeline; the runner queues the last
    10 s of the caller's audio until then."""

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
        # The runner sends 16 kHz and accepts any rate from 8 to 48 kHz.
        params=PipelineParams(audio_in_sample_rate=16000, audio_out_sample_rate=24000),
        idle_timeout_secs=arguments["idle_timeout"],
    )

    @worker.event_handler("on_pipeline_started")
    async def on_pipeline_started(worker, frame):
        transport.running.set()

    @transport.event_handler("on_disconnected")
    async def on_disconnected(transport, websocket):
        await worker.cancel()

    # The runner ends a bot that is a program with SIGTERM.
    runner = WorkerRunner(handle_sigint=False, handle_sigterm=True)
    await runner.add_workers(worker)
    await runner.run()


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="INFO", format="{level} {name}: {message}")
    asyncio.run(main())
