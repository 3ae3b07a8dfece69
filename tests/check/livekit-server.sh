#!/usr/bin/env bash
# Prints the path of the published LiveKit server. Builds it once by Go into the cache of the checks: about 1.5 minutes on two
# cores. Ends with code 3 where Go is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
# Later versions may not be built by `go install`: look for `replace` in their go.mod.
version=v1.13.5
command -v go >/dev/null || exit 3
build() {
    CGO_ENABLED=0 GOBIN=$1 GOFLAGS=-trimpath go install "github.com/livekit/livekit-server/cmd/server@$version"
    mv "$1/server" "$1/livekit-server"
}
make_once livekit-server-$version build
printf '%s\n' "$made/livekit-server"
