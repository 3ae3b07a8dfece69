"""The published server of `speech-to-speech`, with tones in place of its models.

    s2s.py [--port N] [--units N]      with what requirements-s2s.txt names, in a folder of its own on PYTHONPATH

Everything that speaks the protocol is the package's: the socket, sessions, turns, cancellation, functions, resampling. The recogniser
finds speech by energy and transcribes its frequency; the synthesiser answers an octave above it, faster than real time.
"""

import argparse
import json
import re
import socket
import threading
import time
from queue import Queue

import numpy
import uvicorn
from audio import SpeechDetector, loudest_hz, tone
from openai.types.realtime import RealtimeConversationItemFunctionCall
from openai.types.responses.response_function_tool_call import ResponseFunctionToolCall
from speech_to_speech.api.openai_realtime.pipeline_unit import PipelineUnit
from speech_to_speech.api.openai_realtime.service import RealtimeService
from speech_to_speech.api.openai_realtime.websocket_router import create_app
from speech_to_speech.pipeline.cancel_scope import CancelScope
from speech_to_speech.pipeline.control import ControlKind, is_control_message
from speech_to_speech.pipeline.events import (
    AssistantOutputEvent, AssistantResponseDoneEvent, SpeechStartedEvent, SpeechStoppedEvent, TranscriptionCompletedEvent,
)
from speech_to_speech.pipeline.messages import (
    AUDIO_RESPONSE_DONE, AssistantToolCallPart, AudioOutput, GenerateResponseRequest,
)

# The rate of the package's queues, and samples of one piece of speech.
RATE, PIECE = 16_000, 1600
ANSWER_S, SPEED = 8.0, 10.0
GREETING_HZ, FUNCTION_HZ, SILENCE_MS = 520, 740, 500
# Functions of the bot itself, which every telephone call has.
BUILT_IN = ("end_call", "press_keys")


class Unit:
    """One pipeline of the package, and the two threads in place of its models."""

    def __init__(self, number):
        prompts, listen = Queue(), threading.Event()
        self.pipeline = PipelineUnit(
            index=number, service=RealtimeService(text_prompt_queue=prompts, should_listen=listen), cancel_scope=CancelScope(),
            should_listen=listen, response_playing=threading.Event(), input_queue=Queue(), output_queue=Queue(),
            text_output_queue=Queue(), text_prompt_queue=prompts, handlers=[])
        for work in (self.recognise, self.synthesise):
            threading.Thread(target=work, daemon=True).start()

    def recognise(self):
        unit, detector, turns = self.pipeline, SpeechDetector(RATE), 0
        while True:
            received = unit.input_queue.get()
            if is_control_message(received, ControlKind.SESSION_END):
                detector = SpeechDetector(RATE)
                # Otherwise the next caller finds the unit taken.
                unit.output_queue.put(received)
                continue
            samples = numpy.frombuffer(received[0], "<i2")
            for event, ms, *said in detector.take(samples, SILENCE_MS):
                if event == "started":
                    turns += 1
                    turn = {"turn_id": f"turn_{turns}", "turn_revision": 0}
                    unit.text_output_queue.put(SpeechStartedEvent(audio_start_ms=ms, **turn))
                    continue
                words = f"A tone of {loudest_hz(said[0], RATE)} hertz."
                seconds = len(said[0]) / RATE
                unit.text_output_queue.put(SpeechStoppedEvent(audio_end_ms=ms, duration_s=seconds, **turn))
                # The package asks the synthesiser for the answer.
                unit.text_output_queue.put(TranscriptionCompletedEvent(transcript=words, **turn))

    def synthesise(self):
        while True:
            request = self.pipeline.text_prompt_queue.get()
            if isinstance(request, GenerateResponseRequest):
                self.answer(request)

    def answer(self, request):
        unit, scope = self.pipeline, self.pipeline.cancel_scope
        generation = scope.generation
        # Output of an earlier generation vanishes.
        tags = {"response_key": request.response_key, "cancel_generation": generation,
                "turn_id": request.turn_id, "turn_revision": request.turn_revision}
        said = {name: tags[name] for name in ("response_key", "cancel_generation")}
        config = request.runtime_config
        last = (config.chat.to_responses_api_chat() or [{}])[-1]
        # The package joins what a caller says without an answer in between.
        said_hz = re.findall("A tone of ([0-9]+) hertz", json.dumps(last, default=str))
        tools = [tool.name for tool in config.session.tools or [] if tool.name not in BUILT_IN]
        if said_hz and tools and not config.chat.tool_output_call_ids():
            call = ResponseFunctionToolCall(type="function_call", call_id=f"call_{request.response_key}", name=tools[0],
                                            arguments='{"city": "Bremen"}')
            config.chat.add_ordered_function_call(RealtimeConversationItemFunctionCall(**call.model_dump(exclude={"id", "status"})))
            unit.output_queue.put(AssistantOutputEvent(parts=[AssistantToolCallPart(tool=call)], **tags))
        else:
            hz = 2 * int(said_hz[-1]) if said_hz else FUNCTION_HZ if config.chat.tool_output_call_ids() else GREETING_HZ
            unit.output_queue.put(AssistantOutputEvent(text=f"Its tone has {hz} hertz.", **tags))
            first, total, begun = 0, round(ANSWER_S * RATE), time.monotonic()
            while first < total and not scope.is_stale(generation):
                samples = tone(hz, RATE, first, PIECE)
                first += PIECE
                unit.output_queue.put(AudioOutput(audio=samples.tobytes(), **said))
                time.sleep(max(0, begun + first / RATE / SPEED - time.monotonic()))
        unit.output_queue.put(AssistantResponseDoneEvent(**tags))
        unit.output_queue.put(AUDIO_RESPONSE_DONE)


def main(port, units):
    stop = threading.Event()
    app = create_app(pool=[Unit(number).pipeline for number in range(units)], stop_event=stop)
    listener = socket.create_server(("127.0.0.1", port))
    print(f"listening on ws://127.0.0.1:{listener.getsockname()[1]}/v1/realtime?model=tones", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--units", type=int, default=4)
    given = parser.parse_args()
    main(given.port, given.units)
