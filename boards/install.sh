#!/bin/sh
# Installs edge-runner from a release: picks the build for this machine, verifies it, puts the program in place.
#   sh install.sh [OPTIONS]
#     --version V     that version; default: the latest release
#     --allow-downgrade   also where a newer version is installed
#     --prefix DIR    installs DIR/bin/edge-runner; default: /usr/local for root, ~/.local for other users
#     --static        the static build, even where the C library of this machine is new enough for the other
#     --deb           the Debian package with its service, in place of the program alone; needs root
#     --key KEY       the public key that signs releases: a file, or its text, as in `ssh-ed25519 AAAA...`
#     --unsigned      is content with checksums where a signature is missing, or cannot be verified here
#     --from URL      the folder with the files of a release
#     --dry-run       downloads and verifies, and installs nothing
# Needs: Linux; curl or wget; tar; sha256sum, shasum or openssl; ssh-keygen (OpenSSH 8.1 or later) for the signature.
# Exit codes: 0 installed, 1 failed (nothing was installed), 2 wrong usage.
set -eu

# Both are set in the copy that a release publishes (boards/release).
release_key=''
release_url='https://github.com/edge-runner/edge-runner/releases'

say() { printf '%s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}
usage() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 2
}
has() { command -v "$1" >/dev/null 2>&1; }

# --- The machine

# Sets `cpu`, `deb` (Debian's name, empty where there is no package) and `libc`.
look_at_machine() {
    system=$(uname -s)
    case $system in
    Linux) ;;
    Darwin) fail "releases have builds for Linux, and this is macOS. The code type-checks for macOS, and was never run there; to try it: \`cargo install --locked --git https://github.com/edge-runner/edge-runner edge-runner\`" ;;
    *) fail "releases have builds for Linux, and this is $system, for which the code was never built" ;;
    esac
    bits=$(getconf LONG_BIT 2>/dev/null || true)
    hardware=$(uname -m)
    libc=''
    case $hardware in
    x86_64 | amd64)
        cpu=x86_64 deb=amd64
        # A 64-bit kernel below a 32-bit system runs the static build.
        [ "$bits" != 32 ] || libc=musl deb=''
        ;;
    aarch64 | arm64)
        cpu=aarch64 deb=arm64
        # Raspberry Pi OS (32-bit) has a 64-bit kernel.
        [ "$bits" != 32 ] || cpu=armv7 deb=armhf
        ;;
    armv7* | armv8l) cpu=armv7 deb=armhf ;;
    armv6*) cpu=arm deb='' libc=musl ;;
    *) fail "there is no build for \`$hardware\`; there are x86_64, aarch64, armv7 and armv6" ;;
    esac
    [ -n "$libc" ] || libc=$(c_library)
}

# The GNU build needs glibc 2.34.
c_library() {
    version=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc \([0-9]*\.[0-9]*\).*/\1/p' || true)
    major=${version%%.*} minor=${version#*.}
    if [ -n "$version" ] && { [ "$major" -gt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -ge 34 ]; }; }; then
        say gnu
    else
        say musl
    fi
}

target_of() {
    case $cpu-$libc in
    armv7-gnu) say armv7-unknown-linux-gnueabihf ;;
    armv7-musl) say armv7-unknown-linux-musleabihf ;;
    arm-musl) say arm-unknown-linux-musleabihf ;;
    *) say "$cpu-unknown-linux-$libc" ;;
    esac
}

# --- Downloads

# fetch NAME: downloads $from/NAME to $work/NAME.
fetch() {
    code=0
    if has curl; then
        # A redirect never leaves HTTPS.
        case $from in
        https:*) curl -fsSL --proto =https --connect-timeout 20 --retry 2 -o "$work/$1" "$from/$1" 2>"$work/error" || code=$? ;;
        *) curl -fsSL --connect-timeout 20 -o "$work/$1" "$from/$1" 2>"$work/error" || code=$? ;;
        esac
        # 22: the server answered with an error.
        [ $code != 22 ] || code=refused
    elif has wget; then
        # No -q, which hides the error too, and no -T, with which that of busybox 1.35 crashes.
        wget -O "$work/$1" "$from/$1" >/dev/null 2>"$work/error" || code=$?
        ! { [ $code = 8 ] || grep -q 'server returned error' "$work/error"; } || code=refused
    else
        fail "curl or wget is needed"
    fi
    [ $code != 0 ] || return 0
    rm -f "$work/$1"
    if [ $code = refused ]; then
        return 1
    fi
    sed 's/^/  /' "$work/error" >&2
    fail "$from/$1 cannot be reached. Is this machine online? Nothing was installed"
}

sha256() {
    if has sha256sum; then
        sha256sum "$1"
    elif has shasum; then
        shasum -a 256 "$1"
    else
        openssl dgst -sha256 -r "$1"
    fi | cut -d ' ' -f 1
}

# Verifies the signature of SHA256SUMS, unless there is no key.
verify_signature() {
    if [ -z "$key" ]; then
        say "No key is known that signs releases: the checksum shows that the download is complete, and not who made it."
        return
    fi
    if [ -n "$unsigned" ]; then
        say "The signature is not verified (--unsigned)."
        return
    fi
    has ssh-keygen || fail "ssh-keygen is needed to verify the signature (Debian: apt-get install openssh-client; Alpine: apk add openssh-keygen). --unsigned does without"
    # Each line of the key is one that may sign, so that keys can be replaced.
    printf '%s\n' "$key" | grep -E '^(ssh|ecdsa|sk-ssh|sk-ecdsa)-' | sed 's/^/edge-runner namespaces="edge-runner" /' >"$work/signers" || true
    [ -s "$work/signers" ] || fail "the key is no public key of ssh: \`ssh-ed25519 AAAA...\` is one"
    fetch SHA256SUMS.sig || fail "$from has no SHA256SUMS.sig, and releases are signed. --unsigned does without"
    ssh-keygen -Y verify -f "$work/signers" -I edge-runner -n edge-runner -s "$work/SHA256SUMS.sig" \
        <"$work/SHA256SUMS" >"$work/verified" 2>&1 || {
        sed 's/^/  /' "$work/verified" >&2
        fail "the signature of SHA256SUMS is wrong: somebody else made this release, or changed it. Nothing was installed"
    }
    say "The release is signed: $(sed -n 's/^Good.* with //p' "$work/verified")"
}

# verified NAME: downloads a file, whose checksum is in SHA256SUMS.
verified() {
    fetch "$1" || fail "$from/$1 is missing, and SHA256SUMS names it. Try again later"
    wanted=$(awk -v name="$1" '$2 == name || $2 == "*" name { print $1 }' "$work/SHA256SUMS")
    found=$(sha256 "$work/$1")
    [ "$found" = "$wanted" ] || fail "the checksum of $1 is $found, and SHA256SUMS has $wanted: the download is damaged or was changed. Nothing was installed"
}

# is_listed NAME: whether SHA256SUMS has that name.
is_listed() { awk -v name="$1" '$2 == name || $2 == "*" name { found = 1 } END { exit !found }' "$work/SHA256SUMS"; }

# --- The version

# Sets `released` to the version that the release says it is. BUILDINFO is in the signed list of checksums, so that a
# mirror cannot pass an old release off as another. Its date lets a user see that `latest` is an old one.
look_at_release() {
    is_listed BUILDINFO || fail "$from is no release that says its version: SHA256SUMS has no BUILDINFO. Nothing was installed"
    verified BUILDINFO
    released=$(sed -n 's/^edge-runner \([0-9][0-9A-Za-z.+-]*\)$/\1/p' "$work/BUILDINFO" | head -n 1)
    date=$(sed -n 's/^date \([0-9]\{4\}-[0-9][0-9]-[0-9][0-9]\)$/\1/p' "$work/BUILDINFO" | head -n 1)
    { [ -n "$released" ] && [ -n "$date" ]; } || fail "BUILDINFO says no version and date: $from is no release that this script knows. Nothing was installed"
    [ -z "$version" ] || [ "$version" = "$released" ] || fail "$from has version $released, and $version was asked for. Nothing was installed"
    say "The release is version $released of $date."
}

# is_older A B: whether version A comes before B (https://semver.org, section 11).
is_older() {
    awk -v a="$1" -v b="$2" '
        # The order of two parts: numbers by value and before words, words by their characters.
        function order(x, y) {
            if (x ~ /^[0-9]+$/ && y ~ /^[0-9]+$/) return x + 0 < y + 0 ? -1 : x + 0 > y + 0
            if (x ~ /^[0-9]+$/) return -1
            if (y ~ /^[0-9]+$/) return 1
            return x "" < y "" ? -1 : x "" > y ""
        }
        function orders(x, y, xs, ys, n, m, i, found) {
            n = split(x, xs, "."); m = split(y, ys, ".")
            for (i = 1; i <= n && i <= m; i++) if ((found = order(xs[i], ys[i])) != 0) return found
            return n < m ? -1 : n > m
        }
        BEGIN {
            sub(/\+.*/, "", a); sub(/\+.*/, "", b)
            # What follows the first hyphen marks a version before the one without it.
            early_a = index(a, "-") ? substr(a, index(a, "-") + 1) : ""; sub(/-.*/, "", a)
            early_b = index(b, "-") ? substr(b, index(b, "-") + 1) : ""; sub(/-.*/, "", b)
            found = orders(a, b)
            if (found == 0 && early_a != early_b) found = early_a == "" ? 1 : early_b == "" ? -1 : orders(early_a, early_b)
            exit found >= 0
        }'
}

# refuse_older INSTALLED: fails if the release is older than what is installed; empty: nothing is.
refuse_older() {
    [ -n "$1" ] && [ -z "$downgrade" ] && is_older "$released" "$1" || return 0
    fail "version $1 is installed, and the release is version $released, which may have faults that are known. --allow-downgrade installs it all the same. Nothing was installed"
}

# --- Installation

install_deb() {
    [ -n "$deb" ] || fail "there is no package for this machine (\`$hardware\`, ${bits:-unknown} bits): install without --deb"
    # The architecture of the installed system decides, not the kernel's.
    deb=$(dpkg --print-architecture 2>/dev/null) || fail "this is no Debian, Ubuntu or Raspberry Pi OS, as dpkg is missing: install without --deb"
    name=edge-runner_${released}_$deb.deb
    is_listed "$name" || fail "the release has no package for $deb: SHA256SUMS has no $name"
    # Of a package that was removed, the settings may have stayed.
    refuse_older "$(dpkg-query -W -f '${db:Status-Status} ${Version}' edge-runner 2>/dev/null | sed -n 's/^installed //p' || true)"
    [ -n "$dry" ] || [ "$(id -u)" = 0 ] || fail "a package needs root: sudo sh install.sh --deb. Without root, install without --deb"
    verified "$name"
    if [ -n "$dry" ]; then
        say "$name is intact, and would be installed."
        return
    fi
    # apt reads the file as another user.
    chmod 755 "$work"
    chmod 644 "$work/$name"
    if has apt-get; then
        apt-get install -y ${downgrade:+--allow-downgrades} "$work/$name" </dev/null || fail "apt-get could not install $name; its reason is above"
    else
        dpkg -i "$work/$name" </dev/null || fail "dpkg could not install $name; its reason is above"
    fi
    say "Installed $name. Its key and address: sudo /usr/lib/edge-runner/api-key"
}

# The GNU build where the C library is new enough. Where it does not run all the same, as on systems with their
# loader in another place, the static one.
install_program() {
    bin=$prefix/bin
    if [ -z "$dry" ]; then
        mkdir -p "$bin" 2>/dev/null || fail "$bin cannot be made: run this as root, or choose another folder with --prefix DIR"
        [ -w "$bin" ] || fail "$bin is not writable: run this as root, or choose another folder with --prefix DIR"
    fi
    if [ -x "$bin/edge-runner" ]; then
        # One that does not run says no version.
        refuse_older "$("$bin/edge-runner" --version 2>/dev/null | sed -n 's/^edge-runner \([0-9][0-9A-Za-z.+-]*\).*/\1/p' | head -n 1 || true)"
    fi
    if ! try_program; then
        [ "$libc" = gnu ] || fail "the build for $target does not run on this machine. Nothing was installed"
        say "The build for $target does not run on this machine; trying the static one."
        libc=musl
        try_program || fail "the build for $target does not run on this machine. Nothing was installed"
    fi
    [ -z "$dry" ] || return 0
    mv -f "$new" "$bin/edge-runner"
    new=''
    say "Installed $bin/edge-runner: $shown"
    case :$PATH: in
    *":$bin:"*) say "Start it with: edge-runner" ;;
    *) say "Start it with: $bin/edge-runner   ($bin is not in PATH)" ;;
    esac
}

# Downloads the build for `cpu` and `libc` to `new`, which is in the folder where the program is going to be: in the one
# for temporary files programs may not be allowed to run. Sets `shown` to its version; fails if it does not run.
try_program() {
    target=$(target_of)
    name=edge-runner-$released-$target.tar.gz
    is_listed "$name" || fail "the release has no build for $target: SHA256SUMS has no $name"
    verified "$name"
    if [ -n "$dry" ]; then
        say "$name is intact, and would be installed as $bin/edge-runner."
        return 0
    fi
    tar -xzf "$work/$name" -C "$work" || fail "$name cannot be unpacked"
    new=$bin/.edge-runner.$$
    cp "$work/${name%.tar.gz}/edge-runner" "$new" || fail "$bin cannot be written: is the disk full?"
    chmod 755 "$new"
    shown=$("$new" --version 2>"$work/error") && return 0
    sed 's/^/  /' "$work/error" >&2
    return 1
}

main() {
    version='' prefix='' libc_asked='' package='' key=$release_key unsigned='' from='' dry='' work='' new='' downgrade='' released=''
    while [ $# -gt 0 ]; do
        case $1 in
        --version | --prefix | --key | --from) [ $# -ge 2 ] || usage "\`$1\` needs a value" ;;
        esac
        case $1 in
        --version) version=${2#v} && shift ;;
        --prefix) prefix=$2 && shift ;;
        --key) key=$2 && shift ;;
        --from) from=${2%/} && shift ;;
        --static) libc_asked=musl ;;
        --deb) package=1 ;;
        --unsigned) unsigned=1 ;;
        --allow-downgrade) downgrade=1 ;;
        --dry-run) dry=1 ;;
        -h | --help)
            say "Installs edge-runner from a release: picks the build for this machine, verifies it, puts the program in place."
            say "sh install.sh [--version V] [--prefix DIR] [--static] [--deb] [--key KEY] [--unsigned] [--from URL] [--allow-downgrade] [--dry-run]"
            say "The head of the script explains each."
            exit 0
            ;;
        *) usage "there is no option \`$1\`; see --help" ;;
        esac
        shift
    done
    case $version in
    *[!0-9A-Za-z.+-]*) usage "\`$version\` is no version" ;;
    esac
    case $from in
    '' | https://* | http://*) ;;
    *) usage "\`$from\` is no URL" ;;
    esac
    if [ -f "$key" ]; then key=$(cat "$key"); fi
    if [ -z "$from" ]; then
        from=$release_url/latest/download
        [ -z "$version" ] || from=$release_url/download/v$version
    fi
    if [ -z "$prefix" ]; then
        prefix=/usr/local
        [ "$(id -u)" = 0 ] || prefix=${HOME:?is not set; --prefix names the folder}/.local
    fi
    look_at_machine
    [ -z "$libc_asked" ] || libc=$libc_asked
    has tar || fail "tar is needed"
    has sha256sum || has shasum || has openssl || fail "sha256sum, shasum or openssl is needed"

    umask 022
    work=$(mktemp -d)
    trap 'rm -rf "$work"; [ -z "$new" ] || rm -f "$new"' EXIT
    trap 'exit 1' HUP INT TERM
    fetch SHA256SUMS || fail "$from has no SHA256SUMS: there is no such release${version:+ as $version}. Without a release, build it: \`cargo install --locked --git https://github.com/edge-runner/edge-runner edge-runner\`"
    verify_signature
    look_at_release
    if [ -n "$package" ]; then install_deb; else install_program; fi
}

# At the end, so that half a script, from a broken download, does nothing.
main "$@"
