#!/usr/bin/env bash
# Prints the folder of Kubernetes' client, `kubectl`. Debian's is too old to execute commands by a WebSocket, so it is built once by Go
# into the cache of the checks: five minutes of one core. Ends with code 3 where Go is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
# That of Kubernetes 1.34.4.
version=v0.34.4
command -v go >/dev/null || exit 3
build() {
    local source
    source=$(mktemp -d)
    # The module of the program itself replaces others by folders of its own repository, so it cannot be built by its name.
    cat >"$source/main.go" <<'EOF'
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }
EOF
    (
        cd "$source"
        go mod init kubectl
        go get "k8s.io/kubectl@$version" "k8s.io/component-base@$version"
        go mod tidy
        CGO_ENABLED=0 GOFLAGS=-trimpath go build -ldflags='-s -w' -o "$1/kubectl" .
    )
    rm -rf "$source"
}
make_once "kubectl-$version" build
printf '%s\n' "$made"
