#!/usr/bin/env bash
# Prints the path of versitygw, an object store that speaks S3. Builds it once by Go into the cache of the checks: four minutes of
# one core. Ends with code 3 where Go is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
version=v1.8.0
command -v go >/dev/null || exit 3
build() { CGO_ENABLED=0 GOBIN=$1 GOFLAGS=-trimpath go install "github.com/versity/versitygw/cmd/versitygw@$version"; }
make_once versitygw-$version build
printf '%s\n' "$made/versitygw"
