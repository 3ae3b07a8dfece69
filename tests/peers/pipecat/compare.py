"""Compares edge-runner with Pipecat's own runner: the same bot, `compared_bot.py`, and the same callers.

    compare.py [--binary PATH] [--calls N] [--at-once N] [--most N]

Prints a table in Markdown: medians from `/start` to `bot-ready` and to the first sound, of calls that take turns on both runners with a
second between them, on `/ws-client` and over WebRTC;
late frames of echo calls at once, their memory and processor time; the longest pause in the sound of a call while the bot of another
one blocks its loop for 2 s; with `--most`, how many echo calls at once, of at most that many, have no late frame.
A frame is late that comes more than 100 ms after what came before it has been played. Nothing else should run on the machine.
Beside Pipecat, its runner needs fastapi, uvicorn, python-dotenv, python-multipart, jinja2 and aiortc.
"""

import argparse
import array
import asyncio
import contextlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# At the end, because this folder has the name of the package.
sys.path.append(str(HERE.parent))

from pipecat.frames.protobufs import frames_pb2
from websockets.asyncio.client import connect

from checks import free_ports, until
from runner import BINARY, ROOT, Runner
from unchanged import browser

BOT = HERE / "compared_bot.py"
RATE, FRAME_S = 24_000, 0.02
LATE_S, LOUD = 0.1, 500
# Time limits.
STARTED_S, SOON_S = 60, 20
SPOKEN_S, BLOCKED_S = 10, 4
# Between calls, as callers of one device come. A runner may prepare for the next one.
PAUSE_S = 1
TONE = array.array("h", (int(8000 * math.sin(2 * math.pi * 440 * n / RATE)) for n in range(RATE // 50))).tobytes()

READY = {"label": "rtvi-ai", "type": "client-ready", "id": "r", "data": {"version": "2.1.0", "about": {"library": "check"}}}


class Call:
    """A caller who speaks without a pause. `sounds` has the moment and the length of each part of the bot's sound."""

    def __init__(self, url, speaks=False):
        self.url, self.speaks = url, speaks
        self.ready_at, self.heard_at, self.sounds, self.began = None, None, [], time.monotonic()

    async def __aenter__(self):
        started = await asyncio.to_thread(post, self.url + "/start", {"transport": "websocket"})
        self.socket = await connect(started["wsUrl"], proxy=None, max_size=None)
        self.tasks = [asyncio.create_task(self.listen())]
        await self.send(READY)
        if self.speaks:
            self.tasks.append(asyncio.create_task(self.speak()))
        return self

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.socket.close()

    async def listen(self):
        async for data in self.socket:
            frame, now = frames_pb2.Frame.FromString(data), time.monotonic()
            kind = frame.WhichOneof("frame")
            if kind == "message" and json.loads(frame.message.data).get("type") == "bot-ready":
                self.ready_at = self.ready_at or now
            elif kind == "audio" and max(array.array("h", frame.audio.audio), default=0) > LOUD:
                self.heard_at = self.heard_at or now
                self.sounds.append((now, len(frame.audio.audio) / 2 / frame.audio.sample_rate))

    async def speak(self):
        frame = frames_pb2.Frame()
        frame.audio.audio, frame.audio.sample_rate, frame.audio.num_channels = TONE, RATE, 1
        data, start, count = frame.SerializeToString(), time.monotonic(), 0
        while True:
            await self.socket.send(data)
            count += 1
            await asyncio.sleep(max(0, start + count * FRAME_S - time.monotonic()))

    async def send(self, message):
        frame = frames_pb2.Frame()
        frame.message.data = json.dumps(message)
        await self.socket.send(frame.SerializeToString())

    def late(self, since):
        """How many parts of the sound came too late, and how many came."""
        late, total, due = 0, 0, None
        for at, length in self.sounds:
            if at < since:
                continue
            total += 1
            if due is None or at > due + LATE_S:
                late += due is not None
                due = at
            due += length
        return late, total

    def pause(self, since):
        """The longest time without sound."""
        times = [since, *(at for at, _ in self.sounds if at >= since), time.monotonic()]
        return max(later - before for before, later in zip(times, times[1:]))


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=STARTED_S) as reply:
        return json.loads(reply.read())


async def timed(url):
    """One call. Seconds from `/start` to `bot-ready` and to the first sound."""
    async with Call(url) as call:
        await until(lambda: call.ready_at and call.heard_at, "a bot that is ready and greets", STARTED_S)
        return call.ready_at - call.began, call.heard_at - call.began


class Http(Runner):
    """Requests to a runner that something else has started."""

    def __init__(self, url):
        self.url = url


async def timed_in_browser(url):
    """The same over WebRTC, with aiortc."""
    began, peer, found = time.monotonic(), browser(Http(url)), {}
    try:
        await peer.connect(limit_s=STARTED_S)
        peer.send(READY)
        while len(found) < 2:
            if peer.message("bot-ready"):
                found.setdefault("ready", time.monotonic() - began)
            if max(peer.received[-2 * peer.rate:], default=0) > LOUD:
                found.setdefault("heard", time.monotonic() - began)
            assert time.monotonic() - began < STARTED_S, f"only {found}"
            await asyncio.sleep(0.005)
        return found["ready"], found["heard"]
    finally:
        await peer.close()


def processes(pid):
    """A process and all that it has started."""
    children = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(entry.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(entry.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def memory_mib(pid):
    """The memory of a process and of all that it has started. What several share counts once (PSS)."""
    kib = 0
    for each in processes(pid):
        with contextlib.suppress(OSError):
            lines = pathlib.Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


def processor_s(pid):
    """The processor time of a process and of all that it has started and that still runs."""
    ticks = 0
    for each in processes(pid):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, pathlib.Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def at_once(url, pid, count):
    """That many echo calls: late parts of their sound, all parts, MiB of the runner with its bots, and cores."""
    async with contextlib.AsyncExitStack() as calls:
        each = [await calls.enter_async_context(Call(url, speaks=True)) for _ in range(count)]
        await until(lambda: all(len(call.sounds) > 50 for call in each), "the sound of all calls", SOON_S)
        since, used = time.monotonic(), processor_s(pid)
        await asyncio.sleep(SPOKEN_S)
        cores = (processor_s(pid) - used) / (time.monotonic() - since)
        late, total = map(sum, zip(*(call.late(since) for call in each)))
        return late, total, memory_mib(pid), cores


async def most_at_once(url, pid, limit):
    """How many echo calls at once, of at most this many, have no late frame."""
    most = 0
    for count in range(1, limit + 1):
        late, *_ = await at_once(url, pid, count)
        if late:
            break
        most = count
        await asyncio.sleep(PAUSE_S)
    return most


async def blocked(url):
    """The longest pause in a call while the bot of another one blocks its loop."""
    async with Call(url, speaks=True) as one, Call(url) as other:
        await until(lambda: len(one.sounds) > 50 and other.ready_at, "the sound of a call", SOON_S)
        since = time.monotonic()
        await other.send({"label": "rtvi-ai", "type": "client-message", "id": "b", "data": {"t": "block", "d": {}}})
        await asyncio.sleep(BLOCKED_S)
        return one.pause(since)


@contextlib.asynccontextmanager
async def pipecats_runner():
    port, = free_ports(1)
    # What the runner of Pipecat needs beside Pipecat.
    path = os.pathsep.join([str(ROOT / "target" / "pipecat-cli"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([sys.executable, BOT, "--host", "localhost", "--port", str(port)], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path})
        try:
            url = f"http://localhost:{port}"
            await until(lambda: serves(url + "/status"), "Pipecat's runner", STARTED_S)
            yield url, process.pid
        finally:
            process.kill()
            process.wait()


def serves(url):
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


async def medians(timed, urls, calls):
    """The medians of both runners for each of the two times. Their calls take turns, after one that is not counted."""
    found = [[], []]
    for nth in range(calls + 1):
        for url, times in zip(urls, found):
            await asyncio.sleep(PAUSE_S)
            taken = await timed(url)
            if nth:
                times.append(taken)
    return [[statistics.median(values) for values in both] for both in zip(*(zip(*times) for times in found))]


async def main(binary, calls, count, limit):
    runner = Runner(binary, "-v", "--python", sys.executable, str(BOT))
    try:
        await runner.wait_for_log("the bot is loaded before its calls", STARTED_S)
        async with pipecats_runner() as (theirs, pid):
            urls, pids = [runner.url, theirs], [runner.process.pid, pid]
            idle = [memory_mib(pid) for pid in pids]
            socket = await medians(timed, urls, calls)
            webrtc = await medians(timed_in_browser, urls, calls)
            loads = [await at_once(url, pid, count) for url, pid in zip(urls, pids)]
            most = [await most_at_once(url, pid, limit) for url, pid in zip(urls, pids)] if limit else None
            pauses = [await blocked(url) for url in urls]
    finally:
        runner.stop()
    print("| | edge-runner | Pipecat's runner | ratio |\n|---|---|---|---|")
    for caller, both in (("`/ws-client`", socket), ("WebRTC", webrtc)):
        for name, (ours, other) in zip(("`bot-ready`", "the first sound"), both):
            print(f"| {caller}: `/start` to {name}, median of {calls} calls | {ours:.3f} s | {other:.3f} s | {ours / other:.2f} |")
    shares = [f"{late} of {total}" for late, total, *_ in loads]
    print(f"| late parts of the sound of {count} echo calls at once, {SPOKEN_S} s | {shares[0]} | {shares[1]} | |")
    each = [(memory - before) / count for (_, _, memory, _), before in zip(loads, idle)]
    cores = [load[3] / count for load in loads]
    print(f"| memory before the first call | {idle[0]:.0f} MiB | {idle[1]:.0f} MiB | {idle[0] / idle[1]:.2f} |")
    print(f"| memory of each of {count} echo calls at once | {each[0]:.1f} MiB | {each[1]:.1f} MiB | {each[0] / each[1]:.2f} |")
    print(f"| processor time of each of them | {cores[0]:.3f} core | {cores[1]:.3f} core | {cores[0] / cores[1]:.2f} |")
    if most:
        print(f"| echo calls at once without a late part, up to {limit} | {most[0]} | {most[1]} | |")
    print(f"| longest pause of a call while another bot blocks its loop for 2 s | {pauses[0]:.2f} s | {pauses[1]:.2f} s | |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--most", type=int, default=0)
    given = parser.parse_args()
    asyncio.run(main(given.binary.resolve(), given.calls, given.at_once, given.most))
