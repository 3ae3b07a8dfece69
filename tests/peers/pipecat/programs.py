"""Checks of bots in processes: the two examples, a new bot, and the arguments of a call."""

import asyncio
import json
import os
import pathlib
import sys

import providers
from call import Call
from client import RATE, Client
from pipecat.runner.utils import parse_telephony_websocket
from sound import in_tune, tone

HZ = 440
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "bots"
# Time limit for an interpreter and a pipeline to start.
STARTED_S = 20
# Time limit for a program to end, with its grace period.
NOTICED_S = 30
TELL = "import os; print('told', os.environ['RUNNER_ARGUMENTS'], flush=True)"


def socket_url(runner, path):
    return runner.url.replace("http", "ws", 1) + path


def hum(peer, rate):
    peer.voice = lambda first, count: tone(HZ, rate, first, count)


async def example(start, script):
    """Checks the echo of a plain client and a call, a key of the caller, and the end of both sessions."""
    runner = start("--", sys.executable, str(EXAMPLES / script))
    async with Client(socket_url(runner, "/ws-client")) as peer:
        ready = await peer.ready(limit_s=STARTED_S)
        hum(peer, RATE)
        await peer.until(lambda: len(peer.received()) > RATE, "the bot's voice", STARTED_S)
        said = [in_tune(await peer.listen_for(2), HZ, RATE, tone(HZ, RATE, 0, RATE))]
    await runner.wait_for_sessions(0, NOTICED_S)
    provider = providers.Twilio()
    async with Call(provider, socket_url(runner, "/ws")) as call:
        hum(call, provider.rate)
        await call.until(lambda: len(call.received()) > provider.rate, "the bot's voice", STARTED_S)
        control = await provider.coded(tone(HZ, provider.rate, 0, provider.rate))
        said.append(in_tune(await call.listen_for(2), HZ, provider.rate, control))
        if script == "echo.py":
            await call.send(provider.dtmf("5"))
            await call.until(lambda: "key 5" in runner.log_text(), "the key that was pressed")
        code = await call.hang_up()
        assert code == 1000, f"closed with {code}"
    await runner.wait_for_sessions(0, NOTICED_S)
    return f"{ready['about']['library']}; {'; '.join(said)}"


async def program(start):
    """a bot with one small package: echo for a plain client and a call, a key arrives, sessions end"""
    return await example(start, "echo.py")


async def pipeline(start):
    """a Pipecat pipeline as the bot: echo for a plain client and a call, sessions end"""
    return await example(start, "pipecat_bot.py")


async def marks(start):
    """marks of a bot: the provider gets each after the speech before it, in its own format; the bot learns what was played"""
    runner = start("--", sys.executable, str(pathlib.Path(__file__).with_name("marking_bot.py")))

    async def one(provider):
        async with Call(provider, socket_url(runner, "/ws")) as call:
            await asyncio.wait_for(call.socket.wait_closed(), STARTED_S)
            assert call.socket.close_code == 1000, f"closed with {call.socket.close_code}"
        (mark, before), rate = call.marks[0], provider.rate
        assert mark == provider.mark("one") and len(call.marks) == 1, call.marks
        # An incomplete chunk is padded.
        assert 0 <= before - rate < 0.2 * rate, f"{provider.name}: the mark came after {before / rate} s of speech"
        assert len(call.clears) == 1, f"{provider.name}: {len(call.clears)} clears"
        assert len(call.received()) < 2.5 * rate, f"{provider.name}: {len(call.received()) / rate} s of speech"
        for line in ("one True", "two False"):
            assert f"{provider.transport} {line}" in runner.log_text(), f"{provider.name}: no {line}"

    await asyncio.gather(*(one(kind()) for kind in providers.EACH))
    await runner.wait_for_sessions(0, NOTICED_S)
    return "four providers"


class Opening:
    """The first messages of a call, for Pipecat's runner."""

    def __init__(self, provider):
        self.messages = [*provider.handshake(), provider.media("", 1)]

    async def iter_text(self):
        for message in self.messages:
            yield json.dumps(message)


async def call_data(start):
    """the arguments of a call equal those of Pipecat's detection, for each provider"""
    runner = start("--", sys.executable, "-c", TELL)
    for kind in providers.EACH:
        provider = kind()
        async with Call(provider, socket_url(runner, "/ws")) as call:
            await asyncio.wait_for(call.socket.wait_closed(), STARTED_S)
        await runner.wait_for_sessions(0, NOTICED_S)
        told = json.loads(runner.log_text().rsplit("told ", 1)[1].split("\n", 1)[0])
        name, read = await parse_telephony_websocket(Opening(kind()))
        assert name == kind.name, f"Pipecat takes {kind.name} for {name}"
        assert told["transport_type"] == kind.transport, told
        for key, value in read.model_dump(by_alias=True).items():
            ours = told["call_data"].get(key)
            # Both for what the provider does not tell; and one has custom parameters where the other has none.
            assert ours == value or not value, f"{kind.name}: {key} is {ours}, Pipecat has {value}"
    return "four providers"


async def made(start):
    """a bot that `edge-runner new pipecat` makes: its own test has a call with it"""
    runner = start()
    binary, folder = runner.process.args[0], runner.folder.name
    for command, below, variables in (
        ([binary, "new", "pipecat", "a-bot"], folder, {}),
        ([sys.executable, "test_bot.py"], f"{folder}/a-bot", {"EDGE_RUNNER": str(binary)}),
    ):
        process = await asyncio.create_subprocess_exec(
            *command, cwd=below, env={**os.environ, **variables}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
    return "ready, and the speech came back"


CHECKS = {check.__name__: check for check in [program, pipeline, marks, call_data, made]}
