"""A caller of many in a stage: it plays a tone, and keeps of what it hears only when each bot was loud.

A pause in that is a gap of the talk, and two bots that are loud at once are one too many.
"""

import asyncio
import time

import numpy as np
from livekit import rtc

from caller import RATE, Caller
from jobs import bots

# The echo of the tone is above, silence and what is left of a lost packet below.
LOUD = 1500
BLOCK_MS = 50


class Listener(Caller):
    def __init__(self, hz=440):
        super().__init__(hz)
        # By identity, the seconds of loud blocks.
        self.loud = {}
        # (seconds, the bots that were in the room from then on)
        self.bots = []
        self.records = 0
        for event in ("participant_connected", "participant_disconnected"):
            self.room.on(event, lambda _: self.count_bots())

    def count_bots(self):
        self.bots.append((time.monotonic(), tuple(sorted(bots(self)))))

    async def join(self, url, token):
        await super().join(url, token)
        self.count_bots()
        return self

    async def listen(self, track, identity):
        async for event in rtc.AudioStream(track, sample_rate=RATE, num_channels=1, frame_size_ms=BLOCK_MS):
            pcm = np.frombuffer(event.frame.data, dtype=np.int16)
            if pcm.max(initial=0) > LOUD:
                self.loud.setdefault(identity, []).append(time.monotonic())
            if self.records:
                self.received.setdefault(identity, []).append(pcm.astype(float))

    async def listen_for(self, seconds, identity=None):
        self.records += 1
        try:
            return await super().listen_for(seconds, identity)
        finally:
            self.records -= 1
            if not self.records:
                self.received.clear()

    async def play(self, source):
        # A multiple of 20 Hz has whole periods in a block.
        assert self.hz % 20 == 0, self.hz
        count = RATE * BLOCK_MS // 1000
        tone = (np.sin(2 * np.pi * self.hz * np.arange(count) / RATE) * 10000).astype(np.int16).tobytes()
        while True:
            await source.capture_frame(rtc.AudioFrame(tone, RATE, 1, count))

    def times(self, since):
        """Returns the seconds of all loud blocks after `since`."""
        return sorted(at for times in self.loud.values() for at in times if at > since)

    def gap(self, since, until=None):
        """Returns the longest time after `since` in which no bot was loud, and its end; up to now, or `until`, if it goes on."""
        until = until or time.monotonic()
        at = [since, *(one for one in self.times(since) if one < until), until]
        return max((after - before, after) for before, after in zip(at, at[1:]))

    def heard_again(self, since):
        """Returns whether a bot has been loud in each of the last three half seconds."""
        now = time.monotonic()
        recent = self.times(max(since, now - 1.5))
        return all(any(now - 0.5 * (n + 1) <= at < now - 0.5 * n for at in recent) for n in range(3))

    def two_bots(self, since):
        """Returns for how many seconds after `since` two bots were in the room, and for how many both were loud."""
        timeline = [*self.bots, (time.monotonic(), ())]
        there = sum(after - max(at, since) for (at, bots), (after, _) in zip(timeline, timeline[1:])
                    if len(bots) > 1 and after > since)
        block = BLOCK_MS / 1000
        loud = [{round(at / (2 * block)) for at in times if at > since} for times in self.loud.values()]
        both = {at for n, one in enumerate(loud) for other in loud[n + 1:] for at in one & other}
        return there, len(both) * 2 * block


async def until_all(wanted, callers, what, limit_s):
    """Waits until it holds for every caller."""
    start = time.monotonic()
    while (late := [caller for caller in callers if not wanted(caller)]):
        if time.monotonic() - start > limit_s:
            raise AssertionError(f"not within {limit_s} s for {len(late)} of {len(callers)}: {what}; told {late[0].events[-8:]}")
        await asyncio.sleep(0.1)
    return time.monotonic() - start
