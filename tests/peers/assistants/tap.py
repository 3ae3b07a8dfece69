"""A relay in front of a service that we did not write: it records both directions, and checks each message."""

import asyncio
import json
import time

from protocol import Refused, check_received, check_valid
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


class Tap:
    def __init__(self, behind):
        self.behind, self.sessions, self.wrong = behind, [], []

    async def __aenter__(self):
        self.server = await serve(self.relay, "127.0.0.1", 0, max_size=None)
        port = self.server.sockets[0].getsockname()[1]
        self.url = self.behind.replace(self.behind.split("/")[2], f"127.0.0.1:{port}")
        return self

    async def __aexit__(self, *error):
        self.server.close()
        await self.server.wait_closed()
        if not any(error):
            assert not self.wrong, self.wrong

    async def relay(self, socket):
        # Messages with their times, without audio: of the client, of the service.
        session = ([], [])
        self.sessions.append(session)
        async with connect(self.behind, max_size=None, proxy=None) as behind:
            ways = [asyncio.create_task(self.forward(socket, behind, session[0], check_received)),
                    asyncio.create_task(self.forward(behind, socket, session[1], check_valid))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()

    async def forward(self, source, sink, messages, check):
        try:
            async for text in source:
                message = json.loads(text)
                try:
                    check(message)
                except (Refused, KeyError, ValueError) as error:
                    self.wrong.append(f"{message.get('type')}: {error}")
                audio = {key: "" for key in ("audio", "delta") if "audio.delta" in message["type"] or "append" in message["type"]}
                messages.append((time.monotonic(), {**message, **audio}))
                await sink.send(text)
        except ConnectionClosed:
            pass
