"""A scripted Realtime service on a loopback port. The model that a client names selects the script.

    realtime_server.py [--port N] [--key KEY] [--record FILE]      the record has one JSON object per line

It answers each turn with a tone: an octave above the caller's, or one of the fixed tones below. Audio runs ahead of real time, as
from the original. Every message that it sends is checked, and every message that it receives: see `protocol`.
"""

import argparse
import asyncio
import http
import json
import time
from urllib.parse import parse_qs, urlsplit

from protocol import Refused, check_received
from scripts import SCRIPTS
from session import Session
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

PATH = "/v1/realtime"
MESSAGE_BYTES_MAX = 16 << 20
# Of the checks.
KEY = "key-of-the-checks"


class Service:
    def __init__(self, key=None, record=None):
        self.key, self.record = key, record
        self.sessions, self.refused, self.failures = [], [], []
        self.port, self.server = 0, None
        self.began = time.monotonic()
        # Scripts whose single incident has happened.
        self.happened = set()

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *error):
        await self.stop()
        if not any(error):
            self.check()

    async def start(self):
        """Listens; after `stop` on the same port as before."""
        self.server = await serve(
            self.handle, "127.0.0.1", self.port, process_request=self.admit, max_size=MESSAGE_BYTES_MAX)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self):
        """Closes the port, and drops every connection without a close frame."""
        self.server.close(close_connections=False)
        for connection in list(self.server.connections):
            connection.transport.abort()
        await self.server.wait_closed()

    def url(self, model="plain"):
        return f"ws://127.0.0.1:{self.port}{PATH}?model={model}"

    def check(self):
        """Raises an error if a client sent something invalid, or the service itself failed."""
        wrong = [*self.failures, *(each for session in self.sessions for each in session.violations)]
        assert not wrong, wrong

    def note(self, session, sender, message):
        """Adds a line to the record."""
        if self.record:
            line = {"at": round(time.monotonic() - self.began, 3), "session": session.id, "from": sender, "message": message}
            self.record.write(json.dumps(line) + "\n")
            self.record.flush()

    def admit(self, connection, request):
        """Answers the request for the upgrade, if it is refused."""
        url = urlsplit(request.path)
        model = parse_qs(url.query).get("model", [""])[0]
        script = SCRIPTS.get(model)
        if url.path != PATH or script is None:
            refusal = (404, "model_not_found")
        elif script.refusal:
            refusal = script.refusal
        elif self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            refusal = (401, "invalid_api_key")
        else:
            connection.model = model
            return None
        status, code = refusal
        self.refused.append((status, code))
        error = {"message": "Refused.", "type": "invalid_request_error", "param": None, "code": code}
        response = connection.respond(http.HTTPStatus(status), json.dumps({"error": error}))
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response

    async def handle(self, socket):
        session = Session(self, socket, socket.model)
        self.sessions.append(session)
        if "OpenAI-Beta" in socket.request.headers:
            session.violations.append("the header of the retired protocol")
        try:
            await session.open()
            async for text in socket:
                await self.receive(session, text)
        except ConnectionClosed:
            pass
        except Exception as error:
            self.failures.append(repr(error))
            raise
        finally:
            session.closed = (socket.close_code, socket.close_reason)
            session.end()

    async def receive(self, session, text):
        message = None
        try:
            if not isinstance(text, str):
                raise Refused("invalid_json", "a binary message")
            message = json.loads(text)
            check_received(message)
            await session.handle(message)
        except json.JSONDecodeError:
            session.violations.append("not JSON")
            await session.refuse(Refused("invalid_json", "not JSON"), None)
        except Refused as refused:
            # A cancellation may cross the end of the answer, and a refused truncation is part of a script.
            if refused.error["code"] not in session.expected_errors:
                session.violations.append(f"{message and message.get('type')}: {refused}")
            await session.refuse(refused, message)


async def main(port, key, record):
    service = Service(key, record)
    service.port = port
    async with service:
        print(f"listening on {service.url()}", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key", help="the only accepted key; without it any is accepted")
    parser.add_argument("--record", type=argparse.FileType("w"))
    given = parser.parse_args()
    try:
        asyncio.run(main(given.port, given.key, given.record))
    except KeyboardInterrupt:
        pass
