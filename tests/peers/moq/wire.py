"""How a peer, which is a process of its own, speaks with the check: a JSON object per line, commands in, events out."""

import asyncio
import base64
import json
import math
import sys
import time

import numpy

# -12 dB of full scale.
AMPLITUDE = 8000
FRAME_S = 0.02


def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


async def commands():
    """What the check asks for, until it closes the pipe."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


def tone(hz, rate, first, count):
    """`count` samples of a sine, as if it had begun `first` samples ago: 16-bit mono PCM."""
    at = numpy.arange(first, first + count)
    return (AMPLITUDE * numpy.sin(2 * math.pi * hz * at / rate)).astype("<i2").tobytes()


async def frames(hz, rate):
    """20 ms of a tone at a time, in real time, each with the time in microseconds since the first."""
    size, count, start = int(rate * FRAME_S), 0, time.monotonic()
    while True:
        yield tone(hz, rate, count * size, size), int(count * FRAME_S * 1e6)
        count += 1
        await asyncio.sleep(max(0, start + count * FRAME_S - time.monotonic()))


class Recording:
    """Collects audio of the runner while somebody asks for it."""

    def __init__(self, rate):
        self.rate, self.pcm, self.wanted = rate, bytearray(), False
        self.total = 0

    def take(self, pcm):
        self.total += len(pcm) // 2
        if self.wanted:
            self.pcm += pcm

    async def hear(self, seconds):
        """Tells what came until it was that long, or until twice the time and two seconds passed."""
        self.pcm, self.wanted, start = bytearray(), True, time.monotonic()
        while len(self.pcm) < seconds * self.rate * 2 and time.monotonic() - start < 2 * seconds + 2:
            await asyncio.sleep(FRAME_S)
        self.wanted = False
        tell("heard", rate=self.rate, took=time.monotonic() - start, pcm=base64.b64encode(self.pcm).decode())
