"""A voice bot that plays back what it hears, shows what is typed, and tells which keys were pressed.

    pip install websockets
    edge-runner -- python3 examples/bots/echo.py
    # Open http://localhost:7860, press Connect and talk.
"""

import edge_bot


def main():
    with edge_bot.connect() as bot:
        print("session of kind", bot.arguments["kind"], "with body", bot.arguments["body"])
        try:
            for kind, value in bot:
                if kind == "audio":
                    bot.say(value, edge_bot.IN_RATE_HZ)
                elif keys := edge_bot.key(value):
                    print("key", keys)
                    bot.show(f"You pressed {keys}.")
                else:
                    bot.answer_rtvi(value, on_text=lambda text: f"You wrote: {text}")
                    if value.get("type") == "client-ready":
                        bot.show("Hello! I play back what you say.")
        finally:
            # This also runs on SIGTERM, which follows when the caller has left.
            print("goodbye")


if __name__ == "__main__":
    main()
