"""The runner on networks as they are: bridges, junk interfaces, short links, NAT, relays that die. Prints a line per check.

    run.py [--binary PATH] [--minutes N] [CHECK...]      as root, with what ../aiortc/requirements.txt names, coturn and nftables

Every network is made of namespaces of its own and goes with the check. Times are printed, and where somebody waits for a call
the median of three is held against the time of two aiortc peers without a runner.
"""

import asyncio
import functools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "aiortc")]

import echo
from caller import Caller
from checks import Report, chosen, left, options, wait_until
from reference import SHARE_SPREAD, judge, judge_share
from runner import ROOT, Runner
from turn import Turn
from world import World

PORT = 7860
# A check of connectivity that is lost is repeated after that time (RFC 8445, section 14.3), which may happen once.
CONNECTED_SPREAD_S = 0.5
# An answer that waited until a silent server is asked again would take 0.5 s (RFC 8489, section 6.2.1).
ANSWERED_SPREAD_S = 0.45
# The promise to a device that has lost power: a place, in which it then connects as in a free one.
BACK_S = 2


class Lan:
    """A board and a caller on one bridge, and an optional server for either."""

    def __init__(self, world, mtu=1500):
        self.switch = world.host("lan")
        self.switch.bridge("br0", "10.77.0.254/24", mtu=mtu)
        self.board, self.peer = world.host("board"), world.host("peer")
        world.plug(self.board, "eth0", self.switch, "10.77.0.1/24", mtu=mtu)
        world.plug(self.peer, "eth0", self.switch, "10.77.0.2/24", mtu=mtu)
        for host in (self.board, self.peer):
            host.ip("route", "add", "default", "via", "10.77.0.254")
        self.url = f"http://10.77.0.1:{PORT}"


def junk(world, host):
    """Five interfaces without a route, as laptops and boards have them, and a link-local address."""
    host.ip("link", "add", "docker0", "type", "bridge")
    host.up("docker0", "172.17.0.1/16")
    world.link(host, "veth1f2e3d", host, "veth4c5b6a")
    host.up("veth1f2e3d", "172.18.0.1/16")
    host.up("veth4c5b6a")
    host.ip("tuntap", "add", "dev", "tun0", "mode", "tun")
    host.up("tun0", "10.8.0.6/24")
    world.link(host, "wlan0", host, "wlan0peer")
    host.ip("address", "add", "192.168.99.2/24", "dev", "wlan0")
    # The second subnet has a link but no peer.
    world.link(host, "eth1", host, "eth1peer")
    host.up("eth1", "192.168.77.2/24")
    host.up("eth1peer")
    host.ip("address", "add", "169.254.7.7/16", "dev", "eth0")


class Wan:
    """Two home networks and a public network with a relay. The board is behind the first router, which forwards its HTTP
    and, by default, nothing else."""

    RELAY = "198.51.100.5"

    def __init__(self, world, only_relay=False):
        self.world = world
        self.net = world.host("net")
        # Packets to all other networks are dropped silently.
        self.net.bridge("br0", "198.51.100.254/24")
        self.relay = self.public("relay", self.RELAY)
        passing = f"""
            chain arriving_http {{
                type nat hook prerouting priority dstnat; policy accept;
                iifname "wan0" tcp dport {PORT} dnat to 10.1.0.1
            }}"""
        if only_relay:
            passing += blocked(self.RELAY)
        self.board_router = world.router("home1", self.net, "198.51.100.1", "10.1.0.254", passing)
        self.board, self.neighbour = world.host("board"), world.host("neighbour")
        for host, address in ((self.board, "10.1.0.1"), (self.neighbour, "10.1.0.2")):
            world.plug(host, "eth0", self.board_router, f"{address}/24")
            host.ip("route", "add", "default", "via", "10.1.0.254")
        self.url = f"http://198.51.100.1:{PORT}"
        self.url_inside = f"http://10.1.0.1:{PORT}"

    def caller_behind_a_router(self, rules=""):
        router = self.world.router("home2", self.net, "198.51.100.2", "10.2.0.254", rules)
        peer = self.world.host("peer")
        self.world.plug(peer, "eth0", router, "10.2.0.1/24")
        peer.ip("route", "add", "default", "via", "10.2.0.254")
        return peer

    def public(self, name, address):
        host = self.world.host(name)
        self.world.plug(host, "eth0", self.net, f"{address}/24")
        host.ip("route", "add", "default", "via", "198.51.100.254")
        return host


def blocked(relay):
    """A rule of a router: no UDP except to the port of the relay."""
    return f"""
            chain passing {{
                type filter hook forward priority filter; policy accept;
                iifname "br0" oifname "br0" accept
                ip daddr {relay} udp dport 3478 accept
                ip saddr {relay} udp sport 3478 accept
                meta l4proto udp drop
            }}"""


class Scene(ExitStack):
    """The resources of a check, released in reverse order; after a failure the logs are printed."""

    def __init__(self, binary, minutes=0.5):
        super().__init__()
        self.binary, self.minutes, self.talkers = binary, minutes, []
        self.world = self.enter_context(World())

    def runner(self, host, *args, bind="0.0.0.0", **variables):
        runner = Runner(
            self.binary, "--bot", "echo", "--host", bind, "-v", *args,
            inside=host.inside, port=PORT, variables=variables)
        self.callback(runner.stop)
        self.talkers.append(runner)
        return runner

    def __exit__(self, kind, *what):
        if kind:
            for talker in self.talkers:
                print(talker.log_text()[-8000:], file=sys.stderr)
        return super().__exit__(kind, *what)

    def tunnel(self, host, address, port):
        """Makes the runner's HTTP on loopback reachable at that address."""
        process = subprocess.Popen(
            [*host.inside, sys.executable, HERE / "tunnel.py", address, str(port), "127.0.0.1", str(PORT)],
            stdout=subprocess.PIPE)
        self.callback(process.wait)
        self.callback(process.kill)
        assert process.stdout.readline() == b"open\n"

    def caller(self, host):
        return self.enter_context(Caller(host))

    def turn(self, host, address):
        turn = self.enter_context(Turn(host, address))
        self.talkers.append(turn)
        return turn


@functools.cache
def control():
    """A call between two aiortc peers."""
    return asyncio.run(echo.control())


def hears_itself(caller):
    """The share of the caller's tone in the echo, against that without the runner."""
    reference = control().share()
    share = caller("hear", least=reference - SHARE_SPREAD)["share"]
    judge_share(share, reference)
    return share


def calls(caller, url, times=3, **how):
    """Makes this many calls and checks each echo. Returns the connection times; the last call stays open."""
    said = []
    for number in range(times):
        if number:
            caller("hang_up")
        said.append(caller("connect", url=url, **how))
        hears_itself(caller)
    return said


def figures(said, key="connected_s"):
    return " ".join(f"{one[key] * 1000:.0f}" for one in said) + " ms"


def at_once(said):
    """The figures of calls that nothing may delay."""
    for key, reference, spread in (("connected_s", control().connected_s, CONNECTED_SPREAD_S),
                                   ("answered_s", control().answered_s, ANSWERED_SPREAD_S)):
        judge(f"{key} {figures(said, key)}, median", statistics.median(one[key] for one in said), reference, spread, at_most=True)
    return (f"connected {figures(said)}, answered {figures(said, 'answered_s')}; without the runner "
            f"{control().connected_s * 1000:.0f} and {control().answered_s * 1000:.0f} ms")


def ice(*servers):
    """The option for these servers."""
    return ["--ice-servers", *(json.dumps(server) for server in servers)]


def bridge(scene):
    """a bridge between two hosts, with five junk interfaces and a 169.254/16 address on each"""
    lan = Lan(scene.world)
    for host in (lan.board, lan.peer):
        junk(scene.world, host)
    scene.runner(lan.board)
    said = calls(scene.caller(lan.peer), lan.url)
    assert {one["remote"] for one in said} == {f"host 10.77.0.1:{PORT}"}, said
    return at_once(said)


def http(scene):
    """plain HTTP from another host: its address is a valid Host, a foreign name is not, and the metrics are private"""
    lan = Lan(scene.world)
    scene.runner(lan.board)
    caller = scene.caller(lan.peer)
    found = {}
    for path, wanted in (("/status", 200), ("/client/", 200), ("/metrics", 403)):
        found[path] = caller("fetch", url=lan.url + path)["status"]
        assert found[path] == wanted, found
    for path in ("/", "/status", "/client/", "/metrics", "/start", "/api/offer"):
        found["evil"] = caller("fetch", url=lan.url + path, headers={"Host": "evil.example"})["status"]
        assert found["evil"] == 421, (path, found)
    return json.dumps(found)


def short(scene):
    """links of 1280 bytes: 60 kB pass both ways"""
    lan = Lan(scene.world, mtu=1280)
    scene.runner(lan.board)
    caller = scene.caller(lan.peer)
    said = calls(caller, lan.url)
    message = caller("message", characters=60_000)
    assert message["same"], "the message came back changed"
    return f"{at_once(said)}, there and back {message['took_s'] * 1000:.0f} ms"


def half_short(scene):
    """a switch that silently drops packets over 1280 bytes, one direction at a time"""
    said = []
    for way in ("iifname", "oifname"):
        with Scene(scene.binary) as inner:
            lan = Lan(inner.world)
            lan.switch.nft(f"""
                table bridge narrow {{
                    chain passing {{
                        type filter hook forward priority filter; policy accept;
                        {way} "p2" ip protocol udp meta length > 1280 drop
                    }}
                }}""")
            inner.runner(lan.board)
            caller = inner.caller(lan.peer)
            caller("connect", url=lan.url)
            message = caller("message", characters=60_000)
            assert message["same"], "the message came back changed"
            said.append(f"{message['took_s'] * 1000:.0f} ms")
    return f"there and back {', '.join(said)}"


def test_binary():
    """The test binary, of which the strict device is a part."""
    built = subprocess.run(
        ["cargo", "test", "--quiet", "--workspace", "--no-run", "--message-format=json"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return next(said["executable"] for line in built.splitlines()
                if (said := json.loads(line)).get("executable") and said["target"]["name"] == "main")


class Device:
    """A strict device that stays connected until it is stopped or loses power."""

    def __init__(self, tests, host, at, mute=False):
        name = "device::a_device_on_another_host_stays"
        variables = {**os.environ, "EDGE_RUNNER_AT": at, **({"EDGE_RUNNER_MUTE": "1"} if mute else {})}
        self.process = subprocess.Popen(
            [*host.inside, tests, name, "--exact", "--ignored", "--nocapture"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables)
        self.said = ""
        while "connected after" not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        self.connected_ms = int(self.said.split("connected after")[1].split()[0])

    def dismiss(self):
        """Checks that the runner still sends to it, and ends it."""
        rest, _ = self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0 and "1 passed" in rest, self.said + rest

    def lose_power(self):
        self.process.kill()
        self.process.wait()


def neighbours(scene):
    """two devices behind one NAT: a Wi-Fi gap in which the other one connects ends no session, with push-to-talk or without;
    and a device that lost power has a place of a full runner within 2 s"""
    tests = test_binary()
    world = scene.world
    net = world.host("net")
    net.bridge("br0", "198.51.100.254/24")
    board = world.host("board")
    world.plug(board, "eth0", net, "198.51.100.1/24")
    router = world.router("home", net, "198.51.100.2", "10.2.0.254")
    router.nft("""
        table ip gaps {
            chain passing {
                type filter hook forward priority filter; policy accept;
            }
        }""")
    hosts = [world.host(name) for name in ("one", "other")]
    for number, host in enumerate(hosts, 1):
        world.plug(host, "eth0", router, f"10.2.0.{number}/24")
        host.ip("route", "add", "default", "via", "10.2.0.254")
    at = f"198.51.100.1:{PORT}"
    devices = []
    scene.callback(lambda: [device.lose_power() for device in devices])

    def joins(host, mute=False):
        devices.append(Device(tests, host, at, mute))
        return devices[-1]

    def full_with_two():
        return scene.runner(board, "--embedded", "--max-sessions", "2", bind="198.51.100.1")

    for mute in (False, True):
        runner = full_with_two()
        one = joins(hosts[0], mute)
        time.sleep(4)
        router.nft("add rule ip gaps passing ip saddr 10.2.0.1 drop\nadd rule ip gaps passing ip daddr 10.2.0.1 drop")
        time.sleep(1.25)
        other = joins(hosts[1])
        time.sleep(0.25)
        router.nft("flush chain ip gaps passing")
        time.sleep(2)
        one.dismiss()
        other.dismiss()
        assert "replaced" not in runner.log_text(), f"mute: {mute}"
        # Its sessions would end half a minute after the devices.
        runner.process.terminate()
        assert runner.process.wait(30) == 0
    runner = full_with_two()
    one, other = joins(hosts[0]), joins(hosts[1], mute=True)
    free_ms, back = max(one.connected_ms, other.connected_ms), []
    for _ in range(3):
        time.sleep(1)
        one.lose_power()
        one = joins(hosts[0])
        back.append(one.connected_ms)
    assert max(back) <= BACK_S * 1000 + free_ms, f"connected again after {back} ms, and at a free place after {free_ms} ms"
    assert runner.log_text().count("replaced by a new session of the same device") == 3
    one.dismiss()
    other.dismiss()
    return f"its place back after {' '.join(map(str, back))} ms; a free place after {free_ms} ms"


def device(scene):
    """a microcontroller on the bridge, with --embedded and all the junk interfaces"""
    lan = Lan(scene.world)
    junk(scene.world, lan.board)
    scene.runner(lan.board, "--embedded", bind="10.77.0.1")
    name = "device::a_device_on_another_host_talks"
    done = subprocess.run(
        [*lan.peer.inside, test_binary(), name, "--exact", "--ignored", "--nocapture"], capture_output=True, text=True,
        env={**os.environ, "EDGE_RUNNER_AT": f"10.77.0.1:{PORT}"})
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    took = next(line for line in done.stdout.splitlines() if "connected after" in line)
    return took.split("connected after")[1].strip()


def forger(scene):
    """a caller that sends its checks from another caller's address and port, and from others, also during ICE restarts,
    neither ends that call nor takes its audio"""
    lan = Lan(scene.world)
    thief = scene.world.host("thief")
    scene.world.plug(thief, "eth0", lan.switch, "10.77.0.3/24")
    runner = scene.runner(lan.board)
    victim, other = scene.caller(lan.peer), scene.caller(thief)
    [said] = calls(victim, lan.url, times=1)
    address, port = said["local"].split()[1].rsplit(":", 1)
    other("connect", url=lan.url)
    shares, checks = [], 0
    for seconds, restarts in ((4, 0), (1, 4)):
        other("forge", source=[address, int(port)], runner=["10.77.0.1", PORT], seconds=seconds, restarts=restarts)
        shares += [hears_itself(victim) for _ in range(4)]
        checks += other("forged")["checks"]
    assert victim("message", characters=1000)["same"]
    assert victim("state")["connection"] == "connected"
    assert "session ended" not in runner.log_text(), "a session has ended"
    return f"{checks} forged checks, lowest share {min(shares):.3f}"


def dead_servers(scene):
    """servers that reject, are absent, are silent or have no address do not affect the LAN"""
    said = {}
    wrong = {"username": "caller", "credential": "a-wrong-secret"}
    for name, servers in {
        "port closed": [{"urls": "stun:10.77.0.254:9"}, {"urls": "turn:10.77.0.254:9", **wrong},
                        {"urls": "turn:10.77.0.254:9?transport=tcp", **wrong}],
        "black hole": [{"urls": "stun:203.0.113.1:3478"}, {"urls": "turn:203.0.113.1:3478", **wrong},
                       {"urls": "turn:203.0.113.1:3478?transport=tcp", **wrong},
                       {"urls": "turns:203.0.113.1:5349?transport=tcp", **wrong}],
        "no resolver": [{"urls": "stun:stun.nowhere.invalid:3478"}],
    }.items():
        with Scene(scene.binary) as inner:
            lan = Lan(inner.world)
            lan.switch.nft("""
                table ip hole {
                    chain arriving {
                        type filter hook input priority filter; policy accept;
                        udp dport 53 drop
                    }
                    chain passing {
                        type filter hook forward priority filter; policy accept;
                        ip daddr 203.0.113.0/24 drop
                    }
                }""")
            lan.switch.sysctl("net.ipv4.ip_forward=1")
            inner.runner(lan.board, *ice(*servers))
            # The first of the calls comes while the servers are still being asked.
            said[name] = at_once(calls(inner.caller(lan.peer), lan.url))
    return "; ".join(f"{name}: {what}" for name, what in said.items())


def broken_ipv6(scene):
    """unreachable IPv6 addresses and default routes do not affect the LAN"""
    lan = Lan(scene.world)
    for number, host in enumerate((lan.board, lan.peer), 1):
        host.ip("address", "add", f"2001:db8:{number}::1/64", "dev", "eth0", "nodad")
        host.ip("-6", "route", "add", "default", "via", "fe80::dead", "dev", "eth0")
    # On loopback the runner's HTTP is reached by a tunnel only, and its sound on every address of both families.
    scene.runner(lan.board, *ice({"urls": "stun:[2001:db8:ffff::1]:3478"}), bind="localhost")
    scene.tunnel(lan.board, "10.77.0.1", 8080)
    said = calls(scene.caller(lan.peer), "http://10.77.0.1:8080")
    return at_once(said)


def wrong_credentials(scene):
    """a relay that rejects the runner does not affect a caller on the LAN"""
    wan = Wan(scene.world)
    turn = scene.turn(wan.relay, wan.RELAY)
    runner = scene.runner(wan.board, *ice(turn.server(secret="wrong-secret-4711")))
    said = at_once(calls(scene.caller(wan.neighbour), wan.url_inside))
    assert "wrong-secret-4711" not in runner.log_text(), "the log has the credential"
    return said


def callers_relay(scene):
    """a caller that reaches a runner without servers through the caller's own relay alone, by UDP and by TCP"""
    wan = Wan(scene.world)
    turn = scene.turn(wan.relay, wan.RELAY)
    board = wan.public("public", "198.51.100.7")
    scene.runner(board)
    peer = wan.caller_behind_a_router(blocked(wan.RELAY))
    caller = scene.caller(peer)
    said = []
    for query in ("?transport=udp", "?transport=tcp"):
        said += calls(caller, f"http://198.51.100.7:{PORT}", times=1, servers=[turn.server(query=query)])
        assert said[-1]["local"].startswith(f"relay {wan.RELAY}"), said
        message = caller("message", characters=60_000)
        assert message["same"], "the message came back changed"
        caller("hang_up")
    return f"connected {figures(said)}"


def runners_relay(scene):
    """a caller that reaches the runner only through the runner's relay talks to it, and 60 kB pass"""
    wan = Wan(scene.world, only_relay=True)
    turn = scene.turn(wan.relay, wan.RELAY)
    scene.runner(wan.board, *ice(turn.server()))
    # With a public address, and behind a router that a STUN server tells the address of.
    public, hidden = wan.public("public", "198.51.100.9"), wan.caller_behind_a_router()
    said = {
        "public": through_the_relay(scene.caller(public), wan),
        "behind a router": through_the_relay(scene.caller(hidden), wan, servers=[turn.server("stun")]),
    }
    return ", ".join(f"{name}: connected {what}" for name, what in said.items())


def runners_stream(scene):
    """the same without UDP for the runner: to its relay by TCP, and by TLS"""
    said = {}
    for scheme in ("turn", "turns"):
        with Scene(scene.binary) as inner:
            wan = Wan(inner.world, only_relay=True)
            wan.board_router.nft("add rule ip home passing meta l4proto udp drop")
            wan.board_router.nft("insert rule ip home passing iifname wan0 meta l4proto udp drop")
            wan.board_router.nft("insert rule ip home passing oifname wan0 meta l4proto udp drop")
            turn = inner.turn(wan.relay, wan.RELAY)
            server = turn.server(scheme, query="?transport=tcp")
            inner.runner(wan.board, *ice(server), SSL_CERT_FILE=str(turn.certificate))
            said[scheme] = through_the_relay(inner.caller(wan.public("public", "198.51.100.9")), wan)
    return ", ".join(f"{name}: connected {what}" for name, what in said.items())


def through_the_relay(caller, wan, **how):
    said = calls(caller, wan.url, **how)
    assert all(one["remote"].startswith(f"relay {wan.RELAY}") for one in said), said
    message = caller("message", characters=60_000)
    assert message["same"], "the message came back changed"
    caller("hang_up")
    return figures(said)


def both_relays(scene):
    """a caller and a runner that may use only the relay connect through it"""
    wan = Wan(scene.world, only_relay=True)
    turn = scene.turn(wan.relay, wan.RELAY)
    scene.runner(wan.board, *ice(turn.server()))
    caller = scene.caller(wan.caller_behind_a_router(blocked(wan.RELAY)))
    said = calls(caller, wan.url, servers=[turn.server()], relay_only=True)
    return f"connected {figures(said)}, {said[-1]['local']} to {said[-1]['remote']}"


def reflexive(scene):
    """two routers that keep ports: the address that a STUN server sees is enough"""
    wan = Wan(scene.world)
    turn = scene.turn(wan.relay, wan.RELAY)
    scene.runner(wan.board, *ice(turn.server("stun")))
    said = calls(scene.caller(wan.caller_behind_a_router()), wan.url, servers=[turn.server("stun")])
    assert all(one["remote"] == f"srflx 198.51.100.1:{PORT}" for one in said), said
    return f"connected {figures(said)}, {said[-1]['local']} to {said[-1]['remote']}"


def ice_address(scene):
    """a router that keeps ports and no server at all: --ice-address is enough for callers with a public address"""
    wan = Wan(scene.world)
    scene.runner(wan.board, "--ice-address", "198.51.100.1")
    said = calls(scene.caller(wan.public("public", "198.51.100.9")), wan.url)
    return f"connected {figures(said)}, {said[-1]['remote']}"


def relay_dies(scene):
    """the relay is killed during a call and restarts: callers on the LAN are not affected, and the caller returns to its bot"""
    wan = Wan(scene.world, only_relay=True)
    turn = scene.turn(wan.relay, wan.RELAY)
    runner = scene.runner(wan.board, *ice(turn.server()))
    caller, neighbour = scene.caller(wan.public("public", "198.51.100.9")), scene.caller(wan.neighbour)
    calls(caller, wan.url, times=1)
    turn.kill()
    without = at_once(calls(neighbour, wan.url_inside))
    turn.start()
    began = time.monotonic()
    wait_until(lambda: runner.log_text().count("works, relayed at") > 1, "the runner comes back to the relay", 20)
    took = time.monotonic() - began
    back = caller("come_back")
    hears_itself(caller)
    live = json.loads(neighbour("fetch", url=wan.url_inside + "/status")["text"])["sessions"]
    assert live == 2, f"{live} sessions, and there are two callers"
    return (f"neighbour without relay: {without}; relay of use again after {took:.1f} s, "
            f"its caller {back['connected_s'] * 1000:.0f} ms later")


def late_interface(scene):
    """a network that comes up after the runner: callers reach the new address, and also a later one"""
    world = scene.world
    switch, board, peer = world.host("lan"), world.host("board"), world.host("peer")
    switch.bridge("br0", "10.77.0.254/24")
    world.plug(peer, "eth0", switch, "10.77.0.2/24")
    scene.runner(board)
    world.plug(board, "eth0", switch, "10.77.0.1/24")
    caller = scene.caller(peer)
    said = calls(caller, f"http://10.77.0.1:{PORT}", times=2)
    caller("hang_up")
    # Another lease.
    board.ip("address", "del", "10.77.0.1/24", "dev", "eth0")
    board.ip("address", "add", "10.77.0.7/24", "dev", "eth0")
    said += calls(caller, f"http://10.77.0.7:{PORT}", times=1)
    remotes = [one["remote"] for one in said]
    assert remotes == [f"host 10.77.0.{host}:{PORT}" for host in (1, 1, 7)], remotes
    return at_once(said)


def long(scene):
    """a call on loopback with 10 % loss and 500 ms delay each way: it continues, its echo does not drift, messages keep order"""
    # Its clients use loopback, those of the other checks do not.
    from long import talk
    return asyncio.run(talk(scene.binary, scene.minutes))


# Those that take longest come first: several processes may share the checks.
CHECKS = [
    neighbours, long, bridge, http, short, half_short, device, forger, dead_servers, broken_ipv6, wrong_credentials, callers_relay,
    runners_relay, runners_stream, both_relays, ice_address, reflexive, relay_dies,
    late_interface,
]


def main(binary, minutes, names):
    with Report() as report:
        checks = chosen(CHECKS, names)
        for check in map(checks.get, left(checks)):
            with report.check(check) as result, Scene(binary, minutes) as scene:
                result.said = check(scene)
    return report.code


if __name__ == "__main__":
    # A signal ends this like an error: the networks are taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = options(__doc__, CHECKS)
    parser.add_argument("--minutes", type=float, default=0.5, metavar="N", help="of the long call; else half a minute")
    given = parser.parse_args()
    sys.exit(main(given.binary.resolve(), given.minutes, given.checks))
