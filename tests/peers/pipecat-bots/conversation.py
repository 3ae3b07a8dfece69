"""One bot file in one call, on edge-runner or on Pipecat's own runner: what the caller saw."""

import asyncio
import contextlib
import os
import pathlib
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

from caller import Caller
from checks import free_ports
from generate import LIBRARIES
from runner import Runner

SCRIPTED = pathlib.Path(__file__).resolve().with_name("scripted")
# Time limits.
STARTED_S, SAID_S, ENDED_S = 60, 12, 20
GREETED_S = 8
VIDEO = "The bot sets video_out_enabled, and edge-runner carries no video."
NO_CAMERA = "There is no camera"


@dataclass
class Outcome:
    """How far a call came."""

    loads: bool = False
    connects: bool = False
    greets: bool = False
    answers: bool = False
    ends: bool = False
    refused: bool = False
    # Asked for a picture, and was told that there is none.
    camera: bool = False
    log: str = field(default="", repr=False, compare=False)
    # What edge-runner keeps of the call.
    record: dict = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_whole(self):
        return self.loads and self.connects and self.greets and self.answers and self.ends

    def steps(self):
        return " ".join(name for name in ("loads", "connects", "greets", "answers", "ends", "refused", "camera") if getattr(self, name))

    def why(self):
        """The last line of an error."""
        lines = [line for line in self.log.splitlines() if "Error" in line or "ERROR" in line or "failed" in line]
        return lines[-1].strip()[:300] if lines else ""


def environment():
    """Of a bot, whose services are scripted. Its log of DEBUG has the steps of its pipeline."""
    return {"PYTHONPATH": f"{SCRIPTED}{os.pathsep}{LIBRARIES}", "SCRIPTED_SERVICES": "1", "LOGURU_LEVEL": "DEBUG", "ENV": "local",
            "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "TWILIO_ACCOUNT_SID": "AC1", "TWILIO_AUTH_TOKEN": "1"}


async def on_edge_runner(binary, python, file, sentence):
    """The outcome of a call with `edge-runner FILE`."""
    outcome = Outcome()
    runner = Runner(binary, "--python", python, str(file), "-v", variables=environment())
    try:
        await converse(outcome, runner.url, sentence, runner.log_text)
        try:
            await runner.wait_for_sessions(0, ENDED_S)
            outcome.ends = outcome.connects and not has_failed(runner.log_text())
            _, listed = await runner.fetch("GET", "/calls")
            _, outcome.record = await runner.fetch("GET", f"/calls/{listed['calls'][0]['id']}")
        except AssertionError:
            pass
        outcome.log = runner.log_text()
        outcome.refused, outcome.camera = VIDEO in outcome.log, NO_CAMERA in outcome.log
    finally:
        runner.stop()
    return outcome


@contextlib.asynccontextmanager
async def running(python, file, port, *arguments):
    """Runs `python FILE` while the block runs, once it serves. Gives a function that returns its log."""
    with tempfile.NamedTemporaryFile("a+") as log:
        process = subprocess.Popen(
            [python, str(file), "--port", str(port), "--host", "127.0.0.1", *arguments], stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, cwd=file.parent, env={**os.environ, **environment()})

        def text():
            return pathlib.Path(log.name).read_text()

        try:
            end = time.monotonic() + STARTED_S
            while process.poll() is None and time.monotonic() < end and "Uvicorn running" not in text():
                await asyncio.sleep(0.1)
            yield text
        finally:
            process.kill()
            process.wait()


async def on_pipecats_runner(python, file, sentence):
    """The outcome of a call with `python FILE`."""
    outcome = Outcome()
    port, = free_ports(1)
    async with running(python, file, port) as text:
        await converse(outcome, f"http://127.0.0.1:{port}", sentence, text)
        # The server goes on. This is Pipecat's line of the pipeline that has ended.
        end = time.monotonic() + ENDED_S
        while time.monotonic() < end and not (is_over := "finished running" in text()):
            await asyncio.sleep(0.05)
        outcome.log = text()
        outcome.ends = outcome.connects and is_over and not has_failed(outcome.log)
    return outcome


def has_failed(log):
    return "Traceback" in log or "the bot failed" in log.lower()


async def converse(outcome, url, sentence, log):
    try:
        async with Caller(url.replace("http", "ws", 1) + "/ws-client", sentence) as caller:
            # The bot's own RTVI answers once the pipeline runs.
            outcome.loads = outcome.connects = bool(await caller.until(
                lambda: caller.heard_at or any(message.get("type") == "bot-ready" for message in caller.messages)
                or "Client connected" in log(), STARTED_S))
            outcome.greets = bool(caller.heard_at) or await caller.hears(GREETED_S)
            if outcome.greets:
                await caller.pause(SAID_S)
            if outcome.connects and not caller.is_over:
                caller.say()
                # A bot that transcribes says nothing.
                outcome.answers = await caller.hears(SAID_S) or not outcome.greets and caller.was_understood()
    except OSError as error:
        outcome.log = f"Error: {error}"
