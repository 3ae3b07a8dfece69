#!/usr/bin/env bash
# From Debian's packages to a call with a virtual board whose power is cut in between. Emulated: half an hour and more.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
missing=
for tool in mmdebstrap:mmdebstrap qemu-system-aarch64:qemu-system-arm sfdisk:fdisk mkfs.vfat:dosfstools mcopy:mtools \
    mke2fs:e2fsprogs zstd:zstd dnsmasq:dnsmasq-base ssh:openssh-client ip:iproute2; do
    command -v ${tool%:*} >/dev/null || missing="$missing ${tool#*:}"
done
[ -e /usr/share/qemu-efi-aarch64/QEMU_EFI.fd ] || missing="$missing qemu-efi-aarch64"
[ "$(dpkg --print-architecture 2>/dev/null)" = arm64 ] || [ -e /usr/lib/binfmt.d/qemu-aarch64.conf ] || missing="$missing qemu-user-static"
if [ "$(id -u)" != 0 ]; then
    lacks 'the image and its boot. File ownership needs root'
    exit
fi
needs_namespaces 'the image and its start' || exit 0
if [ -n "$missing" ]; then
    lacks "the image cannot be built and started: apt-get install$missing"
    exit
fi
needs_python aiortc || exit 0

cross/build aarch64-unknown-linux-gnu --no-default-features --features runner
boards/package --target aarch64-unknown-linux-gnu
boards/image qemu-virt
unshare --net "$python" tests/image/run.py target/image/edge-runner-qemu-virt.img ${CUTS:+--cuts "$CUTS"}
[ -z "${CUTS:-}" ] || exit 0
if needs_python openai,websockets && needs 'apt-get install chromium espeak-ng' chromium espeak-ng node &&
    needs_node; then
    unshare --net "$python" tests/image/assistant.py target/image/edge-runner-qemu-virt.img
    unshare --net "$python" tests/image/setup.py target/image/edge-runner-qemu-virt.img
fi
