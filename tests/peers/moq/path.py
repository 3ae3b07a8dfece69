"""Checks of bad networks: a relay of datagrams between the peer and the runner's socket loses and delays them."""

import asyncio
from contextlib import AsyncExitStack, closing
from urllib.parse import urlsplit

from peer import CLEAN, FRAMES, Peer, Spread, hears_itself, losing, starts
from relay import Relay

# A path that has changed may lose as much again before it is known.
MOVED = Spread(CLEAN.share + FRAMES, CLEAN.length)


async def through(stack, answer, relay, *args):
    """A peer behind a relay."""
    url = urlsplit(answer["moq"]["relayUrl"])
    stack.enter_context(closing(relay))
    port = await relay.open(("127.0.0.1", url.port))
    # The library has no Happy Eyeballs for the names of this machine, and the hash of the certificate is pinned.
    return await stack.enter_async_context(Peer(answer, *args, url=f"https://127.0.0.1:{port}{url.path}"))


async def lossy(place):
    """5 % of datagrams lost each way, 10 % overtaken by others: speech goes on with moq-rs 0.4, 0.5 and Pipecat"""
    runner = place.runner()
    async with AsyncExitStack() as stack:
        relays = [Relay(loss=0.05, seed=seed, delay=0.02, late=0.1) for seed in (1, 2, 3)]
        peers = [
            await through(stack, await starts(runner), relay, kind, hz)
            for relay, kind, hz in zip(relays, ("0.4", "0.5", "pipecat"), (440, 700, 990))]
        await asyncio.gather(*(peer.ready() for peer in peers))
        shares = await asyncio.gather(*(hears_itself(peer, 8, losing([relay])) for peer, relay in zip(peers, relays)))
        await asyncio.gather(*(peer.ask(7) for peer in peers))
        lost = [relay.lost["up"] + relay.lost["down"] for relay in relays]
        assert min(lost) > 20, lost
    return "shares " + ", ".join(f"{share:.3f}" for share in shares) + f", {sum(lost)} datagrams lost"


async def moved(place):
    """a peer whose address changes during the call, as behind a router, is heard and hears on"""
    runner, relay = place.runner(), Relay()
    async with AsyncExitStack() as stack:
        peer = await through(stack, await starts(runner), relay, "0.5")
        await peer.ready()
        await hears_itself(peer, 2)
        await relay.rebind()
        share = await hears_itself(peer, 3, MOVED)
        await peer.ask(7)
        assert await runner.sessions() == 1
    return f"share {share:.3f}"


CHECKS = {"lossy": lossy, "moved": moved}
