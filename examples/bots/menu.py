"""A telephone menu by keypad: 1 plays a melody, 2 plays the caller back, 3 asks for a code of three
digits and plays their tones, 0 transfers the call to a person, # hangs up.

    edge-runner -t twilio --proxy example.ngrok.app -- python3 menu.py

Without a number, `--proxy localhost` and http://localhost:7860 simulate a call. A telephone shows no text, so the
menu is spoken: by the voice of the runner (`CASCADE_TTS_URL=tcp://127.0.0.1:10200`), or from a file,
`MENU_PROMPT=menu.wav`, as `espeak-ng -w menu.wav "Press 1 for a melody"` makes it.
`MENU_OPERATOR=+15550001111` is who 0 leads to. Needs edge_bot.py beside it, and `pip install websockets`.
"""

import os
import time

import edge_bot

MENU = "Press 1 for a melody, 2 to hear yourself, 3 to enter a code, 0 for a person, # to hang up."
RATE_HZ = edge_bot.IN_RATE_HZ
BYTES_PER_S = 2 * RATE_HZ
# One low note, the prompt for a caller without a screen if nothing speaks it.
PROMPT = [(0.25, 330)]
CODE_PROMPT = [(0.25, 330), (0.25, 440)]
MELODY = [(0.25, hertz) for hertz in (523, 659, 784, 1047)]
PLAYED_BACK_S = 3
CODE_DIGITS, DIGIT_WITHIN_S = 3, 5


class Menu:
    """The state of one call. `prompt` is PCM at RATE_HZ, `operator` a number; each may be empty."""

    def __init__(self, bot, prompt=b"", operator=""):
        self.bot, self.operator, self.prompt = bot, operator, prompt
        self.code = None  # The digits that are typed.
        self.heard = None  # What the caller says, to be played back.

    def ask(self):
        """Says the menu, and shows it to callers with a screen."""
        self.bot.show(MENU)
        if self.prompt:
            self.bot.say(self.prompt, RATE_HZ)
        else:
            self.bot.speak(MENU)

    def handle_speak(self, result):
        """A runner without a voice gets a note in place of the menu, from here on."""
        if not result.get("done"):
            self.prompt = edge_bot.tones(PROMPT)
            self.bot.say(self.prompt, RATE_HZ)

    def handle_key(self, key, now):
        """A key: a digit of the code if one is asked for, else a choice. It cuts what is being said."""
        self.bot.interrupt()
        if self.code is not None:
            return self._end_code(self.code.handle_key(key, now))
        self.heard = None
        if key == "1":
            self.bot.say(edge_bot.tones(MELODY), RATE_HZ)
        elif key == "2":
            self.bot.show("Say something.")
            self.heard = bytearray()
        elif key == "3":
            self.bot.show(f"Enter {CODE_DIGITS} digits.")
            self.bot.say(edge_bot.tones(CODE_PROMPT), RATE_HZ)
            self.code = edge_bot.DigitCollector(CODE_DIGITS, DIGIT_WITHIN_S, now)
        elif key == "0" and self.operator:
            self.bot.show("One moment, I connect you.")
            self.bot.transfer(self.operator)
        elif key == "#":
            self.bot.hang_up("the caller pressed #")
        else:
            self.ask()

    def handle_audio(self, pcm, now):
        """Audio of the caller. It comes all the time, so it is the clock, too."""
        if self.code is not None:
            self._end_code(self.code.handle_timeout(now))
        if self.heard is not None:
            self.heard += pcm
            if len(self.heard) >= PLAYED_BACK_S * BYTES_PER_S:
                self.bot.say(bytes(self.heard), RATE_HZ)
                self.heard = None

    def handle_transfer(self, result):
        """Returns whether the call is the provider's now."""
        if result.get("done"):
            return True
        self.bot.show(f"No one can be reached: {result.get('error', 'no reason given')}")
        self.ask()
        return False

    def _end_code(self, keys):
        if keys is None:
            return
        self.code = None
        if len(keys) < CODE_DIGITS:
            self.bot.show(f"That were {len(keys)} digits.")
            return self.ask()
        # A code may be a secret: its tones are played, and it is not shown.
        self.bot.say(edge_bot.dtmf_tones(keys), RATE_HZ)


def read_prompt(path):
    """Returns the PCM of a WAV file at RATE_HZ, nothing without one."""
    if not path:
        return b""
    with open(path, "rb") as file:
        pcm, rate_hz = edge_bot.read_wav(file.read())
    return edge_bot.Resampler(rate_hz, RATE_HZ).convert(pcm)


def main():
    prompt = read_prompt(os.environ.get("MENU_PROMPT", ""))
    with edge_bot.connect() as bot:
        menu = Menu(bot, prompt, os.environ.get("MENU_OPERATOR", ""))
        menu.ask()
        for kind, value in bot:
            now = time.monotonic()
            if kind == "audio":
                menu.handle_audio(value, now)
            elif keys := edge_bot.key(value):
                for key in keys:
                    menu.handle_key(key, now)
            elif value.get("type") == "speak":
                menu.handle_speak(value)
            elif value.get("type") == "transfer":
                if menu.handle_transfer(value):
                    break
            else:
                bot.answer_rtvi(value)


if __name__ == "__main__":
    main()
