"""The published clients against the scripted service: what they cannot talk to proves nothing about the runner."""

import asyncio
import base64
import os
import time

os.environ.setdefault("LOGURU_LEVEL", "ERROR")

import openai
from audio import CODECS, loudest_hz, tone
from pipecat.frames.frames import (
    EndFrame, InputAudioRawFrame, InterruptionFrame, LLMContextFrame, TranscriptionFrame, TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.workers.runner import WorkerRunner
from realtime_server import KEY
from session import GREETING_HZ

HZ = 440
LIMIT_S = 30


def client(service):
    base = f"ws://127.0.0.1:{service.port}/v1"
    return openai.AsyncOpenAI(api_key=KEY, base_url=base.replace("ws", "http"), websocket_base_url=base, max_retries=0)


async def until(connection, kind, seen):
    """The next event of that type; those before it go to `seen`."""
    async with asyncio.timeout(LIMIT_S):
        async for event in connection:
            seen.append(event)
            if event.type == kind:
                return event
    raise AssertionError(f"no {kind} after {[event.type for event in seen]}")


async def question(connection, form):
    """A second of a tone, and the silence behind it."""
    codec = CODECS[form]
    sound = [tone(HZ, codec.rate, 0, codec.rate), tone(0, codec.rate, 0, codec.rate)]
    for samples in sound:
        await connection.input_audio_buffer.append(audio=base64.b64encode(codec.encode(samples)).decode())


def answered_hz(seen, form):
    codec = CODECS[form]
    sound = b"".join(base64.b64decode(event.delta) for event in seen if event.type == "response.output_audio.delta")
    return loudest_hz(codec.decode(sound), codec.rate), len(sound) / codec.sample_bytes / codec.rate


async def sdk(place):
    """the SDK of the vendor: greeting, a question and its answer in three codecs, truncation, a function"""
    measured = []
    async with place.service() as service:
        for form in CODECS:
            async with client(service).realtime.connect(model="plain") as connection:
                seen = []
                await until(connection, "session.created", seen)
                shape = {"type": form, "rate": 24_000} if form == "audio/pcm" else {"type": form}
                await connection.session.update(session={"type": "realtime", "audio": {
                    "input": {"format": shape, "transcription": {"model": "gpt-4o-mini-transcribe"}}, "output": {"format": shape}}})
                await until(connection, "session.updated", seen)
                await connection.response.create(response={"instructions": "Greet."})
                await until(connection, "response.done", seen)
                hz, seconds = answered_hz(seen, form)
                assert abs(hz - GREETING_HZ) < 5, hz
                seen.clear()
                began = time.monotonic()
                await question(connection, form)
                await until(connection, "response.done", seen)
                hz, seconds = answered_hz(seen, form)
                assert abs(hz - 2 * HZ) < 5 and abs(seconds - 2) < 0.01, (hz, seconds)
                measured.append(f"{form} {hz} Hz, {seconds:.1f} s in {time.monotonic() - began:.2f} s")
                item = next(event.item for event in seen if event.type == "response.output_item.added")
                await connection.conversation.item.truncate(item_id=item.id, content_index=0, audio_end_ms=700)
                cut = await until(connection, "conversation.item.truncated", seen)
                assert cut.audio_end_ms == 700
        async with client(service).realtime.connect(model="function") as connection:
            seen = []
            tool = {"type": "function", "name": "weather", "description": "The weather.", "parameters": {"type": "object"}}
            await connection.session.update(session={"type": "realtime", "tools": [tool]})
            await until(connection, "session.updated", seen)
            await question(connection, "audio/pcm")
            call = await until(connection, "response.function_call_arguments.done", seen)
            await until(connection, "response.done", seen)
            await connection.conversation.item.create(item={
                "type": "function_call_output", "call_id": call.call_id, "output": '{"degrees": 7}'})
            await connection.response.create()
            seen.clear()
            await until(connection, "response.done", seen)
            assert service.sessions[-1].calls == {call.call_id: '{"degrees": 7}'}
    return ", ".join(measured)


async def refusals(place):
    """the SDK of the vendor: refused upgrades, an error as the first event, closes, unknown and invalid fields"""
    async with place.service() as service:
        for model, status in (("unauthorised", 401), ("forbidden", 403), ("missing", 404), ("no-such-script", 404)):
            try:
                async with client(service).realtime.connect(model=model):
                    raise AssertionError(f"{model} was accepted")
            except Exception as error:
                found = getattr(getattr(error, "response", None), "status_code", None)
                assert found == status, (model, error)
        for model, code in (("retired", 4000), ("unpaid", 1000), ("full", 1008)):
            async with client(service).realtime.connect(model=model) as connection:
                await asyncio.wait_for(connection._connection.wait_closed(), LIMIT_S)
                assert connection._connection.close_code == code, (model, connection._connection.close_code)
        async with client(service).realtime.connect(model="plain") as connection:
            seen, wanted = [], []
            for broken, param in (
                    ({"type": "session.update", "session": {"type": "realtime", "temperature": 0.8}}, "session.temperature"),
                    ({"type": "session.update", "session": {"audio": {}}}, "session."),
                    ({"type": "session.update", "session": {"type": "realtime", "audio": {
                        "input": {"format": {"type": "audio/pcm", "rate": 16_000}}}}}, "session."),
                    ({"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 1.5}, "audio_end_ms"),
                    ({"type": "conversation.item.create", "item": {
                        "type": "message", "role": "user", "content": [{"type": "text", "text": "x"}]}}, "item"),
                    ({"type": "output_audio_buffer.clear"}, "type"),
                    ({"type": "input_audio_buffer.append", "audio": "AAA"}, "audio")):
                await connection.send({**broken, "event_id": f"e{len(wanted)}"})
                refused = (await until(connection, "error", seen)).error
                assert refused.event_id == f"e{len(wanted)}", refused
                assert (refused.param or "").startswith(param), (broken, refused)
                wanted.append(refused.code)
        session = service.sessions[-1]
        assert len(session.violations) == len(wanted), session.violations
        session.violations.clear()
    return f"{len(wanted)} messages refused"


class Ends(FrameProcessor):
    """Records what the service of a pipeline says, downstream and upstream."""

    def __init__(self, frames):
        super().__init__()
        self.frames = frames

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        await self.push_frame(frame, direction)


async def pipecat(place):
    """Pipecat's service for the protocol: it greets, hears a question, answers, and truncates when it is interrupted"""
    async with place.service() as service:
        frames = []
        llm = OpenAIRealtimeLLMService(
            api_key=KEY, base_url=service.url().split("?")[0],
            settings=OpenAIRealtimeLLMService.Settings(model="fast", session_properties=events.SessionProperties(
                audio=events.AudioConfiguration(input=events.AudioInput(transcription=events.InputAudioTranscription())))))
        worker = PipelineWorker(
            Pipeline([Ends(frames), llm, Ends(frames)]), enable_rtvi=False, enable_turn_tracking=False, idle_timeout_secs=None,
            params=PipelineParams(audio_in_sample_rate=24_000, audio_out_sample_rate=24_000))
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        run = asyncio.create_task(runner.run())

        def sound():
            pcm = b"".join(frame.audio for frame in frames if isinstance(frame, TTSAudioRawFrame))
            return CODECS["audio/pcm"].decode(pcm)

        async def seen(condition, what):
            async with asyncio.timeout(LIMIT_S):
                while not condition():
                    assert not run.done(), "the pipeline ended"
                    await asyncio.sleep(0.02)

        await worker.queue_frame(LLMContextFrame(LLMContext([{"role": "user", "content": "Greet."}])))
        await seen(lambda: len(sound()) >= 20 * 24_000, "the greeting")
        greeting = loudest_hz(sound()[:24_000], 24_000)
        frames.clear()
        for samples in (tone(HZ, 24_000, 0, 24_000), tone(0, 24_000, 0, 24_000)):
            await worker.queue_frame(InputAudioRawFrame(samples.tobytes(), 24_000, 1))
        await seen(lambda: len(sound()) >= 20 * 24_000, "the answer")
        answer = loudest_hz(sound()[:24_000], 24_000)
        assert abs(answer - 2 * HZ) < 5, answer
        said = [frame.text for frame in frames if isinstance(frame, TranscriptionFrame)]
        assert said == [f"A tone of {HZ} hertz."], said
        await worker.queue_frame(InterruptionFrame())
        await seen(lambda: service.sessions[0].truncations, "a truncation")
        cut = service.sessions[0].truncations[0][1]
        await worker.queue_frame(EndFrame())
        await asyncio.wait_for(run, LIMIT_S)
    return f"greeting {greeting} Hz, answer {answer} Hz, truncated at {cut} ms"


CHECKS = {"sdk": sdk, "refusals": refusals, "pipecat": pipecat}
