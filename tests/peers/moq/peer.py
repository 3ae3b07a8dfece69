"""Peers for the checks: each is a process, so that two versions of one library fit in, and one can be killed."""

import asyncio
import base64
import json
import os
import pathlib
import sys
import time

import numpy

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# Where `requirements-0.4.txt` is installed: both versions have the same name.
OLD = ROOT / "target" / "moq-rs-0.4"
# A clean leave is noticed at once; the rest is the busy machine's.
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
        start = time.monotonic()
        while not (result := condition()):
            ended = self.event("ended")
            if ended or time.monotonic() - start > limit_s:
                said = [event for event in self.events if "pcm" not in event][-5:]
                raise AssertionError(f"{'ended before' if ended else f'not within {limit_s} s'}: {what}; {said}")
            await asyncio.sleep(0.02)
        return result

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
        heard = await self.until(lambda: self.event("heard", since), "audio", 2 * seconds + 10)
        return numpy.frombuffer(base64.b64decode(heard["pcm"]), "<i2"), heard["rate"], heard["took"]

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


async def hears_itself(peer, seconds=3, least=0.9, coverage=0.8):
    """The peer's own tone comes back, about as long as it takes. Returns the mean share of the tone."""
    await peer.until(lambda: peer.event("catalog"), "the catalog of the bot")
    samples, rate, took = await peer.hear(seconds)
    assert len(samples) >= coverage * took * rate and len(samples) >= coverage * seconds * rate, \
        f"{len(samples) / rate:.2f} s of audio in {took:.2f} s"
    found = shares(samples, peer.hz, rate)
    # The sound begins with silence, and the first windows may hold it.
    share = sum(found[5:]) / len(found[5:])
    assert share > least, f"share of the tone {share:.3f}: {[round(each, 2) for each in found]}"
    return share


async def starts(runner, **body):
    """What `/start` answers."""
    status, reply = await runner.fetch("POST", "/start", {"transport": "moq", **body})
    assert status == 200, (status, reply)
    return reply
