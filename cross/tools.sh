# shellcheck shell=bash
# Fetches and unpacks Debian's own tools for the ARM builds; read by `cross/build` and `cross/qemu`, run by nobody.
#
# In: names of parts. Out: folders below one cache folder, ${EDGE_RUNNER_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/edge-runner},
# which may be removed at any time. Nothing is installed, and no right of root is needed: apt runs with a state, a cache and
# sources of its own, checks what it fetches with Debian's archive keys, and `dpkg -x` unpacks.
# Refuses: machines other than x86-64 with glibc 2.36 or later, and those without apt and dpkg.

# The release whose compilers and C library are used, whatever this machine runs: the older, the lower the glibc that the
# binaries ask for.
suite=bookworm
tools=${EDGE_RUNNER_TOOLS:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; EDGE_RUNNER_TOOLS names a folder for the tools}/.cache}/edge-runner}
multiarch=x86_64-linux-gnu

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# The host: what Debian's packages for amd64 can run on.
host_fits() {
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
        die "Debian's tools are taken for x86-64 Linux, and this is $(uname -s) on $(uname -m): use \`cross build --release --target $1\` (see cross/README.md)"
    local tool glibc
    for tool in apt-get apt-cache apt-config dpkg flock; do
        command -v $tool >/dev/null ||
            die "\`$tool\` is missing, so this is no Debian or Ubuntu: use \`cross build --release --target $1\` (see cross/README.md)"
    done
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)
    [ "$(printf '2.36\n%s\n' "${glibc:-0}" | sort -V | head -1)" = 2.36 ] ||
        die "Debian's compiler needs glibc 2.36 (Debian 12, Ubuntu 24.04), this machine has ${glibc:-none}: use \`cross build --release --target $1\` (see cross/README.md)"
}

# The mirror that this machine uses for Debian itself, or Debian's own. $1: debian or debian-security.
# shellcheck disable=SC2016
mirror() {
    local found
    found=$(apt-get indextargets --format '$(REPO_URI) $(SIGNED_BY)' 'Created-By: Packages' 2>/dev/null |
        sed -nE "s,^([^ ]+/$1)/? ?($|.*debian-archive-.*),\1,p" | head -1)
    printf '%s\n' "${found:-http://deb.debian.org/$1}"
}

# A configuration of apt for one architecture, or for sources, and its lists. An architecture of its own each, so that a list that a mirror
# lacks breaks no other. Prints the file that APT_CONFIG names.
apt_of() {
    local arch=$1 home=$tools/apt/$1 keys=/usr/share/keyrings/debian-archive-keyring.gpg
    # A day: mirrors remove what an old list names.
    if [ -z "$(find "$home/fresh" -mmin -1440 2>/dev/null)" ]; then
        [ -e $keys ] || die "$keys is missing: apt-get install debian-archive-keyring"
        rm -rf "$home"
        mkdir -p "$home"/{state/lists/partial,cache/archives/partial,etc/{apt.conf,preferences,trusted.gpg}.d}
        : >"$home/status"
        if [ "$arch" = source ]; then
            printf 'deb-src [signed-by=%s] %s %s main\n' $keys "$(mirror debian)" $suite >"$home/etc/sources.list"
            arch=amd64
        else
            printf 'deb [signed-by=%s] %s %s main\n' $keys "$(mirror debian)" $suite \
                $keys "$(mirror debian-security)" $suite-security >"$home/etc/sources.list"
        fi
        {
            # Proxies and the like are the machine's.
            apt-config dump | grep -E '^Acquire::(http|https|Check-Valid-Until|Check-Date|ForceIPv[46]|Retries)\b' || true
            printf '%s "%s";\n' Dir::State "$home/state" Dir::State::status "$home/status" Dir::Cache "$home/cache" \
                Dir::Etc "$home/etc" Dir::Etc::netrc /etc/apt/auth.conf Dir::Etc::netrcparts /etc/apt/auth.conf.d \
                APT::Architecture "$arch" APT::Architectures:: "$arch" APT::Sandbox::User root Acquire::Languages none
        } >"$home/apt.conf"
        say "reading Debian's list of packages for $1"
        APT_CONFIG=$home/apt.conf apt-get -qq -o APT::Update::Error-Mode=any update >&2 || return 1
        touch "$home/fresh"
    fi
    printf '%s\n' "$home/apt.conf"
}

# Unpacks packages into a folder, whole or not at all. $1: folder, $2: architecture, rest: packages, or name=version.
unpack() {
    local folder=$1 arch=$2 deb
    shift 2
    say "fetching $*"
    rm -rf "$folder.new"
    mkdir -p "$folder.new"
    # Once more with a new list, should the mirror have changed since it was read.
    download "$folder.debs" "$arch" "$@" || { rm -f "$tools/apt/$arch/fresh" && download "$folder.debs" "$arch" "$@"; } || return 1
    for deb in "$folder.debs"/*.deb; do dpkg -x "$deb" "$folder.new"; done
    rm -rf "$folder.debs"
}
# $1: folder, made anew, $2: architecture, rest: packages.
download() {
    local folder=$1 config
    config=$(apt_of "$2") || return 1
    shift 2
    rm -rf "$folder" && mkdir "$folder"
    (cd "$folder" && APT_CONFIG=$config apt-get -qq download "$@" >&2)
}
keep() { mv "$1.new" "$1"; }

# A program that finds its own libraries, and only those of the part that it came with; glibc is the machine's.
# $1: part, $2: program in it, rest: arguments that always come first.
# shellcheck disable=SC2016
wrapper() {
    local part=$1 program=$2
    shift 2
    mkdir -p "$part.new/bin"
    {
        printf '#!/bin/sh\n'
        printf 'here=%s\n' "'$part'"
        printf 'export LD_LIBRARY_PATH="$here/usr/lib/%s:$here/lib/%s" PATH="$here/usr/bin:$PATH"\n' "$multiarch" "$multiarch"
        printf 'exec "$here/usr/bin/%s"' "$program"
        printf ' %s' "$@"
        printf ' "$@"\n'
    } >"$part.new/bin/$program"
    chmod +x "$part.new/bin/$program"
}

# What is fetched is fetched by one at a time. $@: what to do.
locked() {
    mkdir -p "$tools"
    exec 9>"$tools/lock"
    flock 9
    "$@"
    exec 9>&-
}

# The C compiler for the board, with the C library that it links. $1: Debian's architecture, $2: the compiler's prefix.
# shellcheck disable=SC2016
cross_gcc() {
    local arch=$1 gnu=$2 part=$tools/gcc-$1 tool
    [ ! -d "$part" ] || return 0
    unpack "$part" amd64 "gcc-12-$gnu" "cpp-12-$gnu" "binutils-$gnu" "libgcc-12-dev-$arch-cross" "libgcc-s1-$arch-cross" \
        "libc6-$arch-cross" "libc6-dev-$arch-cross" "linux-libc-dev-$arch-cross" \
        binutils-common libbinutils libctf0 libctf-nobfd0 libjansson4 libgmp10 libisl23 libmpc3 libmpfr6 libzstd1 \
        zlib1g libstdc++6 libgcc-s1 || die "the C compiler for $arch could not be fetched"
    ln -sf "$gnu-gcc-12" "$part.new/usr/bin/$gnu-gcc"
    # The C library's linker script names absolute paths, which are those below the part.
    wrapper "$part" "$gnu-gcc" '--sysroot="$here"'
    for tool in ar ranlib strip objcopy objdump readelf; do wrapper "$part" "$gnu-$tool"; done
    keep "$part"
}

# The emulators.
qemu_user() {
    [ ! -d "$tools/qemu" ] || return 0
    unpack "$tools/qemu" amd64 qemu-user-static || die "QEMU could not be fetched"
    keep "$tools/qemu"
}
