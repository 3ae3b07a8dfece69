"""Checks of the test server with only the published client."""

import asyncio
import time

from livekit import rtc

from caller import share
from server import token

ROOM = "a room, with spaces & signs"


async def server(world):
    """two published clients: a tone, messages with their senders, speakers, a leave"""
    return await conversation(world, world.server())


async def server_deployed(world):
    """the same where every connection has a UDP port, ICE is full, there is no redundant audio, and the address is a network's"""
    return await conversation(
        world, world.server("--udp-ports-of-their-own", "--ice-full", "--no-red", "--address", world.address))


async def conversation(world, server):
    anna = await world.caller(server.url, token("anna", ROOM))
    bert = await world.caller(server.url, token("bert", ROOM), talks=False)
    found = await bert.hear(anna.hz, "anna")
    await bert.until(lambda: bert.told("active_speakers_changed", "anna"), "anna speaks")
    await anna.until(lambda: "bert" in anna.room.remote_participants, "bert is there")
    await anna.say({"type": "to-all"})
    await bert.room.local_participant.publish_data(b'{"type":"to-anna"}', destination_identities=["anna"], topic="a topic")
    await bert.until(lambda: bert.message("to-all"), "a message")
    await anna.until(lambda: anna.message("to-anna"), "an answer")
    assert bert.messages[0].participant.identity == "anna" and anna.messages[0].participant.identity == "bert"
    assert anna.messages[0].topic == "a topic"
    assert bert.speakers() == ["anna"], bert.speakers()
    anna.quiet = True
    await bert.until(lambda: not bert.speakers(), "anna is silent")
    start = time.monotonic()
    await anna.leave()
    gone = await bert.until(lambda: bert.told("participant_disconnected", "anna"), "anna left")
    return f"share {found:.3f}, gone after {gone - start:.2f} s"


async def server_late(world):
    """a late participant gets the existing tracks; an unpublished track is removed, a new one added; a third is heard as well"""
    server = world.server()
    anna = await world.caller(server.url, token("anna", ROOM), hz=440)
    cleo = await world.caller(server.url, token("cleo", ROOM), hz=1000)
    bert = await world.caller(server.url, token("bert", ROOM), talks=False)
    await bert.hear(440, "anna")
    await bert.hear(1000, "cleo")
    await anna.unpublish()
    await bert.until(lambda: bert.told("track_unsubscribed", "anna"), "the track is gone")
    await anna.talk()
    found = await bert.hear(440, "anna")
    await bert.hear(1000, "cleo")
    return f"share {found:.3f}"


async def server_duplicate(world):
    """a second participant of one identity evicts the first, with the reason"""
    server = world.server()
    first = await world.caller(server.url, token("anna", ROOM), talks=False)
    await world.caller(server.url, token("anna", ROOM), talks=False)
    await first.until(lambda: first.told("disconnected", rtc.DisconnectReason.DUPLICATE_IDENTITY), "the eviction")
    return f"{len(server.people(ROOM))} is there"


async def server_refusals(world):
    """invalid tokens are rejected before the upgrade, with an error for the client"""
    server = world.server()
    said = []
    for bad in (token("anna", ROOM, secret="another-secret-of-thirty-two-characters"), token("anna", ROOM, key="nokey"), "no token"):
        try:
            await world.caller(server.url, bad, talks=False)
        except rtc.ConnectError as error:
            said.append(str(error))
        else:
            raise AssertionError("it was let in")
    assert all("401" in words or "nauthorized" in words or "oken" in words for words in said), said
    return said[0]


async def server_restart(world):
    """the published clients survive a restart of the server"""
    server = world.server()
    anna = await world.caller(server.url, token("anna", ROOM))
    bert = await world.caller(server.url, token("bert", ROOM), talks=False)
    await bert.hear(anna.hz, "anna")
    start = time.monotonic()
    await asyncio.to_thread(server.restart)
    await bert.until(lambda: bert.told("reconnected"), "bert is back", 40)
    await anna.until(lambda: anna.told("reconnected"), "anna is back", 40)
    took = time.monotonic() - start
    found = await bert.hear(anna.hz, "anna")
    return f"back after {took:.1f} s, share {found:.3f}"


CHECKS = {check.__name__: check for check in (
    server, server_deployed, server_late, server_duplicate, server_refusals, server_restart)}
