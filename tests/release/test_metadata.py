#!/usr/bin/env python3
"""Tests what Cargo.toml says of the crates that are published: that it is complete, agrees, and packs what a build needs.

    tests/release/test_metadata.py

In: cargo, which builds nothing here. `tests/check.sh release` builds the packages as the registry would.
"""

import json
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ["edge-runner-proto", "edge-runner-http", "edge-runner-cloud", "edge-runner"]
# The registry's slugs that are in use here.
CATEGORIES = {"network-programming", "multimedia::audio", "command-line-utilities"}
# The largest package; the registry allows 10 MiB, compressed.
PACKED_BYTES_MAX = 4_200_000


def cargo(*words):
    return subprocess.run(["cargo", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


class Metadata(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        found = json.loads(cargo("metadata", "--no-deps", "--offline", "--format-version", "1"))
        cls.packages = {package["name"]: package for package in found["packages"]}

    def test_the_crates_that_others_need_are_published(self):
        self.assertEqual({name for name, package in self.packages.items() if package["publish"] != []}, set(PUBLISHED))

    def test_every_crate_describes_itself(self):
        for name in PUBLISHED:
            package = self.packages[name]
            with self.subTest(crate=name):
                self.assertGreater(len(package["description"]), 30)
                self.assertEqual(package["license"], "MIT OR Apache-2.0")
                self.assertEqual(package["repository"], "https://github.com/edge-runner/edge-runner")
                self.assertEqual(package["documentation"], f"https://docs.rs/{name}")
                self.assertTrue(package["rust_version"])
                # The rules of the registry.
                self.assertTrue(1 <= len(package["keywords"]) <= 5)
                for keyword in package["keywords"]:
                    self.assertRegex(keyword, r"^[a-z][a-z0-9_+-]{0,19}$")
                self.assertTrue(package["categories"] and set(package["categories"]) <= CATEGORIES)
                readme = Path(package["manifest_path"]).parent / package["readme"]
                self.assertIn(name, readme.read_text())

    def test_all_have_one_version_and_need_each_other_in_it(self):
        versions = {self.packages[name]["version"] for name in PUBLISHED}
        self.assertEqual(len(versions), 1, versions)
        needed = 0
        for name, package in self.packages.items():
            for dependency in package["dependencies"]:
                if dependency["name"] in PUBLISHED:
                    needed += 1
                    self.assertEqual(dependency["req"], f"^{versions.copy().pop()}", f"{name} needs {dependency['name']}")
        self.assertGreaterEqual(needed, 6)

    def test_lock_files_are_current(self):
        """Else the change of a version would change more than versions, and no build with --locked would work."""
        for lock in [ROOT / "Cargo.lock", *ROOT.glob("tests/*/Cargo.lock"), *ROOT.glob("tests/*/*/Cargo.lock")]:
            with self.subTest(lock=lock.relative_to(ROOT).as_posix()):
                cargo("update", "--workspace", "--locked", "--quiet", "--manifest-path", lock.with_name("Cargo.toml"))

    def test_pages_name_the_files_of_the_version(self):
        version = self.packages["edge-runner"]["version"]
        for page in ("README.md", "boards/README.md", "docs/operations.md"):
            named = set(re.findall(r"edge-runner[-_:](\d+\.\d+\.\d+)", (ROOT / page).read_text()))
            self.assertEqual(named, {version}, page)

    def test_the_changelog_has_the_version_once_it_is_released(self):
        version = self.packages["edge-runner"]["version"]
        headings = re.findall(r"(?m)^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text())
        self.assertEqual(headings[0], "Unreleased")
        released = headings[1:]
        self.assertTrue(not released or released[0] == version, f"{version} is not the newest of {released}")

    def test_packages_have_what_a_build_needs_and_no_more(self):
        for name in PUBLISHED:
            folder = Path(self.packages[name]["manifest_path"]).parent
            packed = cargo("package", "--list", "--allow-dirty", "--offline", "--quiet", "--package", name).split("\n")[:-1]
            with self.subTest(crate=name):
                for file in ("Cargo.toml", "Cargo.lock", "README.md", "LICENSE-MIT", "LICENSE-APACHE"):
                    self.assertIn(file, packed)
                strays = [file for file in packed if file.startswith(("tests/", "boards/", "docs/", "cross/", "target/"))]
                # The build script makes the reply of /openapi.json of it.
                self.assertEqual(strays, ["docs/openapi.yaml"] if name == "edge-runner" else [])
                self.assertEqual([file for file in packed if Path(file).name == "tests.rs" or "/tests/" in file], [])
                present = [folder / file for file in packed if (folder / file).exists()]
                self.assertLess(sum(path.stat().st_size for path in present), PACKED_BYTES_MAX)
                self.check_sources(name, folder, set(packed))

    def check_sources(self, name, folder, packed):
        """Every source of the crate is in its package, with the files that it includes."""
        start = folder / "src" if name == "edge-runner" else folder
        others = [Path(self.packages[other]["manifest_path"]).parent for other in PUBLISHED if other not in (name, "edge-runner")]
        sources = 0
        for source in start.rglob("*"):
            inside = source.relative_to(folder).as_posix()
            if not source.is_file() or any(other in source.parents for other in others) or inside.startswith("target/"):
                continue
            is_test = source.name == "tests.rs" or "/tests/" in f"/{inside}"
            if source.suffix == ".rs" and not is_test:
                self.assertIn(inside, packed)
                sources += 1
                self.check_included(source, folder, packed)
        self.assertGreater(sources, 10)

    def check_included(self, source, folder, packed):
        production = source.read_text().split("#[cfg(test)]")[0]
        for included in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', production):
            inside = (source.parent / included).resolve().relative_to(folder).as_posix()
            self.assertIn(inside, packed, f"{source} includes it")


if __name__ == "__main__":
    unittest.main()
