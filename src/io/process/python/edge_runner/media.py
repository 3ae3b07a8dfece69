"""The connection to the runner: a WebSocket client for `media_url`, and its protobuf frames.

    Frame { AudioRawFrame audio = 2; MessageFrame message = 4; InterruptionFrame interruption = 5; }
    AudioRawFrame { bytes audio = 3; uint32 sample_rate = 4; uint32 num_channels = 5; }
    MessageFrame { string data = 1; }

One frame per binary message. Speech is 16-bit little-endian PCM: from the runner mono at the rate
that was asked for, to the runner mono or stereo at 8000 to 48000 Hz. Sources: RFC 6455 and
docs/bots.md.
"""

import asyncio
import base64
import hashlib
import json
import os
import struct
from urllib.parse import urlsplit

AUDIO, MESSAGE, INTERRUPTION = 2, 4, 5
RATES_HZ = range(8_000, 48_001)
MESSAGE_BYTES_MAX = 1024 * 1024
"""The runner ends the session of a program that sends more in one message."""
RECEIVED_BYTES_MAX = 17 * 1024 * 1024
"""The pictures of an evaluation are long."""
AUDIO_BYTES = 64 * 1024
CLOSE_S = 2.0
CONTINUATION, BINARY, CLOSE, PING = 0, 2, 8, 9
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Media:
    """An open connection. It ends with `close`, or when the session is over."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._ended = asyncio.Event()
        self.is_open = True

    @classmethod
    async def connect(cls, url, rate_hz):
        """Connects. The caller's speech arrives at this rate, from now on."""
        parts = urlsplit(url)
        key = base64.b64encode(os.urandom(16))
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(
            f"GET {parts.path}?live=1&rate={rate_hz} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key.decode()}\r\n\r\n".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        if head[0].split()[1:2] != ["101"] or headers.get("sec-websocket-accept") != accept:
            why = await reader.read(1000)
            writer.close()
            raise ConnectionError(f"the runner refuses the media of this session: {head[0]} {why.decode(errors='replace')}")
        return cls(reader, writer)

    async def receive(self):
        """Yields `("audio", pcm, rate_hz)` and `("message", text, None)` until the session is over."""
        try:
            while (data := await self._message()) is not None:
                frame = read_fields(data)
                if AUDIO in frame:
                    audio = read_fields(frame[AUDIO])
                    yield "audio", audio.get(3, b""), audio.get(4, 0)
                elif MESSAGE in frame:
                    yield "message", read_fields(frame[MESSAGE]).get(1, b"").decode(errors="replace"), None
        except (OSError, EOFError):
            pass
        finally:
            self.is_open = False
            self._ended.set()

    async def send_audio(self, pcm, rate_hz, channels=1):
        for at in range(0, len(pcm), AUDIO_BYTES):
            part = pcm[at : at + AUDIO_BYTES]
            await self._send(AUDIO, field(3, part) + field(4, rate_hz) + field(5, channels))

    async def send_message(self, message):
        """Sends a message as JSON. Raises `ValueError` if it is too long."""
        await self.send_text(json.dumps(message))

    async def send_text(self, text):
        """Sends a message. Raises `ValueError` if it is too long."""
        data = field(1, text.encode())
        if len(data) > MESSAGE_BYTES_MAX - 16:
            raise ValueError(f"a message to the caller has {len(data)} bytes; at most {MESSAGE_BYTES_MAX} can be sent")
        await self._send(MESSAGE, data)

    async def interrupt(self):
        """Drops the speech that has not been played."""
        await self._send(INTERRUPTION, b"")

    async def close(self):
        """Ends the session once the speech that was sent has been played. `receive` has to run:
        to close a socket with unread data would discard what was sent last."""
        if self.is_open:
            self.is_open = False
            self._write(CLOSE, struct.pack(">H", 1000))
            try:
                await asyncio.wait_for(self._ended.wait(), CLOSE_S)
            except asyncio.TimeoutError:
                pass
        self._writer.close()

    async def _message(self):
        parts = bytearray()
        while True:
            first, second = await self._reader.readexactly(2)
            length = second & 0x7F
            if length > 125:
                length = int.from_bytes(await self._reader.readexactly(2 if length == 126 else 8), "big")
            if len(parts) + length > RECEIVED_BYTES_MAX:
                raise ConnectionError("the runner sent too long a message")
            data = await self._reader.readexactly(length)
            opcode = first & 0x0F
            if opcode == CLOSE:
                if self.is_open:
                    self._write(CLOSE, data[:2])
                return None
            if opcode == PING:
                self._write(PING + 1, data)
            elif opcode <= BINARY:
                parts += data
                if first & 0x80:
                    return bytes(parts)

    async def _send(self, number, content):
        if self.is_open:
            self._write(BINARY, field(number, content))
            try:
                await self._writer.drain()
            except OSError:
                self.is_open = False

    def _write(self, opcode, data):
        length = len(data)
        head = bytes([0x80 | opcode])
        if length < 126:
            head += bytes([0x80 | length])
        elif length < 1 << 16:
            head += struct.pack(">BH", 0x80 | 126, length)
        else:
            head += struct.pack(">BQ", 0x80 | 127, length)
        key = os.urandom(4)
        self._writer.write(head + key + masked(data, key))


def masked(data, key):
    """Returns data with the mask of a client's frame, which is its own inverse."""
    mask = (key * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(len(data), "little")


def read_fields(data):
    """Returns the fields of a protobuf message by number, as integers and bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        elif key & 7 != 0:
            raise ConnectionError(f"the runner sent a field of type {key & 7}")
        fields[key >> 3] = value
    return fields


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def field(number, value):
    """Returns one field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
