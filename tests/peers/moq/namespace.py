"""Checks in networks of their own: board, peers and relay in namespaces, joined by cables that lose and reorder packets.

A cable has a TUN device at each end, and this process in the middle, which delays IP packets and drops some: not each kernel has
the queueing discipline for that. Everything else is the kernel's: addresses, routes, sockets.
"""

import asyncio
import fcntl
import json
import os
import random
import struct
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager

from dial import Relay
from peer import Peer, hears_itself, losing, starts
from runner import Runner
from world import World, sh

LOSS, DELAY_S, LATE = 0.05, 0.02, 0.1
# Of the length of the audio: a player waits for what is late, and plays it no more.
LENGTH = 0.3
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
# The ends are named after this process, until they are moved.
COUNT = iter(range(10_000))
ASK = "import json, sys, urllib.request, urllib.error\n" \
    "method, url, body = sys.argv[1:]\n" \
    "request = urllib.request.Request(url, body.encode() or None, {'Content-Type': 'application/json'}, method=method)\n" \
    "try:\n    reply = urllib.request.urlopen(request, timeout=30)\nexcept urllib.error.HTTPError as error:\n    reply = error\n" \
    "print(reply.status, reply.read().decode())"


class Cable:
    """Two ends with addresses. `LOSS` of the packets are dropped each way, `LATE` of them overtaken by others."""

    def __init__(self, one, its, other, theirs, seed):
        self.dice, self.lost, self.passed = random.Random(seed), 0, 0
        self.ends = [self.end(host, address) for host, address in ((one, its), (other, theirs))]
        loop = asyncio.get_running_loop()
        for end, far in (self.ends, self.ends[::-1]):
            loop.add_reader(end, self.carry, end, far)

    def end(self, host, address):
        descriptor, name = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK), f"cable{os.getpid() % 10_000}-{next(COUNT)}"
        fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        sh("ip", "link", "set", name, "netns", host.name)
        host.ip("link", "set", name, "mtu", 1500, "up")
        host.ip("address", "add", f"{address}/30", "dev", name)
        return descriptor

    def carry(self, end, far):
        while True:
            try:
                packet = os.read(end, 2048)
            except OSError:
                return
            if self.dice.random() < LOSS:
                self.lost += 1
                continue
            self.passed += 1
            delay = DELAY_S * 3 if self.dice.random() < LATE else DELAY_S
            asyncio.get_running_loop().call_later(delay, self.put, far, packet)

    def put(self, far, packet):
        try:
            os.write(far, packet)
        except OSError:
            # The other end is down, or its queue is full: the packet is lost.
            self.lost += 1

    def lost_share(self):
        return self.lost / (self.lost + self.passed)

    def close(self):
        for end in self.ends:
            asyncio.get_running_loop().remove_reader(end)
            os.close(end)


class RunnerInside(Runner):
    """A runner in a namespace, asked from inside it."""

    def __init__(self, *args, inside, **how):
        self.inside = inside
        super().__init__(*args, inside=inside, **how)

    def call(self, method, path, body=None, limit_s=30):
        body = "" if body is None else json.dumps(body)
        asked = [*self.inside, sys.executable, "-c", ASK, method, self.url + path, body]
        status, reply = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split(" ", 1)
        return int(status), json.loads(reply)


@asynccontextmanager
async def network(*links):
    """Hosts and cables between them: pairs of names. The address of a host is 10.78.N.1 or .2 on its cable N."""
    with World() as world, ExitStack() as stack:
        hosts, cables = {}, []
        for number, pair in enumerate(links):
            for name in pair:
                if name not in hosts:
                    hosts[name] = world.host(name)
            cable = Cable(hosts[pair[0]], f"10.78.{number}.1", hosts[pair[1]], f"10.78.{number}.2", number)
            stack.callback(cable.close)
            cables.append(cable)
        yield hosts, cables


async def talk(runner, answers, host, cables):
    """Calls of the newest library and of Pipecat at once. Returns their shares."""
    async with Peer(answers[0], "0.5", 700, inside=host.inside) as one, Peer(answers[1], "pipecat", 990, inside=host.inside) as two:
        peers = (one, two)
        await asyncio.gather(*(peer.ready() for peer in peers))
        shares = await asyncio.gather(*(hears_itself(peer, 8, losing(cables, LENGTH)) for peer in peers))
        await asyncio.gather(*(peer.ask(7) for peer in peers))
        assert await runner.sessions() == len(peers)
        await asyncio.gather(*(peer.leave(goodbye=True) for peer in peers))
    return "shares " + ", ".join(f"{share:.3f}" for share in shares)


def told(cables):
    lost, passed = sum(cable.lost for cable in cables), sum(cable.passed for cable in cables)
    assert lost > 0.03 * (lost + passed) > 30, (lost, passed)
    return f"{lost} of {lost + passed} packets lost"


async def served(place):
    """in a network that loses 5 % of all packets each way and reorders 10 %, speech goes on: the runner's own port"""
    async with network(("board", "peer")) as (hosts, cables):
        runner = place.runner("--moq-bind", "10.78.0.1:0", kind=RunnerInside, inside=hosts["board"].inside)
        answers = [await starts(runner) for _ in range(2)]
        assert all("https://10.78.0.1:" in answer["moq"]["relayUrl"] for answer in answers), answers
        said = await talk(runner, answers, hosts["peer"], cables)
        place.done_with(runner)
        return f"{said}, {told(cables)}"


async def relayed(place):
    """the same on both ways to a relay, which so lose 10 %"""
    async with network(("board", "relay"), ("peer", "relay")) as (hosts, cables):
        # One address of the relay for both.
        address = "10.78.9.9"
        hosts["relay"].ip("address", "add", f"{address}/32", "dev", "lo")
        for number, name in enumerate(("board", "peer")):
            hosts[name].ip("route", "add", address, "via", f"10.78.{number}.2")
        with Relay(place.relay, inside=hosts["relay"].inside) as relay:
            runner = place.runner(
                "--moq-connect", f"https://{address}:{relay.port}/moq", "--moq-tls-cert", relay.cert, "--moq-tls-insecure",
                kind=RunnerInside, inside=hosts["board"].inside)
            answers = [await starts(runner) for _ in range(2)]
            said = await talk(runner, answers, hosts["peer"], cables)
            place.done_with(runner)
        return f"{said}, {told(cables)}"


RELAYED = {"lossy-relay": relayed}
CHECKS = {"lossy-network": served, **RELAYED}
