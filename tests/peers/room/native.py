"""The runner in a room: the published client as the caller, built-in bots, and the test server."""

import asyncio
import itertools
import json
import pathlib
import subprocess
import sys
import time
import wave

import numpy as np
from livekit import rtc

from caller import NOISE, RATE, loudness, share
from reference import judge
from server import token

READY = {"label": "rtvi-ai", "type": "client-ready", "id": "d2d923ea", "data": {"version": "2.1.0", "about": {"library": "room check"}}}
# The time after which the runner leaves an empty room, with a margin.
EMPTY_S = 10 + 20
# What the runner promises: a caller who left is seen so soon, and a runner that is stopped ends so soon. The server takes its
# time to tell.
SEEN_S, ENDED_S, TOLD_S = 1, 3, 3
# Packets that are on their way, or come in two reads of the server's counts.
UNCOUNTED = 15
# Of the energy of one tone among two, of which the noise of the codec is a part.
MIX_SPREAD = 0.2
# Words of a caller and the pauses between them, in seconds.
WORD_S, PAUSES_S = 0.6, (1, 2, 4, 3)
# libopus with DTX sends a packet each 400 ms of silence, so that the end of a pause is known as late as that.
# The bot does not wait for it: the next word would be so late.
UNKNOWN_S = 0.4
# A recording places each word by its arrival; what is later than its place by less than this follows without a gap.
SLACK_S = 0.12
# Two blocks of 20 ms, and what codecs and resampling smear.
EDGES_S = 0.08
# Two notes, which decay to silence.
GREETING_MS = 300


async def echo(world):
    """the echo of a tone under the bot's name; the server and the caller report the bot as a speaker"""
    return await talk(world, world.server())


async def echo_deployed(world):
    """the same where every connection has a UDP port, ICE is full, there is no redundant audio, and the address is a network's"""
    return await talk(
        world, world.server("--udp-ports-of-their-own", "--ice-full", "--no-red", "--address", world.address), "--host", world.address)


async def talk(world, server, *args):
    runner = world.runner("--bot", "echo", *args)
    start = time.monotonic()
    caller, answer, bot = await world.call(runner)
    room = answer["roomName"]
    assert (await runner.sessions()) == 1
    found = await caller.hear(caller.hz, bot)
    await caller.until(lambda: caller.told("active_speakers_changed", bot), "the bot speaks, the client says")
    if server.detailed:
        seen = server.people(room)[bot]
        assert not seen["auto_subscribe"] and seen["protocol"] == 15, seen
        assert seen["levels"] == seen["packets_in"], seen
    participant = caller.room.remote_participants[bot]
    assert participant.name == bot, participant.name
    publication, = participant.track_publications.values()
    assert publication.source == rtc.TrackSource.SOURCE_MICROPHONE and not publication.muted
    # Packets continue during silence, in which the bot is not a speaker.
    caller.quiet = True
    await caller.until(lambda: bot not in caller.speakers(), "the bot is silent")
    before = server.detailed and server.people(room)[bot]["packets_in"]
    since = time.monotonic()
    await caller.hears_silence(identity=bot)
    if server.detailed:
        sent = server.people(room)[bot]["packets_in"] - before
        # A packet is 20 ms long.
        judge("packets in a second less than there should be", 50 * (time.monotonic() - since) - sent, 0, UNCOUNTED, at_most=True)
        judge("packets in a second more than there should be", sent - 50 * (time.monotonic() - since), 0, UNCOUNTED, at_most=True)
    return f"share {found:.3f}, all within {time.monotonic() - start:.1f} s"


async def rtvi(world):
    """client-ready gets bot-ready with its id; a message gets its answer; invalid data is ignored"""
    world.server()
    runner = world.runner("--bot", "echo")
    caller, _, bot = await world.call(runner, talks=False)
    await caller.say(READY)
    ready = await caller.until(lambda: caller.message("bot-ready", id=READY["id"]), "bot-ready")
    assert ready["data"]["version"].split(".")[0] == "2", ready
    for rubbish in (b"", b"{", b"\xff\xfe", b"null", b"x" * 5000):
        await caller.room.local_participant.publish_data(rubbish)
    data = {"t": "any", "d": {"n": [7, None]}}
    await caller.say({"label": "rtvi-ai", "type": "client-message", "id": "00000002", "data": data})
    response = await caller.until(lambda: caller.message("server-response", id="00000002"), "an answer")
    assert response["data"] == data, response
    packet = caller.messages[0]
    assert packet.participant.identity == bot and packet.kind == rtc.DataPacketKind.KIND_RELIABLE and not packet.topic
    return str(ready["data"])


async def parrot(world):
    """the parrot greets each participant, who hears the whole greeting"""
    world.server()
    runner = world.runner("--bot", "parrot")
    caller, _, bot = await world.call(runner, talks=False)
    # The published server tells of a participant that publishes nothing only after 3 s.
    await caller.until(lambda: any(loudness(pcm) > 300 for pcm in caller.received.get(bot, ())), "the greeting")
    await asyncio.sleep(1)
    received = np.concatenate(caller.received[bot])
    # Blocks of 20 ms, which may begin anywhere in the notes.
    block = RATE // 50
    loud_ms = max(20 * sum(loudness(received[at:at + block]) > 300 for at in range(first, len(received), block)) for first in range(0, block, block // 8))
    missed_ms = await caller.missed_ms(bot)
    # Both notes decay.
    assert 180 - missed_ms <= loud_ms <= GREETING_MS, f"{loud_ms} ms of the greeting were heard, of all sound {missed_ms} ms were not"
    return f"{loud_ms} ms, {len(received) / RATE - 1:.1f} s after the track"


def words_in(pcm, rate):
    """Returns the first and last second of each word."""
    block = rate // 50
    loud = [at / rate for at in range(0, len(pcm) - block + 1, block) if loudness(pcm[at:at + block]) > 1000]
    ends = [nth for nth, (one, next_one) in enumerate(itertools.pairwise(loud)) if next_one - one > 0.2]
    return [(loud[first], loud[last] + 0.02) for first, last in zip([0, *(nth + 1 for nth in ends)], [*ends, -1])] if loud else []


async def pauses(world):
    """a caller that sends nothing in its pauses (DTX): they are as long for the bot, and in the recording, as they were"""
    server = world.server()
    runner = world.runner("--bot-audio", "pcm", "--record", "recordings", "--", "sh", "-c", "cat > speech")
    answer = await world.begin(runner)
    caller = await world.caller(answer["url"], answer["token"], talks=False, quiet=True)
    await caller.talk(dtx=True)
    bot = await world.bot(caller, answer)
    folder = pathlib.Path(runner.folder.name)
    await caller.until(lambda: (folder / "speech").exists() and (folder / "speech").stat().st_size, "the bot gets audio")
    before = await caller.packets_sent()
    said = [part for pause in (*PAUSES_S, 1) for part in ((True, WORD_S), (False, pause))]
    caller.script.extend(is_tone for is_tone, seconds in said for _ in range(round(seconds * 100)))
    await caller.until(lambda: not caller.script, "the words")
    await asyncio.sleep(1)
    sent, spoken = await caller.packets_sent() - before, WORD_S * (len(PAUSES_S) + 1)
    # With a packet each 20 ms there is nothing to see here.
    assert sent * 0.02 < spoken + sum(PAUSES_S) / 2, f"{sent} packets for {spoken} s of words: the client sends its pauses"
    server.remove(answer["roomName"], bot)
    await runner.wait_for_sessions(0, 20)
    for_bot = words_in(np.frombuffer((folder / "speech").read_bytes(), dtype="<i2").astype(float), 16000)
    file, = await caller.until(lambda: list((folder / "recordings").glob("*.wav")), "the recording")
    with wave.open(str(file)) as recording:
        left = np.frombuffer(recording.readframes(recording.getnframes()), dtype="<i2")[::2].astype(float)
        recorded = words_in(left, recording.getframerate())
    found = {}
    for what, words, less_s, more_s in (("the bot's", for_bot, UNKNOWN_S, 0), ("recorded", recorded, SLACK_S, SLACK_S)):
        found[what] = [round(begins - ends, 2) for (_, ends), (begins, _) in itertools.pairwise(words)]
        assert len(found[what]) == len(PAUSES_S), f"{what} words: {words}"
        for pause, wanted in zip(found[what], PAUSES_S):
            near = wanted - less_s - EDGES_S <= pause <= wanted + more_s + EDGES_S
            assert near, f"{what} pauses {found[what]} s, {PAUSES_S} said, {sent} packets"
    return f"{sent} packets; " + ", ".join(f"{what} pauses {lengths} s" for what, lengths in found.items())


async def late_bot(world):
    """a bot that joins late hears a caller that already speaks"""
    server = world.server()
    caller = await world.caller(server.url, token("anna", "the parlour"))
    runner = world.runner("--bot", "echo", MEDIAROOM_ROOM_NAME="the parlour")
    answer = await world.begin(runner)
    bot = await world.bot(caller, answer)
    return f"share {await caller.hear(caller.hz, bot):.3f}"


async def leave(world):
    """the runner sees within a second that the caller left; a returning caller continues; an empty room ends the session"""
    server = world.server()
    runner = world.runner("--bot", "echo")
    caller, answer, bot = await world.call(runner)
    await caller.hear(caller.hz, bot)
    await caller.leave()
    took = await runner.wait_for_log("no caller is connected", 20)
    judge("seconds until it sees that the caller left", took, SEEN_S, TOLD_S, at_most=True)
    again = await world.caller(answer["url"], answer["token"])
    await world.bot(again, answer)
    await again.hear(again.hz, bot)
    assert (await runner.sessions()) == 1 and (not server.detailed or server.stats()["joins"] == 3)
    await again.leave()
    freed = await runner.wait_for_sessions(0, EMPTY_S)
    await server.until(lambda stats: not stats["rooms"], "the room is empty")
    return f"seen after {took:.2f} s, ended after {freed:.1f} s"


async def vanish(world):
    """a killed caller has left after the timeout of the server; a removed one at once"""
    server = world.server()
    runner = world.runner("--bot", "echo")
    answer = await world.begin(runner)
    process = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("caller.py"), answer["url"], answer["token"]])
    try:
        room = answer["roomName"]
        await server.until(lambda stats: [len(person["tracks"]) for person in stats["rooms"].get(room, {}).values()] == [1, 1], "the talk")
    finally:
        process.kill()
        process.wait()
    killed = await runner.wait_for_log("no caller is connected", 40)
    again = await world.caller(answer["url"], answer["token"])
    await runner.wait_for_log("a caller is connected again", 30)
    await again.hear(again.hz)
    server.remove(room, again.room.local_participant.identity)
    freed = await runner.wait_for_sessions(0, EMPTY_S)
    return f"gone {killed:.1f} s after the kill, ended {freed:.1f} s after the removal"


async def program(world):
    """a bot in a process gets audio, participants, speakers, keys and messages, and speaks"""
    server = world.server()
    runner = world.runner("--", sys.executable, str(pathlib.Path(__file__).with_name("program.py")))
    caller, answer, bot = await world.call(runner)
    identity = caller.room.local_participant.identity

    def messages():
        said = pathlib.Path(runner.folder.name) / "messages"
        return [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []

    async def has(**wanted):
        await caller.until(lambda: any(wanted.items() <= message.items() for message in messages()), f"{wanted} in {messages()}")

    found = await caller.hear(caller.hz, bot)
    await has(type="participant-joined", identity=identity)
    await has(type="speaking", identity=identity, speaking=True)
    caller.quiet = True
    await has(type="speaking", identity=identity, speaking=False)
    await caller.room.local_participant.publish_dtmf(code=7, digit="7")
    await has(type="dtmf", digit="7")
    await caller.say(READY)
    await has(type="client-ready", id=READY["id"])
    anna = await world.caller(server.url, token("anna", answer["roomName"]), talks=False)
    await has(type="participant-joined", identity="anna")
    await anna.leave()
    await has(type="participant-left", identity="anna")
    return f"share {found:.3f}, {len(messages())} messages"


async def program_refused(world):
    """a bot in a process also starts when the join fails, and gets the reason"""
    world.server()
    runner = world.runner(
        "--", sys.executable, str(pathlib.Path(__file__).with_name("program.py")), secret="another-secret-of-thirty-two-characters")
    await world.begin(runner)
    said = pathlib.Path(runner.folder.name) / "messages"
    for _ in range(500):
        if said.exists() and said.read_text():
            break
        await asyncio.sleep(0.02)
    message = json.loads(said.read_text().splitlines()[0])
    assert message["type"] == "join-failed" and "401" in message["error"], message
    await runner.wait_for_sessions(0, 30)
    return message["error"]


async def mixed(world):
    """the bot hears two callers mixed; each hears both"""
    world.server()
    runner = world.runner("--bot", "echo")
    one, answer, bot = await world.call(runner, hz=500)
    other = await world.caller(answer["url"], token("anna", answer["roomName"]), hz=1200)
    await world.bot(other, answer)
    shares = []
    for _ in range(10):
        received = await other.listen_for(1, bot)
        shares = [share(received, hz) for hz in (500, 1200)]
        # Two tones of one level have half of the energy each.
        if min(shares) > other.control.share / 2 - MIX_SPREAD and sum(shares) > other.control.share - MIX_SPREAD:
            break
    else:
        raise AssertionError(f"shares {shares}")
    # A third that left is not in the mix.
    await one.leave()
    return f"shares {shares[0]:.2f} and {shares[1]:.2f}, alone {await other.hear(1200, bot):.2f}"


async def each(world):
    """a bot with separate audio per participant knows who spoke, and for how long: the example `room`"""
    world.server()
    runner = world.runner(binary=world.server_binary.with_name("room"))
    talker, answer, _ = await world.call(runner)
    silent = await world.caller(answer["url"], token("anna", answer["roomName"]), talks=False)
    await world.bot(silent, answer)
    await asyncio.sleep(2)
    identity = talker.room.local_participant.identity
    await talker.leave()
    said = await silent.until(lambda: [text for text in silent.texts() if identity in text], "what the bot says of the talker")
    seconds = int(said[0].split(" spoke for ")[1].split()[0])
    assert 1 <= seconds < 30, said
    return said[0]


async def republish(world):
    """a caller that unpublishes its microphone and publishes another is heard again"""
    world.server()
    runner = world.runner("--bot", "echo")
    caller, _, bot = await world.call(runner)
    await caller.hear(caller.hz, bot)
    for turn in range(3):
        await caller.unpublish()
        for _ in range(10):
            if loudness(await caller.listen_for(0.5, bot)) < caller.control.silence + NOISE:
                break
        else:
            raise AssertionError("it is still heard")
        caller.hz = 440 + 200 * (turn + 1)
        await caller.talk()
        found = await caller.hear(caller.hz, bot)
    return f"share {found:.3f}"


async def camera(world):
    """the runner subscribes to the audio of a caller with a camera, and never to its video"""
    server = world.server()
    runner = world.runner("--bot", "echo")
    caller, answer, bot = await world.call(runner, talks=False)
    await caller.show()
    await caller.talk()
    await caller.hear(caller.hz, bot)
    people = server.people(answer["roomName"])
    identity = caller.room.local_participant.identity
    assert sorted(track[:5] for track in people[identity]["tracks"]) == ["TR_AM", "TR_VC"], people[identity]
    if server.detailed:
        assert [track[:5] for track in people[bot]["subscribed"]] == ["TR_AM"], people[bot]
    return "one of two tracks"


async def agents(world):
    """two bots in one room do not hear each other, and do not keep each other's session open"""
    server = world.server()
    runner = world.runner("--bot", "echo", MEDIAROOM_ROOM_NAME="the parlour")
    caller, answer, one = await world.call(runner)
    other = await world.bot(caller, await world.begin(runner))
    assert one != other
    await caller.hear(caller.hz, one)
    await caller.hear(caller.hz, other)
    caller.quiet = True
    await caller.until(lambda: not caller.speakers(), "silence")
    await caller.hears_silence(2)
    await caller.leave()
    return f"silent after the tone, ended after {await runner.wait_for_sessions(0, EMPTY_S):.1f} s"


async def restart(world):
    """a restart of the server: the session continues"""
    server = world.server()
    runner = world.runner("--bot", "echo")
    caller, answer, bot = await world.call(runner)
    await caller.hear(caller.hz, bot)
    start = time.monotonic()
    await asyncio.to_thread(server.restart, 2)
    await server.until(lambda stats: bot in stats["rooms"].get(answer["roomName"], {}), "the bot is back", 30)
    back = time.monotonic() - start
    await caller.until(lambda: caller.told("reconnected"), "the caller is back", 40)
    found = await caller.hear(caller.hz, bot, 30)
    await caller.say(READY)
    await caller.until(lambda: caller.message("bot-ready", id=READY["id"]), "bot-ready")
    assert (await runner.sessions()) == 1
    return f"the bot is back after {back:.1f} s, share {found:.3f}"


async def trouble(world):
    """the session survives a cut socket, a server that hangs, and a leave that requests a reconnect"""
    server = world.server("--ping", "1:3")
    runner = world.runner("--bot", "echo")
    caller, answer, bot = await world.call(runner)
    said = []
    orders = [("hang-up", {}), ("silence", {}), ("leave", {"reason": 6, "action": 2}), ("leave", {"reason": 0, "action": 1})]
    for order, more in orders:
        await caller.hear(caller.hz, bot)
        joins, start = server.stats()["joins"], time.monotonic()
        server.tell(order, identity=bot, **more)
        await server.until(lambda stats: stats["joins"] > joins, f"back after {order}", 20)
        said.append(f"{order} {time.monotonic() - start:.1f} s")
        await caller.until(lambda: bot in caller.room.remote_participants, "the bot is there")
        await caller.hear(caller.hz, bot)
    assert (await runner.sessions()) == 1 and runner.log_text().count("session started") == 1
    return ", ".join(said)


async def duplicate(world):
    """a participant with the bot's identity replaces it: the session ends without a reconnect"""
    server = world.server()
    runner = world.runner("--bot", "echo")
    caller, answer, bot = await world.call(runner)
    await caller.hear(caller.hz, bot)
    await world.caller(server.url, token(bot, answer["roomName"]), talks=False)
    took = await runner.wait_for_sessions(0, 20)
    await asyncio.sleep(2)
    assert not server.detailed or server.stats()["joins"] == 3, server.stats()
    return f"ended after {took:.2f} s"


async def evicted(world):
    """a bot that is removed from the room, or whose room is deleted, ends"""
    server = world.server()
    runner = world.runner("--bot", "echo")
    for remove in (lambda room, bot: server.remove(room, bot), lambda room, _: server.delete(room)):
        caller, answer, bot = await world.call(runner)
        remove(answer["roomName"], bot)
        took = await runner.wait_for_sessions(0, 20)
        assert bot not in server.people(answer["roomName"])
    return f"ended after {took:.2f} s"


async def wrong_secret(world):
    """a wrong secret ends the session with a clear message; no token reaches the log"""
    world.server()
    secret = "another-secret-of-thirty-two-characters"
    runner = world.runner("--bot", "echo", "-v", secret=secret, RUST_LOG="debug")
    answer = await world.begin(runner)
    await runner.wait_for_log("the room was not entered", 30)
    await runner.wait_for_sessions(0, 20)
    text = runner.log_text()
    line, = [line for line in text.splitlines() if "the room was not entered" in line]
    assert "WARN" in line and "secret" in line.lower() and "401" in line, line
    assert secret not in text and answer["token"] not in text and "eyJ" not in text, "a secret is in the log"
    return line.split("WARN")[1].strip()


async def unreachable(world):
    """an absent server and a URL of another server give a clear message"""
    server = world.server()
    said = []
    for url in ("ws://127.0.0.1:9", server.url + "/nothing"):
        runner = world.runner("--bot", "echo", url=url)
        await world.begin(runner)
        await runner.wait_for_log("the room was not entered", 30)
        await runner.wait_for_sessions(0, 20)
        line, = [line for line in runner.log_text().splitlines() if "the room was not entered" in line]
        assert "WARN" in line, line
        said.append(line.split("the room was not entered: ")[1])
    return "; ".join(said)


async def sigterm(world):
    """a runner that is stopped leaves the room at once, and exits within 3 s"""
    server = world.server()
    runner = world.runner("--bot", "echo")
    caller, answer, bot = await world.call(runner)
    await caller.hear(caller.hz, bot)
    start = time.monotonic()
    runner.process.terminate()
    told = await caller.until(lambda: caller.told("participant_disconnected", bot), "the bot left")
    code = await asyncio.to_thread(runner.process.wait, 20)
    took = time.monotonic() - start
    assert code == 0, code
    judge("seconds until the bot left", told - start, ENDED_S, 1, at_most=True)
    judge("seconds until the runner ended", took, ENDED_S, 1, at_most=True)
    assert bot not in server.people(answer["roomName"])
    return f"seen after {told - start:.2f} s, ended after {took:.2f} s"


CHECKS = {check.__name__: check for check in (
    vanish, trouble, agents, leave, echo, echo_deployed, rtvi, pauses, parrot, program, program_refused, late_bot, mixed, each, republish, camera, restart, duplicate, evicted,
    wrong_secret, unreachable, sigterm)}
