"""The published `speech-to-speech` server in a process of its own, behind a tap, and the SDK of the vendor in front of it."""

import asyncio
import json
import os
import pathlib
import sys

import calls
import openai
from callers import Page, Phone, Plain, in_tune_ms, providers
from published import HZ, answered_hz, question, until
from realtime_server import KEY
from reference import judge
from session import FUNCTION_HZ
from tap import Tap

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parents[2] / "target" / "speech-to-speech"

# After an update without it the server would send 16 kHz and say nothing of it.
FORMAT = {"type": "audio/pcm", "rate": 24_000}


class Package:
    """Runs the package's server; `tap` is how to reach it."""

    async def __aenter__(self):
        # Its pinned version of the SDK is older than ours.
        environment = {**os.environ, "PYTHONPATH": str(FOLDER), "HF_HUB_OFFLINE": "1"}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, HERE / "s2s.py", env=environment, stdout=asyncio.subprocess.PIPE)
        line = (await asyncio.wait_for(self.process.stdout.readline(), 60)).decode()
        assert line.startswith("listening on "), line
        self.tap = Tap(line.split()[-1])
        await self.tap.__aenter__()
        return self.tap

    async def __aexit__(self, *error):
        self.process.kill()
        await self.process.wait()
        await self.tap.__aexit__(*error)


async def s2s_sdk(_):
    """speech-to-speech and the SDK: a question and its answer, an interruption, a function; all messages are valid"""
    async with Package() as tap:
        base = tap.url.split("/realtime")[0]
        client = openai.AsyncOpenAI(api_key=KEY, base_url=base.replace("ws", "http"), websocket_base_url=base)
        async with client.realtime.connect(model="tones") as connection:
            seen = []
            await question(connection, "audio/pcm")
            await until(connection, "response.done", seen)
            hz, _ = answered_hz(seen, "audio/pcm")
            assert abs(hz - 2 * HZ) < 5, hz
            seen.clear()
            await question(connection, "audio/pcm")
            await until(connection, "response.output_audio.delta", seen)
            await question(connection, "audio/pcm")
            done = await until(connection, "response.done", seen)
            assert done.response.status == "cancelled", done.response
            await until(connection, "response.done", seen)
            tool = {"type": "function", "name": "weather", "description": "The weather.", "parameters": {"type": "object"}}
            await connection.session.update(session={"type": "realtime", "tools": [tool], "audio": {
                "input": {"format": FORMAT}, "output": {"format": FORMAT}}})
            await question(connection, "audio/pcm")
            call = await until(connection, "response.function_call_arguments.done", seen)
            await until(connection, "response.done", seen)
            await connection.conversation.item.create(item={
                "type": "function_call_output", "call_id": call.call_id, "output": '{"degrees": 7}'})
            seen.clear()
            await connection.response.create()
            await until(connection, "response.done", seen)
            after, _ = answered_hz(seen, "audio/pcm")
            assert abs(after - FUNCTION_HZ) < 5, after
        count = len(tap.sessions[0][1])
    return f"answer {hz} Hz, after the function {after} Hz, {count} messages of the service"


def truncations(session):
    return [message["audio_end_ms"] for _, message in session[0] if message["type"] == "conversation.item.truncate"]


def runner_for(place, tap, **more):
    """Without G.711, which the package acknowledges and does not decode."""
    return place.runner(variables=calls.variables(tap.url, RUNNER_BOT_GREETING="", **more))


async def s2s_calls(place):
    """speech-to-speech and four callers at once: each hears the answer to its own question, and interrupts it"""
    async with Package() as tap:
        runner = runner_for(place, tap, **calls.PLACES)
        all_here = asyncio.Barrier(4)

        async def one(number, make):
            async with make(runner) as caller:
                await all_here.wait()
                hz = 350 + 60 * number
                asked = caller.ask(hz)
                await caller.hears(2 * hz, asked, 1200)
                again = caller.ask(hz + 300)
                await caller.hears(2 * hz + 600, again, 1000)
                return caller.name, in_tune_ms(caller, 2 * hz, asked)

        received = await asyncio.gather(*(one(number, make) for number, make in enumerate(
            [Page, Plain, lambda runner: Phone(runner, providers.Twilio()), lambda runner: Phone(runner, providers.Exotel())])))
        await runner.wait_for_sessions(0, calls.NOTICED_S)
        cut = [each for session in tap.sessions for each in truncations(session)]
        assert len(cut) == 4, cut
        # Which session is whose, the times tell.
        apart = [abs(one - other) for one, other in zip(sorted(cut), sorted(ms for _, ms in received))]
        # The package counts its own pieces, which have 100 ms too; `barge_in_fast` is exact.
        judge(f"heard {received}, truncated at {cut}: difference", max(apart), 0, 2 * calls.TRUNCATED_WITHIN_MS, at_most=True)
    return f"heard {received}, truncated at {sorted(cut)} ms"


async def s2s_function(place):
    """speech-to-speech and a function: the page's result reaches the model, which then answers, and a second caller follows"""
    async with Package() as tap:
        path = pathlib.Path(place.folder) / "session-s2s.json"
        path.write_text(json.dumps({"tools": [calls.TOOL]}))
        runner = runner_for(place, tap, REALTIME_SESSION_FILE=str(path))
        for number in range(2):
            async with Plain(runner) as caller:
                await calls.until(lambda: len(tap.sessions) > number, "a session")
                asked = caller.ask(HZ)
                call = (await caller.told("llm-function-call-in-progress"))["data"]
                await caller.send({"label": "rtvi-ai", "type": "llm-function-call-result", "id": "f", "data": {
                    "function_name": "weather", "tool_call_id": call["tool_call_id"], "arguments": call["arguments"],
                    "result": {"degrees": 7}}})
                await caller.hears(FUNCTION_HZ, asked, 1500)
            await runner.wait_for_sessions(0, calls.NOTICED_S)
    return f"{len(tap.sessions)} sessions"


CHECKS = {check.__name__: check for check in (s2s_sdk, s2s_calls, s2s_function)} if FOLDER.exists() else {}
