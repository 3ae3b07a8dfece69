#!/usr/bin/env python3
"""Prints selections of cargo features, one per line, such that for every two features one selection has the first without the second.

Code of a feature that uses what another one brings fails to compile in one of them. Each feature alone would show that too, with a
build for each: of n features, these are about 2 log2(n). `tests/check.sh each-feature` compiles each alone.
"""

import itertools
import math
import re
import sys
from pathlib import Path

# Names of other selections; and what every check of a reduced build compiles by itself.
NAMES = {"default", "full", "runner", "browser", "telephone", "smallest", "bot", "livekit", "daily", "whatsapp"}
ELSEWHERE = {"webrtc", "telephony", "libopus"}


def features(manifest):
    """The features of a manifest that stand for code of their own."""
    table = re.search(r"^\[features\]$(.*?)^\[", manifest, re.MULTILINE | re.DOTALL)[1]
    return [name for name in re.findall(r"^([a-z]\w*) = ", table, re.MULTILINE) if name not in NAMES | ELSEWHERE]


def selections(names):
    """Each name is in half of the selections, and no two names are in the same ones, so that neither contains the other's."""
    count = next(count for count in itertools.count(1) if math.comb(count, count // 2) >= len(names))
    places = itertools.combinations(range(count), count // 2)
    chosen = [[] for _ in range(count)]
    for name, among in zip(names, places):
        for place in among:
            chosen[place].append(name)
    return chosen


if __name__ == "__main__":
    found = features((Path(__file__).resolve().parents[2] / "Cargo.toml").read_text())
    for one, other in itertools.permutations(found, 2):
        if not any(one in each and other not in each for each in selections(found)):
            sys.exit(f"no selection has {one} without {other}")
    print()
    for each in selections(found):
        print(",".join(each))
