#!/usr/bin/env bash
# The one list of checks, for people and for the gate.
#   tests/check.sh            what this machine has the tools for, in lanes side by side: what waits for callers' clocks runs
#                             beside what needs the processor. Each stage's words go to target/check/STAGE.log.
#   tests/check.sh fast       before each commit: fmt, lint, and the tests that no caller's clock paces
#   tests/check.sh STAGE...   only these, one after the other, with their words on the terminal:
#       fmt lint doc test fuzz deny size features       of the code, by itself
#       smallest telephone                              runners that lack abilities: what they say of them, and a call
#       aiortc gstreamer net pipecat rooms browser firefox        against real peers
#       cloud                                           the cloud service and its packer against the published client
#       chaos (ROUNDS=100)                              the cloud service, killed at random moments; nothing may be lost
#       cross arm                                       ARM code: built, and run under an emulator
#       armv7                                           the same for 32 bits
#       deb (ARCH=arm64)                                the package in a Debian of its own
#       image                                           builds the image of a virtual board and starts it; about an hour
#       sizes speed                                     tables: bytes of each profile, instructions of a call
#       gst-plugins                                     GStreamer's elements of WHIP and WHEP: built (360 crates), and a call each
#       soak (MINUTES=2, or hours of them) churn        figures that must hold
#       floods footprint                                honest callers beside floods; size and idle memory
#       reboots (MINUTES=2)                             devices that lose their power again and again beside calls
#       fuzz-run (MINUTES=10, TARGETS='stun dtls')      every fuzz target for so long, and 100,000 generated offers
#       miri asan                                       undefined behaviour: of pure modules, of what calls the system
#   Without a name the first six lines are run.
# A stage whose tools are missing is skipped with a word on how to get them; under CI=true that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/check/common.sh

# Everything. Callers keep time, so they go first when both want the processor.
everything() {
    begin_lanes
    together 'fmt'
    # All of them compile everything once, with profiles of their own, and `size` ends with a link that takes one core.
    together 'size' 'lint doc smallest telephone'
    # The tests wait for clocks too, and leave room meanwhile for what only compiles.
    together 'aiortc gstreamer net pipecat rooms browser firefox' 'low test features' 'low fuzz deny cross cloud chaos'
    # An emulator is slow enough by itself, and callers keep time there too.
    together 'arm'
    end_lanes
}

stage() {
    case $1 in
    fmt) cargo fmt --all --check ;;
    lint) cargo clippy --quiet --workspace --all-targets -- -D warnings ;;
    doc) RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --document-private-items ;;
    test) tests ;;
    fast) fast ;;
    fuzz) cargo check --quiet --no-default-features --manifest-path tests/fuzz/Cargo.toml --target-dir target/fuzz ;;
    deny) dependencies ;;
    size) release; printf '%s bytes: %s\n' "$(stat -c %s $binary)" $binary ;;
    features) each_feature ;;
    smallest | telephone) reduced "$1" ;;
    aiortc | gstreamer | net | pipecat | rooms | browser | firefox | cloud) "peer_$1" ;;
    chaos) release; python3 tests/peers/cloud/chaos.py --binary $binary --rounds "${ROUNDS:-100}" ;;
    cross | arm | armv7) arm_code "$1" ;;
    sizes) cross/sizes native ;;
    speed) needs 'apt-get install valgrind gcc' valgrind cc || return 0; python3 tests/speed/run.py --write boards/SPEED.md ;;
    soak | churn | floods | footprint | reboots) figures "$1" ;;
    deb | image | gst-plugins | fuzz-run) tests/check/"$1".sh ;;
    miri | asan) "$1" ;;
    *) printf 'unknown stage: %s\n' "$1" >&2; exit 2 ;;
    esac
}

# --- Of the code, by itself.

tests() {
    if needs 'relays are not proved: apt-get install coturn' turnserver; then
        cargo test --quiet --workspace
    else
        cargo test --quiet --workspace -- --skip turn::
    fi
}

# Without the black-box tests that hear a caller speak at his pace; a new module of them is in until it is named here.
fast() {
    local module paced=()
    for module in canary device ends metrics processes rooms sockets telephony tls troubles turn; do
        paced+=(--skip "$module::")
    done
    stage fmt
    stage lint
    cargo test --quiet --workspace --lib
    cargo test --quiet --test main -- "${paced[@]}"
}

# Licences, sources and banned crates. The advisories are a git repository, and a machine without a way there proves
# nothing of them.
dependencies() {
    PATH=$PATH:$PWD/target/tools/bin
    needs 'cargo install cargo-deny --locked --root target/tools' cargo-deny || return 0
    cargo deny --locked check licenses bans sources
    if timeout 20 git ls-remote --quiet https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then
        cargo deny --locked check advisories
    else
        printf 'SKIPPED, AND NOT PROVED HERE: advisories. With a way to github.com: cargo deny check advisories\n'
    fi
}

# Each ability alone, none of them, and the profiles of Cargo.toml. What is asked of clippy counts for this crate alone.
each_feature() {
    local each feature
    each=$(sed -n '/^\[features\]/,/^\[dependencies\]/s/^\([a-z][a-z]*\) = .*/\1/p' Cargo.toml | grep -vx -e default -e full)
    for feature in '' $each; do
        printf '%s\n' "--features '$feature'"
        cargo clippy --quiet --lib --bins --no-default-features --features "$feature" -- -D warnings
    done
}

# In a folder of its own: the tests run the binary that has everything. One call needs no optimised crates but the codec.
reduced() {
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 cargo build --quiet --no-default-features --features "$1" \
        --config 'profile.dev.package."*".opt-level=0' --target-dir target/features
    find_python
    $python tests/peers/features/run.py --profile "$1" --binary target/features/debug/edge-runner
}

# The pure modules that read what peers send. None of the `unsafe` of this crate is among them: all of it calls the system
# or SQLite, which Miri cannot; that of the crates underneath is run. Tests over a million of bytes would take hours.
miri() {
    cargo +nightly miri --version >/dev/null 2>&1 ||
        { lacks "Miri: rustup toolchain install nightly && rustup component add miri rust-src --toolchain nightly"; return; }
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p edge-runner-proto --lib --target-dir target/miri -- \
        body:: candidate:: form:: frames:: framing:: host:: ice:: key:: lines:: offer:: opening:: origin:: route:: stun:: \
        time:: token:: uuid:: visit:: \
        --skip every_cut --skip the_body_is_cut --skip frames_written_by_hand
}

# What calls the system or SQLite, and the cryptography: with AddressSanitizer in all Rust code but the standard library's.
# SQLite itself is C, and is checked where it calls the allocator.
asan() {
    cargo +nightly --version >/dev/null 2>&1 ||
        { lacks "AddressSanitizer needs a nightly compiler: rustup toolchain install nightly"; return; }
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    # str0m wants providers that live for ever, so the tests of cryptography leak theirs.
    ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address cargo +nightly test --quiet --workspace --lib --target "$host" \
        --target-dir target/asan -- udp:: process:: group:: memory:: doctor:: folder:: disk:: records:: pack:: crypto:: framing::
}

# --- Against real peers.

peer_aiortc() {
    needs_python aiortc aiortc || return 0
    release
    $python tests/peers/aiortc/run.py --binary $binary
}

# Its bindings are Debian's, for Debian's own Python.
peer_gstreamer() {
    if ! /usr/bin/python3 -c 'import gi; gi.require_version("GstWebRTC", "1.0"); from gi.repository import GstWebRTC' 2>/dev/null ||
        ! gst-inspect-1.0 webrtcbin >/dev/null || ! gst-inspect-1.0 nicesrc >/dev/null || ! gst-inspect-1.0 opusenc >/dev/null; then
        lacks "GStreamer is not installed: apt-get install --no-install-recommends $gstreamer"
        return
    fi
    release
    /usr/bin/python3 tests/peers/gstreamer/run.py --binary $binary
}

peer_net() {
    needs_namespaces 'networks with NAT, relays and short links' || return 0
    needs 'apt-get install iproute2 nftables coturn' ip nft turnserver || return 0
    needs_python aiortc aiortc || return 0
    release
    $python tests/peers/net/run.py --binary $binary
}

peer_pipecat() {
    needs 'apt-get install espeak-ng' espeak-ng || return 0
    needs_python pipecat.transports.websocket.client pipecat || return 0
    release
    $python tests/peers/pipecat/run.py --binary $binary
}

# The published client of media rooms brings its own WebRTC, which offers no loopback candidates: the stage runs in a
# namespace of its own, with an interface that leads nowhere.
peer_rooms() {
    needs_namespaces 'media rooms with the published client' || return 0
    needs 'apt-get install iproute2' ip || return 0
    needs_python livekit.rtc,livekit.api,numpy room || return 0
    release
    cargo build --quiet --example media-room --example room
    $python tests/peers/room/run.py --binary $binary
}

peer_browser() {
    needs 'apt-get install chromium espeak-ng sox libnss3-tools' chromium certutil || return 0
    needs_path 'npm ci --prefix tests/peers/browser' tests/peers/browser/node_modules || return 0
    release
    node tests/peers/browser/run.mjs --binary $binary --out target/browser
}

peer_firefox() {
    needs 'apt-get install --no-install-recommends firefox-esr pulseaudio' firefox-esr pulseaudio || return 0
    needs_path 'npm ci --prefix tests/peers/browser' tests/peers/browser/node_modules || return 0
    release
    node --experimental-websocket tests/peers/browser/run.mjs --browser firefox --binary $binary --out target/browser
}

peer_cloud() {
    needs 'apt-get install curl' curl || return 0
    needs_python pipecatcloud,requests cloud || return 0
    release
    $python tests/peers/cloud/run.py --binary $binary
}

# --- Other processors, and figures.

arm_code() {
    if [ "$(uname -sm)" != 'Linux x86_64' ] || ! command -v apt-get >/dev/null; then
        # On a board every stage runs ARM code.
        printf 'SKIPPED, AND NOT PROVED HERE: ARM code under an emulator. It takes x86-64 Debian or Ubuntu.\n'
        return
    fi
    case $1 in
    cross) cross/build aarch64-unknown-linux-gnu --quiet --target-dir target/cross ;;
    arm) tests/arm.sh aarch64-unknown-linux-gnu ;;
    armv7) tests/arm.sh armv7-unknown-linux-gnueabihf ;;
    esac
}

figures() {
    release
    cargo run --release --quiet --manifest-path tests/bench/Cargo.toml --target-dir target/bench -- \
        --binary $binary --only "$1" --minutes "${MINUTES:-2}"
}

if [ $# -eq 0 ]; then
    everything
fi
for name in "$@"; do
    say "$name"
    stage "$name"
done
