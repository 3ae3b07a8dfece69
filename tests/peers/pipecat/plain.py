"""Checks of `/ws-client` with Pipecat's WebSocket client transport."""

import asyncio
import time

from client import RATE, Client
from reference import judge
from sound import LIKE_SPREAD, in_tune, likeness, paced, sentence, tone
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

HZ = 440
WORDS = "Hello there, can you hear me well today?"
# A time limit.
NOTICED_S = 20
# How far ahead of playing the runner sends on top of one chunk.
LEAD_S = 0.1
# Of what was said: the runner's resamplers keep some samples, and a last frame of 20 ms that is not full.
KEPT_S = 0.05
# A parrot falls silent within that of the begin of speech, which it takes 0.3 s to be sure of.
SILENT_S = 1.0


def socket_url(runner, path="/ws-client"):
    return runner.url.replace("http", "ws", 1) + path


async def client(start):
    """Pipecat's client transport: bot-ready, a request and its answer, a tone and its echo at 24 kHz, a clean leave"""
    runner = start("--bot", "echo")
    async with Client(socket_url(runner)) as peer:
        ready = await peer.ready()
        assert ready["version"].split(".")[0] == "2", ready
        asked = {"t": "any", "d": {"n": [7, None]}}
        await peer.send({"label": "rtvi-ai", "type": "client-message", "id": "00000002", "data": asked})
        answer = await peer.until(lambda: peer.message("server-response", id="00000002"), "server-response")
        assert answer["data"] == asked, answer
        peer.voice = lambda first, count: tone(HZ, RATE, first, count)
        # Without the runner it is what it was.
        said = in_tune(await peer.listen_for(3), HZ, RATE, tone(HZ, RATE, 0, RATE))
        peer.voice = None
        await asyncio.sleep(0.5)
        shapes = {(chunk.rate, chunk.channels) for chunk in peer.receiver.chunks}
        assert shapes == {(RATE, 1)}, shapes
        judge("seconds of audio lost", (peer.sent - len(peer.received())) / RATE, 0, KEPT_S, at_most=True)
        await peer.leave()
        took = await runner.wait_for_sessions(0, NOTICED_S)
    return f"{said}, freed after {took:.2f} s"


async def client_barge_in(start):
    """the parrot repeats speech in real time, and speech of the caller stops it"""
    runner = start("--bot", "parrot")
    words = sentence(WORDS, RATE)
    async with Client(socket_url(runner)) as peer:
        await peer.ready()
        await peer.pause(0.7)
        first, peer.own_late_s = len(peer.receiver.chunks), 0.0
        peer.say(words)
        await peer.until(lambda: len(peer.received(first)) >= 0.9 * len(words), "the parrot's answer")
        await peer.pause(0.7)
        like = judge("likeness", likeness(words, peer.received(first)), 1, LIKE_SPREAD)
        pace = paced(peer.receiver.chunks[first:], RATE, LEAD_S, peer.own_late_s)

        first, interruptions = len(peer.receiver.chunks), len(peer.receiver.interruptions)
        peer.say(words)
        await peer.until(lambda: len(peer.received(first)) >= 0.5 * RATE, "the parrot's answer")
        peer.own_late_s = 0.0
        began, spoken = time.monotonic(), len(peer.receiver.chunks)
        peer.say(words)
        await peer.pause(0.4)
        took = peer.receiver.chunks[-1].at - began
        rest = len(peer.received(spoken)) / RATE
        judge("seconds until the parrot is silent", took, peer.own_late_s, SILENT_S, at_most=True)
        told = len(peer.receiver.interruptions) - interruptions
    return f"{like}; {pace}; silent after {took:.2f} s ({rest:.2f} s of sound), {told} interruption frames"


async def client_bye(start):
    """disconnect-bot ends the session and closes the socket; invalid data before that is ignored"""
    runner = start("--bot", "echo")
    async with Client(socket_url(runner)) as peer:
        await peer.ready()
        for rubbish in (None, [], 7, "ping", {}, {"label": 7}, {"label": "rtvi-ai"}):
            await peer.send(rubbish)
        await peer.send({"label": "rtvi-ai", "type": "no-such-thing", "id": "1"})
        refused = await peer.until(lambda: peer.message("error-response", id="1"), "error-response")
        assert refused["data"]["error"] == "Unsupported type no-such-thing", refused
        await peer.ready("0000000b")
        await peer.send({"label": "rtvi-ai", "type": "disconnect-bot", "id": "2", "data": {}})
        await asyncio.wait_for(peer.gone.wait(), NOTICED_S)
        took = await runner.wait_for_sessions(0, NOTICED_S)
    return f"freed after {took:.2f} s"


async def tokens(start):
    """--ws-auth token: as header, in the path and in the query a token opens its own endpoint once; nothing else does"""
    runner = start("--bot", "echo", "--ws-auth", "token")

    async def token(transport="websocket"):
        status, reply = await runner.fetch("POST", "/start", {"transport": transport})
        assert status == 200, (status, reply)
        return reply["token"]

    async def refused(path, **headers):
        try:
            async with connect(socket_url(runner, path), additional_headers=headers, proxy=None):
                raise AssertionError(f"accepted: {path} {headers}")
        except InvalidStatus as error:
            assert error.response.status_code == 403, error.response
    ways = (
        lambda token: ("/ws-client", {"Authorization": f"Bearer {token}"}),
        lambda token: (f"/ws-client/{token}", {}),
        lambda token: (f"/ws-client?token={token}", {}),
    )
    for way in ways:
        path, headers = way(await token())
        async with Client(socket_url(runner, path), headers) as peer:
            await peer.ready()
        await refused(path, **headers)
        path, headers = way(await token("telephony_a"))
        await refused(path, **headers)
        path, headers = way("x." + "0" * 64)
        await refused(path, **headers)
    await refused("/ws-client")
    await refused("/ws")
    await refused(f"/ws/{await token()}")
    await runner.wait_for_sessions(0, NOTICED_S)
    return "13 refused with 403"


CHECKS = {check.__name__: check for check in [client, client_barge_in, client_bye, tokens]}
