"""The published `speech-to-speech` server in a process of its own, behind a tap, and the SDK of the vendor in front of it."""

import asyncio
import os
import pathlib
import sys

import openai
from published import HZ, answered_hz, question, until
from realtime_server import KEY
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


CHECKS = {"s2s_sdk": s2s_sdk} if FOLDER.exists() else {}
