"""An aiortc caller in a network namespace, controlled by lines of JSON.

Each line in is `{"do": NAME, ...}`; each line out is what came of it, or `{"error": ...}`. The parent is `caller.py`.
"""

import asyncio
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("aiortc", "")]

import aioice.ice

# The caller of the other checks keeps to loopback; this one has interfaces.
get_host_addresses = aioice.ice.get_host_addresses

import aiortc
from client import Client
from forge import Forger
from runner import Runner

aioice.ice.get_host_addresses = get_host_addresses


class Remote(Runner):
    """A runner that another process started."""

    def __init__(self, url):
        self.url = url
        self.offered = self.answered = None

    async def fetch(self, method, path, body=None):
        began = time.monotonic()
        reply = await super().fetch(method, path, body)
        if path.endswith("/api/offer") and method == "POST":
            self.offered, self.answered = began, time.monotonic()
        return reply


class Caller:
    def __init__(self):
        self.client, self.forging = None, None

    async def connect(self, url, servers=(), relay_only=False):
        """Connects; times start when the offer is sent."""
        remote = Remote(url)
        self.client = Client(remote)
        policy = aiortc.RTCIceTransportPolicy.RELAY if relay_only else aiortc.RTCIceTransportPolicy.ALL
        self.client.config = aiortc.RTCConfiguration(
            iceServers=[aiortc.RTCIceServer(**server) for server in servers], iceTransportPolicy=policy)
        await self.client.connect()
        return self.connected()

    async def come_back(self):
        """Creates a new connection for the same bot, like a client after a network change."""
        await self.client.connect(restart=True)
        return self.connected()

    def connected(self):
        ready, remote = time.monotonic(), self.client.runner
        pair = self.client.pc.sctp.transport.transport._connection._nominated[1]
        ends = [f"{end.type} {end.host}:{end.port}" for end in (pair.local_candidate, pair.remote_candidate)]
        return {
            "answered_s": remote.answered - remote.offered,
            "connected_s": ready - remote.offered,
            "local": ends[0],
            "remote": ends[1],
        }

    async def hear(self, least):
        """Returns the share of the tone in the echo: of the first second with so much, or of the best of five."""
        shares = []
        while len(shares) < 5 and max(shares, default=0) < least:
            shares.append(self.client.share(await self.client.listen_for(1)))
        return {"share": max(shares)}

    async def message(self, characters):
        """Sends a long message and waits for its echo."""
        text = "m" * characters
        self.client.send({"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "2.1.0"}})
        await self.client.until(lambda: self.client.message("bot-ready", id="1"), "bot-ready")
        began = time.monotonic()
        self.client.send({"label": "rtvi-ai", "type": "client-message", "id": "2", "data": {"t": "long", "d": text}})
        answer = await self.client.until(lambda: self.client.message("server-response", id="2"), "its answer")
        return {"same": answer["data"]["d"] == text, "took_s": time.monotonic() - began}

    async def state(self):
        return {"connection": self.client.pc.connectionState}

    async def forge(self, source, runner, seconds, restarts=0):
        """Begins to send checks of this caller's session from another host's address and port; that takes so many seconds, once
        and after each of so many restarts of ICE."""
        forger = Forger(self.client)
        if not self.forging:
            # Later the session may have its maximum of addresses.
            assert await forger.is_answered(runner), "the checks are no good"

        async def run():
            await forger.flood(source, runner, seconds)
            for _ in range(restarts):
                await forger.restart_ice()
                await forger.flood(source, runner, seconds)
            return {"checks": forger.sent}

        self.forging = asyncio.create_task(run())
        return {}

    async def forged(self):
        return await self.forging

    async def hang_up(self):
        await self.client.close()
        self.client = None
        return {}

    async def fetch(self, url, method="GET", headers=None, body=None):
        """Sends any request. Returns the status, and the body if it is JSON."""
        request = urllib.request.Request(url, body and body.encode(), headers or {}, method=method)

        def fetch():
            try:
                with urllib.request.urlopen(request, timeout=10) as reply:
                    return reply.status, reply.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        status, text = await asyncio.to_thread(fetch)
        return {"status": status, "text": text}


async def main():
    caller = Caller()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        try:
            said = await getattr(caller, order.pop("do"))(**order)
        except Exception as error:
            said = {"error": repr(error)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
