"""The built-in page and an application with Pipecat's client, in Chromium, in calls with the scripted services."""

import asyncio
import json
import pathlib
import re
import shutil
import sys

from calls import TOOL
from cascade_chat import ChatServer
from cascade_checks import FOLDER, runner_for, wyoming
from realtime_server import KEY

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parent / "browser" / "assistant.mjs"
SKIPPED = "SKIPPED, AND NOT PROVED HERE: npm ci --prefix tests/peers/browser"
# Takes its time, so that the page shows the state Thinking for longer than a frame.
TOOLS = """
import json, sys, time
print(json.dumps({"functions": [{"name": "weather", "parameters": {"type": "object"}}]}), flush=True)
for line in sys.stdin:
    time.sleep(1)
    print(json.dumps({"call_id": json.loads(line)["call_id"], "output": "sun"}), flush=True)
"""


async def browser(name, runner):
    """What the case of the script saw."""
    process = await asyncio.create_subprocess_exec(
        shutil.which("node"), SCRIPT, name, runner.url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    said, wrong = await process.communicate()
    # What Node prints around the error is the source line and the stack.
    assert process.returncode == 0, re.search(r"^\w*Error: .*|\Z", wrong.decode(), re.MULTILINE)[0] or wrong.decode()
    return json.loads(said)


def in_browser(name, model, what, *arguments, **variables):
    async def check(place):
        if not shutil.which("node") or not (SCRIPT.parent / "node_modules").exists():
            return SKIPPED
        async with place.service() as service:
            runner = place.runner(*arguments, variables={
                "REALTIME_URL": service.url(model), "REALTIME_API_KEY": KEY, "REALTIME_TRANSCRIPTION_MODEL": "any",
                "RUNNER_BOT_GREETING": "", **variables})
            return await browser(name, runner)

    check.__doc__ = what
    return check


async def client(place):
    """Pipecat's client in Chromium: every event of an assistant with its fields, a function of the application, a typed text"""
    path = pathlib.Path(place.folder) / "session-client.json"
    path.write_text(json.dumps({"tools": [TOOL]}))
    check = in_browser("client", "function", client.__doc__, REALTIME_SESSION_FILE=str(path))
    return await check(place)


def cascade(name, model, what, **more):
    async def check(place):
        if not shutil.which("node") or not (SCRIPT.parent / "node_modules").exists() or not FOLDER.exists():
            return SKIPPED
        async with wyoming() as (stt, voice), ChatServer() as chat:
            return await browser(name, runner_for(place, stt, chat.url(), voice, model, **more))

    check.__doc__ = what
    return check


CHECKS = {
    "page": in_browser(
        "functions", "function", "the page shows the bot, its states, a function of a program, the time to the first sound, and a third party",
        RUNNER_TOOLS=f"{sys.executable} -c '{TOOLS}'"),
    "page_interrupted": in_browser("interrupted", "slow", "the page shows an interruption, and the bot is silent"),
    "page_cascade": cascade(
        "cascade", "thinks", "the page with the bot cascade: states, question, answer, time to the first sound"),
    "page_cascade_functions": cascade(
        "cascade-functions", "ollama", "the page with the bot cascade: a function of a program, and the answer with its output",
        RUNNER_TOOLS=f"{sys.executable} -c '{TOOLS}'"),
    "page_cascade_interrupted": cascade(
        "cascade-interrupted", "story", "the page with the bot cascade shows an interruption, and the bot is silent"),
    "page_client": client,
}
