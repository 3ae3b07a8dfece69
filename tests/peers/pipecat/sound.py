"""Audio for the checks and its measures: a tone, a spoken sentence, shares, levels, correlation. 16-bit mono PCM."""

import math
import subprocess
import wave
from io import BytesIO

import numpy
import soxr

from reference import judge, judge_share

# Of a tone that was coded twice, and resampled; the control was coded once. A fault of one frame in ten would take a tenth.
CODED_SPREAD = 0.005
# The half of a step of G.711 at this level, and the ripple of two resamplers.
LEVEL_SPREAD_DB = 0.5
# Of speech that is resampled twice and coded a second time.
LIKE_SPREAD = 0.04
# Pieces of the bot's audio, of the time of a timer, and of the rounding of both.
STEP_S = 0.06
# What the runner sends ahead of playing at the most, and one chunk of the largest.
LATE_SPREAD_S = 0.3
# A voice at an ordinary level: -12 dB of full scale.
AMPLITUDE = 8000


def tone(hz, rate, first, count):
    """`count` samples of a sine, as if it had begun `first` samples ago."""
    at = numpy.arange(first, first + count)
    return (AMPLITUDE * numpy.sin(2 * math.pi * hz * at / rate)).astype("<i2")


def sentence(words, rate):
    """Spoken words, with the silence at both ends cut off."""
    wav = subprocess.run(["espeak-ng", "--stdout", words], check=True, capture_output=True).stdout
    with wave.open(BytesIO(wav)) as file:
        # The header of a stream states no length that could be trusted.
        spoken = numpy.frombuffer(wav[44:], "<i2"), file.getframerate()
    pcm = soxr.resample(spoken[0], spoken[1], rate)
    loud = numpy.flatnonzero(numpy.abs(pcm.astype("i4")) > 300)
    return pcm[loud[0]:loud[-1] + 1]


def power(samples):
    return float(numpy.mean(samples.astype("f8") ** 2)) if len(samples) else 0.0


def tone_share(samples, hz, rate):
    """The share of the energy at `hz`: the median over windows of 100 ms that are not silent; 0 when all are."""
    window = rate // 10
    wave_ = numpy.exp(-2j * math.pi * hz * numpy.arange(window) / rate)
    shares = []
    for at in range(0, len(samples) - window + 1, window):
        part = samples[at:at + window].astype("f8")
        if power(part) >= 100:
            shares.append(2 * abs(part @ wave_) ** 2 / window**2 / power(part))
    return float(numpy.median(shares)) if shares else 0.0


def in_tune(received, hz, rate, control):
    """Returns the measures of the returned tone, or raises an error. `control` is the tone as the peer's own codec gives it."""
    share = judge_share(tone_share(received, hz, rate), tone_share(control, hz, rate), CODED_SPREAD)
    level = judge("difference of level in dB", abs(level_db(received, rate) - level_db(control, rate)), 0, LEVEL_SPREAD_DB, at_most=True)
    return f"{share}, {level}"


def level_db(samples, rate):
    """The level of the returned tone relative to the sent tone: the median over windows of 100 ms that are not silent."""
    window = rate // 10
    powers = [power(samples[at:at + window]) for at in range(0, len(samples) - window + 1, window)]
    powers = [p for p in powers if p >= 100]
    return 10 * math.log10(float(numpy.median(powers)) / (AMPLITUDE**2 / 2)) if powers else -math.inf


def likeness(said, received):
    """The correlation of `heard` and `said` at the best offset, up to 1. Works for any delay and any cut."""
    size = 1 << (len(said) + len(received)).bit_length()
    spectra = numpy.fft.rfft(received.astype("f8"), size) * numpy.fft.rfft(said.astype("f8"), size).conj()
    both = numpy.fft.irfft(spectra, size)
    lag = int(numpy.argmax(numpy.abs(both)))
    lag -= size if lag > size // 2 else 0
    at = max(0, lag), max(0, -lag)
    length = min(len(received) - at[0], len(said) - at[1])
    one, two = received[at[0]:at[0] + length].astype("f8"), said[at[1]:at[1] + length].astype("f8")
    norm = math.sqrt(float(one @ one) * float(two @ two))
    return float(one @ two) / norm if norm else 0.0


def pace(chunks, rate):
    """The largest earliness and lateness of audio in seconds, if playback starts with the first chunk."""
    start, played, early, late = chunks[0].at, 0.0, 0.0, 0.0
    for chunk in chunks:
        late = max(late, chunk.at - start - played)
        played += len(chunk.samples) / rate
        early = max(early, played - (chunk.at - start))
    return early, late


def paced(chunks, rate, lead_s, own_late_s):
    """Holds the pace of the bot's audio against playing, and raises an error. A chunk may be `lead_s` early on top of its own
    length, and late by that much where the lead runs dry; the clock of the peer itself was late by `own_late_s`."""
    early, late = pace(chunks, rate)
    chunk_s = max(len(chunk.samples) for chunk in chunks) / rate
    return "{}; {}".format(
        judge("seconds ahead of playing", early, chunk_s + lead_s + own_late_s, STEP_S, at_most=True),
        judge("seconds late", late, own_late_s, LATE_SPREAD_S, at_most=True))
