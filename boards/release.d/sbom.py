#!/usr/bin/env python3
"""Prints the list of components of cargo-cyclonedx without the folders of this machine: our own crates are named as those of a
registry are.

    boards/release.d/sbom.py FILE.cdx.json
"""

import json
import re
import sys
from pathlib import Path


def main():
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    text = re.sub(r'path\+file://[^"#]*#', "pkg:cargo/", text)
    text = re.sub(r'\?download_url=file://[^"#]*', "", text)
    if "file://" in text:
        sys.exit(f"{sys.argv[1]} names a folder of this machine")
    json.dump(json.loads(text), sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
