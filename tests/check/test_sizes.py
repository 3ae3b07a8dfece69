#!/usr/bin/env python3
"""`cross/sizes --compare`: growth by more than 2 % fails and says what to do, and --write makes it the committed figure.

    tests/check/test_sizes.py
"""

import pathlib
import platform
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = "# a comment\nnative-{machine} full opus-pure 100000 9\narmv7 full opus-pure 50000 10\n"


class Sizes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "cross").mkdir()
        shutil.copy(ROOT / "cross" / "sizes", self.folder / "cross")
        self.file = self.folder / "cross" / "sizes.txt"
        self.before = SIZES.format(machine=platform.machine())
        self.file.write_text(self.before)

    def compare(self, size, *options, target="native", profile="full"):
        program = self.folder / "program"
        program.write_bytes(bytes(size))
        words = [self.folder / "cross" / "sizes", *options, "--compare", target, profile, "opus-pure", program]
        return subprocess.run(words, capture_output=True, text=True)

    def test_growth_by_two_percent_passes_and_more_fails(self):
        self.assertEqual(self.compare(102000).returncode, 0)
        grown = self.compare(102001)
        self.assertEqual(grown.returncode, 1)
        for words in ("102001 bytes", "has 100000", "--write", "UPDATE=1 cargo test"):
            self.assertIn(words, grown.stderr)
        self.assertEqual(self.file.read_text(), self.before)

    def test_what_was_won_is_said(self):
        self.assertEqual(self.compare(99000).stderr, "")
        smaller = self.compare(90000)
        self.assertEqual(smaller.returncode, 0)
        self.assertIn("--write keeps what was won", smaller.stderr)

    def test_written_figures_replace_those_of_their_line_alone(self):
        self.assertEqual(self.compare(200000, "--write").returncode, 0)
        self.assertEqual(self.file.read_text(), self.before.replace("100000", "200000"))
        self.assertEqual(self.compare(200000).returncode, 0)

    def test_a_build_without_a_line_is_not_judged_until_it_is_written(self):
        unknown = self.compare(1, target="riscv")
        self.assertEqual(unknown.returncode, 0)
        self.assertIn("nothing to compare with", unknown.stderr)
        self.assertEqual(self.compare(1, "--write", target="riscv").returncode, 0)
        self.assertEqual(self.file.read_text(), self.before + "riscv full opus-pure 1 -\n")


if __name__ == "__main__":
    unittest.main()
