"""A voice bot in one file: it plays back what it hears.

    pip install -r requirements-echo.txt
    edge-runner -- python3 echo.py

The runner starts it once per session, with its arguments as JSON in RUNNER_ARGUMENTS. Speech and messages go over the
WebSocket at `media_url`, one protobuf frame per binary message:

    Frame { TextFrame text = 1; AudioRawFrame audio = 2; TranscriptionFrame transcription = 3;
            MessageFrame message = 4; InterruptionFrame interruption = 5; }
    AudioRawFrame { bytes audio = 3; uint32 sample_rate = 4; uint32 num_channels = 5; }     MessageFrame { string data = 1; }
"""

import json
import os
import signal
import sys

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

AUDIO, MESSAGE, INTERRUPTION = 2, 4, 5


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def read_fields(data):
    """Returns the fields of a protobuf message by their numbers: numbers and bytes."""
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


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """Writes one field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def audio_frame(pcm, rate_hz):
    """Speech: 16-bit mono PCM at any rate from 8000 to 48000 Hz."""
    return field(AUDIO, field(3, pcm) + field(4, rate_hz) + field(5, 1))


def message_frame(message):
    return field(MESSAGE, field(1, json.dumps(message).encode()))


def interruption_frame():
    """What was sent and not yet heard is dropped."""
    return field(INTERRUPTION, b"")


def answer(text):
    """Returns the answer to a message, if there is one. A client may send anything."""
    try:
        message = json.loads(text)
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    kind = message.get("type")
    if kind == "dtmf":
        print("key", message.get("digit"))
    if message.get("label") != "rtvi-ai":
        return None

    def rtvi(kind, data):
        return {"label": "rtvi-ai", "type": kind, "id": message.get("id"), "data": data}

    if kind == "client-ready":
        return rtvi("bot-ready", {"version": "2.1.0", "about": {"library": "echo.py"}})
    if kind == "client-message":
        return rtvi("server-response", message.get("data"))
    if kind == "disconnect-bot":
        sys.exit()
    return rtvi("error-response", {"error": f"Unsupported type {kind}"})


def main():
    # The session is over, or the runner stops: leave by the front door, which closes the socket.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    arguments = json.loads(os.environ["RUNNER_ARGUMENTS"])
    print("a session of kind", arguments["kind"], "with body", arguments["body"])
    # No pings: a bot that sends a long speech at once waits until it is spoken, and so would the answers to its pings.
    with connect(arguments["media_url"], compression=None, proxy=None, ping_interval=None) as media:
        try:
            for data in media:
                frame = read_fields(data)
                if AUDIO in frame:
                    audio = read_fields(frame[AUDIO])
                    media.send(audio_frame(audio.get(3, b""), audio[4]))
                elif MESSAGE in frame:
                    reply = answer(read_fields(frame[MESSAGE]).get(1, b""))
                    if reply:
                        media.send(message_frame(reply))
        except ConnectionClosed:
            pass
    print("goodbye")


if __name__ == "__main__":
    main()
