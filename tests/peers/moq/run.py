"""Media over QUIC with other people's peers: PyPI's moq-rs 0.4 and 0.5, Pipecat's own transport, the published relay, and peers
that misbehave. Prints a line per check; exits with 1 when one failed.

    run.py [--binary PATH] [--relay PATH] [--namespaces] [CHECK...]      with what requirements.txt and requirements-0.4.txt name

Without a relay the checks that need it are not run, nor those in namespaces, which need root. `--binary reference.py` runs the checks against a bot in Python.
"""

import argparse
import asyncio
import pathlib
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "net")]

import dial
import hostile
import namespace
import path
import serve
from runner import BINARY, Runner

CHECKS = {**serve.CHECKS, **path.CHECKS, **hostile.CHECKS, **dial.CHECKS, **namespace.CHECKS}
WAITING = {"killed", "lost", "relay-killed", "absent", "verified", "plain-http"}
# A generous time limit.
LIMIT_S = 150


class Place:
    """Starts runners for a check, and knows where the relay is."""

    def __init__(self, binary, relay):
        self.binary, self.relay, self.runners = binary, relay, []

    def runner(self, *arguments, bot=("--bot", "echo"), kind=Runner, **how):
        """`bot` are the arguments that name it."""
        if "--moq-connect" not in arguments and "--moq-bind" not in arguments:
            arguments = ("--moq-bind", "127.0.0.1:0", *arguments)
        if self.binary.suffix == ".py":
            how["inside"] = (*how.get("inside", ()), sys.executable)
        self.runners.append(kind(self.binary, "-t", "moq", *arguments, *bot, **how))
        return self.runners[-1]


async def run(name, check, binary, relay):
    """Whether it passed."""
    place = Place(binary, relay)
    try:
        said = await asyncio.wait_for(check(place), LIMIT_S)
        print(f"PASS {name}: {check.__doc__} ({said})", flush=True)
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


async def main(binary, relay, namespaces, names):
    checks = {name: check for name, check in CHECKS.items() if name in (names or CHECKS)}
    if not relay:
        checks = {name: check for name, check in checks.items() if name not in (*dial.CHECKS, *namespace.RELAYED)}
    if not namespaces:
        checks = {name: check for name, check in checks.items() if name not in namespace.CHECKS}

    async def one_by_one(names):
        return [await run(name, checks[name], binary, relay) for name in names]

    # Those that wait for a timeout run beside the others.
    waiting = [name for name in checks if name in WAITING]
    passed = await asyncio.gather(
        one_by_one([name for name in checks if name not in waiting]), *(one_by_one([name]) for name in waiting))
    return 0 if all(map(all, passed)) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=BINARY)
    parser.add_argument("--relay", type=pathlib.Path)
    parser.add_argument("--namespaces", action="store_true")
    parser.add_argument("checks", nargs="*", metavar="CHECK")
    given = parser.parse_args()
    # The runner starts in an empty folder.
    sys.exit(asyncio.run(main(given.binary.resolve(), given.relay and given.relay.resolve(), given.namespaces, given.checks)))
