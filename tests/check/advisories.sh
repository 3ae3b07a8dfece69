#!/usr/bin/env bash
# Checks every lock file against the RustSec advisory database, by cargo-deny.
#   tests/check/advisories.sh [FOLDER]            with the database in FOLDER, in $ADVISORY_DB, or in the cache of the checks
#   tests/check/advisories.sh --fetch [FOLDER]    brings that folder up to date first, which needs github.com
#   tests/check/advisories.sh --kept              with tests/data/advisories.txt ($ADVISORIES_KEPT), of whatever age; the gate does so
#   tests/check/advisories.sh --keep [FOLDER]     writes that file: the advisories on crates of the lock files, each without its prose
#   MAX_AGE_DAYS=90                               fails if the newest advisory of the database is older
# FOLDER has the files of https://github.com/RustSec/advisory-db, from a clone or an archive. No package registry carries them.
# Ends with code 1 if an advisory applies or the database is old, and with 3 if there is none.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
. tests/check/cache.sh
PATH=$PATH:$PWD/target/venv/bin

locks=(Cargo.lock tests/*/Cargo.lock tests/*/*/Cargo.lock)
kept=${ADVISORIES_KEPT:-tests/data/advisories.txt}
action=
case "${1:-}" in --fetch | --kept | --keep) action=$1; shift ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$action" = --kept ]; then
    while read -r file; do mkdir -p "$work/kept/${file%/*}"; done < <(sed -n "s/^--- //p" "$kept")
    awk -v folder="$work/kept/" '/^--- / { file = folder $2; next } file { print >file }' "$kept"
    set -- "$work/kept"
    MAX_AGE_DAYS=36500
fi
folder=${1:-${ADVISORY_DB:-$cache/advisory-db}}
url=https://github.com/RustSec/advisory-db
needs 'tests/check/python.sh, or cargo install cargo-deny --locked' cargo-deny || exit 0

if [ "$action" = --fetch ]; then
    if [ -e "$folder/.git" ]; then
        git -C "$folder" pull --quiet --ff-only
    else
        git clone --quiet --depth 1 "$url" "$folder"
    fi
fi
if [ ! -d "$folder/crates" ]; then
    printf 'no advisory database in %s: tests/check/advisories.sh --fetch, or git clone --depth 1 %s %s\n' "$folder" "$url" "$folder"
    exit 3
fi
if [ "$action" = --keep ]; then
    {
        printf 'The advisories of %s, public domain (CC0), on crates of the lock files here.\n' "$url"
        printf 'Written by tests/check/advisories.sh --keep. To be written again with a newer database, and when a crate is added.\n'
        sed -n 's/^name = "\(.*\)"$/\1/p' "${locks[@]}" | sort -u | while read -r crate; do
            for file in "$folder/crates/$crate"/*.md; do
                [ -e "$file" ] || continue
                printf -- '--- %s\n' "${file#"$folder"/}"
                awk '!block || /^# / { print } block && /^# / { exit } /^```$/ { block = 1 }' "$file"
            done
        done
    } >"$work/advisories.txt"
    mv "$work/advisories.txt" "$kept"
    printf '%s: %s advisories\n' "$kept" "$(grep -c "^--- " "$kept" || true)"
    exit
fi

# The dates of the advisories themselves: a clone and a copy have the dates of the day.
newest=$(find "$folder/crates" -name '*.md' -exec sed -n 's/^date = "\([0-9-]*\)".*/\1/p' {} + | sort | tail -n 1)
[ -n "$newest" ] || { printf '%s has no advisory\n' "$folder"; exit 1; }
count=$(find "$folder/crates" -name '*.md' | wc -l)
age=$((($(date +%s) - $(date --utc -d "$newest" +%s)) / 86400))
printf 'advisory database: %s advisories, the newest of %s, %s days old\n' "$count" "$newest" "$age"

# cargo-deny takes a database from a repository of git behind an address only, so the files go into a repository of their own,
# to which git leads an address that does not exist.
git init --quiet --initial-branch main "$work/files"
cp -r "$folder/crates" "$work/files"
git -C "$work/files" add --all
git -C "$work/files" -c user.name=check -c user.email=check@localhost commit --quiet --message "$newest"
sed "s|^\[advisories\]\$|&\ndb-path = \"$work/clones\"\ndb-urls = [\"https://advisories.invalid/db\"]|" deny.toml >"$work/deny.toml"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$work/files.insteadOf" GIT_CONFIG_VALUE_0=https://advisories.invalid/db

failed=
for lock in "${locks[@]}"; do
    printf '%s: ' "$lock"
    cargo deny --locked --config "$work/deny.toml" --manifest-path "${lock%.lock}.toml" check --hide-inclusion-graph advisories 2>&1 ||
        failed=1
done
if [ "$age" -gt "${MAX_AGE_DAYS:-90}" ]; then
    printf 'the database is older than %s days: tests/check/advisories.sh --fetch\n' "${MAX_AGE_DAYS:-90}"
    failed=1
fi
[ -z "$failed" ]
