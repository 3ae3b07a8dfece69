"""Runs checks with LiveKit's programs one after the other, in a network of their own."""

import asyncio
import os
import subprocess
import sys

from caller import Caller, Control
from checks import Report
from server import token

INSIDE = "EDGE_RUNNER_ROOM_CHECKS_INSIDE"
ADDRESS = "10.99.0.1"
# A time limit.
CONTROL_S = 60


def enter():
    """Enters a new network namespace with loopback and one interface. LiveKit's client offers no loopback candidates."""
    if not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    # A bridge that has lost its last port has no carrier, and the client would leave out its address.
    for command in ("link set lo up", "link add eth0 type bridge", "link add port0 type veth peer name port1",
                    "link set port0 master eth0 up", "link set port1 up",
                    f"address add {ADDRESS}/24 dev eth0", "link set eth0 up"):
        subprocess.run(["ip", *command.split()], check=True)


async def run(checks, make_world, limit_s):
    """Runs checks, each with a world of its own. `limit_s` returns the time of one. Returns the exit code."""
    with Report() as report:
        await in_world(report, control, make_world(), CONTROL_S)
        for check in checks if Caller.control else ():
            await in_world(report, check, make_world(), limit_s(check.__name__))
    return report.code


async def in_world(report, check, world, limit_s):
    try:
        with report.check(check) as result:
            result.show(world.log_text)
            result.said = await asyncio.wait_for(check(world), limit_s)
    finally:
        await world.stop()


async def control(world):
    """two published clients hear each other without the runner"""
    Caller.control = await Control.measure(world, world.server().url, lambda identity: token(identity, "control"))
    return f"share {Caller.control.share:.3f}, loudness of silence {Caller.control.silence:.0f}"
