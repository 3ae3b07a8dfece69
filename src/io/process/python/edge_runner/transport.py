"""A Pipecat transport whose media is the runner's.

Speech of the caller, messages and keys become frames; speech, messages and interruptions of the
pipeline go to the runner, which has the jitter buffer, the codecs and the provider. Pipecat measures
playback by the time that a write takes, so writes are paced with a small lead, and the end of a turn
waits for a mark. The names of the classes for callers over WebRTC and WebSockets are Pipecat's,
because bots and Pipecat's helpers test for them.
"""

import asyncio
import itertools
import json
import sys
import time
from dataclasses import dataclass

from loguru import logger
from pipecat.audio.dtmf.types import KeypadEntry
from pipecat.frames.frames import (
    CancelFrame,
    CancelWorkerFrame,
    ClientConnectedFrame,
    ControlFrame,
    EndFrame,
    InputAudioRawFrame,
    InputDTMFFrame,
    InputTransportMessageFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputDTMFUrgentFrame,
    StartFrame,
    TTSStoppedFrame,
    UserImageRequestFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import BaseTransport, TransportParams

from . import Refused
from .media import RATES_HZ, Media
from .pacing import Lead, to_stereo
from .session import WebRtcCaller, WebSocketCaller

LEAD_S = 0.12
"""Speech ahead of the caller: enough for a busy event loop, little to lose at an interruption."""
PLAYED_S = LEAD_S + 0.5
"""How long the end of a turn waits for its mark."""
RATE_HZ = 16_000
"""The caller's rate in a pipeline without input."""
KEYPAD = {key.value for key in KeypadEntry}
"""The keys of Pipecat. A to D, which few telephones have, are messages."""
KEYS_S = 15
"""How long keys wait for the answer of the provider, which has 10 s."""


@dataclass
class TurnPlayedFrame(ControlFrame):
    """Waits, between the last speech of a turn and its end, until the caller has heard it."""


class EdgeInput(BaseInputTransport):
    def __init__(self, transport, params, **kwargs):
        super().__init__(params, **kwargs)
        self._transport = transport
        self._is_ready = False
        self._is_streaming = params.audio_in_stream_on_start

    async def start(self, frame: StartFrame):
        await super().start(frame)
        await self.set_transport_ready(frame)
        self._is_ready = True
        await self._transport.begin(self)

    async def stop(self, frame: EndFrame):
        await super().stop(frame)
        self._is_ready = False

    async def cancel(self, frame: CancelFrame):
        self._is_ready = False
        await super().cancel(frame)
        await self._transport.leave(self)

    async def cleanup(self):
        self._is_ready = False
        await super().cleanup()
        await self._transport.leave(self)
        await self._transport.cleanup()

    async def process_frame(self, frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        if isinstance(frame, UserImageRequestFrame):
            await self.answer_image(frame)

    async def answer_image(self, frame):
        error = "There is no camera: edge-runner carries no video."
        logger.warning(error)
        if frame.result_callback:
            await frame.result_callback({"error": error})

    async def _start_audio_in_streaming(self):
        self._is_streaming = True

    async def hear(self, pcm, rate_hz):
        if self._is_ready and self._is_streaming:
            channels = self._params.audio_in_channels
            if channels == 2:
                pcm = to_stereo(pcm)
            await self.push_audio_frame(InputAudioRawFrame(audio=pcm, sample_rate=rate_hz, num_channels=channels))


class EdgeOutput(BaseOutputTransport):
    def __init__(self, transport, params, **kwargs):
        super().__init__(params, **kwargs)
        self._transport = transport
        self._lead = Lead(LEAD_S)

    async def start(self, frame: StartFrame):
        await super().start(frame)
        await self._transport.begin(self)
        await self.set_transport_ready(frame)

    async def stop(self, frame: EndFrame):
        await super().stop(frame)
        await self._transport.close()

    async def cancel(self, frame: CancelFrame):
        await super().cancel(frame)
        await self._transport.leave(self)

    async def cleanup(self):
        await super().cleanup()
        await self._transport.leave(self)
        await self._transport.cleanup()

    async def process_frame(self, frame, direction: FrameDirection):
        await super().process_frame(frame, direction)
        # After the base class has emptied its queues, so that nothing follows.
        if isinstance(frame, InterruptionFrame) and self._lead.interrupt(time.monotonic()):
            await self._transport.interrupt()

    async def _handle_frame(self, frame):
        sender = self._media_senders.get(frame.transport_destination)
        if isinstance(frame, TTSStoppedFrame) and sender is not None:
            # The rest of the speech comes first: an incomplete chunk and what is in the resampler.
            flush = getattr(sender, "_enqueue_flushed_audio_buffer", None)
            if flush:
                await flush()
            await sender.handle_sync_frame(TurnPlayedFrame())
        await super()._handle_frame(frame)

    async def write_transport_frame(self, frame):
        if isinstance(frame, TurnPlayedFrame) and self._lead.ahead(time.monotonic()) > 0:
            await self._transport.played(PLAYED_S)

    async def send_message(self, frame):
        await self._transport.send(frame.message)

    def _supports_native_dtmf(self):
        return self._transport.is_telephone

    async def _write_dtmf_native(self, frame):
        """Lets the provider send the keys. Plays their tones where it does not."""
        if not isinstance(frame, OutputDTMFUrgentFrame) and self._lead.ahead(time.monotonic()) > 0:
            await self._transport.played(PLAYED_S)
        if not await self._transport.send_keys("".join(key.value for key in frame.buttons)):
            await self._write_dtmf_audio(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        if not self._transport.is_connected:
            return False
        seconds = len(frame.audio) / (2 * frame.num_channels * frame.sample_rate)
        await self._transport.say(frame.audio, frame.sample_rate, frame.num_channels)
        is_kept = not getattr(frame, "interruptible", True)
        await asyncio.sleep(self._lead.add(seconds, time.monotonic(), is_kept))
        return True


class EdgeTransport(BaseTransport):
    """Events: `on_client_connected(transport, client)`, `on_client_disconnected(transport, client)`,
    `on_app_message(transport, message, sender)`, `on_session_timeout(transport, client)`."""

    INPUT, OUTPUT, CARRIES_VIDEO = EdgeInput, EdgeOutput, False

    def __init__(self, client, params: TransportParams, input_name=None, output_name=None):
        super().__init__(input_name=input_name, output_name=output_name)
        if params.video_out_enabled and not self.CARRIES_VIDEO:
            raise Refused("The bot sets video_out_enabled, and edge-runner carries no video.")
        self._session = client.session
        if not self._session.media_url:
            raise Refused(f"A session of kind {self._session.kind} has no media for this transport.")
        self._session.transport = self
        self._client = client
        self._params = params
        self._input = self._output = None
        self._media = None
        self._beginning = asyncio.Lock()
        self._ends = set()
        self._tasks = set()
        self._marks = {}
        self._mark_names = (f"edge-runner-turn-{number}" for number in itertools.count())
        self._sending_keys = asyncio.Lock()
        self._keys_answer = None
        self._is_closing = False
        self._has_fired_closed = False
        for event in ("on_client_connected", "on_client_disconnected", "on_app_message", "on_session_timeout"):
            self._register_event_handler(event)

    def input(self) -> EdgeInput:
        if self._input is None:
            self._input = self.INPUT(self, self._params, name=self._input_name)
        return self._input

    def output(self) -> EdgeOutput:
        if self._output is None:
            self._output = self.OUTPUT(self, self._params, name=self._output_name)
        return self._output

    def get_client_id(self, client) -> str:
        return getattr(client, "pc_id", None) or self._session.id

    async def capture_participant_video(self, *_, **__):
        logger.warning("There is no camera to capture: edge-runner carries no video.")

    async def send_audio(self, frame):
        await self.output().queue_frame(frame, FrameDirection.DOWNSTREAM)

    async def send_image(self, frame):
        await self.output().queue_frame(frame, FrameDirection.DOWNSTREAM)

    # ---- the connection

    @property
    def has_begun(self):
        return self._media is not None

    @property
    def is_connected(self):
        return self._media is not None and self._media.is_open

    @property
    def is_telephone(self):
        return self._session.is_telephone

    async def begin(self, end):
        """Connects with the first end that starts, and tells the bot of the caller once. A refusal ends the pipeline: as an
        exception here it would be a line in the log of one that goes on without its caller."""
        self._ends.add(end)
        try:
            has_begun = await self._connect()
        except Refused as refused:
            self._session.refused = refused
            print(f"ERROR edge_runner: {refused}", file=sys.stderr)
            await end.push_frame(CancelWorkerFrame(), FrameDirection.UPSTREAM)
            return
        if has_begun:
            await self.prepare(end)
            self._client.fire("connected")
            await self._call_event_handler("on_client_connected", self._client)
            await end.push_frame(ClientConnectedFrame())

    async def _connect(self):
        """Connects unless that was tried before. Returns whether it did."""
        async with self._beginning:
            if self._media is not None or self._is_closing or self._session.refused:
                return False
            rate_hz = (self._input.sample_rate if self._input else 0) or RATE_HZ
            if rate_hz not in RATES_HZ:
                raise Refused(f"audio_in_sample_rate is {rate_hz}: the runner has 8000 to 48000 Hz.")
            if self._output and self._params.audio_out_enabled and self._output.sample_rate not in RATES_HZ:
                raise Refused(f"audio_out_sample_rate is {self._output.sample_rate}: the runner plays 8000 to 48000 Hz.")
            self._media = await Media.connect(self._session.media_url, rate_hz)
            self._start(self._receive())
            timeout_s = getattr(self._params, "session_timeout", None)
            if timeout_s:
                self._start(self._time_out(timeout_s))
            return True

    async def prepare(self, end):
        """Runs before the bot is told of the caller."""

    async def leave(self, end):
        """Closes the media when its last end has ended."""
        self._ends.discard(end)
        if not self._ends:
            await self.close()

    async def close(self):
        """Ends the session: the runner plays what was sent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._release_waiting()
        if self._media:
            await self._media.close()
            self._fire_closed()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    async def _receive(self):
        async for kind, value, rate_hz in self._media.receive():
            if self._is_closing:
                continue
            try:
                if kind == "audio":
                    if self._input and self._params.audio_in_enabled:
                        await self._input.hear(value, rate_hz)
                else:
                    await self._handle_message(value)
            except Exception as error:
                # The text of an error, as the values that loguru prints of a traceback, may be what the caller said.
                logger.error(f"What the caller sent was not handled: {type(error).__name__}")
                logger.debug(f"What the caller sent was not handled: {error!r}")
        self._release_waiting()
        if not self._is_closing:
            self._client.fire("disconnected")
            self._fire_closed()
            await self._call_event_handler("on_client_disconnected", self._client)

    def _fire_closed(self):
        if not self._has_fired_closed:
            self._has_fired_closed = True
            self._client.fire("closed")

    async def cleanup(self):
        """Waits for handlers of events, which may go on after they have ended the pipeline."""
        await super().cleanup()
        await self._client.finish()

    async def _time_out(self, timeout_s):
        await asyncio.sleep(timeout_s)
        await self._call_event_handler("on_session_timeout", self._client)

    def _start(self, job):
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- from the caller

    async def _handle_message(self, text):
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            logger.debug("A message of the caller is no JSON object, and was dropped.")
            return
        end = self._input or self._output
        kind = message.get("type") if "label" not in message else None
        if kind == "mark" and message.get("name") in self._marks:
            self._marks.pop(message["name"]).set()
        elif kind == "keys" and self._keys_answer and not self._keys_answer.done():
            self._keys_answer.set_result(bool(message.get("done")))
        elif kind == "dtmf" and str(message.get("digit")) in KEYPAD:
            await end.push_frame(InputDTMFFrame(button=KeypadEntry(str(message["digit"]))))
        else:
            # Both ways, because RTVI's processor stands before the input.
            await end.broadcast_frame(InputTransportMessageFrame, message=message)
            self._client.fire("app-message", message)
            await self._call_event_handler("on_app_message", message, self.get_client_id(self._client))

    # ---- to the caller

    async def say(self, pcm, rate_hz, channels):
        await self._media.send_audio(pcm, rate_hz, channels)

    async def interrupt(self):
        if self.is_connected:
            await self._media.interrupt()
        self._release_marks()

    async def send(self, message):
        if not self.is_connected:
            return
        if self._session.is_telephone and isinstance(message, dict) and message.get("label") == "rtvi-ai":
            return
        try:
            await self._media.send_message(message)
        except (TypeError, ValueError) as error:
            self.report_unsent(error)

    def report_unsent(self, error):
        logger.error(f"A message was not sent: {error}")

    def post(self, message):
        """Sends a message without waiting."""
        self._start(self.send(message))

    async def played(self, limit_s):
        """Waits until the caller has heard what was sent, up to a limit."""
        if not self.is_connected:
            return
        name, heard = next(self._mark_names), asyncio.Event()
        self._marks[name] = heard
        await self._media.send_message({"type": "mark", "name": name})
        try:
            await asyncio.wait_for(heard.wait(), limit_s)
        except asyncio.TimeoutError:
            self._marks.pop(name, None)

    async def send_keys(self, keys):
        """Asks the provider of a telephone call to send keys. Returns `False` if it does not: not every provider does, and it
        takes the runner's credentials. Without an answer they may have been sent."""
        async with self._sending_keys:
            if not self.is_connected:
                return True
            self._keys_answer = asyncio.get_running_loop().create_future()
            await self._media.send_message({"type": "keys", "keys": keys})
            try:
                return await asyncio.wait_for(self._keys_answer, KEYS_S)
            except asyncio.TimeoutError:
                return True
            finally:
                self._keys_answer = None

    def _release_waiting(self):
        """Nothing comes back any more."""
        self._release_marks()
        if self._keys_answer and not self._keys_answer.done():
            self._keys_answer.set_result(True)

    def _release_marks(self):
        for heard in self._marks.values():
            heard.set()
        self._marks.clear()


class SmallWebRTCTransport(EdgeTransport):
    """In place of Pipecat's class of this name."""

    def __init__(self, webrtc_connection, params, input_name=None, output_name=None):
        require(webrtc_connection, WebRtcCaller, "webrtc_connection")
        super().__init__(webrtc_connection, params, input_name, output_name)


class FastAPIWebsocketTransport(EdgeTransport):
    """In place of Pipecat's class of this name. The runner speaks with the provider, so the
    serializer of the parameters has nothing to do."""

    def __init__(self, websocket, params, input_name=None, output_name=None):
        require(websocket, WebSocketCaller, "websocket")
        super().__init__(websocket, params, input_name, output_name)


def require(given, kind, name):
    if not isinstance(given, kind):
        raise Refused(f"A transport was given another `{name}` than that of the runner's arguments, and the runner has the caller.")
