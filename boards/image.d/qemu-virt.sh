# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2154
# Virtual machines with UEFI, such as `qemu-system-aarch64 -M virt`: GPT, an EFI system partition with systemd-boot, and
# Debian's cloud kernel, which has the virtual devices and little else.
board_packages=(linux-image-cloud-arm64 systemd-boot systemd-boot-efi)
table=gpt
# Two kernels of about 40 MB with their initrds, and spare space.
boot_mib=224

boot_files() {
    local root=$1 boot=$2
    find "$root/boot/efi" -mindepth 1 -maxdepth 1 -exec mv -t "$boot" {} +
    [ -s "$boot/EFI/BOOT/BOOTAA64.EFI" ] || fail "systemd-boot is not in the boot partition"
    [ -n "$(find "$boot/loader/entries" -name '*.conf' 2>/dev/null)" ] || fail "the boot partition has no kernel entry"
}
