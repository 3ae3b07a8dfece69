"""The four telephony providers: the messages a call is made of, and Pipecat's serializer of each.

Pipecat's serializers stand on our side of these protocols. So they say what the runner should send, byte by byte once the
audio is taken out; they decode what it sends; and the audio they make is, in the provider's envelope, what the runner hears.
"""

import json

import numpy
from types import SimpleNamespace

from pipecat.frames.frames import InterruptionFrame, OutputAudioRawFrame
from pipecat.serializers.exotel import ExotelFrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer


class Provider:
    """The common part of the four providers."""

    rate = 8000
    # Chunk lengths of the provider, and of the runner.
    frame_s = 0.02
    sample_bytes = 1
    media_event, clear_event = "media", "clear"
    events = {"media", "clear", "mark"}
    sequence = 0
    # A decoder and an encoder, because a serializer keeps the state of one direction.
    decoder, encoder = None, None

    async def open(self):
        self.decoder, self.encoder = self.serializer(), self.speaker()
        for serializer in (self.decoder, self.encoder):
            # The only input of a telephony serializer from its pipeline.
            await serializer.setup(SimpleNamespace(audio_in_sample_rate=self.rate))

    def speaker(self):
        return self.serializer()

    def params(self, kind):
        return kind.InputParams(auto_hang_up=False)

    async def audio(self, samples):
        """Returns the audio of a message of the provider, encoded by Pipecat."""
        frame = OutputAudioRawFrame(samples.tobytes(), self.rate, 1)
        return json.loads(await self.encoder.serialize(frame))["media"]["payload"]

    async def expected(self, frame):
        """Returns the message that Pipecat sends for that frame."""
        return json.loads(await self.serializer().serialize(frame))

    async def expected_media(self):
        message = await self.expected(OutputAudioRawFrame(bytes(2 * 160), self.rate, 1))
        del message["media"]["payload"]
        return message

    async def expected_clear(self):
        return await self.expected(InterruptionFrame())

    async def decode(self, message):
        """Returns the samples of a message of the runner, or nothing when Pipecat does not decode it as audio."""
        frame = await self.decoder.deserialize(json.dumps({**message, "event": "media"}))
        return frame and frame.audio

    async def coded(self, samples):
        """Returns the samples as Pipecat encodes and decodes them, in the messages of a call, by the codec of the runner."""
        control, size, received = type(self)(), int(self.rate * self.frame_s), []
        control.speaker = control.serializer
        await control.open()
        for at in range(0, len(samples) - size + 1, size):
            message = control.media(await control.audio(samples[at:at + size]), at // size + 1)
            received.append(numpy.frombuffer(await control.decode(message) or b"", "<i2"))
        return numpy.concatenate(received)

    def is_legal(self, size, last):
        """Returns whether the provider plays chunks of this size without gaps; the last chunk before a pause may be shorter."""
        return 160 <= size <= 480 or (last and 0 < size < 160)

    def next(self):
        self.sequence += 1
        return self.sequence


class Twilio(Provider):
    name, transport = "twilio", "telephony_a"

    def __init__(self, number=1):
        self.stream, self.call, self.account = f"MZ{number:032}", f"CA{number:032}", f"AC{number:032}"

    def serializer(self):
        return TwilioFrameSerializer(self.stream, params=self.params(TwilioFrameSerializer))

    def message(self, event, **fields):
        return {"event": event, "sequenceNumber": str(self.next()), "streamSid": self.stream, **fields}

    def handshake(self):
        yield {"event": "connected", "protocol": "Call", "version": "1.0.0"}
        yield self.message("start", start={
            "accountSid": self.account, "streamSid": self.stream, "callSid": self.call, "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {"from_number": "+15550001111", "to_number": "+15550002222"}})

    def media(self, payload, count):
        return self.message("media", media={
            "track": "inbound", "chunk": str(count), "timestamp": str(20 * count), "payload": payload})

    def dtmf(self, digit):
        return self.message("dtmf", dtmf={"track": "inbound_track", "digit": digit})

    def mark(self, name):
        return {"event": "mark", "streamSid": self.stream, "mark": {"name": name}}

    def played(self, mark):
        return self.message("mark", mark=mark["mark"])

    def stop(self):
        return self.message("stop", stop={"accountSid": self.account, "callSid": self.call})


class Telnyx(Provider):
    name, transport = "telnyx", "telephony_b"
    encoding = "PCMU"

    def __init__(self, number=1):
        self.stream, self.call = f"7d1a3c52-0b61-4f4e-9f0e-{number:012}", f"v3:abcDEF{number}-_"

    def serializer(self):
        # The runner sends PCMU for any codec of the caller.
        return TelnyxFrameSerializer(self.stream, "PCMU", "PCMU", params=self.params(TelnyxFrameSerializer))

    def message(self, event, **fields):
        return {"event": event, "sequence_number": str(self.next()), "stream_id": self.stream, **fields}

    def handshake(self):
        yield {"event": "connected", "version": "1.0.0"}
        yield self.message("start", start={
            "user_id": "1c1d2e3f-0000-4000-8000-000000000001", "call_control_id": self.call,
            "call_session_id": "11111111-2222-3333-4444-555555555555", "from": "+15550001111", "to": "+15550002222",
            "tags": [], "client_state": "c3RhdGU=", "custom_parameters": {"customer": "42"},
            "media_format": {"encoding": self.encoding, "sample_rate": 8000, "channels": 1}})

    def media(self, payload, count):
        return self.message("media", media={
            "track": "inbound", "chunk": str(count), "timestamp": str(20 * count), "payload": payload})

    def dtmf(self, digit):
        return self.message("dtmf", occurred_at="2026-11-21T12:00:00.000Z", dtmf={"digit": digit})

    def mark(self, name):
        return {"event": "mark", "mark": {"name": name}}

    def played(self, mark):
        return self.message("mark", mark=mark["mark"])

    def stop(self):
        return self.message("stop", stop={"user_id": "1c1d2e3f-0000-4000-8000-000000000001", "call_control_id": self.call})


class TelnyxALaw(Telnyx):
    """A call in A-law, as outside of North America and Japan."""

    name, encoding = "telnyx with A-law", "PCMA"

    def speaker(self):
        # The last argument is what Pipecat sends.
        return TelnyxFrameSerializer(self.stream, "PCMA", "PCMA", params=self.params(TelnyxFrameSerializer))


class Plivo(Provider):
    name, transport = "plivo", "telephony_c"
    media_event, clear_event = "playAudio", "clearAudio"
    events = {"playAudio", "clearAudio", "checkpoint"}

    def __init__(self, number=1):
        self.stream, self.call = f"a1a2a3a4-0000-4000-8000-{number:012}", f"0f0e0d0c-0b0a-4000-8000-{number:012}"

    def serializer(self):
        return PlivoFrameSerializer(self.stream, params=self.params(PlivoFrameSerializer))

    def message(self, event, **fields):
        return {"event": event, "sequenceNumber": self.next(), "streamId": self.stream, **fields, "extra_headers": "{}"}

    def handshake(self):
        start = self.message("start", start={
            "callId": self.call, "streamId": self.stream, "accountId": "MAXXXXXXXXXXXXXXXXXX", "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000}})
        del start["streamId"]
        yield start

    def media(self, payload, count):
        return self.message("media", media={
            "track": "inbound", "chunk": count, "timestamp": str(1795252753103 + 20 * count), "payload": payload})

    def dtmf(self, digit):
        return self.message("dtmf", dtmf={"track": "inbound", "digit": digit, "timestamp": "1795252760000"})

    def mark(self, name):
        return {"event": "checkpoint", "streamId": self.stream, "name": name}

    def played(self, mark):
        return {"event": "playedStream", "streamId": self.stream, "name": mark["name"]}

    def stop(self):
        return {"event": "stop", "streamId": self.stream, "reason": "hangup"}


class Exotel(Provider):
    name, transport = "exotel", "telephony_d"
    frame_s = 0.1
    sample_bytes = 2

    def __init__(self, number=1):
        self.stream, self.call = f"s-{number:04}", f"c-{number:04}"

    def serializer(self):
        params = ExotelFrameSerializer.InputParams(exotel_sample_rate=self.rate)
        return ExotelFrameSerializer(self.stream, params=params)

    def message(self, event, **fields):
        return {"event": event, "sequence_number": str(self.next()), "stream_sid": self.stream, **fields}

    def handshake(self):
        yield {"event": "connected"}
        yield self.message("start", start={
            "stream_sid": self.stream, "call_sid": self.call, "account_sid": "acct1", "from": "+919800000000",
            "to": "+918000000000", "custom_parameters": {"k": "v"},
            "media_format": {"encoding": "audio/x-raw", "sample_rate": str(self.rate), "bit_rate": "16"}})

    def media(self, payload, count):
        return self.message("media", media={"chunk": str(count), "timestamp": str(100 * count), "payload": payload})

    def dtmf(self, digit):
        return self.message("dtmf", dtmf={"digit": digit, "duration": "100"})

    def mark(self, name):
        return {"event": "mark", "stream_sid": self.stream, "mark": {"name": name}}

    def played(self, mark):
        return self.message("mark", mark=mark["mark"])

    def stop(self):
        return self.message("stop", stop={"call_sid": self.call, "account_sid": "acct1", "reason": "callended"})

    def is_legal(self, size, last):
        return size % 320 == 0 and (3200 <= size <= 100_000 or (last and size > 0))


class ExotelWide(Exotel):
    """A call at 16 kHz, which `?sample-rate=16000` on the applet's URL asks for."""

    name, rate = "exotel at 16 kHz", 16_000


class ExotelWidest(Exotel):
    name, rate = "exotel at 24 kHz", 24_000


EACH = [Twilio, Telnyx, Plivo, Exotel]
