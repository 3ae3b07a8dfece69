"""Tests of the transport of bots in Python with Pipecat, in pipelines that have a socket of the test as their runner:
`target/venv/bin/python tests/peers/pipecat/test_transport.py`."""

import asyncio
import contextlib
import io
import json
import os
import pathlib
import sys
import unittest
from unittest import mock

# Set before the import of Pipecat, which logs at its import.
os.environ.setdefault("LOGURU_LEVEL", "CRITICAL")
sys.dont_write_bytecode = True
# This folder has the name of the package.
sys.path = [folder for folder in sys.path if folder != str(pathlib.Path(__file__).resolve().parent)]
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bots"))

from test_edge_runner import Peer, text  # noqa: E402

from edge_runner import Refused, media, session, transport  # noqa: E402
from loguru import logger  # noqa: E402
from pipecat.frames.frames import EndFrame, OutputDTMFFrame, TTSAudioRawFrame  # noqa: E402
from pipecat.pipeline.pipeline import Pipeline  # noqa: E402
from pipecat.pipeline.worker import PipelineWorker  # noqa: E402
from pipecat.transports.base_transport import TransportParams  # noqa: E402
from pipecat.workers.runner import WorkerRunner  # noqa: E402

LIMIT_S = 30
HANG_UP = (0x88, b"\3\xe8")
TURNS = 10_000
"""Turns of the loop, of which the end of a pipeline takes a few hundred."""


class Bot:
    """A bot on a connection, as Pipecat's examples are built."""

    def __init__(self, peer, **params):
        self.caller = session.WebRtcCaller(session.Session({"session_id": "s", "media_url": peer.url}))
        params = TransportParams(audio_in_enabled=True, audio_out_enabled=True, **params)
        self.transport = transport.SmallWebRTCTransport(self.caller, params)
        self.runner = WorkerRunner(handle_sigint=False)

    async def run(self):
        await self.runner.add_workers(PipelineWorker(Pipeline([self.transport.input(), self.transport.output()])))
        await self.runner.run()


class Ends(unittest.IsolatedAsyncioTestCase):
    async def test_a_handler_that_has_ended_the_pipeline_runs_to_its_end(self):
        saved = []
        async with Peer([HANG_UP]) as peer:
            bot = Bot(peer)

            @bot.transport.event_handler("on_client_disconnected")
            async def on_client_disconnected(_transport, _client):
                await bot.runner.cancel()
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                saved.append("the call")

            await bot.run()
        self.assertEqual(saved, ["the call"])

    async def test_a_handler_of_the_connection_may_end_the_pipeline(self):
        said = []
        async with Peer([HANG_UP]) as peer:
            bot = Bot(peer)

            @bot.caller.event_handler("disconnected")
            async def on_lost(_connection):
                await bot.runner.cancel()
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                said.append("disconnected")

            @bot.caller.event_handler("closed")
            async def on_closed(_connection):
                said.append("closed")

            @bot.transport.event_handler("on_client_disconnected")
            async def on_client_disconnected(_transport, _client):
                said.append("on_client_disconnected")

            await bot.run()
        self.assertEqual(sorted(said), ["closed", "disconnected", "on_client_disconnected"])

    async def test_a_bot_that_closes_its_connection_learns_that_it_is_closed(self):
        said = []
        async with Peer() as peer:
            bot = Bot(peer)

            @bot.transport.event_handler("on_client_connected")
            async def on_client_connected(_transport, _client):
                await bot.caller.disconnect()
                await bot.runner.cancel()

            @bot.caller.event_handler("closed")
            async def on_closed(_connection):
                said.append("closed")

            @bot.transport.event_handler("on_client_disconnected")
            async def on_client_disconnected(_transport, _client):
                said.append("on_client_disconnected")

            await asyncio.wait_for(bot.run(), LIMIT_S)
        self.assertEqual(said, ["closed"])

    async def test_a_rate_that_the_runner_does_not_have_ends_the_bot(self):
        for params in ({"audio_in_sample_rate": 4000}, {"audio_out_sample_rate": 4000}):
            async with Peer() as peer:
                bot = Bot(peer, **params)
                with contextlib.redirect_stderr(io.StringIO()) as log:
                    await asyncio.wait_for(bot.run(), LIMIT_S)
                peer.done.set()
            name, = params
            self.assertIn(f"ERROR edge_runner: {name} is 4000", log.getvalue())
            self.assertIsInstance(bot.caller.session.refused, Refused)


class Messages(unittest.IsolatedAsyncioTestCase):
    async def heard(self, message, handle=None):
        """Returns what a bot heard of the message of a caller who leaves then."""
        heard = []
        async with Peer([(0x82, text(message)), HANG_UP]) as peer:
            bot = Bot(peer)
            if handle:
                bot.transport._handle_message = handle

            @bot.transport.event_handler("on_app_message")
            async def on_app_message(_transport, message, _sender):
                heard.append(message)

            @bot.transport.event_handler("on_client_disconnected")
            async def on_client_disconnected(_transport, _client):
                await bot.runner.cancel()

            await asyncio.wait_for(bot.run(), LIMIT_S)
        return heard

    async def test_a_key_that_pipecat_does_not_have_is_a_message(self):
        for message, expected in [({"type": "dtmf", "digit": "A"}, 1), ({"type": "dtmf", "digit": ["1"]}, 1), ({"type": "dtmf", "digit": "1"}, 0)]:
            self.assertEqual(await self.heard(message), [message] * expected, message)

    async def test_what_a_caller_said_is_in_no_error(self):
        async def handle(_text):
            raise ValueError("my number is 4711")

        lines = []
        sink = logger.add(lines.append, level="INFO")
        self.addCleanup(logger.remove, sink)
        await self.heard({"text": "my number is 4711"}, handle)
        self.assertEqual(sum("not handled: ValueError" in line for line in lines), 1)
        self.assertFalse(any("4711" in line for line in lines), lines)


class Keys(unittest.IsolatedAsyncioTestCase):
    async def frames_of(self, done):
        """Returns what a telephone call of a bot that sends keys behind its speech sent, where the provider answers so."""
        given = json.dumps({"providers": {"telephony_b": "telnyx"}})
        async with Peer() as peer:
            with mock.patch.dict("os.environ", EDGE_RUNNER_OPTIONS=given):
                of_call = session.Session({"session_id": "s", "media_url": peer.url, "transport_type": "telephony_b"})
            caller = session.WebSocketCaller(of_call, None)
            params = TransportParams(audio_in_enabled=True, audio_out_enabled=True)
            bot = transport.FastAPIWebsocketTransport(caller, params)
            worker = PipelineWorker(Pipeline([bot.input(), bot.output()]))
            runner = WorkerRunner(handle_sigint=False)

            @bot.event_handler("on_client_connected")
            async def on_client_connected(_transport, _client):
                speech = TTSAudioRawFrame(audio=bytes(2 * 2400), sample_rate=24_000, num_channels=1)
                await worker.queue_frames([speech, OutputDTMFFrame.from_string("1#"), EndFrame()])

            heard = []

            @bot.event_handler("on_app_message")
            async def on_app_message(_transport, message, _sender):
                heard.append(message)

            async def answer():
                """Answers the marks and the keys, as the runner does."""
                sent = 0
                while not peer.done.is_set():
                    for _, frame in peer.read[sent:]:
                        message = message_of(frame)
                        if message.get("type") == "mark":
                            await peer.send(text({**message, "played": True}))
                        elif message.get("type") == "keys":
                            await peer.send(text({"type": "keys", "done": done, **({} if done else {"error": "it has no API"})}))
                        sent += 1
                    await asyncio.sleep(0.01)

            answers = asyncio.ensure_future(answer())
            await runner.add_workers(worker)
            await asyncio.wait_for(runner.run(), LIMIT_S)
            await answers
        self.assertEqual(heard, [], "the bot has not asked")
        return [frame for opcode, frame in peer.read if opcode == 2]

    async def test_the_provider_sends_keys_behind_the_speech(self):
        frames = await self.frames_of(True)
        keys, = [at for at, frame in enumerate(frames) if message_of(frame) == {"type": "keys", "keys": "1#"}]
        self.assertTrue(any(media.AUDIO in frame for frame in frames[:keys]))
        self.assertFalse(any(any(pcm_of(frame)) for frame in frames), "no tone")

    async def test_the_tones_of_keys_are_played_where_the_provider_does_not(self):
        frames = await self.frames_of(False)
        keys, = [at for at, frame in enumerate(frames) if message_of(frame).get("type") == "keys"]
        self.assertTrue(any(any(pcm_of(frame)) for frame in frames[keys:]), "the tones")


def message_of(frame):
    """Returns the message of a frame, or one without members."""
    return json.loads(media.read_fields(frame[media.MESSAGE])[1]) if media.MESSAGE in frame else {}


def pcm_of(frame):
    return media.read_fields(frame[media.AUDIO]).get(3, b"") if media.AUDIO in frame else b""


if __name__ == "__main__":
    unittest.main()
