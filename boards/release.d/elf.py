"""What a package for Python or Node has to know of a program: the processor it is for, and the C library it needs.

In: the file of a program and its target, or the arguments of the script. Out: an `Elf`, or a `ValueError` that says what does not
fit. Of the ELF header only the class, the machine and the program headers are read (System V ABI, chapter 4); versions of glibc
are those named in the file.
"""

import argparse
import re
import struct
from collections import namedtuple
from pathlib import Path

Elf = namedtuple("Elf", "target content glibc")
"""`glibc` is the second number of the least version that the program needs, as 34 for 2.34, or None if it is static."""

# Class and machine of ELF, by the first word of a target.
MACHINES = {"x86_64": (64, 62), "aarch64": (64, 183), "armv7": (32, 40), "arm": (32, 40)}
PT_INTERP = 3


def read(target, path):
    content = path.read_bytes()
    if content[:4] != b"\x7fELF" or len(content) < 64:
        raise ValueError(f"{path} is no program of Linux")
    wide = content[4] == 2
    found = (64 if wide else 32, struct.unpack_from("<H", content, 18)[0])
    if found != MACHINES.get(target.split("-")[0]):
        raise ValueError(f"{path} is for another processor than {target}: {found[0]} bits, machine {found[1]}")
    start = struct.unpack_from("<Q" if wide else "<I", content, 32 if wide else 28)[0]
    size, count = struct.unpack_from("<HH", content, 54 if wide else 42)
    kinds = {struct.unpack_from("<I", content, start + size * each)[0] for each in range(count)}
    is_dynamic = PT_INTERP in kinds
    if is_dynamic == ("musl" in target):
        raise ValueError(f"{path} is {'dynamic' if is_dynamic else 'static'}, which no program for {target} is")
    versions = [int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", content)]
    # Packed relocations, which glibc reads since 2.36 (`src/build/linker.rs`).
    if b"\0GLIBC_ABI_DT_RELR\0" in content:
        versions.append(36)
    # The oldest that wheels can name, for a program that needs no newer symbol.
    glibc = max(versions, default=17) if is_dynamic else None
    return Elf(target, content, glibc)


def arguments(about):
    """Reads the arguments that the scripts for packages have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--notices", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("programs", nargs="+", metavar="TARGET=BINARY")
    return parser.parse_args()


def pairs(words):
    """Returns the programs of arguments TARGET=BINARY."""
    found = []
    for word in words:
        target, _, path = word.partition("=")
        if not path:
            raise ValueError(f"`{word}` is not TARGET=BINARY")
        found.append(read(target, Path(path)))
    return found
