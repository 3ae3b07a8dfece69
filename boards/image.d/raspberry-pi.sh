# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2154
# Raspberry Pi Zero 2 W, 3, 4 and 5: MBR, the only format that the boot ROM of the Pi 3 family reads, and a FAT partition
# with firmware, kernel, initrd and device trees, which Debian's raspi-firmware updates. A Pi 5 has its firmware in EEPROM,
# and takes the rest from the same files. The kernel is that of backports (backports.pref).
need dtc device-tree-compiler
board_packages=(linux-image-arm64 raspi-firmware firmware-brcm80211)
board_suites=("$suite-backports")
board_options=(
    --setup-hook='mkdir -p "$1/etc/apt/preferences.d"'
    --setup-hook="cp $parts/backports.pref \"\$1/etc/apt/preferences.d/edge-board.pref\""
    # Device trees of other makers: 100 MB for each kernel.
    --dpkgopt='path-exclude=/usr/lib/modules/*/dtb/*' --dpkgopt='path-include=/usr/lib/modules/*/dtb/broadcom/*'
)
table=dos
# 22 MB of firmware, and room for three kernels of 52 MB with initrds of 39 MB, which grow.
boot_mib=384

boot_files() {
    local root=$1 boot=$2 file
    find "$root/boot/firmware" -mindepth 1 -maxdepth 1 -exec mv -t "$boot" {} +
    for file in bootcode.bin start.elf start4.elf config.txt cmdline.txt bcm2837-rpi-zero-2-w.dtb bcm2837-rpi-3-b.dtb \
        bcm2837-rpi-3-b-plus.dtb bcm2711-rpi-4-b.dtb bcm2712-rpi-5-b.dtb; do
        [ -s "$boot/$file" ] || fail "the boot partition has no $file"
    done
    grep -q 'root=LABEL=edge-root ' "$boot/cmdline.txt" || fail "cmdline.txt names another root: $(cat "$boot/cmdline.txt")"
    dtc -q -I dts -O dtb -o "$boot/overlays/bcm2712d0.dtbo" "$parts/bcm2712d0.dts"
    fdtoverlay -i "$boot/bcm2712-rpi-5-b.dtb" -o "$work/d0.dtb" "$boot/overlays/bcm2712d0.dtbo" ||
        fail "the overlay for newer boards does not fit the kernel's device tree of the Pi 5"
}
