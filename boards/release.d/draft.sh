#!/usr/bin/env bash
# Makes a draft of a release page on GitHub, which maintainers alone see: boards/release.d/draft.sh DIR
# In: DIR, made by boards/release from the commit of the tag vVERSION; gh, with a token that may write. The notes are the part of
# CHANGELOG.md about that version. Refuses: files of another commit or that changed, a version without notes.
set -euo pipefail
cd "$(dirname "$0")/../.."
die() {
    printf 'draft.sh: %s\n' "$*" >&2
    exit 1
}
folder=${1:?which folder? See docs/RELEASING.md}
command -v gh >/dev/null || die "gh is not installed: see https://cli.github.com"
version=$(sed -n 's/^edge-runner //p' "$folder/BUILDINFO")
commit=$(sed -n 's/^commit //p' "$folder/BUILDINFO")
tagged=$(git rev-parse --verify --quiet "v$version^{commit}") || die "there is no tag v$version"
[ "$tagged" = "$commit" ] || die "the files are of $commit, and the tag v$version is of $tagged"
(cd "$folder" && sha256sum --check --quiet --strict SHA256SUMS) || die "the files are not those of SHA256SUMS"
listed=$(cut -c 67- "$folder/SHA256SUMS" | sort)
found=$(cd "$folder" && find . -mindepth 1 -printf '%P\n' | grep -vx -e SHA256SUMS -e SHA256SUMS.sig | sort)
[ "$listed" = "$found" ] || die "SHA256SUMS lists other files than there are"
notes=$(awk -v heading="## [$version]" 'index($0, "## [") == 1 || /^\[.*\]: / { inside = index($0, heading) == 1; next } inside' CHANGELOG.md)
[ -n "${notes//[$'\n ']/}" ] || die "CHANGELOG.md says nothing of $version"
gh release create "v$version" --draft --verify-tag --title "edge-runner $version" --notes "$notes" "$folder"/*
