"""A network of its own for a runner, behind a firewall that a check changes, and a signalling proxy that injects faults."""

import asyncio
import os
import pathlib
import subprocess
import sys

import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.datastructures import Headers
from websockets.http11 import Response

from published_server import TCP_PORT, UDP_PORT

# The bridge and the network of `stage.py`.
BRIDGE, NETWORK = "eth0", "10.99.0"


def sh(*command, feed=None):
    done = subprocess.run([str(part) for part in command], input=feed, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Site:
    """A namespace with one cable to the bridge."""

    made = 0

    def __init__(self):
        Site.made += 1
        self.name = f"erroom-{os.getpid()}-{Site.made}"
        self.address = f"{NETWORK}.{10 + Site.made}"
        self.inside = ("ip", "netns", "exec", self.name)
        sh("ip", "netns", "add", self.name)
        self.port = f"site{Site.made}"
        sh("ip", "link", "add", self.port, "type", "veth", "peer", "name", "net0", "netns", self.name)
        sh("ip", "link", "set", self.port, "master", BRIDGE, "up")
        for command in ("link set lo up", f"address add {self.address}/24 dev net0", "link set net0 up"):
            sh("ip", "-n", self.name, *command.split())

    def block(self, *rules):
        """Replaces the firewall. A rule matches what leaves: `udp`, `udp dport 7882`, `tcp dport 7881`. TCP is refused,
        UDP vanishes in both directions."""
        lines = []
        for rule in rules:
            protocol = rule.split()[0]
            back = rule.replace("dport", "sport")
            if protocol == "tcp":
                lines.append(f"add rule inet firewall leaving {rule} reject with tcp reset")
            else:
                match = f"{rule} drop" if " " in rule else f"meta l4proto {protocol} drop"
                lines.append(f"add rule inet firewall leaving {match}")
                match = f"{back} drop" if " " in back else f"meta l4proto {protocol} drop"
                lines.append(f"add rule inet firewall arriving {match}")
        sh(*self.inside, "nft", "-f", "-", feed="\n".join([
            "add table inet firewall", "delete table inet firewall", "add table inet firewall",
            "add chain inet firewall leaving { type filter hook output priority filter; policy accept; }",
            "add chain inet firewall arriving { type filter hook input priority filter; policy accept; }", *lines]) + "\n")

    def no_udp(self):
        self.block("udp")

    def no_media_ports(self):
        """The media ports of the LiveKit server are closed, others are open."""
        self.block(f"udp dport {UDP_PORT}", f"tcp dport {TCP_PORT}")

    def open(self):
        self.block()

    def cut(self, is_cut=True):
        """Pulls the cable, or puts it back."""
        sh("ip", "link", "set", self.port, "down" if is_cut else "up")

    def close(self):
        for pid in sh("ip", "netns", "pids", self.name).split():
            # Only what was started in here lives in here.
            sh("kill", "-9", pid)
        sh("ip", "netns", "del", self.name)


# SignalRequest.simulate is member 13, its scenarios are booleans but for the fifth, which is 1 (TCP) or 2 (TLS).
SCENARIOS = {"node_failure": (2, 1), "migration": (3, 1), "server_leave": (4, 1), "switch_to_tcp": (5, 1), "switch_to_tls": (5, 2),
             "cut_on_resume": (7, 1), "cut_on_resume_without_messages": (8, 1)}


class Proxy:
    """Passes signalling on between a runner and a server, and lets the server simulate faults for the runner."""

    def __init__(self, address, server):
        self.address, self.server = address, server
        self.requests = []
        self.upstream = None
        self.downstream = None

    async def start(self):
        self.listener = await serve(self.handle, self.address, 0, process_request=self.dial, max_size=None, ping_interval=None)
        self.url = f"ws://{self.address}:{self.listener.sockets[0].getsockname()[1]}"
        return self

    async def dial(self, connection, request):
        """Answers with the refusal of the server, or goes on with its socket."""
        self.requests.append(request.path)
        headers = {"Authorization": request.headers["Authorization"]}
        try:
            connection.upstream = await connect(self.server + request.path, additional_headers=headers, max_size=None,
                                                ping_interval=None, compression=None)
        except websockets.InvalidStatus as refused:
            return Response(refused.response.status_code, "refused", Headers(), refused.response.body)
        except OSError:
            return Response(502, "no server", Headers(), b"the server is away")

    async def handle(self, connection):
        self.upstream, self.downstream = connection.upstream, connection

        async def carry(source, sink):
            try:
                async for message in source:
                    await sink.send(message)
            except websockets.ConnectionClosed:
                pass
            await sink.close()

        await asyncio.gather(carry(connection, connection.upstream), carry(connection.upstream, connection))

    async def simulate(self, scenario):
        member, value = SCENARIOS[scenario]
        await self.upstream.send(bytes([13 << 3 | 2, 2, member << 3, value]))

    async def cut(self):
        """Breaks the signalling connection on both sides, without a close frame."""
        for side in (self.downstream, self.upstream):
            side.transport.abort()

    def resumes(self):
        return [path for path in self.requests if "reconnect=1" in path]

    async def stop(self):
        self.listener.close()


def coturn(*args):
    """Starts coturn for the check; the folder is the caller's."""
    return subprocess.Popen(["turnserver", "-n", "--no-cli", "--no-dtls", *args], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(f"{pathlib.Path(__file__).name} is a part of run.py")
