"""The built-in page in Chromium, in a call with the scripted service; functions run in a program."""

import asyncio
import json
import pathlib
import shutil
import sys

from realtime_server import KEY

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE.parent / "browser" / "assistant.mjs"
TOOLS = """
import json, sys
print(json.dumps({"functions": [{"name": "weather", "parameters": {"type": "object"}}]}), flush=True)
for line in sys.stdin:
    print(json.dumps({"call_id": json.loads(line)["call_id"], "output": "sun"}), flush=True)
"""


async def page(place):
    """the page shows the bot, its states, a function of a program, the time to the first sound, and a third party"""
    node = shutil.which("node")
    if not node or not (SCRIPT.parent / "node_modules").exists():
        return "SKIPPED, AND NOT PROVED HERE: npm ci --prefix tests/peers/browser"
    async with place.service() as service:
        runner = place.runner(variables={
            "REALTIME_URL": service.url("function"), "REALTIME_API_KEY": KEY, "REALTIME_TRANSCRIPTION_MODEL": "any",
            "RUNNER_BOT_GREETING": "", "RUNNER_TOOLS": f"{sys.executable} -c '{TOOLS}'"})
        process = await asyncio.create_subprocess_exec(
            node, SCRIPT, f"{runner.url}/client/", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        said, wrong = await process.communicate()
        assert process.returncode == 0, wrong.decode()
    seen = json.loads(said)
    return f"{', '.join(seen['states'])}; {seen['waited']}"


CHECKS = {"page": page}
