"""The protobuf connection of a bot: one file to copy beside your own. Its only dependency is
`pip install websockets`.

    with edge_bot.connect() as bot:
        for kind, value in bot:
            if kind == "audio":          # 16-bit mono PCM at 16000 Hz
                bot.say(value, 16000)
            elif keys := edge_bot.key(value):
                bot.show(f"You pressed {keys}.")
            else:                        # any other message, a dictionary
                bot.answer_rtvi(value, on_text=lambda text: f"You wrote: {text}")

Audio and messages pass over the WebSocket at `media_url` of RUNNER_ARGUMENTS, one protobuf frame
per binary message:

    Frame { TextFrame text = 1; AudioRawFrame audio = 2; TranscriptionFrame transcription = 3;
            MessageFrame message = 4; InterruptionFrame interruption = 5; }
    AudioRawFrame { bytes audio = 3; uint32 sample_rate = 4; uint32 num_channels = 5; }
    MessageFrame { string data = 1; }
"""

import json
import os
import signal
import sys

from websockets.exceptions import ConnectionClosed
from websockets.sync import client

AUDIO, MESSAGE, INTERRUPTION = 2, 4, 5
IN_RATE_HZ = 16000


def connect():
    """Connects to the media of the session. SIGTERM ends the `with` block."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    arguments = json.loads(os.environ.get("RUNNER_ARGUMENTS", "null"))
    if arguments is None:
        sys.exit("no RUNNER_ARGUMENTS: the runner starts a bot: `edge-runner -- python3 bot.py`")
    if "media_url" not in arguments:
        sys.exit("no media_url: start the runner without `--bot-audio pcm`")
    # No pings: the runner does not read their answers while more than 40 s of speech wait.
    socket = client.connect(arguments["media_url"], compression=None, proxy=None, ping_interval=None)
    return Bot(arguments, socket)


class Bot:
    """A session. Iterating over it yields `("audio", bytes)` and `("message", dict)` until the
    session is over."""

    def __init__(self, arguments, socket):
        self.arguments = arguments
        self.socket = socket

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def __iter__(self):
        try:
            for data in self.socket:
                frame = read_fields(data)
                if AUDIO in frame:
                    yield "audio", read_fields(frame[AUDIO]).get(3, b"")
                elif MESSAGE in frame:
                    message = parse(read_fields(frame[MESSAGE]).get(1, b""))
                    if message is not None:
                        yield "message", message
        except ConnectionClosed:
            pass

    def say(self, pcm, rate_hz=IN_RATE_HZ):
        """Queues speech: 16-bit mono PCM at 8000 to 48000 Hz."""
        self._send(AUDIO, field(3, pcm) + field(4, rate_hz) + field(5, 1))

    def send(self, message):
        """Sends a message to the caller, ahead of queued speech."""
        self._send(MESSAGE, field(1, json.dumps(message).encode()))

    def interrupt(self):
        """Drops the speech that has not been played."""
        self._send(INTERRUPTION, b"")

    def mark(self, name):
        """Sets a mark: `{"type": "mark", "name": .., "played": ..}` comes back once all speech before
        it was played."""
        self.send({"type": "mark", "name": name})

    def show(self, text):
        """Shows a text on the caller's screen. For a telephone, the runner drops it."""
        data = {"text": text, "will_be_spoken": False}
        self.send({"label": "rtvi-ai", "type": "bot-output", "data": data})

    def answer_rtvi(self, message, on_message=lambda data: data, on_text=None):
        """Answers an RTVI message. Ignores keys and messages that are not RTVI.

        The handshake gets `bot-ready`. A message of the application gets the result of
        `on_message(data)`. For typed text, what `on_text(content)` returns is shown, unless it is
        empty. `disconnect-bot` ends the program. Everything else gets `error-response`.
        """
        if message.get("label") != "rtvi-ai" or key(message):
            return
        kind, data = message.get("type"), message.get("data")
        if kind == "client-ready":
            self._reply(message, "bot-ready", {"version": "2.1.0", "about": {"library": "edge_bot.py"}})
        elif kind == "client-message":
            self._reply(message, "server-response", on_message(data))
        elif kind == "send-text" and on_text is not None:
            shown = on_text(data.get("content", "") if isinstance(data, dict) else "")
            if shown:
                self.show(shown)
        elif kind == "disconnect-bot":
            sys.exit()
        else:
            self._reply(message, "error-response", {"error": f"Unsupported type {kind}"})

    def _reply(self, message, kind, data):
        self.send({"label": "rtvi-ai", "type": kind, "id": message.get("id"), "data": data})

    def _send(self, number, content):
        try:
            self.socket.send(field(number, content))
        except ConnectionClosed:
            pass  # The iteration ends with the session.


def key(message):
    """Returns the telephone keys in a message, mostly one, as in "5"; "" in any other message.

    A telephone call sends `{"type": "dtmf", "digit": "5"}`; a page with a keypad sends RTVI's
    `{"label": "rtvi-ai", "type": "dtmf", "data": {"buttons": ["5"]}}`.
    """
    if message.get("type") != "dtmf":
        return ""
    if message.get("label") != "rtvi-ai":
        return str(message.get("digit", ""))
    data = message.get("data")
    buttons = data.get("buttons") if isinstance(data, dict) else None
    return "".join(map(str, buttons)) if isinstance(buttons, list) else ""


def parse(text):
    """Returns the JSON object of a message, or `None` for anything else that a client sends."""
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def read_fields(data):
    """Returns the fields of a protobuf message by number, as integers and bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        elif key & 7 != 0:
            raise ValueError(f"a field of type {key & 7}")
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
