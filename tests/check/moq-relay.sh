#!/usr/bin/env bash
# Prints the path of the published relay of Media over QUIC. Builds it once into ${EDGE_RUNNER_TOOLS:-target/tools}: QUIC and
# WebTransport only, not optimised, since it carries a few calls. About 5 minutes on one core, 350 crates.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=0.17.10
folder=${EDGE_RUNNER_TOOLS:-$PWD/target/tools}/moq-relay-$version
mkdir -p "$folder"
# The gate starts a build before the stage asks for one.
exec 9>"$folder/lock"
flock 9
if [ ! -x "$folder/moq-relay" ]; then
    mkdir -p "$folder/source/src"
    # `cargo install --locked` fails where a registry lacks one version of its lock file, and without `--locked` takes the newest
    # of all. As a dependency, the lock file is followed as far as possible.
    cat >"$folder/source/Cargo.toml" <<EOF
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
EOF
    cat >"$folder/source/src/main.rs" <<'EOF'
// The program of the package.
use moq_relay::{Config, Relay};
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    moq_tokio::crypto::install_default().expect("no other provider is installed");
    Relay::load(Config::load()?).await?.run().await
}
EOF
    rm -f "$folder/source/Cargo.lock"
    cargo fetch --quiet --manifest-path "$folder/source/Cargo.toml" >&2
    cp "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"moq-relay-$version/Cargo.lock" "$folder/source"
    cargo build --quiet --release --manifest-path "$folder/source/Cargo.toml" --target-dir "$folder/build" >&2
    cp "$folder/build/release/moq-relay" "$folder"
    rm -r "$folder/build" "$folder/source"
fi
printf '%s\n' "$folder/moq-relay"
