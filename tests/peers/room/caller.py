"""A participant with the published client: it sends a tone and messages, and records audio, messages and events.

    caller.py URL TOKEN      alone: it joins and talks until it is killed
"""

import asyncio
import collections
import json
import pathlib
import sys
import time

import numpy as np
from livekit import rtc

# At the end, because other folders here have the names of packages.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from checks import until
from reference import judge, judge_share

RATE = 48000
TOLD = ("participant_connected", "participant_disconnected", "track_subscribed", "track_unsubscribed", "track_published",
        "track_unpublished", "active_speakers_changed", "disconnected", "reconnecting", "reconnected")
# A time limit for expected events.
PATIENCE_S = 30
# Of a tone that was coded twice and resampled, in a second that may have begun before it; the control was coded once.
SPREAD = 0.1
# Root mean square of noise that codecs add to silence: 43 dB below the tone.
NOISE = 50


def share(pcm, hz, rate=RATE):
    """The share of the energy that is within 20 Hz of `hz`: the median over windows of 100 ms that are not silent; 0 when all are."""
    window = rate // 10
    shares = []
    for at in range(0, len(pcm) - window + 1, window):
        power = np.abs(np.fft.rfft(pcm[at:at + window] * np.hanning(window))) ** 2
        if np.sqrt(np.mean(pcm[at:at + window] ** 2)) >= 50:
            middle = round(hz * window / rate)
            shares.append(power[middle - 2:middle + 3].sum() / power.sum())
    return float(np.median(shares)) if shares else 0.0


def loudness(pcm):
    return float(np.sqrt(np.mean(pcm**2))) if len(pcm) else 0.0


class Control:
    """What one published client hears of another without the runner: the share of a tone, and the loudness of silence."""

    def __init__(self, share, silence):
        self.share, self.silence = share, silence

    @classmethod
    async def measure(cls, world, url, token):
        """`token` makes one by an identity."""
        speaker = await world.caller(url, token("speaker"))
        listener = await world.caller(url, token("listener"), talks=False)
        await listener.until(lambda: listener.received.get("speaker"), "the first sound")
        found = [share(await listener.listen_for(1, "speaker"), speaker.hz) for _ in range(2)]
        speaker.quiet = True
        await asyncio.sleep(1)
        return cls(max(found), loudness(await listener.listen_for(1, "speaker")))


class Caller:
    # A `Control` of this process.
    control = None

    def __init__(self, hz=440, quiet=False):
        self.hz = hz
        # Whether it sends silence instead of the tone.
        self.quiet = quiet
        # For each coming 10 ms whether the tone is sent; then `quiet` says it.
        self.script = collections.deque()
        # Root mean square of the noise that it always sends, as a microphone does.
        self.noise = 0
        self.room = rtc.Room()
        # (seconds, name, what it is about): identities, for speakers a list of them
        self.events = []
        self.messages = []
        # By identity, in order of arrival.
        self.received = {}
        # The last track with sound of each identity.
        self.tracks = {}
        # By the sid of a track.
        self.listening = {}
        self.tasks = []
        self.publication = None
        for name in TOLD:
            self.room.on(name, lambda *about, name=name: self.note(name, about))
        self.room.on("data_received", lambda packet: self.messages.append(packet))
        self.room.on("track_subscribed", self.on_track)
        self.room.on("track_unsubscribed", self.on_track_gone)

    def note(self, name, about):
        last = about[-1] if about else None
        about = [one.identity for one in last] if isinstance(last, list) else getattr(last, "identity", last)
        self.events.append((time.monotonic(), name, about))

    def on_track(self, track, publication, participant):
        if track.kind == rtc.TrackKind.KIND_AUDIO:
            self.tracks[participant.identity] = track
            self.listening[publication.sid] = asyncio.ensure_future(self.listen(track, participant.identity))

    def on_track_gone(self, track, publication, participant):
        # Another track may reuse the section and its receiver.
        if listening := self.listening.pop(publication.sid, None):
            listening.cancel()

    async def listen(self, track, identity):
        async for event in rtc.AudioStream(track, sample_rate=RATE, num_channels=1):
            pcm = np.frombuffer(event.frame.data, dtype=np.int16).astype(float)
            self.received.setdefault(identity, []).append(pcm)

    async def missed_ms(self, identity):
        """How much sound of this participant the client had played before the stream in `listen` was there to get it."""
        played = sum(one.inbound_rtp.inbound.total_samples_received for one in await self.tracks[identity].get_stats() if one.HasField("inbound_rtp"))
        return max(0, played - sum(map(len, self.received[identity]))) * 1000 // RATE

    def speakers(self):
        """Returns the identities of the active speakers, as the server told last."""
        return next((who for _, name, who in reversed(self.events) if name == "active_speakers_changed"), [])

    async def join(self, url, token):
        await asyncio.wait_for(self.room.connect(url, token), PATIENCE_S)
        return self

    async def talk(self, **publishing):
        """Publishes a microphone with the tone. `publishing` are further options of the client."""
        source = rtc.AudioSource(RATE, 1, queue_size_ms=100)
        track = rtc.LocalAudioTrack.create_audio_track("microphone", source)
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE, **publishing)
        self.publication = await asyncio.wait_for(self.room.local_participant.publish_track(track, options), PATIENCE_S)
        self.tasks.append(asyncio.ensure_future(self.play(source)))

    async def show(self):
        """Publishes a camera with a still picture."""
        source = rtc.VideoSource(320, 240)
        track = rtc.LocalVideoTrack.create_video_track("camera", source)
        options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_CAMERA)
        await asyncio.wait_for(self.room.local_participant.publish_track(track, options), PATIENCE_S)
        source.capture_frame(rtc.VideoFrame(320, 240, rtc.VideoBufferType.RGBA, bytes(320 * 240 * 4)))

    async def play(self, source):
        count, at = RATE // 100, 0
        while True:
            is_silent = not self.script.popleft() if self.script else self.quiet
            tone = np.sin(2 * np.pi * self.hz * (at + np.arange(count)) / RATE) * (0 if is_silent else 10000)
            at += count
            sound = tone + np.random.normal(0, self.noise, count)
            await source.capture_frame(rtc.AudioFrame(sound.astype(np.int16).tobytes(), RATE, 1, count))

    async def packets_sent(self):
        """Returns how many packets of its microphone were sent."""
        stats = await self.publication.track.get_stats()
        return sum(one.outbound_rtp.sent.packets_sent for one in stats if one.HasField("outbound_rtp"))

    async def unpublish(self):
        await self.room.local_participant.unpublish_track(self.publication.sid)

    async def listen_for(self, seconds, identity=None):
        """Returns the audio of one participant, or of any, from now on."""
        before = {name: len(pieces) for name, pieces in self.received.items()}
        await asyncio.sleep(seconds)
        pieces = [piece for name, received in self.received.items() if identity in (None, name)
                  for piece in received[before.get(name, 0):]]
        return np.concatenate(pieces) if pieces else np.zeros(0)

    async def hear(self, hz, identity=None, limit_s=PATIENCE_S):
        """Waits for a second of this tone, as good as without the runner; returns its share."""
        start = time.monotonic()
        while True:
            found = share(await self.listen_for(1, identity), hz)
            try:
                judge_share(found, self.control.share, SPREAD)
                return found
            except AssertionError as error:
                if time.monotonic() - start > limit_s:
                    raise AssertionError(f"no {hz} Hz heard within {limit_s} s, {error}, events {self.events}") from None

    async def hears_silence(self, seconds=1, identity=None):
        return judge("loudness of silence", loudness(await self.listen_for(seconds, identity)), self.control.silence, NOISE, at_most=True)

    async def say(self, message):
        await self.room.local_participant.publish_data(json.dumps(message).encode(), reliable=True)

    def all(self, kind):
        """Returns the messages of the bot of this type."""
        return [message for message in (json.loads(packet.data) for packet in self.messages) if message.get("type") == kind]

    def message(self, kind, **members):
        """Returns the first message of the bot with these members."""
        return next((message for message in self.all(kind) if members.items() <= message.items()), None)

    def texts(self):
        return [packet.data.decode() for packet in self.messages]

    def told(self, name, about=None, since=0.0):
        """Returns the time of the first such event after `since`."""
        for at, event, identity in self.events:
            matches = about is None or identity == about or isinstance(identity, list) and about in identity
            if event == name and matches and at >= since:
                return at
        return None

    async def until(self, wanted, what, limit_s=PATIENCE_S):
        return await until(wanted, what, limit_s, lambda: f"told {self.events}")

    async def leave(self):
        for task in (*self.tasks, *self.listening.values()):
            task.cancel()
        self.tasks, self.listening = [], {}
        await asyncio.wait_for(self.room.disconnect(), PATIENCE_S)


async def main(url, token):
    caller = await Caller().join(url, token)
    await caller.talk()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
