"""PipeWire with a virtual microphone and a virtual loudspeaker, without any sound hardware: a session of its own below a folder.

The microphone hears what is played into it (`play`), and what the loudspeaker gets is recorded (`record`). ALSA's programs find both
as `default`, by PipeWire's plug-in for ALSA, which need not be installed.
"""

import os
import pathlib
import subprocess
import time

# A time limit.
LIMIT_S = 20
VIRTUAL = """
context.objects = [
    { factory = adapter
      args = { factory.name = support.null-audio-sink node.name = mic media.class = Audio/Source/Virtual
               object.linger = true audio.rate = 48000 audio.position = MONO priority.session = 3000 } }
    { factory = adapter
      args = { factory.name = support.null-audio-sink node.name = speaker media.class = Audio/Sink
               object.linger = true audio.rate = 48000 audio.position = "FL,FR" priority.session = 3000 } }
]
"""
# As the package of the plug-in has it.
SETTINGS = """
pcm_type.pipewire { lib "PLUGIN/libasound_module_pcm_pipewire.so" }
pcm.!default { type pipewire playback_node "-1" capture_node "-1" hint { show on description "Default ALSA Output" } }
pcm.pipewire { type pipewire playback_node "-1" capture_node "-1" hint { show on description "PipeWire Sound Server" } }
"""


class SoundServer:
    def __init__(self, folder, plugin):
        self.folder = pathlib.Path(folder)
        for name in ("run", "config/pipewire/pipewire.conf.d", "state", "home"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "run").chmod(0o700)
        (self.folder / "config/pipewire/pipewire.conf.d/virtual.conf").write_text(VIRTUAL)
        self.variables = {
            "XDG_RUNTIME_DIR": str(self.folder / "run"), "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.folder / "state"), "HOME": str(self.folder / "home"),
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={self.folder}/run/bus", "PIPEWIRE_RUNTIME_DIR": str(self.folder / "run"),
        }
        # Where ALSA's programs look for the settings of a user.
        self.settings = self.folder / "home/.asoundrc"
        self.settings.write_text(SETTINGS.replace("PLUGIN", str(plugin)))
        self.log = open(self.folder / "log", "w")
        self.bus = self.spawn("dbus-daemon", "--session", "--nofork", f"--address={self.variables['DBUS_SESSION_BUS_ADDRESS']}")
        self.servers, self.programs = [], 0
        self.start()

    def spawn(self, *words, **how):
        how = {"stdout": self.log, "stderr": self.log, "stdin": subprocess.DEVNULL, **how}
        return subprocess.Popen(words, env={**os.environ, **self.variables}, **how)

    def start(self):
        self.servers = [self.spawn("pipewire"), self.spawn("wireplumber")]
        self.wait_for("mic:input", "speaker:monitor")

    def kill(self):
        for server in self.servers:
            server.kill()
        for server in self.servers:
            server.wait()
        self.servers = []

    def stop(self):
        self.kill()
        self.bus.kill()
        self.bus.wait()
        self.log.close()

    def ports(self):
        listed = subprocess.run(
            ["pw-link", "-io"], env={**os.environ, **self.variables}, capture_output=True, text=True, timeout=LIMIT_S)
        return [line.strip() for line in listed.stdout.splitlines()]

    def wait_for(self, *prefixes):
        """The ports with these beginnings, once there is one of each."""
        start = time.monotonic()
        while True:
            ports = self.ports()
            found = [[port for port in ports if port.startswith(prefix)] for prefix in prefixes]
            if all(found):
                return [of[0] for of in found]
            assert time.monotonic() - start < LIMIT_S, f"not among {ports}: {prefixes}; {(self.folder / 'log').read_text()}"
            time.sleep(0.05)

    def link(self, output, into):
        done = subprocess.run(
            ["pw-link", output, into], env={**os.environ, **self.variables}, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr

    def name(self, kind):
        """A name that no other program has: the ports of one that has ended stay for a moment."""
        self.programs += 1
        return f"{kind}-{self.programs}"

    def play(self, file):
        """Plays a WAV file into the microphone, and returns the process."""
        name = self.name("voice")
        player = self.spawn("pw-play", "--target", "0", "-P", f"{{ node.name = {name} }}", str(file))
        self.link(*self.wait_for(f"{name}:output", "mic:input"))
        return player

    def record(self, file):
        """Records the loudspeaker to a WAV file, from when it returns until the process is interrupted."""
        name = self.name("receiver")
        recorder = self.spawn(
            "pw-record", "--target", "0", "--rate", "48000", "--channels", "1", "--format", "s16", "-P", f"{{ node.name = {name} }}", str(file))
        self.link(*self.wait_for("speaker:monitor", f"{name}:input"))
        return recorder
