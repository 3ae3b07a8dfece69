"""A voice bot that plays back what it hears, and answers messages.

    pip install websockets
    edge-runner -- python3 examples/bots/echo.py
    # Open http://localhost:7860, press Connect and talk.
"""

import edge_bot


def main():
    with edge_bot.connect() as bot:
        print("session of kind", bot.arguments["kind"], "with body", bot.arguments["body"])
        for kind, value in bot:
            if kind == "audio":
                bot.say(value, edge_bot.IN_RATE_HZ)
            elif value.get("type") == "dtmf":
                print("key", value.get("digit"))
            else:
                bot.answer_rtvi(value)
    print("goodbye")


if __name__ == "__main__":
    main()
