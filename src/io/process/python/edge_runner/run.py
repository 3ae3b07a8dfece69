"""Runs a bot file: as `__main__`, with its own arguments, and Pipecat's runner replaced.

    edge-runner [OPTIONS] bot.py [BOT OPTIONS]

The arguments of the session are in RUNNER_ARGUMENTS. A file that calls `main()` of Pipecat's runner
has its `bot(runner_args)` run once, in this process. Any other file runs as it is.
"""

import argparse
import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import signal
import sys
import time
import types

from . import Refused, warm
from .hooks import Hooks
from .session import Session, WebRtcCaller, WebSocketCaller

STOP_S = 6
"""How long after SIGTERM a bot may run, which comes 2 s after the end of its call. The runner kills it 10 s after that end."""


def run(arguments):
    """Runs `[bot.py, ...]`. Returns the exit code."""
    if os.environ.get("EDGE_RUNNER_CHECK"):
        from .check import check

        return check(arguments[0])
    control = warm.control()
    try:
        code = run_file(pathlib.Path(arguments[0]), arguments[1:], control)
    except BaseException as error:
        if not (control and control.is_child):
            raise
        code = warm.exit_code(error)
    if control and control.is_child:
        warm.end_child(code)
    return code


def run_file(file, arguments, control):
    if control and not is_loadable(file):
        control.refuse()
        return 0
    runner = Runner(file, json.loads(os.environ.get("RUNNER_ARGUMENTS", "{}")), control)
    Hooks(runner).install()
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        module = load(file, "__main__")
        if not runner.has_run and inspect.iscoroutinefunction(getattr(module, "bot", None)):
            if "pipecat" in sys.modules:
                runner.main()
            elif warm.has_bare_bot(runner.path.read_text(errors="replace")):
                runner.run_bare(module.bot)
        if control and control.is_waiting:
            control.refuse()
    except Refused as refused:
        if control and control.is_waiting:
            control.fail(refused, file)
        print(f"ERROR edge_runner: {refused}", file=sys.stderr)
        return 1
    except (Exception, SystemExit) as error:
        if control and control.is_waiting:
            control.fail(error, file)
        raise
    return 0


def is_loadable(file):
    """Whether a file can be loaded before its call. A file with an error in it is loaded, which reports it."""
    try:
        return warm.is_loadable(file)
    except (OSError, SyntaxError):
        return True


def load(file, name):
    """Executes a file as a module of this name."""
    module = types.ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    return module


class Runner:
    """In place of `pipecat.runner.run`."""

    def __init__(self, file, arguments, control=None):
        self.file = file
        self.path = file.resolve()
        """The file wherever the bot changes the working directory to."""
        self.control = control
        """The connection of a process that is started before its call."""
        self.session = Session(arguments)
        self.options = options(None).parse_args([])
        self.has_run = False
        self.create_file_storage = None
        """The function of this name beside `bot`."""
        os.environ["ENV"] = "local"
        self.env_file = load_dotenv(self.path)
        """The `.env` that was read."""

    def main(self, parser=None):
        """Pipecat's `main`: reads the options of the bot, and runs it for this session."""
        self.has_run = True
        parser = options(parser)
        self.options = parser.parse_args()
        self._warn_of_options(parser)
        set_log(self.options.verbose)
        bot = find_bot(self.path)
        self.create_file_storage = getattr(sys.modules.get(bot.__module__), "create_file_storage", None)
        if self.control:
            self._wait_for_call(self._rehearsal())
        asyncio.run(self._run(lambda: bot(self.runner_arguments())))

    def run_bare(self, bot):
        """Runs `async def bot(args)` of a file without Pipecat: `args` is the object of RUNNER_ARGUMENTS."""
        self.has_run = True
        if self.control:
            self._wait_for_call(lambda: asyncio.run(asyncio.sleep(0)))
        asyncio.run(self._run(lambda: bot(self.session.arguments)))

    def _wait_for_call(self, rehearse):
        self.session = Session(self.control.wait(warm.own_files(self.path, self.env_file), rehearse))

    def _rehearsal(self):
        """Returns what a process does while it waits for its call, so that its beginning takes less time."""
        if os.environ.get("PIPECAT_SETUP_FILES"):
            # Pipecat would call them for each pipeline, and they may count on one.
            return None
        try:
            from .rehearsal import rehearse
        except ImportError:
            # Of another version of Pipecat. Its calls begin without it.
            return None

        def rehearse_without_log():
            from loguru import logger

            logger.remove()
            began = time.monotonic()
            try:
                rehearse()
                said = f"A call was rehearsed in {time.monotonic() - began:.3f} s."
            except Exception as error:
                said = f"A call was not rehearsed, so the next one begins later: {error!r}"
            set_log(self.options.verbose)
            logger.debug(said)

        return rehearse_without_log

    def _warn_of_options(self, parser):
        if self.options.transport == "vonage":
            raise Refused("-t vonage: edge-runner does not speak with Vonage.")
        names = {action.dest: action.option_strings[-1] for action in parser._actions if action.option_strings}
        for option in SERVER:
            if getattr(self.options, option) != parser.get_default(option):
                warn(
                    f"{names[option]} after {self.file.name} has no effect: options of edge-runner stand before the file, those of the "
                    "bot after it"
                )

    async def _run(self, bot):
        task = asyncio.ensure_future(bot())
        loop = asyncio.get_running_loop()

        def stop():
            # The media closes with the call, and the bot ends by its `on_client_disconnected`.
            transport = self.session.transport
            loop.call_later(STOP_S if transport and transport.has_begun else 0, task.cancel)

        loop.add_signal_handler(signal.SIGTERM, stop)
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
        finally:
            # The bot has ended: a signal that comes now would only disturb the end of the loop.
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.session.refused:
            # Said at once, and the pipeline has ended by it.
            sys.exit(1)

    def runner_arguments(self):
        """Returns the arguments of the session as Pipecat's runner gives them."""
        arguments = runner_arguments(self.session)
        arguments.cli_args = self.options
        if self.options.runner_body and self.session.kind == "websocket":
            arguments.body = read_body(self.options.runner_body)
        arguments.file_storage = file_storage(self.session.arguments.get("uploads"), self.create_file_storage)
        return arguments

    def create_transport(self, runner_args, transport_params):
        """Returns a transport on the runner's media, or `None` where the bot joins a room by itself."""
        if self.session.kind == "base":
            raise Refused("This session has neither a caller nor a room: `/start` makes a room with `\"createDailyRoom\": true`.")
        from pipecat.runner import types as runner_types

        from . import transport

        session = self.session
        if isinstance(runner_args, runner_types.SmallWebRTCRunnerArguments):
            params = transport_params_of(transport_params, "webrtc")
            return transport.SmallWebRTCTransport(runner_args.webrtc_connection, params)
        if isinstance(runner_args, runner_types.WebSocketRunnerArguments) and session.is_eval:
            from . import evaluation

            return evaluation.create(runner_args.websocket, transport_params, runner_args.call_data.body)
        if isinstance(runner_args, runner_types.WebSocketRunnerArguments):
            params = transport_params_of(transport_params, session.transport_type)
            return transport.FastAPIWebsocketTransport(runner_args.websocket, params)
        if isinstance(runner_args, runner_types.MOQRunnerArguments):
            return transport.EdgeTransport(WebRtcCaller(session), transport_params_of(transport_params, "moq"))
        return None


def transport_params_of(transport_params, key):
    """Returns the parameters for a kind of caller, or those for WebRTC: the runner's media is the same
    for all."""
    chosen = key if key in transport_params else "webrtc"
    if chosen not in transport_params:
        raise Refused(f"The bot has no transport parameters for `{key}`: add the key to those given to create_transport.")
    if chosen != key:
        print(f"INFO edge_runner: the bot has no transport parameters for `{key}`, so it gets those for `{chosen}`", file=sys.stderr)
    return transport_params[chosen]()


def runner_arguments(session):
    from pipecat.runner import types as of_pipecat

    given = session.arguments
    call_data = given.get("call_data")
    if call_data is not None:
        kinds = {"telnyx": of_pipecat.TelnyxCallData, "exotel": of_pipecat.ExotelCallData}
        call_data = kinds.get(session.transport_type, of_pipecat.CallData).model_validate(call_data)
    common = {"body": given.get("body"), "session_id": session.id, "call_data": call_data}
    # Bots of Pipecat know no sound card; what they do for browsers fits it.
    if session.kind in ("webrtc", "local"):
        arguments = of_pipecat.SmallWebRTCRunnerArguments(webrtc_connection=WebRtcCaller(session), **common)
    elif session.kind == "websocket":
        parsed = (session.transport_type, call_data) if session.is_telephone or session.is_eval else None
        caller = WebSocketCaller(session, parsed)
        arguments = of_pipecat.WebSocketRunnerArguments(
            websocket=caller, transport_type=session.transport_type, **common
        )
    elif session.kind == "videoroom":
        arguments = of_pipecat.DailyRunnerArguments(room_url=given["room_url"], token=given.get("token"), **common)
    elif session.kind == "mediaroom":
        arguments = of_pipecat.LiveKitRunnerArguments(
            room_name=given["room_name"], url=given["url"], token=given["token"], **common
        )
    elif session.kind == "moq":
        arguments = of_pipecat.MOQRunnerArguments(
            relay_url=given.get("relay_url"),
            namespace=given.get("namespace"),
            participant_id=given.get("bot_id"),
            peer_id=given.get("client_id"),
            serve=bool(given.get("serve")),
            **common,
        )
    else:
        arguments = of_pipecat.RunnerArguments(**common)
    arguments.pipeline_idle_timeout_secs = given.get("idle_timeout", 300)
    return arguments


def file_storage(uploads, create):
    """Returns where the bot finds files that its caller has uploaded: in the folder of the runner, which stores them; else in
    the storage of the file, for URLs that something else makes."""
    if not uploads:
        own = create() if create else None
        if asyncio.iscoroutine(own):
            own.close()
            raise TypeError("create_file_storage() must be synchronous (got a coroutine)")
        return own
    try:
        from pipecat.utils.file_storage import LocalFileStorage
    except ImportError:
        warn("this version of Pipecat has no `file_storage`: the bot does not see the files of --uploads-folder")
        return None
    if create:
        warn("create_file_storage() has no effect: edge-runner stores uploads in its --uploads-folder, which the bot reads")
    return LocalFileStorage(uploads["folder"], uploads["max_files"])


def warn(text):
    print(f"WARNING edge_runner: {text}", file=sys.stderr)


def read_body(name):
    """Returns the content of a file in YAML or JSON."""
    import yaml

    try:
        return yaml.safe_load(pathlib.Path(name).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Refused(f"--runner-body {name} cannot be read: {error}") from None


def find_bot(file):
    """Returns the function `bot`, where Pipecat's runner looks for it."""
    if hasattr(sys.modules["__main__"], "bot"):
        return sys.modules["__main__"].bot
    if importlib.util.find_spec("bot"):
        return importlib.import_module("bot").bot
    for path in sorted(file.parent.glob("*.py")):
        if path.name not in ("server.py", file.name) and "def bot(" in path.read_text(errors="replace"):
            return importlib.import_module(path.stem).bot
    raise Refused(f"{file.name} has no function `bot`, and no file beside it has: async def bot(runner_args).")


def load_dotenv(file):
    """Reads `.env` of the folder of the file, or of one above, as Pipecat's runner does. Returns its path."""
    try:
        from dotenv import load_dotenv as load
    except ImportError:
        return None
    for folder in file.parents:
        if (folder / ".env").is_file():
            load(folder / ".env", override=True)
            return folder / ".env"
    return None


def set_log(verbose):
    """The log goes to stderr without times, which the runner adds. Pipecat logs what was said from
    DEBUG on."""
    from loguru import logger

    level = os.environ.get("LOGURU_LEVEL") or ("INFO", "DEBUG", "TRACE")[min(verbose, 2)]
    logger.remove()
    logger.add(sys.stderr, level=level, format="{level} {name}: {message}", colorize=False, diagnose=False)


SERVER = (
    "host port transport proxy direct downloads_folder uploads_folder uploads_folder_max_files dialin esp32 whatsapp ws_auth "
    "ice_servers allowed_origins moq_connect moq_bind moq_serve moq_namespace moq_tls_cert moq_tls_key moq_tls_insecure moq_tls_generate"
).split()
"""Options of Pipecat's runner that say what the server does."""


def options(parser):
    """Returns the parser of a bot with the options of Pipecat's runner, which bots read: some values are those of edge-runner."""
    given = json.loads(os.environ.get("EDGE_RUNNER_OPTIONS", "{}"))
    parser = parser or argparse.ArgumentParser(description="A bot of Pipecat, run by edge-runner")
    add = parser.add_argument
    add("--host", default=given.get("host", "localhost"))
    add("--port", type=int, default=given.get("port", 7860))
    add("-t", "--transport", default=given.get("transport"))
    add("-x", "--proxy")
    add("-d", "--direct", action="store_true")
    add("-f", "--downloads-folder", "--folder", dest="downloads_folder", default=given.get("downloads_folder"))
    add("-u", "--uploads-folder", dest="uploads_folder")
    add("--uploads-folder-max-files", type=int, default=10)
    add("--runner-body")
    add("-v", "--verbose", action="count", default=0, help="log more: -v what is said, -vv every frame")
    add("--dialin", action="store_true", default=True)
    add("--no-dialin", dest="dialin", action="store_false")
    add("--esp32", action="store_true")
    add("--whatsapp", action="store_true")
    add("--ws-auth", choices=["none", "token"], default="none")
    add("--ice-servers", nargs="*", default=[])
    add("--allowed-origins", nargs="*", default=[])
    add("--moq-connect")
    add("--moq-bind")
    add("--moq-serve", action="store_true")
    add("--moq-namespace")
    add("--moq-bot-id", default="response")
    add("--moq-client-id", default="request")
    add("--moq-tls-cert")
    add("--moq-tls-key")
    add("--moq-tls-insecure", action="store_true")
    add("--moq-tls-generate")
    return parser
