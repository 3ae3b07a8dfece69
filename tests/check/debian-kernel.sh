#!/usr/bin/env bash
# Prints the folder of Debian's kernel for virtual machines, which is unpacked once into target/debian-kernel and not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
unpacked=target/debian-kernel
if [ ! -e $unpacked/boot ]; then
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-.*\)$/\1/p' | head -n 1)
    [ -n "$package" ] || exit 1
    rm -rf $unpacked $unpacked.part
    mkdir -p $unpacked.part
    (cd $unpacked.part && apt-get download -qq "$package" >&2 && dpkg -x linux-image-*.deb . && rm linux-image-*.deb)
    mv $unpacked.part $unpacked
fi
readlink -e $unpacked
