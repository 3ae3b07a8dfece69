"""Audio of the scripted service: G.711, tones, the frequency of a tone, and a detector of speech. 16-bit mono samples."""

import base64
import binascii
import math

import numpy

AMPLITUDE = 8000
# Louder than the noise of any codec, quieter than any speech of the checks.
SPEECH_RMS = 400


def mu_law(byte):
    byte = ~byte & 0xFF
    size = (((byte & 0x0F) << 3) + 0x84 << ((byte & 0x70) >> 4)) - 0x84
    return -size if byte & 0x80 else size


def a_law(byte):
    byte ^= 0x55
    segment, size = (byte & 0x70) >> 4, (byte & 0x0F) << 4
    size = size + 8 if segment == 0 else size + 0x108 << segment - 1
    return size if byte & 0x80 else -size


class Pcm:
    rate, sample_bytes = 24_000, 2

    def decode(self, data):
        return numpy.frombuffer(data, "<i2")

    def encode(self, samples):
        return samples.astype("<i2").tobytes()


class G711:
    rate, sample_bytes = 8_000, 1

    def __init__(self, law):
        self.table = numpy.array([law(byte) for byte in range(256)], "i2")
        self.order = numpy.argsort(self.table, kind="stable")
        values = self.table[self.order].astype("i4")
        self.limits = (values[1:] + values[:-1]) // 2

    def decode(self, data):
        return self.table[numpy.frombuffer(data, "u1")]

    def encode(self, samples):
        return self.order[numpy.searchsorted(self.limits, samples.astype("i4"))].astype("u1").tobytes()


CODECS = {"audio/pcm": Pcm(), "audio/pcmu": G711(mu_law), "audio/pcma": G711(a_law)}


def from_base64(text):
    """The bytes; `None` when the text is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def tone(hz, rate, first, count):
    """`count` samples of a sine, as if it had begun `first` samples ago."""
    at = numpy.arange(first, first + count)
    return (AMPLITUDE * numpy.sin(2 * math.pi * hz * at / rate)).astype("<i2")


def loudest_hz(samples, rate):
    """The strongest frequency, to 1 Hz for a second of a tone."""
    if not len(samples):
        return 0
    size = max(len(samples), 4 * rate)
    spectrum = numpy.abs(numpy.fft.rfft(samples * numpy.hanning(len(samples)), size))
    return round(float(numpy.argmax(spectrum)) * rate / size)


class SpeechDetector:
    """Finds the beginning and the end of speech by energy. Its clock is the audio that it was given."""

    onset_ms, keep_s = 60, 30

    def __init__(self, rate):
        self.rate, self.frame = rate, rate // 50
        self.rest = numpy.zeros(0, "i2")
        self.ms = self.loud_ms = self.quiet_ms = 0
        self.speaking, self.said = False, []

    def take(self, samples, silence_ms):
        """Yields ("started", ms) and ("stopped", ms, samples)."""
        self.rest = numpy.concatenate([self.rest, samples])
        while len(self.rest) >= self.frame:
            frame, self.rest = self.rest[:self.frame], self.rest[self.frame:]
            self.ms += 20
            loud = float(numpy.sqrt(numpy.mean(frame.astype("f8") ** 2))) > SPEECH_RMS
            self.loud_ms, self.quiet_ms = (self.loud_ms + 20, 0) if loud else (0, self.quiet_ms + 20)
            if (loud or self.speaking) and len(self.said) < 50 * self.keep_s:
                self.said.append(frame)
            elif not self.speaking:
                self.said = []
            if not self.speaking and self.loud_ms >= self.onset_ms:
                self.speaking = True
                yield "started", self.ms - self.onset_ms
            elif self.speaking and self.quiet_ms >= silence_ms:
                said, self.said, self.speaking = numpy.concatenate(self.said), [], False
                yield "stopped", self.ms - self.quiet_ms, said
