"""Figures of the runner as a worker of the published LiveKit server. Prints tables; exits with 1 when a limit is passed.

    worker_figures.py [--binary PATH] --published PATH [--joins N] [--jobs N] [TABLE...]     as root, with what requirements.txt and
                                                                                        requirements-agents.txt name here, and `ip`

`compare`: the delay until a bot is heard, and CPU and memory of a job, with 1, 8 and 32 rooms, beside LiveKit's published worker. All
bots echo, all callers are participants of LiveKit's Python client that speak without a pause. `jobs`: the memory of a runner
that serves thousands of jobs. `hop`: the delay that a node adds to each packet, and the CPU and memory that rooms cost it.
Callers run beside what is measured and compete with it for the processors.
"""

import argparse
import asyncio
import bisect
import collections
import os
import pathlib
import socket
import statistics
import struct
import sys
import time
import urllib.request

# At the end, because other folders here have the names of packages.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from livekit import api

import stage
from firewall import Site
from jobs import AGENTS, FOLDER, dispatch, register
from listener import Listener
from runner import BINARY
from server import KEY, SECRET, token
from world import World

LEVELS = (1, 8, 32)
# Seconds over which CPU is measured.
STEADY_S = 20
WAIT_S = 60
# Growth of the runner's least memory from the first half of the jobs to the second.
GROWTH_KIB_MAX = 1024
AT_A_TIME = 16
ETH_P_ALL, SO_TIMESTAMPNS = 3, 35
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Tree:
    """A process and all that descend from it."""

    def __init__(self, pid):
        self.pid = pid

    def pids(self):
        parents = {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents.setdefault(int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]), []).append(int(entry.name))
                except OSError:
                    continue
        found, todo = [], [self.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += parents.get(pid, [])
        return found

    def cpu_s(self):
        """Returns the processor time of every process by its id."""
        used = {}
        for pid in self.pids():
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                used[pid] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
            except OSError:
                continue
        return used

    def memory_mib(self):
        """Returns PSS and RSS of all."""
        pss = rss = 0
        for pid in self.pids():
            try:
                for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    name, _, value = line.partition(":")
                    pss += int(value.split()[0]) if name == "Pss" else 0
                    rss += int(value.split()[0]) if name == "Rss" else 0
            except OSError:
                continue
        return pss / 1024, rss / 1024

    async def cores(self, seconds):
        before, start = self.cpu_s(), time.monotonic()
        await asyncio.sleep(seconds)
        after = self.cpu_s()
        return sum(used - before.get(pid, 0) for pid, used in after.items()) / (time.monotonic() - start)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def table(head, rows):
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (head, ("---",) * len(head), *rows))


# --- Beside the published worker.

async def built_in(world):
    runner = await register(world, "--bot", "echo", "--max-sessions", "64")
    return Tree(runner.process.pid)


async def program(world):
    runner = await register(world, "--max-sessions", "64", "--", sys.executable, str(FOLDER / "program.py"))
    return Tree(runner.process.pid)


async def published(world):
    worker = world.process([sys.executable, FOLDER / "published_echo.py", "start"], env={
        "LIVEKIT_URL": world.servers[-1].url, "LIVEKIT_API_KEY": KEY, "LIVEKIT_API_SECRET": SECRET, "PYTHONPATH": str(AGENTS)})
    await worker.wait_for("registered worker", 90)
    return Tree(worker.process.pid)


WORKERS = {"edge-runner, `--bot echo`": built_in, "edge-runner, a Python program per room": program,
           "livekit-agents 1.8.9": published}


class Room:
    """A room with one caller, who asks for a bot."""

    made = 0

    def __init__(self, world):
        Room.made += 1
        self.world, self.name, self.caller = world, f"room-{Room.made}", Listener()

    async def join(self):
        """Joins, then asks for the bot. Returns the seconds until its track is subscribed, and until it is heard."""
        await self.caller.join(self.world.servers[-1].url, token("anna", self.name))
        await self.caller.talk()
        asked = time.monotonic()
        await dispatch(self.world, self.name)
        await self.caller.until(lambda: self.caller.loud, "the bot is heard", WAIT_S)
        return self.caller.told("track_subscribed") - asked, min(times[0] for times in self.caller.loud.values()) - asked

    async def leave(self):
        await self.caller.leave()
        await asyncio.to_thread(self.world.servers[-1].delete, self.name)


async def measure(world, start, joins):
    """Measures one worker. Returns a row per number of rooms."""
    server = world.server(settings={"room": {"empty_timeout": 60, "departure_timeout": 5}})
    tree, node = await start(world), Tree(server.process.pid)
    first = Room(world)
    # The server asks for workers for 5 s when it knows none of this name, so the first join is not counted.
    await first.join()
    await first.leave()
    await asyncio.sleep(10)
    idle = tree.memory_mib()
    rooms, rows = [], []
    for level in LEVELS:
        delays = []
        while len(delays) < joins or len(rooms) < level:
            if len(rooms) == level:
                await rooms.pop(0).leave()
            room = Room(world)
            rooms.append(room)
            delays.append(await room.join())
        await asyncio.sleep(5)
        cores = await tree.cores(STEADY_S)
        (pss, rss), (node_pss, _) = tree.memory_mib(), node.memory_mib()
        subscribed, received = zip(*delays)
        rows.append({"rooms": level, "joins": len(delays), "p50": statistics.median(received), "p99": percentile(received, 0.99),
                     "track_p50": statistics.median(subscribed), "cpu": cores / level, "pss": pss, "rss": rss,
                     "job_pss": (pss - idle[0]) / level, "idle_pss": idle[0], "idle_rss": idle[1], "node_pss": node_pss})
        print(f"  {rows[-1]}", flush=True)
    for room in rooms:
        await room.leave()
    return rows


async def compare(options, make_world):
    lines = []
    for name, start in WORKERS.items():
        world = make_world()
        print(f"{name}:", flush=True)
        try:
            rows = await measure(world, start, options.joins)
        except Exception:
            print(world.log_text(), file=sys.stderr)
            raise
        finally:
            await world.stop()
        for row in rows:
            lines.append((name, row["rooms"], f"{row['track_p50']:.2f} s", f"{row['p50']:.2f} s", f"{row['p99']:.2f} s", f"{row['cpu']:.4f} core",
                          f"{row['job_pss']:.1f} MiB", f"{row['idle_pss']:.0f} MiB", f"{row['pss']:.0f} MiB", f"{row['rss']:.0f} MiB"))
    print("\n" + table(("worker", "rooms", "track, p50", "heard, p50", "heard, p99", "CPU per job", "memory per job (PSS)", "idle (PSS)",
                        "all (PSS)", "all (RSS)"), lines))
    return True


# --- Thousands of jobs.

async def jobs(options, make_world):
    """Rooms that ask for a bot and are deleted once it is there: the memory, descriptors and threads of the runner stay as they were."""
    world, rows = make_world(), []
    server = world.server(settings={"room": {"empty_timeout": 60, "departure_timeout": 5}})
    runner = await register(world, "--bot", "echo", "--max-sessions", "64")
    pid, number, joined, unserved = runner.process.pid, 0, [], []
    gate = asyncio.Semaphore(AT_A_TIME)
    try:
        async with world.api() as service:
            async def one(n):
                room = f"job-{n}"
                async with gate:
                    start = time.monotonic()
                    wanted = [api.RoomAgentDispatch(agent_name="bot", metadata=f'{{"n": {n}}}')]
                    await service.room.create_room(api.CreateRoomRequest(name=room, agents=wanted))
                    while True:
                        people = (await service.room.list_participants(api.ListParticipantsRequest(room=room))).participants
                        # Its track comes once it has joined by its own account.
                        if [one for one in people if one.state == api.ParticipantInfo.State.ACTIVE and one.tracks]:
                            joined.append(time.monotonic() - start)
                            break
                        if time.monotonic() - start > WAIT_S:
                            there = [(one.identity, one.state, len(one.tracks)) for one in people]
                            unserved.append((room, there, await runner.sessions()))
                            break
                        await asyncio.sleep(0.1)
                    await service.room.delete_room(api.DeleteRoomRequest(room=room))

            start = time.monotonic()
            for mark in range(options.jobs // 10, options.jobs + 1, options.jobs // 10):
                await asyncio.gather(*(one(n) for n in range(number, mark)))
                number = mark
                await runner.wait_for_sessions(0, WAIT_S)
                # What the last sessions gave back is counted.
                await asyncio.sleep(2)
                rows.append((number, *runner_state(pid), rss_kib(server.process.pid) / 1024, time.monotonic() - start))
                print("  " + ", ".join(map(str, rows[-1])), flush=True)
        page = await asyncio.to_thread(lambda: metrics(runner))
        warnings = collections.Counter(line.partition("] ")[2] for line in runner.log_text().splitlines() if " WARN  [" in line)
    except Exception:
        print(world.log_text(), file=sys.stderr)
        raise
    finally:
        await world.stop()
    print("\n" + table(("jobs", "runner (RSS)", "descriptors", "threads", "server (RSS)", "after"),
                       [(n, f"{rss / 1024:.2f} MiB", fds, threads, f"{node:.0f} MiB", f"{after:.0f} s") for n, rss, fds, threads, node, after in rows]))
    print(f"created to joined: p50 {statistics.median(joined):.2f} s, p99 {percentile(joined, 0.99):.2f} s, {AT_A_TIME} at a time")
    for line in page:
        print(line)
    for words, count in warnings.most_common(8):
        print(f"{count} times: {words}")
    done = next(int(float(line.split()[-1])) for line in page if 'outcome="succeeded"' in line or 'outcome="success"' in line)
    # Bursts leave free memory behind for a while; what leaks stays.
    memory = [rss for _, rss, *_ in rows]
    growth = min(memory[5:]) - min(memory[:5])
    print(f"the least memory of the second half is {growth} KiB above that of the first")
    for room, there, sessions in unserved:
        print(f"no bot in {room} with {there}, the runner had {sessions} sessions:")
        for line in pathlib.Path(server.log.name).read_text().splitlines():
            if f'"{room}"' in line and "ListParticipants" not in line:
                print("  " + line)
    return growth <= GROWTH_KIB_MAX and done == options.jobs and not unserved and rows[-1][2:4] == rows[0][2:4]


def runner_state(pid):
    """Returns memory in KiB, descriptors, and threads."""
    return rss_kib(pid), len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def rss_kib(pid):
    line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
    return int(line.split()[1])


def metrics(runner):
    with urllib.request.urlopen(f"{runner.url}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return [line for line in lines if line.startswith("edge_runner_worker_") and "_bucket" not in line]


# --- What a node costs.

class Tap:
    """The audio packets that pass one interface, with the kernel's time."""

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.bind((interface, ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setblocking(False)

    def packets(self):
        """Returns seconds, source and destination of what has come."""
        found = []
        while True:
            try:
                data, ancillary, _, _ = self.socket.recvmsg(2048, 256)
            except BlockingIOError:
                self.socket.close()
                return found
            is_udp = len(data) > 54 and data[12:14] == b"\x08\x00" and data[23] == socket.IPPROTO_UDP
            # RFC 7983, and RFC 5761 for what is RTCP.
            if is_udp and 128 <= data[42] < 192 and data[43] & 127 not in range(64, 96):
                seconds, nanos = struct.unpack("qq", ancillary[0][2])
                found.append((seconds + nanos / 1e9, socket.inet_ntoa(data[26:30]), socket.inet_ntoa(data[30:34])))


async def hop(options, make_world):
    """The time from a caller's packet at the node to the node's packet for the runner, and back."""
    world = make_world()
    rows = []
    try:
        node_site, runner_site = Site(), Site()
        world.sites += [node_site, runner_site]
        server = world.server("--address", site=node_site)
        runner = world.runner("--register", "--bot", "echo", "--max-sessions", "64", "--host", runner_site.address, inside=runner_site.inside)
        await runner.wait_for_log("registered ", 30)
        node, rooms = Tree(server.process.pid), []
        for level in LEVELS:
            while len(rooms) < level:
                rooms.append(Room(world))
                await rooms[-1].join()
            if level == 1:
                await asyncio.sleep(2)
                tap = Tap(node_site.port)
                await asyncio.sleep(STEADY_S)
                delays = forwarded(tap.packets(), world.address, node_site.address, runner_site.address)
            await asyncio.sleep(2)
            cores = await node.cores(STEADY_S)
            pss, rss = node.memory_mib()
            rows.append((level, f"{cores / level:.4f} core", f"{pss:.0f} MiB", f"{rss:.0f} MiB"))
            print("  " + ", ".join(map(str, rows[-1])), flush=True)
    finally:
        await world.stop()
    print("\n" + table(("rooms", "CPU of the node per room", "its memory (PSS)", "its memory (RSS)"), rows))
    for way, values in delays.items():
        print(f"{way}: {len(values)} packets, p50 {statistics.median(values) * 1e3:.2f} ms, p99 {percentile(values, 0.99) * 1e3:.2f} ms")
    return all(len(values) > STEADY_S * 40 for values in delays.values())


def forwarded(packets, caller, node, runner):
    """Matches each audio packet that reaches the node with the next one that it sends on: packets come every 20 ms."""
    delays = {}
    for way, source, sink in (("caller to runner", caller, runner), ("runner to caller", runner, caller)):
        sent = [at for at, here, there in packets if (here, there) == (node, sink)]
        found = delays[way] = []
        for at, here, there in packets:
            place = bisect.bisect(sent, at)
            if (here, there) == (source, node) and place < len(sent) and sent[place] - at < 0.02:
                found.append(sent[place] - at)
    return delays


TABLES = {"compare": compare, "jobs": jobs, "hop": hop}


async def main(options):
    def make_world():
        return World(options.binary.resolve(), None, options.published.resolve(), stage.ADDRESS)

    done = []
    for name in options.tables or TABLES:
        print(f"== {name}", flush=True)
        done.append(await TABLES[name](options, make_world))
    return 0 if all(done) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--published", type=pathlib.Path, required=True, help="the LiveKit server (tests/check/livekit-server.sh)")
    parser.add_argument("--joins", type=int, default=50, help="joins per number of rooms")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    given = parser.parse_args()
    stage.enter()
    sys.exit(asyncio.run(main(given)))
