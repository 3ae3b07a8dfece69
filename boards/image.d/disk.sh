# shellcheck shell=bash
# shellcheck disable=SC2016,SC2034,SC2154
# The disk: two partitions, FAT for the firmware and ext4 for the system, each made as a file and copied to its place, so
# that neither loop devices nor mounts are needed. Sourced by boards/image; the board's part sets $table and $boot_mib.

# make_disk ROOT BOOT IMAGE
make_disk() {
    local root=$1 boot=$2 image=$3 used_kib root_mib
    cp "$parts/edge-runner.txt" "$boot/edge-runner.txt"
    # Old versions of Notepad need CRLF.
    sed -i 's/$/\r/' "$boot/edge-runner.txt"

    rm -f "$work/fat" && truncate -s "${boot_mib}M" "$work/fat"
    mkfs.vfat -F 32 -n EDGE-BOOT --invariant -i "${stamp:0:8}" "$work/fat" >/dev/null
    find "$boot" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    # Sorted for a reproducible order.
    (cd "$boot" && find . -mindepth 1 -maxdepth 1 -printf '%P\n' | sort | while IFS= read -r name; do
        TZ=UTC mcopy -i "$work/fat" -s -m -Q "$name" ::
    done)

    # A tenth more than the content, plus 64 MiB: enough space to log in even if the file system does not grow.
    used_kib=$(du -sk --apparent-size "$root" | cut -f1)
    root_mib=$(((used_kib * 11 / 10) / 1024 + 64))
    rm -f "$work/ext4" && truncate -s "${root_mib}M" "$work/ext4"
    E2FSPROGS_FAKE_TIME=$SOURCE_DATE_EPOCH mke2fs -q -t ext4 -T ext4 -b 4096 -L edge-root -m 1 -U "$(uuid 8)" \
        -E "hash_seed=$(uuid 16),lazy_itable_init=0,lazy_journal_init=0" -d "$root" "$work/ext4"

    local boot_start=2048 boot_sectors=$((boot_mib * 2048)) root_sectors=$((root_mib * 2048)) root_start
    root_start=$((boot_start + boot_sectors))
    # The backup GPT takes the last 33 sectors; 1 MiB keeps the end aligned.
    truncate -s $(((root_start + root_sectors + 2048) * sector)) "$image"
    case $table in
    gpt)
        sfdisk --quiet "$image" <<TABLE
label: gpt
label-id: $(uuid 24)
start=$boot_start, size=$boot_sectors, type=uefi, name=edge-boot, uuid=$(uuid 28)
start=$root_start, size=$root_sectors, type=linux, name=edge-root, uuid=$(uuid 32)
TABLE
        ;;
    dos)
        sfdisk --quiet "$image" <<TABLE
label: dos
label-id: 0x${stamp:24:8}
start=$boot_start, size=$boot_sectors, type=c, bootable
start=$root_start, size=$root_sectors, type=83
TABLE
        ;;
    esac
    dd if="$work/fat" of="$image" bs=1M seek=1 conv=notrunc,sparse status=none
    dd if="$work/ext4" of="$image" bs=1M seek=$((1 + boot_mib)) conv=notrunc,sparse status=none
    rm "$work/fat" "$work/ext4"
}
