"""Calls with the bot `realtime` and the scripted service."""

import asyncio
import json
import pathlib
import time

from callers import Page, Phone, Plain, in_tune_ms, providers
from checks import until
from realtime_server import KEY
from reference import judge
from session import FUNCTION_HZ, GREETING_HZ

HZ = 440
# Between the service's truncation and what the caller got: a piece of the bot has 100 ms, and sound is found in windows of 20 ms,
# of which one may be lost at the begin and one at the end.
TRUNCATED_WITHIN_MS = 150
# A time limit.
NOTICED_S = 20
# One address gets a share of the places.
PLACES = {"RUNNER_BOT_SESSIONS": "8"}
TOOL = {"type": "function", "name": "weather", "description": "The weather in a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def variables(url, **more):
    return {"REALTIME_URL": url, "REALTIME_API_KEY": KEY, "REALTIME_TRANSCRIPTION_MODEL": "gpt-4o-mini-transcribe", **more}


def runner_for(place, service, model="plain", *arguments, **more):
    return place.runner(*arguments, variables=variables(service.url(model), **more))


async def greeted(caller):
    await caller.hears(GREETING_HZ, 0, 1800)
    await caller.quiet()


async def answered(caller, hz, ms=1800):
    """Asks, and hears the answer; the time from the end of the question to the first sound, in seconds."""
    asked = caller.ask(hz)
    found = await caller.hears(2 * hz, asked, ms)
    first = next(at for at, samples in caller.played().pieces if at > asked and abs(samples).max() > 1000)
    return found, first - asked - 0.6


async def phones(place):
    """telephones of four providers at once, G.711 to the service: each is greeted, asks, and hears its own answer"""
    async with place.service() as service:
        runner = runner_for(place, service, REALTIME_G711="on", **PLACES)
        kinds = [providers.Twilio, providers.TelnyxALaw, providers.Plivo, providers.Exotel]

        async def one(number, kind):
            async with Phone(runner, kind()) as caller:
                await greeted(caller)
                return (await answered(caller, 350 + 60 * number))[1]

        waits = await asyncio.gather(*(one(number, kind) for number, kind in enumerate(kinds)))
        await runner.wait_for_sessions(0, NOTICED_S)
        forms = sorted(session.config["audio"]["input"]["format"]["type"] for session in service.sessions)
        assert forms == ["audio/pcm", "audio/pcma", "audio/pcmu", "audio/pcmu"], forms
        # The runner sends mu-law to a provider whose calls come in A-law.
        spoken = sorted(session.config["audio"]["output"]["format"]["type"] for session in service.sessions)
        assert spoken == ["audio/pcm", "audio/pcmu", "audio/pcmu", "audio/pcmu"], spoken
    return f"answers begin {', '.join(f'{wait:.2f}' for wait in waits)} s after the questions, of which 0.5 s of silence"


def in_sequence(caller, kinds):
    """The first messages of these types, which must come in this order."""
    types, at = [each["type"] for each in caller.messages()], 0
    for kind in kinds:
        assert kind in types[at:], f"{kind} is not behind {types[:at]}: {types[at:]}"
        at = types.index(kind, at) + 1


async def talk(caller, session):
    """A greeting, a question and its answer, and what the client is told of them."""
    await greeted(caller)
    before = len(caller.messages())
    found, wait = await answered(caller, HZ)
    await caller.told("bot-stopped-speaking", 2)
    told, messages = caller.messages()[before:], caller.messages
    caller.messages = lambda: told
    in_sequence(caller, ["user-started-speaking", "user-stopped-speaking", "user-transcription", "bot-llm-started",
                         "bot-llm-text", "bot-started-speaking", "bot-stopped-speaking"])
    final = [each["data"]["text"] for each in caller.of_type("user-transcription") if each["data"]["final"]]
    text = "".join(each["data"]["text"] for each in caller.of_type("bot-llm-text"))
    caller.messages = messages
    assert final == [f"A tone of {HZ} hertz."], final
    assert text == f"Part 1 of the answer. Its tone has {2 * HZ} hertz.", text
    assert not session().truncations, session().truncations
    return f"{found[0]} Hz after {wait:.2f} s"


async def webrtc(place):
    """a caller over WebRTC: greeting, question, answer; transcripts and RTVI messages in order; nothing is truncated"""
    async with place.service() as service:
        runner = runner_for(place, service)
        async with Page(runner) as caller:
            said = await talk(caller, lambda: service.sessions[0])
        await runner.wait_for_sessions(0, NOTICED_S)
    return said


async def client(place):
    """Pipecat's client on /ws-client: the same"""
    async with place.service() as service:
        runner = runner_for(place, service)
        async with Plain(runner) as caller:
            said = await talk(caller, lambda: service.sessions[0])
        await runner.wait_for_sessions(0, NOTICED_S)
    return said


async def interrupted(caller, session, hz=HZ):
    """Interrupts an answer, and compares what was truncated with what was heard."""
    asked = caller.ask(hz)
    await caller.hears(2 * hz, asked, 1200)
    before = len(session().truncations)
    again = caller.ask(hz + 110)
    await until(lambda: len(session().truncations) > before, f"a truncation for {caller.name}")
    _, end_ms, _ = session().truncations[before]
    await asyncio.sleep(0.4)
    # The next answer has another tone.
    await caller.hears(2 * hz + 220, again, 300)
    heard_ms = in_tune_ms(caller, 2 * hz, asked)
    said = f"{caller.name}: heard {heard_ms} ms, truncated at {end_ms} ms"
    judge(f"{said}: difference", abs(heard_ms - end_ms), 0, TRUNCATED_WITHIN_MS, at_most=True)
    return said


def barge_in(model):
    async def check(place):
        async with place.service() as service:
            runner = runner_for(place, service, model, REALTIME_G711="on", RUNNER_BOT_GREETING="")
            said = []
            for make in (lambda: Page(runner), lambda: Plain(runner), lambda: Phone(runner, providers.Twilio()),
                         lambda: Phone(runner, providers.Exotel())):
                async with make() as caller:
                    await until(lambda: service.sessions and service.sessions[-1].of_type("session.update"), "a session")
                    said.append(await interrupted(caller, lambda: service.sessions[-1]))
                await runner.wait_for_sessions(0, NOTICED_S)
            if model == "slow":
                assert all("cancelled" in session.statuses for session in service.sessions), "no answer was cut short"
        return "; ".join(said)

    check.__doc__ = f"an interruption of a {model} answer: it falls silent, and is truncated where the caller stopped hearing it"
    return check


async def with_tools(place, service, model):
    """A runner whose model may call a function."""
    path = pathlib.Path(place.folder) / f"session-{model}.json"
    path.write_text(json.dumps({"tools": [TOOL]}))
    return runner_for(place, service, model, RUNNER_BOT_GREETING="", REALTIME_SESSION_FILE=str(path))


def function(kind, model):
    async def check(place):
        async with place.service() as service:
            runner = await with_tools(place, service, model)
            async with kind(runner) as caller:
                await until(lambda: service.sessions and service.sessions[-1].of_type("session.update"), "a session")
                asked = caller.ask(HZ)
                count = 2 if model == "functions" else 1
                for number in range(count):
                    call = (await caller.told("llm-function-call-in-progress", number + 1))["data"]
                    assert call["function_name"] == "weather" and call["arguments"] == {"city": "Bremen"}, call
                    await caller.send({"label": "rtvi-ai", "type": "llm-function-call-result", "id": f"f{number}", "data": {
                        "function_name": "weather", "tool_call_id": call["tool_call_id"], "arguments": call["arguments"],
                        "result": {"degrees": 7 + number}}})
                await caller.hears(FUNCTION_HZ, asked, 1500)
                in_sequence(caller, ["llm-function-call-started", "llm-function-call-in-progress", "llm-function-call-stopped"])
            outputs = [json.loads(output) for output in service.sessions[0].calls.values()]
            assert outputs == [{"degrees": 7 + number} for number in range(count)], outputs
        return f"{count} results"

    check.__doc__ = f"{model} of a {kind.__name__.lower()}: its result reaches the model, which then answers, once"
    return check


async def together(place):
    """four pages at once: each hears the answer to its own question"""
    async with place.service() as service:
        runner = runner_for(place, service, RUNNER_BOT_GREETING="", **PLACES)
        all_here = asyncio.Barrier(4)

        async def one(number):
            async with Page(runner) as caller:
                await all_here.wait()
                return (await answered(caller, 350 + 60 * number))[1]

        waits = await asyncio.gather(*map(one, range(4)))
        await runner.wait_for_sessions(0, NOTICED_S)
    return f"first sound {max(waits):.2f} s after a question at most"


async def refused(place):
    """a refused key, an unknown model, a retired protocol, no credit, a full service: two notes, then the call ends"""
    said = []
    async with place.service() as service:
        for model in ("unauthorised", "forbidden", "missing", "retired", "unpaid", "full"):
            runner = runner_for(place, service, model)
            began = time.monotonic()
            async with Phone(runner, providers.Twilio()) as caller:
                await until(caller.is_over, f"the end of the call with {model}")
                took, notes = time.monotonic() - began, caller.received(0)[1]
            assert notes > 100, f"{model}: {notes} ms of sound"
            await runner.wait_for_log("WARN")
            assert KEY not in runner.log_text(), runner.log_text()
            said.append(f"{model} {took:.1f} s")
            place.done_with(runner)
    return ", ".join(said)


async def gone(place):
    """the service is gone for 10 s in the middle of an answer: silence, two notes, the call ends; the next call works"""
    async with place.service() as service:
        runner = runner_for(place, service, "fast", RUNNER_BOT_GREETING="", RUNNER_BOT_PATIENCE="5")
        async with Plain(runner) as caller:
            await until(lambda: service.sessions and service.sessions[-1].of_type("session.update"), "a session")
            asked = caller.ask(HZ)
            await caller.hears(2 * HZ, asked, 1000)
            stopped = time.monotonic()
            await service.stop()
            await until(caller.is_over, "the end of the call", 30)
            took = time.monotonic() - stopped
        await asyncio.sleep(max(0, 10 - took))
        await service.start()
        async with Plain(runner) as caller:
            await until(lambda: len(service.sessions) > 1 and service.sessions[-1].of_type("session.update"), "a session")
            await answered(caller, HZ)
    return f"ended after {took:.1f} s"


async def restarted(place):
    """the service is gone for 1.2 s, closes for a restart, drops the connection, or ends the session: the call goes on"""
    said = []
    async with place.service() as service:
        for model in ("plain", "restarts", "lost", "expires"):
            runner = runner_for(place, service, model, RUNNER_BOT_GREETING="")
            count = len(service.sessions)
            async with Plain(runner) as caller:
                await until(lambda: len(service.sessions) > count and service.sessions[-1].of_type("session.update"), "a session")
                asked = caller.ask(HZ)
                await caller.hears(2 * HZ, asked, 800)
                if model == "plain":
                    await service.stop()
                    await asyncio.sleep(1.2)
                    await service.start()
                await until(lambda: len(service.sessions) == count + 2 and service.sessions[-1].of_type("session.update"),
                            f"another session after {model}")
                await caller.quiet()
                await answered(caller, HZ + 100, 1000)
                texts = [each["item"]["content"][0]["text"] for each in service.sessions[-1].of_type("conversation.item.create")]
                assert f"A tone of {HZ} hertz." in texts, texts
            await runner.wait_for_sessions(0, NOTICED_S)
            place.done_with(runner)
            said.append(f"{model}: {len(texts)} texts repeated")
    return ", ".join(said)


def simple(model, what, ms=1500):
    async def check(place):
        async with place.service() as service:
            runner = runner_for(place, service, model, RUNNER_BOT_GREETING="")
            async with Plain(runner) as caller:
                await until(lambda: service.sessions and service.sessions[-1].of_type("session.update"), "a session")
                found, wait = await answered(caller, HZ, ms)
                await caller.told("bot-stopped-speaking")
                second, _ = await answered(caller, HZ + 100, ms)
            return f"{found[1]} ms, then {second[1]} ms"

    check.__doc__ = what
    return check


async def failures(place):
    """answers fail for longer than RUNNER_BOT_PATIENCE: the client is told, and the call ends"""
    async with place.service() as service:
        runner = runner_for(place, service, "failed", RUNNER_BOT_GREETING="", RUNNER_BOT_PATIENCE="1")
        async with Plain(runner) as caller:
            await until(lambda: service.sessions and service.sessions[-1].of_type("session.update"), "a session")
            for number in range(2):
                caller.ask(HZ)
                await until(lambda: len(service.sessions[-1].statuses) == number + 1, "a failed answer")
            await until(caller.is_over, "the end of the call")
            errors = caller.of_type("error")
        words = json.dumps(errors)
        assert "had an error" not in words, words
    return f"{len(errors)} errors told"


async def long(place):
    """an answer of 300 s, far ahead of real time: the bot cancels it at its limit, and an interruption still works"""
    async with place.service() as service:
        runner = runner_for(place, service, "long", RUNNER_BOT_GREETING="")
        async with Plain(runner) as caller:
            await until(lambda: service.sessions and service.sessions[-1].of_type("session.update"), "a session")
            asked = caller.ask(HZ)
            await caller.hears(2 * HZ, asked, 3000)
            session = service.sessions[0]
            await until(lambda: session.statuses, "the end of the answer")
            assert session.statuses == ["cancelled"] and session.of_type("response.cancel"), session.statuses
            received = max(session.audio_ms.values())
            caller.ask(HZ + 110)
            await until(lambda: session.truncations, "a truncation")
    return f"{received / 1000:.0f} s were sent, truncated at {session.truncations[0][1]} ms"


CHECKS = {
    "phones": phones, "webrtc": webrtc, "client": client,
    "barge_in_fast": barge_in("fast"), "barge_in_slow": barge_in("slow"),
    "function": function(Plain, "function"), "functions": function(Page, "functions"),
    "together": together, "refused": refused, "gone": gone, "restarted": restarted, "failures": failures, "long": long,
    "items": simple("items", "an answer of three messages is played in full", 2600),
    "fragments": simple("fragments", "messages in frames of one character", 400),
    "late_transcription": simple("late-transcription", "the transcription comes after the answer"),
    "no_transcription": simple("no-transcription", "the transcription fails, the answer does not"),
    "incomplete": simple("incomplete", "an answer that ends at its limit is played"),
}
