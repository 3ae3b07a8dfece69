#!/usr/bin/env python3
"""Writes the packages of npm, for `npx` and `npm install`: one per program, and a small one that starts the program of the machine.

    boards/release.d/npm.py --version V --notices FILE --out DIR TARGET=BINARY...

In: programs by target; SOURCE_DATE_EPOCH; GNU gzip. Out: the packages, as `npm pack` writes them, gzip members around tar archives
with a folder `package`. Those with a program have `os` and `cpu`, so npm installs the one that fits; the small one names them as
optional. npm knows one processor `arm`, for which the builds of Node are ARMv7, so no package has the program for ARMv6. The same
input gives the same bytes.
"""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import elf
from wheel import NAME, REPOSITORY, ROOT

SOURCE = Path(__file__).resolve().parent / "npm"
# Processors as Node names them, by the first word of a target.
PROCESSORS = {"x86_64": "x64", "aarch64": "arm64", "armv7": "arm"}


def manifest(name, version, description, **more):
    return {
        "name": name,
        "version": version,
        "description": description,
        "license": "MIT OR Apache-2.0",
        "homepage": REPOSITORY,
        "repository": {"type": "git", "url": f"git+{REPOSITORY}.git"},
        **more,
    }


def program_package(program, version, notices):
    """The name of a package with a program, and its files with their modes."""
    processor = PROCESSORS[program.target.split("-")[0]]
    name = f"{NAME}-linux-{processor}"
    about = f"The program of {NAME} for Linux on {processor}: install {NAME} instead"
    files = {
        "package.json": manifest(name, version, about, os=["linux"], cpu=[processor]),
        "README.md": f"# {name}\n\n{about}.\n".encode(),
        "edge-runner": program.content,
        "THIRD-PARTY.txt": notices,
    }
    return name, files


def starter_package(version, names):
    """The package that starts the program."""
    about = "Runs voice bots for callers over WebRTC, WebSockets, telephone and rooms"
    files = {
        "package.json": manifest(
            NAME,
            version,
            about,
            keywords=["webrtc", "voice", "bot", "telephony", "pipecat", "rtvi"],
            engines={"node": ">=18"},
            bin={"edge-runner": "edge-runner.js", NAME: "edge-runner.js"},
            optionalDependencies={name: version for name in names},
        ),
        "README.md": (SOURCE / "README.md").read_bytes().replace(b"NAME", NAME.encode()),
        "edge-runner.js": (SOURCE / "edge-runner.js").read_bytes(),
    }
    return NAME, files


def write(name, version, files, out):
    files |= {licence: (ROOT / licence).read_bytes() for licence in ("LICENSE-APACHE", "LICENSE-MIT")}
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, content in sorted(files.items()):
            if isinstance(content, dict):
                content = (json.dumps(content, indent=2) + "\n").encode()
            entry = tarfile.TarInfo(f"package/{path}")
            entry.mode = 0o755 if path.startswith("edge-runner") else 0o644
            entry.mtime, entry.size = int(os.environ["SOURCE_DATE_EPOCH"]), len(content)
            tar.addfile(entry, io.BytesIO(content))
    # GNU gzip, since the bytes of Python's depend on the library that it was built with.
    pressed = subprocess.run(["gzip", "-9n"], input=plain.getvalue(), stdout=subprocess.PIPE, check=True).stdout
    assert gzip.decompress(pressed) == plain.getvalue()
    path = out / f"{name}-{version}.tgz"
    path.write_bytes(pressed)
    return path


def main():
    asked = elf.arguments(__doc__)
    try:
        programs = [program for program in elf.pairs(asked.programs) if program.target.split("-")[0] in PROCESSORS]
    except ValueError as error:
        sys.exit(f"npm.py: {error}")
    notices = asked.notices.read_bytes()
    packages = [program_package(program, asked.version, notices) for program in programs]
    packages.append(starter_package(asked.version, [name for name, _ in packages]))
    for name, files in packages:
        print(write(name, asked.version, files, asked.out))


if __name__ == "__main__":
    main()
