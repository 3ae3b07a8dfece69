"""A network that loses every packet to and from a service for 10 s, in the middle of an answer.

    outage.py realtime|cascade --binary PATH      as root, in a network namespace of its own: `unshare --net python outage.py ...`
"""

import argparse
import asyncio
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
OUTAGE_S = 10
SKIPPED = "SKIPPED, AND NOT PROVED HERE: it needs root, `ip` and `nft`"


def outage(bot, what):
    async def check(place):
        if os.geteuid() or not shutil.which("nft") or not shutil.which("ip"):
            return SKIPPED
        command = ["unshare", "--net", sys.executable, __file__, bot, "--binary", place.binary]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        said, wrong = await process.communicate()
        assert process.returncode == 0, wrong.decode()
        return said.decode().strip()

    check.__doc__ = f"the network to the service of {bot} loses everything for {OUTAGE_S} s in the middle of an answer: {what}"
    return check


CHECKS = {
    "outage_realtime": outage("realtime", "the call goes on where it was"),
    "outage_cascade": outage("cascade", "the caller is told or hears the rest, and the next question is answered"),
}


def rule(*words):
    subprocess.run(["nft", *words], check=True)


@contextlib.contextmanager
def no_packets(port):
    rule("add", "table", "inet", "outage")
    rule("add", "chain", "inet", "outage", "input", "{ type filter hook input priority 0; }")
    for direction in ("dport", "sport"):
        rule("add", "rule", "inet", "outage", "input", "tcp", direction, str(port), "drop")
    yield
    rule("delete", "table", "inet", "outage")


async def realtime(place):
    from callers import Plain, in_tune_ms
    from calls import HZ, answered, runner_for
    from checks import until
    async with place.service() as service:
        runner = runner_for(place, service, "slow", RUNNER_BOT_GREETING="")
        async with Plain(runner) as caller:
            await until(lambda: service.sessions and service.sessions[0].of_type("session.update"), "a session")
            asked = caller.ask(HZ)
            await caller.hears(2 * HZ, asked, 1500)
            with no_packets(service.port):
                await asyncio.sleep(OUTAGE_S)
            # The rest of the answer.
            await caller.hears(2 * HZ, asked, 19_000, 60)
            heard_ms = in_tune_ms(caller, 2 * HZ, asked)
            await caller.quiet()
            await answered(caller, HZ + 100, 1000)
            print(f"{len(service.sessions)} connection, {heard_ms} ms of 20,000 ms heard")


async def cascade(place):
    from cascade_chat import ChatServer
    from cascade_checks import wyoming
    from cascade_media import answered, ask, runner_for
    from callers import Plain
    from calls import HZ
    async with wyoming() as (stt, voice), ChatServer() as chat:
        runner = runner_for(place, stt, chat.url(), voice, "story")
        async with Plain(runner) as caller:
            ask(caller, HZ)
            await caller.hears(2 * HZ, 0, 1500)
            with no_packets(chat.port):
                await asyncio.sleep(OUTAGE_S)
            await asyncio.sleep(OUTAGE_S)
            told = len(caller.of_type("error"))
            await caller.quiet(1, 60)
            wait = await answered(caller, HZ + 100)
            print(f"{told} errors told, the next answer begins {wait:.2f} s after the question")


async def main(bot, binary):
    from checks import Result
    from run import Place
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    result = Result()
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "record", "w") as record:
        try:
            await asyncio.wait_for({"realtime": realtime, "cascade": cascade}[bot](Place(binary, record, result)), 140)
        except Exception:
            print(result.log_text(), file=sys.stderr)
            raise
        finally:
            for runner in result.kept:
                runner.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bot", choices=("realtime", "cascade"))
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    given = parser.parse_args()
    sys.path += [str(HERE.parent)]
    asyncio.run(main(given.bot, given.binary.resolve()))
