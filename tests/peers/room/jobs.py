"""Runners that are registered at the published server, with the published API, clients and worker.

The server decides who gets a room. Each check prints the times that it measured.
"""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from livekit import api, rtc

from reference import judge

from server import KEY, SECRET, token

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]
# Writes its arguments to a file named for the session, then echoes audio.
PROGRAM = ("--", "/bin/sh", "-c", f'printf %s "$RUNNER_ARGUMENTS" > given-$$ && exec {sys.executable} {FOLDER / "program.py"}')
METADATA = json.dumps({"lang": "en", "name": "Zoë"})
SESSION_ID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
# What the runner promises to one who asks for a bot.
REFUSED_S = 7
# Where the packages of the published worker are (`requirements-agents.txt`).
AGENTS = ROOT / "target" / "livekit-agents"


async def dispatch(world, room, name="bot", **more):
    """Asks for a bot by the API, as `lk dispatch create` does; returns the dispatch."""
    async with world.api() as service:
        request = api.CreateAgentDispatchRequest(agent_name=name, room=room, **more)
        return await service.agent_dispatch.create_dispatch(request)


def serve(world, departure_s=3, **more):
    """Starts the server, with rooms that close soon after their last caller."""
    return world.server(settings={"room": {"empty_timeout": 30, "departure_timeout": departure_s}, **more})


async def register(world, *args, limit_s=20, **variables):
    """Starts a registered runner."""
    runner = world.runner("--register", *args, **variables)
    await runner.wait_for_log("registered ", limit_s)
    return runner


def given(runner):
    """Returns the arguments of the programs of a runner."""
    files = sorted(pathlib.Path(runner.folder.name).glob("given-*"), key=lambda file: file.stat().st_mtime)
    return [json.loads(text) for text in (file.read_text() for file in files) if text.endswith("}")]


def bots(caller, name="bot"):
    """Returns the agents of this name that a caller sees."""
    return [one.identity for one in caller.room.remote_participants.values()
            if one.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT and one.attributes.get("lk.agent.name", "") == name]


async def wait_for_bot(caller, limit_s=30, name="bot"):
    """Waits for the only bot in a room; returns its identity and the seconds."""
    start = time.monotonic()
    await caller.until(lambda: bots(caller, name), "a bot", limit_s)
    after = time.monotonic() - start
    assert len(bots(caller, name)) == 1, bots(caller, name)
    return bots(caller, name)[0], after


async def room_with_bot(world, room, identity="anna", hz=440, **more):
    """Makes a room by a dispatch and joins a caller, who hears its own tone from the bot. Returns caller, bot and seconds."""
    await dispatch(world, room, **more)
    caller = await world.caller(world.servers[-1].url, token(identity, room), hz)
    bot, after = await wait_for_bot(caller)
    await caller.hear(hz, bot)
    return caller, bot, after


async def ended(runner, words, limit_s=30):
    await runner.wait_for_log(words, limit_s)
    await runner.wait_for_sessions(0, limit_s)


async def job_dispatched(world):
    """a dispatch sends the bot into a room with its metadata; the caller talks with it; it stays until the room is closed"""
    serve(world)
    runner = await register(world, *PROGRAM)
    asked = await dispatch(world, "talk", metadata=METADATA)
    caller = await world.caller(world.servers[-1].url, token("anna", "talk"))
    bot, after = await wait_for_bot(caller)
    share = await caller.hear(440, bot)
    [arguments] = given(runner)
    job = arguments["job"]
    assert bot == "agent-" + job["id"], (bot, job["id"])
    assert arguments["body"] == json.loads(METADATA) and job["metadata"] == METADATA, arguments["body"]
    assert job["dispatch_id"] == asked.id and job["room_sid"].startswith("RM_") and job["worker_id"].startswith("AW_"), job
    assert (await runner.fetch("GET", "/status"))[1]["worker"]["jobs"] == 1
    # A server that has not asked for workers lately lists a job when it has asked for 5 s. A room that a dispatch has made has
    # a dispatch for workers without a name, too.
    async with world.api() as service:
        listed = []
        while not listed:
            every = await service.agent_dispatch.list_dispatch("talk")
            listed = [one.id for dispatch in every if dispatch.agent_name for one in dispatch.state.jobs]
            await asyncio.sleep(0.1)
    assert listed == [job["id"]], listed
    start = time.monotonic()
    await caller.leave()
    await ended(runner, "session ended: caller left")
    return f"share {share:.2f}, bot after {after:.2f} s, closed {time.monotonic() - start:.1f} s after the caller left"


async def job_of_token(world):
    """a token with `roomConfig` makes a room with the bot, with metadata, attributes and the session id"""
    serve(world)
    runner = await register(world, *PROGRAM)
    wanted = api.RoomAgentDispatch(agent_name="bot", metadata=METADATA,
                                   attributes={"edge.session_id": SESSION_ID, "tier": "gold"})
    made = (api.AccessToken(KEY, SECRET).with_identity("anna").with_grants(api.VideoGrants(room_join=True, room="talk"))
            .with_room_config(api.RoomConfiguration(agents=[wanted]))).to_jwt()
    caller = await world.caller(world.servers[-1].url, made)
    bot, after = await wait_for_bot(caller)
    await caller.hear(440, bot)
    [arguments] = given(runner)
    assert arguments["session_id"] == SESSION_ID, arguments["session_id"]
    assert arguments["body"] == json.loads(METADATA) and arguments["job"]["attributes"]["tier"] == "gold", arguments["job"]
    return f"bot after {after:.2f} s"


async def job_automatic(world):
    """a worker without a name gets every room that asks for no other bot, and none that does"""
    serve(world)
    runner = await register(world, "--agent-name", "", "--bot", "echo")
    caller = await world.caller(world.servers[-1].url, token("anna", "talk"))
    bot, after = await wait_for_bot(caller, name="")
    await caller.hear(440, bot)
    async with world.api() as service:
        wanted = api.RoomAgentDispatch(agent_name="bot")
        await service.room.create_room(api.CreateRoomRequest(name="other", agents=[wanted]))
    other = await world.caller(world.servers[-1].url, token("bert", "other"))
    await asyncio.sleep(2)
    assert not bots(other) and not bots(other, "") and await runner.sessions() == 1
    return f"bot after {after:.2f} s"


async def job_of_participants(world):
    """`--register participant`: one bot per participant, with its identity"""
    serve(world)
    runner = world.runner("--register=participant", *PROGRAM)
    await runner.wait_for_log("registered ", 20)
    await dispatch(world, "talk")
    first = await world.caller(world.servers[-1].url, token("anna", "talk"))
    second = await world.caller(world.servers[-1].url, token("bert", "talk"))
    await first.until(lambda: len(bots(first)) == 2, "two bots")
    people = sorted(arguments["job"]["participant"]["identity"] for arguments in given(runner))
    assert people == ["anna", "bert"], people
    await second.leave()
    return f"{len(bots(first))} bots"


async def job_declined(world):
    """a full runner declines and the server asks the second; without a place `/start` answers 503 within 7 s, and its room is gone"""
    serve(world, departure_s=20)
    first = await register(world, "--bot", "echo", "--max-sessions", "1")
    second = await register(world, "--bot", "echo", "--max-sessions", "1")
    await room_with_bot(world, "one")
    await room_with_bot(world, "two", "bert", 1000)
    assert await first.sessions() == await second.sessions() == 1
    start = time.monotonic()
    status, answer = await first.fetch("POST", "/start", {"body": {}})
    took = time.monotonic() - start
    assert status == 503 and "no runner took the call" in answer["detail"], (status, answer)
    judge("seconds until a 503", took, REFUSED_S, 0, at_most=True)
    rooms = {room["name"] for room in world.servers[-1].ask("ListRooms").get("rooms", ())}
    assert rooms == {"one", "two"}, rooms
    return f"503 after {took:.2f} s"


async def job_start(world):
    """`/start` makes a room that either of two runners serves; its reply has the session id and a token that works"""
    serve(world)
    runners = [await register(world, *PROGRAM) for _ in range(2)]
    took = []
    for turn in range(4):
        start = time.monotonic()
        answer = await world.begin(runners[turn % 2], {"turn": turn})
        took.append(time.monotonic() - start)
        caller = await world.caller(answer["url"], answer["token"], 440 + 100 * turn)
        bot, _ = await wait_for_bot(caller)
        await caller.hear(440 + 100 * turn, bot)
        arguments = [one for runner in runners for one in given(runner) if one["session_id"] == answer["sessionId"]]
        assert [one["body"] for one in arguments] == [{"turn": turn}], arguments
        assert arguments[0]["room_name"] == answer["roomName"]
    shares = [await runner.sessions() for runner in runners]
    assert sum(shares) == 4, shares
    return f"answered within {max(took):.2f} s, sessions {shares}"


async def job_taken_back(world):
    """the end of a dispatch ends the session"""
    serve(world)
    runner = await register(world, "--bot", "echo")
    caller, bot, _ = await room_with_bot(world, "talk")
    async with world.api() as service:
        [listed] = [one for one in await service.agent_dispatch.list_dispatch("talk") if one.agent_name]
        start = time.monotonic()
        await service.agent_dispatch.delete_dispatch(listed.id, "talk")
    await caller.until(lambda: not bots(caller), "the bot left")
    took = time.monotonic() - start
    await ended(runner, "the server took the job back")
    return f"gone after {took:.2f} s"


async def job_drained(world):
    """SIGTERM with `--drain`: new rooms go to the other runner, the talk ends by itself, and the exit code is 0"""
    serve(world)
    first = await register(world, "--bot", "echo", "--drain", "60")
    caller, bot, _ = await room_with_bot(world, "one")
    second = await register(world, "--bot", "echo")
    first.process.send_signal(signal.SIGTERM)
    await first.wait_for_log("waiting up to 60 s")
    for turn in range(3):
        await room_with_bot(world, f"new-{turn}", f"bert-{turn}", 1000)
    assert await second.sessions() == 3
    await caller.hear(440, bot)
    await caller.leave()
    code = await asyncio.to_thread(first.process.wait, 30)
    assert code == 0, code
    assert "bot failed" not in first.log_text()
    return "3 new rooms at the other one"


async def job_killed(world):
    """SIGKILL: the participant vanishes; a watcher gets the room a new bot, with the metadata of the first"""
    port = 17881
    hooks = {"webhook": {"api_key": KEY, "urls": [f"http://127.0.0.1:{port}/livekit-webhook"]}}
    serve(world, departure_s=60, **hooks)
    first = await register(world, *PROGRAM)
    caller, bot, _ = await room_with_bot(world, "talk", metadata=METADATA)
    watcher = world.runner("--register", *PROGRAM, port=port)
    await watcher.wait_for_log("registered ", 20)
    start = time.monotonic()
    for process in (first.process.pid, *children(first.process.pid)):
        os.kill(process, signal.SIGKILL)
    await caller.until(lambda: bot not in caller.room.remote_participants, "the dead bot is gone", 60)
    gone = time.monotonic() - start
    new, _ = await wait_for_bot(caller, 30)
    back = time.monotonic() - start
    assert new != bot
    await caller.hear(440, new)
    received = time.monotonic() - start
    assert [arguments["body"] for arguments in given(watcher)] == [json.loads(METADATA)]
    return f"the participant was gone after {gone:.1f} s, a new bot there after {back:.1f} s and heard after {received:.1f} s"


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(one) for one in found]


async def job_killed_alone(world):
    """SIGKILL without a watcher: the room stays without a bot"""
    serve(world, departure_s=60)
    first = await register(world, "--bot", "echo")
    caller, bot, _ = await room_with_bot(world, "talk")
    await register(world, "--bot", "echo")
    first.process.kill()
    start = time.monotonic()
    await caller.until(lambda: bot not in caller.room.remote_participants, "the dead bot is gone", 60)
    gone = time.monotonic() - start
    await asyncio.sleep(5)
    assert not bots(caller), bots(caller)
    return f"the participant was gone after {gone:.1f} s, and no other bot came"


async def job_restart(world):
    """the server is killed and starts again: workers return, the session lives on, and the room has one bot"""
    server = serve(world, departure_s=60)
    runners = [await register(world, *PROGRAM) for _ in range(2)]
    answer = await world.begin(runners[0])
    caller = await world.caller(answer["url"], answer["token"], 440)
    bot, _ = await wait_for_bot(caller)
    await caller.hear(440, bot)
    server.restart()
    start = time.monotonic()
    while True:
        statuses = [(await runner.fetch("GET", "/status"))[1]["status"] for runner in runners]
        if statuses == ["ready", "ready"] and all("lost" in runner.log_text() for runner in runners):
            break
        assert time.monotonic() - start < 30, statuses
        await asyncio.sleep(0.1)
    workers = time.monotonic() - start
    # A client of its own, since the first may give up. Its token asks for the bot again. The first client leaves: both have
    # the identity of the token, and the server removes the older participant when the first joins again.
    await caller.leave()
    back = await world.caller(answer["url"], answer["token"], 1000)
    await back.until(lambda: bots(back), "a bot is back")
    returned = time.monotonic() - start
    await asyncio.sleep(8)
    assert len(bots(back)) == 1, bots(back)
    await back.hear(1000, bots(back)[0])
    sessions = [await runner.sessions() for runner in runners]
    assert sum(sessions) == 1, sessions
    return f"workers back after {workers:.1f} s, the bot after {returned:.1f} s, sessions {sessions}"


async def job_split(world):
    """the published worker and the runner share 20 rooms under one name: each room has one bot; either alone takes the next"""
    serve(world, departure_s=60)
    runner = await register(world, "--bot", "echo")
    worker = world.process([sys.executable, FOLDER / "published_worker.py", "dev"], env={
        "LIVEKIT_URL": world.servers[-1].url, "LIVEKIT_API_KEY": KEY, "LIVEKIT_API_SECRET": SECRET,
        "PYTHONPATH": str(AGENTS)})
    await worker.wait_for("registered worker", 90)
    callers = []
    for turn in range(20):
        room = f"room-{turn}"
        await dispatch(world, room)
        callers.append(await world.caller(world.servers[-1].url, token("anna", room), talks=False))
    found = [await wait_for_agents(caller) for caller in callers]
    ours = await runner.sessions()
    theirs = len(found) - ours
    assert all(len(one) == 1 for one in found), found
    assert ours > 0 and theirs > 0, (ours, theirs)
    runner.process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(runner.process.wait, 30)
    await dispatch(world, "alone")
    alone = await world.caller(world.servers[-1].url, token("anna", "alone"), talks=False)
    assert len(await wait_for_agents(alone)) == 1
    worker.stop()
    await register(world, "--bot", "echo")
    await room_with_bot(world, "last")
    return f"{ours} rooms at the runner, {theirs} at the published worker"


async def wait_for_agents(caller, limit_s=40):
    def agents():
        return [one.identity for one in caller.room.remote_participants.values()
                if one.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT]
    await caller.until(agents, "an agent", limit_s)
    await asyncio.sleep(0.2)
    return agents()


CHECKS = {check.__name__: check for check in (
    job_split, job_killed, job_killed_alone, job_restart, job_dispatched, job_of_token, job_automatic, job_of_participants, job_declined,
    job_start, job_taken_back, job_drained)}
