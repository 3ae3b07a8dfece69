#!/usr/bin/env python3
"""Prints the licences of the libraries that are compiled into the program, as their texts demand of those who distribute it.

    boards/release.d/notices.py

In: Cargo.lock, and the sources of the libraries, which cargo has or fetches. Out: the names of the libraries with the text of
their licence, each text once. Where the licence is a choice, the text of MIT is taken. Fails for a library without a text,
unless a standard text serves.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

TEXTS = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def cargo(*words):
    return subprocess.run(["cargo", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def compiled_in():
    """Names and versions of what the program of any target is linked from; the standard library is not among them."""
    shown = cargo("tree", "--locked", "--package", "edge-runner", "--features", "libopus", "--edges", "normal", "--target", "all", "--prefix", "none", "--format", "{p}")
    return {tuple(line.split()[:2]) for line in shown.splitlines() if line}


def texts_of(folder):
    """The texts of a library. A choice between MIT and others is made for MIT."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and TEXTS.match(path.name)]
    mit = [path for path in files if "mit" in path.name.lower()]
    others = [path for path in files if not re.search("apache|unlicense|boost|zlib|bsd", path.name, re.IGNORECASE)]
    chosen = sorted({*mit, *[path for path in others if path not in mit]}) if mit else files
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in chosen]


def main():
    wanted = compiled_in()
    metadata = json.loads(cargo("metadata", "--locked", "--features", "libopus", "--format-version", "1"))
    names_by_text = {}
    without = []
    for package in metadata["packages"]:
        if (package["name"], f"v{package['version']}") not in wanted or package["source"] is None:
            continue
        name = f"{package['name']} {package['version']}"
        texts = texts_of(Path(package["manifest_path"]).parent)
        if not texts:
            without.append((name, package["license"], package["authors"]))
        for text in texts:
            names_by_text.setdefault(text, []).append(name)
    print("Libraries in this program, and their licences. The program itself is licensed under MIT or Apache-2.0.\n")
    print("The standard library of Rust: MIT OR Apache-2.0; the Rust project's contributors")
    print("musl, in static programs: MIT; Copyright (c) 2005-2020 Rich Felker, et al.")
    print("SQLite, in programs with the cloud service: in the public domain")
    for name, expression, authors in sorted(without):
        if not expression:
            sys.exit(f"{name} states no licence")
        print(f"{name}: {expression}, without a text of its own; {', '.join(authors) or 'its authors'}")
    for text, names in sorted(names_by_text.items(), key=lambda item: item[1]):
        print(f"\n{'=' * 80}\n{', '.join(sorted(names))}\n{'=' * 80}\n\n{text}")


if __name__ == "__main__":
    main()
