"""One answer of the scripted service: its events in the order of the original."""

import asyncio
import base64
import time

from audio import CODECS, tone

# Samples per event of audio, as a length.
DELTA_S = 0.2
USAGE = {
    "total_tokens": 253, "input_tokens": 132, "output_tokens": 121,
    "input_token_details": {"text_tokens": 119, "audio_tokens": 13, "cached_tokens": 64},
    "output_token_details": {"text_tokens": 30, "audio_tokens": 91},
}


class Answer:
    """A response of the service; `what` is its cause, `hz` its tone."""

    def __init__(self, session, what, hz, options):
        self.session, self.script, self.what, self.hz = session, session.script, what, hz
        self.id = session.new_id("resp")
        self.modalities = options.get("output_modalities") or session.config["output_modalities"]
        self.metadata = options.get("metadata")
        # The reason for which it was cut short.
        self.cancelled = None
        self.output = []

    def state(self, status, details=None):
        state = {
            "object": "realtime.response", "id": self.id, "status": status, "status_details": details, "output": self.output,
            "output_modalities": self.modalities, "metadata": self.metadata, "conversation_id": self.session.conversation_id,
            "max_output_tokens": self.session.config["max_output_tokens"],
        }
        return {**state, "usage": USAGE} if status != "in_progress" else state

    async def run(self):
        send = self.session.send
        await send("response.created", response=self.state("in_progress"))
        await send("rate_limits.updated", rate_limits=[
            {"name": name, "limit": 40_000, "remaining": 39_000, "reset_seconds": 0.25} for name in ("requests", "tokens")])
        if self.what == "caller" and self.script.calls and self.session.functions():
            await self.call_functions()
        elif self.script.answer_s:
            for number in range(self.script.items):
                if not self.cancelled:
                    await self.say(number)
        status, reason = self.script.outcome
        if self.cancelled:
            status, reason = "cancelled", self.cancelled
        details = {"type": status}
        if status == "failed":
            details["error"] = {"type": "server_error", "code": reason, "message": "The server had an error."}
        elif reason:
            details["reason"] = reason
        # A client may react to the last event before this method goes on.
        self.session.answer = None
        await send("response.done", response=self.state(status, details))

    def fields(self, item, number, **fields):
        return {"response_id": self.id, "item_id": item["id"], "output_index": number, **fields}

    async def add_item(self, item, number):
        self.output.append(item)
        await self.session.send("response.output_item.added", response_id=self.id, output_index=number, item=item)
        await self.session.add_item(item)

    async def finish_item(self, item, number):
        item["status"] = "incomplete" if self.cancelled else "completed"
        await self.session.finish_item(item)
        await self.session.send("response.output_item.done", response_id=self.id, output_index=number, item=item)

    async def say(self, number):
        session, is_text = self.session, self.modalities == ["text"]
        item = {"id": session.new_id("item"), "object": "realtime.item", "type": "message", "status": "in_progress",
                "role": "assistant", "content": []}
        words = f"Part {number + 1} of the answer. Its tone has {self.hz} hertz."
        at = self.fields(item, number, content_index=0)
        await self.add_item(item, number)
        await session.send("response.content_part.added", **at, part={"type": "text", "text": ""} if is_text
                           else {"type": "audio", "transcript": ""})
        kind = "output_text" if is_text else "output_audio_transcript"
        said = ""
        for word in words.split(" "):
            delta = word if not said else f" {word}"
            said += delta
            await session.send(f"response.{kind}.delta", **at, delta=delta)
        if not is_text:
            await self.send_audio(item, at)
            await session.send("response.output_audio.done", **at)
            await session.send("response.output_audio_transcript.done", **at, transcript=words)
            item["content"] = [{"type": "output_audio", "transcript": words}]
        else:
            await session.send("response.output_text.done", **at, text=words)
            item["content"] = [{"type": "output_text", "text": words}]
        await session.send("response.content_part.done", **at, part={"type": "text", "text": words} if is_text
                           else {"type": "audio", "transcript": words})
        await self.finish_item(item, number)

    async def send_audio(self, item, at):
        """Sends the tone, paced as the script says, until it is cut short."""
        session, script = self.session, self.script
        codec = CODECS[session.config["audio"]["output"]["format"]["type"]]
        total, size, first = round(script.answer_s * codec.rate), round(DELTA_S * codec.rate), 0
        begun = time.monotonic()
        while first < total and not self.cancelled:
            samples = tone(self.hz, codec.rate, first, min(size, total - first))
            first += len(samples)
            session.audio_ms[item["id"]] = first * 1000 // codec.rate
            await session.send("response.output_audio.delta", **at, delta=base64.b64encode(codec.encode(samples)).decode())
            if first >= script.after * total:
                await session.incident()
            # Also without a pause other tasks get their turn.
            await asyncio.sleep(max(0, begun + first / codec.rate / script.speed - time.monotonic()))

    async def call_functions(self):
        session = self.session
        for number in range(self.script.calls):
            name, call_id = self.script.function or session.functions()[0], session.new_id("call")
            item = {"id": session.new_id("item"), "object": "realtime.item", "type": "function_call", "status": "in_progress",
                    "name": name, "call_id": call_id, "arguments": ""}
            session.calls[call_id] = None
            await self.add_item(item, number)
            at = self.fields(item, number, call_id=call_id)
            half = len(self.script.arguments) // 2
            for delta in (self.script.arguments[:half], self.script.arguments[half:]):
                await session.send("response.function_call_arguments.delta", **at, delta=delta)
            await session.send("response.function_call_arguments.done", **at, name=name, arguments=self.script.arguments)
            item["arguments"] = self.script.arguments
            await self.finish_item(item, number)
