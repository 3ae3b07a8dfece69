#!/usr/bin/env bash
# Prints the path of SeaweedFS, `weed`, an object store that speaks S3. Builds it once by Go into the cache of the checks: twenty
# minutes of one core. Ends with code 3 where Go is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
# Its releases are no versions of Go modules.
version=v0.0.0-20261109003541-7506e5f91cd6
command -v go >/dev/null || exit 3
build() {
    local source
    # `go install` refuses a module that replaces others, so it is built in its own tree.
    source=$(go mod download -json "github.com/seaweedfs/seaweedfs@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    CGO_ENABLED=0 GOFLAGS=-trimpath go build -C "$source" -mod=readonly -ldflags=-s -o "$1/weed" ./weed
}
make_once seaweedfs-$version build
printf '%s\n' "$made/weed"
