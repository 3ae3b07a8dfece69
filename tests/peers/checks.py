"""Runs checks: a PASS or FAIL line of each, what failed, and an exit code. A check that failed while others had the processors
says so in place of a defect.

    with Report() as report:
        for check in chosen(CHECKS, given.checks):
            with report.check(check) as result:
                result.said = check(result.keep(Runner(binary)))
    sys.exit(report.code)

Nothing but the standard library.
"""

import argparse
import asyncio
import fcntl
import itertools
import os
import pathlib
import random
import socket
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager

from busy import Busy
from runner import BINARY

# The exit code where all failed checks have no verdict.
NOT_JUDGED = 3
# The checks that the gate leaves to a night, one per line behind the folder of their stage.
NIGHT = pathlib.Path(__file__).with_name("night.txt")

def options(doc, checks):
    """The options that every `run.py` has; `doc` is its text."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(named(checks)))
    return parser


def named(checks):
    """Checks by their names; a list has functions."""
    return checks if isinstance(checks, dict) else {check.__name__: check for check in checks}


def chosen(checks, names, unless=()):
    """The checks of these names; without any, all but those of `unless`. A name that is none ends the process.

    The variable CHECKS_ONLY has the names, one per line, of what all processes of a stage shall run; each has some of them.
    Without a control none was run. With CHECKS_GATE those of `night.txt` are left out.
    """
    checks = named(checks)
    if os.environ.get("CHECKS_GATE") and not names:
        unless = {*unless, *at_night(pathlib.Path(sys.argv[0]).resolve().parent.name)}
    only = os.environ.get("CHECKS_ONLY", "").splitlines()
    if only and "control" not in only:
        return {name: check for name, check in checks.items() if name in only}
    if unknown := [name for name in names if name not in checks]:
        sys.exit(f"no such check: {', '.join(unknown)}")
    return {name: check for name, check in checks.items() if (name in names if names else name not in unless)}


def at_night(folder):
    """The names of the checks of a folder that the gate leaves out."""
    lines = (line.partition(" ") for line in NIGHT.read_text().splitlines() if line and not line.startswith("#"))
    return [name for place, _, name in lines if place == folder]


def left(checks):
    """The names of these checks, one after the other, without those that another process has taken.

    Where several processes share the checks of a stage, the variable CHECKS_SHARED has a folder for what is taken.
    """
    folder = os.environ.get("CHECKS_SHARED")
    for name in checks:
        if not folder or takes(pathlib.Path(folder, name)):
            yield name


def takes(file):
    """Whether this process is the first to make the file."""
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Result:
    """What becomes of one check."""

    def __init__(self):
        self.said, self.kept, self.logs = None, [], []

    def keep(self, resource):
        """Stops it after the check, and prints its `log_text()` when the check failed."""
        self.kept.append(resource)
        return resource

    def show(self, log_text):
        """Prints what this gives when the check failed."""
        self.logs.append(log_text)

    def log_text(self):
        return "\n".join(log() for log in [*self.logs, *(each.log_text for each in self.kept)])


class Report:
    """The lines and the exit code of all checks of a process. Checks may run side by side."""

    def __init__(self):
        self.code = 0

    def __enter__(self):
        self.busy = Busy().__enter__()
        return self

    def __exit__(self, *what):
        self.busy.__exit__(*what)

    @contextmanager
    def check(self, check, name=None):
        name, about, result, began = name or check.__name__, check.__doc__ or "", Result(), time.time()
        try:
            yield result
            self.passed(name, about, result.said, time.time() - began)
        except Exception as error:
            self.failed(name, about, error, began)
            traceback.print_exc()
            print(result.log_text(), file=sys.stderr)
        finally:
            for resource in result.kept:
                resource.stop()

    def passed(self, name, about, said, seconds):
        if isinstance(said, str) and said.startswith("SKIPPED"):
            show(f"{said} ({name})")
        else:
            show(f"PASS {name}: {about}" + (f" ({said})" if said else "") + f" [{seconds:.1f} s]")

    def failed(self, name, about, error, began):
        starved = self.busy.share(began).starved()
        self.code = NOT_JUDGED if starved and self.code in (0, NOT_JUDGED) else 1
        if starved:
            show(f"FAIL {name}: not judged: machine too busy to judge: {starved} (first failure: {error!r})")
        else:
            show(f"FAIL {name}: {about}: {error!r}")


def show(line):
    """Prints a line in one piece, since checks of several threads share the output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def give_up(what, start, limit_s, told):
    if time.monotonic() - start > limit_s:
        raise AssertionError(f"not within {limit_s} s: {what}" + (f"; {told()}" if told else ""))


async def until(condition, what, limit_s=30, told=None):
    """The first true value of the condition. `told` gives what else is known when there is none."""
    start = time.monotonic()
    while not (value := condition()):
        give_up(what, start, limit_s, told)
        await asyncio.sleep(0.02)
    return value


def wait_until(condition, what, limit_s=30, told=None):
    """The same for a thread."""
    start = time.monotonic()
    while not (value := condition()):
        give_up(what, start, limit_s, told)
        time.sleep(0.02)
    return value


# What holds a port against other checks until the process ends.
HELD = []


def free_ports(count):
    """Ports of loopback that are free for TCP and UDP, and this process's until it ends.

    They are none of those that the system gives to outgoing connections, one of which could take them at any moment.
    `tests/support/ports.rs` holds them by the same locks.
    """
    folder = pathlib.Path(tempfile.gettempdir(), f"edge-runner-ports-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    candidates = random.sample(range(10_000, first_outgoing_port()), k=2_000)
    ports = list(itertools.islice((port for port in candidates if is_held(folder / str(port)) and is_free(port)), count))
    assert len(ports) == count, f"fewer than {count} of these ports are free: {sorted(candidates)}"
    return ports


def first_outgoing_port():
    """Of Linux; elsewhere they are none of the lower ones either."""
    try:
        lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        lowest = 32_768
    return lowest if lowest >= 12_000 else 32_768


def is_held(file):
    """Whether this process got the lock of the file, which the system releases with the process."""
    lock = file.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    HELD.append(lock)
    return True


def is_free(port):
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        try:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
