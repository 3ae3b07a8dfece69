"""Telephone calls through LiveKit's published server and SIP service to a bot of the runner. Prints a line per check; exits with 1
when one failed.

    run.py [--binary PATH] --server PATH --sip PATH [CHECK...]     as root

Needs what `room/requirements.txt` and the bots of `examples/bots` name, baresip, redis-server and `ip`. Everything runs in a network
namespace of its own, and nothing leaves the machine.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "room")]
sys.path.append(str(HERE.parent))

from livekit import api

from caller import share
from checks import Report, chosen, options
from phone import Phone, control
from published_server import PublishedServer
from reference import judge_share
from runner import Runner
from server import KEY, SECRET

ADDRESS, INSIDE, LIMIT_S = "10.98.0.1", "EDGE_RUNNER_SIP_CHECKS_INSIDE", 120
SIP_PORT, ROOM = 5060, "the switchboard"
# Of a tone that has passed five codecs and four resamplers, in a second that may have begun before it.
SPREAD = 0.19
CALLER, CALLED = "+15550001111", "+15550002222"
BOT = ("--", sys.executable, str(HERE / "bot.py"))


def enter():
    """Enters a new network namespace with loopback and one interface."""
    if not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    for command in ("link set lo up", "link add eth0 type bridge", f"address add {ADDRESS}/24 dev eth0", "link set eth0 up"):
        subprocess.run(["ip", *command.split()], check=True)


class Exchange:
    """Redis, the server, and the SIP service with a number whose calls go into one room."""

    def __init__(self, server, sip):
        self.folder = tempfile.TemporaryDirectory(prefix="sip-")
        self.log = open(pathlib.Path(self.folder.name) / "log", "a+")
        self.redis = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", "6379", "--save", "", "--dir", self.folder.name], stdout=self.log, stderr=self.log)
        redis = {"address": "127.0.0.1:6379"}
        self.server = PublishedServer(server, ADDRESS, "--address", settings={"redis": redis})
        config = {"api_key": KEY, "api_secret": SECRET, "ws_url": self.server.url, "redis": redis, "sip_port": SIP_PORT,
                  "rtp_port": "10000-10200", "use_external_ip": False, "nat_1_to_1_ip": ADDRESS, "logging": {"level": "info"}}
        self.sip = subprocess.Popen([sip, "--config-body", json.dumps(config)], stdout=self.log, stderr=self.log, cwd=self.folder.name)

    def ask(self, method, **request):
        """Calls the SIP service's API at the server."""
        bearer = api.AccessToken(KEY, SECRET).with_sip_grants(api.SIPGrants(admin=True, call=True)).to_jwt()
        asked = urllib.request.Request(
            f"{self.server.url.replace('ws', 'http', 1)}/twirp/livekit.SIP/{method}", json.dumps(request).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {bearer}"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return json.loads(answer.read())

    def connect(self):
        """Makes the number's calls go into the room."""
        trunk = self.ask("CreateSIPInboundTrunk", trunk={"name": "trunk", "numbers": [CALLED], "allowed_addresses": [f"{ADDRESS}/32"]})
        self.ask("CreateSIPDispatchRule", dispatch_rule={
            "name": "rule", "trunk_ids": [trunk.get("sip_trunk_id") or trunk["sipTrunkId"]],
            "rule": {"dispatch_rule_direct": {"room_name": ROOM}}})

    def log_text(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()[-12000:]

    def stop(self):
        for process in (self.sip, self.redis):
            process.kill()
            process.wait()
        self.server.stop()
        self.log.close()
        self.folder.cleanup()


class World:
    def __init__(self, exchange, binary):
        self.exchange, self.binary = exchange, binary
        self.runners, self.phones = [], []

    def runner(self, *args):
        told = {"MEDIAROOM_URL": self.exchange.server.url, "MEDIAROOM_API_KEY": KEY, "MEDIAROOM_API_SECRET": SECRET, "MEDIAROOM_ROOM_NAME": ROOM}
        self.runners.append(Runner(self.binary, "-t", "mediaroom", "-v", *args, variables=told))
        return self.runners[-1]

    async def begin(self, runner, **body):
        status, answer = await runner.fetch("POST", "/start", {"body": body})
        assert status == 200, answer

    async def phone(self, number=CALLER, port=5070, **more):
        self.phones.append(await Phone(number, ADDRESS, port, **more).start())
        return self.phones[-1]

    async def call(self, runner, **body):
        """A phone that has called, whose call is answered."""
        await self.begin(runner, **body)
        phone = await self.phone()
        phone.dial(f"sip:{CALLED}@{ADDRESS}:{SIP_PORT}")
        await phone.until("CALL_ESTABLISHED")
        return phone

    async def stop(self):
        for phone in self.phones:
            await phone.stop()
        for runner in self.runners:
            runner.stop()
        self.exchange.server.delete(ROOM)

    def log_text(self):
        return "\n".join([*(runner.log_text() for runner in self.runners), *(phone.log_text() for phone in self.phones), self.exchange.log_text()])


async def hears(phone, hz, limit_s=30):
    """Waits until the last second that the phone heard is this tone, as the codec of the phone gives it."""
    start = time.monotonic()
    while True:
        pcm, rate = phone.received()
        found = share(pcm[-rate:], hz, rate) if len(pcm) >= rate else 0.0
        try:
            judge_share(found, share(control(hz, rate), hz, rate), SPREAD, f"share of {hz} Hz in {len(pcm)} samples")
            return found
        except AssertionError:
            if time.monotonic() - start > limit_s:
                raise
        await asyncio.sleep(0.2)


async def answered(world):
    """a call rings until the bot is in the room, is answered then, and sound goes both ways; the bot has the numbers and the state"""
    phone = await world.phone()
    phone.dial(f"sip:{CALLED}@{ADDRESS}:{SIP_PORT}")
    await phone.until("CALL_RINGING")
    await asyncio.sleep(3)
    assert not phone.told("CALL_ESTABLISHED"), "it was answered without a bot"
    runner = world.runner(*BOT)
    began = time.monotonic()
    await world.begin(runner)
    took = await phone.until("CALL_ESTABLISHED") - began
    found = await hears(phone, phone.hz)
    messages = [json.loads(line) for line in (pathlib.Path(runner.folder.name) / "messages").read_text().splitlines()]
    joined = next(message for message in messages if message["type"] == "participant-joined")
    assert joined["telephone"] and not joined["agent"], joined
    assert joined["attributes"]["sip.callStatus"] == "ringing", joined
    data = joined["call_data"]
    assert CALLER.endswith(data["from"].lstrip("+")) and CALLED.endswith(data["to"].lstrip("+")) and data["call_id"], data
    statuses = [message["attributes"]["sip.callStatus"] for message in messages if message["type"] == "participant-changed"]
    assert statuses[-1] == "active", statuses
    log = runner.log_text()
    assert CALLER.lstrip("+") not in "\n".join(line for line in log.splitlines() if "DEBUG" not in line), "a number is in the log"
    return f"answered after {took:.2f} s, share {found:.2f}"


async def keys(world):
    """keys go both ways"""
    runner = world.runner(*BOT)
    phone = await world.call(runner)
    await hears(phone, phone.hz)
    for key in "5*":
        phone.press(key)
        await phone.until("CALL_DTMF_START", key)
    return "5 and *"


async def hang_up_bot(world):
    """a bot that ends hangs the call up"""
    runner = world.runner(*BOT)
    phone = await world.call(runner)
    await hears(phone, phone.hz)
    began = time.monotonic()
    phone.press("#")
    took = await phone.until("CALL_CLOSED") - began
    await runner.wait_for_log("mediaroom: the call was hung up")
    await runner.wait_for_sessions(0, 10)
    return f"after {took:.2f} s"


async def hang_up_phone(world):
    """a bot whose caller hangs up is told, and ends"""
    runner = world.runner("--bot", "echo")
    phone = await world.call(runner)
    await hears(phone, phone.hz)
    phone.hang_up()
    took = await runner.wait_for_log("no caller is connected", 10)
    ended = await runner.wait_for_sessions(0, 30)
    assert "hung up" not in runner.log_text()
    return f"seen after {took:.2f} s, ended after {ended:.1f} s"


async def transferred(world):
    """the call is transferred to an operator who answers; the bot ends, and nothing is hung up"""
    operator = await world.phone(number="operator", port=5090, hz=1000, answers=True)
    runner = world.runner(*BOT)
    phone = await world.call(runner, operator=f"sip:operator@{ADDRESS}:5090")
    await hears(phone, phone.hz)
    began = time.monotonic()
    phone.press("0")
    await operator.until("CALL_ESTABLISHED")
    took = await runner.wait_for_log("the call was transferred", 30)
    await hears(phone, operator.hz)
    await runner.wait_for_sessions(0, 30)
    assert "hung up" not in runner.log_text(), runner.log_text()
    return f"after {time.monotonic() - began:.1f} s"


async def transfer_refused(world):
    """a transfer to an address without a telephone fails in words, and the call goes on"""
    runner = world.runner(*BOT)
    phone = await world.call(runner, operator=f"sip:absent@{ADDRESS}:5099")
    await hears(phone, phone.hz)
    phone.press("0")
    took = await runner.wait_for_log("the call was not transferred: status ", 60)
    line = next(line for line in runner.log_text().splitlines() if "the call was not transferred" in line)
    assert not phone.told("CALL_CLOSED") or (await runner.sessions()) == 1
    return f"after {took:.1f} s: {line.split('not transferred: ')[1]}"


CHECKS = {check.__name__: check for check in (answered, keys, hang_up_bot, hang_up_phone, transferred, transfer_refused)}


async def main(given):
    with Report() as report:
        exchange = Exchange(given.server.resolve(), given.sip.resolve())
        try:
            exchange.connect()
            for name, check in chosen(CHECKS, given.checks).items():
                world = World(exchange, given.binary.resolve())
                try:
                    with report.check(check, name) as result:
                        result.show(world.log_text)
                        result.said = await asyncio.wait_for(check(world), LIMIT_S)
                finally:
                    await world.stop()
        finally:
            exchange.stop()
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--server", type=pathlib.Path, required=True)
    parser.add_argument("--sip", type=pathlib.Path, required=True)
    given = parser.parse_args()
    enter()
    sys.exit(asyncio.run(main(given)))
