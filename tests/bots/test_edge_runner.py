"""Tests of the package for bots in Python, src/io/process/python. Standard library alone, without Pipecat:
`python3 tests/bots/test_edge_runner.py`. tests/peers/pipecat has those with Pipecat."""

import argparse
import asyncio
import base64
import contextlib
import fcntl
import hashlib
import importlib
import io
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/io/process/python"
sys.path.insert(0, str(PACKAGE))
sys.path.append(str(ROOT / "tests/check"))
sys.dont_write_bytecode = True

from edge_runner import Refused, check, hooks, media, pacing, run, session  # noqa: E402
from skips import lacks  # noqa: E402


class Pacing(unittest.TestCase):
    def test_speech_runs_ahead_by_the_lead_alone(self):
        lead = pacing.Lead(0.125)
        self.assertEqual([lead.add(0.0625, 10.0) for _ in range(4)], [0.0, 0.0, 0.0625, 0.125])
        self.assertEqual(lead.ahead(10.0), 0.25)
        self.assertEqual(lead.add(0.0625, 20.0), 0.0, "a pause gives no credit")
        self.assertEqual(lead.ahead(20.0), 0.0625)

    def test_an_interruption_forgets_what_may_be_dropped(self):
        lead = pacing.Lead(0.125)
        lead.add(1.0, 10.0)
        self.assertTrue(lead.interrupt(10.5))
        self.assertEqual(lead.ahead(10.5), 0.0)
        lead.add(1.0, 11.0, is_kept=True)
        self.assertFalse(lead.interrupt(11.5))
        self.assertEqual(lead.ahead(11.5), 0.5)
        self.assertTrue(lead.interrupt(12.0))

    def test_stereo_has_each_sample_twice(self):
        self.assertEqual(pacing.to_stereo(b"\1\2\3\4"), b"\1\2\1\2\3\4\3\4")


class Peer:
    """The runner's end of a connection: answers the handshake, and keeps what it reads."""

    def __init__(self, sends=(), status="101 Switching Protocols"):
        self.sends, self.status = sends, status
        self.read, self.request, self.closed = [], "", False
        self.done = asyncio.Event()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{port}/secret"
        return self

    async def __aexit__(self, failed, *_):
        # A test that failed may have had no connection.
        if not failed:
            await self.done.wait()
        self.server.close()
        await self.server.wait_closed()

    async def send(self, data):
        """Sends a short binary message."""
        self.writer.write(bytes([0x82, len(data)]) + data)

    async def serve(self, reader, writer):
        self.writer = writer
        self.request = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = re.search(r"(?i)\r\nsec-websocket-key: (\S+)", self.request)[1]
        accept = base64.b64encode(hashlib.sha1(key.encode() + media.GUID).digest()).decode()
        writer.write(f"HTTP/1.1 {self.status}\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n".encode())
        for opcode, data in self.sends:
            length = bytes([len(data)]) if len(data) < 126 else b"\x7f" + len(data).to_bytes(8, "big")
            writer.write(bytes([opcode]) + length + data)
        with contextlib.suppress(EOFError, ConnectionError):
            while self.status.startswith("101"):
                opcode, second = await reader.readexactly(2)
                length = second & 0x7F
                if length > 125:
                    length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
                mask = await reader.readexactly(4)
                data = media.masked(await reader.readexactly(length), mask)
                if opcode & 15 == media.CLOSE:
                    self.closed = True
                    writer.write(b"\x88\x02" + data[:2])
                    break
                self.read.append((opcode & 15, media.read_fields(data) if opcode & 15 == 2 else data))
        writer.close()
        self.done.set()


def speech(pcm, rate_hz):
    return media.field(media.AUDIO, media.field(3, pcm) + media.field(4, rate_hz) + media.field(5, 1))


def text(message):
    return media.field(media.MESSAGE, media.field(1, json.dumps(message).encode()))


class Connection(unittest.IsolatedAsyncioTestCase):
    async def test_frames_pass_both_ways_and_a_close_waits_for_the_other_end(self):
        long = text({"a": "b" * 1000})
        sends = [(0x82, speech(b"\1\0" * 50, 8000)), (0x89, b"ping"), (0x02, long[:200]), (0x80, long[200:])]
        async with Peer(sends) as peer:
            connection = await media.Media.connect(peer.url, 8000)
            received = []

            async def receive():
                async for item in connection.receive():
                    received.append(item)

            receiving = asyncio.create_task(receive())
            await connection.send_audio(b"\2\0" * 40_000, 24_000)
            await connection.send_message({"type": "mark", "name": "one"})
            await connection.interrupt()
            await connection.close()
            await receiving
        self.assertIn("GET /secret?live=1&rate=8000 HTTP/1.1\r\n", peer.request)
        self.assertEqual(received[0], ("audio", b"\1\0" * 50, 8000))
        self.assertEqual(json.loads(received[1][1]), {"a": "b" * 1000})
        frames = [frame for opcode, frame in peer.read if opcode == media.BINARY]
        parts = [media.read_fields(frame[media.AUDIO]) for frame in frames if media.AUDIO in frame]
        self.assertEqual(b"".join(part[3] for part in parts), b"\2\0" * 40_000)
        self.assertEqual({part[4] for part in parts}, {24_000})
        self.assertEqual(media.read_fields(frames[-2][media.MESSAGE])[1], b'{"type": "mark", "name": "one"}')
        self.assertIn(media.INTERRUPTION, frames[-1])
        self.assertTrue(peer.closed)
        self.assertFalse(connection.is_open)

    async def test_a_ping_is_answered_and_the_end_of_the_session_ends_the_iteration(self):
        async with Peer([(0x89, b"ping"), (0x88, b"\3\xe8")]) as peer:
            connection = await media.Media.connect(peer.url, 16_000)
            self.assertEqual([item async for item in connection.receive()], [])
            await connection.send_audio(b"\0\0", 16_000)
            await connection.close()
        self.assertEqual(peer.read, [(10, b"ping")])

    async def test_a_picture_of_an_evaluation_is_received(self):
        picture = {"image": "b" * (16 * 1024 * 1024 - 100)}
        async with Peer([(0x82, text(picture)), (0x88, b"\3\xe8")]) as peer:
            connection = await media.Media.connect(peer.url, 16_000)
            received = [json.loads(message) async for _, message, _ in connection.receive()]
            await connection.close()
        self.assertTrue(received == [picture])

    async def test_a_refusal_says_what_the_runner_said(self):
        async with Peer(status="400 Bad Request") as peer:
            with self.assertRaisesRegex(ConnectionError, "400 Bad Request"):
                await media.Media.connect(peer.url, 1)

    async def test_a_message_above_the_limit_of_the_runner_is_not_sent(self):
        async with Peer() as peer:
            connection = await media.Media.connect(peer.url, 16_000)
            with self.assertRaises(ValueError):
                await connection.send_message({"a": "b" * media.MESSAGE_BYTES_MAX})
            receiving = asyncio.create_task(anext(connection.receive(), None))
            await connection.close()
            await receiving
        self.assertEqual(peer.read, [])


class Callers(unittest.IsolatedAsyncioTestCase):
    async def test_a_stand_in_has_what_bots_use_and_says_what_is_missing(self):
        caller = session.WebRtcCaller(session.Session({"webrtc_connection": {"pc_id": "pc-7"}}))
        self.assertEqual(caller.pc_id, "pc-7")
        self.assertFalse(caller.is_connected())
        told = []

        @caller.event_handler("app-message")
        async def on_message(connection, message):
            told.append((connection, message))

        @caller.event_handler("app-message")
        def fail(connection, message):
            raise ValueError("not handled")

        with contextlib.redirect_stderr(io.StringIO()) as log:
            caller.fire("app-message", {"a": 1})
            await caller.finish()
        self.assertEqual(told, [(caller, {"a": 1})])
        self.assertIn("`app-message` of the connection failed: ValueError('not handled')", log.getvalue())
        with self.assertRaisesRegex(AttributeError, "`ice_connection_state`.*SmallWebRTCConnection"):
            caller.ice_connection_state
        given = {"providers": {"telephony_c": "plivo"}}
        with mock.patch.dict("os.environ", EDGE_RUNNER_OPTIONS=json.dumps(given)):
            call = session.Session({"transport_type": "telephony_c"})
        self.assertEqual((call.is_telephone, call.transport_type), (True, "plivo"))
        self.assertEqual(session.Session({"transport_type": "websocket"}).transport_type, "websocket")


class Parameters(unittest.TestCase):
    def test_the_parameters_of_webrtc_serve_for_any_caller(self):
        given = {"webrtc": lambda: "w", "twilio": lambda: "t"}
        self.assertEqual(run.transport_params_of(given, "twilio"), "t")
        with contextlib.redirect_stderr(io.StringIO()) as log:
            self.assertEqual(run.transport_params_of(given, "websocket"), "w")
        self.assertIn("`websocket`", log.getvalue())
        with self.assertRaisesRegex(Refused, "`plivo`"):
            run.transport_params_of({"daily": dict}, "plivo")

    def test_options_of_the_bot_are_read_beside_those_of_pipecats_runner(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--name")
        given = run.options(parser).parse_args(["--name", "Ada", "-vv"])
        self.assertEqual((given.name, given.verbose, given.port, given.transport), ("Ada", 2, 7860, None))

    def test_an_option_of_the_server_after_the_file_is_reported(self):
        with mock.patch.object(run, "load_dotenv"), mock.patch.dict("os.environ"):
            runner = run.Runner(pathlib.Path("bot.py"), {})
        parser = run.options(None)
        runner.options = parser.parse_args(["--port", "1", "-v"])
        with contextlib.redirect_stderr(io.StringIO()) as log:
            runner._warn_of_options(parser)
        self.assertEqual(log.getvalue().count("WARNING"), 1)
        self.assertIn("--port after bot.py", log.getvalue())

    def test_options_that_the_runner_has_are_those_of_the_runner(self):
        given = {"host": "0.0.0.0", "port": 80, "transport": "twilio", "downloads_folder": "/srv/out"}
        with mock.patch.object(run, "load_dotenv"), mock.patch.dict("os.environ", EDGE_RUNNER_OPTIONS=json.dumps(given)):
            runner = run.Runner(pathlib.Path("bot.py"), {})
            parser = run.options(None)
            named = run.options(None).parse_args(["--port", "1"])
        self.assertEqual({name: getattr(runner.options, name) for name in given}, given)
        self.assertEqual((named.port, named.host), (1, "0.0.0.0"))
        runner.options = parser.parse_args([])
        with contextlib.redirect_stderr(io.StringIO()) as log:
            runner._warn_of_options(parser)
        self.assertEqual(log.getvalue(), "", "none of them stands behind the file")

    def test_the_options_need_no_newer_python(self):
        # `argparse.BooleanOptionalAction` is of Python 3.9.
        with mock.patch.dict(vars(argparse)):
            vars(argparse).pop("BooleanOptionalAction", None)
            parser = run.options(None)
        given = [parser.parse_args(words).dialin for words in ([], ["--dialin"], ["--no-dialin"])]
        self.assertEqual(given, [True, True, False])
        with mock.patch.object(run, "load_dotenv"), mock.patch.dict("os.environ"):
            runner = run.Runner(pathlib.Path("bot.py"), {})
        runner.options = parser.parse_args(["--no-dialin"])
        with contextlib.redirect_stderr(io.StringIO()) as log:
            runner._warn_of_options(parser)
        self.assertEqual(log.getvalue().count("WARNING"), 1)
        self.assertIn("--no-dialin after bot.py", log.getvalue())

    def test_a_transport_of_vonage_is_refused(self):
        with mock.patch.object(run, "load_dotenv"), mock.patch.dict("os.environ"):
            runner = run.Runner(pathlib.Path("bot.py"), {})
        with mock.patch.object(sys, "argv", ["bot.py", "-t", "vonage"]), self.assertRaisesRegex(Refused, "Vonage"):
            runner.main()

    def test_a_session_without_a_caller_and_a_room_is_refused_in_one_sentence(self):
        with mock.patch.object(run, "load_dotenv"), mock.patch.dict("os.environ"):
            runner = run.Runner(pathlib.Path("bot.py"), {"kind": "base"})
        with self.assertRaisesRegex(Refused, "neither a caller nor a room.*createDailyRoom"):
            runner.create_transport(None, {})

    def test_an_evaluation_keeps_what_pipecat_has_read_of_it(self):
        caller = session.Session({"kind": "websocket", "transport_type": "eval", "call_data": {"body": {"skip_tts": True}}})
        self.assertEqual((caller.is_eval, caller.is_telephone, caller.transport_type), (True, False, "eval"))


class Uploads(unittest.TestCase):
    """`LocalFileStorage` of Pipecat is the one of this class."""

    class Storage:
        def __init__(self, folder, max_files):
            self.given = folder, max_files

    GIVEN = {"folder": "/srv/in", "max_files": 3}

    def storage(self, uploads, create=None, module=Storage):
        module = mock.Mock(spec=["LocalFileStorage"], LocalFileStorage=module) if module else None
        names = {"pipecat": mock.Mock(), "pipecat.utils": mock.Mock(), "pipecat.utils.file_storage": module}
        with mock.patch.dict(sys.modules, names), contextlib.redirect_stderr(io.StringIO()) as log:
            return run.file_storage(uploads, create), log.getvalue()

    def test_the_bot_reads_the_folder_of_the_runner(self):
        found, log = self.storage(self.GIVEN)
        self.assertEqual((found.given, log), (("/srv/in", 3), ""))
        self.assertEqual(self.storage(None), (None, ""))

    def test_a_storage_of_the_file_does_not_store_for_the_runner(self):
        self.assertEqual(self.storage(None, lambda: "own"), ("own", ""))
        found, log = self.storage(self.GIVEN, lambda: "own")
        self.assertEqual(found.given, ("/srv/in", 3))
        self.assertIn("create_file_storage() has no effect", log)

        async def create():
            pass

        with self.assertRaisesRegex(TypeError, "synchronous"):
            self.storage(None, create)

    def test_a_version_of_pipecat_without_it_is_a_line_in_the_log(self):
        found, log = self.storage(self.GIVEN, module=None)
        self.assertIsNone(found)
        self.assertIn("no `file_storage`", log)


class Ends(unittest.TestCase):
    def run_bot(self, bot, transport=None):
        with mock.patch.object(run, "load_dotenv"), mock.patch.dict("os.environ"):
            runner = run.Runner(pathlib.Path("bot.py"), {})
        runner.session.transport = transport
        with mock.patch.object(runner, "runner_arguments"), mock.patch.object(run, "STOP_S", 0):
            self.addCleanup(signal.signal, signal.SIGTERM, signal.SIG_DFL)
            asyncio.run(runner._run(lambda: bot(None)))
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_IGN, "the end of the bot is not disturbed")

    def test_sigterm_cancels_a_bot_that_does_not_return(self):
        for transport in (None, mock.Mock(has_begun=True)):
            told = []

            async def bot(_):
                try:
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.Event().wait()
                finally:
                    told.append("cleaned up")

            self.run_bot(bot, transport)
            self.assertEqual(told, ["cleaned up"])

    def test_a_bot_that_ended_by_a_refusal_has_failed(self):
        async def bot(_):
            runner.session.refused = Refused("no such rate")

        with mock.patch.object(run, "load_dotenv"), mock.patch.dict("os.environ"):
            runner = run.Runner(pathlib.Path("bot.py"), {})
        self.addCleanup(signal.signal, signal.SIGTERM, signal.SIG_DFL)
        with self.assertRaises(SystemExit) as ended:
            asyncio.run(runner._run(lambda: bot(None)))
        self.assertEqual(ended.exception.code, 1)

    def test_an_exception_of_the_bot_passes_through(self):
        async def bot(_):
            raise ValueError("no key")

        with self.assertRaisesRegex(ValueError, "no key"):
            self.run_bot(bot)


class Imports(unittest.TestCase):
    """A package in the place of Pipecat, in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, source in {
            "pipecat/__init__.py": "",
            "pipecat/runner/__init__.py": "",
            "pipecat/runner/run.py": "raise SystemExit('a web server')",
            "pipecat/transports/__init__.py": "",
            "pipecat/transports/smallwebrtc/__init__.py": "",
            "pipecat/transports/smallwebrtc/connection.py": "class SmallWebRTCConnection: pass\nclass IceServer: pass\n",
            "pipecat/serializers/__init__.py": "",
            "pipecat/serializers/twilio.py": (
                "class Params:\n model_fields = {'auto_hang_up': 1}\n auto_hang_up = True\n"
                " def model_copy(self, update):\n  copy = Params()\n  vars(copy).update(update)\n  return copy\n"
                "class TwilioFrameSerializer:\n InputParams = Params\n"
                " def __init__(self, stream_sid, params=None):\n  self.params = params or Params()\n"
                "  if self.params.auto_hang_up: raise ValueError('missing account_sid')\n"
            ),
        }.items():
            path = pathlib.Path(folder.name, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        paths = mock.patch.object(sys, "path", [folder.name, *sys.path])
        finders = mock.patch.object(sys, "meta_path", list(sys.meta_path))
        for patch in (paths, finders, mock.patch.dict(sys.modules)):
            patch.start()
            self.addCleanup(patch.stop)
        importlib.invalidate_caches()
        self.runner = mock.Mock()
        hooks.Hooks(self.runner).install()

    def test_pipecats_runner_is_replaced_without_loading_it(self):
        from pipecat.runner.run import app, main

        self.assertIs(main, self.runner.main)
        with contextlib.redirect_stderr(io.StringIO()) as log:
            self.assertEqual(app.get("/mine")(len), len)
        self.assertIn("/mine", log.getvalue())
        with self.assertRaisesRegex(ImportError, "_setup_webrtc_routes"):
            from pipecat.runner.run import _setup_webrtc_routes  # noqa: F401

    def test_other_names_of_a_replaced_module_are_the_real_ones(self):
        from pipecat.transports.smallwebrtc.connection import IceServer, SmallWebRTCConnection

        self.assertIs(SmallWebRTCConnection, session.WebRtcCaller)
        self.assertEqual(IceServer.__name__, "IceServer")

    def test_a_room_of_daily_without_its_package_is_refused_with_the_command_that_installs_it(self):
        module = type(sys)("pipecat.transports.daily.transport")
        others = {"pydantic": mock.Mock(), "pipecat.frames": mock.Mock(frames=object()),
                  "pipecat.transports.base_transport": mock.Mock(TransportParams=object)}
        with mock.patch.dict(sys.modules, others):
            hooks.stand_in_daily(module)
        with self.assertRaises(Refused) as refused:
            module.DailyTransport("https://example.daily.co/room", None, "Bot")
        self.assertIn(f"{sys.executable} -m pip install 'pipecat-ai[daily]'", str(refused.exception))

    def test_serializers_ask_for_no_secrets(self):
        from pipecat.serializers.twilio import TwilioFrameSerializer

        self.assertFalse(TwilioFrameSerializer("MZ1").params.auto_hang_up)


class Warm(unittest.TestCase):
    def test_a_file_that_leaves_the_call_to_its_bot_is_loaded_before_it(self):
        from edge_runner.warm import is_loadable

        bare = "async def bot(args):\n    pass\n"
        with tempfile.TemporaryDirectory() as folder:
            for source, loadable in (
                (bare, True),
                ("from pipecat.runner.run import main\nmain()\n", True),
                (bare + "if __name__ == '__main__':\n    go()\n", False),
                (bare + "asyncio.run(bot(None))\n", False),
                (bare + "os.environ['RUNNER_ARGUMENTS']\n", False),
                ("def bot(args):\n    pass\n", False),
                ("print()\n", False),
            ):
                file = pathlib.Path(folder, "bot.py")
                file.write_text(source)
                self.assertEqual(is_loadable(file), loadable, source)

    def test_what_a_child_cannot_have_forbids_the_fork(self):
        from edge_runner.warm import can_fork

        # A pipe has no peer that a child would share.
        with socket.socket() as control, mock.patch("threading.active_count", return_value=1):
            others = [name for name in os.listdir("/proc/self/fd")]
            links = {f"/proc/self/fd/{name}": "pipe:[1]" for name in others}
            links[f"/proc/self/fd/{control.fileno()}"] = "socket:[2]"
            with mock.patch("os.readlink", side_effect=lambda path: links.get(path, "pipe:[1]")):
                self.assertTrue(can_fork(control.fileno()))
                links["/proc/self/fd/1"] = "socket:[3]"
                self.assertFalse(can_fork(control.fileno()))
            with mock.patch("threading.active_count", return_value=2):
                self.assertFalse(can_fork(control.fileno()))

    def test_the_nearest_files_are_watched_where_there_are_too_many(self):
        from edge_runner.warm import FILES_BYTES_MAX, FILES_MAX, own_files

        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            far = [str(folder / "env/lib" / f"a{number}.py") for number in range(300)]
            modules = {name: mock.Mock(__file__=name) for name in [*far, str(folder / "zz.py"), "relative.py"]}
            modules["of a package"] = mock.Mock(__file__=str(folder / "env/site-packages/b.py"))
            with mock.patch.dict(sys.modules, modules):
                files = own_files(folder / "z.py", folder.parent / ".env")
                self.assertEqual(len(files), FILES_MAX)
                first = [folder / "z.py", folder.parent / ".env", folder / ".env", folder / "zz.py"]
                self.assertEqual(files[:4], [str(path) for path in first])
                self.assertEqual(set(files[4:]) - set(far), set())
                self.assertEqual(own_files(folder / "z.py", None)[:2], [str(folder / "z.py"), str(folder / ".env")])
            long = {name: mock.Mock(__file__=str(folder / ("\xe4" * 200) / name)) for name in far}
            with mock.patch.dict(sys.modules, long):
                files = own_files(folder / "z.py", None)
                self.assertLess(len(json.dumps(files)), FILES_BYTES_MAX)
                self.assertEqual(files[0], str(folder / "z.py"))

    def test_the_error_of_a_file_has_its_line(self):
        from edge_runner.warm import Control

        sent, file = [], pathlib.Path("bot.py")
        control = Control.__new__(Control)
        control._send = sent.append
        try:
            exec(compile("\n1 / 0\n", "bot.py", "exec"))
        except ZeroDivisionError as error:
            control.fail(error, file)
        self.assertEqual([one["error"] for one in sent], ["ZeroDivisionError: division by zero (bot.py, line 2)"])

    def test_a_file_that_ends_itself_is_said_to_have_and_where_options_stand(self):
        from edge_runner.warm import Control

        sent, file = [], pathlib.Path("bot.py")
        control = Control.__new__(Control)
        control._send = lambda message: sent.append(message["error"])
        for words, code in (["--tls", "auto"], 2), (["--help"], 0), ([], 3), (["--name"], "no key"):
            with mock.patch.object(sys, "argv", ["bot.py", *words]):
                control.fail(SystemExit(code), file)
        hint = "; options of edge-runner stand before bot.py, those of the bot after it"
        self.assertEqual(sent, [f"bot.py has ended itself (SystemExit: 2){hint}", f"bot.py has ended itself (SystemExit: 0){hint}",
                                "bot.py has ended itself (SystemExit: 3)", "bot.py has ended itself (SystemExit: no key)"])

    def test_the_error_of_a_missing_module_names_the_interpreter(self):
        from edge_runner.warm import Control

        sent, file = [], pathlib.Path("bot.py")
        control = Control.__new__(Control)
        control._send = lambda message: sent.append(message["error"])
        try:
            exec(compile("import no_such_module", "bot.py", "exec"))
        except ImportError as error:
            control.fail(error, file)
        self.assertEqual(sent, [f"ModuleNotFoundError: No module named 'no_such_module' (bot.py, line 1), in {sys.executable}"])


REHEARSAL = "asyncio.run(asyncio.sleep(0))"


def program_of_package(spare_takes_s=30, rehearsal=None):
    """Returns the program in one file. A child that waits has so long to take its call, however busy the machine is.
    `rehearsal` is an expression in place of what it does before."""
    modules = (PACKAGE / "edge_runner").glob("*.py")
    name = lambda path: "edge_runner" if path.stem == "__init__" else f"edge_runner.{path.stem}"
    limit, own_limit = "\nSPARE_TAKES_S = 1\n", f"\nSPARE_TAKES_S = {spare_takes_s}\n"
    sources = {name(path): path.read_text().replace(limit, own_limit) for path in modules}
    assert own_limit in sources["edge_runner.warm"]
    if rehearsal:
        assert REHEARSAL in sources["edge_runner.run"]
        sources["edge_runner.run"] = sources["edge_runner.run"].replace(REHEARSAL, rehearsal)
    return f"SOURCES = {sources!r}\n{(PACKAGE / 'start.py').read_text()}"


def until(condition):
    """Waits for something that another process does, and returns it."""
    deadline = time.monotonic() + 30
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen within 30 s")
        time.sleep(0.01)
    return found


def state(pid):
    """Returns the state of a process as the system names it: S is one that waits for something."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


class Children(unittest.TestCase):
    def fork(self, source):
        """Loads a file and has one call forked. Returns how its child ended, its stdout and its stderr."""
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder, ours, ours.makefile("rb") as lines:
            pathlib.Path(folder, "bot.py").write_text(source)
            pathlib.Path(folder, "package.py").write_text(program_of_package())
            with theirs:
                process = subprocess.Popen([sys.executable, "package.py", "bot.py"], stdin=theirs, cwd=folder,
                                           env={"EDGE_RUNNER_WARM": "fork"})
            with process, open(os.path.join(folder, "out"), "w+") as out, open(os.path.join(folder, "err"), "w+") as errors:
                self.assertEqual(json.loads(lines.readline())["mode"], "fork")
                ours.sendall(b'{"ping":3}\n')
                self.assertEqual(json.loads(lines.readline()), {"pong": 3})
                socket.send_fds(ours, [b'{"call":7,"arguments":{}}\n'], [out.fileno(), errors.fileno()])
                self.assertIn("pid", json.loads(lines.readline()))
                ended = json.loads(lines.readline())
                ours.shutdown(socket.SHUT_RDWR)
                process.wait()
                out.seek(0)
                errors.seek(0)
                return ended, out.read(), errors.read()

    def calls_of_spares(self, calls, **limits):
        """Has calls forked, each after a signal to the child that waits for it. Returns whether that child took its call."""
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder, ours, ours.makefile("rb") as lines:
            pathlib.Path(folder, "bot.py").write_text("async def bot(args):\n    print('ran')\n")
            pathlib.Path(folder, "package.py").write_text(program_of_package(**limits))
            with theirs:
                process = subprocess.Popen([sys.executable, "package.py", "bot.py"], stdin=theirs, cwd=folder,
                                           env={"EDGE_RUNNER_WARM": "fork"})
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            # One that was killed stays there until its parent has noticed it.
            used, taken = set(), []
            waiting = lambda: [pid for pid in map(int, children.read_text().split()) if pid not in used and state(pid) == "S"]
            with process, contextlib.ExitStack() as at_end:
                at_end.callback(process.kill)
                self.assertEqual(json.loads(lines.readline())["mode"], "fork")
                for call, sent in enumerate(calls):
                    spare, = until(waiting)
                    os.kill(spare, sent)
                    with open(os.path.join(folder, "out"), "w+") as out:
                        socket.send_fds(ours, [b'{"call":%d,"arguments":{}}\n' % call], [out.fileno(), out.fileno()])
                        started, ended = json.loads(lines.readline()), json.loads(lines.readline())
                        out.seek(0)
                        self.assertEqual(out.read(), "ran\n")
                    self.assertEqual((started["call"], ended), (call, {"call": call, "exit": 0}))
                    used |= {spare, started["pid"]}
                    taken.append(started["pid"] == spare)
                spare, = until(waiting)
                ours.shutdown(socket.SHUT_RDWR)
                process.wait()
            self.assertTrue(until(lambda: state(spare) in (None, "Z")), "a child that waits ends with its parent")
            return taken

    def test_the_child_of_the_next_call_is_forked_ahead_of_it(self):
        self.assertEqual(self.calls_of_spares([0, signal.SIGKILL, 0]), [True, False, True])

    def test_a_child_that_does_not_take_its_call_is_replaced(self):
        self.assertEqual(self.calls_of_spares([signal.SIGSTOP], spare_takes_s=0.1), [False])

    def test_a_child_that_ends_in_its_rehearsal_is_followed_by_one_without(self):
        self.assertEqual(self.calls_of_spares([0, 0], rehearsal="os._exit(3)"), [True, True])

    def test_a_fork_that_failed_is_tried_again_among_pings(self):
        # What the first one lacks is there for the second.
        source = ("import os\nfork, failed = os.fork, []\ndef fails_once():\n    if failed:\n        return fork()\n"
                  "    failed.append(1)\n    raise OSError('no memory')\nos.fork = fails_once\nasync def bot(args):\n    pass\n")
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder, ours, ours.makefile("rb") as lines:
            pathlib.Path(folder, "bot.py").write_text(source)
            package = program_of_package()
            for limit in ("SPARE_AFTER_S = 0.5", "SPARE_PAUSE_MAX_S = 60"):
                assert limit in package
                package = package.replace(limit, limit.split("=")[0] + "= 0.2")
            pathlib.Path(folder, "package.py").write_text(package)
            with theirs:
                process = subprocess.Popen([sys.executable, "package.py", "bot.py"], stdin=theirs, cwd=folder,
                                           env={"EDGE_RUNNER_WARM": "fork"})
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")

            def ping_until_it_has_a_child():
                ours.sendall(b'{"ping":1}\n')
                self.assertEqual(json.loads(lines.readline()), {"pong": 1})
                return children.read_text()

            with process, contextlib.ExitStack() as at_end:
                at_end.callback(process.kill)
                self.assertEqual(json.loads(lines.readline())["mode"], "fork")
                until(ping_until_it_has_a_child)
                ours.shutdown(socket.SHUT_RDWR)
                process.wait()

    def test_a_process_without_free_descriptors_goes_on(self):
        # It is full when it says that it has loaded the bot.
        source = ("import gc, os, resource\nfreeze = gc.freeze\ndef fill():\n    freeze()\n    free = os.dup(0)\n    os.close(free)\n"
                  "    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))\n"
                  "gc.freeze = fill\nasync def bot(args):\n    pass\n")
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder, ours, ours.makefile("rb") as lines, open(os.devnull, "w") as out:
            pathlib.Path(folder, "bot.py").write_text(source)
            package, at_once = program_of_package(), "SPARE_AFTER_S = 0.5"
            assert at_once in package
            pathlib.Path(folder, "package.py").write_text(package.replace(at_once, "SPARE_AFTER_S = 0"))
            with theirs:
                process = subprocess.Popen([sys.executable, "package.py", "bot.py"], stdin=theirs, cwd=folder,
                                           env={"EDGE_RUNNER_WARM": "fork"})
            with process, contextlib.ExitStack() as at_end:
                at_end.callback(process.kill)
                self.assertEqual(json.loads(lines.readline())["mode"], "fork")
                for call in (1, 2):
                    socket.send_fds(ours, [b'{"call":%d,"arguments":{}}\n' % call], [out.fileno(), out.fileno()])
                    refused = json.loads(lines.readline())
                    self.assertEqual((refused["call"], "no room" in refused.get("error", "")), (call, True), refused)
                    ours.sendall(b'{"ping":1}\n')
                    self.assertEqual(json.loads(lines.readline()), {"pong": 1})
                ours.shutdown(socket.SHUT_RDWR)
                process.wait()

    def test_a_child_whose_end_nothing_would_notice_is_killed(self):
        source = ("import os\nopen_pidfd = os.pidfd_open\ndef fails_once(pid):\n    os.pidfd_open = open_pidfd\n"
                  "    with open('failed.new', 'w') as file:\n        file.write(str(pid))\n    os.rename('failed.new', 'failed')\n"
                  "    raise OSError('no descriptor')\nos.pidfd_open = fails_once\nasync def bot(args):\n    print('ran')\n")
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder, ours, ours.makefile("rb") as lines:
            pathlib.Path(folder, "bot.py").write_text(source)
            pathlib.Path(folder, "package.py").write_text(program_of_package())
            with theirs:
                process = subprocess.Popen([sys.executable, "package.py", "bot.py"], stdin=theirs, cwd=folder,
                                           env={"EDGE_RUNNER_WARM": "fork"})
            with process, contextlib.ExitStack() as at_end, open(os.path.join(folder, "out"), "w+") as out:
                at_end.callback(process.kill)
                self.assertEqual(json.loads(lines.readline())["mode"], "fork")
                failed = pathlib.Path(folder, "failed")
                until(failed.exists)
                socket.send_fds(ours, [b'{"call":1,"arguments":{}}\n'], [out.fileno(), out.fileno()])
                started, ended = json.loads(lines.readline()), json.loads(lines.readline())
                self.assertEqual((started["call"], ended), (1, {"call": 1, "exit": 0}))
                self.assertIsNone(state(int(failed.read_text())), "it was reaped")
                out.seek(0)
                self.assertEqual(out.read(), "ran\n")
                ours.shutdown(socket.SHUT_RDWR)
                process.wait()

    def test_a_child_may_have_any_descriptor(self):
        from edge_runner.warm import is_readable

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2000:
            lacks(self, "2,000 file descriptors: ulimit -Hn 2000, as root")
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
        ours, theirs = socket.socketpair()
        with ours, theirs, socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD, 1024)) as high:
            self.assertFalse(is_readable(high))
            ours.sendall(b"+")
            self.assertTrue(is_readable(high))

    def test_children_that_die_unused_are_forked_ever_more_rarely(self):
        from edge_runner.warm import SPARE_AFTER_S, SPARE_PAUSE_MAX_S, SpareClock

        clock = SpareClock(10)
        self.assertEqual(clock.due_s, 10 + SPARE_AFTER_S)
        pauses = []
        for _ in range(10):
            now = clock.due_s
            clock.handle_death(now)
            pauses.append(clock.due_s - now)
        self.assertEqual(pauses[:4], [1, 2, 4, 8])
        self.assertEqual(pauses[-1], SPARE_PAUSE_MAX_S)
        clock.handle_call(20)
        self.assertEqual(clock.due_s, now + SPARE_PAUSE_MAX_S, "a call makes none of them live longer")
        clock.handle_use(1000)
        self.assertEqual(clock.due_s, 1000 + SPARE_AFTER_S)
        clock.handle_death(1000)
        self.assertEqual(clock.due_s, 1001)
        clock.handle_refusal(1001)
        self.assertEqual(clock.due_s, 1001 + SPARE_PAUSE_MAX_S)
        self.assertEqual((clock.wait_ms(1060.5), clock.wait_ms(2000)), (500, 0))

    def test_a_call_that_waits_for_its_process_does_not_wait_for_a_rehearsal(self):
        from edge_runner import warm

        ours, theirs = socket.socketpair()
        is_readable = warm.is_readable

        def call_and_see(connection, limit_s=0):
            if limit_s:
                ours.sendall(b'{"call":0,"arguments":{}}\n')
            return is_readable(connection, limit_s)

        control = warm.Control.__new__(warm.Control)
        control._socket, control._received, control._descriptors = theirs, b"", []
        control._rehearse = mock.Mock(side_effect=AssertionError("the call waits"))
        with ours, theirs, mock.patch.object(warm, "is_readable", call_and_see):
            self.assertEqual(control._next_call(), {"call": 0, "arguments": {}})

    def test_a_call_does_not_wait_for_a_child_that_rehearses(self):
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder, ours, ours.makefile("rb") as lines:
            pathlib.Path(folder, "bot.py").write_text("import os\nasync def bot(args):\n    print('ran', os.getpid(), flush=True)\n")
            # It rehearses until the test writes.
            pathlib.Path(folder, "package.py").write_text(program_of_package(rehearsal="open('gate').read()"))
            os.mkfifo(os.path.join(folder, "gate"))
            with theirs:
                process = subprocess.Popen([sys.executable, "package.py", "bot.py"], stdin=theirs, stdout=subprocess.PIPE,
                                           cwd=folder, env={"EDGE_RUNNER_WARM": "fork"})
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            self.assertEqual(json.loads(lines.readline())["mode"], "fork")

            def call(number):
                out = process.stdout.fileno()
                socket.send_fds(ours, [b'{"call":%d,"arguments":{}}\n' % number], [out, out])
                started, ended = json.loads(lines.readline()), json.loads(lines.readline())
                self.assertEqual(ended["call"], number)
                return started["pid"]

            with process, contextlib.ExitStack() as at_end:
                at_end.callback(process.kill)
                rehearses, = until(lambda: [pid for pid in map(int, children.read_text().split()) if state(pid) == "S"])
                self.assertNotEqual(call(1), rehearses)
                with open(os.path.join(folder, "gate"), "w"):
                    pass
                until(lambda: call(2) == rehearses)
                ours.shutdown(socket.SHUT_RDWR)
                process.wait()

    def test_a_child_that_takes_its_call_at_once_is_kept(self):
        from edge_runner.warm import Child

        class Fast(socket.socket):
            """The other end has closed by the time that the call is sent."""

            def sendmsg(self, *arguments):
                sent = super().sendmsg(*arguments)
                child.recv(65536)
                child.sendall(b"+")
                child.close()
                return sent

        parent, child = socket.socketpair()
        waiting = Child(0)
        waiting.connection = Fast(fileno=parent.detach())
        with open(os.devnull) as stream, mock.patch("os.kill") as kill:
            self.assertTrue(waiting.give({"call": 1}, [stream.fileno(), stream.fileno()]))
        kill.assert_not_called()

    def test_one_that_waits_for_its_only_call_answers_pings(self):
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder, ours, ours.makefile("rb") as lines:
            pathlib.Path(folder, "bot.py").write_text("async def bot(args):\n    print(args)\n")
            pathlib.Path(folder, "package.py").write_text(program_of_package())
            with theirs:
                process = subprocess.Popen([sys.executable, "package.py", "bot.py"], stdin=theirs, stdout=subprocess.PIPE,
                                           cwd=folder, env={"EDGE_RUNNER_WARM": "once"})
            hello = json.loads(lines.readline())
            self.assertEqual((hello["mode"], hello["pings"]), ("once", True))
            for number in (1, 2):
                ours.sendall(b'{"ping":%d}\n' % number)
                self.assertEqual(json.loads(lines.readline()), {"pong": number})
            ours.sendall(b'{"ping":3}\n{"call":0,"arguments":{"kind":"base"}}\n')
            self.assertEqual(process.communicate()[0], b"{'kind': 'base'}\n")

    def test_a_bot_that_changes_its_folder_is_loaded_all_the_same(self):
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder, ours, ours.makefile("rb") as lines:
            file = pathlib.Path(folder, "bot.py")
            file.write_text("import os\nos.chdir('/')\nasync def bot(args):\n    print(args)\n")
            pathlib.Path(folder, "package.py").write_text(program_of_package())
            with theirs:
                process = subprocess.Popen([sys.executable, "package.py", "bot.py"], stdin=theirs, stdout=subprocess.PIPE,
                                           cwd=folder, env={"EDGE_RUNNER_WARM": "once"})
            hello = json.loads(lines.readline())
            self.assertEqual((hello.get("mode"), hello.get("files", [None])[0]), ("once", str(file.resolve())), hello)
            ours.sendall(b'{"call":0,"arguments":{"kind":"base"}}\n')
            self.assertEqual(process.communicate()[0], b"{'kind': 'base'}\n")

    def test_a_child_ends_without_what_native_libraries_do_at_the_end(self):
        # As onnxruntime, which aborts there or waits for ever: its thread is in the parent alone.
        source = ("import atexit, ctypes\nlibc = ctypes.CDLL(None)\nlibc.__cxa_atexit(libc.abort, None, None)\n"
                  "atexit.register(print, 'the end')\nasync def bot(args):\n    print('the call')\n")
        self.assertEqual(self.fork(source), ({"call": 7, "exit": 0}, "the call\nthe end\n", ""))

    def test_the_exit_of_a_child_is_that_of_its_bot(self):
        bot = "import sys\nasync def bot(args):\n    "
        for line, code, said in (("sys.exit(7)", 7, ""), ("sys.exit()", 0, ""), ("sys.exit('no key')", 1, "no key\n")):
            self.assertEqual(self.fork(bot + line), ({"call": 7, "exit": code}, "", said), line)
        ended, _, log = self.fork(bot + "1 / 0")
        self.assertEqual(ended, {"call": 7, "exit": 1})
        self.assertTrue(log.endswith("ZeroDivisionError: division by zero\n"), log)


# Node 22 has it without the option, Node 18 has neither.
NODE = ("node", "--experimental-websocket")


class Node(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        if not shutil.which("node") or subprocess.run([*NODE, "--version"], capture_output=True).returncode:
            lacks(self, "the example of a bot in Node: Node 22 or later, of https://nodejs.org")

    async def test_the_example_waits_for_its_call_and_plays_it_back(self):
        ours, theirs = socket.socketpair()
        heard = speech(b"\1\2", 16_000)
        async with Peer([(0x82, heard)]) as peer:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *NODE, ROOT / "examples/bots/warm_echo.mjs", stdin=theirs,
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "EDGE_RUNNER_WARM": "once"})
            reader, writer = await asyncio.open_connection(sock=ours)
            hello = json.loads(await reader.readline())
            self.assertEqual((hello["hello"], hello["mode"], hello["pings"]), (1, "once", True))
            self.assertEqual(hello["files"], [str(ROOT / "examples/bots/warm_echo.mjs")])
            writer.write(b'{"ping":3}\n')
            self.assertEqual(json.loads(await reader.readline()), {"pong": 3})
            call = {"call": 0, "arguments": {"kind": "websocket", "media_url": peer.url}}
            writer.write(json.dumps(call).encode() + b"\n")
            self.assertEqual(await process.stdout.readline(), b"a call of kind websocket\n")

            async def echo():
                while not peer.read:
                    await asyncio.sleep(0.01)

            await asyncio.wait_for(echo(), 30)
            writer.close()
            self.assertEqual(await process.wait(), 0, "it ends with the runner")
        self.assertEqual(peer.read, [(2, media.read_fields(heard))])


class Files(unittest.TestCase):
    def run_file(self, source, *arguments, **variables):
        """Runs a file as the runner does, and returns its exit code, stdout and stderr."""
        program = program_of_package()
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "beside.py").write_text("WORD = 'beside'\n")
            pathlib.Path(folder, "bot.py").write_text(source)
            done = subprocess.run(
                [sys.executable, "-", "bot.py", *arguments],
                input=program, capture_output=True, text=True, cwd=folder, env={"RUNNER_ARGUMENTS": "{}", **variables})
        return done.returncode, done.stdout, done.stderr

    def test_a_file_without_pipecat_runs_as_it_is(self):
        source = "import sys, beside\nif __name__ == '__main__':\n print(beside.WORD, sys.argv, __file__, sys.stdin.read())\n"
        code, said, log = self.run_file(source, "--a", "b")
        self.assertEqual((code, said), (0, "beside ['bot.py', '--a', 'b'] bot.py \n"), log)

    def test_an_exception_is_a_traceback_with_the_line_of_the_file(self):
        code, _, log = self.run_file("\nraise ValueError('no key')\n")
        self.assertEqual(code, 1)
        self.assertIn('File "bot.py", line 2', log)
        self.assertTrue(log.endswith("ValueError: no key\n"), log)

    def test_the_doctor_names_missing_modules_and_failed_imports(self):
        def report(source):
            code, said, log = self.run_file(source, EDGE_RUNNER_CHECK="1")
            self.assertEqual(code, 0, log)
            return json.loads(said)

        missing = report("import json, no_such_module\nfrom no_such.thing import x\nprint('not reached')\n")
        self.assertEqual(missing["missing"], ["no_such.thing", "no_such_module"])
        failed = report("print('hi')\n1 / 0\n")
        self.assertEqual(failed["error"], "ZeroDivisionError: division by zero")
        good = report("import beside\nif __name__ == '__main__':\n raise SystemExit(3)\n")
        self.assertEqual((good["missing"], good["error"]), ([], None))
        self.assertGreaterEqual(good["import_ms"], 0)
        self.assertEqual(check.missing_modules("def f():\n import no_such_module\n"), [])


if __name__ == "__main__":
    unittest.main()
