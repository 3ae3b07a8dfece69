# shellcheck shell=bash
# The cache of the checks: servers of others, environments of Python and Node, and compiled third-party crates.
# Sourced from the root of the repository. The folder may be deleted at any time; two gates may use it at once.

cache=${EDGE_RUNNER_CHECKS:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; EDGE_RUNNER_CHECKS names a folder for the cache}/.cache}/edge-runner-checks}

# Prints a short digest of files and other words: digest WORD...
digest() {
    local word
    for word in "$@"; do
        if [ -f "$word" ]; then cat "$word"; else printf '%s\n' "$word"; fi
    done | sha256sum | cut -c 1-16
}

# Makes a folder of the cache once: make_once NAME COMMAND... The command gets the path of a new folder, which keeps its name,
# since environments of Python hold their own path. Sets `made` to the path.
make_once() {
    made=$cache/$1
    shift
    [ ! -e "$made/.complete" ] || return 0
    mkdir -p "$cache"
    (
        exec 9>"$made.lock"
        # Another gate may be making it.
        flock 9
        [ ! -e "$made/.complete" ] || exit 0
        rm -rf "$made"
        mkdir "$made"
        "$@" "$made" >&2
        touch "$made/.complete"
    )
}

# Cargo validates what it finds, so the crates of an older lock file save most of the work too.
crates_archive() { printf '%s/crates/%s-%s.tar\n' "$cache" "$1" "$(digest "$2" Cargo.toml "$(rustc -vV)")"; }

# Unpacks compiled third-party crates into a folder of cargo that does not exist yet: restore_crates NAME FOLDER LOCK-FILE
restore_crates() {
    local archive
    [ ! -e "$2" ] || return 0
    archive=$(crates_archive "$1" "$3")
    if [ ! -e "$archive" ]; then
        mkdir -p "$cache/crates"
        archive=$(find "$cache/crates" -name "$1-*.tar" -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)
    fi
    [ -n "$archive" ] || return 0
    mkdir -p "$2"
    # Another gate may delete it.
    tar -C "$2" -xf "$archive" 2>/dev/null || true
}

# Keeps the compiled third-party crates of such a folder: save_crates NAME FOLDER LOCK-FILE. Crates of this repository are never kept.
save_crates() {
    local archive folders
    archive=$(crates_archive "$1" "$3")
    [ ! -e "$archive" ] || return 0
    mkdir -p "$cache/crates"
    folders=$(cd "$2" && find . -type d \( -name deps -o -name build -o -name .fingerprint \) -prune)
    # The format keeps fractions of seconds, by which cargo tells what is newer.
    # shellcheck disable=SC2086
    tar -C "$2" --format=posix -cf "$archive.$$" --exclude='*edge[-_]runner*' --exclude='*embedding*' --exclude='main-*' $folders
    mv "$archive.$$" "$archive"
    # Crates of a lock file of weeks ago are of no use.
    find "$cache/crates" -name '*.tar*' -mtime +21 -delete
}
