"""The published Python client of LiveKit in one room with the runner. Prints a line per check; exits with 1
when one failed.

    run.py [--binary PATH] [--server PATH | --published PATH [--part rooms|workers|slow]] [CHECK...]      as root, with what requirements.txt names
                                                                       here and in `assistants`, and `ip`

The server is the tests' own (`cargo build --example media-room`) or the published one (`tests/check/livekit-server.sh`); the
checks whose names begin with `server` hold it against the published client alone. That client's native library offers no loopback candidates: everything runs in a network namespace
of its own, with an interface that leads nowhere, and nothing leaves the machine.
"""

import asyncio
import pathlib
import sys

# At the end, because other folders here have the names of packages.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import alone
import assistant
import command
import frontend
import jobs
import native
import network
import pipecat_bots
import stage
import start
from checks import chosen, left, options
from world import World
from runner import ROOT

# Those that take longest come first: several processes may share the checks.
CHECKS = {**network.CHECKS, **native.CHECKS, **alone.CHECKS, **start.CHECKS, **command.CHECKS, **assistant.CHECKS, **jobs.CHECKS, **frontend.CHECKS, **pipecat_bots.CHECKS}
# Shares of the checks with the published server. The last takes minutes, and belongs to a night.
WORKERS, SLOW = {*jobs.CHECKS, *frontend.CHECKS}, {"faults", "udp_dropped_without_tcp", "figures"}
PARTS = {"rooms": CHECKS.keys() - WORKERS - SLOW, "workers": WORKERS, "slow": SLOW}
SERVER = ROOT / "target" / "debug" / "examples" / "media-room"
# A published server cannot be made to do this.
OWN_ALONE = ("trouble",)
# The tests' own server has neither TCP nor resumes, keeps no attributes, has no API, assigns no jobs, and tells no publisher to use DTX.
PUBLISHED_ALONE = ("pauses", *network.CHECKS, *pipecat_bots.CHECKS, *jobs.CHECKS, *frontend.CHECKS)
# Time limits.
LIMIT_S = 120
NETWORK_LIMIT_S = 300


async def main(binary, server, published, names, part):
    others = CHECKS.keys() - PARTS[part] if part else ()
    checks = chosen(CHECKS, names, unless=(*others, *(OWN_ALONE if published else PUBLISHED_ALONE)))
    return await stage.run(map(checks.get, left(checks)), lambda: World(binary, server, published, stage.ADDRESS),
                           lambda name: NETWORK_LIMIT_S if name in PUBLISHED_ALONE else LIMIT_S)


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--server", type=pathlib.Path, default=SERVER)
    parser.add_argument("--published", type=pathlib.Path, help="the published LiveKit server, in place of the tests' own")
    parser.add_argument("--part", choices=PARTS, help="only checks of rooms, of jobs and front-ends, or those that take minutes")
    given = parser.parse_args()
    stage.enter()
    # The runner starts in an empty folder.
    sys.exit(asyncio.run(main(given.binary.resolve(), given.server.resolve(), given.published and given.published.resolve(), given.checks, given.part)))
