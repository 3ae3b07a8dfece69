"""Assistants: the bot `realtime` in calls, with a scripted service and with the published `speech-to-speech` server; the bot `cascade`
with Wyoming's own handlers and with HTTP services; published clients with the same services. Prints a line per check; exits with 1 when one failed.

    run.py [--binary PATH] [CHECK...]      with what requirements.txt here, of pipecat and of aiortc name
"""

import asyncio
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

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
from checks import Report, chosen, left, options
from runner import Runner

# These wait for the most part, and measure no positions in audio. Those that take longest come first.
SIDE_BY_SIDE = {**outage.CHECKS, **realtime_faults.CHECKS, **cascade_media.CHECKS}
LANES = 3
CHECKS = {**published.CHECKS, **calls.CHECKS, **package.CHECKS, **page.CHECKS, **cascade_checks.CHECKS, **SIDE_BY_SIDE}
# A time limit.
LIMIT_S = 150


class Place:
    """Starts runners for a check."""

    def __init__(self, binary, record, result):
        self.binary, self.record, self.result = binary, record, result
        self.folder = pathlib.Path(record.name).parent

    def service(self):
        return Service(KEY, self.record)

    def runner(self, *arguments, **how):
        return self.result.keep(Runner(self.binary, "--bot", "realtime", *arguments, **how))

    def done_with(self, runner):
        """Stops it before the end of the check."""
        self.result.kept.remove(runner)
        runner.stop()


async def main(binary, names):
    if not package.FOLDER.exists():
        print(f"SKIPPED, AND NOT PROVED HERE: speech-to-speech, which is not in {package.FOLDER}; see README.md")
    if not cascade_checks.FOLDER.exists():
        print(f"SKIPPED, AND NOT PROVED HERE: Wyoming's servers, which are not in {cascade_checks.FOLDER}; see README.md")
    with Report() as report, tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "record", "w") as record:
        checks = chosen(CHECKS, names)

        async def one_by_one(names):
            for name in names:
                with report.check(checks[name], name) as result:
                    result.said = await asyncio.wait_for(checks[name](Place(binary, record, result)), LIMIT_S)

        waiting = left(name for name in checks if name in SIDE_BY_SIDE)
        await asyncio.gather(*(one_by_one(waiting) for _ in range(LANES)))
        await one_by_one(left(name for name in checks if name not in SIDE_BY_SIDE))
        with report.check(second_opinion, "schemas") as result:
            result.said = await asyncio.to_thread(second_opinion, record.name)
    return report.code


def second_opinion(record):
    """@openai/agents-realtime accepts all valid messages of the checks above"""
    node = shutil.which("node")
    if not node or not (HERE.parent / "browser" / "node_modules" / "@openai" / "agents-realtime").exists():
        return "SKIPPED, AND NOT PROVED HERE: schemas of @openai/agents-realtime. npm ci --prefix tests/peers/browser"
    done = subprocess.run([node, HERE / "zod.mjs", record], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout.strip()} {done.stderr}"
    return f"{done.stdout.strip()} {done.stderr}".strip()


if __name__ == "__main__":
    given = options(__doc__, CHECKS).parse_args()
    # The runner starts in an empty folder.
    sys.exit(asyncio.run(main(given.binary.resolve(), given.checks)))
