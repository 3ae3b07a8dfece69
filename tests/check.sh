#!/usr/bin/env bash
# All checks.
#   tests/check.sh            what everybody can run: format, lint, tests that own their clock, the page, the documents
#   tests/check.sh gate       the same, every other build, then calls in real time with real peers; .ci/run calls it
#   tests/check.sh all        what fits a night: the gate, ARM under an emulator, images, power cuts, floods, a release
#   tests/check.sh STAGE...   these stages, one after the other, with their output on the terminal:
#       fmt lint unit blackbox documents page scripts   the code itself, by tests that own their clock
#       doc features macos cross size deny workflows         other builds; licences, sources, hashes; .github
#       monitoring manifests                            alert rules and dashboard, by promtool; manifests, by kubernetes-validate
#       smallest telephone                              reduced builds: what they report as absent, and a call
#       calls                                           the black-box tests that talk in real time
#       aiortc gstreamer net pipecat pipecat-bots rooms livekit jobs moq acme local assistants browser firefox    real peers
#       cloud                                           the cloud service and packer against the published client
#       cloud-scale (STORE=seaweedfs)                   the cloud service on several machines, with PostgreSQL and an object store; kills
#       cloud-chaos (BUILDS=500 FAULTS=50, STORE)       kills of its replicas, workers, database and store, freezes, cut links; 77 s
#       cloud-stores                                    both with SeaweedFS and with Ceph instead of versitygw
#       engines                                         images built by the cloud service with buildah, podman, BuildKit, Kubernetes Jobs: limits, stops, kills
#       openapi                                         every route by a client that is generated from docs/openapi.yaml
#       clock                                           signers and verifiers with a clock that is wrong, and then corrected
#       chaos (ROUNDS=100)                              the cloud service killed at random moments: no data is lost
#       calls-chaos (KILLS=200)                         the runner killed while records of calls and events are written: none is lost
#       each-feature                                    every cargo feature alone; features: each without each other, in eight builds
#       macos-all                                       the program by type for macOS: each selection for each processor
#       cluster                                         replicas behind HAProxy: a rolling restart under 60 calls, a kill
#       msrv                                            the lowest version of Rust that Cargo.toml declares compiles the program and the library
#       advisories                                      RustSec's database (tests/check/advisories.sh --fetch) against the lock files
#       arm armv7                                       ARM programs under an emulator
#       deb (ARCH=arm64)                                the package in a Debian of its own
#       release (TARGETS=T,... REPEAT=none REAL=1)       makes a release twice, compares the bytes, uses every file
#       wheels (TARGETS=T,...)                          wheels installed by pip, pipx and uv on Debian 12 and 13, and for ARM
#       image (CUTS=50)                                 builds the image of a virtual board and boots it; about an hour. CUTS: cuts its power that often
#       pictures                                        takes the pictures of README again, from the page
#       sizes speed                                     tables: bytes of each profile, and none has grown; instructions of a call
#       local-kernel                                    sound cards of a virtual machine without ALSA's programs; 2 minutes
#       livekit-sip                                     telephone calls through LiveKit's SIP service (a build in Go and C)
#       room-faults                                     faults that the published LiveKit server simulates; 4 minutes
#       nodes                                           two LiveKit nodes, Redis, three runners: kills, drains and cut cables; 10 minutes
#       worker-figures                                  the runner beside LiveKit's published worker, and 10,000 jobs; half an hour
#       gst-plugins                                     GStreamer's WHIP and WHEP elements: build (360 crates), one call each
#       soak (MINUTES=2) churn                          long runs with limits on memory, descriptors and latency
#       floods footprint                                calls during floods; idle memory
#       reboots (MINUTES=2)                             devices that lose power again and again beside calls
#       fuzz                                            the fuzz targets by type; their entries are compiled with the tests
#       fuzz-run (MINUTES=10, TARGETS='stun dtls')      every fuzz target for that long, and 100,000 generated offers
#       mutants                                         changes the protocol core in 1,555 places: its tests notice each
#       miri asan                                       undefined behaviour: pure modules, and code that calls the system
#       models (SEED=1)                                 what threads share, under a scheduler that tries their interleavings; a minute
# A stage whose tools are missing is skipped and says how to install them; with CI=true it fails. Logs: target/check/STAGE.log
# tests/README.md says where a test goes.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/check/common.sh
. tests/check/cache.sh
. tests/check/peers.sh

# Black-box modules with calls in real time: sound, a pace or a moment within an answer is judged. A new module counts as one that owns
# its clock unless it is listed here. The names are parts of names, as in `canary::moq::`.
paced='assistants:: call:: cascade:: device:: faults:: listening:: livekit:: moq:: pcm:: processes:: shutdown:: sockets:: telephony:: turn::'
# Black-box modules that compare files of this repository.
files='boards:: completions:: conventions:: documents:: reference:: source_rules:: unsafety::'
# Those that need a PostgreSQL and an object store.
replicated='cloud::scale::'
# Stages that talk in real time: what other processes take of the machine is measured beside them.
real_time='calls smallest telephone aiortc gstreamer net pipecat pipecat-bots rooms livekit jobs moq acme local assistants browser firefox local-kernel cluster'

# README's second command.
people() {
    needs_for_people
    begin_lanes
    together 'lint unit documents blackbox' 'fmt page scripts'
    end_lanes
}

needs_for_people() {
    local tool missing=
    for tool in cargo:'https://rustup.rs' cc:'a C compiler, on Debian: apt-get install gcc libc6-dev' git:'on Debian: apt-get install git' \
        python3:'on Debian: apt-get install python3'; do
        command -v "${tool%%:*}" >/dev/null || missing+=$(printf '\n  %s (%s)' "${tool%%:*}" "${tool#*:}")
    done
    [ -z "$missing" ] || { printf 'The checks need:%s\n' "$missing" >&2; exit 2; }
}

# Without the checks of `tests/peers/night.txt`, and with fewer kills and selections of features.
gate() {
    export CHECKS_GATE=1 ROUNDS=${ROUNDS:-30} KILLS=${KILLS:-20}
    begin_lanes
    gate_lanes
    end_lanes
}

# Everything is compiled and installed before the first call in real time begins.
gate_lanes() {
    # A clean clone compiles everything once: what helps to compile again, or to debug, takes time here.
    export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
    restore_all
    say 'builds, and tests that own their clock'
    # Cargo holds a lock while it compiles test builds, for which `features` and `doc` wait.
    together 'environments fmt page scripts deny workflows monitoring manifests features cross macos' 'lint unit documents blackbox chaos calls-chaos clock' 'size reduced cloud cloud-scale openapi doc'
    [ -n "$(not_passed)" ] || save_all
    say 'calls in real time'
    # Two lanes: beside a third, two cores starve calls whose delay or sound is judged. The stages of the first take a core, those of the
    # second wait for the most part, though two processes share the checks of most. The pages of `assistants` come beside `rooms`.
    together 'browser firefox moq rooms aiortc pipecat-bots gstreamer local' 'net calls livekit jobs pipecat acme assistants smallest telephone'
    judge_alone
}

# A night: hours, most of them under emulators.
all() {
    begin_lanes
    gate_lanes
    say 'what takes hours'
    together 'fuzz macos-all cluster msrv each-feature advisories arm armv7 deb cloud-chaos cloud-stores engines room-faults nodes local-kernel livekit-sip worker-figures gst-plugins soak churn floods footprint reboots fuzz-run mutants miri asan models sizes speed pictures wheels image release'
    end_lanes
}

restore_all() { each_crates restore_crates; }
save_all() { each_crates save_crates; }
each_crates() {
    "$1" development target/debug Cargo.lock
    "$1" release target/release Cargo.lock
    "$1" reduced target/features Cargo.lock
    "$1" cross target/cross-check Cargo.lock
    "$1" macos target/macos Cargo.lock
}

stage() {
    case $1 in
    # What everybody can run opens no more files than a login on Debian may. On macOS that is fewer still.
    fmt | lint | unit | blackbox | documents | page | scripts) ulimit -Sn 1024 2>/dev/null || true ;;
    esac
    case $1 in
    gate | all) "$1" ;;
    fmt) needs 'rustup component add rustfmt' rustfmt || return 0; cargo fmt --all --check ;;
    lint) lint ;;
    unit) unit ;;
    blackbox) blackbox ;;
    documents) blackbox_tests 4 $files ;;
    calls) calls ;;
    page) page ;;
    scripts) scripts ;;
    doc) RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --document-private-items ;;
    features) feature_sets ;;
    each-feature) each_feature ;;
    fuzz) cargo check --quiet --locked --no-default-features --manifest-path tests/fuzz/Cargo.toml --target-dir target/fuzz ;;
    environments) environments ;;
    reduced) reduced smallest; reduced telephone ;;
    deny) dependencies ;;
    manifests) ! needs_python kubernetes_validate || $python tests/check/manifests.py ;;
    advisories) tests/check/advisories.sh ;;
    msrv) msrv ;;
    size) release; printf '%s bytes: %s\n' "$(stat -c %s $binary)" $binary; cross/sizes --compare native full opus-pure $binary ;;
    macos-all) tests/check/macos.sh all ;;
    macos | workflows | monitoring | deb | wheels | image | release | gst-plugins | fuzz-run | engines) tests/check/"$1".sh ;;
    smallest | telephone) reduced_call "$1" ;;
    aiortc | gstreamer | net | pipecat | pipecat-bots | rooms | livekit | jobs | room-faults | livekit-sip | nodes | worker-figures | moq | acme | local | local-kernel | assistants | browser | firefox | cloud | openapi | clock | cluster) "peer_$1" ;;
    cloud-scale) cloud_scale ;;
    cloud-chaos) cloud_chaos ;;
    cloud-stores) cloud_stores ;;
    chaos) release; python3 tests/peers/cloud/chaos.py --binary $binary --rounds "${ROUNDS:-100}" ;;
    calls-chaos) release; python3 tests/peers/calls/chaos.py --binary $binary --kills "${KILLS:-200}" ;;
    cross | arm | armv7) arm_code "$1" ;;
    pictures) needs 'apt-get install chromium espeak-ng' chromium espeak-ng || return 0; release; node tests/peers/browser/pictures.mjs ;;
    sizes) cross/sizes native ;;
    speed) needs 'apt-get install valgrind gcc' valgrind cc || return 0; python3 tests/speed/run.py --write boards/SPEED.md ;;
    soak | churn | floods | footprint | reboots) figures "$1" ;;
    mutants) cargo run --release --quiet --locked --manifest-path tests/mutants/Cargo.toml --target-dir target/mutants ;;
    miri | asan) "$1" ;;
    models) cargo run --quiet --locked --manifest-path tests/models/Cargo.toml --target-dir target/models ;;
    *) printf 'unknown stage: %s\n' "$1" >&2; exit 2 ;;
    esac
}

# --- The code itself.

# Compiles every target of the workspace, with the linter as the compiler.
lint() {
    needs 'rustup component add clippy' clippy-driver || true
    development
}

unit() {
    linted cargo test --quiet --workspace --lib --bins --test runners --test calls --test examples --no-fail-fast
    linted cargo test --quiet --workspace --doc --no-fail-fast
    # The codec of a release, and the two beside each other, with as little else as its tests compile with.
    ! needs 'apt-get install cmake' cmake || linted cargo test --quiet -p edge-runner-proto --lib --no-default-features --features opus,libopus,telephony -- audio::
}

# The black-box tests of these modules: blackbox_tests THREADS MODULE::...
blackbox_tests() {
    local threads=$1
    shift
    linted cargo test --quiet --workspace --test main --no-fail-fast -- --test-threads "$threads" "$@"
}

# Those that neither talk in real time, nor compare files, nor need servers. They wait half of the time, so that two cores serve four. Those of `canary`,
# some of which have the name of another module in theirs, are named on their own.
blackbox() {
    local module skipped=() secrets said
    for module in $paced $files $replicated canary::; do skipped+=(--skip "$module"); done
    said=$(mktemp)
    blackbox_tests 4 canary:: >"$said" 2>&1 &
    secrets=$!
    part blackbox_tests 4 "${skipped[@]}"
    part wait "$secrets"
    cat "$said"
    rm -f "$said"
    return "${verdict:-0}"
}

calls() {
    local without=() only
    if [ -n "${CHECKS_ONLY:-}" ]; then
        mapfile -t only <<<"$CHECKS_ONLY"
        blackbox_tests 4 --exact "${only[@]}"
        return
    fi
    needs 'apt-get install coturn' turnserver || without=(--skip turn::)
    # They wait for the most part: eight threads take half of a core, and half the time of four.
    # A module of one that needs servers has the name of another in its own.
    blackbox_tests 8 $paced --skip canary:: --skip "$replicated" ${without[@]+"${without[@]}"}
}

page() {
    needs 'Node 18 or later, of https://nodejs.org or on Debian: apt-get install nodejs' node || return 0
    node --test --test-reporter=tap tests/page/*.test.mjs
}

# What is not Rust: the library of bots in Python, the script that installs a release, and the metadata of the crates.
scripts() {
    python3 tests/check/test_common.py
    python3 tests/check/test_sizes.py
    python3 tests/check/test_builder_kubernetes.py
    python3 tests/check/test_workflows.py
    python3 tests/peers/test_checks.py
    [ "$(uname)" != Linux ] || python3 tests/check/test_preloaded.py
    python3 tests/bots/test_edge_bot.py
    python3 tests/bots/test_menu.py
    python3 tests/bots/test_edge_runner.py
    ! needs 'apt-get install curl openssh-client' curl ssh-keygen || python3 tests/release/test_install.py
    python3 tests/release/test_metadata.py
    python3 tests/release/test_draft.py
    ! needs 'a C compiler: apt-get install gcc libc6-dev' cc || python3 tests/release/test_registries.py
}

# --- Other builds.

# Environments of Python and Node, and the published servers.
environments() {
    tests/check/python.sh
    tests/check/node.sh
    tests/check/livekit-server.sh
    tests/check/pebble.sh
    tests/check/moq-relay.sh
    tests/check/pipewire-alsa.sh
}

# Licences, sources, banned crates, hashes of what the tests install; advisories of a database that is kept here, and of an invented one.
dependencies() {
    tests/check/deny.sh
    tests/check/advisories.sh --kept
    tests/check/pins.py
    python3 tests/check/test_supply_chain.py
}

# No feature, and selections that have each feature without each other one. `reduced` builds `webrtc` and `telephony`, with which
# `libopus` belongs. Clippy would take half as long again, to say of less code what it says of all. The gate has four of the seven, which
# separate five of six pairs.
feature_sets() {
    local sets chosen said
    sets=$(tests/check/feature_sets.py ${CHECKS_GATE:+--most 4})
    while read -r chosen; do
        printf '%s\n' "--features '$chosen'"
        said=$(cargo check --quiet --lib --bins --no-default-features --features "$chosen" </dev/null 2>&1) || { printf '%s\n' "$said"; return 1; }
        # Flags that make a warning an error would compile the third-party crates again.
        [ -z "$said" ] || { printf '%s\n' "$said"; return 1; }
    done <<<"$sets"
}

# Lints the program and the library with each name of the table of features alone. Clippy checks the root package only.
each_feature() {
    local names chosen
    names=$(sed -n '/^\[features\]/,/^\[dependencies\]/s/^\([a-z][a-z]*\) = .*/\1/p' Cargo.toml | grep -vx -e default -e full)
    for chosen in $names; do
        printf '%s\n' "--features '$chosen'"
        cargo clippy --quiet --lib --bins --no-default-features --features "$chosen" -- -D warnings
    done
}

# Two minutes of one core, since another compiler checks the third-party crates again.
msrv() {
    local version
    version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    cargo "+$version" --version >/dev/null 2>&1 || { lacks "Rust $version: rustup toolchain install --profile minimal $version"; return; }
    cargo "+$version" check --quiet --locked --lib --bins --target-dir target/msrv
}

# The cloud service on several machines: its tests, with replicas that share a PostgreSQL and an object store; those of the service on
# one machine but the ones in tests/cloud/one_machine.txt; the published client; the files for operators. Test builds have the feature
# `scale`.
cloud_scale() {
    needs_replicas || return 0
    local store one_machine
    store=$(object_store)
    mapfile -t one_machine < <(sed -n 's/^[a-z].*/--skip\ncloud::&/p' tests/cloud/one_machine.txt)
    (
        export EDGE_RUNNER_STORE=$store
        blackbox_tests 2 $replicated
        EDGE_RUNNER_CLOUD_SHARED=1 blackbox_tests 2 cloud:: --skip $replicated "${one_machine[@]}"
    )
    needs_python pipecatcloud,requests,yaml || return 0
    # Without these the check of the registry's manifest is skipped.
    needs 'apt-get install docker-registry openssl' docker-registry openssl || true
    $python tests/peers/cloud/run.py --binary target/debug/edge-runner --store "$store"
    $python tests/peers/cloud/deployment.py --binary target/debug/edge-runner --store "$store"
}

# Prints the program of the object store that STORE names: versitygw, SeaweedFS, or a path of a program with their arguments.
object_store() {
    case ${STORE:-versitygw} in
    versitygw) tests/check/versitygw.sh ;;
    seaweedfs)
        tests/check/seaweedfs.sh >/dev/null || return
        printf '%s\n' "$PWD/tests/peers/cloud/seaweedfs"
        ;;
    *) printf '%s\n' "$STORE" ;;
    esac
}

# The other object stores, each of which is tried whatever becomes of the other. Ceph is a cluster, which gives STORE a gateway of it.
cloud_stores() {
    needs_replicas || return 0
    local name ceph=
    ! needs 'apt-get install --no-install-recommends radosgw ceph-mon ceph-mgr ceph-osd' radosgw ceph-mon ceph-mgr ceph-osd || ceph=1
    for name in cloud-scale cloud-chaos; do
        part env STORE=seaweedfs tests/check.sh "$name"
        [ -z "$ceph" ] || part python3 tests/peers/cloud/ceph.py tests/check.sh "$name"
    done
    return "${verdict:-0}"
}

needs_replicas() { needs 'apt-get install postgresql curl haproxy faketime, and Go 1.25 of https://go.dev/dl' psql setpriv curl haproxy faketime go; }

# The faults of `cloud-scale`, and more of them: tests/cloud/scale/chaos.rs.
cloud_chaos() {
    needs_replicas || return 0
    local store
    store=$(object_store)
    (
        export EDGE_RUNNER_STORE=$store EDGE_RUNNER_CHAOS_BUILDS=${BUILDS:-500} EDGE_RUNNER_CHAOS_FAULTS=${FAULTS:-50}
        blackbox_tests 1 cloud::scale::chaos::
    )
}

# A selection of features in a target folder of its own, since the tests run the full program: reduced smallest|telephone. Clippy is
# the compiler here too, which tells what is unused in it.
reduced() {
    local features=$1
    # With the codec of boards, where CMake is there to compile it.
    [ "$1" != smallest ] || ! command -v cmake >/dev/null || features+=,libopus
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_INCREMENTAL=0 \
        linted cargo build --quiet --no-default-features --features "$features" --target-dir target/features
    cp target/features/debug/edge-runner "target/features/$1"
}

# What it reports as absent, and a call. The codec of one call needs no optimisation.
reduced_call() {
    [ -x "target/features/$1" ] && [ -n "${CI:-}" ] || reduced "$1"
    find_python
    $python tests/peers/features/run.py --profile "$1" --binary "target/features/$1"
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

# --- Other processors, and figures.

arm_code() {
    if [ "$(uname -sm)" != 'Linux x86_64' ] || ! command -v apt-get >/dev/null; then
        # On a board every stage runs ARM code.
        lacks 'ARM code. It needs Debian or Ubuntu on x86-64'
        return
    fi
    # The emulator proves the code and not its size: without link-time optimisation it compiles in less time.
    export CARGO_PROFILE_RELEASE_LTO=off
    case $1 in
    # Types, the code for NEON and C libraries, for words of 32 bits; `macos` checks types for 64 bits, and `arm` compiles for them.
    cross) cross/build armv7-unknown-linux-gnueabihf --check --quiet --target-dir target/cross-check ;;
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
    people
fi
for name in "$@"; do
    say "$name"
    stage "$name"
done
