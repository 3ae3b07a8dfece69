# shellcheck shell=bash
# The stages that use other people's programs: which tools each needs, and how it is run. Sourced by tests/check.sh.

peer_aiortc() {
    needs_python aiortc || return 0
    release
    shared $python tests/peers/aiortc/run.py --binary $binary
    return "${verdict:-0}"
}

# The bindings are a package of Debian, for Debian's Python.
peer_gstreamer() {
    if ! /usr/bin/python3 -c 'import gi; gi.require_version("GstWebRTC", "1.0"); from gi.repository import GstWebRTC' 2>/dev/null ||
        ! gst-inspect-1.0 webrtcbin >/dev/null || ! gst-inspect-1.0 nicesrc >/dev/null || ! gst-inspect-1.0 opusenc >/dev/null; then
        lacks "GStreamer is not installed: apt-get install --no-install-recommends gstreamer1.0-plugins-bad gstreamer1.0-plugins-good \
gstreamer1.0-nice gstreamer1.0-tools gir1.2-gst-plugins-bad-1.0 python3-gi"
        return
    fi
    release
    /usr/bin/python3 tests/peers/gstreamer/run.py --binary $binary
}

peer_net() {
    needs_namespaces 'networks with NAT, relays and short links' || return 0
    needs 'apt-get install iproute2 nftables coturn' ip nft turnserver || return 0
    needs_python aiortc || return 0
    release
    # It takes the strict device from the test binary.
    shared linted $python tests/peers/net/run.py --binary $binary
    return "${verdict:-0}"
}

peer_pipecat() {
    needs 'apt-get install espeak-ng' espeak-ng || return 0
    needs_python pipecat.transports.websocket.client || return 0
    release
    $python tests/peers/pipecat/test_transport.py
    shared $python tests/peers/pipecat/run.py --binary $binary
    return "${verdict:-0}"
}

# EXAMPLES=FOLDER: the folder `examples` of a clone of Pipecat, which no package has.
peer_pipecat-bots() {
    needs 'apt-get install espeak-ng' espeak-ng || return 0
    needs_python pipecat.transports.websocket.client,typer,rich,questionary,soxr || return 0
    needs_path tests/check/python.sh target/pipecat-cli || return 0
    release
    shared $python tests/peers/pipecat-bots/run.py --binary $binary ${EXAMPLES:+--examples "$EXAMPLES"}
    return "${verdict:-0}"
}

# The WebRTC stack of LiveKit's client offers no loopback candidates, so the stage runs in a network namespace with
# a dummy interface.
peer_rooms() {
    needs_namespaces 'rooms with the published LiveKit client' || return 0
    needs 'apt-get install iproute2' ip || return 0
    needs_python livekit.rtc,livekit.api,numpy || return 0
    needs_python openai,websockets || return 0
    release
    development
    shared $python tests/peers/room/run.py --binary $binary
    return "${verdict:-0}"
}

# The same with the published server, which speaks more of its protocol than that of the tests.
peer_livekit() { published_server rooms; }

# Jobs of the published server for runners and for LiveKit's own worker, and LiveKit's own front-ends.
peer_jobs() { published_server workers; }

# Faults that the published server simulates, and the time to join over each path.
peer_room-faults() { published_server slow; }

published_server() {
    needs_namespaces 'rooms of the published LiveKit server' || return 0
    needs 'apt-get install iproute2 nftables coturn chromium espeak-ng openssl, and Go 1.26 of https://go.dev/dl' \
        ip nft turnserver chromium espeak-ng openssl go || return 0
    needs_node || return 0
    needs_python livekit.rtc,livekit.api,numpy,tenacity,pipecat.frames || return 0
    needs_python openai,websockets || return 0
    needs_path tests/check/python.sh target/livekit-agents || return 0
    local server
    server=$(tests/check/livekit-server.sh)
    release
    development
    shared $python tests/peers/room/run.py --binary $binary --published "$server" --part "$1"
    return "${verdict:-0}"
}

# Nodes and runners in networks of their own, which fail one after the other.
peer_nodes() {
    published_rooms 'two nodes of the published LiveKit server' redis-server || return 0
    release
    $python tests/peers/room/nodes.py --binary $binary --published "$(tests/check/livekit-server.sh)"
}

peer_worker-figures() {
    published_rooms 'the runner beside the published LiveKit worker' || return 0
    needs_path tests/check/python.sh target/livekit-agents || return 0
    release
    $python tests/peers/room/worker_figures.py --binary $binary --published "$(tests/check/livekit-server.sh)"
}

# What these two need: $1 says what for, $2 is one more program.
published_rooms() {
    needs_namespaces "$1" || return
    needs "apt-get install iproute2 nftables ${2:-}, and Go 1.26 of https://go.dev/dl" ip nft go ${2:+"$2"} || return
    needs_python livekit.rtc,livekit.api,numpy
}

# A telephone, LiveKit's SIP service and server, and a bot.
peer_livekit-sip() {
    needs_namespaces 'telephone calls through the SIP service of LiveKit' || return 0
    needs 'apt-get install iproute2 redis-server baresip libopus-dev libopusfile-dev libsoxr-dev pkg-config gcc, and Go 1.26 of https://go.dev/dl' \
        ip redis-server baresip pkg-config cc go || return 0
    needs_python livekit.api,numpy,websockets || return 0
    local server sip
    server=$(tests/check/livekit-server.sh)
    sip=$(tests/check/livekit-sip.sh) || { lacks "LiveKit's SIP service cannot be built: see tests/check/livekit-sip.sh"; return 0; }
    release
    $python tests/peers/sip/run.py --binary $binary --server "$server" --sip "$sip"
}

# Two versions of one Python library, so the older has a folder of its own.
peer_moq() {
    needs 'apt-get install chromium espeak-ng openssl' chromium espeak-ng openssl || return 0
    needs_node || return 0
    needs_python pipecat.transports.moq.transport,aioquic,numpy || return 0
    needs_path tests/check/python.sh target/moq-rs-0.4 || return 0
    local relay
    relay=$(tests/check/moq-relay.sh)
    release
    local namespaces=
    if needs_namespaces 'Media over QUIC in networks that lose packets' && needs 'apt-get install iproute2' ip; then
        namespaces=--namespaces
    fi
    # shellcheck disable=SC2206
    local libraries=($python tests/peers/moq/run.py --binary $binary --relay "$relay" $namespaces)
    local pages=(node tests/peers/browser/run.mjs --moq --relay "$relay" --binary $binary)
    beside libraries pages
    return "${verdict:-0}"
}

# ALSA's programs with PipeWire, and no sound hardware.
peer_local() {
    needs 'apt-get install alsa-utils dbus-daemon espeak-ng pipewire pipewire-bin wireplumber' \
        arecord aplay dbus-daemon espeak-ng pipewire wireplumber pw-link pw-play pw-record || return 0
    local plugin
    plugin=$(tests/check/pipewire-alsa.sh) || { lacks "ALSA's plug-in for PipeWire: apt-get download pipewire-alsa"; return; }
    release
    python3 tests/peers/local/run.py --plugin "$plugin" --binary $binary
}

# Sound cards of a virtual machine, which the runner opens by the kernel's interface.
peer_local-kernel() {
    if [ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ]; then
        lacks 'sound cards of a virtual machine: that machine is amd64, and so is the program in it'
        return
    fi
    needs 'apt-get install qemu-system-x86 busybox-static cpio kmod alsa-utils espeak-ng' \
        qemu-system-x86_64 busybox cpio depmod arecord aplay amixer espeak-ng || return 0
    local kernel
    kernel=$(tests/check/debian-kernel.sh) || { lacks "Debian's kernel: apt-get download linux-image-amd64"; return; }
    release
    python3 tests/peers/local/kernel.py --kernel "$kernel" --binary $binary
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
    needs_node || return 0
    needs_python aiortc || return 0
    needs_python pipecat.services.openai.realtime.llm || return 0
    needs_path tests/check/python.sh target/speech-to-speech || return 0
    needs_path tests/check/python.sh target/wyoming || return 0
    release
    shared $python tests/peers/assistants/run.py --binary $binary
    return "${verdict:-0}"
}

peer_browser() {
    needs 'apt-get install chromium espeak-ng sox libnss3-tools' chromium certutil || return 0
    needs_node || return 0
    needs_path tests/check/python.sh target/playground || return 0
    release
    development
    node tests/peers/browser/run.mjs --binary $binary \
        --playground target/playground/pipecat_ai_small_webrtc_prebuilt/client/dist
}

peer_firefox() {
    needs 'apt-get install --no-install-recommends firefox-esr pulseaudio' firefox-esr pulseaudio || return 0
    needs_node || return 0
    release
    node tests/peers/browser/run.mjs --browser firefox --binary $binary
}

peer_cluster() {
    needs 'apt-get install haproxy chromium espeak-ng' haproxy chromium espeak-ng || return 0
    needs_node || return 0
    needs_python aiortc || return 0
    needs_python pipecat.frames.protobufs.frames_pb2,numpy,websockets || return 0
    release
    $python tests/peers/cluster/run.py --binary $binary
}

peer_cloud() {
    needs 'apt-get install curl' curl || return 0
    needs_python pipecatcloud,requests || return 0
    release
    $python tests/peers/cloud/run.py --binary $binary
}

# A client that is generated from the description of the routes.
peer_openapi() {
    needs_path tests/check/python.sh target/schemathesis || return 0
    release
    find_python
    $python tests/peers/openapi/run.py --binary $binary
}

# Programs whose clock is wrong. Without Pebble the row of ACME is skipped, and without an object store its row. Test builds have the
# feature `scale`.
peer_clock() {
    needs 'apt-get install faketime openssl' faketime openssl || return 0
    local pebble store=
    pebble=$(tests/check/pebble.sh) || { lacks 'Pebble, for a certificate under a wrong clock. It needs Go 1.25 of https://go.dev/dl'; pebble=; }
    ! { needs_replicas && needs_path 'cargo test --no-run' target/debug/edge-runner; } || store=$(tests/check/versitygw.sh)
    release
    python3 tests/peers/clock/run.py --binary $binary ${pebble:+--pebble "$pebble"} ${store:+--store "$store" --shared target/debug/edge-runner}
}
