"""The session of this process: its arguments, and the objects that stand for the caller.

In: the JSON object of RUNNER_ARGUMENTS. Out: a stand-in for the connection that Pipecat's own runner
gives to a bot. The media belongs to the transport; a stand-in only passes on to it.
"""

import asyncio
import inspect
import json
import os
import sys


def providers():
    """Returns Pipecat's name of each telephony provider by its name in the arguments; the runner has the table."""
    return json.loads(os.environ.get("EDGE_RUNNER_OPTIONS", "{}")).get("providers", {})


class Session:
    def __init__(self, arguments):
        self.arguments = arguments
        self.id = arguments.get("session_id")
        self.kind = arguments.get("kind", "base")
        self.media_url = arguments.get("media_url")
        kind = arguments.get("transport_type")
        known = providers()
        self.transport_type = known.get(kind, kind)
        self.is_telephone = kind in known
        self.is_eval = kind == "eval"
        self.transport = None
        """The transport that has the media."""
        self.refused = None
        """Why it has none, in a pipeline that runs."""


class Caller:
    """A stand-in for the connection of a caller."""

    STANDS_FOR = ""

    def __init__(self, session):
        self.session = session

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"`{name}`: the runner has the connection of the caller, and in its place gives a bot an object without the "
            f"`{name}` of {self.STANDS_FOR}; use the transport"
        )

    async def _close(self):
        if self.session.transport:
            await self.session.transport.close()

    def fire(self, event, *arguments):
        """Starts the object's own handlers of an event."""

    async def finish(self):
        """Waits for them, but for the one that waits itself."""


class WebRtcCaller(Caller):
    STANDS_FOR = "SmallWebRTCConnection"

    def __init__(self, session):
        super().__init__(session)
        self.pc_id = (session.arguments.get("webrtc_connection") or {}).get("pc_id") or session.id
        self._handlers = {}
        self._running = set()

    def event_handler(self, event):
        def register(handler):
            self._handlers.setdefault(event, []).append(handler)
            return handler

        return register

    def fire(self, event, *arguments):
        # As tasks: one may end the pipeline, and with it what has called this.
        for handler in self._handlers.get(event, ()):
            task = asyncio.get_running_loop().create_task(self._handle(event, handler, arguments))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _handle(self, event, handler, arguments):
        try:
            done = handler(self, *arguments)
            if inspect.isawaitable(done):
                await done
        except Exception as error:
            print(f"ERROR edge_runner: the handler of `{event}` of the connection failed: {error!r}", file=sys.stderr)

    async def finish(self):
        running = self._running - {asyncio.current_task()}
        if running:
            await asyncio.wait(running)

    def is_connected(self):
        return self.session.transport is not None and self.session.transport.is_connected

    def send_app_message(self, message):
        if self.session.transport:
            self.session.transport.post(message)

    async def disconnect(self):
        await self._close()


class WebSocketCaller(Caller):
    STANDS_FOR = "a FastAPI WebSocket"

    def __init__(self, session, parsed):
        super().__init__(session)
        self.headers, self.query_params, self.path_params = {}, {}, {}
        # Where Pipecat's `parse_telephony_websocket` keeps what it has read.
        self._pipecat_parsed_telephony = parsed

    async def accept(self, *_, **__):
        pass

    async def close(self, *_, **__):
        await self._close()
