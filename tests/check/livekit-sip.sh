#!/usr/bin/env bash
# Prints the path of LiveKit's published SIP service. Builds it once by Go and a C compiler into
# ${EDGE_RUNNER_TOOLS:-target/tools}: some minutes on two cores. LIVEKIT_SIP_SOURCE names a checkout of that version to build
# instead of the module, for machines whose module proxy lacks it. Ends with code 3 where Go or a library is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v1.11.0
command -v go cc pkg-config >/dev/null || exit 3
pkg-config --exists opus opusfile soxr || exit 3
folder=${EDGE_RUNNER_TOOLS:-$PWD/target/tools}/livekit-sip-$version
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if [ ! -x "$folder/livekit-sip" ]; then
    export CGO_ENABLED=1 GOFLAGS=-trimpath
    if [ -n "${LIVEKIT_SIP_SOURCE:-}" ]; then
        go build -C "$LIVEKIT_SIP_SOURCE" -o "$folder/livekit-sip" ./cmd/livekit-sip >&2
    else
        GOBIN=$folder go install "github.com/livekit/sip/cmd/livekit-sip@$version" >&2
    fi
fi
printf '%s\n' "$folder/livekit-sip"
