"""`/start` of LiveKit rooms and its tokens, verified with the library of LiveKit."""

import asyncio
import json
import pathlib
import sys
import time

from livekit import api

from server import KEY, SECRET

LIFE_S = 6 * 3600
# Writes its arguments, and runs until it is terminated.
PROGRAM = "import os, pathlib, time; pathlib.Path('given').write_text(os.environ['RUNNER_ARGUMENTS']); time.sleep(60)"


async def start_answer(world):
    """`/start` returns the room; each session has a new room and names, or all share the configured room"""
    world.server()
    runner = world.runner()
    one, other = await world.begin(runner), await world.begin(runner)
    for answer in (one, other):
        assert set(answer) == {"url", "token", "roomName", "sessionId", "server_url", "participant_token"}, answer.keys()
        assert (answer["server_url"], answer["participant_token"]) == (answer["url"], answer["token"])
        assert answer["url"] == world.servers[-1].url, answer["url"]
        assert answer["roomName"].startswith("room-") and len(answer["roomName"]) == 13, answer["roomName"]
        claims = api.TokenVerifier(KEY, SECRET).verify(answer["token"])
        assert claims.video.room == answer["roomName"]
        assert claims.identity == claims.name == "User-" + answer["sessionId"][:8], claims
    assert one["roomName"] != other["roomName"]
    shared = world.runner(MEDIAROOM_ROOM_NAME="the parlour")
    assert (await world.begin(shared))["roomName"] == "the parlour"
    by_alias = world.runner(LIVEKIT_ROOM_NAME="the other parlour")
    assert (await world.begin(by_alias))["roomName"] == "the other parlour"
    return one["roomName"]


async def start_tokens(world):
    """both tokens pass the verifier of the library, with their grants, for six hours, and fail with another secret"""
    world.server()
    runner = world.runner("--", sys.executable, "-c", PROGRAM)
    before = int(time.time())
    answer = await world.begin(runner, {"lang": "en"})
    given = pathlib.Path(runner.folder.name) / "given"
    for _ in range(500):
        if given.exists() and given.read_text():
            break
        await asyncio.sleep(0.02)
    arguments = json.loads(given.read_text())
    assert arguments["kind"] == "mediaroom" and arguments["body"] == {"lang": "en"}, arguments["kind"]
    assert arguments["room_name"] == answer["roomName"] and arguments["url"] == answer["url"]
    assert arguments["session_id"] == answer["sessionId"]
    assert arguments["media_url"].startswith("ws://127.0.0.1:"), arguments["media_url"]
    for made, agent in ((answer["token"], None), (arguments["token"], True)):
        claims = api.TokenVerifier(KEY, SECRET).verify(made)
        grants = claims.video
        assert grants.room_join and grants.room == answer["roomName"]
        assert grants.can_publish and grants.can_subscribe and grants.can_publish_data
        assert bool(grants.agent) == bool(agent), grants
        assert not grants.room_admin and not grants.room_create and not grants.room_list, grants
        assert claims.identity.endswith(("Agent-" if agent else "User-") + answer["sessionId"][:8]), claims.identity
        import jwt
        raw = jwt.decode(made, SECRET, algorithms=["HS256"])
        assert raw["iss"] == KEY and raw["sub"] == claims.identity
        assert before - 2 <= raw["nbf"] <= time.time() + 2 and raw["exp"] - raw["nbf"] == LIFE_S, raw
        try:
            api.TokenVerifier(KEY, "another-secret-of-thirty-two-characters").verify(made)
        except jwt.InvalidSignatureError:
            continue
        raise AssertionError("another secret verified it")
    return claims.identity


async def start_unconfigured(world):
    """without its variables `/start` is 500, and names each that is missing"""
    world.server()
    runner = world.runner(MEDIAROOM_URL="", MEDIAROOM_API_SECRET="")
    status, answer = await runner.fetch("POST", "/start", {})
    assert status == 500, (status, answer)
    detail = answer["detail"]
    assert "MEDIAROOM_URL" in detail and "MEDIAROOM_API_SECRET" in detail, detail
    return detail


CHECKS = {check.__name__: check for check in (start_answer, start_tokens, start_unconfigured)}
