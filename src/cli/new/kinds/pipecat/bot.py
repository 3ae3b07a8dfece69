"""A voice bot for Pipecat. It plays back what it hears, without a service and without a key.

    edge-runner bot.py

Then open http://localhost:7860, press Connect and talk. The file runs once for each call.
"""

from pipecat.frames.frames import Frame, InputAudioRawFrame, OutputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.runner.types import RunnerArguments
from pipecat.runner.utils import create_transport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

# One entry for every kind of caller. Pipecat's own runner needs more keys, such as "twilio".
transport_params = {
    "webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True),
}


class PlayBack(FrameProcessor):
    """Where your bot goes: speech recognition, a language model, speech synthesis."""

    async def process_frame(self, frame: Frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            frame = OutputAudioRawFrame(frame.audio, frame.sample_rate, frame.num_channels)
        await self.push_frame(frame, direction)


async def bot(runner_args: RunnerArguments):
    transport = await create_transport(runner_args, transport_params)
    worker = PipelineWorker(
        Pipeline([transport.input(), PlayBack(), transport.output()]),
        params=PipelineParams(audio_in_sample_rate=16000, audio_out_sample_rate=16000),
        idle_timeout_secs=runner_args.pipeline_idle_timeout_secs,
    )
    runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(transport, client):
        await runner.cancel()

    await runner.add_workers(worker)
    await runner.run()


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
