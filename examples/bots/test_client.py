"""Calls a bot without a browser: says a tone, types a text, and checks what comes back.

    edge-runner -- python3 examples/bots/echo.py
    python3 examples/bots/test_client.py
"""

import math
import signal
import struct
import sys

import edge_bot
from websockets.sync import client

# `/ws-client` plays at 24 kHz, at any rate of the bot.
PLAYS_HZ = 24000


def rtvi(kind, data):
    return {"label": "rtvi-ai", "type": kind, "id": kind, "data": data}


def main(url="ws://localhost:7860/ws-client"):
    signal.alarm(30)  # A bot that never answers fails the test.
    tone = [int(8000 * math.sin(math.tau * 440 * n / 16000)) for n in range(16000)]
    shown, seconds = [], 0
    with edge_bot.Bot({}, client.connect(url, proxy=None)) as call:
        call.send(rtvi("client-ready", {"version": "2.1.0"}))
        call.send(rtvi("send-text", {"content": "hi"}))
        call.say(struct.pack(f"<{len(tone)}h", *tone), 16000)
        for kind, value in call:
            if kind == "audio":
                seconds += len(value) / 2 / PLAYS_HZ
            elif value.get("type") == "bot-output":
                shown.append(value["data"]["text"])
            if seconds > 0.9 and "You wrote: hi" in shown:
                break
    assert seconds > 0.9, f"the bot said {seconds:.1f} s and showed {shown}"
    assert "You wrote: hi" in shown, f"the bot showed {shown}"
    print(f"the bot said {seconds:.1f} s and showed {shown}")


if __name__ == "__main__":
    main(*sys.argv[1:])
