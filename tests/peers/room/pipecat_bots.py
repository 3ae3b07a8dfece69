"""A bot for Pipecat's own runner in a room, `pipecat_bot.py`: it enters with LiveKit's package, and not through the runner."""

import pathlib
import sys

from caller import share
from checks import until

BOT = str(pathlib.Path(__file__).with_name("pipecat_bot.py"))
# Time limits.
JOINED_S, ENDED_S = 60, 30
SHARE_MIN = 0.5


async def pipecat_bot(world):
    """an unchanged Pipecat bot enters a room of LiveKit by itself, plays back, and ends when the caller leaves"""
    world.server()
    runner = world.runner("--python", sys.executable, BOT, LOGURU_LEVEL="INFO")
    answer = await world.begin(runner)
    caller = await world.caller(answer["url"], answer["token"])
    await until(lambda: caller.received, "the sound of the bot", JOINED_S)
    identity = next(iter(caller.received))
    said = share(await caller.listen_for(2, identity), caller.hz)
    assert said > SHARE_MIN, f"a share of {said} of the caller's own tone"
    assert len(caller.room.remote_participants) == 1, list(caller.room.remote_participants)
    await caller.leave()
    await runner.wait_for_sessions(0, ENDED_S)
    log = runner.log_text()
    for words in ("a participant is there", "the participant left", "the bot returns"):
        assert words in log, f"not said: {words}"
    assert "failed" not in log and "Traceback" not in log, "something failed"
    return f"{identity}, a share of {said:.3f}"


CHECKS = {"pipecat_bot": pipecat_bot}
