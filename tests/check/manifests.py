#!/usr/bin/env python3
"""Holds the manifests of docs/cloud and cross/ to the schemas of Kubernetes, by kubernetes-validate, without a cluster or a network.

    tests/check/manifests.py [FILE...]      exits with 1 when a manifest is invalid, or a misspelt member would pass

A manifest is valid for the oldest and the newest version that docs/cloud.md names, without members that these do not know. Then each
member of each manifest is misspelt once, which has to be noticed, since a schema that is missing or not strict accepts anything.
"""

import copy
import sys
from pathlib import Path

import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
OLDEST, NEWEST = "1.30", "1.37"
# Their members have names of their own.
FREE = {"annotations", "data", "hard", "labels", "limits", "matchLabels", "requests", "selector"}


def manifests(paths):
    """Each manifest with its file. A file without `apiVersion`, such as that of compose, has none."""
    for path in paths:
        for manifest in yaml.safe_load_all(path.read_text()):
            if "apiVersion" in manifest:
                yield path, manifest


def faults(manifest, version):
    """What is wrong with a manifest."""
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path)) or 'the object'}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return f"Kubernetes {version} has no such kind: {error}"
    except KeyError as error:
        return f"there is no {error}"
    return None


def members(value, path=()):
    """The path of each member that the schema names."""
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from members(item, (*path, at))
    if isinstance(value, dict):
        is_free = bool(path) and path[-1] in FREE and path[-2:] != ("spec", "selector")
        # That of a Service has labels, that of others `matchLabels`.
        is_free |= path[-2:] == ("spec", "selector") and "matchLabels" not in value
        for name, inner in value.items():
            if not is_free:
                yield (*path, name)
            yield from members(inner, (*path, name))


def misspelt(manifest, path):
    changed = copy.deepcopy(manifest)
    parent = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1] + "s"] = parent.pop(path[-1])
    return changed


def main(words):
    paths = [Path(word) for word in words] or sorted([*ROOT.glob("docs/cloud/*.yaml"), *ROOT.glob("cross/*.yaml")])
    found = list(manifests(paths))
    bad = [
        f"{path.name}: {manifest['kind']} {manifest['metadata']['name']}: {fault}"
        for path, manifest in found for version in (OLDEST, NEWEST) if (fault := faults(manifest, version))
    ]
    if bad or not found:
        sys.exit("\n".join(bad) or "there is no manifest")
    spelt = [(path, manifest, member) for path, manifest in found for member in members(manifest)]
    missed = [
        f"{path.name}: {manifest['kind']}: {'.'.join(map(str, member))} may be misspelt"
        for path, manifest, member in spelt if not faults(misspelt(manifest, member), NEWEST)
    ]
    if missed:
        sys.exit("\n".join(missed))
    files = len({path for path, _ in found})
    print(f"{len(found)} manifests in {files} files are valid for Kubernetes {OLDEST} and {NEWEST}; each of {len(spelt)} members is needed as it is spelt")


if __name__ == "__main__":
    main(sys.argv[1:])
