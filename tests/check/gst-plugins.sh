#!/usr/bin/env bash
# Builds GStreamer's elements of WHIP and WHEP, which Debian does not package, each crate as the plugin that it is, against
# Debian's GStreamer; then a call with each element.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
. tests/check/cache.sh
version=0.15.4
folder=$cache/gst-plugins-$version
if ! pkg-config --exists gstreamer-webrtc-1.0 gstreamer-sdp-1.0; then
    lacks "GStreamer has no headers: apt-get install --no-install-recommends gstreamer1.0-plugins-bad gstreamer1.0-plugins-good gstreamer1.0-nice \
gstreamer1.0-tools gir1.2-gst-plugins-bad-1.0 python3-gi libgstreamer-plugins-bad1.0-dev pkg-config"
    exit 0
fi

for plugin in gst-plugin-webrtchttp:gstwebrtchttp:rustls-ring gst-plugin-webrtc:gstrswebrtc:whip,whep,rustls-ring; do
    IFS=: read -r crate library features <<<"$plugin"
    [ ! -e "$folder/lib$library.so" ] || continue
    rm -rf "$folder/fetch" "$folder/source"
    mkdir -p "$folder/fetch/src"
    touch "$folder/fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\n[dependencies]\n%s = "=%s"\n[workspace]\n' "$crate" $version >"$folder/fetch/Cargo.toml"
    cargo fetch --quiet --manifest-path "$folder/fetch/Cargo.toml"
    # Its own lock file names the versions that its authors built with.
    cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate-$version" "$folder/source"
    printf '\n[workspace]\n' >>"$folder/source/Cargo.toml"
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 cargo build --quiet --locked --lib --no-default-features --features "$features" \
        --manifest-path "$folder/source/Cargo.toml" --target-dir "$folder/build"
    cp "$folder/build/debug/lib$library.so" "$folder"
    rm -r "$folder/build" "$folder/source" "$folder/fetch"
done
release
GST_PLUGIN_PATH=$folder /usr/bin/python3 tests/peers/gstreamer/run.py --binary $binary whipsink whepsrc whipclientsink whepclientsrc
