#!/usr/bin/env bash
# Runs every fuzz target for MINUTES (10), or those in TARGETS; then 100,000 generated offers.
# `tests/fuzz/rustc` says what is measured, `tests/fuzz/oracle.rs` what an input may cost; the limits here end what hangs. New
# inputs stay in target/fuzz-corpus, crashes in target/fuzz-run/artifacts.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
needs 'apt-get install g++ (the fuzzing engine is C++)' c++ || exit 0

folder=target/fuzz-run
RUSTC_WRAPPER=$PWD/tests/fuzz/rustc cargo build --release --quiet --manifest-path tests/fuzz/Cargo.toml --target-dir $folder
failed=
for target in ${TARGETS:-$(sed -n 's/^path = "\(.*\)\.rs"/\1/p' tests/fuzz/Cargo.toml)}; do
    seeds=(tests/corpus/"$target")
    case $target in sdp_*) seeds+=(tests/data/sdp) ;; esac
    mkdir -p target/fuzz-corpus/"$target" $folder/artifacts
    $folder/release/"$target" -max_total_time=$((${MINUTES:-10} * 60)) -timeout=30 -rss_limit_mb=3000 \
        -print_final_stats=1 -artifact_prefix=$folder/artifacts/"$target"- \
        target/fuzz-corpus/"$target" "${seeds[@]}" >$folder/"$target".log 2>&1 || failed="$failed $target"
    printf '%-16s %s\n' "$target" "$(grep -E 'number_of_executed_units|^SUMMARY' $folder/"$target".log | tail -n 1)"
done
OFFERS=100000 cargo test --quiet --test main corpus::generated_offers
if [ -n "$failed" ]; then
    say "found something, see $folder/artifacts and $folder/TARGET.log:$failed"
    exit 1
fi
