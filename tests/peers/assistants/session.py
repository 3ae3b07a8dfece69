"""One session of the scripted service: its configuration, conversation, turns and answers."""

import asyncio
import copy
import json
import time

from answer import Answer
from audio import CODECS, SpeechDetector, from_base64, loudest_hz
from protocol import Refused, check_sent
from scripts import SCRIPTS

# Answers to anything but audio.
GREETING_HZ, TEXT_HZ, FUNCTION_HZ = 520, 990, 740
APPEND_BYTES_MAX = 15 << 20
HARMLESS = {"response_cancel_not_active"}
# Events of a flood, and bytes of one event: below the limit of the runner and above it.
FLOOD = 50_000
HUGE_BYTES, OVERSIZE_BYTES = 3 << 20, 17 << 20
PCM = {"type": "audio/pcm", "rate": 24_000}
DEFAULTS = {
    "type": "realtime", "output_modalities": ["audio"], "instructions": "Be kind.", "tools": [], "tool_choice": "auto",
    "max_output_tokens": "inf", "tracing": None, "truncation": "auto", "prompt": None, "include": None,
    "audio": {
        "input": {"format": PCM, "transcription": None, "noise_reduction": None, "turn_detection": {
            "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500,
            "idle_timeout_ms": None, "create_response": True, "interrupt_response": True}},
        "output": {"format": PCM, "voice": "alloy", "speed": 1.0}},
}


class Session:
    counter = 0

    def __init__(self, service, socket, model):
        self.service, self.socket, self.model, self.script = service, socket, model, SCRIPTS[model]
        Session.counter += 1
        self.id, self.conversation_id = f"sess_{Session.counter}", f"conv_{Session.counter}"
        self.last_id = 0
        self.config = {**copy.deepcopy(DEFAULTS), "id": self.id, "object": "realtime.session", "model": model,
                       "expires_at": int(time.time()) + 3600}
        # What the checks ask for: valid messages of the client, without audio; times by type; what is invalid.
        self.received, self.violations, self.truncations = [], [], []
        self.speech_started, self.closed = [], None
        # Bytes of input audio; milliseconds sent of each item; results of function calls.
        self.input_bytes, self.audio_ms, self.calls = 0, {}, {}
        self.items, self.answer, self.statuses = {}, None, []
        self.detector, self.buffered = None, 0
        self.tasks, self.stalled = set(), False
        self.expected_errors = HARMLESS | self.script.expected_errors
        # An answer and the reading of the client's messages send at the same time.
        self.sending = asyncio.Lock()

    def new_id(self, kind):
        self.last_id += 1
        return f"{kind}_{self.id[5:]}_{self.last_id}"

    async def send(self, kind, **fields):
        message = {"type": kind, "event_id": self.new_id("event"), **copy.deepcopy(fields)}
        check_sent(message)
        is_audio = kind == "response.output_audio.delta"
        self.service.note(self, "server", {**message, "delta": ""} if is_audio else message)
        if kind == "response.done":
            self.statuses.append(message["response"]["status"])
        async with self.sending:
            while self.stalled:
                await asyncio.sleep(3600)
            text = json.dumps(message)
            await self.socket.send(iter(text) if self.script.fragments else text)
        if kind == self.script.drops_behind and self.happens():
            # Behind what was written.
            await asyncio.sleep(0.05)
            self.socket.transport.abort()

    async def refuse(self, refused, message):
        cause = message.get("event_id") if isinstance(message, dict) else None
        await self.send("error", error={**refused.error, "event_id": cause if isinstance(cause, str) else None})

    async def open(self):
        if self.script.hangs:
            return
        if self.script.opening:
            code, close = self.script.opening
            if code:
                await self.refuse(Refused(code, "This session cannot be.", kind=code), None)
            await self.socket.close(close, "refused")
            return
        await self.send("session.created", session=self.config)

    def end(self):
        for task in self.tasks:
            task.cancel()

    def spawn(self, work):
        async def watched():
            try:
                await work
            except (ConnectionError, asyncio.CancelledError):
                pass
            except Exception as error:
                if self.socket.close_code is None and self.closed is None:
                    self.service.failures.append(repr(error))

        self.tasks.add(task := asyncio.create_task(watched()))
        task.add_done_callback(self.tasks.discard)

    def happens(self):
        """Whether the incident of the script is still to happen."""
        is_first = self.model not in self.service.happened
        self.service.happened.add(self.model)
        return is_first

    async def incident(self):
        """What the script has happen once."""
        script = self.script
        if not script.then or not self.happens():
            return
        if script.then == "stall":
            self.stalled = True
        elif script.then == "flood":
            for number in range(FLOOD):
                await self.socket.send(json.dumps({"type": "vendor.event", "event_id": f"flood_{number}", "text": "x" * 200}))
        elif script.then in ("huge", "oversize"):
            size = HUGE_BYTES if script.then == "huge" else OVERSIZE_BYTES
            await self.socket.send(json.dumps({"type": "vendor.event", "event_id": "huge", "text": "x" * size}))
        elif script.then == "foreign":
            await self.foreign()
        elif script.then == "abort":
            self.socket.transport.abort()
        else:
            if script.then == "expire":
                await self.refuse(Refused("session_expired", script.code[1]), None)
            await self.socket.close(*script.code)

    async def foreign(self):
        """Events of responses, items and calls that never were."""
        at = {"response_id": "resp_none", "item_id": "item_none", "output_index": 7, "content_index": 3}
        await self.send("response.output_audio_transcript.delta", **at, delta="of no answer")
        await self.send("response.output_audio.done", **at)
        await self.send("response.function_call_arguments.done", response_id="resp_none", item_id="item_none", output_index=7,
                        call_id="call_none", name="nothing", arguments="{}")
        await self.send("conversation.item.truncated", item_id="item_none", content_index=0, audio_end_ms=99)
        await self.send("response.done", response={
            "object": "realtime.response", "id": "resp_none", "status": "cancelled", "output": [],
            "status_details": {"type": "cancelled", "reason": "turn_detected"}, "conversation_id": "conv_none",
            "output_modalities": ["audio"], "max_output_tokens": "inf", "metadata": None})

    # --- What the client sends.

    async def handle(self, message):
        kind = message["type"]
        is_audio = kind == "input_audio_buffer.append"
        kept = {**message, "audio": ""} if is_audio else message
        self.service.note(self, "client", kept)
        if not is_audio:
            self.received.append(message)
        await getattr(self, "on_" + kind.replace(".", "_"))(message)

    def of_type(self, kind):
        return [message for message in self.received if message["type"] == kind]

    def functions(self):
        return [tool["name"] for tool in self.config["tools"] or [] if tool.get("type") == "function"]

    async def on_session_update(self, message):
        update = message["session"]
        if update.get("model", self.model) != self.model:
            raise Refused("cannot_update_model", "the model is fixed", "session.model")
        if set(update.get("output_modalities") or ["audio"]) == {"text", "audio"}:
            raise Refused("invalid_value", "text or audio", "session.output_modalities")
        audio = update.get("audio") or {}
        output = audio.get("output") or {}
        if self.audio_ms and output.get("voice", self.config["audio"]["output"]["voice"]) != self.config["audio"]["output"]["voice"]:
            raise Refused("cannot_update_voice", "the voice is fixed once there is audio", "session.audio.output.voice")
        for direction in ("input", "output"):
            for key, value in (audio.get(direction) or {}).items():
                self.config["audio"][direction][key] = value
        turns = self.config["audio"]["input"]["turn_detection"]
        if turns is not None:
            defaults = {"create_response": True, "interrupt_response": True}
            if turns["type"] == "server_vad":
                defaults = DEFAULTS["audio"]["input"]["turn_detection"]
            self.config["audio"]["input"]["turn_detection"] = {**defaults, **turns}
        self.config |= {key: value for key, value in update.items() if key != "audio"}
        await self.send("session.updated", session=self.config)

    async def on_input_audio_buffer_append(self, message):
        data = from_base64(message["audio"])
        codec = CODECS[self.config["audio"]["input"]["format"]["type"]]
        if data is None or len(data) % codec.sample_bytes or len(data) > APPEND_BYTES_MAX:
            raise Refused("invalid_value", "not audio of the format of the session", "audio")
        self.input_bytes += len(data)
        self.buffered += len(data)
        turns = self.config["audio"]["input"]["turn_detection"]
        if turns is None:
            return
        if self.detector is None or self.detector.rate != codec.rate:
            self.detector = SpeechDetector(codec.rate)
        for event, ms, *said in self.detector.take(codec.decode(data), turns.get("silence_duration_ms", 500)):
            await (self.on_speech(turns, ms) if event == "started" else self.on_silence(turns, ms, said[0]))

    async def on_speech(self, turns, ms):
        self.speech_started.append(time.monotonic())
        self.utterance = self.new_id("item")
        start = max(0, ms - turns.get("prefix_padding_ms", 300))
        await self.send("input_audio_buffer.speech_started", item_id=self.utterance, audio_start_ms=start)
        if self.answer and turns["interrupt_response"]:
            self.answer.cancelled = "turn_detected"

    async def on_silence(self, turns, ms, said):
        await self.send("input_audio_buffer.speech_stopped", item_id=self.utterance, audio_end_ms=ms)
        await self.commit(self.utterance)
        hz = loudest_hz(said, self.detector.rate)
        transcription = self.transcribe(self.utterance, hz, len(said) / self.detector.rate)
        if not self.script.late_transcription:
            await transcription
        # An answer in the course of being cut short ends first.
        while self.answer and self.answer.cancelled:
            await asyncio.sleep(0.005)
        if turns["create_response"] and not self.answer:
            self.start_answer("caller", 2 * hz, {})
        if self.script.late_transcription:
            async def late():
                while self.answer:
                    await asyncio.sleep(0.01)
                await transcription

            self.spawn(late())

    async def commit(self, item_id):
        self.buffered = 0
        await self.send("input_audio_buffer.committed", item_id=item_id, previous_item_id=self.last_item())
        item = {"id": item_id, "object": "realtime.item", "type": "message", "status": "completed", "role": "user",
                "content": [{"type": "input_audio", "transcript": None}]}
        await self.add_item(item)
        await self.finish_item(item)

    async def transcribe(self, item_id, hz, seconds):
        if not self.config["audio"]["input"]["transcription"]:
            return
        at = {"item_id": item_id, "content_index": 0}
        if self.script.transcription_fails:
            error = {"type": "server_error", "code": "audio_unintelligible", "message": "Not intelligible."}
            await self.send("conversation.item.input_audio_transcription.failed", **at, error=error)
            return
        words = f"A tone of {hz} hertz."
        for delta in (words[:7], words[7:]):
            await self.send("conversation.item.input_audio_transcription.delta", **at, delta=delta)
        await self.send("conversation.item.input_audio_transcription.completed", **at, transcript=words,
                        usage={"type": "duration", "seconds": seconds})

    async def on_input_audio_buffer_commit(self, message):
        if not self.buffered:
            raise Refused("input_audio_buffer_commit_empty", "the buffer is empty")
        await self.commit(self.new_id("item"))

    async def on_input_audio_buffer_clear(self, message):
        self.buffered, self.detector = 0, None
        await self.send("input_audio_buffer.cleared")

    # --- The conversation.

    def last_item(self):
        return next(reversed(self.items), None)

    async def add_item(self, item):
        previous = self.last_item()
        self.items[item["id"]] = item
        await self.send("conversation.item.added", item=item, previous_item_id=previous)

    async def finish_item(self, item):
        ids = list(self.items)
        at = ids.index(item["id"]) if item["id"] in self.items else 0
        await self.send("conversation.item.done", item=item, previous_item_id=ids[at - 1] if at else None)

    async def on_conversation_item_create(self, message):
        item = {"object": "realtime.item", "status": "completed", **message["item"]}
        item["id"] = item.get("id") or self.new_id("item")
        if item["id"] in self.items:
            raise Refused("item_create_duplicate_item_id", "that item exists", "item.id")
        if message.get("previous_item_id") not in (None, "root", *self.items):
            raise Refused("item_create_previous_item_not_found", "no such item", "previous_item_id")
        parts = {"user": {"input_text", "input_audio", "input_image"}, "system": {"input_text"}, "assistant": {"output_text"}}
        if item["type"] == "message":
            for part in item["content"]:
                if part.get("type") not in parts[item["role"]]:
                    raise Refused("invalid_value", f"not in a message of {item['role']}", "item.content[0].type")
        if item["type"] == "function_call_output":
            if self.calls.get(item["call_id"], 0) is not None and item["call_id"] not in self.replayed_calls():
                raise Refused("invalid_tool_call_id", "no such call, or answered before", "item.call_id")
            self.calls[item["call_id"]] = item["output"]
        await self.add_item(item)
        await self.finish_item(item)

    def replayed_calls(self):
        """Calls of an earlier session that the client has put back."""
        return {item.get("call_id") for item in self.items.values() if item["type"] == "function_call"} - {*self.calls}

    def known(self, message):
        item = self.items.get(message["item_id"])
        if item is None:
            raise Refused("item_not_found", "no such item", "item_id")
        return item

    async def on_conversation_item_truncate(self, message):
        item, end_ms = self.known(message), message["audio_end_ms"]
        sent_ms = self.audio_ms.get(item["id"])
        if sent_ms is None or message["content_index"] != 0:
            raise Refused("invalid_value", "no audio of the assistant", "content_index")
        if end_ms < 0:
            raise Refused("invalid_value", "less than nothing", "audio_end_ms")
        if end_ms > sent_ms or self.script.refuses_truncation:
            raise Refused("truncation_too_long" if self.script.refuses_truncation else "invalid_value",
                          f"Audio content of {sent_ms}ms is already shorter than {end_ms}ms", "audio_end_ms")
        self.truncations.append((item["id"], end_ms, time.monotonic()))
        item["content"] = [{"type": "output_audio"}]
        await self.send("conversation.item.truncated", item_id=item["id"], content_index=0, audio_end_ms=end_ms)

    async def on_conversation_item_delete(self, message):
        self.known(message)
        del self.items[message["item_id"]]
        await self.send("conversation.item.deleted", item_id=message["item_id"])

    async def on_conversation_item_retrieve(self, message):
        await self.send("conversation.item.retrieved", item=self.known(message))

    # --- Answers.

    async def on_response_create(self, message):
        options = message.get("response") or {}
        if self.answer:
            raise Refused("conversation_already_has_active_response", "an answer is in progress")
        if set(options.get("output_modalities") or ["audio"]) == {"text", "audio"}:
            raise Refused("invalid_value", "text or audio", "response.output_modalities")
        if None in self.calls.values():
            raise Refused("missing_function_call_output", "a function call has no result")
        last = self.items.get(self.last_item()) or {}
        if last.get("type") == "function_call_output":
            what, hz = "function", FUNCTION_HZ
        elif last.get("role") == "user" and not options.get("instructions"):
            what, hz = "text", TEXT_HZ
        else:
            what, hz = "greeting", GREETING_HZ
        self.start_answer(what, hz, options)

    def start_answer(self, what, hz, options):
        if self.script.silent:
            return
        self.answer = Answer(self, what, hz, options)
        self.spawn(self.answer.run())

    async def on_response_cancel(self, message):
        if not self.answer or message.get("response_id", self.answer.id) != self.answer.id:
            raise Refused("response_cancel_not_active", "no answer is in progress")
        self.answer.cancelled = "client_cancelled"
