"""Pipecat as the peer: its serializers in calls of four telephony providers, its WebSocket client transport on the client
endpoint, an unchanged bot for its own runner. Prints a line per check; exits with 1 when one failed.

    run.py [--binary PATH] [CHECK...]      with what requirements.txt names, and espeak-ng of the system
"""

import asyncio
import os
import pathlib
import sys
from unittest import mock

# Set before the import of Pipecat, which logs at its import.
os.environ.setdefault("LOGURU_LEVEL", "ERROR")
# At the end, because this folder has the name of the package.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import plain
import programs
import telephone
from checks import Report, chosen, left, options
from runner import Runner

CHECKS = {**telephone.CHECKS, **plain.CHECKS, **programs.CHECKS}
try:
    import messaging
    import unchanged
    CHECKS |= messaging.CHECKS | unchanged.CHECKS
except ImportError as lack:
    print(f"SKIPPED, AND NOT PROVED HERE: calls of the messaging app, unchanged bots. {lack}; see aiortc/requirements.txt")
# A time limit.
LIMIT_S = 120


async def main(binary, names):
    with Report() as report:
        checks = chosen(CHECKS, names)
        for name in left(checks):
            check = checks[name]
            with report.check(check, name) as result:
                def start(*arguments, **environment):
                    """Starts a runner for this check."""
                    with mock.patch.dict(os.environ, environment):
                        return result.keep(Runner(binary, *arguments))

                result.said = await asyncio.wait_for(check(start), LIMIT_S)
    return report.code


if __name__ == "__main__":
    given = options(__doc__, CHECKS).parse_args()
    # The runner starts in an empty folder.
    sys.exit(asyncio.run(main(given.binary.resolve(), given.checks)))
