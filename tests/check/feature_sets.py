#!/usr/bin/env python3
"""Prints selections of cargo features, one per line, such that for every two features one selection has the first without the second,
unless the first implies the second.

    feature_sets.py [--most N]         N of them at most, those that separate most pairs
    feature_sets.py --without NAME     instead, `full` without a feature, and without those that imply it

Code of a feature that uses what another one brings fails to compile in one of them. Each feature alone would show that too, with a
build for each: of n features, these are about 2 log2(n). `tests/check.sh each-feature` compiles each alone.
"""

import argparse
import itertools
import random
import re
import sys
from pathlib import Path

# Names of other selections; and what every check of a reduced build compiles by itself.
NAMES = {"default", "full", "runner", "browser", "telephone", "smallest", "bot", "livekit", "daily", "whatsapp"}
ELSEWHERE = {"webrtc", "telephony", "libopus"}
TRIES = 1000


def table(manifest):
    """The features of a manifest, each with those in its list."""
    text = re.search(r"^\[features\]$(.*?)^\[", manifest, re.MULTILINE | re.DOTALL)[1]
    return {name: re.findall(r'"(\w+)"', rest) for name, rest in re.findall(r"^([a-z]\w*) = \[([^]]*)\]", text, re.MULTILINE)}


def implied(lists, name):
    """A feature, and all that it brings."""
    return {name}.union(*(implied(lists, other) for other in lists.get(name, ())))


def features(lists):
    """The features that stand for code of their own, each with those of them that it implies."""
    found = [name for name in lists if name not in NAMES | ELSEWHERE]
    return {name: implied(lists, name) & set(found) - {name} for name in found}


def without(lists, name):
    """`full` without a feature."""
    if name not in lists:
        sys.exit(f"Cargo.toml has no feature {name}")
    return sorted(each for each in implied(lists, "full") & lists.keys() - NAMES if name not in implied(lists, each))


def has(selection, name, implies):
    """Whether a feature is on with this selection."""
    return name in selection or any(name in implies[each] for each in selection)


def together(chosen, implies):
    """The pairs of features that no selection separates."""
    return [
        (one, other)
        for one, other in itertools.permutations(implies, 2)
        if other not in implies[one] and not any(has(each, one, implies) and not has(each, other, implies) for each in chosen)
    ]


def selections(implies):
    """As few as a search finds. A feature is the set of selections that have it, as bits. Those of an implied feature contain those of
    the features that imply it, and no other set contains another one."""
    # Those that imply others come before these.
    order = sorted(implies, key=lambda name: (-len(implies[name]), name))
    for count in itertools.count(1):
        rng = random.Random(count)
        for _ in range(TRIES):
            sets = assign(order, implies, count, rng)
            if sets:
                return [[name for name in implies if sets[name] >> place & 1] for place in range(count)]


def assign(order, implies, count, rng):
    """One try: a set for each feature, or nothing."""
    sets = {}
    for name in order:
        least = 0
        for other in sets:
            if name in implies[other]:
                least |= sets[other]
        free = [
            bits
            for bits in range(1, 1 << count)
            if bits & least == least
            and all((bits & ~sets[other]) and (name in implies[other] or sets[other] & ~bits) for other in sets)
        ]
        if not free:
            return None
        # Small selections compile faster, and sets of a middle size leave most room for others.
        size = min(abs(bits.bit_count() - count // 2) for bits in free)
        sets[name] = rng.choice([bits for bits in free if abs(bits.bit_count() - count // 2) == size])
    return sets


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, metavar="N")
    parser.add_argument("--without", metavar="NAME")
    given = parser.parse_args()
    lists = table((Path(__file__).resolve().parents[2] / "Cargo.toml").read_text())
    if given.without:
        print(",".join(without(lists, given.without)))
        sys.exit()
    found = features(lists)
    chosen = selections(found)
    if pairs := together(chosen, found):
        sys.exit(f"no selection has {pairs[0][0]} without {pairs[0][1]}")
    if given.most:
        chosen = min(itertools.combinations(chosen, given.most), key=lambda some: len(together(some, found)))
    print()
    for each in chosen:
        print(",".join(each))
