#!/usr/bin/env bash
# Prints the folder of Pebble, the ACME test server of Let's Encrypt, and of its challenge server. Builds both once by Go into
# ${EDGE_RUNNER_TOOLS:-target/tools}: about half a minute on two cores. Ends with code 3 where Go is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v2.10.3
command -v go >/dev/null || exit 3
folder=${EDGE_RUNNER_TOOLS:-$PWD/target/tools}/pebble-$version
mkdir -p "$folder"
# The gate starts a build before the stage asks for one.
exec 9>"$folder/lock"
flock 9
if [ ! -x "$folder/pebble" ] || [ ! -x "$folder/pebble-challtestsrv" ]; then
    for program in pebble pebble-challtestsrv; do
        CGO_ENABLED=0 GOBIN=$folder GOFLAGS=-trimpath go install "github.com/letsencrypt/pebble/v2/cmd/$program@$version" >&2
    done
fi
printf '%s\n' "$folder"
