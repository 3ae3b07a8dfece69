#!/usr/bin/env bash
# Prints the path of the published relay of Media over QUIC. Builds it once into the cache of the checks: QUIC and WebTransport
# only, not optimised, since it carries a few calls. About 5 minutes on one core, 350 crates.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/cache.sh
version=0.17.10
build() {
    mkdir -p "$1/source/src"
    # `cargo install --locked` fails where a registry lacks one version of its lock file, and without `--locked` takes the newest
    # of all. As a dependency, the lock file is followed as far as possible.
    cat >"$1/source/Cargo.toml" <<TOML
[package]
name = "relay"
version = "0.0.0"
edition = "2024"
[[bin]]
name = "moq-relay"
path = "src/main.rs"
[dependencies]
anyhow = "1"
moq-relay = { version = "=$version", default-features = false, features = ["noq"] }
moq-tokio = { version = "0.19", default-features = false }
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
[profile.release]
opt-level = 0
[workspace]
TOML
    cat >"$1/source/src/main.rs" <<'RUST'
// The program of the package.
use moq_relay::{Config, Relay};
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    moq_tokio::crypto::install_default().expect("no other provider is installed");
    Relay::load(Config::load()?).await?.run().await
}
RUST
    cargo fetch --quiet --manifest-path "$1/source/Cargo.toml"
    cp "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"moq-relay-$version/Cargo.lock" "$1/source"
    cargo build --quiet --release --manifest-path "$1/source/Cargo.toml" --target-dir "$1/build"
    cp "$1/build/release/moq-relay" "$1"
    rm -r "$1/build" "$1/source"
}
make_once moq-relay-$version build
printf '%s\n' "$made/moq-relay"
