"""Two nodes of the published LiveKit server with one Redis, and three registered runners: parts of it are killed, drained and cut
off under live talks. Prints a line per check and a table; exits with 1 when a check failed.

    nodes.py [--binary PATH] --published PATH [CHECK...]      as root, with what requirements.txt names here, `ip`, `nft`, `redis-server`

Callers are participants of LiveKit's Python client: each hears its own tone from the bot of its room. They reach the nodes through a
balancer, as in `docs/scale.md`. Every node and every runner has a network of its own (`stage.py`), and nothing leaves the machine.
"""

import asyncio
import os
import pathlib
import signal
import sys
import time

# At the end, because other folders here have the names of packages.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import stage
from checks import chosen, options
from jobs import bots
from listener import until_all
from node_pair import NodePair, Talk, gaps, logged, most, span
from reference import judge
from world import World

LIMIT_S = 400
# A talk that nothing has happened to may lose some packets more than before, when nothing had happened to any. Whatever breaks
# a talk takes longer.
UNHARMED_S = 2.8
BEFORE_S = 2
# Runners give up a server that is silent for 25 s, servers a participant after 20 s; the rest is for the way back. A time limit.
BACK_S = 90
TABLE = []


def row(what, calls, noticed, back, two_bots):
    """Adds a row to the table."""
    TABLE.append((what, calls, noticed, back, two_bots))


def unharmed(talks, since):
    """Asserts that talks went on without a gap; returns the longest silence."""
    longest = gaps(talks, since)
    before = [talk.caller.gap(since - BEFORE_S, since)[0] for talk in talks]
    judge("seconds of silence", max(longest, default=0), max(before, default=0), UNHARMED_S, at_most=True)
    for talk in talks:
        assert not talk.caller.told("disconnected", since=since), talk.room
        assert talk.caller.two_bots(since)[0] == 0, talk.caller.bots
    return most(longest)


def alone(talks, since):
    """Asserts that no caller ever heard two bots; returns for how long two were in a room."""
    there, loud = zip(*(talk.caller.two_bots(since) for talk in talks))
    assert max(loud) < 1, f"two bots spoke for {loud} s"
    return f"two in {sum(seconds > 0 for seconds in there)} rooms, {most(there)}" if any(there) else "never two"


def busiest(pair, counts, among):
    return max(among, key=lambda n: counts[n])


async def full(world):
    """12 rooms get one bot each, and no runner more than its four places; the 13th caller is told by a 503; a place that is free again serves"""
    pair = await NodePair(world, 4, departure_s=2).start()
    talks = await pair.talk(9)
    # The server asks the runners of one node, so the last places are not for rooms that come at the same time.
    for _ in range(3):
        talks += await pair.talk(1)
    since = time.monotonic()
    counts = await pair.counts()
    assert counts == [4, 4, 4], counts
    status, answer = await pair.runners[0].fetch("POST", "/start", {"body": {}})
    refused = time.monotonic() - since
    assert status == 503 and "no runner took the call" in answer["detail"], (status, answer)
    late = Talk("late", "A", 1240)
    await pair.make(late)
    await pair.join(late)
    await asyncio.sleep(8)
    assert not bots(late.caller) and await pair.counts() == [4, 4, 4]
    going_on = unharmed(talks, since)
    await talks[0].caller.leave()
    await asyncio.gather(*(until_count(pair, 11),))
    status, answer = await pair.runners[0].fetch("POST", "/start", {"body": {}})
    assert status == 200, (status, answer)
    assert not bots(late.caller), "the server offers a room once"
    await pair.one_bot_each(talks[1:])
    row("runners full, a 13th room", "12 go on", f"`/start`: 503 after {refused:.1f} s", "a later `/start` takes the freed place", "never two")
    return f"places {counts}, 503 after {refused:.1f} s, longest silence {going_on}"


async def until_count(pair, wanted, limit_s=40):
    """Waits until this many sessions are left."""
    start = time.monotonic()
    while sum(await pair.counts()) != wanted:
        assert time.monotonic() - start < limit_s, await pair.counts()
        await asyncio.sleep(0.1)


async def runner_drained(world):
    """SIGTERM with `--drain`: the runner's talks end by themselves, new rooms go to the others, its exit code is 0, and no job failed"""
    pair = await NodePair(world, 4, departure_s=2).start()
    talks = await pair.talk(6)
    victim = busiest(pair, await pair.counts(), (0, 1))
    own = await pair.talks_of(pair.runners[victim])
    others = [n for n in range(3) if n != victim]
    before = [await pair.runners[n].sessions() for n in others]
    since, unix = time.monotonic(), time.time()
    pair.runners[victim].process.send_signal(signal.SIGTERM)
    await pair.runners[victim].wait_for_log("waiting up to 300 s")
    new = await pair.talk(3)
    assert sum([await pair.runners[n].sessions() for n in others]) == sum(before) + 3
    going_on = unharmed(talks, since)
    for talk in own:
        await talk.caller.leave()
    code = await asyncio.to_thread(pair.runners[victim].process.wait, 60)
    ended = time.time() - unix
    assert code == 0, code
    text = pair.runners[victim].log_text()
    assert "failed" not in text, text[-2000:]
    rest = [talk for talk in talks + new if talk not in own]
    unharmed(rest, since)
    await pair.one_bot_each(rest)
    row("a runner, SIGTERM with `--drain`", f"its {len(own)} and the other {len(talks) - len(own)} go on", "at once: full",
        f"3 new rooms at the others; exit code 0 after its last talk", "never two")
    return f"{len(own)} talks, longest silence {going_on}, ended after {ended:.1f} s"


async def runner_killed(world):
    """SIGKILL of a runner: the others watch, and each of its rooms gets a new bot; the other talks go on without a gap"""
    pair = await NodePair(world, 8).start()
    talks = await pair.talk(12)
    victim = busiest(pair, await pair.counts(), range(3))
    lost = await pair.talks_of(pair.runners[victim])
    kept = [talk for talk in talks if talk not in lost]
    assert lost and kept
    since, unix = time.monotonic(), time.time()
    pair.runners[victim].process.kill()
    old = {talk: bots(talk.caller) for talk in lost}
    await until_all(lambda caller: not set(next(old[talk] for talk in lost if talk.caller is caller)) & set(bots(caller)),
                    [talk.caller for talk in lost], "the dead bot is gone", BACK_S)
    gone = [next(at for at, there in talk.caller.bots if at > since and not set(there) & set(old[talk])) - since for talk in lost]
    await pair.back(lost, since, BACK_S)
    silent = gaps(lost, since)
    survivors = [runner for n, runner in enumerate(pair.runners) if n != victim]
    asked = sorted(at for runner in survivors for at in logged(runner, "asked for a new one", unix))
    going_on = unharmed(kept, since)
    await pair.one_bot_each(talks)
    assert sum([await runner.sessions() for runner in survivors]) == 12
    second = alone(lost, since)
    row("a runner, SIGKILL; the others watch", f"its {len(lost)} fall silent; the other {len(kept)} go on", f"participants gone after {span(gone)}",
        f"a new bot speaks after {span(silent)}", second)
    return f"{len(lost)} talks, gone {span(gone)}, asked {len(asked)} times, silent {span(silent)}, {second}, others {going_on}"


async def runner_killed_unwatched(world):
    """the same without webhooks: those rooms stay without a bot, and the other talks go on"""
    pair = await NodePair(world, 8, watched=False).start()
    talks = await pair.talk(6)
    victim = busiest(pair, await pair.counts(), range(3))
    lost = await pair.talks_of(pair.runners[victim])
    kept = [talk for talk in talks if talk not in lost]
    since = time.monotonic()
    pair.runners[victim].process.kill()
    gone = await until_all(lambda caller: not bots(caller), [talk.caller for talk in lost], "the dead bot is gone", BACK_S)
    await asyncio.sleep(10)
    assert not any(bots(talk.caller) for talk in lost)
    going_on = unharmed(kept, since)
    row("the same without a watcher", f"its {len(lost)} fall silent; the other {len(kept)} go on", f"participants gone after {gone:.1f} s",
        "no other bot", "never two")
    return f"{len(lost)} talks, gone after {gone:.1f} s, others {going_on}"


async def node_killed(world):
    """SIGKILL of a node: its talks come back on the other one, with one bot each; the talks there go on; the runners register there"""
    pair = await NodePair(world, 8).start()
    talks = await pair.talk(12)
    lost = [talk for talk in talks if talk.node == "A"]
    kept = [talk for talk in talks if talk.node == "B"]
    since, unix = time.monotonic(), time.time()
    pair.nodes["A"].stop()
    moved = await registered_at(pair, "B")
    await pair.back(lost, since, BACK_S)
    silent = gaps(lost, since)
    # What the server launches anew has come by then.
    await asyncio.sleep(10)
    noticed = sorted(at for runner in pair.runners for at in
                     logged(runner, "the connection to the room is lost", unix) + logged(runner, "the room is lost", unix))
    going_on = unharmed(kept, since)
    assert all(pair.home(talk) == pair.node_ids["B"] for talk in lost)
    await until_all(lambda caller: len(bots(caller)) == 1, [talk.caller for talk in talks], "one bot", 20)
    await pair.one_bot_each(talks)
    assert sum(await pair.counts()) == 12, await pair.counts()
    second = alone(lost, since)
    row("a node, SIGKILL", f"its {len(lost)} are interrupted; the other {len(kept)} go on", f"bots after {span(noticed)}",
        f"heard again after {span(silent)}; runners registered at the other node after {moved:.1f} s", second)
    return f"noticed {span(noticed)}, moved {moved:.1f} s, silent {span(silent)}, {second}, others {going_on}"


async def registered_at(pair, node, limit_s=60):
    """Waits until every runner is registered at a node; returns the seconds."""
    start = time.monotonic()
    while True:
        workers = [await pair.worker(runner) for runner in pair.runners if runner.process.poll() is None]
        if all(worker["state"] == "registered" and worker["node"] == pair.node_ids[node] for worker in workers):
            return time.monotonic() - start
        assert time.monotonic() - start < limit_s, workers
        await asyncio.sleep(0.1)


async def node_drained(world):
    """SIGTERM of a node: no new rooms there, its talks go on, it ends after the last one, and its runners register at the other"""
    pair = await NodePair(world, 8, departure_s=2).start()
    talks = await pair.talk(12)
    own = [talk for talk in talks if talk.node == "A"]
    since, unix = time.monotonic(), time.time()
    process = pair.nodes["A"].process
    process.send_signal(signal.SIGTERM)
    # A balancer takes out a node that is going to end.
    pair.balancer.nodes = [pair.node_sites["B"].address]
    await asyncio.sleep(5)
    # Rooms that name no node.
    new = [Talk(f"new-{n}", "", 1300 + 60 * n) for n in range(2)]
    for talk in new:
        await pair.make(talk)
        await pair.join(talk)
        await talk.caller.until(lambda: bots(talk.caller), "a bot", 40)
        await talk.caller.hear(talk.hz)
        assert pair.home(talk) == pair.node_ids["B"]
    all_heard = time.monotonic()
    assert process.poll() is None
    going_on = unharmed(talks, since)
    for talk in own:
        await talk.caller.leave()
    left = time.monotonic()
    code = await asyncio.to_thread(process.wait, 120)
    ended = time.monotonic() - left
    moved = await registered_at(pair, "B")
    kept = [talk for talk in talks if talk not in own]
    unharmed(kept, since)
    unharmed(new, all_heard)
    await pair.one_bot_each(kept + new)
    row("a node, SIGTERM", "all go on", "at once: no new room there", f"it ends {ended:.1f} s after its last caller; runners registered at the other node {moved:.1f} s later",
        "never two")
    return f"exit code {code}, ended {ended:.1f} s after the last caller, moved {moved:.1f} s, longest silence {going_on}"


async def redis_restarted(world):
    """Redis is killed and comes back with its data after 10 s: every talk goes on after a gap with its bot, and so do new rooms; no runner restarts"""
    pair = await NodePair(world, 8, departure_s=2).start()
    talks = await pair.talk(12)
    since, unix = time.monotonic(), time.time()
    pair.redis.kill()
    await asyncio.sleep(3)
    asked = time.monotonic()
    try:
        status, answer = await pair.runners[0].fetch("POST", "/start", {"body": {}})
    except OSError as error:
        status, answer = 0, repr(error)
    refused, refusal = time.monotonic() - asked, status
    assert status in (502, 503), (status, answer)
    await asyncio.sleep(max(0, 10 - (time.monotonic() - since)))
    pair.redis.start()
    back = time.monotonic()
    while True:
        status, answer = await pair.runners[0].fetch("POST", "/start", {"body": {}})
        if status == 200:
            break
        assert time.monotonic() - back < 60, (status, answer)
    took = time.monotonic() - back
    caller = await world.caller(pair.balancer.url, answer["token"], 1480)
    await caller.until(lambda: bots(caller), "a bot", 40)
    await caller.hear(1480)
    # The nodes pass on signalling through Redis, so participants resume or join again.
    await pair.back(talks, back, BACK_S)
    silent, second = gaps(talks, since), alone(talks, since)
    await pair.one_bot_each(talks)
    losses = [len(logged(runner, "connection to the LiveKit server is lost", unix)) for runner in pair.runners]
    row("Redis, SIGKILL, back after 10 s", f"all are silent for {span(silent)}", f"`/start`: {refusal} after {refused:.1f} s",
        f"new rooms {took:.1f} s after its return", second)
    return f"refused after {refused:.1f} s, served {took:.1f} s after its return, silent {span(silent)}, {second}, lost registrations {losses}"


async def runner_cut(world):
    """the cable of a runner is pulled for 40 s: its rooms get bots from the others, rooms made meanwhile too; it comes back by itself, and no room keeps two bots"""
    pair = await NodePair(world, 10).start()
    talks = await pair.talk(12)
    victim = busiest(pair, await pair.counts(), range(3))
    runner, site = pair.runners[victim], pair.runner_sites[victim]
    lost = await pair.talks_of(runner)
    kept = [talk for talk in talks if talk not in lost]
    since, unix = time.monotonic(), time.time()
    site.cut()
    served = 0
    made = []
    # What the server offers to the runner that is away is lost.
    for n in range(3):
        talk = Talk(f"meanwhile-{n}", "B", 1300 + 60 * n)
        made.append(talk)
        await pair.make(talk)
        await pair.join(talk)
    await asyncio.sleep(10)
    served = sum(bool(bots(talk.caller)) for talk in made)
    await until_all(lambda caller: caller.heard_again(since + 5), [talk.caller for talk in lost], "it hears another bot", BACK_S)
    silent = gaps(lost, since)
    await asyncio.sleep(max(0, since + 40 - time.monotonic()))
    site.cut(False)
    back = time.monotonic()
    await runner.wait_for_log("connection to the LiveKit server is lost", 40)
    noticed = logged(runner, "connection to the LiveKit server is lost", unix)
    await asyncio.sleep(1)
    again = await registered(pair, victim)
    returned = time.monotonic() - back
    # Its sessions return, find the new bots, and leave.
    await asyncio.sleep(20)
    await until_all(lambda caller: len(bots(caller)) == 1, [talk.caller for talk in talks], "one bot", 40)
    await pair.one_bot_each(talks)
    going_on = unharmed(kept, since)
    second = alone(lost, since)
    row("the cable of a runner, 40 s", f"its {len(lost)} fall silent; the other {len(kept)} go on", f"the runner after {span(noticed)}",
        f"a new bot speaks after {span(silent)}; registered {returned:.1f} s after the return; {3 - served} of 3 rooms made meanwhile got none", second)
    return (f"{len(lost)} talks, noticed {span(noticed)}, silent {span(silent)}, {served} of 3 new rooms served, registered as {again} "
            f"{returned:.1f} s after the return, {second}, others {going_on}")


async def runner_cut_briefly(world):
    """the cable of a runner is pulled for 8 s: its talks go on with the same bots"""
    pair = await NodePair(world, 8).start()
    talks = await pair.talk(6)
    victim = busiest(pair, await pair.counts(), range(3))
    lost = await pair.talks_of(pair.runners[victim])
    kept = [talk for talk in talks if talk not in lost]
    old = {talk: bots(talk.caller) for talk in lost}
    since = time.monotonic()
    pair.runner_sites[victim].cut()
    await asyncio.sleep(8)
    pair.runner_sites[victim].cut(False)
    back = time.monotonic()
    await pair.back(lost, back, BACK_S)
    silent = [talk.caller.gap(since)[0] for talk in lost]
    await asyncio.sleep(15)
    assert all(bots(talk.caller) == old[talk] for talk in lost), [(old[talk], bots(talk.caller)) for talk in lost]
    going_on = unharmed(kept, since)
    second = alone(lost, since)
    await pair.one_bot_each(talks)
    row("the cable of a runner, 8 s", f"its {len(lost)} are silent; the other {len(kept)} go on", "", f"the same bots, silent for {span(silent)}", second)
    return f"{len(lost)} talks, silent {span(silent)}, {second}, others {going_on}"


async def registered(pair, number, limit_s=60):
    """Waits until a runner is registered; returns its id."""
    start = time.monotonic()
    while (worker := await pair.worker(pair.runners[number]))["state"] != "registered":
        assert time.monotonic() - start < limit_s, worker
        await asyncio.sleep(0.1)
    return worker["id"]


CHECKS = {check.__name__: check for check in (
    full, runner_drained, runner_killed, runner_killed_unwatched, node_killed, node_drained, redis_restarted, runner_cut, runner_cut_briefly)}


def table():
    lines = [("what", "talks", "noticed", "afterwards", "two bots in one room"), ("---",) * 5, *TABLE]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


async def main(binary, published, names):
    code = await stage.run(chosen(CHECKS, names).values(), lambda: World(binary, None, published, stage.ADDRESS), lambda _: LIMIT_S)
    print(f"\n{table()}\n\n{os.cpu_count()} processors", flush=True)
    return code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--published", type=pathlib.Path, required=True, help="the LiveKit server (tests/check/livekit-server.sh)")
    given = parser.parse_args()
    stage.enter()
    sys.exit(asyncio.run(main(given.binary.resolve(), given.published.resolve(), given.checks)))
