"""Runs checks with LiveKit's programs one after the other, in a network of their own."""

import asyncio
import os
import subprocess
import sys
import traceback

INSIDE = "EDGE_RUNNER_ROOM_CHECKS_INSIDE"
ADDRESS = "10.99.0.1"


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
    """Runs checks, each with a world of its own. `limit_s` returns the time of one. Returns how many failed."""
    failed = 0
    for check in checks:
        name, world = check.__name__, make_world()
        try:
            said = await asyncio.wait_for(check(world), limit_s(name))
            print(f"PASS {name}: {check.__doc__} ({said})", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {name}: {check.__doc__}: {error!r}", flush=True)
            traceback.print_exc()
            print(world.log_text(), file=sys.stderr)
        finally:
            await world.stop()
    return failed
