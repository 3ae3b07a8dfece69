#!/usr/bin/env bash
# Prints the folder of BuildKit's daemon and client, `buildkitd` and `buildctl`. Builds both once by Go into the cache of the checks:
# six minutes of one core. Ends with code 3 where Go is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
version=v0.34.2
command -v go >/dev/null || exit 3
build() {
    local source program
    # `go install` refuses a module that excludes versions of others, so it is built in its own tree.
    source=$(go mod download -json "github.com/moby/buildkit@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    for program in buildctl buildkitd; do
        CGO_ENABLED=0 GOFLAGS=-trimpath go build -C "$source" -mod=readonly -o "$1/$program" "./cmd/$program"
    done
}
make_once buildkit-$version build
printf '%s\n' "$made"
