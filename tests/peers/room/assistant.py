"""The bots `realtime` and `cascade` in a room, with the services of `tests/peers/assistants`."""

import asyncio
import pathlib
import sys

# At the end, because other folders here have the names of packages.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "assistants"))

from cascade_chat import ChatServer
from cascade_checks import FOLDER, wyoming
from realtime_server import KEY, Service
from session import GREETING_HZ

HZ = 500
SKIPPED = "SKIPPED, AND NOT PROVED HERE: Wyoming's servers, see tests/peers/README.md"


async def ask(caller):
    """A second of the caller's tone between silence."""
    caller.quiet = False
    await asyncio.sleep(1)
    caller.quiet = True


async def call(world, service, model, **more):
    """A caller who is silent, and the bot's identity."""
    variables = {"REALTIME_URL": service.url(model), "REALTIME_API_KEY": KEY, "REALTIME_TRANSCRIPTION_MODEL": "any", **more}
    runner = world.runner("--bot", "realtime", **variables)
    caller, _, bot = await world.call(runner, hz=HZ, quiet=True)
    return runner, caller, bot


async def assistant(world):
    """the bot realtime greets, and answers a question; RTVI messages reach the caller"""
    world.server()
    async with Service(KEY) as service:
        runner, caller, bot = await call(world, service, "plain")
        greeting = await caller.hear(GREETING_HZ, bot)
        await asyncio.sleep(1)
        asked = asyncio.create_task(ask(caller))
        answer = await caller.hear(2 * HZ, bot)
        await asked
        said = await caller.until(lambda: final(caller), "a transcript")
    return f"shares {greeting:.3f} and {answer:.3f}, {said['data']['text']}"


def final(caller):
    """The final transcript of the caller."""
    return next((message for message in caller.all("user-transcription") if message["data"]["final"]), None)


async def assistant_ends(world):
    """the model ends the call with its function: the session is over"""
    world.server()
    async with Service(KEY) as service:
        runner, caller, bot = await call(world, service, "end-call")
        await caller.hear(GREETING_HZ, bot)
        await asyncio.sleep(1)
        await ask(caller)
        await caller.until(lambda: caller.told("participant_disconnected", bot), "the bot left")
        took = await runner.wait_for_sessions(0, 10)
    return f"free after {took:.2f} s"


async def assistant_interrupted(world):
    """a caller interrupts an answer: the bot realtime falls silent, and the service truncates it at what was heard"""
    world.server()
    async with Service(KEY) as service:
        runner, caller, bot = await call(world, service, "slow", RUNNER_BOT_GREETING="")
        await caller.until(lambda: service.sessions and service.sessions[0].of_type("session.update"), "a session")
        await ask(caller)
        for _ in range(3):
            await caller.hear(2 * HZ, bot)
        session, caller.hz = service.sessions[0], HZ + 150
        await ask(caller)
        await caller.until(lambda: session.truncations, "a truncation")
        answer = await caller.hear(2 * HZ + 300, bot)
        truncated_ms = session.truncations[0][1]
        assert session.statuses[0] == "cancelled" and truncated_ms > 1000, (session.statuses, session.truncations)
    return f"truncated at {truncated_ms} ms, share {answer:.3f}"


async def assistant_cascade(world):
    """the bot cascade in a room answers a question; the transcript reaches the caller"""
    if not FOLDER.exists():
        return SKIPPED
    world.server()
    async with wyoming() as (stt, voice), ChatServer() as chat:
        runner = world.runner("--bot", "cascade", CASCADE_STT_URL=stt, CASCADE_LLM_URL=chat.url(), CASCADE_LLM_MODEL="story",
                              CASCADE_TTS_URL=voice, RUNNER_BOT_GREETING="")
        caller, _, bot = await world.call(runner, hz=HZ, quiet=True)
        # The detector compares with the background, and a tone after digital silence is its own background.
        caller.noise = 30
        await asyncio.sleep(1)
        await ask(caller)
        answer = await caller.hear(2 * HZ, bot)
        said = await caller.until(lambda: final(caller), "a transcript")
    return f"share {answer:.3f}, {said['data']['text']}"


CHECKS = {check.__name__: check for check in (assistant, assistant_ends, assistant_interrupted, assistant_cascade)}
