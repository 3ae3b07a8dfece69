"""A peer on Pipecat's own transport, in a pipeline of its own, with the arguments and the pipe of library.py."""

import asyncio
import json
import sys

from pipecat.frames.frames import (
    EndFrame, InputAudioRawFrame, InputTransportMessageFrame, OutputAudioRawFrame, OutputTransportMessageUrgentFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.moq.transport import MOQParams, MOQTransport
from pipecat.workers.runner import WorkerRunner

from wire import Recording, commands, frames, tell

IN, OUT = 16_000, 24_000


class Messages(FrameProcessor):
    """Before the input, which pushes messages upstream."""

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, InputTransportMessageFrame):
            tell("record", record=frame.message)
        else:
            await self.push_frame(frame, direction)


class Audio(FrameProcessor):
    """Records audio and does not pass it on, because the transport would send it back."""

    def __init__(self, recording):
        super().__init__()
        self.recording = recording

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if direction == FrameDirection.DOWNSTREAM and isinstance(frame, InputAudioRawFrame):
            self.recording.take(frame.audio)
        else:
            await self.push_frame(frame, direction)


def transport(spec):
    trust = {"client_tls_fingerprints": [spec["hash"]]} if spec["hash"] else {"verify_ssl": False}
    made = MOQTransport(MOQParams(
        relay_url=spec["url"], response_path=spec["publish"], request_path=spec["consume"],
        transcript_track=spec["transcript"], audio_out_track="voice", connection_timeout=30,
        audio_in_enabled=True, audio_out_enabled=True, audio_out_end_silence_secs=0, **trust))
    for name, event in {
        "on_connected": "connected", "on_disconnected": "closed", "on_client_connected": "joined",
        "on_client_disconnected": "left", "on_track_subscribed": "catalog", "on_error": "refused",
    }.items():
        async def handle(_, *said, event=event):
            tell(event, why=[repr(each) for each in said])

        made.add_event_handler(name, handle)
    return made


async def speak(worker, hz):
    async for pcm, _ in frames(hz, OUT):
        await worker.queue_frame(OutputAudioRawFrame(pcm, OUT, 1))


async def main(spec):
    link, recording, started = transport(spec), Recording(IN), asyncio.Event()
    worker = PipelineWorker(
        Pipeline([Messages(), link.input(), Audio(recording), link.output()]),
        params=PipelineParams(audio_in_sample_rate=IN, audio_out_sample_rate=OUT),
        enable_rtvi=False, enable_turn_tracking=False, idle_timeout_secs=None)

    async def on_started(*_):
        started.set()

    worker.add_event_handler("on_pipeline_started", on_started)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await started.wait()
    tasks = [asyncio.create_task(speak(worker, spec["hz"]))]
    async for command in commands():
        if "send" in command:
            await worker.queue_frame(OutputTransportMessageUrgentFrame(command["send"]))
        elif "hear" in command:
            tasks.append(asyncio.create_task(recording.hear(command["hear"])))
        else:
            break
    for task in tasks:
        task.cancel()
    await worker.queue_frame(EndFrame())
    await running


asyncio.run(main(json.loads(sys.argv[1])))
