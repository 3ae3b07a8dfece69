"""Calls the bot through a runner: `python test_bot.py`, by the Python that has Pipecat."""

import pathlib
import sys
import unittest

import call

FILE = pathlib.Path(__file__).with_name("bot.py")
SPEECH = bytes([0, 16, 0, 240]) * 800


class Bot(unittest.TestCase):
    def test_is_ready_and_plays_back(self):
        with call.Runner("--python", sys.executable, FILE) as runner, call.Connection(runner.url) as caller:
            caller.socket.settimeout(120)
            caller.send(call.rtvi("client-ready", {"version": "2.1.0"}))
            is_ready, heard = False, 0
            for kind, value in caller:
                if kind == "audio":
                    heard += len(value) if any(value) else 0
                elif value["type"] == "bot-ready":
                    is_ready = True
                    for _ in range(10):
                        caller.say(SPEECH)
                if is_ready and heard > 10_000:
                    break
            self.assertTrue(is_ready)
            self.assertGreater(heard, 10_000)


if __name__ == "__main__":
    unittest.main()
