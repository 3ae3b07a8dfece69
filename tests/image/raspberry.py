"""The image of raspberry-pi without a Raspberry Pi: its structure, and as far as qemu's model of a Pi 3 B goes.

    raspberry.py IMAGE [--only structure|boot] [--keep]

The model has no firmware: kernel, device tree, initrd and command line are taken from the boot partition, as the firmware would, and
given to qemu. It has no network, so the console tells that the service listens. What this does not prove: bootcode.bin and start.elf
with this config.txt, Ethernet, Wi-Fi, the SD card's controller of the Pi 4, anything of a Zero 2 W.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from machine import BOOT_PARTITION, run

BOOT_LIMIT_S = 2400
# The model resets at once when its watchdog is started. And systemd is silent on a console with a login prompt.
FOR_THE_MODEL = " systemd.watchdog_sec=0 systemd.mask=serial-getty@ttyS1.service"
# Colours of the console.
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Drivers required to mount root: SD controllers of Pi 3 and 4, MMC block devices, the file system.
INITRD = ["bcm2835.ko", "sdhci-iproc.ko", "mmc_block.ko", "ext4.ko", "fsck.ext4"]
DEVICE_TREES = ["bcm2837-rpi-zero-2-w.dtb", "bcm2837-rpi-3-a-plus.dtb", "bcm2837-rpi-3-b.dtb", "bcm2837-rpi-3-b-plus.dtb", "bcm2711-rpi-4-b.dtb"]
# Debian has no firmware for the chip of some Zero 2 W (43436); see IMAGE.md.
WIFI = ["brcmfmac43430-sdio.bin", "brcmfmac43430-sdio.raspberrypi,model-zero-2-w.txt", "brcmfmac43455-sdio.bin"]


def boot_file(image, name):
    done = subprocess.run(["mtype", "-i", f"{image}@@{BOOT_PARTITION}", f"::{name}"], capture_output=True, check=True)
    return done.stdout


def kernel_names(image):
    """Kernel and initrd according to config.txt."""
    config = boot_file(image, "config.txt").decode()
    lines = [line.strip() for line in config.splitlines()]
    kernel = next(line.removeprefix("kernel=") for line in lines if line.startswith("kernel="))
    initrd = next(line.split()[1] for line in lines if line.startswith("initramfs "))
    assert "arm_64bit=1" in lines and "upstream_kernel=1" in lines, config
    return kernel, initrd


def archive_names(data):
    """The names in cpio archives of the "newc" kind, one after the other, and of the modules that the kernel has built in. An entry
    has 6 bytes of magic and 13 numbers of 8 hexadecimal digits; all is padded to 4. What is small already comes first, as it is;
    what follows may be compressed."""
    names, at = [], 0
    while at < len(data):
        if data[at:at + 6] == b"070701":
            size, length = int(data[at + 54:at + 62], 16), int(data[at + 94:at + 102], 16)
            names.append(data[at + 110:at + 109 + length].decode(errors="replace"))
            at = (at + 110 + length + 3) // 4 * 4
            if names[-1].endswith("/modules.builtin"):
                names += data[at:at + size].decode().split()
            at = (at + size + 3) // 4 * 4
        elif data[at] == 0:
            at += 1
        else:
            rest = subprocess.run(["zstd", "-dc"], input=data[at:], capture_output=True, check=True).stdout
            return names + archive_names(rest)
    return names


def structure(image, folder):
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    assert table["label"] == "dos", table
    boot, root = table["partitions"]
    assert (boot["type"], root["type"]) == ("c", "83") and boot["start"] * 512 == BOOT_PARTITION, table
    cmdline = boot_file(image, "cmdline.txt").decode().strip()
    assert "root=LABEL=edge-root" in cmdline and "\n" not in cmdline, cmdline
    print(f"PASS table: MBR, FAT of {boot['size'] // 2048} MiB, ext4 of {root['size'] // 2048} MiB\nPASS cmdline.txt: {cmdline}")

    kernel, initrd = kernel_names(image)
    listing = run("mdir", "-b", "-i", f"{image}@@{BOOT_PARTITION}", "::")
    for name in ["bootcode.bin", "start.elf", "fixup.dat", "start4.elf", "fixup4.dat", "edge-runner.txt", kernel, initrd, *DEVICE_TREES]:
        assert f"::/{name}\n" in listing, f"no {name} on the boot partition:\n{listing}"
        (folder / name).write_bytes(boot_file(image, name))
    # The header of an arm64 kernel has its magic at byte 56.
    assert (folder / kernel).read_bytes()[56:60] == b"ARMd", "the kernel is no plain arm64 image, which the firmware needs"
    print(f"PASS boot files: {kernel}, {initrd}, firmware, {len(DEVICE_TREES)} device trees")

    inside = archive_names((folder / initrd).read_bytes())
    for wanted in INITRD:
        assert any(name.split("/")[-1].startswith(wanted) for name in inside), f"the initrd lacks {wanted}"
    print(f"PASS initrd: {', '.join(INITRD)}")

    out = folder / "root"
    run("dd", f"if={image}", f"of={out}", "bs=1M", f"skip={root['start'] // 2048}", f"count={root['size'] // 2048}", "conv=sparse")
    run("e2fsck", "-f", "-n", out)
    firmware = run("debugfs", "-R", "ls -p /usr/lib/firmware/brcm", out)
    for name in WIFI:
        assert name in firmware, f"no {name}"
    out.unlink()
    print(f"PASS root file system: e2fsck is content; Wi-Fi firmware {', '.join(WIFI)}")


def boot(image, folder):
    kernel, initrd = kernel_names(image)
    for name in (kernel, initrd, "bcm2837-rpi-3-b.dtb"):
        (folder / name).write_bytes(boot_file(image, name))
    card = folder / "card.img"
    run("cp", "--sparse=always", image, card)
    # The model needs cards whose size is a power of two.
    run("truncate", "-s", "2G", card)
    console = folder / "console"
    start = time.monotonic()
    machine = subprocess.Popen(
        ["qemu-system-aarch64", "-M", "raspi3b", "-kernel", folder / kernel, "-initrd", folder / initrd,
         "-dtb", folder / "bcm2837-rpi-3-b.dtb", "-append", boot_file(image, "cmdline.txt").decode().strip() + FOR_THE_MODEL,
         "-drive", f"file={card},if=sd,format=raw", "-display", "none", "-monitor", "none", "-no-reboot",
         # The first port is Bluetooth on the board, the second is the console.
         "-serial", "null", "-serial", f"file:{console}"], stdin=subprocess.DEVNULL)
    try:
        # systemd prints "Started" when the service has notified readiness.
        while True:
            text = ANSI.sub("", console.read_text(errors="replace") if console.exists() else "")
            if re.search(r"Started\s+edge-runner\.service", text):
                break
            if machine.poll() is not None or time.monotonic() - start > BOOT_LIMIT_S:
                raise AssertionError(f"no runner after {time.monotonic() - start:.0f} s; the console ends with:\n{text[-3000:]}")
            time.sleep(2)
        print(f"PASS boot: qemu's Raspberry Pi 3 B has started edge-runner.service after {time.monotonic() - start:.0f} s")
    finally:
        machine.kill()
        machine.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("image", type=pathlib.Path)
    parser.add_argument("--only", choices=["structure", "boot"])
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-pi-"))
    try:
        if args.only != "boot":
            structure(args.image, folder)
        if args.only != "structure":
            boot(args.image, folder)
    except (AssertionError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"FAIL {error}")
        sys.exit(1)
    finally:
        if args.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


main()
