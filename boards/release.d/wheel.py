#!/usr/bin/env python3
"""Writes a wheel per program, for `pip install`, pipx and uv: the program as a script, and a package of two short files.

    boards/release.d/wheel.py --version V --notices FILE --out DIR TARGET=BINARY...

In: programs by target, static ones for a release; SOURCE_DATE_EPOCH. Out: the wheels (PyPA's binary distribution format 1.0). A
static program runs with every C library, so its wheel has the tags of manylinux and of musllinux; a dynamic one, for trials, that of
the glibc it needs. ARMv6 has the one tag that the index takes for it. The same input gives the same bytes with the same zlib, which
BUILDINFO names.

A wheel is a zip archive with three lists, so it is written here: tools that make wheels build what is in them as well, and know
nothing of a program that another compiler has made. pip, pipx and uv read it in tests/release/test_wheel.py.
"""

import base64
import hashlib
import os
import re
import sys
import time
import zipfile
from pathlib import Path

import elf

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).resolve().parent / "python"
# `edge-runner` is too near to `edgerunner`, which the index has. docs/RELEASING.md names two more that were free.
NAME = "edge-bot-runner"
REPOSITORY = "https://github.com/edge-runner/edge-runner"
# Architectures in the tags of wheels.
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "aarch64", "armv7": "armv7l", "arm": "armv6l"}


def tags(program):
    architecture = ARCHITECTURES[program.target.split("-")[0]]
    if program.glibc is not None:
        return [f"manylinux_2_{program.glibc}_{architecture}"]
    if architecture == "armv6l":
        return ["linux_armv6l"]
    return [f"manylinux_2_17_{architecture}", f"manylinux2014_{architecture}", f"musllinux_1_1_{architecture}"]


def python_version(version):
    """Writes a version of Cargo as the index does: 1.0.0-rc.1 is 1.0.0rc1."""
    found = re.fullmatch(r"(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.?(\d+))?", version)
    if not found:
        raise ValueError(f"no wheel can have the version {version}: expected X.Y.Z, X.Y.Z-alpha.N, -beta.N or -rc.N")
    release, kind, number = found.groups()
    return release + ({"alpha": "a", "beta": "b", "rc": "rc"}[kind] + number if kind else "")


def metadata(version):
    head = [
        "Metadata-Version: 2.4",
        f"Name: {NAME}",
        f"Version: {version}",
        "Summary: Runs voice bots, Pipecat's among them, for callers over WebRTC, WebSockets, telephone and rooms",
        "License-Expression: MIT OR Apache-2.0",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        "License-File: THIRD-PARTY.txt",
        "Keywords: webrtc,voice,bot,telephony,pipecat,rtvi",
        "Classifier: Environment :: Console",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: 3",
        "Classifier: Typing :: Typed",
        "Requires-Python: >=3.8",
        f"Project-URL: Source, {REPOSITORY}",
        f"Project-URL: Documentation, {REPOSITORY}/tree/v{version}/docs",
        "Description-Content-Type: text/markdown",
    ]
    description = (SOURCE / "README.md").read_text(encoding="utf-8").replace("NAME", NAME)
    return "\n".join(head) + "\n\n" + description


def files(program, version, notices):
    """The content of a wheel by its paths, without RECORD."""
    stem = f"{NAME.replace('-', '_')}-{version}"
    wheel = ["Wheel-Version: 1.0", "Generator: edge-runner", "Root-Is-Purelib: false"]
    wheel += [f"Tag: py3-none-{tag}" for tag in tags(program)]
    found = {
        f"{stem}.data/scripts/edge-runner": program.content,
        f"{stem}.dist-info/METADATA": metadata(version).encode(),
        f"{stem}.dist-info/WHEEL": ("\n".join(wheel) + "\n").encode(),
        # The name of the package as a command, for `uvx NAME` and `pipx run NAME`.
        f"{stem}.dist-info/entry_points.txt": f"[console_scripts]\n{NAME} = edge_runner.__main__:main\n".encode(),
        f"{stem}.dist-info/licenses/THIRD-PARTY.txt": notices,
    }
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        found[f"{stem}.dist-info/licenses/{name}"] = (ROOT / name).read_bytes()
    for path in sorted((SOURCE / "edge_runner").iterdir()):
        if path.is_file():
            found[f"edge_runner/{path.name}"] = path.read_bytes()
    return stem, found


def record(stem, found):
    """The list of files with their hashes, in which its own has none."""
    lines = []
    for path, content in found.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{stem}.dist-info/RECORD,,", ""]).encode()


def write(program, version, notices, out):
    stem, found = files(program, version, notices)
    # The lists last, as the format recommends.
    found = dict(sorted(found.items(), key=lambda entry: (".dist-info/" in entry[0], entry[0])))
    found[f"{stem}.dist-info/RECORD"] = record(stem, found)
    # A zip archive has no times before 1980.
    moment = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))
    path = out / f"{stem}-py3-none-{'.'.join(tags(program))}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in found.items():
            entry = zipfile.ZipInfo(name, moment[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            mode = 0o755 if "/scripts/" in name else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, compresslevel=9)
    return path


def main():
    asked = elf.arguments(__doc__)
    try:
        version, programs = python_version(asked.version), elf.pairs(asked.programs)
    except ValueError as error:
        sys.exit(f"wheel.py: {error}")
    for program in programs:
        print(write(program, version, asked.notices.read_bytes(), asked.out))


if __name__ == "__main__":
    main()
