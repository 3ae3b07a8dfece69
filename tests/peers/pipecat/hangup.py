"""A REST server of the providers, and the request of Pipecat when a call ends, which the runner must match."""

import asyncio
import contextlib
from unittest import mock

import aiohttp
from pipecat.frames.frames import EndFrame
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer

# With the variable names of Pipecat.
CREDENTIALS = {
    "TWILIO_ACCOUNT_SID": "AC0123", "TWILIO_AUTH_TOKEN": "secret-a", "TELNYX_API_KEY": "KEY-secret-b",
    "PLIVO_AUTH_ID": "MA0123", "PLIVO_AUTH_TOKEN": "secret-c",
}


class Server:
    """Records requests, and answers each like the providers answer a hang-up."""

    answer = b"{}"

    async def __aenter__(self):
        self.requests = []
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "http://127.0.0.1:{}".format(self.server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *error):
        self.server.close()

    def environment(self):
        return {**CREDENTIALS, **{f"TELCO_{letter}_API_URL": self.url for letter in "ABC"}}

    async def _serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *lines = head.strip().split("\r\n")
                headers = {key.lower(): value.strip() for key, value in (text.split(":", 1) for text in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path, _ = line.split(" ")
                self.requests.append((method, path, headers.get("authorization"), headers.get("content-type"), body))
                answer = b"" if method == "DELETE" else self.answer
                status = b"204 No Content" if method == "DELETE" else b"200 OK"
                length = b"" if method == "DELETE" else b"Content-Length: %d\r\n" % len(answer)
                writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n%s\r\n%s" % (status, length, answer))
                await writer.drain()


async def pipecat_asks(provider):
    """Returns the request with which Pipecat's serializer ends the call."""
    key = CREDENTIALS
    serializer = {
        "telephony_a": lambda: TwilioFrameSerializer(
            provider.stream, provider.call, key["TWILIO_ACCOUNT_SID"], key["TWILIO_AUTH_TOKEN"]),
        "telephony_b": lambda: TelnyxFrameSerializer(
            provider.stream, "PCMU", "PCMU", provider.call, key["TELNYX_API_KEY"]),
        "telephony_c": lambda: PlivoFrameSerializer(
            provider.stream, provider.call, key["PLIVO_AUTH_ID"], key["PLIVO_AUTH_TOKEN"]),
    }[provider.transport]()
    async with Server() as server:
        class Nearby(aiohttp.ClientSession):
            """Replaces the host of the provider by the local server."""

            async def _request(self, method, url, **options):
                return await super()._request(method, server.url + "/" + str(url).split("/", 3)[3], **options)

        with mock.patch("aiohttp.ClientSession", Nearby):
            await serializer.serialize(EndFrame())
        assert len(server.requests) == 1, server.requests
        return server.requests[0]
