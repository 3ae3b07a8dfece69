#!/usr/bin/env bash
# Rates the unit and takes the package through its life in a Debian of its own: ARCH=arm64, armhf or amd64.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
if needs 'apt-get install systemd' systemd-analyze; then
    systemd-analyze security --offline=true --threshold=30 boards/common/edge-runner.service | tail -n 1
    # Programs that are not on this machine stand for those that are on a board.
    mkdir -p target/deb
    for unit in edge-runner edge-runner-cloud; do
        sed -E 's,/usr/(bin|lib/edge-runner)/[a-z-]+,/bin/true,' boards/common/$unit.service >target/deb/$unit.service
        systemd-analyze verify target/deb/$unit.service
    done
fi
case ${ARCH:=arm64} in
arm64) cross/build aarch64-unknown-linux-gnu --no-default-features --features runner ;;
armhf) cross/build armv7-unknown-linux-gnueabihf --no-default-features --features runner ;;
*) release ;;
esac
code=0
python3 tests/deb/run.py --arch "$ARCH" || code=$?
# 77: a tool or a right is missing, and the line before says which.
case $code in
0) ;;
77) lacks "the package for $ARCH is not proved" ;;
*) exit $code ;;
esac
