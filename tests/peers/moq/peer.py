"""Peers for the checks: each is a process, so that two versions of one library fit in, and one can be killed."""

import asyncio
import base64
import json
import os
import pathlib
import sys

import numpy

from checks import until
from reference import judge, judge_share, once
from runner import Runner

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# Where `requirements-0.4.txt` is installed: both versions have the same name.
OLD = ROOT / "target" / "moq-rs-0.4"
# A time limit: a clean leave is noticed at once.
NOTICED_S = 20


def hexed(certificate_hash):
    return base64.b64decode(certificate_hash).hex() if certificate_hash else None


class Peer:
    """`kind` is 0.4 or 0.5, the version of the library, or `pipecat`. `answer` is what `/start` answered."""

    def __init__(self, answer, kind="0.5", hz=440, inside=(), **changes):
        moq = answer["moq"]
        self.hz, self.kind, self.events = hz, kind, []
        self.spec = {
            "url": moq["relayUrl"], "hash": hexed(moq["certHash"]), "transcript": moq["transcriptTrack"], "hz": hz,
            "publish": f"{moq['namespace']}/{moq['clientId']}", "consume": f"{moq['namespace']}/{moq['botId']}", **changes}
        self.inside = inside

    async def __aenter__(self):
        folders = [str(OLD)] if self.kind == "0.4" else []
        script = "pipeline.py" if self.kind == "pipecat" else "library.py"
        self.process = await asyncio.create_subprocess_exec(
            *self.inside, sys.executable, str(HERE / script), json.dumps(self.spec), limit=1 << 24,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "LOGURU_LEVEL": "ERROR"})
        self.reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.reader

    async def _read(self):
        while (line := await self.process.stdout.readline()).endswith(b"\n"):
            self.events.append(json.loads(line))
        self.events.append({"event": "ended"})

    def event(self, kind, since=0):
        return next((event for event in self.events[since:] if event["event"] == kind), None)

    def records(self):
        return [event["record"] for event in self.events if event["event"] == "record"]

    def record(self, kind, **fields):
        """The first record of that type whose fields have these values."""
        for found in self.records():
            if found.get("type") == kind and all(found.get(key) == value for key, value in fields.items()):
                return found
        return None

    async def until(self, condition, what, limit_s=20):
        def said():
            return f"{[event for event in self.events if 'pcm' not in event][-5:]}"

        def met():
            result = condition()
            assert result or not self.event("ended"), f"ended before: {what}; {said()}"
            return result

        return await until(met, what, limit_s, said)

    async def do(self, **command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        await self.process.stdin.drain()

    async def send(self, kind, **fields):
        await self.do(send={"label": "rtvi-ai", "type": kind} | fields)

    async def ready(self, limit_s=20):
        """Sends client-ready. Returns the data of bot-ready."""
        await self.send("client-ready", id="d2d923ea", data={"version": "2.1.0", "about": {"library": self.kind}})
        found = await self.until(lambda: self.record("bot-ready", id="d2d923ea"), "bot-ready", limit_s)
        assert found["data"]["version"].startswith("2."), found
        return found

    async def ask(self, n):
        """A request and its answer."""
        asked = {"t": "any", "d": {"n": [n, None]}}
        await self.send("client-message", id=f"{n:08}", data=asked)
        answer = await self.until(lambda: self.record("server-response", id=f"{n:08}"), "the answer to a request")
        assert answer["data"] == asked, answer

    async def hear(self, seconds):
        """Audio of the runner: samples, their rate, and the seconds it took to come."""
        since = len(self.events)
        await self.do(hear=seconds)
        received = await self.until(lambda: self.event("heard", since), "audio", 2 * seconds + 10)
        return numpy.frombuffer(base64.b64decode(received["pcm"]), "<i2"), received["rate"], received["took"]

    async def leave(self, goodbye=False):
        """Leaves in good order. `goodbye` is Pipecat's marker; without it a peer behind a relay may come back."""
        if self.process.returncode is None:
            if goodbye and self.kind != "pipecat":
                await self.send("session-ending", label="moq-transport")
            self.process.stdin.close()
            await asyncio.wait_for(self.process.wait(), 10)


def shares(samples, hz, rate):
    """The share of the energy at `hz` in each window of 100 ms; 0 in a silent one."""
    window = rate // 10
    turn = numpy.exp(-2j * numpy.pi * hz * numpy.arange(window) / rate)
    found = []
    for at in range(0, len(samples) - window + 1, window):
        part = samples[at:at + window].astype("f8")
        power = float(numpy.mean(part**2))
        found.append(2 * abs(part @ turn) ** 2 / window**2 / power if power >= 100 else 0.0)
    return found


class Spread:
    """What the echo of a peer may have less than without the runner: of the share of its tone, and of its length."""

    def __init__(self, share, length):
        self.share, self.length = share, length


# A peer keeps up to 500 ms of three seconds in its buffer, and the sound begins with silence, which one window may hold.
CLEAN = Spread(0.1, 0.2)
# Of the share of a tone, frames that a late group costs beside the one that was lost.
FRAMES = 0.05
# Where a check is about the connection, its sound may have gaps.
ANY_SOUND = Spread(0.3, 0.5)


def losing(counters, length=CLEAN.length):
    """On a path of these links, each passed once each way, which count what they lose: each loss may cost its frame of sound."""
    def spread():
        return Spread(sum(2 * link.lost_share() for link in counters) + FRAMES, length)
    return spread


async def measure(peer, seconds):
    """The mean share of the peer's own tone in what it hears, and the length of that for the time it took to come."""
    await peer.until(lambda: peer.event("catalog"), "the catalog of the bot")
    samples, rate, took = await peer.hear(seconds)
    found = shares(samples, peer.hz, rate)
    # The sound begins with silence, and the first windows may hold it.
    return sum(found[5:]) / max(1, len(found[5:])), len(samples) / rate / max(took, seconds)


@once
async def control(kind):
    """The same of a peer and a bot on the same library (`echo_bot.py`)."""
    bot = Runner(HERE / "echo_bot.py", "--moq-bind", "127.0.0.1:0", inside=(sys.executable,))
    try:
        async with Peer(await starts(bot), kind) as peer:
            await peer.ready()
            return await measure(peer, 3)
    finally:
        bot.stop()


async def hears_itself(peer, seconds=3, spread=CLEAN):
    """The peer's own tone comes back, about as long as it takes. `spread` may be known afterwards only. Returns the mean share
    of the tone."""
    (share, length), (control_share, control_length) = await measure(peer, seconds), await control(peer.kind)
    spread = spread() if callable(spread) else spread
    judge("length of the audio for its time", length, control_length, spread.length)
    judge_share(share, control_share, spread.share)
    return share


async def starts(runner, **body):
    """What `/start` answers."""
    status, reply = await runner.fetch("POST", "/start", {"transport": "moq", **body})
    assert status == 200, (status, reply)
    return reply
