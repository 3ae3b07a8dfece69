"""A voice bot: it plays back what it hears, and answers texts and keys.

    edge-runner bot.py

Then open http://localhost:7860, press Connect and talk. The file runs once for each call.
"""

import call


def reply(text):
    """Returns the answer to a typed text."""
    return f"You wrote: {text}"


def main():
    with call.answer() as caller:
        print("a call of kind", caller.arguments["kind"])
        for kind, value in caller:
            if kind == "audio":
                # 16-bit mono PCM at 16000 Hz. Replace this line by what your bot hears and says.
                caller.say(value)
            elif kind == "ready":
                caller.show("Hello! I play back what you say.")
            elif kind == "text":
                caller.show(reply(value))
            elif kind == "key":
                caller.show(f"You pressed {value}.")


if __name__ == "__main__":
    main()
