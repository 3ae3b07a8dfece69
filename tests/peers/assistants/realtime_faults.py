"""Faults of a speech-to-speech service in calls with the bot `realtime`: the call goes on or ends in order, and no other call notices."""

import asyncio
import os
import pathlib
import time

from callers import Phone, Plain, in_tune_ms, providers
from calls import HZ, NOTICED_S, PLACES, answered, runner_for, variables, with_tools
from checks import until
from scripts import STEPS
from session import FUNCTION_HZ

# Calls of the check for leaks, and what the runner may keep of them: the allocator of the C library holds on to some pages.
CALLS, KEPT_KIB = 12, 4096


async def session_of(service, count):
    """The session with that number, once it is configured."""
    await until(lambda: len(service.sessions) > count and service.sessions[count].of_type("session.update"), f"session {count + 1}")
    return service.sessions[count]


async def two_calls(place, model):
    """The service fails once, in the answer to the first caller; the second caller hears all of another one meanwhile."""
    async with place.service() as service:
        runner = runner_for(place, service, model, RUNNER_BOT_GREETING="", **PLACES)
        async with Plain(runner) as caller, Plain(runner) as other:
            await session_of(service, 1)
            asked = caller.ask(HZ)
            # The first answer has its incident, the second one is behind it.
            await caller.hears(2 * HZ, asked, 200)
            other_asked = other.ask(HZ + 100)
            await other.hears(2 * HZ + 200, other_asked, 9500, 40)
            # A call that noticed would have lost its connection, and with it the rest of the answer.
            assert service.sessions[1].statuses[-1] == "completed" and service.sessions[1].closed is None, service.sessions[1].statuses
            await caller.quiet()
            heard_ms = in_tune_ms(caller, 2 * HZ, asked)
            await answered(caller, HZ + 200, 1000)
        await runner.wait_for_sessions(0, NOTICED_S)
    return f"{heard_ms / 1000:.1f} s of the answer heard, {len(service.sessions)} connections"


def beside(model, what):
    async def check(place):
        return await two_calls(place, model)

    check.__doc__ = f"{what}: the call goes on, and a second call does not notice"
    return check


async def steps(place):
    """the connection is lost behind each step of a session and of a turn: the call goes on"""
    async def one(service, step):
        runner = runner_for(place, service, f"drops-{step}", RUNNER_BOT_GREETING="")
        async with Plain(runner) as caller:
            model = f"drops-{step}"
            ready = lambda: [each for each in service.sessions if each.model == model and each.of_type("session.update")]
            await until(ready, f"a session, dropped behind {step}")
            if step.startswith("session."):
                await until(lambda: len(ready()) > 1, f"a second session, dropped behind {step}")
            else:
                caller.ask(HZ)
                await until(lambda: len(ready()) > 1, f"a second session, dropped behind {step}")
                await caller.quiet()
            await answered(caller, HZ + 100, 1000)
            assert not caller.is_over(), step
        await runner.wait_for_sessions(0, NOTICED_S)

    async with place.service() as service:
        await asyncio.gather(*(one(service, step) for step in STEPS))
    return f"{len(STEPS)} steps"


async def hangs(place):
    """the service opens the connection and no session: attempts of 5 s for as long as RUNNER_BOT_PATIENCE, two notes, the end of the call"""
    async with place.service() as service:
        runner = runner_for(place, service, "hangs", RUNNER_BOT_PATIENCE="10")
        began = time.monotonic()
        async with Phone(runner, providers.Twilio()) as caller:
            await until(caller.is_over, "the end of the call", 60)
            took, notes = time.monotonic() - began, caller.received(0)[1]
        assert notes > 100, f"{notes} ms of sound"
        await runner.wait_for_log("the service opens no session")
    return f"{len(service.sessions)} connections in {took:.1f} s"


async def silent(place):
    """the service never answers a turn: the call ends after RUNNER_BOT_IDLE"""
    async with place.service() as service:
        runner = runner_for(place, service, "silent", RUNNER_BOT_GREETING="", RUNNER_BOT_IDLE="10")
        async with Plain(runner) as caller:
            await session_of(service, 0)
            asked = caller.ask(HZ)
            await until(caller.is_over, "the end of the call", 40)
            took = time.monotonic() - asked
            assert caller.received(asked)[1] == 0, "sound of a service that never answers"
    return f"ended {took:.1f} s after the question"


async def stalls(place):
    """the service stops in the middle of an answer with the connection open: what came is played, and the call ends after RUNNER_BOT_IDLE"""
    async with place.service() as service:
        runner = runner_for(place, service, "stalls", RUNNER_BOT_GREETING="", RUNNER_BOT_IDLE="10")
        async with Plain(runner) as caller:
            await session_of(service, 0)
            asked = caller.ask(HZ)
            await caller.hears(2 * HZ, asked, 4500)
            await until(caller.is_over, "the end of the call", 60)
            heard_ms = in_tune_ms(caller, 2 * HZ, asked)
            took = time.monotonic() - asked
    return f"{heard_ms / 1000:.1f} s heard, ended {took:.1f} s after the question"


async def limited(place):
    """three answers in a row are refused by a rate limit: the client is told in words of the runner, and the call goes on"""
    async with place.service() as service:
        runner = runner_for(place, service, "limited", RUNNER_BOT_GREETING="")
        async with Plain(runner) as caller:
            session = await session_of(service, 0)
            for number in range(3):
                caller.ask(HZ)
                await until(lambda: len(session.statuses) == number + 1, "a failed answer")
            await until(lambda: len(caller.of_type("error")) >= 3, "the third error")
            errors = [each["data"] for each in caller.of_type("error")]
            assert not caller.is_over() and not any(each.get("fatal") for each in errors), errors
        assert "had an error" not in str(errors), errors
    return f"{len(errors)} errors told"


async def filtered(place):
    """an answer that a content filter cuts short is played; the next turn is answered"""
    async with place.service() as service:
        runner = runner_for(place, service, "filtered", RUNNER_BOT_GREETING="")
        async with Plain(runner) as caller:
            session = await session_of(service, 0)
            await answered(caller, HZ, 1500)
            await caller.quiet()
            await answered(caller, HZ + 100, 1500)
        assert session.statuses == ["incomplete", "incomplete"], session.statuses
    return "2 answers"


async def broken_arguments(place):
    """arguments that are no JSON: the model gets an error as the output, and the client is not asked; the model goes on"""
    async with place.service() as service:
        runner = await with_tools(place, service, "broken-arguments")
        async with Plain(runner) as caller:
            session = await session_of(service, 0)
            asked = caller.ask(HZ)
            await caller.hears(FUNCTION_HZ, asked, 1500)
            outputs = list(session.calls.values())
            assert len(outputs) == 1 and "error" in outputs[0], outputs
            assert not caller.of_type("llm-function-call-in-progress"), "the client was asked"
    return outputs[0]


async def short(place):
    """the service refuses a truncation: the caller hears nothing of it, and the next turn is answered"""
    async with place.service() as service:
        runner = runner_for(place, service, "short", RUNNER_BOT_GREETING="")
        async with Plain(runner) as caller:
            session = await session_of(service, 0)
            asked = caller.ask(HZ)
            await caller.hears(2 * HZ, asked, 1200)
            again = caller.ask(HZ + 110)
            await until(lambda: session.of_type("conversation.item.truncate"), "a truncation")
            await caller.hears(2 * HZ + 220, again, 1000)
            assert len(service.sessions) == 1 and not caller.is_over()
            errors = [each for each in caller.of_type("error")]
    assert not errors, errors
    return f"{len(session.of_type('conversation.item.truncate'))} refused"


async def ends(place):
    """the service ends the session in order, with code 1000: two notes, and the end of the call"""
    async with place.service() as service:
        runner = runner_for(place, service, "ends", RUNNER_BOT_GREETING="")
        async with Plain(runner) as caller:
            await session_of(service, 0)
            caller.ask(HZ)
            await until(caller.is_over, "the end of the call")
        assert len(service.sessions) == 1, "a second connection"
        await runner.wait_for_log("closed the connection with code 1000")
    return "1 connection"


def resources(runner):
    """Descriptors, and KiB of memory that are the process's own."""
    folder = pathlib.Path("/proc") / str(runner.process.pid)
    status = (folder / "status").read_text()
    return len(os.listdir(folder / "fd")), int(status.split("RssAnon:")[1].split()[0])


async def leaks(place):
    """the connection is lost in the middle of an answer, call after call: descriptors and memory stay"""
    async with place.service() as service:
        runner = place.runner(variables=variables(service.url("lost"), RUNNER_BOT_GREETING="", **PLACES))

        async def call():
            service.happened.clear()
            count = len(service.sessions)
            async with Plain(runner) as caller:
                await session_of(service, count)
                caller.ask(HZ)
                await session_of(service, count + 1)

        async def calls(count):
            for _ in range(count):
                await call()
            await runner.wait_for_sessions(0, NOTICED_S)
            await until(lambda: resources(runner)[0] <= settled[0] if settled else True, "the descriptors of the calls to be closed")
            return resources(runner)

        settled = ()
        settled = await calls(4)
        after = await calls(CALLS)
        assert after[1] - settled[1] < KEPT_KIB, f"{settled} before {CALLS} calls, {after} after them"
    return f"{settled[0]} descriptors, {after[1] - settled[1]} KiB more after {CALLS} calls"


CHECKS = {
    "fault_leaks": leaks, "fault_foreign": beside("foreign", "events of responses and calls that never were"),
    "fault_flood": beside("floods", "50,000 unknown events in the middle of an answer"),
    "fault_huge": beside("huge", "an event of 3 MiB in the middle of an answer"),
    "fault_oversize": beside("oversize", "an event of 17 MiB in the middle of an answer"),
    "fault_lost": beside("lost", "a lost connection in the middle of an answer"),
    "fault_steps": steps, "fault_hangs": hangs, "fault_silent": silent, "fault_stalls": stalls, "fault_limited": limited,
    "fault_filtered": filtered, "fault_arguments": broken_arguments, "fault_truncation": short, "fault_ends": ends,
}
