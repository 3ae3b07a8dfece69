"""Replicas behind a real balancer, HAProxy, with calls of every kind. Prints a line per check; exits with 1 when one failed.

    run.py [--binary PATH] [--calls N] [CHECK...]      with what ../aiortc/requirements.txt and ../pipecat/requirements.txt name, and haproxy

The check `browser` also needs Chromium, Node and `npm ci --prefix ../browser`.
"""

import asyncio
import collections
import json
import pathlib
import random
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "aiortc"), str(HERE.parent / "pipecat")]

from calls import Lost, Refused, WebRtc, caller
from checks import Report, chosen, options
from replicas import NAMES, Cluster

# Live calls at any time during the rolling restart, and how long each lasts.
CALLS = 60
CALL_S = (6, 12)
# Callers that arrive in one second.
ARRIVALS_PER_S = 8
KILLED_CALLS = 24


class Callers:
    """Keeps a number of calls up: when one ends, another begins."""

    def __init__(self, cluster):
        self.cluster, self.random = cluster, random.Random(1)
        self.done, self.live, self.failures = collections.Counter(), 0, []
        self.renegotiated, self.stops = 0, False
        self.tasks = []

    def arrive(self, count):
        self.tasks = [asyncio.create_task(self.place(n)) for n in range(count)]

    async def place(self, number):
        """One after the other, each of another kind than the one before."""
        await asyncio.sleep(number / ARRIVALS_PER_S)
        while not self.stops:
            call = caller(self.cluster, number)
            try:
                await call.open()
                self.live += 1
                try:
                    await call.hold(self.random.uniform(*CALL_S))
                finally:
                    self.live -= 1
                self.done[call.kind] += 1
                self.renegotiated += getattr(call, "renegotiated", 0)
            except Exception as error:
                self.failures.append(error)
            finally:
                await call.close()
            number += 1

    async def full(self, count, limit_s=60):
        start = time.monotonic()
        while self.live < count:
            assert time.monotonic() - start < limit_s and not self.failures, f"{self.live} calls, {self.failures}"
            await asyncio.sleep(0.1)

    async def stop(self):
        self.stops = True
        await asyncio.gather(*self.tasks)

    def verdict(self):
        refused = [error for error in self.failures if isinstance(error, Refused)]
        lost = [error for error in self.failures if isinstance(error, Lost)]
        others = [error for error in self.failures if not isinstance(error, (Refused, Lost))]
        assert not self.failures, f"{len(refused)} refused, {len(lost)} lost, {len(others)} others: {self.failures[:8]}"


async def rolling(cluster):
    """a rolling restart of all three under calls of every kind loses none and refuses none"""
    callers = Callers(cluster)
    callers.arrive(CALLS)
    try:
        # Fewer for a moment, while one caller gives way to the next.
        await callers.full(CALLS * 9 // 10)
        counts, drains = await cluster.counts(), []
        assert min(counts.values()) >= CALLS // 10, f"not spread: {counts}"
        before = sum(callers.done.values())
        for name in NAMES:
            drains.append(await cluster.restart(name))
        during = sum(callers.done.values()) - before
    finally:
        await callers.stop()
    callers.verdict()
    assert len(callers.done) == 6, f"not of every kind: {callers.done}"
    assert callers.renegotiated, "no connection was renegotiated"
    spread = ", ".join(f"{name} {count}" for name, count in counts.items())
    return (f"{sum(callers.done.values())} calls, {CALLS} at a time, {during} of them ended during the restarts, {callers.renegotiated} renegotiations; "
            f"spread {spread}; drains of {', '.join(f'{took:.1f}' for took in drains)} s")


async def killed(cluster):
    """a replica that is killed loses its own calls only, and their callers' restarts land on others"""
    calls = [caller(cluster, number) for number in range(KILLED_CALLS)]
    try:
        await asyncio.gather(*(call.open() for call in calls))
        holds = [asyncio.create_task(call.hold(12, renegotiates=False)) for call in calls]
        await asyncio.sleep(3)
        counts = await cluster.counts()
        # Session ids are random, so there may be a replica without a call over WebRTC.
        victim = next(call for call in calls if isinstance(call, WebRtc)).replica
        assert sum(counts.values()) == KILLED_CALLS and counts[victim], counts
        began = time.monotonic()
        cluster.kill(victim)
        # A new caller of each kind is taken at once, before the balancer has noticed.
        at_once = [caller(cluster, number) for number in range(6)]
        await asyncio.gather(*(call.open() for call in at_once))
        took = time.monotonic() - began
        ends = await asyncio.gather(*holds, return_exceptions=True)
        lost = [call for call, end in zip(calls, ends) if isinstance(end, Lost)]
        wrong = [end for end in ends if end is not None and not isinstance(end, Lost)]
        assert not wrong and len(lost) == counts[victim], f"{len(lost)} lost of {counts[victim]}, {wrong[:5]}"
        webrtc = [call for call in lost if isinstance(call, WebRtc)]
        assert webrtc and all(call.replica == victim for call in webrtc)
        # A WebRTC client restarts with the id of its session and of its connection; a socket takes a new token.
        for call in lost:
            await (call.connect(restart=True) if isinstance(call, WebRtc) else call.close())
        assert all(call.replica != victim for call in webrtc), [call.pc_id for call in webrtc]
        again = [caller(cluster, calls.index(call)) for call in lost if not isinstance(call, WebRtc)]
        await asyncio.gather(*(call.open() for call in again))
        await asyncio.gather(*(call.hold(3) for call in [*webrtc, *again]))
        await asyncio.gather(*(call.close() for call in [*at_once, *again]))
    finally:
        await asyncio.gather(*(call.close() for call in calls), return_exceptions=True)
    cluster.start(victim)
    await cluster.ready()
    return (f"{len(lost)} of {KILLED_CALLS} calls, all of them at the killed one; {len(webrtc)} restarted under the same session; "
            f"six new calls {took:.2f} s after the kill")


async def routes(cluster):
    """candidates reach the replica that answered, also without a session; another replica refuses them in clear words"""
    client = WebRtc(cluster)
    await client.open()
    try:
        other = next(name for name in NAMES if name != client.replica)
        body = {"pc_id": client.pc_id, "candidates": []}
        status, reply = await cluster.replicas[other].fetch("PATCH", client.path, body)
        assert status == 421 and f"replica `{client.replica}` made it" in reply["detail"], (status, reply)
        status, reply = await cluster.fetch("PATCH", client.path, body)
        assert status == 200, (status, reply)
        # Through the balancer, `/api/offer` without a session is routed by `pc_id` alone.
        status, reply = await cluster.fetch("PATCH", "/api/offer", body)
        assert status == 200, (status, reply)
    finally:
        await client.close()
    seen = collections.Counter()
    for number in range(6):
        call = WebRtc(cluster)
        call.path = "/api/offer"
        await call.open()
        seen[call.replica] += 1
        await call.offer()
        await call.close()
    assert len(seen) > 1, f"every offer went to one replica: {seen}"
    return f"421 at replica {other}; offers without a session at {dict(seen)}"


async def browser(cluster):
    """Pipecat's JavaScript client in Chromium: candidates and a restart reach its replica while that drains, and when it is killed, the client's own restart lands on another"""
    process = await asyncio.create_subprocess_exec(
        "node", HERE.parent / "browser" / "cluster.mjs", cluster.url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    said = asyncio.create_task(process.stderr.read())

    async def step(word=None):
        """Tells the client to go on, and returns what it has done."""
        if word:
            process.stdin.write(f"{word}\n".encode())
        line = await asyncio.wait_for(process.stdout.readline(), 90)
        if not line:
            raise AssertionError((await said).decode())
        return json.loads(line)

    try:
        first = (await step())["replica"]
        draining = asyncio.create_task(cluster.restart(first))
        await asyncio.sleep(2)
        restarted = await step("restart")
        assert restarted["replica"] == first and not draining.done(), restarted
        left = await step("leave")
        took = await draining
        second = (await step("connect"))["replica"]
        began = time.monotonic()
        cluster.kill(second)
        third = await step("killed")
        assert third["replica"] != second, third
        after = time.monotonic() - began
        cluster.start(second)
        await cluster.ready()
        statuses = {**left["statuses"], **third["statuses"]}
        assert set(statuses) == {"POST 200", "PATCH 200"}, statuses
        return f"requests {third['statuses']}; drained {took:.1f} s; audio again {after:.1f} s after the kill"
    finally:
        if process.returncode is None:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()


async def scheme(cluster):
    """what a client says of the scheme reaches no replica"""
    request = urllib.request.Request(f"{cluster.url}/start", b'{"transport": "telephony_a"}', {
        "Content-Type": "application/json", "X-Forwarded-Proto": "https"})
    said = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=10).read()))
    found = [value for value in said.values() if str(value).startswith(("ws:", "wss:"))]
    assert found and not any(value.startswith("wss:") for value in found), said
    return f"{len(found)} URL without TLS"


CHECKS = [rolling, killed, routes, browser, scheme]


async def main(binary, calls, names):
    global CALLS
    CALLS = calls
    with Report() as report:
        for check in chosen(CHECKS, names).values():
            with report.check(check) as result:
                cluster = result.keep(Cluster(binary))
                await cluster.ready()
                result.said = await check(cluster)
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--calls", type=int, default=CALLS, help="live calls during the rolling restart")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.binary.resolve(), given.calls, given.checks)))
