"""A runner behind a firewall, and faults of the published server: the talk comes up, and goes on with one bot."""

import asyncio
import subprocess
import tempfile
import time

from caller import PATIENCE_S
from reference import judge
from firewall import Proxy, Site, coturn
from published_server import TCP_PORT, UDP_PORT
from server import KEY, SECRET

# Of the audio of a talk: what the client has not played yet, and the pieces of both ends.
WITHOUT_S = 0.7
TURN_PORT, COTURN_PORT, TURNS_PORT = 3478, 3479, 443
RESTRICTED = ["10.99.0.0/24"]
OWN_TURN = {"enabled": True, "udp_port": TURN_PORT, "relay_range_start": 30000, "relay_range_end": 30050,
            "allow_restricted_peer_cidrs": RESTRICTED}


class Talk:
    """A caller and a bot that echoes its tone, in a room of the published server."""

    def __init__(self, world, server=(), **settings):
        self.world = world
        self.server = world.server("--address", *server, settings=settings)
        self.site = Site()
        world.sites.append(self.site)

    async def begin(self, proxied=False, **variables):
        url = self.server.url
        if proxied:
            self.proxy = await Proxy(self.world.address, url).start()
            url = self.proxy.url
        self.runner = self.world.runner("--bot", "echo", "-v", "--host", self.site.address, url=url, inside=self.site.inside,
                                        RUST_LOG="debug", **variables)
        self.start = time.monotonic()
        self.answer = await self.world.begin(self.runner)
        # The caller is not behind the firewall.
        self.caller = await self.world.caller(self.server.url, self.answer["token"])
        self.bot = await self.world.bot(self.caller, self.answer)
        await self.caller.hear(self.caller.hz, self.bot)
        # One connection carries the sound; the bot has joined with both.
        await self.runner.wait_for_log("connected after")
        self.first = self.took()
        return self

    def took(self):
        """Returns the seconds until the bot had joined, from its log."""
        line = next(line for line in self.runner.log_text().splitlines() if "connected after" in line)
        return float(line.split("connected after ")[1].split()[0])

    def over(self, way):
        """Asserts how the media of both connections came up."""
        text = self.runner.log_text()
        for target in ("Publisher", "Subscriber"):
            assert f"{target} connection is up over {way}" in text, f"{target} is not up over {way}"

    def who(self):
        participant = self.caller.room.remote_participants[self.bot]
        return participant.sid, sorted(participant.track_publications)

    async def goes_on(self, fault, resumed=True):
        """The tone is heard again after a fault; returns the seconds without it. One bot is in the room. After a resume it
        is the same participant with the same track, of which the caller was told nothing."""
        before, since = self.who(), time.monotonic()
        await fault()
        # The fault takes a moment to show.
        await asyncio.sleep(1)
        await self.caller.hear(self.caller.hz, self.bot, limit_s=2 * PATIENCE_S)
        away = time.monotonic() - since - 1
        people = self.server.people(self.answer["roomName"])
        bots = [identity for identity in people if identity.startswith("Agent-")]
        assert bots == [self.bot], people
        assert (await self.runner.sessions()) == 1
        left = self.caller.told("participant_disconnected", self.bot, since)
        if resumed:
            assert self.who() == before and not left, (before, self.who(), left)
        return away


async def blocked_udp(world):
    """a runner without UDP joins over TCP, with both connections"""
    talk = Talk(world)
    talk.site.no_udp()
    await talk.begin()
    talk.over("TCP")
    return f"joined after {talk.first:.1f} s"


async def tcp_alone(world):
    """a server that offers TCP alone is joined"""
    talk = await Talk(world, ["--tcp"]).begin()
    talk.over("TCP")
    return f"joined after {talk.first:.1f} s"


async def lite(world):
    """an ICE-lite server is joined over UDP, TCP, and its own TURN server"""
    said = []
    for way in ("UDP", "TCP", "TURN"):
        talk = Talk(world, ["--ice-lite"], turn=OWN_TURN)
        {"UDP": talk.site.open, "TCP": talk.site.block, "TURN": talk.site.no_media_ports}[way]()
        if way == "TCP":
            talk.site.block(f"udp dport {UDP_PORT}")
        await talk.begin()
        talk.over(way)
        said.append(f"{way} {talk.first:.1f} s")
        await talk.caller.leave()
        talk.runner.process.terminate()
        talk.server.stop()
    return ", ".join(said)


async def own_turn(world):
    """a runner that reaches neither UDP 7882 nor TCP 7881 joins over the server's own TURN server"""
    talk = Talk(world, turn=OWN_TURN)
    talk.site.no_media_ports()
    await talk.begin()
    talk.over("TURN")
    away = await talk.goes_on(lambda: asyncio.sleep(20))
    return f"joined after {talk.first:.1f} s, {away - 19:.1f} s to hear it 20 s later"


async def own_turns(world):
    """a runner that reaches only TLS on port 443 joins over the server's own TURN server; a server that asks for a relay is given one"""
    with tempfile.TemporaryDirectory() as folder:
        trusted = certificate(folder, world.address)
        # The server names port 443, whatever it listens on.
        own = {**OWN_TURN, "domain": world.address, "tls_port": TURNS_PORT, "cert_file": f"{folder}/cert.pem", "key_file": f"{folder}/key.pem"}
        talk = Talk(world, turn=own)
        talk.site.block("udp", f"tcp dport {TCP_PORT}")
        await talk.begin(SSL_CERT_FILE=trusted)
        talk.over("TURN")
        first = talk.first
        await talk.caller.leave()
        talk.runner.process.terminate()
        talk.server.stop()
        # Nothing is blocked here.
        talk = await Talk(world, turn=own).begin(proxied=True, SSL_CERT_FILE=trusted)
        talk.over("UDP")

        async def fault():
            await talk.proxy.simulate("switch_to_tls")
            # Asked of a client that connects again.
            await asyncio.sleep(0.5)
            await talk.proxy.cut()
            await talk.runner.wait_for_log("resumed the room", 20)
            # What goes on now goes over the relay.
            talk.site.block("udp", f"tcp dport {TCP_PORT}")
        away = await talk.goes_on(fault)
        assert len(talk.proxy.resumes()) == 1, talk.proxy.requests
        # Without the certificate among the trusted ones there is no such way.
        await talk.caller.leave()
        talk.runner.process.terminate()
        talk.server.stop()
        talk = Talk(world, turn=own)
        talk.site.block("udp", f"tcp dport {TCP_PORT}")
        runner = world.runner("--bot", "echo", "--host", talk.site.address, url=talk.server.url, inside=talk.site.inside)
        await world.begin(runner)
        await runner.wait_for_log("the room was not entered", 40)
        line, = [line for line in runner.log_text().splitlines() if "the room was not entered" in line]
        assert "turns:" in line and "certificate" in line, line
    return f"joined after {first:.1f} s; over the relay {away:.1f} s after the server asked; {line.split('entered: ')[1]}"


def certificate(folder, address):
    """Makes a key and a certificate for an address; returns the file to trust."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=relay", "-addext", f"subjectAltName=IP:{address}", "-addext", "basicConstraints=critical,CA:FALSE",
                    "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"], check=True, capture_output=True)
    return f"{folder}/cert.pem"


async def coturn_tcp(world):
    """a runner without UDP and without TCP 7881 joins over a TURN server that the room names, over TCP"""
    with tempfile.TemporaryDirectory() as folder:
        args = ["--listening-ip", world.address, "--relay-ip", world.address, "--listening-port", COTURN_PORT, "--no-tls",
                "--lt-cred-mech", "--realm", "check", "--user", "room:for-checks-only", "--min-port", 49160, "--max-port", 49260,
                "--log-file", "stdout", "--pidfile", f"{folder}/pid", "--userdb", f"{folder}/db"]
        process = coturn(*map(str, args))
        try:
            talk = Talk(world, rtc={"turn_servers": [{"host": world.address, "port": COTURN_PORT, "protocol": "tcp",
                                                      "username": "room", "credential": "for-checks-only"}]})
            talk.site.block("udp", f"tcp dport {TCP_PORT}")
            await talk.begin()
            talk.over("TURN")
            assert "for-checks-only" not in talk.runner.log_text()
            return f"joined after {talk.first:.1f} s"
        finally:
            process.kill()
            process.wait()


async def closed_network(world):
    """where nothing leads to the server the runner says what it tried"""
    talk = Talk(world, rtc={"turn_servers": [{"host": world.address, "port": COTURN_PORT, "protocol": "tcp", "username": "room",
                                              "credential": "for-checks-only"}]})
    talk.site.block("udp", f"tcp dport {TCP_PORT}")
    runner = world.runner("--bot", "echo", "--host", talk.site.address, url=talk.server.url, inside=talk.site.inside)
    await world.begin(runner)
    await runner.wait_for_log("the room was not entered", 40)
    line, = [line for line in runner.log_text().splitlines() if "the room was not entered" in line]
    for words in ("WARN", "no answer over UDP", f"TCP port {TCP_PORT}: connection refused", "turn:", "refused"):
        assert words in line, (words, line)
    await runner.wait_for_sessions(0, 20)
    return line.split("the room was not entered: ")[1]


async def signalling_cut(world):
    """signalling that is cut three times is resumed; the caller hears the bot without a gap"""
    talk = await Talk(world).begin(proxied=True)
    for _ in range(3):
        start, received = time.monotonic(), sum(map(len, talk.caller.received[talk.bot]))
        await talk.goes_on(talk.proxy.cut)
        got = (sum(map(len, talk.caller.received[talk.bot])) - received) / 48000
        judge("seconds of audio", got, time.monotonic() - start, WITHOUT_S)
    assert len(talk.proxy.resumes()) == 3, talk.proxy.requests
    assert "no caller is connected" not in talk.runner.log_text()
    return "3 resumes"


async def udp_dropped(world):
    """UDP that vanishes for 12 s and for 25 s, and then for good: the talk goes on over TCP, resumed"""
    said = []
    talk = await Talk(world).begin(proxied=True)
    talk.over("UDP")
    for seconds in (12, 25):
        async def fault():
            talk.site.no_udp()
            await asyncio.sleep(seconds)
            talk.site.open()
        said.append(f"{seconds} s: heard {await talk.goes_on(fault) - seconds:.1f} s later")
        await asyncio.sleep(12)

    async def fault():
        talk.site.no_udp()
    said.append(f"for good: {await talk.goes_on(fault):.1f} s")
    return ", ".join(said)


async def udp_dropped_without_tcp(world):
    """the same with nothing but UDP: the talk goes on once it is back"""
    said = []
    for seconds in (12, 25):
        talk = Talk(world)
        talk.site.block(f"tcp dport {TCP_PORT}")
        await talk.begin(proxied=True)

        async def fault():
            talk.site.block("udp", f"tcp dport {TCP_PORT}")
            await asyncio.sleep(seconds)
            talk.site.block(f"tcp dport {TCP_PORT}")
        away = await talk.goes_on(fault, resumed=False) - seconds
        said.append(f"{seconds} s: heard {away:.1f} s later, {len(talk.proxy.resumes())} resumes")
        await talk.caller.leave()
        talk.runner.process.terminate()
        talk.server.stop()
    return ", ".join(said)


async def faults(world):
    """each fault that the server simulates is survived, with one bot in the room"""
    said = []
    talk = await Talk(world, turn=OWN_TURN).begin(proxied=True)
    for scenario, resumed in (("node_failure", False), ("migration", False), ("server_leave", False), ("switch_to_tcp", True),
                              ("switch_to_tls", True), ("cut_on_resume", True), ("cut_on_resume_without_messages", True)):
        async def fault():
            await talk.proxy.simulate(scenario)
            if scenario.startswith("cut"):
                await asyncio.sleep(0.2)
                await talk.proxy.cut()
        said.append(f"{scenario} {await talk.goes_on(fault, resumed):.1f} s")
        await asyncio.sleep(11)
    return ", ".join(said)


async def restart_without_redis(world):
    """a server without Redis that is killed and started again: the bot is back, once"""
    talk = await Talk(world).begin()

    async def fault():
        await asyncio.to_thread(talk.server.restart, 3)
    away = await talk.goes_on(fault, resumed=False)
    return f"heard {away:.1f} s after the kill, 3 s of them without a server"


async def figures(world):
    """the time to join over each path"""
    said = []
    for way, block in (("UDP", []), ("TCP", ["udp"]), ("TURN", [f"udp dport {UDP_PORT}", f"tcp dport {TCP_PORT}"])):
        talk = Talk(world, turn=OWN_TURN)
        talk.site.block(*block)
        await talk.begin()
        talk.over(way)
        ticks = cpu_ticks(talk.runner.process.pid)
        await asyncio.sleep(10)
        used = (cpu_ticks(talk.runner.process.pid) - ticks) / 100 / 10
        said.append(f"{way}: joined after {talk.first:.2f} s, {used:.3f} core, {rss_mib(talk.runner.process.pid):.1f} MiB")
        await talk.caller.leave()
        talk.runner.process.terminate()
        talk.server.stop()
    return "; ".join(said)


def cpu_ticks(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def rss_mib(pid):
    line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


CHECKS = {check.__name__: check for check in (
    udp_dropped, own_turn, own_turns, blocked_udp, tcp_alone, lite, coturn_tcp, closed_network, signalling_cut, udp_dropped_without_tcp,
    faults, restart_without_redis, figures)}
