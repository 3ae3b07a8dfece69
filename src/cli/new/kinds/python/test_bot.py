"""Calls the bot through a runner: `python3 test_bot.py`."""

import pathlib
import sys
import unittest

import bot
import call

FILE = pathlib.Path(__file__).with_name("bot.py")
SPEECH = bytes([0, 16, 0, 240]) * 8000


class Bot(unittest.TestCase):
    def test_replies_to_a_text(self):
        self.assertEqual(bot.reply("hi"), "You wrote: hi")

    def test_greets_plays_back_and_answers(self):
        with call.Runner("--python", sys.executable, FILE) as runner, call.Connection(runner.url) as caller:
            caller.socket.settimeout(60)
            caller.send(call.rtvi("client-ready", {"version": "2.1.0"}))
            caller.send(call.rtvi("send-text", {"content": "hi"}))
            caller.say(SPEECH)
            shown, heard = [], 0
            for kind, value in caller:
                if kind == "audio":
                    heard += len(value) if any(value) else 0
                elif value["type"] == "bot-output":
                    shown.append(value["data"]["text"])
                if heard > 10_000 and len(shown) == 2:
                    break
            self.assertEqual(shown, ["Hello! I play back what you say.", bot.reply("hi")])
            self.assertGreater(heard, 10_000)


if __name__ == "__main__":
    unittest.main()
