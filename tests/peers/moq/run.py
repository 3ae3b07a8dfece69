"""Media over QUIC with other people's peers: PyPI's moq-rs 0.4 and 0.5, Pipecat's own transport, the published relay, and peers
that misbehave. Prints a line per check; exits with 1 when one failed.

    run.py [--binary PATH] [--relay PATH] [--namespaces] [CHECK...]      with what requirements.txt and requirements-0.4.txt name

Without a relay the checks that need it are not run, nor those in namespaces, which need root. `--binary echo_bot.py` runs the checks against a bot in Python.
"""

import asyncio
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "net")]

import dial
import hostile
import namespace
import path
import serve
from checks import Report, chosen, options
from runner import Runner

CHECKS = {**serve.CHECKS, **path.CHECKS, **hostile.CHECKS, **dial.CHECKS, **namespace.CHECKS}
WAITING = {"killed", "lost", "relay-killed", "restarted", "tokens", "absent", "verified", "plain-http"}
# A time limit.
LIMIT_S = 150


class Place:
    """Starts runners for a check, and knows where the relay is."""

    def __init__(self, binary, relay, result):
        self.binary, self.relay, self.result = binary, relay, result

    def runner(self, *arguments, bot=("--bot", "echo"), kind=Runner, **how):
        """`bot` are the arguments that name it."""
        if "--moq-connect" not in arguments and "--moq-bind" not in arguments:
            arguments = ("--moq-bind", "127.0.0.1:0", *arguments)
        if self.binary.suffix == ".py":
            how["inside"] = (*how.get("inside", ()), sys.executable)
        return self.result.keep(kind(self.binary, "-t", "moq", *arguments, *bot, **how))

    def done_with(self, runner):
        """Stops it before the end of the check."""
        self.result.kept.remove(runner)
        runner.stop()


async def main(binary, relay, namespaces, names):
    absent = {*(() if relay else (*dial.CHECKS, *namespace.RELAYED)), *(() if namespaces else namespace.CHECKS)}
    checks = {name: check for name, check in chosen(CHECKS, names).items() if name not in absent}

    async def one_by_one(names):
        for name in names:
            with report.check(checks[name], name) as result:
                result.said = await asyncio.wait_for(checks[name](Place(binary, relay, result)), LIMIT_S)

    # Those that wait for a timeout run beside the others.
    waiting = [name for name in checks if name in WAITING]
    with Report() as report:
        await asyncio.gather(
            one_by_one([name for name in checks if name not in waiting]), *(one_by_one([name]) for name in waiting))
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--relay", type=pathlib.Path)
    parser.add_argument("--namespaces", action="store_true")
    given = parser.parse_args()
    # The runner starts in an empty folder.
    sys.exit(asyncio.run(main(given.binary.resolve(), given.relay and given.relay.resolve(), given.namespaces, given.checks)))
