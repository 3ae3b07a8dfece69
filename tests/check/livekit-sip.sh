#!/usr/bin/env bash
# Prints the path of LiveKit's published SIP service. Builds it once by Go and a C compiler into the cache of the checks: some
# minutes on two cores. LIVEKIT_SIP_SOURCE names a checkout of that version to build instead of the module, for machines
# whose module proxy lacks it. Ends with code 3 where Go or a library is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
version=v1.11.0
command -v go cc pkg-config >/dev/null || exit 3
pkg-config --exists opus opusfile soxr || exit 3
build() {
    export CGO_ENABLED=1 GOFLAGS=-trimpath
    if [ -n "${LIVEKIT_SIP_SOURCE:-}" ]; then
        go build -C "$LIVEKIT_SIP_SOURCE" -o "$1/livekit-sip" ./cmd/livekit-sip
    else
        GOBIN=$1 go install "github.com/livekit/sip/cmd/livekit-sip@$version"
    fi
}
make_once livekit-sip-$version build
printf '%s\n' "$made/livekit-sip"
