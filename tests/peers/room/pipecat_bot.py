"""A bot for Pipecat's own runner that enters rooms by itself, with LiveKit's package: it plays back what it hears."""

from loguru import logger
from pipecat.frames.frames import InputAudioRawFrame, OutputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.runner.utils import create_transport
from pipecat.transports.livekit.transport import LiveKitParams
from pipecat.workers.runner import WorkerRunner

transport_params = {"livekit": lambda: LiveKitParams(audio_in_enabled=True, audio_out_enabled=True)}


class Echo(FrameProcessor):
    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            await self.push_frame(OutputAudioRawFrame(frame.audio, frame.sample_rate, frame.num_channels))
            return
        await self.push_frame(frame, direction)


async def bot(runner_args):
    transport = await create_transport(runner_args, transport_params)
    worker = PipelineWorker(Pipeline([transport.input(), Echo(), transport.output()]))
    runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)

    @transport.event_handler("on_first_participant_joined")
    async def on_first_participant_joined(transport, participant):
        logger.info("a participant is there")

    @transport.event_handler("on_participant_left")
    async def on_participant_left(transport, participant, reason):
        logger.info("the participant left")
        await runner.cancel()

    await runner.add_workers(worker)
    await runner.run()
    logger.info("the bot returns")


if __name__ == "__main__":
    from pipecat.runner.run import main

    main()
