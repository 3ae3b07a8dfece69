# shellcheck shell=bash
# Fetches and unpacks Debian's tools for the builds. Sourced by `cross/build`, `cross/qemu` and `boards/release`.
#
# In: names of parts. Out: folders below one cache folder, ${EDGE_RUNNER_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/edge-runner},
# which may be removed at any time. It installs nothing and needs no root: apt runs with a state, cache and
# sources of its own and verifies packages with Debian's archive keys; `dpkg -x` unpacks them.
# Rejects: machines other than x86-64 with glibc 2.36 or later, and those without apt and dpkg.

# The Debian release of the compilers and the C library. An older release lets binaries run with an older
# glibc.
suite=bookworm
tools=${EDGE_RUNNER_TOOLS:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; EDGE_RUNNER_TOOLS names a folder for the tools}/.cache}/edge-runner}
multiarch=x86_64-linux-gnu

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# The host must run Debian's amd64 packages.
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

# The Debian mirror that this machine uses, or deb.debian.org. $1: debian or debian-security.
# shellcheck disable=SC2016
mirror() {
    local found
    found=$(apt-get indextargets --format '$(REPO_URI) $(SIGNED_BY)' 'Created-By: Packages' 2>/dev/null |
        sed -nE "s,^([^ ]+/$1)/? ?($|.*debian-archive-.*),\1,p" | head -1)
    printf '%s\n' "${found:-http://deb.debian.org/$1}"
}

# Configures apt for one architecture, or for sources, with lists of its own, so that a list missing on the
# mirror affects no other architecture. Prints the path for APT_CONFIG.
apt_of() {
    local arch=$1 home=$tools/apt/$1 keys=/usr/share/keyrings/debian-archive-keyring.gpg
    # Lists expire after a day, because mirrors remove old packages.
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
            # Proxy settings of the machine.
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

# Unpacks packages into a folder, atomically. $1: folder, $2: architecture, rest: packages, or name=version.
unpack() {
    local folder=$1 arch=$2 deb
    shift 2
    say "fetching $*"
    rm -rf "$folder.new"
    mkdir -p "$folder.new"
    # Retries with a new list, in case the mirror has changed.
    download "$folder.debs" "$arch" "$@" || { rm -f "$tools/apt/$arch/fresh" && download "$folder.debs" "$arch" "$@"; } || return 1
    for deb in "$folder.debs"/*.deb; do dpkg -x "$deb" "$folder.new"; done
    rm -rf "$folder.debs"
}
# $1: folder, replaced; $2: architecture; rest: packages.
download() {
    local folder=$1 config
    config=$(apt_of "$2") || return 1
    shift 2
    rm -rf "$folder" && mkdir "$folder"
    (cd "$folder" && APT_CONFIG=$config apt-get -qq download "$@" >&2)
}
keep() { mv "$1.new" "$1"; }

# Writes a wrapper for a program, which then loads only the libraries of its own part, and the machine's glibc.
# $1: part, $2: program in it, rest: leading arguments.
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

# Runs a command under the lock of the cache folder. $@: the command.
locked() {
    mkdir -p "$tools"
    exec 9>"$tools/lock"
    flock 9
    "$@"
    exec 9>&-
}

# The C compiler for the board, with the C library that it links. $1: Debian's architecture, or x86-64; $2: the compiler's
# prefix.
# shellcheck disable=SC2016
cross_gcc() {
    local arch=$1 gnu=$2 part=$tools/gcc-$1 tool
    [ ! -d "$part" ] || return 0
    local packages=("gcc-12-$gnu" "cpp-12-$gnu" "binutils-$gnu" "libgcc-12-dev-$arch-cross" "libgcc-s1-$arch-cross"
        "libc6-$arch-cross" "libc6-dev-$arch-cross" "linux-libc-dev-$arch-cross")
    # The compiler of PCs is not a cross compiler.
    [ "$arch" != x86-64 ] || packages=(gcc-12 cpp-12 binutils binutils-x86-64-linux-gnu libgcc-12-dev libc6 libc6-dev
        linux-libc-dev libgprofng0)
    unpack "$part" amd64 "${packages[@]}" \
        binutils-common libbinutils libctf0 libctf-nobfd0 libjansson4 libgmp10 libisl23 libmpc3 libmpfr6 libzstd1 \
        zlib1g libstdc++6 libgcc-s1 || die "the C compiler for $arch could not be fetched"
    ln -sf "$gnu-gcc-12" "$part.new/usr/bin/$gnu-gcc"
    # The linker script of the C library has absolute paths; make them point into the part.
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

# Debian's Rust compiler for this machine.
# shellcheck disable=SC2016
rust() {
    local part=$tools/rust config version release llvm
    if [ ! -d "$part" ]; then
        config=$(apt_of amd64) || die "Debian's list of packages could not be read"
        version=$(APT_CONFIG=$config apt-cache policy rustc-web | sed -n 's/.*Candidate: //p')
        release=$(cut -d. -f1,2 <<<"$version")
        llvm=$(APT_CONFIG=$config apt-cache show "libstd-rust-web-$release=$version" | grep -oE 'libllvm[0-9]+')
        unpack "$part" amd64 "rustc-web=$version" "libstd-rust-web-$release=$version" "libstd-rust-web-dev=$version" \
            "$llvm" libedit2 libbsd0 libmd0 libtinfo6 libffi8 libxml2 libicu72 liblzma5 libz3-4 libzstd1 zlib1g \
            libstdc++6 libgcc-s1 || die "Debian's Rust compiler could not be fetched"
        printf '%s\n' "$version" >"$part.new/version"
        mkdir "$part.new/bin"
        # The library path is an argument of the loader and not a variable, so that linkers that rustc starts keep
        # their own.
        printf '#!/bin/sh\nhere=%s\nexec /lib64/ld-linux-x86-64.so.2 --library-path "$here/usr/lib/%s:$here/lib/%s" "$here/usr/bin/rustc" "$@"\n' \
            "'$part'" "$multiarch" "$multiarch" >"$part.new/bin/rustc"
        chmod +x "$part.new/bin/rustc"
        keep "$part"
    fi
}

# The sources of the standard library, in the version of Debian's Rust, and the crates that they depend on.
rust_src() {
    local part=$tools/rust-src version
    version=$(cat "$tools/rust/version")
    if [ "$(cat "$part/version" 2>/dev/null)" != "$version" ]; then
        rm -rf "$part"
        unpack "$part" amd64 "rust-web-src=$version" ||
            die "the sources of the standard library could not be fetched in version $version: if Debian has a later one, remove $tools/rust"
        # Keeps the needed part of 700 MB.
        mv "$part".new/usr/src/rustc-*/library "$part.new/library"
        rm -rf "$part.new/usr"
        printf '%s\n' "$version" >"$part.new/version"
        keep "$part"
    fi
    RUSTC_BOOTSTRAP=1 cargo fetch --quiet --locked --manifest-path "$part/library/sysroot/Cargo.toml" >&2 ||
        die "the crates of the standard library could not be fetched"
}
