"""A virtual board: qemu-system-aarch64 with one image, one tap device, and a disk whose write cache a power cut empties."""

import asyncio
import pathlib
import shutil
import socket
import subprocess
import sys
import time

FIRMWARE = "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd"
# Emulated, on a busy machine: a boot takes one to five minutes.
BOOT_LIMIT_S = 1200
# Offset of the first partition, from boards/image.d/disk.sh.
BOOT_PARTITION = 1 << 20


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Board:
    """One machine with a disk of its own. `number` makes tap device, network 10.77.NUMBER.0/24 and hardware address."""

    def __init__(self, folder, image, number, settings, seed):
        self.folder, self.number, self.seed = pathlib.Path(folder) / str(number), number, seed
        self.folder.mkdir()
        self.disk = self.folder / "disk.img"
        shutil.copyfile("/dev/null", self.disk)
        run("cp", "--sparse=always", image, self.disk)
        # A card is larger than the image.
        run("truncate", "-s", "2G", self.disk)
        (self.folder / "edge-runner.txt").write_bytes(settings)
        run("mcopy", "-o", "-i", f"{self.disk}@@{BOOT_PARTITION}", self.folder / "edge-runner.txt", "::edge-runner.txt")
        self.tap, self.host, self.address = f"board{number}", f"10.77.{number}.1", f"10.77.{number}.2"
        self.mac = f"52:54:00:77:00:{number:02x}"
        run("ip", "tuntap", "add", self.tap, "mode", "tap")
        run("ip", "address", "add", f"{self.host}/24", "dev", self.tap)
        run("ip", "link", "set", self.tap, "up")
        self.server = self.machine = None
        self.monitor = self.folder / "monitor.socket"
        self.starts = 0

    @property
    def console(self):
        return "".join(self.console_of(start).read_text(errors="replace") for start in range(1, self.starts + 1))

    def console_of(self, start):
        return self.folder / f"console-{start}"

    def start(self):
        disk = self.folder / "disk.socket"
        self.server = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("disk.py"), self.disk, disk, "--seed", str(self.seed + self.starts)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout.readline().strip() == "ready"
        self.starts += 1
        self.machine = subprocess.Popen(
            ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72", "-smp", "2", "-m", "1024", "-bios", FIRMWARE,
             "-drive", f"file=nbd+unix:///?socket={disk},format=raw,if=none,id=disk,cache=writeback",
             "-device", "virtio-blk-pci,drive=disk",
             "-netdev", f"tap,id=net,ifname={self.tap},script=no,downscript=no",
             "-device", f"virtio-net-pci,netdev=net,mac={self.mac},romfile=",
             "-device", "virtio-rng-pci", "-display", "none", "-monitor", f"unix:{self.monitor},server=on,wait=off",
             "-serial", f"file:{self.console_of(self.starts)}"],
            stdin=subprocess.DEVNULL)

    def registers(self):
        """Where the processors are, twice: a machine that hangs is at the same place."""
        said = b""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self.monitor))
            monitor.settimeout(2)
            for _ in range(2):
                monitor.sendall(b"info registers -a\n")
                try:
                    while part := monitor.recv(65536):
                        said += part
                except TimeoutError:
                    pass
        return said.decode(errors="replace")

    def end_disk(self, word):
        said, _ = self.server.communicate(word, timeout=60)
        self.server = None
        return said.strip()

    def cut(self):
        """Cuts the power at once. Returns the report of the disk cache."""
        self.machine.kill()
        self.machine.wait()
        self.machine = None
        return self.end_disk("cut\n")

    async def off(self, limit_s=300):
        """Waits until the machine has shut down."""
        start = time.monotonic()
        while self.machine.poll() is None:
            if time.monotonic() - start > limit_s:
                raise AssertionError(f"still on after {limit_s} s")
            await asyncio.sleep(0.5)
        self.machine = None
        self.end_disk("\n")

    def stop(self):
        if self.machine:
            self.machine.kill()
            self.machine.wait()
        if self.server:
            self.server.kill()
            self.server.wait()
