"""What each call begins with, without a caller, for a process that waits for its call.

A forked process copies each page of memory when it writes to it for the first time, and Python writes to what it only reads:
it counts references. These copies, about 1,600, were half of the time from the beginning of a call to `bot-ready`. So a process
that waits connects a transport of its own to a server of its own, and runs a pipeline that is ready, speaks and ends. Nothing
of the bot is called. The module imports Pipecat, so it is imported before the fork.
"""

import asyncio
import base64
import hashlib
import json

from pipecat.frames.frames import TTSAudioRawFrame, TTSStartedFrame, TTSStoppedFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner

from . import media, transport
from .session import Session, WebRtcCaller

LIMIT_S = 5
READY = {"label": "rtvi-ai", "type": "client-ready", "id": "ready", "data": {"version": "2.1.0"}}
CLOSED = bytes([0x80 | media.CLOSE, 2]) + (1000).to_bytes(2, "big")


class RehearsedTransport(transport.EdgeTransport):
    def __init__(self, session, params):
        super().__init__(WebRtcCaller(session), params)
        self.has_answered = asyncio.Event()

    async def send(self, message):
        await super().send(message)
        if message.get("type") == "bot-ready":
            self.has_answered.set()


def rehearse():
    """Runs a pipeline from its connection to its end. Raises what fails, and an error after `LIMIT_S`."""
    asyncio.run(asyncio.wait_for(run_call(), LIMIT_S))


async def run_call():
    async def accept(reader, writer):
        await answer(reader, writer, rehearsed.has_answered)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        session = Session({"session_id": "rehearsal", "media_url": f"ws://127.0.0.1:{port}/"})
        rehearsed = RehearsedTransport(session, TransportParams(audio_in_enabled=True, audio_out_enabled=True))
        await run_bot(rehearsed)
    finally:
        server.close()


async def run_bot(rehearsed):
    """What most bots do."""
    worker = PipelineWorker(Pipeline([rehearsed.input(), rehearsed.output()]))
    runner = WorkerRunner(handle_sigint=False)

    @rehearsed.event_handler("on_client_connected")
    async def on_client_connected(_transport, _client):
        await worker.queue_frames([TTSStartedFrame(), TTSAudioRawFrame(bytes(1920), 24_000, 1), TTSStoppedFrame()])

    @rehearsed.event_handler("on_client_disconnected")
    async def on_client_disconnected(_transport, _client):
        await runner.cancel()

    await runner.add_workers(worker)
    await runner.run()


async def answer(reader, writer, has_answered):
    """The runner's end of the connection: its client is ready, and hangs up once the bot is."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    key = head.split("Sec-WebSocket-Key: ")[1].split("\r\n")[0]
    accepted = base64.b64encode(hashlib.sha1(key.encode() + media.GUID).digest()).decode()
    writer.write(f"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: {accepted}\r\n\r\n".encode())
    writer.write(frame(media.MESSAGE, media.field(1, json.dumps(READY).encode())))
    writer.write(frame(media.AUDIO, media.field(3, bytes(640)) + media.field(4, 16_000)))
    await has_answered.wait()
    writer.write(CLOSED)
    writer.close()


def frame(number, content):
    """Returns a message of a server. RFC 6455, section 5.2."""
    data = media.field(number, content)
    return bytes([0x80 | media.BINARY, 126]) + len(data).to_bytes(2, "big") + data
