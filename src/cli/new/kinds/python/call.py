"""A call, by the standard library alone: a WebSocket to the runner, with one protobuf frame in each
binary message.

    Frame { AudioRawFrame audio = 2; MessageFrame message = 4; InterruptionFrame interruption = 5; }
    AudioRawFrame { bytes audio = 3; uint32 sample_rate = 4; uint32 num_channels = 5; }
    MessageFrame { string data = 1; }

`answer` is for a bot. `Runner` and `Connection` are for its test.
"""

import base64
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from urllib.parse import urlsplit

RATE_HZ = 16000
AUDIO, MESSAGE, INTERRUPTION = 2, 4, 5
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
# The runner takes at most 1 MiB in one message.
SPEECH_BYTES = 65536


def answer():
    """Returns the call that the runner has started this program for."""
    # SIGTERM follows when the caller has left. It ends the `with` block, and runs `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    arguments = json.loads(os.environ.get("RUNNER_ARGUMENTS", "{}"))
    if "media_url" not in arguments:
        sys.exit("there is no call: start this file by `edge-runner bot.py`")
    return Call(arguments["media_url"], arguments)


class Connection:
    """The frames of a call: `("audio", pcm)` and `("message", dict)`, until it is over."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        status = self.stream.readline().decode().strip()
        while self.stream.readline().strip():
            pass
        if " 101 " not in f"{status} ":
            raise ConnectionError(f"the runner answers `{status}`")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._write(CLOSE, struct.pack(">H", 1000))
            # A socket that is closed with unread data drops what it has not sent yet.
            self.socket.settimeout(2)
            while self.stream.read1(65536):
                pass
        except OSError:
            pass
        self.stream.close()
        self.socket.close()

    def __iter__(self):
        while True:
            try:
                data = self._read()
            except ConnectionResetError:
                return
            if data is None:
                return
            frame = fields(data)
            if AUDIO in frame:
                yield "audio", fields(frame[AUDIO]).get(3, b"")
            elif MESSAGE in frame:
                try:
                    message = json.loads(fields(frame[MESSAGE]).get(1, b""))
                except ValueError:
                    continue
                if isinstance(message, dict):
                    yield "message", message

    def say(self, pcm, rate_hz=RATE_HZ):
        """Queues speech: 16-bit mono PCM at 8000 to 48000 Hz. The runner plays it in time."""
        for at in range(0, len(pcm), SPEECH_BYTES):
            part = pcm[at : at + SPEECH_BYTES]
            self._send(AUDIO, field(3, part) + field(4, rate_hz) + field(5, 1))

    def interrupt(self):
        """Drops the speech that has not been heard."""
        self._send(INTERRUPTION, b"")

    def send(self, message):
        """Sends a message, ahead of queued speech."""
        self._send(MESSAGE, field(1, json.dumps(message).encode()))

    def _send(self, number, content):
        self._write(BINARY, field(number, content))

    def _read(self):
        data = b""
        while True:
            head = self.stream.read(2)
            if len(head) < 2:
                return None
            length = head[1] & 127
            if length > 125:
                length = int.from_bytes(self.stream.read(2 if length == 126 else 8), "big")
            part = self.stream.read(length)
            opcode = head[0] & 15
            if opcode == CLOSE:
                return None
            if opcode == PING:
                self._write(PONG, part)
            elif opcode <= BINARY:
                data += part
                if head[0] & 128:
                    return data

    def _write(self, opcode, data):
        length = len(data)
        if length < 126:
            head = struct.pack(">BB", 128 | opcode, 128 | length)
        elif length < 65536:
            head = struct.pack(">BBH", 128 | opcode, 128 | 126, length)
        else:
            head = struct.pack(">BBQ", 128 | opcode, 128 | 127, length)
        key = os.urandom(4)
        mask = int.from_bytes((key * (length // 4 + 1))[:length], "big")
        masked = (int.from_bytes(data, "big") ^ mask).to_bytes(length, "big")
        self.socket.sendall(head + key + masked)


class Call(Connection):
    """A call, as its bot has it: `("audio", pcm)`; `("ready", None)`, once the caller's screen can
    show texts; `("text", typed)`; `("key", keys)`; `("message", dict)` for everything else."""

    def __init__(self, url, arguments):
        super().__init__(url)
        self.arguments = arguments

    def __iter__(self):
        for kind, value in super().__iter__():
            if kind == "audio":
                yield kind, value
                continue
            data = value.get("data")
            data = data if isinstance(data, dict) else {}
            about = value.get("type")
            if about == "client-ready":
                self.send(rtvi("bot-ready", {"version": "2.1.0"}, value.get("id")))
                yield "ready", None
            elif about == "send-text":
                yield "text", str(data.get("content", ""))
            elif about == "dtmf":
                # A telephone has `digit`, the keypad of a page `buttons`.
                yield "key", str(value.get("digit") or "".join(map(str, data.get("buttons", []))))
            else:
                yield kind, value

    def show(self, text):
        """Shows a text on the caller's screen. A telephone has none."""
        self.send(rtvi("bot-output", {"text": text}))


class Runner:
    """A runner on free ports, for the time of a test. EDGE_RUNNER names it if it is not in PATH."""

    def __init__(self, *arguments):
        program = os.environ.get("EDGE_RUNNER", "edge-runner")
        command = [program, "--port", "0", "--rtc-port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"listening on \S+?:(\d+)", line):
                self.url = f"ws://localhost:{found[1]}/ws-client"
                break
        else:
            raise RuntimeError("the runner does not start:\n" + "".join(self.log))
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stdout))
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        if kind:
            print("".join(self.log), file=sys.stderr)


def rtvi(kind, data, id="1"):
    """A message of RTVI, which clients with a screen speak."""
    return {"label": "rtvi-ai", "type": kind, "id": id, "data": data}


def fields(data):
    """The fields of a protobuf message by number, as integers and bytes."""
    found, at = {}, 0
    while at < len(data):
        key, at = number(data, at)
        value, at = number(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        found[key >> 3] = value
    return found


def number(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def field(key, value):
    """One field of a protobuf message."""
    if isinstance(value, int):
        return varint(key << 3) + varint(value)
    return varint(key << 3 | 2) + varint(len(value)) + value


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
