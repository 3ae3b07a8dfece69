"""The published Python client of LiveKit in one room with the runner. Prints a line per check; exits with 1
when one failed.

    run.py [--binary PATH] [--server PATH] [CHECK...]      as root, with what requirements.txt names, and `ip`

The server is the tests' own (`cargo build --example media-room`); the checks whose names begin with `server` hold it against
the published client alone. That client's native library offers no loopback candidates: everything runs in a network namespace
of its own, with an interface that leads nowhere, and nothing leaves the machine.
"""

import argparse
import asyncio
import os
import pathlib
import subprocess
import sys
import traceback

# At the end, because other folders here have the names of packages.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import alone
import native
import start
from world import World
from runner import BINARY, ROOT

CHECKS = {**alone.CHECKS, **start.CHECKS, **native.CHECKS}
SERVER = ROOT / "target" / "debug" / "examples" / "media-room"
# A generous time limit.
LIMIT_S = 120
INSIDE = "EDGE_RUNNER_ROOM_CHECKS_INSIDE"
ADDRESS = "10.99.0.1"


def enter():
    """Enters a new network namespace with loopback and one interface."""
    if not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    for command in ("link set lo up", "link add eth0 type bridge", f"address add {ADDRESS}/24 dev eth0", "link set eth0 up"):
        subprocess.run(["ip", *command.split()], check=True)


async def main(binary, server, names):
    failed = 0
    for name in names or CHECKS:
        check, world = CHECKS[name], World(binary, server, ADDRESS)
        try:
            said = await asyncio.wait_for(check(world), LIMIT_S)
            print(f"PASS {name}: {check.__doc__} ({said})", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {name}: {check.__doc__}: {error!r}", flush=True)
            traceback.print_exc()
            print(world.log_text(), file=sys.stderr)
        finally:
            await world.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--server", type=pathlib.Path, default=SERVER)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    given = parser.parse_args()
    enter()
    # The runner starts in an empty folder.
    sys.exit(asyncio.run(main(given.binary.resolve(), given.server.resolve(), given.checks)))
