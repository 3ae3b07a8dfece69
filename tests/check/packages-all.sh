#!/usr/bin/env bash
# Installs the packages of Debian that the stages of a night need beyond those of the gate, as root: boards and their images,
# releases, telephones, other nodes, container engines, an object store, GStreamer's headers, a virtual machine with sound cards, and the
# tools that measure.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/check/packages.sh
boards/release.d/packages.sh
apt-get install -y -qq --no-install-recommends runc umoci skopeo lintian \
    qemu-system-arm qemu-efi-aarch64 dnsmasq-base systemd \
    qemu-system-x86 cpio kmod \
    buildah podman docker.io busybox-static rootlesskit uidmap procps \
    radosgw ceph-mon ceph-mgr ceph-osd \
    redis-server baresip libopus-dev libopusfile-dev libsoxr-dev pkg-config gcc g++ \
    libgstreamer-plugins-bad1.0-dev valgrind qemu-user >/dev/null
