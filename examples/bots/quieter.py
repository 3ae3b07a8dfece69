"""A raw-mode bot that needs only the standard library: it plays the caller back at half the level.

    edge-runner --bot-audio pcm -- python3 examples/bots/quieter.py
    # Open http://localhost:7860, press Connect and talk.

The same with `sox`:

    edge-runner --bot-audio pcm -- sox --buffer 640 -t raw -r 16000 -e signed -b 16 -c 1 - -t raw - vol 0.5
"""

import array
import sys

# 20 ms of 16-bit PCM at 16000 Hz.
while chunk := sys.stdin.buffer.read(640):
    samples = array.array("h", chunk)
    if sys.byteorder == "big":
        samples.byteswap()
    quieter = array.array("h", (sample // 2 for sample in samples))
    if sys.byteorder == "big":
        quieter.byteswap()
    sys.stdout.buffer.write(quieter.tobytes())
    sys.stdout.buffer.flush()
