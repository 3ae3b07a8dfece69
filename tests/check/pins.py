#!/usr/bin/env python3
"""Holds the pins of the Python requirement files of tests/ to hashes.

    tests/check/pins.py [FILE...]            checks the files, without a network
    tests/check/pins.py --write [FILE...]    writes the hashes after a pin was changed; needs uv: python3 -m pip install uv

Each pin is exact and lists the hashes of all files of that version, those for other processors, systems and versions of
Python among them, so that pip refuses a file that was changed after this list was made. pip installs several of the files
in one call, so a package that two files pin at one version has the same hashes in both.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^ ;]+)")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
# uv refuses a version that this Python cannot run. The hashes are of all files of a version all the same.
PYTHON = "3.11"


def requirement_files():
    skipped = {"node_modules", "target"}
    found = (path.relative_to(ROOT) for path in ROOT.glob("tests/**/requirements*.txt"))
    return sorted(path for path in found if not skipped.intersection(path.parts))


def logical_lines(text):
    """The lines of a file, with those joined that end in a backslash."""
    return text.replace("\\\n", " ").splitlines()


def normalized(name):
    """The name as the index knows it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path):
    """Yields the name, the version and the set of hashes of each pin, and None for a line that is none."""
    for line in logical_lines(path.read_text()):
        line = line.split("#")[0].strip()
        if not line:
            continue
        words = line.split()
        pin = PIN.fullmatch(words[0])
        hashes = [HASH.fullmatch(word) for word in words[1:]]
        if pin is None or not all(hashes):
            yield line, None, set()
            continue
        yield pin[1], pin[2], {found[1] for found in hashes}


def faults(files):
    seen = {}
    for path in files:
        for name, version, hashes in pins(path):
            if version is None:
                yield f"{path}: neither a pin nor a hash: {name}"
                continue
            if not hashes:
                yield f"{path}: {name}=={version} has no hash"
            first = seen.setdefault((normalized(name), version), (path, hashes))
            if first[1] != hashes:
                yield f"{path}: {name}=={version} has other hashes than in {first[0]}"


def look_up(pinned):
    """Asks the index for the hashes of all files of each of NAME==VERSION."""
    found = {}
    # Two versions of one package cannot be asked for at once.
    rounds = []
    for name, version in sorted(pinned):
        free = next((asked for asked in rounds if name not in asked), None)
        if free is None:
            rounds.append(free := {})
        free[name] = version
    for asked in rounds:
        command = ["uv", "pip", "compile", "--quiet", "--no-config", "--no-deps", "--universal", "--generate-hashes"]
        command += ["--no-header", "--no-annotate", "--python-version", PYTHON, "-"]
        lines = "".join(f"{name}=={version}\n" for name, version in asked.items())
        answer = subprocess.run(command, input=lines, check=True, stdout=subprocess.PIPE, text=True).stdout
        for line in logical_lines(answer):
            pin = PIN.match(line)
            if pin:
                found[normalized(pin[1]), pin[2]] = sorted(HASH.findall(line))
    return found


def write(files):
    for line in (fault for fault in faults(files) if "neither" in fault):
        sys.exit(line)
    found = look_up({(normalized(name), version) for path in files for name, version, _ in pins(path)})
    for path in files:
        lines = []
        for line in logical_lines(path.read_text()):
            pin = PIN.match(line)
            hashes = [f" \\\n    --hash={known}" for known in found[normalized(pin[1]), pin[2]]] if pin else []
            lines.append((pin[0] if pin else line) + "".join(hashes) + "\n")
        path.write_text("".join(lines))


def main():
    words = sys.argv[1:]
    is_write = words[:1] == ["--write"]
    files = [Path(word).absolute() for word in words[is_write:]]
    os.chdir(ROOT)
    files = files or requirement_files()
    if is_write:
        write(files)
    found = list(faults(files))
    if found:
        sys.exit("\n".join(found))
    count = sum(1 for path in files for _ in pins(path))
    print(f"{count} pins in {len(files)} files have hashes")


if __name__ == "__main__":
    main()
