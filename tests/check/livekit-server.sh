#!/usr/bin/env bash
# Prints the path of the published LiveKit server. Builds it once by Go into ${EDGE_RUNNER_TOOLS:-target/tools}: about 1.5 minutes
# on two cores. Ends with code 3 where Go is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Later versions may not be built by `go install`: look for `replace` in their go.mod.
version=v1.13.5
command -v go >/dev/null || exit 3
folder=${EDGE_RUNNER_TOOLS:-$PWD/target/tools}/livekit-server-$version
mkdir -p "$folder"
# The gate starts a build before the stage asks for one.
exec 9>"$folder/lock"
flock 9
if [ ! -x "$folder/livekit-server" ]; then
    CGO_ENABLED=0 GOBIN=$folder GOFLAGS=-trimpath go install "github.com/livekit/livekit-server/cmd/server@$version" >&2
    mv "$folder/server" "$folder/livekit-server"
fi
printf '%s\n' "$folder/livekit-server"
