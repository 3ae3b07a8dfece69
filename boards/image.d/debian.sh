# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2154
# The file tree: Debian's packages, ours, and image.d/files. Sourced by boards/image, which defines the variables and
# `fail`. Uses $board_packages of the board's part, and what it adds to these two: suites of Debian, and options of
# mmdebstrap.
board_suites=() board_options=()

# Packages of every image, beside Debian's essential packages, apt, and the board's kernel.
common_packages=(
    # init, network with DHCP, name resolution with mDNS, time.
    systemd-sysv systemd-resolved systemd-timesyncd libnss-resolve libnss-myhostname dbus udev kmod
    # Wi-Fi, and the regulatory database of channels.
    wpasupplicant wireless-regdb
    # Login and sudo.
    openssh-server sudo
    # Trust store for the certificates of providers.
    ca-certificates
    # Boot, check and growth of the root file system.
    initramfs-tools zstd e2fsprogs dosfstools fdisk
    # The programs of the sound card, for `--local` and the test of the setup page.
    alsa-utils
    # Tools for troubleshooting.
    iproute2 iputils-ping netbase procps less nano-tiny
)

# Registers qemu-user with the kernel for ARM programs, as its package does at boot. The mount is private to this
# process.
emulate_arm() {
    [ "$(dpkg --print-architecture)" != arm64 ] || return 0
    local place=/proc/sys/fs/binfmt_misc line=/usr/lib/binfmt.d/qemu-aarch64.conf
    if [ ! -e $place/register ]; then
        [ -z "${EDGE_RUNNER_IMAGE_INNER:-}" ] || fail "the kernel has no binfmt_misc: modprobe binfmt_misc"
        # Runs this script again in a mount namespace of its own.
        EDGE_RUNNER_IMAGE_INNER=1 unshare --mount sh -c 'mount -t binfmt_misc none "$0" && exec "$@"' $place "$here/image" "${arguments[@]}"
        exit
    fi
    if [ ! -e $place/qemu-aarch64 ]; then
        [ -f $line ] || fail "programs for arm64 cannot be run here: apt-get install qemu-user-static"
        cat $line >$place/register
    fi
}

# The Debian mirror of this system's apt sources: the first address that serves the main archive.
mirror() {
    local found=''
    if [ "$(. /etc/os-release && printf %s "$ID")" = debian ]; then
        found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 2>/dev/null |
            grep -E '/debian/?$' | head -1 || true)
    fi
    printf %s "${found:-http://deb.debian.org/debian}"
}

# make_tree FOLDER DEB
make_tree() {
    local root=$1 deb=$2 main security packages source sources=()
    main=$(mirror) main=${main%/}
    security=$main-security
    packages=$(IFS=,; printf %s "${common_packages[*]},${board_packages[*]}")
    mkdir "$work/put"
    cp "$deb" "$work/put/edge-runner.deb"
    local components='main non-free-firmware'
    for source in "$main $suite" "$main $suite-updates" "$security $suite-security" "${board_suites[@]/#/$main }"; do
        sources+=("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $source $components")
    done
    # INITRD=No tells the kernel's hooks to skip the initrd; after-packages makes it once.
    # dpkg excludes documentation, here and in later upgrades.
    env INITRD=No TMPDIR="$work" LC_ALL=C.UTF-8 mmdebstrap --verbose --mode=root --format=directory --architectures=arm64 --variant=apt \
        --skip=check/qemu,essential/unlink,download/empty \
        --include="$packages" --components="$components" \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-include=/usr/share/doc/edge-runner/*' \
        --setup-hook='mkdir -p "$1/var/cache/apt/archives"' \
        --setup-hook="cp -n $cache/*.deb \"\$1/var/cache/apt/archives/\" 2>/dev/null || true" \
        --essential-hook="cp -n \"\$1\"/var/cache/apt/archives/*.deb $cache/" \
        --essential-hook="$parts/before-packages \"\$1\" $board" \
        --customize-hook="cp -n \"\$1\"/var/cache/apt/archives/*.deb $cache/ 2>/dev/null || true" \
        --customize-hook="$parts/after-packages \"\$1\" $board $work/put/edge-runner.deb" \
        --customize-hook="chroot \"\$1\" dpkg-query -W -f '\${Package} \${Version}\n' >$work/packages" \
        "${board_options[@]}" \
        "$suite" "$root" "${sources[@]}" \
        >"$out/$board.log" 2>&1 || {
        tail -20 "$out/$board.log" >&2
        fail "the packages could not be installed; all of it is in $out/$board.log"
    }
}

# Secrets and ids of a board are generated at the first boot and never part of an image.
inspect_tree() {
    local root=$1 found
    [ ! -s "$root/etc/machine-id" ] || fail "the image has a machine-id"
    found=$(find "$root/etc/ssh" -name 'ssh_host_*')
    [ -z "$found" ] || fail "the image has ssh host keys: $found"
    found=$(find "$root/var/lib/edge-runner" "$root/root" "$root/home" "$root/run" -type f \
        ! -name .bashrc ! -name .profile ! -name .bash_logout 2>/dev/null || true)
    [ -z "$found" ] || fail "files that some start left: $found"
    for found in "$root/var/lib/systemd/random-seed" "$root/boot/efi/loader/random-seed"; do
        [ ! -e "$found" ] || fail "the image has a seed of random numbers: $found"
    done
    # A hash in the password field would be a default password.
    found=$(cut -d: -f1,2 "$root/etc/shadow" | grep -vE ':[*!]+$' || true)
    [ -z "$found" ] || fail "somebody has a password: ${found%%:*}"
    # The builder's mirror, proxy and their passwords are private.
    found=$(grep -rhoE '[a-z+]+:/[^ ]+' "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d" |
        grep -vxE 'http://deb\.debian\.org/debian(-security)?' || true)
    [ -z "$found" ] || fail "the image would fetch packages from somewhere else than deb.debian.org"
    found=$(grep -rliE '://[^/ ]*@|proxy' "$root/etc/apt" || true)
    [ -z "$found$(find "$root/etc/apt/auth.conf" "$root/etc/apt/auth.conf.d" -type f 2>/dev/null)" ] ||
        fail "the image has the builder's proxy, or a password for packages: $found"
    # CA certificates are public; private keys must not be present.
    found=$(grep -rlI --include='*.pem' --include='*.key' 'PRIVATE KEY' "$root/etc" "$root/var" "$root/usr/share" "$root/usr/lib" 2>/dev/null || true)
    [ -z "$found" ] || fail "private keys: $found"
}
