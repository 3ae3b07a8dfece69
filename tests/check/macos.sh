#!/usr/bin/env bash
# Type-checks the program and the library for macOS; warnings are errors. Nothing is compiled to machine code of a Mac, linked or run.
#   macos.sh        `full` for Apple's processors, `runner` for Intel's: no code of ours is for one of them alone
#   macos.sh all    both selections for both
#
# The standard library for both targets is that of the compiler, if it has them (rustup target add aarch64-apple-darwin
# x86_64-apple-darwin). Otherwise, on Debian or Ubuntu on x86-64, Debian's compiler is taken (cross/tools.sh), and the metadata of the
# standard library are made once from its sources: a minute of one core, beside 100 MB to download.
# C code of crates is not compiled, except on a Mac: their build scripts get a compiler that writes empty files, which only a linker
# would read.
#   CARGO_TARGET_DIR=DIR   default: target/macos. One folder for both targets, so that build scripts and macros are compiled once
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
targets=(aarch64-apple-darwin x86_64-apple-darwin)
options=(--target "${targets[0]}" --target "${targets[1]}")

# Whether a compiler has the standard library for both targets.
has_std() {
    local target
    for target in "${targets[@]}"; do
        compgen -G "$("$1" --print target-libdir --target "$target")/libstd-*" >/dev/null || return 1
    done
}

# Debian's compiler, and beside its libraries the metadata of the standard library for both targets.
debian_std() {
    local work=$tools/std-macos target library
    rust
    ! has_std "$RUSTC" || return 0
    rust_src
    say "type-checking the standard library for macOS"
    env RUSTC_BOOTSTRAP=1 CARGO_ENCODED_RUSTFLAGS=-Zforce-unstable-if-unmarked CARGO_INCREMENTAL=0 \
        cargo check --quiet --locked --profile dist --manifest-path "$tools/rust-src/library/sysroot/Cargo.toml" -p sysroot \
        --features panic-unwind,backtrace "${options[@]}" --target-dir "$work.new" >&2 ||
        die "the standard library for macOS could not be type-checked"
    for target in "${targets[@]}"; do
        library=$tools/rust/usr/lib/rustlib/$target
        rm -rf "$library" "$library.new"
        mkdir -p "$library.new/lib"
        cp "$work.new/$target/dist/deps"/*.rmeta "$library.new/lib/"
        mv "$library.new" "$library"
    done
    rm -rf "$work.new"
}

# Puts a compiler and an archiver in PATH that write empty files. With -E, a build script asks which compiler it is. They have names and
# no paths, so that a build script does not run again in another clone.
no_object_code() {
    local folder=$CARGO_TARGET_DIR/no-object-code target
    mkdir -p "$folder"
    cat >"$folder/no-object-code-cc" <<'EOF'
#!/bin/sh
[ "$1" != -E ] || exec cc "$@"
while [ $# -gt 1 ]; do
    [ "$1" != -o ] || : >"$2"
    shift
done
EOF
    cat >"$folder/no-object-code-ar" <<'EOF'
#!/bin/sh
printf '!<arch>\n' >"$2"
EOF
    chmod +x "$folder"/no-object-code-*
    export PATH=$folder:$PATH
    for target in "${targets[@]}"; do
        export "CC_${target//-/_}=no-object-code-cc" "AR_${target//-/_}=no-object-code-ar"
    done
}

needs 'see https://rustup.rs, and on Debian apt-get install gcc' cargo cc || exit 0
if ! has_std "${RUSTC:-rustc}"; then
    if [ "$(uname -sm)" != 'Linux x86_64' ] || ! command -v apt-get >/dev/null; then
        lacks "the standard library for macOS: rustup target add ${targets[*]}"
        exit 0
    fi
    # shellcheck source=cross/tools.sh
    . cross/tools.sh
    host_fits "${targets[0]}"
    export RUSTC=$tools/rust/bin/rustc
    has_std "$RUSTC" 2>/dev/null || locked debian_std
fi

mkdir -p "${CARGO_TARGET_DIR:-target/macos}"
CARGO_TARGET_DIR=$(cd "${CARGO_TARGET_DIR:-target/macos}" && pwd)
export CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 RUSTFLAGS='-D warnings'
[ "$(uname)" = Darwin ] || no_object_code
for selection in full runner; do
    case ${1:-}$selection in
    all*) chosen=("${targets[@]}") ;;
    full) chosen=("${targets[0]}") ;;
    runner) chosen=("${targets[1]}") ;;
    esac
    cargo check --quiet --locked --lib --bins --no-default-features --features $selection "${chosen[@]/#/--target=}"
    printf '%s: the types are right for %s\n' "$selection" "${chosen[*]}"
done
