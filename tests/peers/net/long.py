"""A long call on loopback through a relay that drops and delays packets: it continues, and its echo does not drift.

The caller beeps every three seconds. Where a beep comes back is read from the timestamps of the runner's packets, as a player
does, and where those lie in time from the soonest packet.
"""

import array
import asyncio
import json
import pathlib
import re
import statistics
import sys
import time

import aioice.stun
from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterFrame

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "aiortc"))

from client import FRAME, RATE, Client, Tone
from reference import judge
from relay import Relay, is_media
from runner import Runner

LOSS, DELAY_S = 0.1, 0.5
# aioice gives up an answer to its consent checks after half of what one takes here.
aioice.stun.RETRY_RTO = 4 * DELAY_S
BEEPS_APART_S = 3
# The packets of one way are as many.
UNKNOWN = 10
# The echo is read in frames of 20 ms, at both ends, and the jitter buffer adds one.
STEP_S = 0.06
# Parts of the call. The first and the last are compared.
PARTS = 2
# The log line of the session about received audio.
TALLY = re.compile(r"audio: (\d+) received, (\d+) lost \((\d+) recovered, (\d+) concealed\)")


class Beeps(Tone):
    """100 ms of the tone every three seconds."""

    async def recv(self):
        number = self.sent
        frame = await super().recv()
        if number % (BEEPS_APART_S * 50) >= 5:
            frame.planes[0].update(bytes(2 * FRAME))
        return frame


class Recorder(Client):
    """Records the packets of the runner, without the jitter buffer of the caller, which drops more than the network does."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.microphone, self.packets = None, {}

    def track(self):
        self.microphone = Beeps(self.hz)
        return self.microphone

    def on_track(self, track):
        super().on_track(track)
        receiver = next(receiver for receiver in self.pc.getReceivers() if receiver.track == track)
        handle = receiver._handle_rtp_packet

        async def keep(packet, arrival_time_ms):
            self.packets[packet.sequence_number] = packet
            await handle(packet, arrival_time_ms)

        receiver._handle_rtp_packet = keep

    def loud(self):
        """The timestamps of the loud packets, in order."""
        decoder, first = OpusDecoder(), next(iter(self.packets.values())).timestamp
        found = []
        for packet in sorted(self.packets.values(), key=lambda packet: (packet.timestamp - first + 2**31) % 2**32):
            for frame in decoder.decode(JitterFrame(packet.payload, packet.timestamp)):
                if max(array.array("h", bytes(frame.planes[0]))) > 2000:
                    found.append(packet.timestamp)
        return found


class Watched(Relay):
    """Records the arrival time of each audio timestamp in both directions."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seen = {"up": [], "down": []}

    def send(self, way, data):
        if is_media(data):
            self.seen[way].append((time.monotonic(), int.from_bytes(data[4:8], "big")))
        super().send(way, data)

    def lateness(self, way, begin, end):
        """The difference between the largest and the smallest delay in a span."""
        seen = [(at, stamp) for at, stamp in self.seen[way] if begin <= at < end]
        late = [at - ((stamp - seen[0][1] + 2**31) % 2**32) / RATE for at, stamp in seen]
        return max(late) - min(late)


def onsets(times):
    """The first time of each group."""
    return [at for before, at in zip([None, *times], times) if before is None or at - before > 1]


async def talk(binary, minutes):
    runner = Runner(binary, "--bot", "echo")
    relay = Watched(loss=LOSS, seed=10, delay=DELAY_S)
    client = Recorder(runner, relay=relay)
    try:
        began = time.monotonic()
        await client.connect()
        connected = time.monotonic() - began
        first = time.monotonic()
        for number in range(int(minutes * 60)):
            client.send({"label": "rtvi-ai", "type": "client-message", "id": str(number), "data": {"t": "n", "d": number}})
            await asyncio.sleep(1)
            assert client.pc.connectionState == "connected", client.pc.connectionState
        last = time.monotonic()
        relay.loss = 0
        await client.until(lambda: len(answers(client)) == int(minutes * 60), "the last answers", 60)
        assert answers(client) == list(range(int(minutes * 60))), "the answers are out of order"
        assert await runner.sessions() == 1
        drift = [echo(client, relay, first + (last - first) * part / PARTS, (last - first) / PARTS) for part in (0, PARTS - 1)]
        # The close is delayed by the relay.
        await client.pc.close()
        await runner.wait_for_sessions(0, 10)
        received, given_up, recovered, concealed = map(int, TALLY.search(runner.log_text()).groups())
    except Exception:
        print(runner.log_text(), file=sys.stderr)
        raise
    finally:
        await client.close()
        runner.stop()
    sent, lost = len(relay.fates["up"]), sum(relay.fates["up"])
    # Loss before the first packet received and after the last is unknown, and so is what is on its way then.
    judge("packets lost of the session", abs(given_up - lost), 0, UNKNOWN, at_most=True)
    judge("packets received of the session", abs(received - (sent - lost)), 0, UNKNOWN, at_most=True)
    made_up = judge("made up of the lost packets", (recovered + concealed) / given_up, 1, 0.05)
    # Packets that came late, at either end, delay the echo from then on.
    late = sum(relay.lateness(way, first, last) for way in ("up", "down"))
    judge("drift in s", abs(drift[1] - drift[0]), late, STEP_S, at_most=True)
    return (f"connected after {connected:.1f} s; of {sent} packets {lost} lost, {given_up} given up, {made_up}, "
            f"echo {drift[0] * 1000:.0f} ms in the first half, {drift[1] * 1000:.0f} in the second, "
            f"on a machine that is late by {late * 1000:.0f} ms at most")


def answers(client):
    """The returned numbers, in order of arrival."""
    found = [json.loads(text) for text in client.messages]
    return [one["data"]["d"] for one in found if one.get("type") == "server-response"]


def echo(client, relay, begin, length):
    """The median time from a beep to its echo at the caller, of those sent in that span."""
    seen = [(at, stamp) for at, stamp in relay.seen["down"] if begin <= at < begin + length + 5]
    origin = seen[0][1]
    zero = min(at - ((stamp - origin) % 2**32) / RATE for at, stamp in seen)
    loud = onsets([zero + ((stamp - origin + 2**31) % 2**32 - 2**31) / RATE for stamp in client.loud()])
    delays = []
    start = client.microphone.start
    for number in range(int((begin - start) / BEEPS_APART_S) + 1, int((begin + length - start) / BEEPS_APART_S)):
        beep = start + number * BEEPS_APART_S
        back = next((at for at in loud if at >= beep), None)
        if back is not None and back - beep < BEEPS_APART_S:
            delays.append(back - beep)
    assert len(delays) >= 3, f"{len(delays)} beeps came back"
    return statistics.median(delays)
