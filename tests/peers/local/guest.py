"""A virtual machine with sound cards of its own: Debian's kernel, busybox, and the programs that a check names. It has no disk and no
network; a shell on its serial line runs commands."""

import base64
import gzip
import pathlib
import re
import select
import shutil
import socket
import stat
import subprocess
import time

# Emulated, on a busy machine.
BOOT_LIMIT_S = 300
LIMIT_S = 60
# What the cards need, with what these need; `modprobe` finds the order.
MODULES = ("sound", "drivers/usb/core", "drivers/usb/common", "drivers/usb/host", "drivers/media/mc")
CARDS = ("snd-aloop pcm_substreams=1", "snd-dummy pcm_substreams=1", "snd-intel8x0", "xhci-pci", "snd-usb-audio")
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root LC_ALL=C PS1=
mkdir -p /proc /sys /dev /tmp /root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ifconfig lo 127.0.0.1 up
{cards}
stty -echo -onlcr
echo 'the machine is up'
exec sh 2>&1
"""


class Guest:
    """One machine. `programs` are files of this machine, with the paths that they get."""

    def __init__(self, folder, kernel, programs):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.serial, self.monitor, self.sound = (self.folder / name for name in ("serial", "monitor", "ac97.wav"))
        image = next((kernel / "boot").glob("vmlinuz-*"))
        self.fill(kernel, programs)
        self.said = ""
        self.line = socket.socket(socket.AF_UNIX)
        self.machine = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "tcg", "-smp", "2", "-m", "768", "-display", "none", "-nic", "none", "-no-reboot",
             "-kernel", image, "-initrd", self.folder / "initrd", "-append", "console=ttyS0 quiet panic=-1 random.trust_cpu=on",
             "-audiodev", f"wav,id=file,path={self.sound}", "-device", "AC97,audiodev=file",
             "-audiodev", "none,id=none", "-device", "qemu-xhci,id=usb", "-device", "usb-audio,id=phone,bus=usb.0,audiodev=none",
             "-serial", f"unix:{self.serial},server=on,wait=off", "-monitor", f"unix:{self.monitor},server=on,wait=off"],
            stdin=subprocess.DEVNULL)
        self.connect(self.line, self.serial)
        self.wait_for("the machine is up", BOOT_LIMIT_S)

    def fill(self, kernel, programs):
        """Makes the file system that the machine starts with."""
        root = self.folder / "root"
        (root / "bin").mkdir(parents=True)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        modules = next((kernel / "lib/modules").iterdir())
        target = root / "lib/modules" / modules.name
        for part in MODULES:
            shutil.copytree(modules / "kernel" / part, target / "kernel" / part)
        for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            shutil.copy(modules / name, target / name)
        subprocess.run(["depmod", "-b", root, modules.name], check=True)
        for file, path in programs.items():
            self.add(root, pathlib.Path(file), path)
        init = root / "init"
        init.write_text(INIT.format(cards="\n".join(f"modprobe {card}" for card in CARDS)))
        init.chmod(init.stat().st_mode | stat.S_IXUSR)
        names = subprocess.run(["find", "."], cwd=root, check=True, capture_output=True).stdout
        packed = subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=root, input=names, check=True, capture_output=True).stdout
        (self.folder / "initrd").write_bytes(gzip.compress(packed, 1))
        shutil.rmtree(root)

    def add(self, root, file, path):
        """Adds a file or a folder, and the libraries of a program."""
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            shutil.copytree(file, target, symlinks=True)
            return
        shutil.copy(file, target)
        needed = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+) \(0x", needed):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                shutil.copy(library, place)

    def connect(self, line, path):
        began = time.monotonic()
        while True:
            try:
                return line.connect(str(path))
            except OSError:
                if time.monotonic() - began > LIMIT_S or self.machine.poll() is not None:
                    raise
                time.sleep(0.1)

    def wait_for(self, text, limit_s=LIMIT_S):
        """Returns what the machine says before and with a text."""
        began, at = time.monotonic(), len(self.said)
        while text not in self.said[at:]:
            left = began + limit_s - time.monotonic()
            if left <= 0 or not select.select([self.line], [], [], left)[0]:
                raise AssertionError(f"no {text!r} in {limit_s} s")
            try:
                part = self.line.recv(65536)
            except OSError:
                part = b""
            assert part, "the machine has ended"
            self.said += part.decode(errors="replace").replace("\r", "")
        return self.said[at:]

    def run(self, command, limit_s=LIMIT_S):
        """Runs a command in the shell, and returns its output; a status that is not 0 fails."""
        # The shell shows the line no more, but the end has to differ from it.
        assert self.machine.poll() is None, "the machine has ended"
        self.line.sendall(f"{command}\necho \"[en\"\"ded $?]\"\n".encode())
        said = self.wait_for("[ended ", limit_s)
        if "]" not in said.rsplit("[ended ", 1)[1]:
            said += self.wait_for("]")
        output, status = said.rsplit("[ended ", 1)
        assert status.startswith("0]"), f"{command}: {status} {output}"
        return output

    def read(self, path):
        """Returns the bytes of a file."""
        before = self.said
        encoded = self.run(f"base64 {path}", 4 * LIMIT_S)
        self.said = before
        return base64.b64decode(re.sub(r"[^A-Za-z0-9+/=]", "", encoded))

    def ask(self, command):
        """Gives a command to the emulator."""
        with socket.socket(socket.AF_UNIX) as monitor:
            self.connect(monitor, self.monitor)
            monitor.settimeout(LIMIT_S)
            said = b""
            while not said.endswith(b"(qemu) "):
                said += monitor.recv(65536)
            monitor.sendall(f"{command}\n".encode())
            said = b""
            while not said.endswith(b"(qemu) "):
                said += monitor.recv(65536)

    def log_text(self):
        return self.said[-6000:]

    def off(self):
        """Ends the machine, so that the emulator completes its files."""
        if self.machine.poll() is None:
            self.ask_to_end()
            self.machine.wait(LIMIT_S)

    def ask_to_end(self):
        with socket.socket(socket.AF_UNIX) as monitor:
            self.connect(monitor, self.monitor)
            monitor.sendall(b"quit\n")
            while monitor.recv(65536):
                pass

    def stop(self):
        self.machine.kill()
        self.machine.wait()
        self.line.close()
