"""A light bot of `compare.py`, for Pipecat's own runner: greets with a tone, plays back what it hears, and blocks its loop for 2 s
when it is asked to."""

import array
import math
import time

from pipecat.frames.frames import InputAudioRawFrame, OutputAudioRawFrame, TTSAudioRawFrame, TTSStartedFrame, TTSStoppedFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.runner.utils import create_transport
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams
from pipecat.workers.runner import WorkerRunner

RATE, BLOCK_S = 24_000, 2
GREETING = array.array("h", (int(8000 * math.sin(2 * math.pi * 660 * n / RATE)) for n in range(RATE // 5))).tobytes()

transport_params = {
    "webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True),
    "websocket": lambda: FastAPIWebsocketParams(
        audio_in_enabled=True, audio_out_enabled=True, add_wav_header=False, serializer=ProtobufFrameSerializer()),
}


class Echo(FrameProcessor):
    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            if any(frame.audio):
                await self.push_frame(OutputAudioRawFrame(frame.audio, frame.sample_rate, frame.num_channels))
            return
        await self.push_frame(frame, direction)


async def bot(runner_args):
    transport = await create_transport(runner_args, transport_params)
    worker = PipelineWorker(
        Pipeline([transport.input(), Echo(), transport.output()]),
        params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE))
    runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)

    @worker.rtvi.event_handler("on_client_message")
    async def on_client_message(rtvi, message):
        time.sleep(BLOCK_S)

    @transport.event_handler("on_client_connected")
    async def on_client_connected(transport, client):
        await worker.queue_frames([TTSStartedFrame(), TTSAudioRawFrame(GREETING, RATE, 1), TTSStoppedFrame()])

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(transport, client):
        await runner.cancel()

    await runner.add_workers(worker)
    await runner.run()


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
