"""A bot for the check of marks: it speaks, marks, continues, and interrupts itself when the first mark returns."""

import asyncio
import json
import os
import pathlib
import sys

# At the end, because that folder has one with the name of the package.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from pipecat.frames.frames import (
    InputTransportMessageFrame, InterruptionFrame, OutputAudioRawFrame, OutputTransportMessageFrame,
)
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from sound import tone
from websockets.asyncio.client import connect

RATE = 16_000


async def main():
    arguments = json.loads(os.environ["RUNNER_ARGUMENTS"])
    frames = ProtobufFrameSerializer()
    async with connect(arguments["media_url"], proxy=None) as socket:
        async def send(frame):
            await socket.send(await frames.serialize(frame))

        for name, seconds in (("one", 1), ("two", 5)):
            await send(OutputAudioRawFrame(tone(440, RATE, 0, seconds * RATE).tobytes(), RATE, 1))
            await send(OutputTransportMessageFrame({"type": "mark", "name": name}))
        async for data in socket:
            frame = await frames.deserialize(data)
            if isinstance(frame, InputTransportMessageFrame) and frame.message.get("type") == "mark":
                print(arguments["transport_type"], frame.message["name"], frame.message["played"], flush=True)
                if frame.message["name"] == "two":
                    return
                await send(InterruptionFrame())


asyncio.run(main())
