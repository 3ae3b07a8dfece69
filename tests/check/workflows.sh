#!/usr/bin/env bash
# Checks the workflows in .github/workflows by actionlint, which Go builds once into the cache of the checks: about half a minute
# on two cores. With shellcheck on the machine it reads the commands of their steps too. Then that every script which a step calls
# is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
. tests/check/cache.sh
version=v1.7.12
needs 'Go 1.24 or later, of https://go.dev/dl' go || exit 0
build() { CGO_ENABLED=0 GOBIN=$1 GOFLAGS=-trimpath go install "github.com/rhysd/actionlint/cmd/actionlint@$version"; }
make_once actionlint-$version build
"$made/actionlint" -no-color .github/workflows/*.yml

missing=
while read -r script; do
    [ -x "$script" ] || missing+=" $script"
done < <(sed -nE 's#^ *-? *run: ((tests|boards|cross|\.ci)/[^ ]+).*#\1#p' .github/workflows/*.yml | sort -u)
[ -z "$missing" ] || { printf 'a workflow calls what is not there, or no program:%s\n' "$missing"; exit 1; }
