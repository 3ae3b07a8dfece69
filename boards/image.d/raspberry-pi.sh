# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2154
# Raspberry Pi Zero 2 W, 3 and 4: MBR, the only format that the boot ROM of the Pi 3 family reads, and a FAT partition with
# firmware, kernel, initrd and device trees, which Debian's raspi-firmware updates. This kernel has no Ethernet on a Pi 5.
board_packages=(linux-image-arm64 raspi-firmware firmware-brcm80211)
table=dos
# Firmware, and two kernels with initrds.
boot_mib=256

boot_files() {
    local root=$1 boot=$2 file
    find "$root/boot/firmware" -mindepth 1 -maxdepth 1 -exec mv -t "$boot" {} +
    for file in bootcode.bin start.elf start4.elf config.txt cmdline.txt bcm2837-rpi-zero-2-w.dtb bcm2837-rpi-3-b.dtb \
        bcm2837-rpi-3-b-plus.dtb bcm2711-rpi-4-b.dtb; do
        [ -s "$boot/$file" ] || fail "the boot partition has no $file"
    done
    grep -q 'root=LABEL=edge-root ' "$boot/cmdline.txt" || fail "cmdline.txt names another root: $(cat "$boot/cmdline.txt")"
}
