"""Redirects what a bot file imports of Pipecat's runner and transports, when it imports it.

Some modules are replaced by stand-ins, which are also faster to import than FastAPI and aiortc; any
other name of such a module is that of the real one. Others are patched once they are loaded.
"""

import importlib.abc
import importlib.util
import sys
import types
from importlib.machinery import ModuleSpec, PathFinder

from . import Refused


class Hooks(importlib.abc.MetaPathFinder):
    """`runner` has the functions that take the place of Pipecat's runner."""

    def __init__(self, runner):
        self.stand_ins = {
            "pipecat.runner.run": lambda module: stand_in_runner(module, runner),
            "pipecat.transports.smallwebrtc.transport": stand_in_webrtc,
            "pipecat.transports.smallwebrtc.connection": stand_in_connection,
            "pipecat.transports.websocket.fastapi": stand_in_websocket,
        }
        if not is_installed("daily"):
            self.stand_ins["pipecat.transports.daily.transport"] = stand_in_daily
        self.patches = {
            "pipecat.runner.utils": lambda module: patch_utils(module, runner),
            "pipecat.serializers.twilio": patch_serializers,
            "pipecat.serializers.telnyx": patch_serializers,
            "pipecat.serializers.plivo": patch_serializers,
        }

    def install(self):
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name in self.stand_ins:
            return ModuleSpec(name, StandIn(self.stand_ins[name], path))
        if name in self.patches:
            spec = PathFinder.find_spec(name, path)
            if spec and spec.loader:
                spec.loader = Patched(spec.loader, self.patches[name])
            return spec
        return None


class StandIn(importlib.abc.Loader):
    def __init__(self, fill, path):
        self.fill, self.path = fill, path

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        real = []

        def of_real_module(name):
            if name.startswith("__"):
                raise AttributeError(name)
            if not real:
                spec = PathFinder.find_spec(module.__name__, self.path)
                loaded = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(loaded)
                real.append(loaded)
            return getattr(real[0], name)

        module.__getattr__ = of_real_module
        self.fill(module)


class Patched(importlib.abc.Loader):
    def __init__(self, loader, patch):
        self.loader, self.patch = loader, patch

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        self.patch(module)


def is_installed(name):
    return PathFinder.find_spec(name) is not None


def stand_in_runner(module, runner):
    def missing(name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"pipecat.runner.run has no `{name}` here: edge-runner is the server, and the file is only a bot")

    module.__getattr__ = missing
    module.main = runner.main
    module.app = App()
    module.runner_downloads_folder = lambda: runner.options.downloads_folder
    module.runner_host = lambda: runner.options.host
    module.runner_port = lambda: runner.options.port


class App:
    """In place of the FastAPI application of Pipecat's runner: there is one process per call, so a bot
    serves no routes."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def method(*arguments, **_):
            path = next((word for word in arguments if isinstance(word, str)), "")
            print(f"WARNING edge_runner: app.{name}({path!r}) has no effect: a bot serves no routes", file=sys.stderr)
            return lambda function: function

        return method


def stand_in_webrtc(module):
    from . import transport

    module.SmallWebRTCTransport = transport.SmallWebRTCTransport
    module.SmallWebRTCInputTransport = transport.EdgeInput
    module.SmallWebRTCOutputTransport = transport.EdgeOutput


def stand_in_connection(module):
    from .session import WebRtcCaller

    module.SmallWebRTCConnection = WebRtcCaller


def stand_in_websocket(module):
    from pipecat.transports.base_transport import TransportParams

    from . import transport

    class FastAPIWebsocketParams(TransportParams):
        """The parameters of Pipecat's class. `session_timeout` has an effect; the runner does the rest."""

        add_wav_header: bool = False
        serializer: object | None = None
        session_timeout: int | None = None
        fixed_audio_packet_size: int | None = None
        allowed_origins: list[str] = []
        ws_close_timeout: float = 0.5

    FastAPIWebsocketParams.__module__ = module.__name__
    module.FastAPIWebsocketParams = FastAPIWebsocketParams
    module.FastAPIWebsocketTransport = transport.FastAPIWebsocketTransport
    module.FastAPIWebsocketInputTransport = transport.EdgeInput
    module.FastAPIWebsocketOutputTransport = transport.EdgeOutput


def stand_in_daily(module):
    """Most bots import DailyParams, and few enter rooms of Daily, whose package is not for every board."""
    from pydantic import ConfigDict
    from pipecat.frames import frames
    from pipecat.transports.base_transport import TransportParams

    class DailyParams(TransportParams):
        model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    class Daily:
        def __init__(self, *_, **__):
            raise Refused(
                f"The bot joins this room of Daily by itself, and its Python has no daily-python: {sys.executable} -m pip install "
                "'pipecat-ai[daily]' (not for 32-bit ARM)."
            )

    def of_daily(name):
        """Returns one of Pipecat's frames under its name for Daily; else what nothing makes without a room."""
        if not name.startswith("Daily"):
            raise AttributeError(name)
        base = getattr(frames, name.removeprefix("Daily"), Daily)
        setattr(module, name, type(name, (base,), {"__module__": module.__name__}))
        return getattr(module, name)

    DailyParams.__module__ = module.__name__
    module.DailyParams, module.__getattr__ = DailyParams, of_daily


def patch_utils(module, runner):
    original = module.create_transport

    async def create_transport(runner_args, transport_params):
        transport = runner.create_transport(runner_args, transport_params)
        return transport or await original(runner_args, transport_params)

    module.create_transport = create_transport


def patch_serializers(module):
    """The runner ends telephone calls and has the secrets for it, so no serializer asks for them."""
    for serializer in list(vars(module).values()):
        parameters = getattr(serializer, "InputParams", None)
        if isinstance(serializer, type) and "auto_hang_up" in getattr(parameters, "model_fields", {}):
            without_hang_up(serializer, parameters)


def without_hang_up(serializer, parameters):
    original = serializer.__init__

    def __init__(self, *arguments, **keywords):
        params = keywords.get("params") or parameters()
        keywords["params"] = params.model_copy(update={"auto_hang_up": False})
        original(self, *arguments, **keywords)

    serializer.__init__ = __init__
