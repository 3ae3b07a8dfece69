"""What a check of sound, delay or loss is held against: a control, which is the same peers on the same machine in the same run
without the runner, and the spread that the method allows.

A control is a call between two peers, or the sound path of one: its encoder and its decoder. So a threshold is no number that
was right on one machine, and a peer that is slow or a codec that is coarse is no defect of the runner. Each spread below says
why it is as large as it is. What is lost is held against what the path itself has dropped, which `relay.py` counts.

Nothing but the standard library.
"""

import array
import asyncio
import math

# Shares of a tone are medians or means over windows of 100 ms. A control has passed the same codec as often as the echo, and the
# runner's encoder may be coarser, and resample: noise that is 17 dB below the tone.
SHARE_SPREAD = 0.02
# Less than that is no tone but what a broken control gives.
CONTROL_LEAST = 0.9
# A flight of the handshake that is lost is sent again after a second (RFC 6347, section 4.2.4.1), which may happen once.
RETRANSMIT_S = 1.0


def judge(what, measured, control, spread, at_most=False):
    """Fails where `measured` is lower than the control by more than the spread, or higher with `at_most`. Returns it in words."""
    words = f"{what} {measured:.3f}, control {control:.3f}"
    is_good = measured <= control + spread if at_most else measured >= control - spread
    assert is_good, f"{words}, spread {spread:.3f}"
    return words


def judge_share(measured, control, spread=SHARE_SPREAD, what="share of the tone"):
    """The same of a share of a tone, whose control has a tone."""
    assert control >= CONTROL_LEAST, f"the control itself is no tone: its share is {control:.3f}"
    return judge(what, measured, control, spread)


def once(measure):
    """Makes a measurement once in a process for each set of arguments, also when several checks ask for it at a time."""
    made = {}

    async def found(*args, **named):
        key = args, tuple(sorted(named.items()))
        if key not in made:
            made[key] = asyncio.ensure_future(measure(*args, **named))
        try:
            # A check that is given up leaves it to the others.
            return await asyncio.shield(made[key])
        except Exception:
            made.pop(key, None)
            raise

    return found


def sine(hz, rate, first, count, amplitude=8000):
    """`count` samples of a sine of 16 bits, as if it had begun `first` samples ago."""
    turn = 2 * math.pi * hz / rate
    return array.array("h", (int(amplitude * math.sin(turn * (first + n))) for n in range(count)))


def tone_shares(samples, hz, rate):
    """The share of the energy at `hz` in each window of 100 ms that is not silent: the algorithm of Goertzel."""
    window, shares = rate // 10, []
    factor = 2 * math.cos(2 * math.pi * hz / rate)
    for at in range(0, len(samples) - window + 1, window):
        part = samples[at:at + window]
        power = sum(s * s for s in part) / window
        if power < 100:
            continue
        one = two = 0.0
        for s in part:
            one, two = s + factor * one - two, one
        shares.append(2 * (one * one + two * two - factor * one * two) / window**2 / power)
    return shares


def tone_share(samples, hz, rate):
    """The median of `tone_shares`; 0 when all windows are silent."""
    shares = sorted(tone_shares(samples, hz, rate))
    return shares[len(shares) // 2] if shares else 0.0


def mean_tone_share(samples, hz, rate):
    """The mean of `tone_shares`. With random loss it varies less than the median, which jumps with the frames per window."""
    shares = tone_shares(samples, hz, rate)
    return sum(shares) / len(shares) if shares else 0.0
