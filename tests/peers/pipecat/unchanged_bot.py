"""A bot as Pipecat's examples are built, for Pipecat's own runner: nothing in it knows of another one. It greets with a tone,
plays back what it hears, and does what keys ask for."""

import argparse
import array
import asyncio
import math

from loguru import logger
from pipecat.frames.frames import (
    BotStartedSpeakingFrame, BotStoppedSpeakingFrame, EndWorkerFrame, Frame, InputAudioRawFrame, InputDTMFFrame,
    OutputAudioRawFrame, TTSAudioRawFrame, TTSStartedFrame, TTSStoppedFrame, UserImageRequestFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.runner.types import RunnerArguments, SmallWebRTCRunnerArguments
from pipecat.runner.utils import create_transport, parse_telephony_websocket
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.daily.transport import DailyOutputTransportMessageFrame, DailyParams
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.workers.runner import WorkerRunner

RATE = 24_000

transport_params = {
    "daily": lambda: DailyParams(audio_in_enabled=True, audio_out_enabled=True),
    "twilio": lambda: FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True),
    "webrtc": lambda: TransportParams(audio_in_enabled=True, audio_out_enabled=True),
}


def speech(seconds):
    tone = (int(8000 * math.sin(2 * math.pi * 660 * n / RATE)) for n in range(int(seconds * RATE)))
    return [TTSStartedFrame(), TTSAudioRawFrame(array.array("h", tone).tobytes(), RATE, 1), TTSStoppedFrame()]


class Echo(FrameProcessor):
    async def process_frame(self, frame: Frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        assert not isinstance(frame, DailyOutputTransportMessageFrame), "no room of Daily"
        if isinstance(frame, InputAudioRawFrame):
            if max(array.array("h", frame.audio), default=0) > 1000:
                await self.push_frame(OutputAudioRawFrame(frame.audio, frame.sample_rate, frame.num_channels))
            return
        if isinstance(frame, InputDTMFFrame):
            logger.info(f"key {frame.button.value}")
            await self.act(frame.button.value)
        elif isinstance(frame, (BotStartedSpeakingFrame, BotStoppedSpeakingFrame)):
            logger.info(type(frame).__name__)
        await self.push_frame(frame, direction)

    async def act(self, key):
        if key == "6":
            async def answered(result):
                logger.info(f"picture: {result}")

            await self.push_frame(UserImageRequestFrame("user", result_callback=answered), FrameDirection.UPSTREAM)
        elif key == "7":
            for frame in speech(20):
                await self.push_frame(frame)
        elif key == "8":
            await self.broadcast_interruption()
        elif key == "9":
            await self.push_frame(EndWorkerFrame(), FrameDirection.UPSTREAM)


async def transport_of(runner_args, cli_args):
    if cli_args.video:
        return SmallWebRTCTransport(runner_args.webrtc_connection, TransportParams(video_out_enabled=True))
    if not cli_args.by_hand:
        return await create_transport(runner_args, transport_params)
    if isinstance(runner_args, SmallWebRTCRunnerArguments):
        return SmallWebRTCTransport(webrtc_connection=runner_args.webrtc_connection, params=transport_params["webrtc"]())
    kind, call = await parse_telephony_websocket(runner_args.websocket)
    logger.info(f"a call of {kind} with {len(call['call_id'])} characters")
    params = transport_params["twilio"]()
    params.serializer = TwilioFrameSerializer(stream_sid=call["stream_id"], call_sid=call["call_id"], account_sid="", auth_token="")
    return FastAPIWebsocketTransport(websocket=runner_args.websocket, params=params)


async def run_bot(transport: BaseTransport, runner_args: RunnerArguments):
    worker = PipelineWorker(
        Pipeline([transport.input(), Echo(), transport.output()]),
        params=PipelineParams(audio_in_sample_rate=8000, audio_out_sample_rate=RATE),
        idle_timeout_secs=runner_args.pipeline_idle_timeout_secs,
    )

    @transport.event_handler("on_client_connected")
    async def on_client_connected(transport, client):
        logger.info(f"hello, {runner_args.cli_args.name}")
        await worker.queue_frames(speech(0.5))

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(transport, client):
        logger.info("the caller left")
        await runner.cancel()
        # As one that saves the call.
        for _ in range(10_000):
            await asyncio.sleep(0)
        logger.info("the call is saved")

    runner = WorkerRunner(handle_sigint=runner_args.handle_sigint)
    await runner.add_workers(worker)
    await runner.run()
    logger.info("the bot returns")


async def read_upload(runner_args):
    """Reads the file that the body names, as the service of a model does with a file of `send-file`."""
    url = runner_args.body.get("file") if isinstance(runner_args.body, dict) else None
    if url:
        from pipecat.utils.file_resolver import FileResolver

        resolver = FileResolver(file_storage=runner_args.file_storage)
        logger.info(f"read {len(await resolver.fetch(url))} bytes")


async def bot(runner_args: RunnerArguments):
    await read_upload(runner_args)
    await run_bot(await transport_of(runner_args, runner_args.cli_args), runner_args)


if __name__ == "__main__":
    from pipecat.runner.run import main

    parser = argparse.ArgumentParser()
    parser.add_argument("--name")
    parser.add_argument("--video", action="store_true")
    parser.add_argument("--by-hand", action="store_true")
    main(parser)
