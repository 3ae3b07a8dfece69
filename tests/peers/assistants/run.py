"""Assistants: the bot `realtime` in calls, with a scripted service and with the published `speech-to-speech` server; the bot `cascade`
with Wyoming's own handlers and with HTTP services; published clients with the same services. Prints a line per check; exits with 1 when one failed.

    run.py [--binary PATH] [CHECK...]      with what requirements.txt here, of pipecat and of aiortc name
"""

import argparse
import asyncio
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import traceback

# Set before the import of Pipecat, which logs at its import.
os.environ.setdefault("LOGURU_LEVEL", "ERROR")
HERE = pathlib.Path(__file__).resolve().parent
# At the end, because a folder has the name of a package.
sys.path += [str(HERE), str(HERE.parent)]

import calls
import cascade_checks
import cascade_media
import outage
import package
import page
import published
import realtime_faults
from realtime_server import KEY, Service
from runner import BINARY, Runner

# These wait for the most part, and measure no positions in audio.
SIDE_BY_SIDE = {**realtime_faults.CHECKS, **cascade_media.CHECKS, **outage.CHECKS}
LANES = 3
CHECKS = {**published.CHECKS, **calls.CHECKS, **package.CHECKS, **page.CHECKS, **cascade_checks.CHECKS, **SIDE_BY_SIDE}
# A generous time limit.
LIMIT_S = 150


class Place:
    """Starts runners for a check."""

    def __init__(self, binary, record):
        self.binary, self.record, self.runners = binary, record, []
        self.folder = pathlib.Path(record.name).parent

    def service(self):
        return Service(KEY, self.record)

    def runner(self, *arguments, **how):
        self.runners.append(Runner(self.binary, "--bot", "realtime", *arguments, **how))
        return self.runners[-1]


async def run(name, check, place):
    """Whether it passed."""
    try:
        said = await asyncio.wait_for(check(place), LIMIT_S)
        is_skipped = isinstance(said, str) and said.startswith("SKIPPED")
        print(f"{said} ({name})" if is_skipped else f"PASS {name}: {check.__doc__} ({said})", flush=True)
        return True
    except Exception as error:
        print(f"FAIL {name}: {check.__doc__}: {error!r}", flush=True)
        traceback.print_exc()
        for runner in place.runners:
            print(runner.log_text(), file=sys.stderr)
        return False
    finally:
        for runner in place.runners:
            runner.stop()


async def main(binary, names):
    if not package.FOLDER.exists():
        print(f"SKIPPED, AND NOT PROVED HERE: speech-to-speech, which is not in {package.FOLDER}; see README.md")
    if not cascade_checks.FOLDER.exists():
        print(f"SKIPPED, AND NOT PROVED HERE: Wyoming's servers, which are not in {cascade_checks.FOLDER}; see README.md")
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "record", "w") as record:
        names = names or list(CHECKS)
        passed = [await run(name, CHECKS[name], Place(binary, record)) for name in names if name not in SIDE_BY_SIDE]
        lane = asyncio.Semaphore(LANES)

        async def in_lane(name):
            async with lane:
                return await run(name, CHECKS[name], Place(binary, record))

        passed += await asyncio.gather(*(in_lane(name) for name in names if name in SIDE_BY_SIDE))
        passed.append(await asyncio.to_thread(second_opinion, record.name))
    return 0 if all(passed) else 1


def second_opinion(record):
    """Whether the schemas of another published client accept all valid messages of the checks above."""
    node = shutil.which("node")
    if not node or not (HERE.parent / "browser" / "node_modules" / "@openai" / "agents-realtime").exists():
        print("SKIPPED, AND NOT PROVED HERE: schemas of @openai/agents-realtime. npm ci --prefix tests/peers/browser")
        return True
    done = subprocess.run([node, HERE / "zod.mjs", record], capture_output=True, text=True)
    print(f"{'FAIL' if done.returncode else 'PASS'} schemas: @openai/agents-realtime accepts ({done.stdout.strip()}) {done.stderr}")
    return done.returncode == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    given = parser.parse_args()
    # The runner starts in an empty folder.
    sys.exit(asyncio.run(main(given.binary.resolve(), given.checks)))
