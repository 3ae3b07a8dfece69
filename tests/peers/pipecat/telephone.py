"""Checks of telephone calls."""

import asyncio
import contextlib
import time

import providers
from call import Call
from hangup import Server, pipecat_asks
from reference import judge, judge_share
from sound import CODED_SPREAD, LIKE_SPREAD, in_tune, likeness, paced, sentence, tone, tone_share

HZ = 440
WORDS = "Hello there, can you hear me well today?"
# A time limit: the end of a call is noticed at once.
NOTICED_S = 20
# How far ahead of playing the runner sends on top of one chunk.
LEAD_S = 0.2
# Of what was said: the runner's resamplers keep some samples, and a last frame of 20 ms that is not full.
KEPT_S = 0.05


def ring(runner, provider):
    return Call(provider, runner.url.replace("http", "ws", 1) + "/ws")


async def echo(start, provider):
    """Checks the echo of a tone, in chunks of the provider; `stop` ends the session."""
    runner = start("--bot", "echo")
    async with ring(runner, provider) as call:
        call.voice = lambda first, count: tone(HZ, provider.rate, first, count)
        control = await provider.coded(tone(HZ, provider.rate, 0, provider.rate))
        said = in_tune(await call.listen_for(3), HZ, provider.rate, control)
        call.voice = None
        await asyncio.sleep(0.6)
        judge("seconds of audio lost", (call.sent - len(call.received())) / provider.rate, 0, KEPT_S, at_most=True)
        assert not (bad := call.illegal_sizes()), f"sizes {bad}"
        assert not call.clears, "cleared without an interruption"
        code = await call.hang_up()
        assert code == 1000, f"closed with {code}"
        took = await runner.wait_for_sessions(0, NOTICED_S)
    sizes = sorted({chunk.size for chunk in call.chunks})
    return f"{said}, chunks of {sizes} bytes, freed after {took:.2f} s"


def echo_of(kind):
    async def check(start):
        return await echo(start, kind())

    check.__doc__ = f"{kind.name}: 440 Hz in, 440 Hz back, in the messages that Pipecat would send; stop ends the session"
    return check


async def together(start):
    """eight calls at once, two of each provider, each hears its own tone only; a bare close ends a session, too"""
    runner = start("--bot", "echo")
    calls = [ring(runner, kind(n)) for n in (1, 2) for kind in providers.EACH]
    tones = [300 + 170 * n for n in range(len(calls))]
    heard_all = asyncio.Barrier(len(calls))

    async def one(call, hz):
        async with call:
            call.voice = lambda first, count: tone(hz, call.provider.rate, first, count)
            received = await call.listen_for(3)
            await heard_all.wait()
            assert await runner.sessions() == len(calls)
            await heard_all.wait()
            return received

    received = await asyncio.gather(*(one(call, hz) for call, hz in zip(calls, tones)))
    own = [tone_share(pcm, hz, call.provider.rate) for pcm, hz, call in zip(received, tones, calls)]
    other = [tone_share(pcm, tones[n - 1], calls[n].provider.rate) for n, pcm in enumerate(received)]
    controls = [await call.provider.coded(tone(hz, call.provider.rate, 0, call.provider.rate)) for call, hz in zip(calls, tones)]
    rates = [call.provider.rate for call in calls]
    alone = min(tone_share(pcm, hz, rate) for pcm, hz, rate in zip(controls, tones, rates))
    leaks = max(tone_share(pcm, tones[n - 1], rates[n]) for n, pcm in enumerate(controls))
    said = judge_share(min(own), alone, CODED_SPREAD, "lowest share of the own tone")
    said += "; " + judge("highest of another's", max(other), leaks, CODED_SPREAD, at_most=True)
    took = await runner.wait_for_sessions(0, NOTICED_S)
    return f"{said}; freed after {took:.2f} s"


async def answered(call, words):
    """Speaks, and checks how the parrot repeats it."""
    first, rate, name, call.own_late_s = len(call.chunks), call.provider.rate, call.provider.name, 0.0
    call.say(words)
    await call.until(lambda: len(call.received(first)) >= 0.9 * len(words), "the parrot's answer")
    await call.pause(0.7)
    control = likeness(words, await call.provider.coded(words))
    like = judge("likeness", likeness(words, call.received(first)), control, LIKE_SPREAD)
    pace = paced(call.chunks[first:], rate, LEAD_S, call.own_late_s)
    assert not (bad := call.illegal_sizes()), f"{name}: sizes {bad}"
    return f"{name}: {like}; {pace}"


async def interrupted(call, words):
    """Speaks into the parrot's answer, and checks that it falls silent."""
    before, name = len(call.clears), call.provider.name
    first = len(call.chunks)
    call.say(words)
    await call.until(lambda: len(call.received(first)) >= 0.5 * call.provider.rate, "the parrot's answer")
    began = time.monotonic()
    call.say(words)
    await call.until(lambda: len(call.clears) > before, "a clear")
    cleared = call.clears[-1]
    await asyncio.sleep(0.6)
    after = [chunk.at - cleared for chunk in call.chunks if chunk.at > cleared]
    assert not after, f"{name}: sound {after[0]:.3f} s after the clear"
    assert len(call.clears) == before + 1, f"{name}: {len(call.clears) - before} clears"
    return f"cleared after {cleared - began:.2f} s"


async def barge_in(start):
    """the parrot on all four at once: it repeats speech in real time, and speech of the caller clears the rest"""
    runner = start("--bot", "parrot")

    async def one(provider):
        words = sentence(WORDS, provider.rate)
        async with ring(runner, provider) as call:
            await call.pause(0.7)
            greeted = len(call.clears)
            said = await answered(call, words)
            assert len(call.clears) == greeted, f"{provider.name}: cleared without an interruption"
            return f"{said}, {await interrupted(call, words)}"

    said = await asyncio.gather(*(one(kind()) for kind in providers.EACH))
    await runner.wait_for_sessions(0, NOTICED_S)
    return "; ".join(said)


async def hang_up(start):
    """a stopping runner hangs up each live call once, with the request of Pipecat, and no ended call"""
    async with Server() as server:
        # These calls have no webhook.
        runner = start("--bot", "echo", "--unverified-calls", **server.environment())
        async with ring(runner, providers.Twilio(9)) as ended:
            await ended.hang_up()
        await runner.wait_for_sessions(0, NOTICED_S)
        calls = [ring(runner, kind()) for kind in providers.EACH]
        async with contextlib.AsyncExitStack() as stack:
            for call in calls:
                await stack.enter_async_context(call)
            await runner.wait_for_sessions(len(calls), NOTICED_S)
            runner.process.terminate()
            assert await asyncio.to_thread(runner.process.wait, 10) == 0
        wanted = sorted([await pipecat_asks(call.provider) for call in calls[:3]])
        # Pipecat leaves out the empty object, as the provider allows.
        asked = sorted((*request[:4], b"" if request[4] == b"{}" else request[4]) for request in server.requests)
        assert asked == wanted, f"asked {asked}, wanted {wanted}"
    return "; ".join(f"{method} {path}" for method, path, *_ in asked)


KINDS = [*providers.EACH, providers.TelnyxALaw, providers.ExotelWide, providers.ExotelWidest]
CHECKS = {
    **{kind.__name__.lower(): echo_of(kind) for kind in KINDS},
    "together": together,
    "barge_in": barge_in,
    "hang_up": hang_up,
}
