"""The sound card as a caller with ALSA's programs and PipeWire, whose microphone and loudspeaker are virtual: no sound hardware is
needed. Prints a line per check; exits with 1 when one failed.

    run.py --plugin FOLDER [--binary PATH] [CHECK...]      with alsa-utils, espeak-ng, dbus-daemon, pipewire, pipewire-bin, wireplumber,
                                                           and PipeWire's plug-in for ALSA in this folder
"""

import array
import asyncio
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import wave

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent)]

from checks import Report, chosen, options, until
from runner import Runner
from sound_server import LIMIT_S, SoundServer

SENTENCE = "Good morning. Is there anybody who can hear me at this hour?"
# Blocks of this length are compared by their loudness.
BLOCK_S = 0.01
# The loudness of what comes back has to follow that of the sentence; that of another sentence stays near a half.
LIKENESS_MIN = 0.75
# The ports of `arecord` and `aplay` at PipeWire.
PROGRAMS = ("ALSA Capture:input", "ALSA Playback:output")
KEY_MICMUTE, KEY_PLAYPAUSE = 248, 164


class Place:
    """What the checks share: a sound server, and a spoken sentence."""

    def __init__(self, binary, plugin, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.server = SoundServer(self.folder / "server", plugin)
        self.sentence = self.folder / "sentence.wav"
        subprocess.run(["espeak-ng", "-v", "en-us", "-w", self.sentence, SENTENCE], check=True)

    def runner(self, result, *arguments):
        words = ["--local", "--local-start", "always", "--local-echo", "off", "--bot", "echo", *arguments]
        return result.keep(Runner(self.binary, *words, variables=self.server.variables, rtc=True))

    def spoken_and_recorded(self):
        """Plays the sentence into the microphone, and returns how much the loudspeaker's sound is like it, and how late."""
        recorded = self.folder / "recorded.wav"
        recorder = self.server.record(recorded)
        player = self.server.play(self.sentence)
        player.wait(LIMIT_S)
        # Later than any echo.
        time.sleep(1)
        recorder.send_signal(signal.SIGINT)
        recorder.wait(LIMIT_S)
        return likeness(loudness(self.sentence), loudness(recorded))


def loudness(file):
    """The loudness of each block of a WAV file."""
    with wave.open(str(file)) as sound:
        assert sound.getsampwidth() == 2 and sound.getnchannels() == 1, file
        return blocks(sound.readframes(sound.getnframes()), sound.getframerate())


def blocks(pcm, rate):
    samples = array.array("h", pcm[:len(pcm) // 2 * 2])
    size = int(rate * BLOCK_S)
    return [math.sqrt(sum(x * x for x in samples[at:at + size]) / size) for at in range(0, len(samples) - size, size)]


def likeness(spoken, recorded):
    """How much the loudness of each second follows that of what is recorded, on average, and by how many seconds it is late. A second is
    looked for near the place where the sentence as a whole fits best: what a busy machine loses moves the rest."""
    whole, late = fit(spoken, recorded, range(len(recorded) - len(spoken) + 1))
    if not whole:
        return 0.0, 0.0
    size, near = round(1 / BLOCK_S), round(0.3 / BLOCK_S)
    starts = range(0, len(spoken) - size + 1, size)
    fits = [fit(spoken[at:at + size], recorded, range(max(0, at + late - near), at + late + near))[0] for at in starts]
    return sum(fits) / len(fits), late * BLOCK_S


def fit(spoken, recorded, places):
    """The highest correlation of the loudness at one of the places, and that place; 0 for silence."""
    best, at = 0.0, 0
    spoken = centred(spoken)
    power = sum(x * x for x in spoken)
    for place in places:
        part = recorded[place:place + len(spoken)]
        # Silence is like nothing. So is the noise of a conversion.
        if len(part) < len(spoken) or max(part) < 100:
            continue
        part = centred(part)
        both = math.sqrt(power * sum(x * x for x in part))
        if both and (like := sum(x * y for x, y in zip(spoken, part)) / both) > best:
            best, at = like, place
    return best, at


def centred(values):
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def listed(place, result):
    """--local-list names the devices of the sound server with the words to type"""
    done = subprocess.run(
        [place.binary, "--local-list"], env={**os.environ, **place.server.variables}, capture_output=True, text=True, timeout=LIMIT_S)
    for option in ("--local-in", "--local-out"):
        assert f"  {option} default " in done.stdout and f"  {option} pipewire " in done.stdout, done
    assert "alsa-utils" not in done.stderr and "there is no" not in done.stderr, done
    assert done.returncode == 0 or pathlib.Path("/proc/asound/card0").exists(), done
    without = subprocess.run([place.binary, "--local-list"], env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=LIMIT_S)
    assert without.returncode == 1 and "install the package alsa-utils" in without.stderr, without
    return f"exit code {done.returncode}, {len(done.stdout.splitlines()) - 2} devices"


async def spoken(place, result):
    """what is said at the microphone comes back from the loudspeaker; a microphone that is muted by a key is silent"""
    keys = place.folder / "keys"
    os.mkfifo(keys)
    device = os.open(keys, os.O_RDWR)
    try:
        runner = place.runner(result, "--local-keys", str(keys))
        await runner.wait_for_log("session started: local")
        place.server.wait_for(*PROGRAMS)
        like, late = place.spoken_and_recorded()
        assert like > LIKENESS_MIN, (like, runner.log_text())
        press(device, KEY_MICMUTE)
        await runner.wait_for_log("the microphone is muted")
        muted, _ = place.spoken_and_recorded()
        assert muted == 0, (muted, runner.log_text())
        press(device, KEY_MICMUTE)
        await runner.wait_for_log("the microphone is on")
        again, _ = place.spoken_and_recorded()
        assert again > LIKENESS_MIN, (again, runner.log_text())
        press(device, KEY_PLAYPAUSE)
        await runner.wait_for_log("session ended: caller left")
        return f"likeness {like:.2f}, muted {muted:.2f}, again {again:.2f}"
    finally:
        os.close(device)


def press(device, code):
    for value in (1, 0):
        os.write(device, struct.pack("@llHHi", 0, 0, 1, code, value))


async def killed(place, result):
    """a sound server that is killed and started again in a session costs a few seconds of it, and nothing else"""
    runner = place.runner(result)
    await runner.wait_for_log("session started: local")
    place.server.wait_for(*PROGRAMS)
    place.server.kill()
    for side in ("microphone", "loudspeaker"):
        await runner.wait_for_log(f"no {side}: ", LIMIT_S)
    began = time.monotonic()
    place.server.start()
    for side in ("microphone", "loudspeaker"):
        await runner.wait_for_log(f"the {side} works again", LIMIT_S)
    took = time.monotonic() - began
    like, _ = place.spoken_and_recorded()
    log = runner.log_text()
    assert like > LIKENESS_MIN, (like, log)
    assert "session ended" not in log and await runner.sessions() == 1, log
    warnings = [line for line in log.splitlines() if " WARN " in line]
    assert len(warnings) <= 6, log
    return f"both work {took:.0f} s after the start, {len(warnings)} warnings, likeness {like:.2f}"


async def tape(place, result):
    """files take the place of a card, by ALSA's plug-in: what is spoken in one is in the other, without a sound server"""
    sentence, recorded = place.folder / "sentence.raw", place.folder / "recorded.raw"
    with wave.open(str(place.sentence)) as sound:
        rate, pcm = sound.getframerate(), sound.readframes(sound.getnframes())
    # Silence at first, since the card begins before the bot.
    sentence.write_bytes(bytes(2 * rate) + pcm + bytes(6 * rate))
    settings = "".join(
        f"pcm.{name} {{ type file slave.pcm null file {out} infile {sentence} format raw }}\n"
        for name, out in (("tape_in", "/dev/null"), ("tape_out", recorded)))
    with open(place.server.settings, "a") as file:
        file.write(settings)
    runner = place.runner(result, "--local-in", "tape_in", "--local-out", "tape_out", "--local-rate", str(rate))
    await runner.wait_for_log("session started: local")
    spoken = blocks(pcm, rate)
    await until(lambda: recorded.exists() and recorded.stat().st_size > 2 * rate * (len(spoken) * BLOCK_S + 2.5), "the file", told=runner.log_text)
    echo = blocks(recorded.read_bytes(), rate)
    like, _ = likeness(spoken, echo)
    assert like > LIKENESS_MIN, (like, runner.log_text())
    # The control: other speech of the same loudness.
    unlike, _ = likeness(spoken[::-1], echo)
    assert unlike < LIKENESS_MIN, unlike
    return f"likeness {like:.2f}, backwards {unlike:.2f}"


async def never_slow(place, result):
    """ALSA's device `null`, which is never slow, is read and written at the speed of sound"""
    runner = place.runner(result, "--local-in", "null", "--local-out", "null")
    await runner.wait_for_log("session started: local")
    used = processor_s(runner.process.pid)
    await asyncio.sleep(3)
    used = processor_s(runner.process.pid) - used
    # One that takes all that it gets would take a core.
    assert used < 1.0, f"{used:.1f} s of a processor in 3 s"
    return f"{used:.2f} s of a processor in 3 s"


def processor_s(pid):
    """What a process and its children have used so far."""
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(stat.parent.name) == pid or int(fields[1]) == pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


CHECKS = [listed, spoken, killed, tape, never_slow]


async def main(binary, plugin, names):
    with Report() as report, tempfile.TemporaryDirectory() as folder:
        place = Place(binary, plugin, folder)
        try:
            for name, check in chosen(CHECKS, names).items():
                with report.check(check, name) as result:
                    said = check(place, result)
                    result.said = await said if asyncio.iscoroutine(said) else said
        finally:
            place.server.stop()
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.binary.resolve(), given.plugin.resolve(), given.checks)))
