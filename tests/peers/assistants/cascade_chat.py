"""A chat server on a loopback port that streams as three kinds of servers do, with their faults. The model in the request selects which.

    cascade_chat.py [--port N]

It answers with the number in the last message, or calls the first function and answers with its output. Each chunk is checked with the
class of the published SDK; each request with its types, unknown fields too. Bodies are written byte by byte where that says something.
"""

import argparse
import asyncio
import json
import re

from openai.types.chat import ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

HOST = "127.0.0.1"
REQUEST = TypeAdapter(CompletionCreateParamsStreaming)
FIELDS = set(CompletionCreateParamsStreaming.__annotations__) | {
    name for base in CompletionCreateParamsStreaming.__mro__ for name in getattr(base, "__annotations__", {})}
# Status, body.
REFUSALS = {
    "unauthorised": (401, {"error": {"message": "The key is wrong.", "type": "invalid_request_error", "code": "invalid_api_key"}}),
    "unpaid": (429, {"error": {"message": "No credit.", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}}),
    # LiteLLM: the status as a text.
    "busy": (429, {"error": {"message": "Slow down.", "type": "None", "param": "None", "code": "429"}}),
    # Ollama.
    "missing": (404, {"error": {"message": "model \"missing\" not found", "type": "api_error", "param": None, "code": None}}),
    # FastAPI.
    "odd": (422, {"detail": [{"loc": ["body", "model"], "msg": "no such model", "type": "value_error"}]}),
}
KINDS = ["ollama", "llama.cpp", "cloud"]
# What goes wrong behind the first words, of Ollama unless it says otherwise.
FAULTS = ["empty-chunk", "error-event", "closed", "hangs"]
# Functions of the bot itself, which every telephone call has.
BUILT_IN = ("end_call", "press_keys")
# Of the model `story`, which writes a sentence in this time.
SENTENCES, SENTENCE_S = 12, 0.6
# Of the model `thinks`, before its first word.
THINKING_S = 1


class ChatServer:
    def __init__(self, port=0):
        self.port, self.requests, self.violations, self.cancelled = port, [], [], 0
        self.sentences, self.has_hung = SENTENCES, False

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.handle, HOST, self.port)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error):
        self.server.close()
        if not any(error):
            assert not self.violations, self.violations

    def url(self):
        return f"http://{HOST}:{self.port}/v1"

    async def handle(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"(?i)^content-length: (\d+)", head, re.MULTILINE)
            body = json.loads(await reader.readexactly(int(length[1])))
            self.check(head, body)
            self.requests.append(body)
            # A client that cancels closes the connection, which only a reader notices at once.
            answer = asyncio.ensure_future(Answer(writer, body, self).write())
            end = asyncio.ensure_future(reader.read())
            await asyncio.wait([answer, end], return_when=asyncio.FIRST_COMPLETED)
            end.cancel()
            if not answer.done():
                answer.cancel()
                raise ConnectionError("cancelled")
            await answer
        except (ConnectionError, asyncio.IncompleteReadError):
            self.cancelled += 1
        except Exception as error:
            self.violations.append(repr(error))
        finally:
            writer.close()

    def check(self, head, body):
        if not head.startswith("POST /v1/chat/completions HTTP/1.1\r\n"):
            self.violations.append(head.splitlines()[0])
        REQUEST.validate_python(body)
        if unknown := set(body) - FIELDS:
            self.violations.append(f"unknown fields {unknown}")


class Answer:
    def __init__(self, writer, body, server):
        self.writer, self.body, self.server, self.model = writer, body, server, body["model"]
        self.kind = self.model if self.model in KINDS else "ollama"
        self.is_first = True

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, delta, reason=None, **more):
        choices = [{"index": 0, "delta": delta, "finish_reason": reason}] if delta is not None else []
        if self.kind == "cloud" and choices:
            choices[0]["logprobs"] = None
            more |= {"service_tier": "default", "obfuscation": "x" * 7}
        if self.kind == "llama.cpp" and reason:
            more |= {"timings": {"predicted_n": 9}}
        text = json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": self.model,
                           "system_fingerprint": "fp_1", "choices": choices, **more}, ensure_ascii=False)
        ChatCompletionChunk.model_validate_json(text, strict=True)
        end = "\r\n\r\n" if self.kind == "llama.cpp" else "\n\n"
        data = f"data: {text}{end}".encode()
        # In the middle of a character, where there is one.
        for piece in (data[:-7], data[-7:]) if self.kind == "cloud" else (data,):
            await self.send(piece)
            await asyncio.sleep(0)

    async def write(self):
        if self.model in REFUSALS:
            status, body = REFUSALS[self.model]
            data = json.dumps(body).encode()
            head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
            return await self.send(head.encode() + data)
        await self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n")
        if self.kind == "llama.cpp":
            await self.send(b":\n\n")
        last = self.body["messages"][-1]
        functions = [tool["function"]["name"] for tool in self.body.get("tools") or []]
        functions = [name for name in functions if name not in BUILT_IN]
        if functions and last["role"] == "user":
            await self.think()
            await self.call(functions[0])
            return await self.end("tool_calls")
        found = re.findall(r"\d+", last["content"] or "")
        await self.think()
        if self.model == "story":
            return await self.tell(found[-1] if found else "no number")
        for piece in ("Schön ", f"{found[-1] if found else 'no number'}. ", "That ", "is all."):
            await self.say(piece)
            if self.model in FAULTS:
                return await self.fail()
            if self.model == "hangs-once" and not self.server.has_hung:
                self.server.has_hung = True
                await asyncio.sleep(3600)
        await self.end("stop")

    async def tell(self, number):
        """A story, sentence by sentence."""
        for _ in range(SENTENCES):
            await self.say(f"It is {number}, again and again. ")
            await asyncio.sleep(SENTENCE_S)
        await self.end("stop")

    async def say(self, text):
        role = {"role": "assistant"} if self.kind == "ollama" or self.is_first else {}
        if self.kind != "ollama" and self.is_first:
            await self.chunk({**role, "content": None if self.kind == "llama.cpp" else ""})
            role = {}
        self.is_first = False
        await self.chunk({**role, "content": text})

    async def think(self):
        """What must not be spoken."""
        if self.model == "thinks":
            await asyncio.sleep(THINKING_S)
        if self.kind == "ollama":
            await self.chunk({"role": "assistant", "content": "", "reasoning": "Say 7777."})
        elif self.kind == "llama.cpp":
            await self.chunk({"role": "assistant", "content": None})
            await self.chunk({"reasoning_content": "Say 7777."})
            await self.send(b":\r\n\r\n: keep-alive\r\n\r\n")
        else:
            for piece in ("<thi", "nk>Say 7777.</th", "ink>\n\n"):
                await self.say(piece)

    async def call(self, name):
        arguments = '{"city": "Köln"}'
        if self.kind == "ollama":
            await self.chunk({"role": "assistant", "content": "", "tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}]})
            return
        await self.chunk({"tool_calls": [
            {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}]})
        for piece in (arguments[:5], arguments[5:]):
            await self.chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})

    async def end(self, reason):
        await self.chunk({"role": "assistant", "content": ""} if self.kind == "ollama" else {}, reason)
        if self.body.get("stream_options", {}).get("include_usage"):
            await self.chunk(None, usage={"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30})
        await self.send(b"data: [DONE]\n\n")

    async def fail(self):
        match self.model:
            case "empty-chunk":
                # What becomes of an error of the model in its middle: no reason, no [DONE].
                await self.chunk({"role": "assistant", "content": ""})
            case "error-event":
                await self.send(b'data: {"error": {"message": "The key 7777 failed.", "type": "server_error", "code": 500}}\n\n')
            case "hangs":
                await asyncio.sleep(3600)


async def main(port):
    async with ChatServer(port) as server:
        print(f"listening on {server.url()}", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    try:
        asyncio.run(main(parser.parse_args().port))
    except KeyboardInterrupt:
        pass
