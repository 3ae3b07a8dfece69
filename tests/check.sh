#!/usr/bin/env bash
# The one list of checks, for people and for the gate.
#   tests/check.sh            what this machine has the tools for, in lanes side by side: what waits for callers' clocks runs
#                             beside what needs the processor. Each stage's words go to target/check/STAGE.log.
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
binary=target/release/edge-runner
logs=target/check
gstreamer='gstreamer1.0-plugins-bad gstreamer1.0-plugins-good gstreamer1.0-nice gstreamer1.0-tools gir1.2-gst-plugins-bad-1.0 python3-gi'

say() { printf '\n== %s\n' "$*"; }
lacks() {
    printf 'skipped: %s\n' "$*"
    [ "${CI:-}" != true ] || exit 1
}
release() { [ -n "${built:-}" ] || cargo build --release --quiet; built=1; }

# Runs stages one after the other, each as a process of its own with a log of its own, and goes on after one that failed.
lane() {
    local stage began
    for stage in "$@"; do
        began=$SECONDS
        if tests/check.sh "$stage" >"$logs/$stage.log" 2>&1; then
            touch "$logs/$stage.passed"
            printf '%-9s passed  %4d s\n' "$stage" $((SECONDS - began))
            grep -i '^skipped' "$logs/$stage.log" || true
        else
            printf '%-9s FAILED  %4d s, the end of %s:\n' "$stage" $((SECONDS - began)) "$logs/$stage.log"
            tail -n 80 "$logs/$stage.log"
        fi
    done
}

if [ $# -eq 0 ]; then
    # The shell lets its background jobs outlive Ctrl-C.
    trap 'trap - INT TERM; kill 0' INT TERM
    # Callers keep time, so they go first when both want the processor.
    callers='aiortc gstreamer net pipecat rooms browser firefox'
    code='test features'
    beside='fuzz deny cross cloud chaos'
    compiled='lint doc smallest telephone'
    mkdir -p $logs
    rm -f $logs/*.passed
    lane fmt
    # All of them compile everything once, with profiles of their own, and `size` ends with a link that takes one core.
    lane size &
    # shellcheck disable=SC2086
    lane $compiled &
    wait
    # shellcheck disable=SC2086
    lane $callers &
    # The tests wait for clocks too, and leave room meanwhile for what only compiles.
    # shellcheck disable=SC2086
    for stages in "$code" "$beside"; do
        (
            renice -n 19 $BASHPID >/dev/null || true
            lane $stages
        ) &
    done
    wait
    # An emulator is slow enough by itself, and callers keep time there too.
    lane arm
    # A lane that was killed leaves stages behind that neither passed nor failed.
    missing=
    for stage in fmt size $compiled $callers $code $beside arm; do
        [ -e "$logs/$stage.passed" ] || missing="$missing $stage"
    done
    if [ -n "$missing" ]; then
        say "not passed:$missing"
        exit 1
    fi
    say "all checks passed"
    exit
fi

for stage in "$@"; do
    say "$stage"
    case $stage in
    fmt) cargo fmt --check ;;
    lint) cargo clippy --quiet --workspace --all-targets -- -D warnings ;;
    doc) RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --document-private-items ;;
    test)
        if command -v turnserver >/dev/null; then
            cargo test --workspace --quiet
        else
            cargo test --workspace --quiet -- --skip turn::
            lacks "relays are not proved: apt-get install coturn"
        fi
        ;;
    fuzz) cargo check --quiet --no-default-features --manifest-path tests/fuzz/Cargo.toml --target-dir target/fuzz ;;
    deny)
        # Licences, sources and banned crates. The advisories are a git repository, and a machine without a way there proves
        # nothing of them.
        if ! command -v cargo-deny >/dev/null && ! [ -x target/tools/bin/cargo-deny ]; then
            lacks "dependencies are not judged: cargo install cargo-deny --locked --root target/tools"
        else
            PATH=$PATH:$PWD/target/tools/bin
            cargo deny --locked check licenses bans sources
            if timeout 20 git ls-remote --quiet https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then
                cargo deny --locked check advisories
            else
                printf 'SKIPPED, AND NOT PROVED HERE: advisories. With a way to github.com: cargo deny check advisories\n'
            fi
        fi
        ;;
    fuzz-run)
        # `tests/fuzz/rustc` says what is measured. What is found new stays
        # in target/fuzz-corpus, a crash in target/fuzz-run/artifacts.
        folder=target/fuzz-run
        if ! command -v c++ >/dev/null; then
            lacks "the fuzzing engine needs a C++ compiler: apt-get install g++"
        else
            RUSTC_WRAPPER=$PWD/tests/fuzz/rustc cargo build --release --quiet --manifest-path tests/fuzz/Cargo.toml --target-dir $folder
            failed=
            for target in ${TARGETS:-$(sed -n 's/^path = "\(.*\)\.rs"/\1/p' tests/fuzz/Cargo.toml)}; do
                seeds=(tests/corpus/"$target")
                case $target in sdp_*) seeds+=(tests/data/sdp) ;; esac
                mkdir -p target/fuzz-corpus/"$target" $folder/artifacts
                $folder/release/"$target" -max_total_time=$((${MINUTES:-10} * 60)) -timeout=30 -rss_limit_mb=3000 \
                    -print_final_stats=1 -artifact_prefix=$folder/artifacts/"$target"- \
                    target/fuzz-corpus/"$target" "${seeds[@]}" >$folder/"$target".log 2>&1 || failed="$failed $target"
                printf '%-16s %s\n' "$target" "$(grep -E 'number_of_executed_units|^SUMMARY' $folder/"$target".log | tail -n 1)"
            done
            OFFERS=100000 cargo test --quiet --test main corpus::generated_offers
            if [ -n "$failed" ]; then
                say "found something, see $folder/artifacts and $folder/TARGET.log:$failed"
                exit 1
            fi
        fi
        ;;
    miri)
        # The pure modules that read what peers send. None of the `unsafe` of this crate is among them: all of it calls the system
        # or SQLite, which Miri cannot; that of the crates underneath is run. Tests over a million of bytes would take hours.
        if ! cargo +nightly miri --version >/dev/null 2>&1; then
            lacks "Miri is not installed: rustup toolchain install nightly && rustup component add miri rust-src --toolchain nightly"
        else
            MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --lib --target-dir target/miri -- \
                proto::body proto::candidate proto::few proto::form proto::frames proto::framing \
                proto::host proto::ice proto::key proto::lines proto::offer proto::opening proto::origin proto::route proto::stun \
                proto::time proto::token proto::uuid proto::visit \
                --skip every_cut --skip the_body_is_cut --skip frames_written_by_hand
        fi
        ;;
    asan)
        # What calls the system or SQLite, and the cryptography: with AddressSanitizer in all Rust code but the standard library's.
        # SQLite itself is C, and is checked where it calls the allocator.
        if ! cargo +nightly --version >/dev/null 2>&1; then
            lacks "AddressSanitizer needs a nightly compiler: rustup toolchain install nightly"
        else
            host=$(rustc -vV | sed -n 's/^host: //p')
            # str0m wants providers that live for ever, so the tests of cryptography leak theirs.
            ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address cargo +nightly test --quiet --lib --target "$host" --target-dir target/asan -- \
                io::udp io::process io::group io::memory io::doctor io::cloud::folder io::cloud::disk io::cloud::records \
                io::cloud::client::pack io::cloud::unpack proto::crypto proto::framing
        fi
        ;;
    features)
        # Each ability alone, none of them, and the profiles of Cargo.toml. What is asked of clippy counts for this crate alone.
        each=$(sed -n '/^\[features\]/,/^\[dependencies\]/s/^\([a-z][a-z]*\) = .*/\1/p' Cargo.toml | grep -vx -e default -e full)
        for feature in '' $each; do
            printf '%s\n' "--features '$feature'"
            cargo clippy --quiet --lib --bins --no-default-features --features "$feature" -- -D warnings
        done
        ;;
    smallest | telephone)
        # In a folder of its own: the tests run the binary that has everything. One call needs no optimised crates but the codec.
        CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 cargo build --quiet --no-default-features --features "$stage" \
            --config 'profile.dev.package."*".opt-level=0' --target-dir target/features
        python=target/venv/bin/python
        [ -x $python ] || python=python3
        $python tests/peers/features/run.py --profile "$stage" --binary target/features/debug/edge-runner
        ;;
    sizes) cross/sizes native ;;
    size)
        release
        printf '%s bytes: %s\n' "$(stat -c %s $binary)" $binary
        ;;
    aiortc)
        python=target/venv/bin/python
        [ -x $python ] || python=python3
        if $python -c 'import aiortc' 2>/dev/null; then
            release
            $python tests/peers/aiortc/run.py --binary $binary
        else
            lacks "aiortc is not installed: python3 -m venv target/venv && target/venv/bin/pip install -r tests/peers/aiortc/requirements.txt"
        fi
        ;;
    gstreamer)
        # Its bindings are Debian's, for Debian's own Python.
        if /usr/bin/python3 -c 'import gi; gi.require_version("GstWebRTC", "1.0"); from gi.repository import GstWebRTC' 2>/dev/null &&
            gst-inspect-1.0 webrtcbin >/dev/null && gst-inspect-1.0 nicesrc >/dev/null && gst-inspect-1.0 opusenc >/dev/null; then
            release
            /usr/bin/python3 tests/peers/gstreamer/run.py --binary $binary
        else
            lacks "GStreamer is not installed: apt-get install --no-install-recommends $gstreamer"
        fi
        ;;
    gst-plugins)
        # Debian does not package them: each crate is built as the plugin that it is, against Debian's GStreamer.
        version=0.15.4
        folder=${EDGE_RUNNER_TOOLS:-target/tools}/gst-plugins-$version
        if ! pkg-config --exists gstreamer-webrtc-1.0 gstreamer-sdp-1.0; then
            lacks "GStreamer has no headers: apt-get install --no-install-recommends $gstreamer libgstreamer-plugins-bad1.0-dev pkg-config"
        else
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
        fi
        ;;
    net)
        python=target/venv/bin/python
        [ -x $python ] || python=python3
        if [ "$(uname)" != Linux ] || ! unshare -n true 2>/dev/null; then
            # No package gives this right, so it is no failure, wherever this runs.
            printf 'SKIPPED, AND NOT PROVED HERE: networks with NAT, relays and short links. Network namespaces need root.\n'
        elif ! command -v ip >/dev/null || ! command -v nft >/dev/null || ! command -v turnserver >/dev/null; then
            lacks "networks cannot be made: apt-get install iproute2 nftables coturn"
        elif $python -c 'import aiortc' 2>/dev/null; then
            release
            $python tests/peers/net/run.py --binary $binary
        else
            lacks "aiortc is not installed: python3 -m venv target/venv && target/venv/bin/pip install -r tests/peers/aiortc/requirements.txt"
        fi
        ;;
    cloud)
        python=target/venv/bin/python
        [ -x $python ] || python=python3
        if ! command -v curl >/dev/null; then
            lacks "curl is not installed: apt-get install curl"
        elif $python -c 'import pipecatcloud, requests' 2>/dev/null; then
            release
            $python tests/peers/cloud/run.py --binary $binary
        else
            lacks "the published client is not installed: python3 -m venv target/venv && target/venv/bin/pip install -r tests/peers/cloud/requirements.txt"
        fi
        ;;
    chaos)
        release
        python3 tests/peers/cloud/chaos.py --binary $binary --rounds "${ROUNDS:-100}"
        ;;
    pipecat)
        python=target/venv/bin/python
        [ -x $python ] || python=python3
        if ! command -v espeak-ng >/dev/null; then
            lacks "espeak-ng is not installed: apt-get install espeak-ng"
        elif $python -c 'import pipecat.transports.websocket.client' 2>/dev/null; then
            release
            $python tests/peers/pipecat/run.py --binary $binary
        else
            lacks "Pipecat is not installed: python3 -m venv target/venv && target/venv/bin/pip install -r tests/peers/pipecat/requirements.txt"
        fi
        ;;
    rooms)
        # The published client of media rooms brings its own WebRTC, which offers no loopback candidates: the stage runs in a
        # namespace of its own, with an interface that leads nowhere.
        python=target/venv/bin/python
        [ -x $python ] || python=python3
        if [ "$(uname)" != Linux ] || ! unshare -n true 2>/dev/null; then
            printf 'SKIPPED, AND NOT PROVED HERE: media rooms with the published client. Network namespaces need root.\n'
        elif ! command -v ip >/dev/null; then
            lacks "networks cannot be made: apt-get install iproute2"
        elif $python -c 'import livekit.rtc, livekit.api, numpy' 2>/dev/null; then
            release
            cargo build --quiet --example media-room --example room
            $python tests/peers/room/run.py --binary $binary
        else
            lacks "the media rooms' client is not installed: python3 -m venv target/venv && target/venv/bin/pip install -r tests/peers/room/requirements.txt"
        fi
        ;;
    browser)
        if ! command -v chromium >/dev/null || ! command -v certutil >/dev/null; then
            lacks "chromium and certutil are not both installed: apt-get install chromium espeak-ng sox libnss3-tools"
        elif [ ! -d tests/peers/browser/node_modules ]; then
            lacks "the official client is not installed: npm ci --prefix tests/peers/browser"
        else
            release
            node tests/peers/browser/run.mjs --binary $binary --out target/browser
        fi
        ;;
    firefox)
        if ! command -v firefox-esr >/dev/null || ! command -v pulseaudio >/dev/null; then
            lacks "firefox-esr and pulseaudio are not both installed: apt-get install --no-install-recommends firefox-esr pulseaudio"
        elif [ ! -d tests/peers/browser/node_modules ]; then
            lacks "the browser checks are not installed: npm ci --prefix tests/peers/browser"
        else
            release
            node --experimental-websocket tests/peers/browser/run.mjs --browser firefox --binary $binary --out target/browser
        fi
        ;;
    deb)
        # The unit is read by systemd itself where it is, and the package goes through its life in a Debian of its own:
        # ARCH=armhf or amd64 instead of arm64.
        if command -v systemd-analyze >/dev/null; then
            systemd-analyze security --offline=true --threshold=30 boards/common/edge-runner.service | tail -n 1
            # Programs that are not on this machine stand for those that are on a board.
            mkdir -p target/deb
            for unit in edge-runner edge-runner-cloud; do
                sed -E 's,/usr/(bin|lib/edge-runner)/[a-z-]+,/bin/true,' boards/common/$unit.service >target/deb/$unit.service
                systemd-analyze verify target/deb/$unit.service
            done
        else
            lacks "the unit is not rated: apt-get install systemd"
        fi
        case ${ARCH:=arm64} in
        arm64) cross/build aarch64-unknown-linux-gnu ;;
        armhf) cross/build armv7-unknown-linux-gnueabihf ;;
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
        ;;
    image)
        # From Debian's packages to a call with a virtual board whose power is cut in between. Emulated: half an hour and more.
        python=target/venv/bin/python
        [ -x $python ] || python=python3
        missing=
        for tool in mmdebstrap:mmdebstrap qemu-system-aarch64:qemu-system-arm sfdisk:fdisk mkfs.vfat:dosfstools mcopy:mtools \
            mke2fs:e2fsprogs zstd:zstd dnsmasq:dnsmasq-base ssh:openssh-client ip:iproute2; do
            command -v ${tool%:*} >/dev/null || missing="$missing ${tool#*:}"
        done
        [ -e /usr/share/qemu-efi-aarch64/QEMU_EFI.fd ] || missing="$missing qemu-efi-aarch64"
        [ "$(dpkg --print-architecture 2>/dev/null)" = arm64 ] || [ -e /usr/lib/binfmt.d/qemu-aarch64.conf ] || missing="$missing qemu-user-static"
        if [ "$(uname)" != Linux ] || [ "$(id -u)" != 0 ] || ! unshare -n true 2>/dev/null; then
            printf 'SKIPPED, AND NOT PROVED HERE: the image and its start. Owners of files and network namespaces need root.\n'
        elif [ -n "$missing" ]; then
            lacks "the image cannot be built and started: apt-get install$missing"
        elif $python -c 'import aiortc' 2>/dev/null; then
            cross/build aarch64-unknown-linux-gnu
            boards/package --target aarch64-unknown-linux-gnu
            boards/image qemu-virt
            unshare --net "$python" tests/image/run.py target/image/edge-runner-qemu-virt.img
        else
            lacks "aiortc is not installed: python3 -m venv target/venv && target/venv/bin/pip install -r tests/peers/aiortc/requirements.txt"
        fi
        ;;
    speed)
        # Deterministic, and long: a quarter of an hour of one core, and two builds for ARM.
        if ! command -v valgrind >/dev/null || ! command -v cc >/dev/null; then
            lacks "instructions cannot be counted: apt-get install valgrind gcc"
        else
            python3 tests/speed/run.py --write boards/SPEED.md
        fi
        ;;
    cross | arm | armv7)
        if [ "$(uname -sm)" != 'Linux x86_64' ] || ! command -v apt-get >/dev/null; then
            # On a board every stage runs ARM code.
            printf 'SKIPPED, AND NOT PROVED HERE: ARM code under an emulator. It takes x86-64 Debian or Ubuntu.\n'
        else
            case $stage in
            cross) cross/build aarch64-unknown-linux-gnu --quiet --target-dir target/cross ;;
            arm) tests/arm.sh aarch64-unknown-linux-gnu ;;
            armv7) tests/arm.sh armv7-unknown-linux-gnueabihf ;;
            esac
        fi
        ;;
    soak | churn | floods | footprint | reboots)
        release
        cargo run --release --quiet --manifest-path tests/bench/Cargo.toml --target-dir target/bench -- \
            --binary $binary --only "$stage" --minutes "${MINUTES:-2}"
        ;;
    *)
        printf 'unknown stage: %s\n' "$stage" >&2
        exit 2
        ;;
    esac
done
