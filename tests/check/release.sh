#!/usr/bin/env bash
# Makes a release twice, in two folders, compares the bytes, and uses what was made: install.sh, every program and a call
# with it, the packages, the container image, the wheels, the packages for npm, the crates, and the crate of `edge-runner new`. It compiles without optimisation, since the pipeline is the same.
#   TARGETS=T,...    only these, among them x86_64-unknown-linux-gnu
#   REPEAT=T,...     only these the second time (default: those of TARGETS); none: no second time
#   REAL=1           with the optimisation of a release, which takes hours
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
needs 'apt-get install --no-install-recommends runc umoci skopeo' runc umoci skopeo || exit 0
needs 'apt-get install git openssh-client dpkg binutils' git ssh-keygen dpkg-deb readelf || exit 0
needs_namespaces 'the container of a release' || exit 0
root=$PWD
out=$root/target/release-check
# Commits may come while this runs.
commit=$(git rev-parse HEAD)
REPEAT=${REPEAT:-${TARGETS:-}}
if [ -z "${REAL:-}" ]; then
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
fi
mkdir -p "$out"
rm -rf "$out/first" "$out/second" "$out/programs" "$out/clone" "$out/key" "$out/key.pub"
ssh-keygen -q -t ed25519 -N '' -C 'a key of this test' -f "$out/key"

say 'a release'
boards/release --out "$out/first" --sign "$out/key" ${TARGETS:+--only "$TARGETS"}

if [ "$REPEAT" != none ]; then
    say 'the same in another folder'
    git clone -q "$root" "$out/clone"
    git -C "$out/clone" checkout -q "$commit"
    "$out/clone/boards/release" --out "$out/second" --sign "$out/key" ${REPEAT:+--only "$REPEAT"}
    if [ "$REPEAT" = "${TARGETS:-}" ]; then
        diff -r "$out/first" "$out/second"
    else
        for file in "$out/second"/*.tar.gz "$out/second"/*.deb "$out/second"/*.whl "$out/second"/*.tgz "$out/second"/*.cdx.json "$out/second/install.sh"; do
            cmp "$out/first/${file##*/}" "$file"
        done
    fi
    printf 'the bytes are the same\n'
fi

say 'programs that catch panics'
for archive in "$out/first"/*-musl*.tar.gz; do
    target=$(sed 's/.*edge-runner-[^-]*-//; s/\.tar\.gz$//' <<<"$archive")
    cross/build "$target" --quiet --manifest-path "$root/tests/release/panics/Cargo.toml" --target-dir "$root/target/panics"
    program=target/panics/$target/release/panics
    case $target in
    x86_64-*) printf '%s: %s\n' "$target" "$($program)" ;;
    *) printf '%s: %s\n' "$target" "$(cross/qemu $program)" ;;
    esac
done

say 'what was made, used'
unshare --net python3 tests/release/run.py "$out/first"

say 'a call with each program'
if needs_python aiortc; then
    mkdir -p "$out/programs"
    for archive in "$out/first"/*.tar.gz; do
        tar -xzf "$archive" -C "$out/programs"
        name=$(basename "$archive" .tar.gz) under=()
        [[ $name == *-x86_64-* ]] || under=(--under cross/qemu)
        printf '%s: ' "$name"
        $python tests/peers/aiortc/run.py --binary "$out/programs/$name/edge-runner" ${under[@]+"${under[@]}"} tone
    done
fi

say 'each package, in a Debian of its own'
for package in "$out/first"/*.deb; do
    code=0
    python3 tests/deb/run.py --arch "$(dpkg-deb --field "$package" Architecture)" --package "$package" || code=$?
    [ $code = 0 ] || [ $code = 77 ] || exit $code
done

say 'the crates'
cargo publish --workspace --dry-run --quiet --allow-dirty
# In the same folder, which has the libraries compiled by now.
cargo install --quiet --locked --debug --path . --root "$out/installed" --target-dir target
"$out/installed/bin/edge-runner" --version
say 'a new crate, with this clone in place of the repository'
rm -rf "$out/new" && mkdir "$out/new"
(cd "$out/new" && "$out/installed/bin/edge-runner" new rust my-bot >/dev/null)
repository=$(sed -n 's/^repository = "\(.*\)"$/\1/p' Cargo.toml)
(cd "$out/new/my-bot" && cargo test --quiet --config "patch.'$repository'.edge-runner.path='$root'" --target-dir "$root/target/new")
