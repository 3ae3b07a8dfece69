"""Tests of examples/bots/menu.py without a socket. Standard library alone: `python3 tests/bots/test_menu.py`."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/bots"))

import edge_bot  # noqa: E402
import menu  # noqa: E402


class Bot:
    """Records what a bot does."""

    def __init__(self):
        self.done = []

    def __getattr__(self, name):
        return lambda *args: self.done.append((name, *args))

    def take(self, *names):
        done, self.done = self.done, []
        return [call for call in done if call[0] in names] if names else done


def call(**more):
    bot = Bot()
    return bot, menu.Menu(bot, **more)


class MenuTest(unittest.TestCase):
    def test_the_menu_is_said_and_shown(self):
        bot, own = call()
        own.ask()
        self.assertEqual(bot.take(), [("show", menu.MENU), ("speak", menu.MENU)])
        own.handle_speak({"type": "speak", "done": True})
        self.assertEqual(bot.take(), [])
        bot, own = call(prompt=b"\1\0" * 800)
        own.ask()
        self.assertEqual(bot.take("say"), [("say", b"\1\0" * 800, 16000)])

    def test_a_note_stands_for_a_menu_that_is_not_spoken(self):
        bot, own = call()
        own.ask()
        bot.take()
        own.handle_speak({"type": "speak", "done": False, "error": "the runner has no voice"})
        note = ("say", edge_bot.tones(menu.PROMPT), 16000)
        self.assertEqual(bot.take(), [note])
        own.ask()
        self.assertEqual(bot.take("speak", "say"), [note], "it is not asked again")

    def test_a_key_cuts_what_is_said_and_chooses(self):
        bot, own = call(operator="+15550001111")
        own.handle_key("1", 0)
        self.assertEqual(bot.take(), [("interrupt",), ("say", edge_bot.tones(menu.MELODY), 16000)])
        own.handle_key("#", 0)
        self.assertEqual(bot.take("hang_up"), [("hang_up", "the caller pressed #")])
        own.handle_key("0", 0)
        self.assertEqual(bot.take("transfer"), [("transfer", "+15550001111")])
        own.handle_key("7", 0)
        self.assertEqual(bot.take("show"), [("show", menu.MENU)], "an unknown key")

    def test_without_a_number_no_call_is_transferred(self):
        bot, own = call()
        own.handle_key("0", 0)
        self.assertEqual(bot.take("transfer", "show"), [("show", menu.MENU)])

    def test_the_caller_is_played_back_after_three_seconds(self):
        bot, own = call()
        own.handle_key("2", 0)
        bot.take()
        second = b"\2\0" * 16000
        for _ in range(2):
            own.handle_audio(second, 0)
        self.assertEqual(bot.take(), [])
        own.handle_audio(second, 0)
        self.assertEqual(bot.take(), [("say", second * 3, 16000)])
        own.handle_audio(second, 0)
        self.assertEqual(bot.take(), [], "once")

    def test_a_code_has_three_digits_and_is_not_shown(self):
        bot, own = call()
        own.handle_key("3", 0)
        bot.take()
        for at, key in enumerate("407"):
            own.handle_key(key, at)
        self.assertEqual(bot.take("say", "show"), [("say", edge_bot.dtmf_tones("407"), 16000)])
        own.handle_key("1", 3)
        self.assertEqual(bot.take("say"), [("say", edge_bot.tones(menu.MELODY), 16000)], "a choice again")

    def test_a_code_that_is_not_finished_is_given_up(self):
        bot, own = call()
        own.handle_key("3", 0)
        own.handle_key("4", 1)
        bot.take()
        own.handle_audio(b"", 5.9)
        self.assertEqual(bot.take(), [])
        own.handle_audio(b"", 6)
        self.assertEqual([name for name, *_ in bot.take()], ["show", "show", "speak"], "the menu again")
        own.handle_key("3", 10)
        own.handle_key("#", 10)
        self.assertEqual(bot.take("hang_up"), [], "# ends the code")

    def test_a_transfer_that_fails_returns_to_the_menu(self):
        bot, own = call(operator="+15550001111")
        self.assertTrue(own.handle_transfer({"type": "transfer", "done": True}))
        self.assertEqual(bot.take(), [])
        self.assertFalse(own.handle_transfer({"type": "transfer", "done": False, "error": "busy"}))
        self.assertEqual(bot.take("show"), [("show", "No one can be reached: busy"), ("show", menu.MENU)])

    def test_a_prompt_is_read_at_the_rate_of_the_line(self):
        self.assertEqual(menu.read_prompt(""), b"")
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            file.write(edge_bot.write_wav(bytes(44100), 22050))
            file.flush()
            self.assertAlmostEqual(len(menu.read_prompt(file.name)), 32000, delta=200)


if __name__ == "__main__":
    unittest.main()
