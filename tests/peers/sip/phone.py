"""A telephone: the program baresip, controlled by its JSON commands. It says a tone, and records what it hears."""

import asyncio
import json
import pathlib
import tempfile
import time
import wave

import numpy as np

# In the order of a stock configuration; without sound devices.
MODULES = ("g711.so", "aufile.so", "aubridge.so", "sndfile.so")
APPLICATIONS = ("menu.so", "ctrl_tcp.so")
PATIENCE_S = 30
# Of the line.
RATE = 8000


def tone(folder, hz):
    """Writes a tone that is longer than any check; returns its path."""
    path = folder / "tone.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((8000 * np.sin(2 * np.pi * hz * np.arange(300 * RATE) / RATE)).astype(np.int16).tobytes())
    return path


class Phone:
    def __init__(self, number, address, port, hz=440, answers=False):
        self.number, self.address, self.port, self.hz = number, address, port, hz
        self.folder = tempfile.TemporaryDirectory(prefix="baresip-")
        self.events, self.process = [], None
        folder = pathlib.Path(self.folder.name)
        (folder / "recordings").mkdir()
        modules = [f"module {name}" for name in MODULES] + ["module_tmp account.so"] + [f"module_app {name}" for name in APPLICATIONS]
        (folder / "config").write_text("\n".join([
            f"sip_listen {address}:{port}", "module_path /usr/lib/baresip/modules", f"audio_source aufile,{tone(folder, hz)}", "audio_player aubridge,nowhere",
            "audio_alert aubridge,alert", "ausrc_srate 8000", "auplay_srate 8000", f"snd_path {folder / 'recordings'}",
            f"ctrl_tcp_listen 127.0.0.1:{port + 1000}", "rtp_ports 20000-30000", f"net_interface eth0", *modules, ""]))
        mode = "auto" if answers else "manual"
        (folder / "accounts").write_text(f"<sip:{number}@{address}:{port}>;regint=0;audio_codecs=PCMU/8000/1;answermode={mode}\n")
        (folder / "contacts").write_text("")

    async def start(self):
        log = open(pathlib.Path(self.folder.name) / "log", "w")
        self.process = await asyncio.create_subprocess_exec(
            "baresip", "-4", "-f", self.folder.name, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(200):
            try:
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port + 1000)
                break
            except OSError:
                await asyncio.sleep(0.05)
        else:
            raise RuntimeError("baresip did not start: " + self.log_text())
        self.task = asyncio.ensure_future(self.read())
        return self

    def log_text(self):
        return (pathlib.Path(self.folder.name) / "log").read_text(errors="replace")

    async def read(self):
        """Reads netstrings of JSON."""
        while True:
            length = await self.reader.readuntil(b":")
            text = await self.reader.readexactly(int(length[:-1]))
            await self.reader.readexactly(1)
            message = json.loads(text)
            if message.get("event"):
                self.events.append((time.monotonic(), message["type"], message.get("param", "")))

    def tell(self, command, params=""):
        text = json.dumps({"command": command, "params": params}).encode()
        self.writer.write(b"%d:%s," % (len(text), text))

    def dial(self, uri):
        self.tell("dial", uri)

    def hang_up(self):
        self.tell("hangup")

    def press(self, key):
        self.tell("sndcode", key)

    def told(self, kind, param=None, since=0.0):
        """Returns the time of the first such event."""
        return next((at for at, name, about in self.events if name == kind and at >= since and param in (None, about)), None)

    async def until(self, kind, param=None, limit_s=PATIENCE_S, since=0.0):
        start = time.monotonic()
        while not (at := self.told(kind, param, since)):
            if time.monotonic() - start > limit_s:
                raise AssertionError(f"no {kind} {param or ''} within {limit_s} s; told {self.events}\n{self.log_text()[-3000:]}")
            await asyncio.sleep(0.02)
        return at

    def received(self):
        """Returns the recordings of what it heard, with their rate in Hz."""
        pieces, rate = [np.zeros(0)], RATE
        for path in sorted(pathlib.Path(self.folder.name, "recordings").glob("*dec*.wav")):
            try:
                with wave.open(str(path)) as file:
                    rate = file.getframerate()
                    pieces.append(np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16).astype(float))
            except (EOFError, wave.Error):
                # Its header is written at the end, or not yet.
                data = np.frombuffer(path.read_bytes()[44:][: len(path.read_bytes()[44:]) // 2 * 2], dtype=np.int16)
                pieces.append(data.astype(float))
        return np.concatenate(pieces), rate

    async def stop(self):
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.folder.cleanup()


def control(hz, rate):
    """A second of a tone as the codec of the phone gives it: mu-law, of 255 logarithmic steps (ITU-T G.711)."""
    tone = 0.25 * np.sin(2 * np.pi * hz * np.arange(rate) / rate)
    coded = np.round(np.sign(tone) * np.log1p(255 * np.abs(tone)) / np.log(256) * 127) / 127
    return 32768 * np.sign(coded) * (256 ** np.abs(coded) - 1) / 255
