# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2154
# The tree of files: Debian's packages, ours, and the files of image.d/files. Read by boards/image, which sets the variables
# and `fail`. Uses $board_packages of the board's part.

# What every image has, beside Debian's essential packages, apt, and the board's kernel.
common_packages=(
    # The system: init, network with DHCP, names (its own, <name>.local, and others'), time.
    systemd-sysv systemd-resolved systemd-timesyncd libnss-resolve libnss-myhostname dbus udev kmod
    # Wi-Fi, and which channels are allowed where.
    wpasupplicant wireless-regdb
    # A way in, and to be root there.
    openssh-server sudo
    # The authorities that providers' certificates are checked with.
    ca-certificates
    # Start, checking and growing of the root file system.
    initramfs-tools zstd e2fsprogs dosfstools fdisk
    # What one reaches for when something is wrong.
    iproute2 iputils-ping netbase procps less nano-tiny
)

# Runs ARM programs through qemu-user: the kernel is told which program runs them, as the package itself does it on a system that
# was started with it. The mount is this process's own.
emulate_arm() {
    [ "$(dpkg --print-architecture)" != arm64 ] || return 0
    local place=/proc/sys/fs/binfmt_misc line=/usr/lib/binfmt.d/qemu-aarch64.conf
    if [ ! -e $place/register ]; then
        [ -z "${EDGE_RUNNER_IMAGE_INNER:-}" ] || fail "the kernel has no binfmt_misc: modprobe binfmt_misc"
        # Once more, in mounts of its own: what is mounted there goes with it.
        EDGE_RUNNER_IMAGE_INNER=1 unshare --mount sh -c 'mount -t binfmt_misc none "$0" && exec "$@"' $place "$here/image" "${arguments[@]}"
        exit
    fi
    if [ ! -e $place/qemu-aarch64 ]; then
        [ -f $line ] || fail "programs for arm64 cannot be run here: apt-get install qemu-user-static"
        cat $line >$place/register
    fi
}

# Debian's mirror as this system's apt knows it: of a Debian system the first address that serves the main archive.
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
    local root=$1 deb=$2 main security packages
    main=$(mirror) main=${main%/}
    security=$main-security
    packages=$(IFS=,; printf %s "${common_packages[*]},${board_packages[*]}")
    mkdir "$work/put"
    cp "$deb" "$work/put/edge-runner.deb"
    local components='main non-free-firmware'
    # INITRD=No is known to the kernel's hooks: after-packages makes the initrd, once.
    # dpkg leaves out, here and in later upgrades, what nobody reads on a board.
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
        "$suite" "$root" \
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $main $suite $components" \
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $main $suite-updates $components" \
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $security $suite-security $components" \
        >"$out/$board.log" 2>&1 || {
        tail -20 "$out/$board.log" >&2
        fail "the packages could not be installed; all of it is in $out/$board.log"
    }
}

# What is secret, or must differ between boards, is made at the first start and never in an image.
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
    # A password field that is a hash would be a default password.
    found=$(cut -d: -f1,2 "$root/etc/shadow" | grep -vE ':[*!]+$' || true)
    [ -z "$found" ] || fail "somebody has a password: ${found%%:*}"
    # Where the builder's packages came from is theirs alone, and so is a proxy, and a password for either.
    found=$(grep -rhoE '[a-z+]+:/[^ ]+' "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d" |
        grep -vxE 'http://deb\.debian\.org/debian(-security)?' || true)
    [ -z "$found" ] || fail "the image would fetch packages from somewhere else than deb.debian.org"
    found=$(grep -rliE '://[^/ ]*@|proxy' "$root/etc/apt" || true)
    [ -z "$found$(find "$root/etc/apt/auth.conf" "$root/etc/apt/auth.conf.d" -type f 2>/dev/null)" ] ||
        fail "the image has the builder's proxy, or a password for packages: $found"
    # Certificates of authorities are public; private keys are nobody's.
    found=$(grep -rlI --include='*.pem' --include='*.key' 'PRIVATE KEY' "$root/etc" "$root/var" "$root/usr/share" "$root/usr/lib" 2>/dev/null || true)
    [ -z "$found" ] || fail "private keys: $found"
}
