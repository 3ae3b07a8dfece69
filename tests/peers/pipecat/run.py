"""Pipecat as the peer: its serializers in calls of four telephony providers, its WebSocket client transport on the client
endpoint. Prints a line per check; exits with 1 when one failed.

    run.py [--binary PATH] [CHECK...]      with what requirements.txt names, and espeak-ng of the system
"""

import argparse
import asyncio
import os
import pathlib
import sys
import traceback
from unittest import mock

# Set before the import of Pipecat, which logs at its import.
os.environ.setdefault("LOGURU_LEVEL", "ERROR")
# At the end, because this folder has the name of the package.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import plain
import programs
import telephone
from runner import BINARY, Runner

CHECKS = {**telephone.CHECKS, **plain.CHECKS, **programs.CHECKS}
try:
    import messaging
    CHECKS |= messaging.CHECKS
except ImportError as lack:
    print(f"SKIPPED, AND NOT PROVED HERE: calls of the messaging app. {lack}; see aiortc/requirements.txt")
# A generous time limit.
LIMIT_S = 120


async def main(binary, names):
    failed = 0
    for name in names or CHECKS:
        check, runners = CHECKS[name], []

        def start(*arguments, **environment):
            """Starts a runner for this check."""
            with mock.patch.dict(os.environ, environment):
                runners.append(Runner(binary, *arguments))
            return runners[-1]

        try:
            said = await asyncio.wait_for(check(start), LIMIT_S)
            print(f"PASS {name}: {check.__doc__} ({said})", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {name}: {check.__doc__}: {error!r}", flush=True)
            traceback.print_exc()
            for runner in runners:
                print(runner.log_text(), file=sys.stderr)
        finally:
            for runner in runners:
                runner.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    given = parser.parse_args()
    # The runner starts in an empty folder.
    sys.exit(asyncio.run(main(given.binary.resolve(), given.checks)))
