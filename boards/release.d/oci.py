#!/usr/bin/env python3
"""Writes the container image of a release: an OCI image layout (image-spec 1.0) in a tar archive, for several platforms.

    boards/release.d/oci.py --version V --revision COMMIT --authorities FILE --notices FILE --out FILE PLATFORM=BINARY...

In: static binaries, by platform (linux/arm/v7=FILE); certificates of public authorities as PEM; SOURCE_DATE_EPOCH. Out: the
archive, which names it edge-runner:V. Each image has one layer: the program, the certificates, a writable folder for state,
one for temporary files, the licences; no shell, no user but a number. The same input gives the same bytes.

A layout is three kinds of JSON and a tar per platform, so it is written here, and read by skopeo, umoci and runc in
tests/check/release.sh. Tools that make layouts ask for a container engine, or bring in dates of their own.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
from pathlib import Path

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
CREATED = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
# No account of a distribution has this number.
USER = 65532
STATE = "var/lib/edge-runner"
TYPE = "application/vnd.oci.image"
SOURCE = "https://github.com/edge-runner/edge-runner"


def entry(name, mode, kind=tarfile.REGTYPE, owner=0, size=0):
    """A member of a tar archive without anything of this machine."""
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.mtime, info.size = mode, kind, EPOCH, size
    info.uid = info.gid = owner
    return info


def layer(binary, authorities, notices):
    """The file system, as a tar archive."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:

        def folder(name, mode=0o755, owner=0):
            tar.addfile(entry(name, mode, tarfile.DIRTYPE, owner))

        def file(name, source, mode=0o644):
            content = Path(source).read_bytes()
            tar.addfile(entry(name, mode, size=len(content)), io.BytesIO(content))

        file("edge-runner", binary, 0o755)
        for name in ("etc", "etc/ssl", "etc/ssl/certs"):
            folder(name)
        file("etc/ssl/certs/ca-certificates.crt", authorities)
        folder("tmp", 0o1777)
        for name in ("usr", "usr/share", "usr/share/doc", "usr/share/doc/edge-runner"):
            folder(name)
        file("usr/share/doc/edge-runner/THIRD-PARTY.txt", notices)
        for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
            file(f"usr/share/doc/edge-runner/{licence}", licence)
        for name in ("var", "var/lib"):
            folder(name)
        folder(STATE, 0o700, USER)
    return plain.getvalue()


class Layout:
    """The blobs of a layout, by their digests."""

    def __init__(self):
        self.blobs = {}

    def add(self, content, kind, **more):
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": f"{TYPE}.{kind}", "digest": f"sha256:{digest}", "size": len(content), **more}

    def add_json(self, value, kind, **more):
        return self.add(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), kind, **more)

    def write(self, out, index):
        files = {"oci-layout": {"imageLayoutVersion": "1.0.0"}, "index.json": index}
        files = {name: json.dumps(value, sort_keys=True).encode() for name, value in files.items()}
        files |= {f"blobs/sha256/{digest}": content for digest, content in self.blobs.items()}
        with tarfile.open(out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name in ("blobs", "blobs/sha256"):
                tar.addfile(entry(name, 0o755, tarfile.DIRTYPE))
            for name, content in sorted(files.items()):
                tar.addfile(entry(name, 0o644, size=len(content)), io.BytesIO(content))


def image(layout, platform, binary, labels, asked):
    """Adds the image of one platform, and returns the descriptor of its manifest."""
    system, architecture, *variant = platform.split("/")
    plain = layer(binary, asked.authorities, asked.notices)
    # GNU gzip, since the bytes of Python's depend on the library that it was built with.
    pressed = subprocess.run(["gzip", "-9n"], input=plain, stdout=subprocess.PIPE, check=True).stdout
    assert gzip.decompress(pressed) == plain
    machine = {"os": system, "architecture": architecture, **({"variant": variant[0]} if variant else {})}
    config = {
        **machine,
        "created": CREATED,
        "config": {
            "User": f"{USER}:{USER}",
            # A container has a network of its own, so callers come from outside.
            # Without a key everybody who reaches it could call, so it makes one in its volume, as the package does.
            "Env": [
                "PATH=/", "RUNNER_HOST=0.0.0.0", f"STATE_DIRECTORY=/{STATE}", "RUNNER_API_KEY_FILE=auto", "RUNNER_WS_AUTH=token",
            ],  # fmt: skip
            "Entrypoint": ["/edge-runner"],
            "WorkingDir": "/",
            "ExposedPorts": {"7860/tcp": {}, "7860/udp": {}},
            "Volumes": {f"/{STATE}": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created": CREATED, "created_by": "boards/release"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{TYPE}.manifest.v1+json",
        "config": layout.add_json(config, "config.v1+json"),
        "layers": [layout.add(pressed, "layer.v1.tar+gzip")],
        "annotations": labels,
    }
    return layout.add_json(manifest, "manifest.v1+json", platform=machine)


def main():
    parser = argparse.ArgumentParser()
    for option in ("version", "revision", "authorities", "notices", "out"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("platforms", nargs="+", metavar="PLATFORM=BINARY")
    asked = parser.parse_args()
    labels = {
        "org.opencontainers.image.title": "edge-runner",
        "org.opencontainers.image.description": "Runner for voice bots",
        "org.opencontainers.image.version": asked.version,
        "org.opencontainers.image.revision": asked.revision,
        "org.opencontainers.image.source": SOURCE,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.created": CREATED,
    }
    layout = Layout()
    images = [image(layout, *platform.split("=", 1), labels, asked) for platform in asked.platforms]
    index = {"schemaVersion": 2, "mediaType": f"{TYPE}.index.v1+json", "manifests": images, "annotations": labels}
    name = f"edge-runner:{asked.version}"
    # The name that podman and skopeo read, and the one of containerd and docker.
    tag = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": f"localhost/{name}"}
    tagged = layout.add_json(index, "index.v1+json", annotations=tag)
    layout.write(asked.out, {"schemaVersion": 2, "mediaType": f"{TYPE}.index.v1+json", "manifests": [tagged]})


if __name__ == "__main__":
    main()
