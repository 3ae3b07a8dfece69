#!/usr/bin/env bash
# Builds images through the cloud service with every container engine that is installed: buildah, podman, Docker, BuildKit; and with
# BuildKit in the Jobs of a Kubernetes cluster that has a real client and stand-ins for its server and its node.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/check/common.sh
[ "$(id -u)" = 0 ] || { lacks 'container engines need root'; exit 0; }
needs 'apt-get install busybox-static' busybox || exit 0
if ldd "$(command -v busybox)" >/dev/null 2>&1; then
    lacks 'busybox is not one static program: apt-get install busybox-static'
    exit 0
fi
engines=() buildkit=() rootless=
! needs 'apt-get install rootlesskit uidmap, without which no engine is tried without root' rootlesskit newuidmap || rootless=1
! needs 'apt-get install --no-install-recommends buildah' buildah || engines+=(buildah buildah-vfs ${rootless:+buildah-rootless buildah-vfs-rootless})
! needs 'apt-get install --no-install-recommends podman' podman || engines+=(podman ${rootless:+podman-rootless})
! needs 'apt-get install --no-install-recommends docker.io' dockerd docker || engines+=(docker)
if needs 'apt-get install runc openssl, and Go 1.26 of https://go.dev/dl' runc openssl go; then
    buildkit=(--buildkit "$(tests/check/buildkit.sh)")
    engines+=(buildkit ${rootless:+buildkit-rootless})
    if [ -n "$rootless" ] && needs 'apt-get install procps' pgrep && needs_python yaml; then
        PATH=$(tests/check/kubectl.sh):$PATH
        engines+=(kubernetes)
    fi
fi
[ ${#engines[@]} -gt 0 ] || exit 0
needs 'apt-get install docker-registry, without which no engine pushes' docker-registry || true
release
find_python
$python tests/peers/cloud/engines.py --binary $binary ${buildkit[@]+"${buildkit[@]}"} --engines "${engines[*]}"
