"""`edge-runner call` as a caller in rooms: with the runner's bot, and with one that LiveKit's own client is."""

import asyncio
import os
import pathlib
import subprocess
import tempfile
import wave

import numpy as np

from caller import share
from server import KEY, SECRET, token

RATE = 16000
LIMIT_S = 60
# Shares of a tone that Opus coded once or twice, without the begin and the end of the sound.
SHARE_MIN = 0.8


def call(world, url, *options):
    """Calls with the keys of the server. Returns the exit code, and what the caller prints."""
    called = subprocess.run([world.binary, "call", url, "-t", "livekit", *options], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=LIMIT_S, env={**os.environ, "LIVEKIT_API_KEY": KEY, "LIVEKIT_API_SECRET": SECRET})
    return called.returncode, called.stdout + called.stderr


def bot_share(path, hz):
    """The share of a tone in what the bot said."""
    with wave.open(str(path)) as record:
        pcm = np.frombuffer(record.readframes(record.getnframes()), dtype=np.int16).reshape(-1, 2)[:, 1].astype(float)
    return share(pcm, hz, RATE)


async def command_with_the_runner(world):
    """`edge-runner call` in the room that `/start` names: text, tone and its echo; it leaves, and the bot too"""
    world.server()
    runner = world.runner("--bot", "echo")
    with tempfile.TemporaryDirectory() as folder:
        said, record = pathlib.Path(folder) / "said.wav", pathlib.Path(folder) / "record.wav"
        with wave.open(str(said), "wb") as tone:
            tone.setnchannels(1), tone.setsampwidth(2), tone.setframerate(RATE)
            tone.writeframes((8000 * np.sin(2 * np.pi * 440 * np.arange(2 * RATE) / RATE)).astype("<i2").tobytes())
        options = ["--text", "hello", "--expect-text", "hello", "--wav", said, "--expect-speech", "--expect-latency", "3", "--record", record]
        code, shown = await asyncio.to_thread(call, world, runner.url, *options)
        assert code == 0, shown
        found = bot_share(record, 440)
    assert "the bot is ready" in shown and found > SHARE_MIN, (found, shown)
    await runner.wait_for_sessions(0, 30)
    return f"share {found:.3f}"


async def command_with_a_bot_of_livekit(world):
    """`edge-runner call` by the name of a room, with an agent of the published client: its tone, its transcript, its end"""
    url, room = world.server().url, "called"
    agent = await world.caller(url, token("agent", room, agent=True))

    async def speak():
        await agent.until(lambda: agent.room.remote_participants, "the caller")
        # The caller reads it once it hears the agent.
        await agent.until(lambda: agent.listening, "the caller's track")
        await asyncio.sleep(2)
        await agent.room.local_participant.send_text("Good morning", topic="lk.transcription")
        await asyncio.sleep(2)
        world.callers.remove(agent)
        await agent.leave()

    options = ["--room", room, "--silence", "30", "--expect-text", "good morning", "--expect-speech"]
    (code, shown), _ = await asyncio.gather(asyncio.to_thread(call, world, url, *options), speak())
    # The agent leaves before the silence is over, which is all that fails.
    assert code == 1 and "ended: the bot hung up" in shown, shown
    assert "bot: Good morning" in shown and "bot speaks" in shown, shown
    assert "no text matches" not in shown and "no speech" not in shown, shown
    return "sound, text and end"


CHECKS = {check.__name__: check for check in (command_with_the_runner, command_with_a_bot_of_livekit)}
