#!/usr/bin/env bash
# Installs wheels of this commit on systems of their own (tests/release/wheels.py): Debian 12 and 13, and Debian 12 for ARM under an
# emulator. It compiles without optimisation. TARGETS=T,... takes only these.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
needs 'apt-get install mmdebstrap qemu-user-static' mmdebstrap qemu-aarch64-static || exit 0
needs_namespaces 'systems of their own' || exit 0
out=target/wheels/dist programs=()
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
for target in $(tr , ' ' <<<"${TARGETS:-x86_64-unknown-linux-musl,aarch64-unknown-linux-musl,armv7-unknown-linux-musleabihf}"); do
    cross/build "$target" --quiet --no-default-features --features runner --target-dir target/wheels
    programs+=("$target=target/wheels/$target/release/edge-runner")
done
rm -rf $out
mkdir -p $out
python3 boards/release.d/notices.py >$out/THIRD-PARTY.txt
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) python3 boards/release.d/wheel.py --version "$version" --notices $out/THIRD-PARTY.txt --out $out "${programs[@]}"
code=0
python3 tests/release/wheels.py $out || code=$?
case $code in
0) ;;
77) lacks 'no wheel is installed' ;;
*) exit $code ;;
esac
