#!/usr/bin/env bash
# Installs what boards/release needs on Debian or Ubuntu, with --images too, as root. Rust comes from https://rustup.rs.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends git python3 openssh-client dpkg binutils xz-utils cmake make debian-archive-keyring \
    mmdebstrap fdisk e2fsprogs dosfstools mtools zstd device-tree-compiler qemu-user-static >/dev/null
