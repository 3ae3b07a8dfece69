"""Measures how much of the machine others took while a check ran; nothing but the standard library.

    busy.py --pid PID --out FILE          samples until that process ends, then writes one line of JSON:
        {"mean_others": 0.31, "max_others": 1.43, "seconds_over": 12.0, "max_late_s": 0.01, "cpu_s": 8.1, "wall_s": 30.2}
    busy.py --pid PID --samples FILE      writes a line per sample, at once
    busy.py --judge FILE --since SECONDS  prints what these samples say of the time since then, if they say anything

A check that talks in real time fails when its processes do not get a processor in time, and that is no defect of what it
tests. So a process of its own reads five times a second how long all processors were busy (/proc/stat, with the time that a
hypervisor took) and how much of it was the CPU time of the check's tree: PID and its descendants, also those that another
process has adopted since. The difference, over a sliding window of a second, is what others took, in cores. How late the
sampler itself woke up is the second measure, and the only one where there is no /proc.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

PERIOD_S, WINDOW_S = 0.2, 1.0
# A peer, the runner and what decodes the sound take less than one core together, and each needs it within 20 ms. Two cores
# suffice while others take no more than this; with more cores, others may take what leaves as much.
LEFT_CORES = 1.3
# A process that sleeps is woken within some milliseconds where a core is free now and then.
LATE_S = 0.25
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def others_max(cores):
    """What others may take of that many cores; of one core a third, since a check needs the rest of it."""
    return max(0.35, cores - LEFT_CORES)


class Process:
    """What /proc/PID/stat says of a process. Times are in clock ticks: its own, and of the children that it waited for."""

    def __init__(self, pid):
        text = pathlib.Path("/proc", str(pid), "stat").read_text()
        # The name is in parentheses, and may have spaces and parentheses in it.
        fields = text[text.rindex(")") + 2:].split()
        self.pid, self.state, self.parent, self.group, self.session = pid, fields[0], *map(int, fields[1:4])
        self.own, self.waited, self.started = sum(map(int, fields[11:13])), sum(map(int, fields[13:15])), int(fields[19])


def look(pid):
    """The process, or nothing when it has ended."""
    try:
        found = Process(pid)
    except (OSError, ValueError):
        return None
    return None if found.state in "ZX" else found


class Tree:
    """The CPU time of a process and of its descendants."""

    def __init__(self, pid):
        self.root = look(pid)
        # Of the tree: as last seen. Of the others only the number, so that each is read once.
        self.live, self.foreign = {pid: self.root} if self.root else {}, set()
        # Numbers of all processes that were in the tree.
        self.ever, self.ticks = {pid}, 0

    def ended(self):
        now = self.root and look(self.root.pid)
        return not now or now.started != self.root.started

    def sample(self):
        """Returns the ticks since the beginning."""
        listed = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self.foreign &= listed
        before, now = self.live, {}
        for pid, old in before.items():
            found = look(pid)
            if found and found.started == old.started:
                now[pid] = found
        self.adopt(now, listed)
        dead = [old for pid, old in before.items() if pid not in now]
        for pid, found in now.items():
            old = before.get(pid)
            self.ticks += found.own - (old.own if old else 0)
            if old:
                # Children that came and went since are known from here alone; of those seen before, the rest.
                seen = sum(one.own + one.waited for one in dead if self.waiter(one, before, now) == pid)
                self.ticks += max(0, found.waited - old.waited - seen)
        self.live = now
        return self.ticks

    def adopt(self, now, listed):
        """Adds processes whose parent, group or session is of the tree."""
        fresh = [found for pid in sorted(listed - self.foreign - now.keys()) if (found := look(pid))]
        grows = True
        while grows:
            grows = False
            for found in fresh:
                if found.pid not in now and self.ever & {found.parent, found.group, found.session}:
                    now[found.pid], grows = found, True
                    self.ever.add(found.pid)
        self.foreign |= {found.pid for found in fresh} - now.keys()

    @staticmethod
    def waiter(dead, before, now):
        """The living ancestor that waited for it, if one did."""
        while dead and dead.pid not in now:
            dead = before.get(dead.parent)
        return dead and dead.pid


def busy_ticks():
    """How long all processors were busy: all but idle and waiting for a disk; a guest's time is in the user's."""
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    return sum(fields) - fields[3] - fields[4]


class Sampler:
    """Yields (time, seconds all were busy, seconds of the tree and of the sampler, seconds of the tree, lateness in s)."""

    def __init__(self, pid):
        self.pid, self.has_proc = pid, pathlib.Path("/proc/stat").exists()
        self.tree = Tree(pid) if self.has_proc else None

    def ended(self):
        if self.has_proc:
            return self.tree.ended()
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def __iter__(self):
        due = time.monotonic()
        while not self.ended():
            late = time.monotonic() - due
            busy = own = 0.0
            if self.has_proc:
                own, busy = self.tree.sample() * TICK_S, busy_ticks() * TICK_S
            yield time.time(), busy, own + sum(os.times()[:2]), own, late
            due = time.monotonic() + PERIOD_S
            time.sleep(PERIOD_S)


class Share:
    """What others took in a span of samples."""

    def __init__(self, samples, began=0.0, ended=float("inf")):
        self.max_others, self.seconds_over, self.max_late_s, self.cores = 0.0, 0.0, 0.0, os.cpu_count() or 1
        first, whole = 0, min(began + WINDOW_S, max(began, ended - PERIOD_S))
        for last, (at, busy, own, _, late) in enumerate(samples):
            while first < last and at - samples[first + 1][0] >= WINDOW_S:
                first += 1
            if not began <= at <= ended:
                continue
            self.max_late_s = max(self.max_late_s, late)
            # A window that began before is of the time before, unless there is no other.
            if at < whole:
                continue
            window = at - samples[first][0]
            others = ((busy - samples[first][1]) - (own - samples[first][2])) / window if window >= WINDOW_S else 0.0
            self.max_others = max(self.max_others, others)
            if others > others_max(self.cores):
                self.seconds_over += at - samples[last - 1][0] if last else 0.0

    def starved(self):
        """Why the check could not be judged, in words; nothing where it could."""
        if self.max_others > others_max(self.cores):
            return f"others took up to {self.max_others:.2f} of a core for {max(WINDOW_S, self.seconds_over):.0f} s"
        if self.max_late_s > LATE_S:
            return f"a process that slept was woken {self.max_late_s:.2f} s late"
        return None


class Busy:
    """Samples the tree of this process, or of another, in a process beside it."""

    def __init__(self, pid=None):
        self.pid = pid or os.getpid()

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="busy-")
        self.file = pathlib.Path(self.folder.name, "samples")
        self.process = subprocess.Popen([sys.executable, __file__, "--pid", str(self.pid), "--samples", self.file],
                                        stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def share(self, began=0.0):
        """What others took since that time of `time.time()`, until now."""
        return share_of(self.file, began)


def share_of(file, began):
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    samples, now = [tuple(map(float, line.split())) for line in lines if line.endswith("\n")], time.time()
    # A sampler that is late tells so only once it runs again.
    if samples and (late := now - samples[-1][0] - PERIOD_S) > LATE_S:
        samples.append((now, *samples[-1][1:4], late))
    return Share(samples, began, now)


def main(pid, out, file):
    began, samples = time.time(), []
    sink = open(file, "w", buffering=1) if file else None
    try:
        for sample in Sampler(pid):
            samples.append(sample)
            if sink:
                print(*(f"{value:.3f}" for value in sample), file=sink)
    except KeyboardInterrupt:
        pass
    share = Share(samples)
    if out:
        first, last = (samples[0], samples[-1]) if samples else ((0.0,) * 5, (0.0,) * 5)
        # All that was busy, less the tree and the sampler.
        mean = ((last[1] - first[1]) - (last[2] - first[2])) / max(WINDOW_S, last[0] - first[0])
        said = {"mean_others": round(mean, 2), "max_others": round(share.max_others, 2), "seconds_over": round(share.seconds_over, 1),
                "max_late_s": round(share.max_late_s, 3), "cpu_s": round(last[3] - first[3], 2),
                "wall_s": round(time.time() - began, 1)}
        pathlib.Path(out).write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pid", type=int, help="the root of the tree that is not counted as others")
    parser.add_argument("--out", type=pathlib.Path, help="for one line of JSON at the end")
    parser.add_argument("--samples", type=pathlib.Path, help="for one line per sample while it runs")
    parser.add_argument("--judge", type=pathlib.Path, metavar="FILE", help="samples of another of these")
    parser.add_argument("--since", type=float, default=0.0, metavar="SECONDS", help="of Unix time")
    given = parser.parse_args()
    if given.judge:
        print(share_of(given.judge, given.since).starved() or "")
    elif given.pid:
        main(given.pid, given.out, given.samples)
    else:
        parser.error("--pid or --judge")
