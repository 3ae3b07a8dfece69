"""A bot in a process: it echoes audio, and writes every message to the file `messages`."""

import asyncio
import json
import os

import aiohttp

AUDIO, MESSAGE = 2, 4


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """Returns the fields of a protobuf message by number."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        found[key >> 3] = value
    return found


async def main():
    arguments = json.loads(os.environ["RUNNER_ARGUMENTS"])
    async with aiohttp.ClientSession() as session, session.ws_connect(arguments["media_url"]) as media:
        with open("messages", "a") as messages:
            async for message in media:
                frame = fields(message.data)
                if AUDIO in frame:
                    # Audio is sent back unchanged, with its rate.
                    await media.send_bytes(message.data)
                elif MESSAGE in frame:
                    print(fields(frame[MESSAGE])[1].decode(), file=messages, flush=True)


asyncio.run(main())
