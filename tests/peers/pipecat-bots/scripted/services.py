"""Services that need no server: they recognise one sentence, answer with numbered ones, and speak tones.

A class of Pipecat keeps its name, its settings and its other nested classes, and gets the behaviour of the scripted one of its
kind. A model that is asked for the weather calls the first function that it has.
"""

import array
import asyncio
import inspect
import json
import math
import sys
import uuid

from pipecat.frames.frames import (
    InputAudioRawFrame, LLMContextFrame, LLMFullResponseEndFrame, LLMFullResponseStartFrame, LLMRunFrame, LLMTextFrame,
    TranscriptionFrame, TTSAudioRawFrame, TTSStartedFrame, TTSStoppedFrame, TTSTextFrame, URLImageRawFrame,
    UserStartedSpeakingFrame, UserStoppedSpeakingFrame, VisionTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services import image_service, llm_service, stt_service, tts_service, vision_service
from pipecat.services.settings import LLMSettings, STTSettings, TTSSettings
from pipecat.utils.time import time_now_iso8601

HEARD = "What is the capital of France?"
SPOKEN_S, LOUD = 0.6, 700
PAUSE_S, SPEECH_S, THINKS_S = 0.5, 0.15, 0.2
TONE_HZ = 660


def tone(rate, seconds=SPOKEN_S):
    return array.array("h", (int(8000 * math.sin(2 * math.pi * TONE_HZ * n / rate)) for n in range(int(seconds * rate)))).tobytes()


class SpeechInput:
    """Finds the end of what the caller says."""

    def __init__(self):
        self.loud = self.silent = 0.0

    def hear(self, frame):
        """Returns whether speech began or ended with this frame."""
        seconds = len(frame.audio) / (2 * frame.num_channels * frame.sample_rate)
        if max(array.array("h", frame.audio[: len(frame.audio) // 2 * 2]), default=0) > LOUD:
            began = self.loud < SPEECH_S <= self.loud + seconds
            self.loud, self.silent = self.loud + seconds, 0.0
            return "began" if began else None
        self.silent += seconds
        if self.silent > PAUSE_S:
            ended = self.loud >= SPEECH_S
            self.loud = 0.0
            return "ended" if ended else None
        return None


class Stub:
    """What the class of Pipecat has beside it, and does nothing here."""

    def __getattr__(self, name):
        try:
            found = inspect.getattr_static(type(self)._original, name)
        except AttributeError:
            raise AttributeError(name) from None
        if inspect.iscoroutinefunction(found):
            async def nothing(*_, **__):
                pass

            return nothing
        if inspect.isfunction(found):
            return lambda *_, **__: None
        if isinstance(found, (staticmethod, classmethod)):
            return getattr(type(self)._original, name)
        raise AttributeError(name)


def kept(keywords, *names):
    return {name: keywords[name] for name in names if keywords.get(name) is not None}


class ScriptedSTT(Stub, stt_service.STTService):
    def __init__(self, *_, **keywords):
        super().__init__(settings=STTSettings(model="scripted", language=None), **kept(keywords, "sample_rate", "name"))
        self._speech = SpeechInput()

    def can_generate_metrics(self):
        return True

    async def run_stt(self, audio):
        yield None

    async def process_audio_frame(self, frame, direction):
        received = self._speech.hear(frame)
        if received == "began" and self._takes_turns:
            await self.broadcast_frame(UserStartedSpeakingFrame)
        elif received == "ended":
            await self.push_frame(TranscriptionFrame(HEARD, "caller", time_now_iso8601(), finalized=True))
            if self._takes_turns:
                await self.broadcast_frame(UserStoppedSpeakingFrame)


class ScriptedTTS(Stub, tts_service.TTSService):
    def __init__(self, *_, **keywords):
        super().__init__(
            settings=TTSSettings(model="scripted", voice="scripted", language=None), push_start_frame=True, push_stop_frames=True,
            stop_frame_timeout_s=0.3, **kept(keywords, "sample_rate", "name", "skip_text_types", "text_transforms", "text_filters"))

    def can_generate_metrics(self):
        return True

    async def run_tts(self, text, context_id):
        yield TTSAudioRawFrame(tone(self.sample_rate), self.sample_rate, 1, context_id=context_id)


class ScriptedLLM(Stub, llm_service.LLMService):
    def __init__(self, *_, **keywords):
        given = keywords.get("settings")
        settings = LLMSettings(**{name: None for name in LLMSettings.__dataclass_fields__ if name not in ("extra", "model", "_aliases")},
                               model="scripted")
        settings.filter_incomplete_user_turns = False
        instruction = getattr(given, "system_instruction", None)
        settings.system_instruction = instruction if isinstance(instruction, str) else None
        super().__init__(settings=settings, **kept(keywords, "name", "function_call_timeout_secs", "file_resolver"))
        self._answers, self._speech = 0, SpeechInput()

    def can_generate_metrics(self):
        return True

    async def run_inference(self, context, **_):
        return "A summary."

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            await self._answer(frame.context)
            return
        if isinstance(frame, InputAudioRawFrame) and self._speaks:
            received = self._speech.hear(frame)
            if received == "began" and self._takes_turns:
                await self.broadcast_frame(UserStartedSpeakingFrame)
            elif received == "ended":
                await self.push_frame(TranscriptionFrame(HEARD, "caller", time_now_iso8601()), FrameDirection.UPSTREAM)
                if self._takes_turns:
                    await self.broadcast_frame(UserStoppedSpeakingFrame)
                await self._answer(None)
        await self.push_frame(frame, direction)

    async def _answer(self, context):
        await self.start_ttfb_metrics()
        await self.push_frame(LLMFullResponseStartFrame())
        try:
            call = wanted_call(context) if context else None
            if call:
                name, arguments = call
                await self.run_function_calls([llm_service.FunctionCallFromLLM(
                    function_name=name, tool_call_id=uuid.uuid4().hex, arguments=arguments, context=context)])
                return
            self._answers += 1
            text = f"This is answer number {self._answers}, and Paris."
            await asyncio.sleep(THINKS_S)
            await self.stop_ttfb_metrics()
            await self.push_frame(LLMTextFrame(text))
            if self._speaks:
                await self._speak(text)
        finally:
            await self.push_frame(LLMFullResponseEndFrame())

    async def _speak(self, text):
        await self.push_frame(TTSStartedFrame())
        await self.push_frame(TTSAudioRawFrame(tone(24_000), 24_000, 1))
        await self.push_frame(TTSTextFrame(text, aggregated_by="sentence"))
        await self.push_frame(TTSStoppedFrame())


def wanted_call(context):
    """The name and the arguments of the function to call after the last message: one for a picture if there is one."""
    messages = [message for message in context.get_messages() if isinstance(message, dict)]
    last = messages[-1] if messages else {}
    if last.get("role") != "user":
        return None
    tools = [schema_of(tool) for tool in getattr(context.tools, "standard_tools", None) or ()]
    pictures = [tool for tool in tools if "image" in tool.name]
    if not tools or not pictures and "weather" not in str(last.get("content")).lower():
        return None
    tool = (pictures or tools)[0]
    samples = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}

    def sample(schema):
        return (schema.get("enum") or [samples.get(schema.get("type"), "Paris")])[0]

    return tool.name, {name: sample(tool.properties.get(name, {})) for name in tool.required}


def schema_of(tool):
    if hasattr(tool, "required"):
        return tool
    from pipecat.adapters.llm.schemas.direct_function import DirectFunctionWrapper

    return DirectFunctionWrapper(tool).to_function_schema()


class ScriptedImages(Stub, image_service.ImageGenService):
    def __init__(self, *_, **__):
        super().__init__()

    async def run_image_gen(self, prompt):
        yield URLImageRawFrame(url="http://127.0.0.1:9/", image=bytes(3 * 64 * 64), size=(64, 64), format="RGB")


class ScriptedVision(Stub, vision_service.VisionService):
    def __init__(self, *_, **__):
        super().__init__()

    async def run_vision(self, frame):
        yield VisionTextFrame("A cat.")


class ScriptedMCP:
    """A server of tools that has none."""

    def __init__(self, **_):
        pass

    async def start(self):
        pass

    async def close(self):
        pass

    async def tools(self):
        from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema

        return ToolsSchema(standard_tools=[])

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass


KINDS = [
    (stt_service.STTService, ScriptedSTT), (tts_service.TTSService, ScriptedTTS), (llm_service.LLMService, ScriptedLLM),
    (image_service.ImageGenService, ScriptedImages), (vision_service.VisionService, ScriptedVision),
]


def script(module):
    """Replaces the services that this module defines."""
    if hasattr(module, "MCPClient"):
        module.MCPClient = ScriptedMCP
    try:
        source = inspect.getsource(module)
    except OSError:
        source = ""
    for name, found in list(vars(module).items()):
        if not isinstance(found, type) or found.__module__ != module.__name__:
            continue
        for base, scripted in KINDS:
            if issubclass(found, base):
                setattr(module, name, replaced(found, scripted, source))


def replaced(original, scripted, source):
    members = {name: getattr(original, name, None) for name in dir(original) if not name.startswith("__")}
    nested = {name: value for name, value in members.items() if isinstance(value, type)}
    parent = next((base for base in original.__mro__[1:] if "_original" in vars(base)), scripted)
    return type(original.__name__, (parent if issubclass(parent, scripted) else scripted,), {
        **nested, "__module__": original.__module__, "_original": original,
        "_takes_turns": getattr(parent, "_takes_turns", False) or "UserStartedSpeakingFrame" in source,
        "_speaks": getattr(parent, "_speaks", False) or "TTSAudioRawFrame" in source,
    })
