"""A bot on the telephone: it plays the caller back, sends every key back, hangs up at `#`, and at `0` transfers the call to
`body.operator`. Its messages go to the file `messages`."""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "bots"))

import edge_bot

with edge_bot.connect() as bot, open("messages", "a") as messages:
    operator = bot.arguments["body"].get("operator", "")
    for kind, value in bot:
        if kind == "audio":
            bot.say(value)
            continue
        print(json.dumps(value), file=messages, flush=True)
        if value.get("type") == "transfer":
            if value["done"]:
                break
            print("the call was not transferred:", value["error"], file=sys.stderr, flush=True)
        elif pressed := edge_bot.key(value):
            if pressed == "#":
                bot.hang_up("the caller asked for it")
            elif pressed == "0":
                bot.transfer(operator)
            else:
                bot.send_keys(pressed)
