#!/usr/bin/env bash
# Installs the packages of the browser checks once in the cache of the checks, and links them into tests/peers/browser.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
folder=tests/peers/browser
build() {
    cp $folder/package.json $folder/package-lock.json "$1"
    npm ci --silent --no-audit --no-fund --prefix "$1"
}
make_once "node-$(digest $folder/package-lock.json "$(node --version)" "$0")" build
[ -L $folder/node_modules ] || rm -rf $folder/node_modules
ln -sfn "$made/node_modules" $folder/node_modules
