"""Two nodes of the published server with one Redis, a balancer before them, and three registered runners: each node and each
runner in a network of its own, whose cable can be pulled."""

import asyncio
import datetime
import subprocess
import tempfile
import time
import uuid

from livekit import api

from firewall import Site
from jobs import bots
from listener import Listener, until_all
from published_server import PORT
from server import KEY, SECRET, token

REDIS_PORT, RUNNER_PORT = 6379, 7860
RUNNER_KEY = "key-of-the-checks-0123456789"
# Of the talks of one check; the tones of callers differ.
TONES = [400 + 60 * n for n in range(16)]
# How many rooms are opened at a time.
AT_A_TIME = 3


class Redis:
    def __init__(self, address):
        self.address, self.folder = address, tempfile.TemporaryDirectory(prefix="redis-")
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            ["redis-server", "--bind", self.address, "--port", str(REDIS_PORT), "--protected-mode", "no", "--save", "",
             "--appendonly", "yes", "--appendfsync", "always", "--dir", self.folder.name],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 20
        while "PONG" not in self.ask("PING"):
            assert time.monotonic() < limit, "Redis did not start"
            time.sleep(0.05)

    def ask(self, *words):
        asked = ["redis-cli", "-h", self.address, "-p", str(REDIS_PORT), *words]
        return subprocess.run(asked, capture_output=True, text=True).stdout

    def kill(self):
        self.process.kill()
        self.process.wait()

    stop = kill

    def log_text(self):
        return ""


class Balancer:
    """Passes connections on to the nodes in turn, to those that accept them."""

    def __init__(self, address, nodes):
        self.address, self.nodes, self.turn = address, list(nodes), 0

    async def start(self):
        self.listener = await asyncio.start_server(self.handle, self.address, PORT)
        self.url = f"ws://{self.address}:{PORT}"
        return self

    async def dial(self):
        nodes = self.nodes[self.turn % len(self.nodes):] + self.nodes[:self.turn % len(self.nodes)]
        self.turn += 1
        for node in nodes:
            try:
                return await asyncio.wait_for(asyncio.open_connection(node, PORT), 2)
            except (OSError, TimeoutError):
                continue
        return None

    async def handle(self, reader, writer):
        node = await self.dial()
        if node is None:
            return writer.close()

        async def carry(source, sink):
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            sink.close()

        await asyncio.gather(carry(reader, node[1]), carry(node[0], writer))

    def close(self):
        self.listener.close()


class Talk:
    """A room with a caller, and the session of its bot."""

    def __init__(self, room, node, hz):
        self.room, self.node, self.hz, self.session_id = room, node, hz, str(uuid.uuid4())
        self.caller = Listener(hz)


class NodePair:
    def __init__(self, world, places, watched=True, departure_s=30):
        """`places` are those of each runner; with `watched` every runner is told of lost bots."""
        self.world, self.places, self.talks = world, places, []
        self.redis = Redis(world.address)
        world.processes.append(self.redis)
        self.runner_sites = [self.site() for _ in range(3)]
        hooks = [f"http://{site.address}:{RUNNER_PORT}/livekit-webhook" for site in self.runner_sites]
        settings = {"redis": {"address": f"{world.address}:{REDIS_PORT}"}, "webhook": {"api_key": KEY, "urls": hooks if watched else []},
                    "room": {"empty_timeout": 60, "departure_timeout": departure_s}}
        self.node_sites = {name: self.site() for name in "AB"}
        self.nodes = {name: world.server("--address", settings=settings, site=site) for name, site in self.node_sites.items()}

    def site(self):
        self.world.sites.append(Site())
        return self.world.sites[-1]

    async def start(self):
        self.balancer = await Balancer(self.world.address, [site.address for site in self.node_sites.values()]).start()
        self.world.sites.append(self.balancer)
        self.runners = [self.runner(n, first) for n, first in enumerate("AAB")]
        for runner in self.runners:
            await runner.wait_for_log("registered ", 30)
        homes = [(await self.worker(runner))["node"] for runner in self.runners]
        assert homes[0] == homes[1] != homes[2], homes
        self.node_ids = {"A": homes[0], "B": homes[2]}
        return self

    def runner(self, number, first):
        """Starts a runner that is registered at this node, and at the other when that is gone."""
        site = self.runner_sites[number]
        urls = [self.nodes[name].url for name in (first, "AB".replace(first, ""))]
        runner = self.world.runner("--register", "--bot", "echo", "--max-sessions", str(self.places), "--metrics", "any", "--drain", "300",
                                   "--api-key", RUNNER_KEY, "--host", site.address, url=",".join(urls), inside=site.inside, port=RUNNER_PORT)
        # Other machines see live sessions with the key only.
        runner.headers = {"Authorization": f"Bearer {RUNNER_KEY}"}
        return runner

    async def worker(self, runner):
        return (await runner.fetch("GET", "/status"))[1]["worker"]

    def api(self, node="B"):
        return api.LiveKitAPI(self.nodes[node].url.replace("ws", "http", 1), KEY, SECRET)

    async def talk(self, count, node=None, through="B"):
        """Opens rooms, on both nodes in turn or on one, each with a caller that hears its tone from the only bot. Returns them."""
        new = [Talk(f"room-{len(self.talks) + n}", node or "AB"[n % 2], TONES[len(self.talks) + n]) for n in range(count)]
        self.talks += new
        gate = asyncio.Semaphore(AT_A_TIME)

        async def begin(talk):
            async with gate:
                await self.make(talk, through)
                await self.join(talk)
                await talk.caller.until(lambda: bots(talk.caller), "a bot", 40)
                await talk.caller.hear(talk.hz)
                assert len(bots(talk.caller)) == 1, bots(talk.caller)

        await asyncio.gather(*(begin(talk) for talk in new))
        for talk in new:
            assert self.home(talk) == self.node_ids[talk.node], (talk.room, self.home(talk))
        return new

    async def make(self, talk, through="B"):
        """Makes a room on its node that asks for the bot."""
        wanted = api.RoomAgentDispatch(agent_name="bot", attributes={"edge.session_id": talk.session_id})
        async with self.api(through) as service:
            await service.room.create_room(
                api.CreateRoomRequest(name=talk.room, node_id=self.node_ids.get(talk.node, ""), agents=[wanted]))

    async def join(self, talk):
        self.world.callers.append(talk.caller)
        await talk.caller.join(self.balancer.url, token("anna", talk.room))
        await talk.caller.talk()

    def home(self, talk):
        """Returns the id of the node that has a room."""
        return self.redis.ask("HGET", "room_node_map", talk.room).strip()

    async def sessions(self, runner):
        """Returns the ids of a runner's sessions."""
        return {one["id"] for one in (await runner.fetch("GET", "/sessions"))[1]["sessions"]}

    async def talks_of(self, runner):
        ids = await self.sessions(runner)
        return [talk for talk in self.talks if talk.session_id in ids]

    async def counts(self):
        return [await runner.sessions() for runner in self.runners]

    async def one_bot_each(self, talks, node="B"):
        """Asserts by the server's own lists that each room has one bot."""
        async with self.api(node) as service:
            for talk in talks:
                people = (await service.room.list_participants(api.ListParticipantsRequest(room=talk.room))).participants
                there = [one.identity for one in people if one.attributes.get("lk.agent.name") == "bot"]
                assert len(there) == 1, (talk.room, there)

    async def back(self, talks, since, limit_s):
        """Waits until every caller hears a bot again, and for the end of what two bots in one room need to see each other."""
        took = await until_all(lambda caller: caller.heard_again(since), [talk.caller for talk in talks], "it hears a bot again", limit_s)
        await until_all(lambda caller: len(bots(caller)) == 1, [talk.caller for talk in talks], "it sees one bot", 15)
        return took


def logged(runner, words, since):
    """Returns how many seconds after the Unix time `since` each line of a runner's log with these words was written."""
    found = []
    for line in runner.log_text().splitlines():
        if words in line:
            at = datetime.datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp()
            if at >= since:
                found.append(at - since)
    return found


def gaps(talks, since):
    """Returns the longest silence of each talk after `since`, in seconds."""
    return [talk.caller.gap(since)[0] for talk in talks]


def most(values):
    return f"{max(values):.1f} s" if values else "none"


def span(values):
    """Returns the least and the most of some seconds."""
    if not values:
        return "none"
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return f"{low} s" if low == high else f"{low} to {high} s"

