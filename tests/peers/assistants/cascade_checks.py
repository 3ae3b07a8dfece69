"""The bot `cascade` with services of others: the published clients against the counterparts, then calls."""

import asyncio
import contextlib
import importlib.util
import os
import pathlib
import sys
import time

import numpy
import openai
from audio import loudest_hz, tone
from cascade_chat import KINDS, REFUSALS, ChatServer
from runner import Runner

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parents[2] / "target" / "wyoming"
HZ = 440
VOICE_HZ = 22_050
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


@contextlib.asynccontextmanager
async def wyoming():
    """The URLs of the recogniser and the voice, in a process of their own."""
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, HERE / "cascade_wyoming.py", env=environment, stdout=asyncio.subprocess.PIPE)
    try:
        lines = [(await asyncio.wait_for(process.stdout.readline(), 60)).decode() for _ in range(2)]
        assert all(line.startswith("listening on ") for line in lines), lines
        yield [line.split()[-1] for line in lines]
    finally:
        process.kill()
        await process.wait()


def library():
    """The published library, whose folder also has the two servers."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    from wyoming import asr, audio, client, error, info, tts
    return asr, audio, client, error, info, tts


async def wyoming_clients(_):
    """the library `wyoming` and the handlers of wyoming-faster-whisper and wyoming-piper: info, a transcript, speech, a wrong voice"""
    asr, audio, client, error, info, tts = library()
    async with wyoming() as (stt, voice):
        async with client.AsyncClient.from_uri(stt) as connection:
            await connection.write_event(info.Describe().event())
            found = info.Info.from_event(await connection.read_event())
            assert found.asr[0].name == "whisper", found
            await connection.write_event(asr.Transcribe(language="en").event())
            await connection.write_event(audio.AudioStart(16_000, 2, 1).event())
            sound = tone(HZ, 16_000, 0, 16_000).tobytes()
            for at in range(0, len(sound), 2048):
                await connection.write_event(audio.AudioChunk(16_000, 2, 1, sound[at:at + 2048]).event())
            await connection.write_event(audio.AudioStop().event())
            text = asr.Transcript.from_event(await connection.read_event()).text
            assert text == f"A tone of {HZ} hertz.", text
            assert await connection.read_event() is None, "the connection stays open"
        async with client.AsyncClient.from_uri(voice) as connection:
            pcm = b""
            await connection.write_event(tts.Synthesize(f"It is {HZ}.").event())
            while not audio.AudioStop.is_type((event := await connection.read_event()).type):
                pcm += event.payload or b""
            hz = loudest_hz(numpy.frombuffer(pcm, "<i2"), VOICE_HZ)
            assert abs(hz - 2 * HZ) < 3, hz
            await connection.write_event(tts.Synthesize("x", tts.SynthesizeVoice("none")).event())
            failed = error.Error.from_event(await connection.read_event())
            assert failed.code == "VoiceNotFoundError", failed
    return f"{text} {hz} Hz"


async def chat_clients(_):
    """the SDK of the vendor and the chat server: an answer and a function of three kinds of servers, refusals, faults"""
    async with ChatServer() as server:
        client = openai.AsyncOpenAI(api_key="k", base_url=server.url(), max_retries=0)

        async def answer(model, **more):
            text, calls, reason = "", "", None
            stream = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "Say 440."}], stream=True, stream_options={"include_usage": True}, **more)
            async for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    calls += "".join(call.function.arguments for call in choice.delta.tool_calls or [])
                    reason = choice.finish_reason or reason
            return text.split("</think>")[-1].strip(), calls, reason

        for kind in KINDS:
            assert await answer(kind) == ("Schön 440. That is all.", "", "stop"), kind
            assert (await answer(kind, tools=[TOOL]))[1:] == ('{"city": "Köln"}', "tool_calls"), kind
        for model, (status, _) in REFUSALS.items():
            try:
                await answer(model)
                raise AssertionError(model)
            except openai.APIStatusError as error:
                assert error.status_code == status, error
        assert (await answer("empty-chunk"))[2] is None
        assert (await answer("closed"))[2] is None
        try:
            await answer("error-event")
            raise AssertionError("an error in mid-stream")
        except openai.APIError:
            pass
    return f"{len(server.requests)} answers"


def plain_client():
    """The module `client` of the folder `pipecat`, which is no package."""
    spec = importlib.util.spec_from_file_location("cascade_plain_client", HERE.parent / "pipecat" / "client.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def variables(stt, chat, voice, model, **more):
    return {"CASCADE_STT_URL": stt, "CASCADE_LLM_URL": chat, "CASCADE_LLM_MODEL": model, "CASCADE_TTS_URL": voice,
            "RUNNER_BOT_GREETING": "", **more}


def runner_for(place, *services, **more):
    return place.result.keep(Runner(place.binary, "--bot", "cascade", "-vv", variables=variables(*services, **more)))


def loud(samples, rate):
    """The windows of 20 ms with sound, joined."""
    frames = samples[:len(samples) // (rate // 50) * (rate // 50)].reshape(-1, rate // 50)
    return frames[(frames.astype("f8") ** 2).mean(axis=1) > 1000**2].reshape(-1)


def joined(receiver):
    return numpy.concatenate([numpy.zeros(0, "i2"), *(chunk.samples for chunk in receiver.chunks)])


def hiss(_, count):
    """The background of a room: a detector of speech needs something to compare with."""
    return numpy.random.default_rng(7).normal(0, 10, count).astype("<i2")


async def say_question(client, rate):
    """A second of a tone behind half a second of background. Returns when it will be over."""
    client.voice = hiss
    await asyncio.sleep(0.5)
    client.say(tone(HZ, rate, 0, rate))
    return time.monotonic() + 1


async def ask(place, model, stt, chat, voice):
    """Asks with a tone. Returns the loudest frequency of the answer, the seconds to its first sound, and the messages."""
    plain = plain_client()
    runner = runner_for(place, stt, chat, voice, model)
    async with plain.Client(runner.url.replace("http", "ws", 1) + "/ws-client") as client:
        await client.ready()
        asked = await say_question(client, plain.RATE)
        receiver, received = client.receiver, numpy.zeros(0, "i2")
        async with asyncio.timeout(40):
            while len(received) < plain.RATE // 2 and not client.gone.is_set():
                await asyncio.sleep(0.1)
                received = loud(joined(receiver), plain.RATE)
        first = next(chunk.at for chunk in receiver.chunks if abs(chunk.samples).max() > 1000)
        messages = list(receiver.messages)
    return loudest_hz(received[:plain.RATE // 2], plain.RATE), first - asked, messages


async def cascade_calls(place):
    """a plain client asks a tone: the handlers of faster-whisper and piper, and three kinds of chat servers; the answer is an octave above"""
    measured = []
    async with wyoming() as (stt, voice), ChatServer() as chat:
        for kind in KINDS:
            hz, seconds, messages = await ask(place, kind, stt, chat.url(), voice)
            assert abs(hz - 2 * HZ) < 6, (kind, hz)
            said = [message["data"]["text"] for message in messages if message["type"] == "user-transcription" and message["data"]["final"]]
            assert said == [f"A tone of {HZ} hertz."], (kind, said)
            assert "7777" not in str(messages), messages
            measured.append(f"{kind} {seconds:.2f} s")
    return ", ".join(measured)


async def cascade_failures(place):
    """a plain client asks, and the chat server refuses: two falling notes and the end of the call, without the words of the service"""
    async with wyoming() as (stt, voice), ChatServer() as chat:
        plain = plain_client()
        for model in ("unauthorised", "unpaid", "missing"):
            runner = runner_for(place, stt, chat.url(), voice, model)
            async with plain.Client(runner.url.replace("http", "ws", 1) + "/ws-client") as client:
                await client.ready()
                await say_question(client, plain.RATE)
                await asyncio.wait_for(client.gone.wait(), 40)
                assert len(loud(joined(client.receiver), plain.RATE)), "no notes"
            await runner.wait_for_log("WARN")
            assert REFUSALS[model][1]["error"]["message"] not in runner.log_text(), runner.log_text()
    return "3 refusals"


async def cascade_faults(place):
    """a plain client asks, and the answer breaks off in its middle in three ways: it is told, and the call goes on"""
    async with wyoming() as (stt, voice), ChatServer() as chat:
        plain = plain_client()
        for model in ("empty-chunk", "error-event", "closed"):
            runner = runner_for(place, stt, chat.url(), voice, model)
            async with plain.Client(runner.url.replace("http", "ws", 1) + "/ws-client") as client:
                await client.ready()
                for count in (1, 2):
                    await say_question(client, plain.RATE)
                    async with asyncio.timeout(30):
                        while len([each for each in client.receiver.messages if each["type"] == "error"]) < count:
                            assert not client.gone.is_set(), f"{model}: the call ended"
                            await asyncio.sleep(0.05)
                    await asyncio.sleep(1)
                errors = [each for each in client.receiver.messages if each["type"] == "error"]
                assert not any(each["data"].get("fatal") for each in errors), errors
            assert "7777" not in runner.log_text(), runner.log_text()
    return "3 ways"


CHECKS = {"wyoming_clients": wyoming_clients, "chat_clients": chat_clients, "cascade": cascade_calls, "cascade_failures": cascade_failures,
          "cascade_faults": cascade_faults}
if not FOLDER.exists():
    CHECKS = {"chat_clients": chat_clients}
