"""The image of raspberry-pi without a Raspberry Pi: its structure, and as far as qemu's model of a Pi 3 B goes.

    raspberry.py IMAGE [--only structure|boot] [--keep]

The model has no firmware: kernel, device tree, initrd and command line are taken from the boot partition, as the firmware would, and
given to qemu. It has no network, so the console tells that the service listens. What this does not prove: bootcode.bin, start.elf and the
Pi 5's bootloader with this config.txt, Ethernet, Wi-Fi, the SD card's controllers of Pi 4 and 5, anything of a Zero 2 W. For the Pi 5 each
device of its tree that a boot needs has a driver here, and those of the card are in the initrd.
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
# Drivers required to mount root: SD controllers of Pi 3, 4 and 5, MMC block devices, the file system. And the interrupts of the Pi 5's PCIe.
INITRD = ["bcm2835.ko", "sdhci-iproc.ko", "sdhci-brcmstb.ko", "mmc_block.ko", "ext4.ko", "fsck.ext4", "irq-bcm2712-mip.ko"]
DEVICE_TREES = ["bcm2837-rpi-zero-2-w.dtb", "bcm2837-rpi-3-a-plus.dtb", "bcm2837-rpi-3-b.dtb", "bcm2837-rpi-3-b-plus.dtb", "bcm2711-rpi-4-b.dtb",
                "bcm2712-rpi-5-b.dtb"]
# What the tree of the Pi 5 has on the way to its SD card, with pins and power; and to network, USB, watchdog, clocks, random numbers.
CARD = ["brcm,bcm2712-sdhci", "brcm,bcm2712{stepping}-pinctrl", "brcm,bcm2712{stepping}-aon-pinctrl", "brcm,brcmstb-gpio", "regulator-gpio", "regulator-fixed"]
SYSTEM = ["brcm,bcm2712-pcie", "brcm,bcm2712-mip", "brcm,bcm7216-pcie-sata-rescal", "raspberrypi,rp1-clocks", "raspberrypi,rp1-gpio", "raspberrypi,rp1-gem",
          "snps,dwc3", "brcm,bcm2712-pm", "raspberrypi,firmware-clocks", "brcm,bcm2711-rng200"]
# Drivers that no compatible string names: RP1 on PCI, the chip of the Ethernet socket, speed of the processor, watchdog, Wi-Fi on SDIO.
MODULES = ["rp1_pci", "broadcom", "raspberrypi-cpufreq", "bcm2835_wdt", "brcmfmac"]
# Debian has no firmware for the chip of some Zero 2 W (43436); see IMAGE.md.
WIFI = ["brcmfmac43430-sdio.bin", "brcmfmac43430-sdio.raspberrypi,model-zero-2-w.txt", "brcmfmac43455-sdio.bin", "brcmfmac43455-sdio.clm_blob",
        *(f"brcmfmac43455-sdio.raspberrypi,{model}.txt" for model in ("3-model-b-plus", "4-model-b", "5-model-b"))]


def boot_file(image, name):
    done = subprocess.run(["mtype", "-i", f"{image}@@{BOOT_PARTITION}", f"::{name}"], capture_output=True, check=True)
    return done.stdout


def settings(image, model):
    """What config.txt sets on one model, as its firmware reads it: the last line of a name counts."""
    found, mine = {}, True
    for line in boot_file(image, "config.txt").decode().splitlines():
        line = line.strip()
        if line.startswith("["):
            mine = line in ("[all]", f"[{model}]")
        elif mine and line and not line.startswith("#"):
            name, value = line.split(" " if line.startswith("initramfs ") else "=", 1)
            found[name] = value
    return found


def kernel_names(image):
    """Kernel and initrd according to config.txt."""
    old, new = settings(image, "pi3"), settings(image, "pi5")
    assert (old["arm_64bit"], old["upstream_kernel"], new["upstream_kernel"]) == ("1", "1", "0"), (old, new)
    assert (old["kernel"], old["initramfs"]) == (new["kernel"], new["initramfs"]), (old, new)
    return old["kernel"], old["initramfs"]


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


def sorted_tree(tree):
    """The text of a device tree, without the names of pins, which change nothing."""
    return [line for line in run("dtc", "-q", "-s", "-I", "dtb", "-O", "dts", tree).splitlines() if "gpio-line-names" not in line]


def pi_5(image, folder, inside):
    """The trees of both steppings of the Pi 5, and a driver for each device; `inside` are the names in the initrd."""
    ours, theirs, overlay, both = (folder / name for name in ("bcm2712-rpi-5-b.dtb", "bcm2712-d-rpi-5-b.dtb", "bcm2712d0.dtbo", "d0.dtb"))
    theirs.write_bytes(boot_file(image, theirs.name))
    overlay.write_bytes(boot_file(image, f"overlays/{overlay.name}"))
    run("fdtoverlay", "-i", ours, "-o", both, overlay)
    assert sorted_tree(both) == sorted_tree(theirs) != sorted_tree(ours), "the overlay does not make the kernel's tree of the D0 stepping"
    modules = folder / "root" / "usr/lib/modules"
    version = kernel_names(image)[0].removeprefix("vmlinuz-")
    paths = {pathlib.Path(line.split(":")[0]).name.split(".")[0].replace("-", "_") for line in (modules / version / "modules.dep").read_text().splitlines()}
    loaded = {line.split()[1]: line.split()[2] for line in (modules / version / "modules.alias").read_text().splitlines() if line.startswith("alias of:")}
    builtin = (modules / version / "modules.builtin.modinfo").read_bytes().decode(errors="replace").split("\0")
    builtin = {line.split("=", 1)[1] for line in builtin if ".alias=of:" in line}
    for tree, stepping in ((ours, "c0"), (both, "d0")):
        for name in [text.format(stepping=stepping) for text in CARD + SYSTEM]:
            assert name.encode() + b"\0" in tree.read_bytes(), f"{tree.name} has no {name}"
            alias = f"of:N*T*C{name}"
            assert alias in builtin or loaded.get(alias) in paths, f"no driver for {name}"
            assert name in SYSTEM or alias in builtin or any(
                entry.split("/")[-1].replace("-", "_").startswith(f"{loaded[alias]}.ko") for entry in inside), f"the initrd has no driver for {name}"
    for name in MODULES:
        assert name.replace("-", "_") in paths, f"no module {name}"
    print(f"PASS Pi 5: trees of the steppings C and D0; drivers of {version} for {len(CARD)} parts of the card, in the initrd, and "
          f"{len(SYSTEM) + len(MODULES)} of the system")


def structure(image, folder):
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    assert table["label"] == "dos", table
    boot, root = table["partitions"]
    assert (boot["type"], root["type"]) == ("c", "83") and boot["start"] * 512 == BOOT_PARTITION, table
    cmdline = boot_file(image, "cmdline.txt").decode().strip()
    assert "root=LABEL=edge-root" in cmdline and "\n" not in cmdline, cmdline
    assert re.findall(r"console=(\w+)", cmdline) == ["tty0", "ttyAMA10", "ttyS1"], cmdline
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

    out = folder / "ext4"
    run("dd", f"if={image}", f"of={out}", "bs=1M", f"skip={root['start'] // 2048}", f"count={root['size'] // 2048}", "conv=sparse")
    run("e2fsck", "-f", "-n", out)
    files = folder / "root"
    for part in ("usr/lib/modules", "usr/lib/firmware", "etc/apt"):
        (files / part).parent.mkdir(parents=True, exist_ok=True)
        run("debugfs", "-R", f"rdump /{part} {(files / part).parent}", out)
    out.unlink()
    # `exists` follows links.
    for name in WIFI:
        assert (files / "usr/lib/firmware/brcm" / name).exists(), f"no {name}"
    print(f"PASS root file system: e2fsck is content; Wi-Fi firmware {', '.join(WIFI)}")
    pi_5(image, folder, inside)
    # Upgrades get the kernel from where this one is.
    assert "-backports main" in (files / "etc/apt/sources.list").read_text()
    assert "-backports" in (files / "etc/apt/preferences.d/edge-board.pref").read_text()
    # An upgrade adds a kernel before the old one can go.
    size = sum((folder / name).stat().st_size for name in (kernel, initrd))
    free = re.search(r"([\d ]+) bytes free", run("mdir", "-i", f"{image}@@{BOOT_PARTITION}", "::"))
    free = int(free[1].replace(" ", ""))
    print(f"PASS boot partition: {free // 1000000} MB free, room for {free // size} more kernels of {size // 1000000} MB with initrd")
    assert free > 2 * size, "no room for two more kernels"


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
