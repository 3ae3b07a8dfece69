"""The bot `cascade` with callers of every kind, with every mixture of services, interrupted, and with services that fail."""

import asyncio
import contextlib
import time

import numpy
from audio import tone
from callers import Page, Phone, Plain, in_tune_ms, providers
from cascade_chat import HOST, ChatServer
from cascade_checks import FOLDER, library, variables, wyoming
from cascade_http import SpeechServices
from calls import HZ, NOTICED_S, PLACES
from checks import until
from reference import judge
from runner import Runner

# From the first loud frame to silence: 0.3 s of speech interrupt, and the caller's network and playout keep something.
SILENT_WITHIN_S = 1.0


def runner_for(place, *services, **more):
    return place.result.keep(Runner(place.binary, "--bot", "cascade", variables=variables(*services, **{**PLACES, **more})))


def hiss(rate, seconds):
    """The background of a room: a detector of speech needs something to compare with."""
    return numpy.random.default_rng(7).normal(0, 10, round(seconds * rate)).astype("<i2")


def ask(caller, hz, seconds=1.0):
    """Says a tone between background. Returns when the tone will have been said."""
    rate = caller.said_rate
    caller.say(numpy.concatenate([hiss(rate, 0.5), tone(hz, rate, 0, round(seconds * rate)), hiss(rate, 1.5)]))
    return time.monotonic() + 0.5 + seconds


async def answered(caller, hz):
    """Asks, and hears the answer. Returns the seconds from the end of the question to the first sound."""
    since = time.monotonic()
    asked = ask(caller, hz)
    await caller.hears(2 * hz, since, 400)
    return next(at for at, samples in caller.played().pieces if at > since and abs(samples).max() > 1000) - asked


async def phones(place):
    """telephones of four providers at once: each asks, and hears its own answer"""
    async with wyoming() as (stt, voice), ChatServer() as chat:
        runner = runner_for(place, stt, chat.url(), voice, "ollama")
        kinds = [providers.Twilio, providers.TelnyxALaw, providers.Plivo, providers.Exotel]

        async def one(number, kind):
            async with Phone(runner, kind()) as caller:
                return await answered(caller, 350 + 60 * number)

        waits = await asyncio.gather(*(one(number, kind) for number, kind in enumerate(kinds)))
        await runner.wait_for_sessions(0, NOTICED_S)
    return f"first sound {', '.join(f'{wait:.2f}' for wait in waits)} s after the questions"


async def pages(place):
    """three pages over WebRTC at once: each asks twice, and hears its own answers; the transcripts are told"""
    async with wyoming() as (stt, voice), ChatServer() as chat:
        runner = runner_for(place, stt, chat.url(), voice, "cloud")

        async def one(number):
            async with Page(runner) as caller:
                hz = 350 + 60 * number
                wait = await answered(caller, hz)
                await caller.quiet()
                await answered(caller, hz + 25)
                final = [each["data"]["text"] for each in caller.of_type("user-transcription") if each["data"]["final"]]
                assert len(final) == 2 and f"A tone of {hz}" in final[0], final
                return wait

        waits = await asyncio.gather(*map(one, range(3)))
        await runner.wait_for_sessions(0, NOTICED_S)
    return f"first sound {max(waits):.2f} s after a question at most"


def interrupted(make, what):
    async def check(place):
        async with wyoming() as (stt, voice), ChatServer() as chat:
            runner = runner_for(place, stt, chat.url(), voice, "story")
            async with make(runner) as caller:
                since = time.monotonic()
                ask(caller, HZ)
                # The first 2 s cannot be interrupted.
                await caller.hears(2 * HZ, since, 3000)
                again = time.monotonic()
                loud_at = ask(caller, HZ + 110, 1.2) - 1.2
                await until(lambda: len(chat.requests) == 2, "the second question")
                # The model was still writing.
                assert chat.cancelled == 1, f"{chat.cancelled} answers were cancelled"
                await caller.hears(2 * HZ + 220, again + 1.5, 400)
                late_ms = in_tune_ms(caller, 2 * HZ, loud_at + SILENT_WITHIN_S)
                judge(f"ms of the old answer {SILENT_WITHIN_S} s after the interruption", late_ms, 0, 0, at_most=True)
                received = [each["content"] for each in chat.requests[1]["messages"] if each["role"] == "assistant"]
                assert len(received) == 1 and 0 < received[0].count(str(HZ)) < chat.sentences, received
        return f"the model remembers {received[0].count(str(HZ))} of {chat.sentences} sentences"

    check.__doc__ = f"{what} interrupts a story: silence, the model's stream is closed, and it remembers what was heard"
    return check


@contextlib.asynccontextmanager
async def handler():
    """A Wyoming server that handles texts, of the published library."""
    library()
    from wyoming.asr import Transcript
    from wyoming.handle import Handled
    from wyoming.server import AsyncEventHandler, AsyncServer

    class Handler(AsyncEventHandler):
        async def handle_event(self, event):
            if Transcript.is_type(event.type):
                number = "".join(each for each in Transcript.from_event(event).text if each.isdigit())
                await self.write_event(Handled(f"It is {number}. That is all.").event())
            return True

    server = AsyncServer.from_uri(f"tcp://{HOST}:0")
    await server.start(Handler)
    yield f"tcp://{HOST}:{server._server.sockets[0].getsockname()[1]}"
    await server.stop()


async def mixtures(place):
    """recogniser, chat model and voice by Wyoming and by HTTP in seven mixtures, PCM and WAV: each question is answered"""
    said = []
    async with wyoming() as (stt, voice), ChatServer() as chat, SpeechServices() as http, handler() as handled:
        web = {"CASCADE_STT_MODEL": "whisper-1", "CASCADE_TTS_MODEL": "tts-1", "CASCADE_TTS_VOICE": "alloy"}
        mixtures = {
            "http, http, http as WAV": (http.url(), chat.url(), http.url(), web),
            "http, http, http as PCM": (http.url(), chat.url(), http.url(), {**web, "CASCADE_TTS_RATE": "24000"}),
            "http, wyoming, http": (http.url(), handled, http.url(), web),
            "wyoming, http, http": (stt, chat.url(), http.url(), web),
            "wyoming, wyoming, http": (stt, handled, http.url(), web),
            "http, http, wyoming": (http.url(), chat.url(), voice, {"CASCADE_STT_MODEL": "whisper-1"}),
            "wyoming, wyoming, wyoming": (stt, handled, voice, {}),
        }

        async def one(name):
            *services, more = mixtures[name]
            runner = runner_for(place, *services, "llama.cpp", **more)
            async with Plain(runner) as caller:
                return f"{name} {await answered(caller, HZ):.2f} s"

        # Two at a time: the machine also runs what they talk to.
        names = list(mixtures)
        for at in range(0, len(names), 2):
            said += await asyncio.gather(*map(one, names[at:at + 2]))
    return ", ".join(said)


async def hangs(place):
    """the chat model stops in the middle of an answer: the caller is told, and a call with another model notices nothing"""
    async with wyoming() as (stt, voice), ChatServer() as chat:
        runner = runner_for(place, stt, chat.url(), voice, "hangs-once")
        async with Plain(runner) as caller, Plain(runner) as other:
            ask(caller, HZ)
            await until(lambda: chat.requests, "the first question")
            waits = [await answered(other, HZ + 100)]
            await other.quiet()
            await caller.told("error", 1, 40)
            assert not caller.of_type("error")[0]["data"].get("fatal"), caller.of_type("error")
            waits += await asyncio.gather(answered(caller, HZ + 200), answered(other, HZ + 300))
        await runner.wait_for_sessions(0, NOTICED_S)
    return f"the next answers begin {', '.join(f'{wait:.2f}' for wait in waits)} s after the questions"


async def voiceless(place):
    """the voice is gone for half a second: it is asked again, and the caller hears the answer; gone beyond the patience, it ends the call"""
    more = {"CASCADE_STT_MODEL": "whisper-1", "CASCADE_TTS_MODEL": "tts-1", "CASCADE_TTS_VOICE": "alloy",
            "RUNNER_BOT_PATIENCE": "5"}
    async with ChatServer() as chat, SpeechServices() as http:
        async with SpeechServices() as gone:
            pass
        runner = runner_for(place, http.url(), chat.url(), gone.url(), "ollama", **more)
        async with Plain(runner) as caller:
            since = time.monotonic()
            ask(caller, HZ)
            await runner.wait_for_log("the voice: connecting")
            async with SpeechServices(gone.port):
                await caller.hears(2 * HZ, since, 400)
                await caller.quiet()
            ask(caller, HZ + 100)
            await until(caller.is_over, "the end of the call")
            errors = [each["data"] for each in caller.of_type("error")]
        assert errors and "refused" not in str(errors), errors
    return f"{len(errors)} errors told"


CHECKS = {
    "cascade_phones": phones, "cascade_pages": pages, "cascade_interrupted": interrupted(Plain, "a plain client"),
    "cascade_page_interrupted": interrupted(Page, "a page"),
    "cascade_phone_interrupted": interrupted(lambda runner: Phone(runner, providers.Twilio()), "a telephone"),
    "cascade_mixtures": mixtures, "cascade_hangs": hangs, "cascade_voiceless": voiceless,
}
if not FOLDER.exists():
    CHECKS = {}
