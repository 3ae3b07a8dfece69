"""The transport of an evaluation: `pipecat eval` connects on `/ws`, and both ways carry RTVI messages
as texts. Pipecat's serializer makes frames of them; the bot's audio goes with them if it is asked for.
"""

import asyncio
import time

from pipecat.evals.serializer import EvalConnectionFlags, EvalSerializer
from pipecat.evals.transport import EvalTransportParams
from pipecat.frames.frames import (
    InputAudioRawFrame,
    InputTransportMessageFrame,
    LLMConfigureOutputFrame,
    OutputAudioRawFrame,
    OutputImageRawFrame,
)
from pipecat.processors.frame_processor import FrameDirection

from . import Refused
from .transport import EdgeInput, EdgeOutput, FastAPIWebsocketTransport


class EvalInput(EdgeInput):
    async def setup(self, setup):
        await super().setup(setup)
        await self._params.serializer.setup(setup)

    async def answer_image(self, frame):
        """Answers a request for a picture with the one that the harness has sent."""
        serializer = self._params.serializer
        image = await serializer.user_image_frame(frame) if isinstance(serializer, EvalSerializer) else None
        if image is not None:
            await self.push_frame(image)
        elif frame.result_callback:
            await frame.result_callback({"error": "No user image is registered."})

    async def take(self, text):
        frame = await self._params.serializer.deserialize(text)
        if isinstance(frame, InputAudioRawFrame):
            await self.push_audio_frame(frame)
        elif isinstance(frame, InputTransportMessageFrame):
            await self.broadcast_frame(InputTransportMessageFrame, message=frame.message)
        elif frame:
            await self.push_frame(frame)


class EvalOutput(EdgeOutput):
    async def process_frame(self, frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        if isinstance(frame, OutputImageRawFrame):
            await self._write(frame)

    async def write_transport_frame(self, frame):
        """Nothing waits for the end of a turn: the harness plays nothing."""

    async def send_message(self, frame):
        await self._write(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        if not self._transport.is_connected:
            return False
        await self._write(frame)
        seconds = len(frame.audio) / (2 * frame.num_channels * frame.sample_rate)
        await asyncio.sleep(self._lead.add(seconds, time.monotonic()))
        return True

    async def _write(self, frame):
        text = await self._params.serializer.serialize(frame)
        if text:
            await self._transport.send_text(text)


class EvalFastAPIWebsocketTransport(FastAPIWebsocketTransport):
    """In place of Pipecat's class of this name."""

    INPUT, OUTPUT, CARRIES_VIDEO = EvalInput, EvalOutput, True

    def __init__(self, websocket, params, flags, input_name=None, output_name=None):
        super().__init__(websocket, params, input_name, output_name)
        self._flags = flags
        if isinstance(params.serializer, EvalSerializer):
            params.serializer.set_capture_audio(flags.capture_bot_audio)
            params.serializer.set_capture_images(flags.capture_bot_images)

    async def prepare(self, end):
        await end.push_frame(LLMConfigureOutputFrame(skip_tts=self._flags.skip_tts))

    async def interrupt(self):
        """The runner holds no speech."""

    async def _handle_message(self, text):
        await self.input().take(text)

    async def send_text(self, text):
        if self.is_connected:
            try:
                await self._media.send_text(text)
            except ValueError as error:
                self.report_unsent(error)


def create(websocket, transport_params, flags):
    """Returns the transport of an evaluation with these flags."""
    if "eval" not in transport_params:
        raise Refused("The bot has no transport parameters for `eval`: add the key to those given to create_transport.")
    params = transport_params["eval"]()
    if not isinstance(params, EvalTransportParams):
        raise Refused("The transport parameters for `eval` are no EvalTransportParams of pipecat.evals.transport.")
    if params.serializer is None:
        params.serializer = EvalSerializer()
    return EvalFastAPIWebsocketTransport(websocket, params, EvalConnectionFlags.model_validate(flags))
