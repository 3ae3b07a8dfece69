"""Sound cards that the runner opens without ALSA's programs, in a virtual machine: the kernel's own virtual cards, an AC97 card and a USB
card of the emulator. Prints a line per check; exits with 1 when one failed.

    kernel.py --kernel FOLDER [--binary PATH] [CHECK...]      with qemu-system-x86, busybox-static, cpio, kmod, alsa-utils, espeak-ng,
                                                              and Debian's kernel in this folder (tests/check/debian-kernel.sh)
"""

import array
import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import wave

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent)]

from checks import Report, chosen, options
from guest import LIMIT_S, Guest
from run import LIKENESS_MIN, SENTENCE, blocks, likeness, loudness

# Both ends of the kernel's loop: what one plays, the other records. It records nothing, not even silence, while nothing is played.
LOOP, OTHER_END = "kernel:CARD=Loopback,DEV=0", "plughw:Loopback,1"
# Silence before and after the sentence.
PAUSE_S = 8
# After a failure the runner tries again after 1, 2, 5, then every 10 s.
AGAIN_S = 40


class Place:
    """What the checks share: a machine, and a spoken sentence."""

    def __init__(self, binary, kernel, folder):
        self.sentence = pathlib.Path(folder) / "sentence.wav"
        subprocess.run(["espeak-ng", "-v", "en-us", "-w", self.sentence, SENTENCE], check=True)
        which = {name: subprocess.run(["which", name], check=True, capture_output=True, text=True).stdout.strip()
                 for name in ("arecord", "aplay", "amixer")}
        # Where `edge-runner` does not find them.
        voice = self.sentence.with_name("voice.wav")
        with wave.open(str(self.sentence)) as spoken, wave.open(str(voice), "w") as sound:
            # Each sample twice, since the loop has the rate of this file, and the runner converts none of 22050 Hz.
            sound.setparams(spoken.getparams()._replace(framerate=2 * spoken.getframerate()))
            samples = array.array("h", spoken.readframes(spoken.getnframes()))
            pause = bytes(2 * PAUSE_S * sound.getframerate())
            sound.writeframes(pause + array.array("h", (sample for sample in samples for _ in range(2))).tobytes() + pause)
        programs = {binary: "/bin/edge-runner", voice: "/root/voice.wav", "/usr/share/alsa": "/usr/share/alsa",
                    which["arecord"]: "/peer/arecord", which["aplay"]: "/peer/aplay",
                    which["amixer"]: "/peer/amixer"}
        self.guest = Guest(pathlib.Path(folder) / "guest", kernel, programs)
        # A USB card comes later than the others.
        cards = self.guest.run("until grep -q USB-Audio /proc/asound/cards; do sleep 0.2; done; cat /proc/asound/cards")
        self.ids = {driver: card for card, driver in re.findall(r"\[(\S+)\s*\]: (\S+)", cards)}

    def card(self, driver):
        return f"kernel:CARD={self.ids[driver]},DEV=0"

    def runner(self, result, microphone, loudspeaker):
        return result.keep(GuestRunner(self.guest, microphone, loudspeaker))

    def play(self, result, file="/root/voice.wav"):
        """Plays the sentence between pauses into the loop."""
        return result.keep(GuestPlayer(self.guest, file))


class GuestPlayer:
    """The voice in the machine."""

    def __init__(self, guest, file):
        self.guest = guest
        self.guest.run(f"/peer/aplay -q -D {OTHER_END} -t {'raw -f S16_LE -r 16000' if file == '/dev/zero' else 'wav'} {file} </dev/null & player=$!")

    def log_text(self):
        return ""

    def stop(self):
        with contextlib.suppress(AssertionError):
            self.guest.run("kill $player; wait $player; true")


class GuestRunner:
    """The runner in the machine."""

    def __init__(self, guest, microphone, loudspeaker):
        self.guest, self.seen = guest, ""
        self.guest.run(
            f"edge-runner --port 7860 --rtc-port 0 --local --local-in {microphone} --local-out {loudspeaker} --local-start always "
            "--local-echo off --bot echo </dev/null >/root/out 2>/root/log & runner=$!")

    def wait_for(self, text, limit_s=LIMIT_S):
        began = time.monotonic()
        while text not in (log := self.log()):
            assert time.monotonic() - began < limit_s, f"no {text!r} in {limit_s} s"
            time.sleep(0.5)
        return log

    def log(self):
        self.seen = self.guest.run("cat /root/log")
        return self.seen

    def log_text(self):
        return self.seen

    def xruns(self):
        metrics = self.guest.run("wget -q -O - http://127.0.0.1:7860/metrics | grep local_xruns")
        return {name: int(count) for name, count in re.findall(r'edge_runner_local_xruns_total{direction="(\w+)"} (\d+)', metrics)}

    def stop(self):
        with contextlib.suppress(AssertionError):
            self.log()
            self.guest.run("kill $runner; wait $runner; true")


def listed(place, result):
    """--local-list names cards that need no ALSA's programs, and nothing is missing"""
    said = place.guest.run("edge-runner --local-list")
    for words in (f"--local-in {LOOP} ", f"--local-out {LOOP} ", f"--local-out {place.card('USB-Audio')} "):
        assert words in said, said


def loop(place, result):
    """the echo bot repeats a sentence over the kernel's loop"""
    place.play(result)
    runner = place.runner(result, LOOP, LOOP)
    runner.wait_for("session started")
    place.guest.run(f"/peer/arecord -q -D {OTHER_END} -f S16_LE -r 16000 -c 1 -d {2 * PAUSE_S} /root/recorded.wav")
    recorded = place.sentence.with_name("recorded.wav")
    recorded.write_bytes(place.guest.read("/root/recorded.wav"))
    like, _ = likeness(loudness(place.sentence), loudness(recorded))
    assert like >= LIKENESS_MIN, f"like {like:.2f}"
    log = runner.log()
    assert "no microphone" not in log and "no loudspeaker" not in log, log
    return f"like {like:.2f}, {runner.xruns()}"


def busy(place, result):
    """a microphone that another program has open is used once it is free"""
    place.play(result, "/dev/zero")
    place.guest.run("/peer/arecord -q -D hw:Loopback,0 -f S16_LE -r 16000 -c 1 /dev/null </dev/null & holder=$!; sleep 2")
    runner = place.runner(result, LOOP, place.card("Dummy"))
    runner.wait_for(f"no microphone: `{LOOP}`: Device or resource busy (another program has the card open)")
    place.guest.run("kill $holder; wait $holder; true")
    runner.wait_for("the microphone works again", AGAIN_S)


def unplugged(place, result):
    """a USB card that is pulled and plugged in again is used again, in the same session"""
    card = place.card("USB-Audio")
    runner = place.runner(result, place.card("Dummy"), card)
    runner.wait_for("session started")
    time.sleep(3)
    place.guest.ask("device_del phone")
    runner.wait_for(f"no loudspeaker: `{card}`: No such device (was the card unplugged?)")
    runner.wait_for(f"no loudspeaker: `{card}`: No such file or directory (there is no such card", AGAIN_S)
    place.guest.ask("device_add usb-audio,id=phone,bus=usb.0,audiodev=none")
    log = runner.wait_for("the loudspeaker works again", AGAIN_S)
    assert log.count("session started") == 1 and "session ended" not in log, log


def stopped(place, result):
    """a runner that was stopped for 2 s has lost audio, counts that, and goes on"""
    place.play(result, "/dev/zero")
    runner = place.runner(result, LOOP, LOOP)
    runner.wait_for("session started")
    time.sleep(3)
    before = runner.xruns()
    place.guest.run("kill -STOP $runner; sleep 2; kill -CONT $runner; sleep 3")
    after = runner.xruns()
    assert after["out"] > before["out"] and after["in"] > before["in"], f"{before} {after}"
    log = runner.log()
    assert "no microphone" not in log and "no loudspeaker" not in log, log
    return f"{before} before, {after} after"


def paced(place, result):
    """a card of stereo only, and one that records silence, are read and written at the speed of sound"""
    runner = place.runner(result, place.card("Dummy"), place.card("USB-Audio"))
    runner.wait_for("session started")
    time.sleep(10)
    log = runner.log()
    assert "no microphone" not in log and "no loudspeaker" not in log and "session ended" not in log, log
    # A loudspeaker that starts with less than its USB card takes at once runs dry with each chunk: 140 times.
    xruns = runner.xruns()
    assert xruns["out"] < 100, xruns
    return str(xruns)


def speaker(place, result):
    """what is said into the loop comes out of the AC97 card, into a file of this machine"""
    # Its mixer is muted at first.
    for control in ("Master", "PCM"):
        place.guest.run(f"/peer/amixer -q -c {place.ids['ICH']} sset {control} 80% unmute")
    place.play(result)
    runner = place.runner(result, LOOP, place.card("ICH"))
    runner.wait_for("session started")
    place.guest.run("wait $player")
    runner.stop()
    result.kept.clear()
    place.guest.off()
    with wave.open(str(place.guest.sound)) as sound:
        frames, channels, rate = sound.readframes(sound.getnframes()), sound.getnchannels(), sound.getframerate()
    left = b"".join(frames[at:at + 2] for at in range(0, len(frames), 2 * channels))
    like, _ = likeness(loudness(place.sentence), blocks(left, rate))
    assert like >= LIKENESS_MIN, f"like {like:.2f}, {len(frames)} bytes, at most {max(blocks(left, rate), default=0):.0f}"
    return f"like {like:.2f}"


# The last one ends the machine.
CHECKS = [listed, loop, busy, unplugged, stopped, paced, speaker]


def main(binary, kernel, names):
    with Report() as report, tempfile.TemporaryDirectory() as folder:
        place = Place(binary, kernel, folder)
        try:
            for name, check in chosen(CHECKS, names).items():
                with report.check(check, name) as result:
                    result.show(place.guest.log_text)
                    result.said = check(place, result)
        finally:
            place.guest.stop()
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--kernel", type=pathlib.Path, required=True)
    given = parser.parse_args()
    sys.exit(main(given.binary.resolve(), given.kernel.resolve(), given.checks))
