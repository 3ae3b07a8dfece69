"""The resources of a check: a server, runners, callers; all of them are stopped afterwards."""

import asyncio
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from livekit import api

from caller import Caller
from published_server import PublishedServer
from runner import Runner
from server import KEY, SECRET, Server, token


class World:
    def __init__(self, binary, server, published, address):
        """With `published` every server is the published one."""
        self.binary, self.server_binary, self.published, self.address = binary, server, published, address
        self.servers, self.runners, self.callers, self.sites, self.processes = [], [], [], [], []

    def server(self, *args, settings=None, site=None):
        """`site` is a network of its own for a published server."""
        if self.published:
            address, inside = (site.address, site.inside) if site else (self.address, ())
            self.servers.append(PublishedServer(self.published, address, *args, settings=settings, inside=inside))
        else:
            self.servers.append(Server(self.server_binary, *args))
        return self.servers[-1]

    def runner(self, *args, url=None, secret=SECRET, binary=None, inside=(), port=0, **variables):
        """Starts a runner for the server, with `-t mediaroom` as the default of `/start`. `binary` may have another bot;
        `inside` begins a command that runs it elsewhere."""
        told = {"MEDIAROOM_URL": url or self.servers[-1].url, "MEDIAROOM_API_KEY": KEY, "MEDIAROOM_API_SECRET": secret}
        self.runners.append(Runner(binary or self.binary, "-t", "mediaroom", *args, inside=inside, port=port,
                                   variables={**told, **variables}))
        return self.runners[-1]

    def api(self):
        """The API of the last server, for `async with`."""
        return api.LiveKitAPI(self.servers[-1].url.replace("ws", "http", 1), KEY, SECRET)

    def process(self, command, env):
        self.processes.append(Process(command, env))
        return self.processes[-1]

    async def caller(self, url, room_token, hz=440, talks=True, quiet=False):
        caller = Caller(hz, quiet)
        self.callers.append(caller)
        await caller.join(url, room_token)
        if talks:
            await caller.talk()
        return caller

    async def begin(self, runner, body=None):
        """Calls `/start` and returns its answer."""
        status, answer = await runner.fetch("POST", "/start", {"body": body or {}})
        assert status == 200, (status, answer)
        return answer

    async def call(self, runner, hz=440, talks=True, body=None, quiet=False):
        """Calls `/start` and joins a caller. Returns the caller, the answer, and the bot's identity."""
        answer = await self.begin(runner, body)
        caller = await self.caller(answer["url"], answer["token"], hz, talks, quiet)
        return caller, answer, await self.bot(caller, answer)

    async def bot(self, caller, answer):
        """Waits for the bot in the room and returns its identity."""
        ending = "Agent-" + answer["sessionId"][:8]

        def there():
            others = caller.room.remote_participants
            return next((identity for identity in others if identity.endswith(ending)), None)

        bot = await caller.until(there, f"a participant named like {ending}")
        # A message to a participant that is still joining is lost.
        reached = lambda stats: stats["rooms"].get(answer["roomName"], {}).get(bot, {}).get("state") == 2
        await self.servers[-1].until(reached, f"{bot} is within reach")
        return bot

    def log_text(self):
        texts = [one.log_text() for one in (*self.runners, *self.processes, *self.servers)]
        return "\n".join(texts)

    async def stop(self):
        for caller in self.callers:
            try:
                await caller.leave()
            except Exception as error:
                print(f"a caller left badly: {error!r}")
        for one in (*self.runners, *self.processes, *self.servers):
            one.stop()
        for site in self.sites:
            site.close()


class Process:
    """A program beside the runner."""

    def __init__(self, command, env):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="room-process-")
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env={**os.environ, **env}, start_new_session=True)

    def log_text(self):
        return pathlib.Path(self.log.name).read_text()[-6000:]

    async def wait_for(self, words, limit_s):
        start = time.monotonic()
        while words not in self.log_text():
            if time.monotonic() - start > limit_s or self.process.poll() is not None:
                raise AssertionError(f"not said within {limit_s} s: {words}")
            await asyncio.sleep(0.05)

    def stop(self):
        """Ends it and its children."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
