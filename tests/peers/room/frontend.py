"""What LiveKit's own front-ends expect of a bot, with the published server: its state, transcripts, typed text, calls of methods."""

import asyncio
import json
import os
import pathlib
import sys

from livekit import rtc

from assistant import HZ, ask, call
from native import READY
from realtime_server import KEY, Service

BROWSER = pathlib.Path(__file__).resolve().parents[1] / "browser"
PROGRAM = str(pathlib.Path(__file__).with_name("program.py"))
STATE, NAME, SEGMENT, TRACK, FINAL = (
    "lk.agent.state", "lk.agent.name", "lk.segment_id", "lk.transcribed_track_id", "lk.transcription_final")


def transcripts(caller):
    """Collects the text streams of the bot: identity, attributes at the end, text."""
    streams = []

    async def read(reader, identity):
        text = await reader.read_all()
        # Those of the trailer are added to the header's by the client.
        streams.append((identity, dict(reader.info.attributes or {}), text))

    caller.room.register_text_stream_handler(
        "lk.transcription", lambda reader, identity: caller.tasks.append(asyncio.ensure_future(read(reader, identity))))
    return streams


async def agent(world):
    """the bot has the kind of an agent; its state goes from initializing to listening, and follows its turns"""
    world.server()
    runner = world.runner("--bot", "echo")
    caller, _, bot = await world.call(runner, quiet=True)
    participant = caller.room.remote_participants[bot]
    assert participant.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT, participant.kind
    states = []
    caller.room.on("participant_attributes_changed", lambda changed, who: states.append(changed.get(STATE)) if who.identity == bot else None)
    await caller.until(lambda: participant.attributes.get(STATE) == "listening", "it listens")
    assert participant.attributes[NAME] == "bot", participant.attributes
    caller.quiet = False
    await caller.until(lambda: participant.attributes.get(STATE) == "speaking", "it speaks")
    caller.quiet = True
    return f"{states}"


async def both_transcripts(world):
    """both transcripts arrive as text streams, under the names of bot and caller, beside the messages of RTVI"""
    world.server()
    async with Service(KEY) as service:
        runner, caller, bot = await call(world, service, "plain")
        identity = caller.room.local_participant.identity
        streams = transcripts(caller)
        await asyncio.sleep(2)
        await ask(caller)

        def final(who):
            return next(((attributes, text) for name, attributes, text in streams
                         if name == who and text and attributes.get(FINAL) == "true"), None)

        said = await caller.until(lambda: final(identity), f"the caller's words in {streams}")
        told = await caller.until(lambda: final(bot) or any(name == bot and text for name, _, text in streams), f"the bot's words in {streams}")
        assert said[0][TRACK] == caller.publication.sid and said[0][SEGMENT], said
        rtvi = await caller.until(lambda: [each for each in caller.all("user-transcription") if each["data"]["final"]], "RTVI")
        assert rtvi[0]["data"]["text"] == said[1], (rtvi, said)
    bots = [(attributes, text) for name, attributes, text in streams if name == bot]
    publication, = caller.room.remote_participants[bot].track_publications.values() if bot in caller.room.remote_participants else (None,)
    assert all(attributes[SEGMENT] for attributes, _ in bots) and told
    assert publication is None or bots[0][0][TRACK] == publication.sid, (bots, publication)
    return f"{said[1]!r} and {bots[0][1]!r}"


async def typed(world):
    """typed text arrives at the bot, long and with any letters; what the bot shows comes back both ways"""
    world.server()
    runner = world.runner("--bot", "echo")
    caller, _, bot = await world.call(runner, talks=False)
    streams = transcripts(caller)
    long = "Grüße 👋 " * 2000
    for text in ("hello", long):
        await caller.room.local_participant.send_text(text, topic="lk.chat")
        shown = await caller.until(lambda: "".join(each["data"]["text"] for each in caller.all("bot-output")).endswith(text) or None, "what it shows")
        assert shown
    await caller.until(lambda: sum(len(text) for _, _, text in streams) >= len(long), "the transcript")
    assert {name for name, _, _ in streams} == {bot}, streams
    return f"{len(long.encode())} bytes"


async def methods(world):
    """the bot answers calls of its methods; a method without an answer does not exist"""
    world.server()
    runner = world.runner("--bot", "echo")
    caller, _, bot = await world.call(runner, talks=False)
    perform = caller.room.local_participant.perform_rpc
    answers = [await perform(destination_identity=bot, method="any", payload=payload) for payload in ('{"n":[7,null]}', "plain words")]
    assert json.loads(answers[0]) == {"n": [7, None]} and answers[1] == "plain words", answers
    silent = world.runner("--", sys.executable, PROGRAM)
    other, _, program = await world.call(silent, talks=False)
    try:
        await other.room.local_participant.perform_rpc(destination_identity=program, method="any", payload="", response_timeout=9)
    except rtc.RpcError as error:
        assert error.code == 1400, error
        return f"{answers[0]}, {error.code} {error.message}"
    raise AssertionError("it was answered")


async def muted(world):
    """a bot that an administrator mutes is told, and unmuted is heard again"""
    server = world.server()
    runner = world.runner("--", sys.executable, PROGRAM)
    caller, answer, bot = await world.call(runner)
    await caller.hear(caller.hz, bot)
    track, = server.people(answer["roomName"])[bot]["tracks"]
    said = pathlib.Path(runner.folder.name) / "messages"
    for is_muted in (True, False):
        try:
            await asyncio.to_thread(server.ask, "MutePublishedTrack", answer["roomName"], room=answer["roomName"], identity=bot,
                                    track_sid=track, muted=is_muted)
        except Exception as error:
            # Unmuting from outside is off in the stock configuration.
            if is_muted:
                raise
            return f"muted; unmuting: {error}"
        told = {"type": "muted", "muted": is_muted}
        await caller.until(lambda: any(told.items() <= json.loads(line).items() for line in said.read_text().splitlines()), f"{told}")
    await caller.hear(caller.hz, bot)
    return "both"


async def encrypted(world):
    """a track that is encrypted end to end is not subscribed to, which is said once"""
    world.server()
    runner = world.runner("--bot", "echo")
    answer = await world.begin(runner)
    caller = await world.caller(answer["url"], answer["token"], talks=False)
    await caller.leave()
    options = rtc.RoomOptions(encryption=rtc.E2EEOptions(key_provider_options=rtc.KeyProviderOptions(shared_key=b"a key of the caller")))
    caller.room = rtc.Room()
    await caller.room.connect(answer["url"], answer["token"], options)
    await caller.talk()
    took = await runner.wait_for_log("the room is end-to-end encrypted: no audio can be received", 20)
    await caller.unpublish()
    await caller.talk()
    await asyncio.sleep(2)
    assert runner.log_text().count("end-to-end encrypted") == 1, runner.log_text()
    return f"after {took:.1f} s"


async def react(world):
    """LiveKit's React components and JavaScript client find the agent, show its state and both transcripts, and send typed text"""
    world.server()
    async with Service(KEY) as service:
        runner = world.runner("--bot", "realtime", REALTIME_URL=service.url("plain"), REALTIME_API_KEY=KEY, REALTIME_TRANSCRIPTION_MODEL="any")
        process = await asyncio.create_subprocess_exec(
            "node", BROWSER / "livekit.mjs", "--runner", runner.url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ})
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        seen = json.loads(out)
        # This bot rejects every message of the application.
        assert seen["unknown"]["code"] == 1500 and seen["unknown"]["data"], seen["unknown"]
        assert not seen["failures"], seen["failures"]
    texts = {kind: [each["message"] for each in seen["messages"] if each["type"] == kind] for kind in ("userTranscript", "agentTranscript")}
    return f"{seen['states']}, {texts}"


CHECKS = {check.__name__: check for check in (agent, both_transcripts, typed, methods, muted, encrypted, react)}
