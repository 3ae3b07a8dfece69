"""The resources of a check: a server, runners, callers; all of them are stopped afterwards."""

import asyncio
import time

from caller import Caller
from runner import Runner
from server import KEY, SECRET, Server, token


class World:
    def __init__(self, binary, server, address):
        self.binary, self.server_binary, self.address = binary, server, address
        self.servers, self.runners, self.callers = [], [], []

    def server(self, *args):
        self.servers.append(Server(self.server_binary, *args))
        return self.servers[-1]

    def runner(self, *args, url=None, secret=SECRET, binary=None, **variables):
        """Starts a runner for the server, with `-t mediaroom` as the default of `/start`. `binary` may have another bot."""
        told = {"MEDIAROOM_URL": url or self.servers[-1].url, "MEDIAROOM_API_KEY": KEY, "MEDIAROOM_API_SECRET": secret}
        self.runners.append(Runner(binary or self.binary, "-t", "mediaroom", *args, variables={**told, **variables}))
        return self.runners[-1]

    async def caller(self, url, room_token, hz=440, talks=True):
        caller = Caller(hz)
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

    async def call(self, runner, hz=440, talks=True, body=None):
        """Calls `/start` and joins a caller. Returns the caller, the answer, and the bot's identity."""
        answer = await self.begin(runner, body)
        caller = await self.caller(answer["url"], answer["token"], hz, talks)
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
        texts = [runner.log_text() for runner in self.runners] + [server.log_text() for server in self.servers]
        return "\n".join(texts)

    async def stop(self):
        for caller in self.callers:
            try:
                await caller.leave()
            except Exception as error:
                print(f"a caller left badly: {error!r}")
        for one in (*self.runners, *self.servers):
            one.stop()
