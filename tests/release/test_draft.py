#!/usr/bin/env python3
"""Tests boards/release.d/draft.sh in a repository of its own, with a stand-in for `gh` that writes down what it is asked.

    tests/release/test_draft.py
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "boards/release.d/draft.sh"
VERSION = "9.8.7"
CHANGELOG = f"""# Changelog

## [Unreleased]

- Not yet.

## [{VERSION}] - 2026-11-28

### Added

- A thing, see [it](docs/it.md).

## [9.8.6] - 2026-10-01

- Old.

[Unreleased]: https://example.org/compare
[{VERSION}]: https://example.org/tag
"""
NOTES = "\n### Added\n\n- A thing, see [it](docs/it.md)."
GH = '#!/bin/sh\nfor word in "$@"; do printf "%s\\n--\\n" "$word"; done >"$ASKED"\n'


class Draft(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "clone"
        self.files = Path(folder.name) / "files"
        self.asked = Path(folder.name) / "asked"
        self.environment = {
            **os.environ,
            "PATH": f"{folder.name}/bin:{os.environ['PATH']}",
            "ASKED": str(self.asked),
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        (self.root / "boards/release.d").mkdir(parents=True)
        shutil.copy(SCRIPT, self.root / "boards/release.d")
        (self.root / "CHANGELOG.md").write_text(CHANGELOG)
        gh = Path(folder.name) / "bin/gh"
        gh.parent.mkdir()
        gh.write_text(GH)
        gh.chmod(0o755)
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.commit()
        self.git("tag", f"v{VERSION}")
        self.files.mkdir()
        (self.files / "install.sh").write_text("a script\n")
        (self.files / "BUILDINFO").write_text(f"edge-runner {VERSION}\ncommit {self.git('rev-parse', 'HEAD')}\n")
        self.list()

    def git(self, *words):
        command = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *words]
        done = subprocess.run(command, cwd=self.root, env=self.environment, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def commit(self):
        self.git("commit", "--quiet", "--allow-empty", "--message", "a commit")

    def list(self):
        sums = self.files / "SHA256SUMS"
        listed = sorted(path for path in self.files.iterdir() if path != sums)
        sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in listed))

    def draft(self):
        done = subprocess.run(
            [self.root / "boards/release.d/draft.sh", self.files],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout

    def refused(self, reason):
        code, said = self.draft()
        self.assertEqual(code, 1, said)
        self.assertIn(reason, said)
        self.assertFalse(self.asked.exists())

    def test_a_draft_has_every_file_and_the_notes_of_the_version(self):
        self.assertEqual(self.draft(), (0, ""))
        words = self.asked.read_text().split("\n--\n")[:-1]
        names = [str(self.files / name) for name in ("BUILDINFO", "SHA256SUMS", "install.sh")]
        head = ["release", "create", f"v{VERSION}", "--draft", "--verify-tag", "--title", f"edge-runner {VERSION}"]
        self.assertEqual(words, [*head, "--notes", NOTES, *names])

    def test_files_of_another_commit_are_refused(self):
        self.commit()
        self.git("tag", "--force", f"v{VERSION}")
        self.refused("the tag v9.8.7 is of")

    def test_a_version_without_a_tag_is_refused(self):
        self.git("tag", "--delete", f"v{VERSION}")
        self.refused("there is no tag v9.8.7")

    def test_changed_missing_and_added_files_are_refused(self):
        (self.files / "install.sh").write_text("another script\n")
        self.refused("not those of SHA256SUMS")
        (self.files / "install.sh").unlink()
        self.refused("not those of SHA256SUMS")
        self.list()
        (self.files / "more").write_text("a file\n")
        self.refused("lists other files")

    def test_a_version_without_notes_is_refused(self):
        (self.root / "CHANGELOG.md").write_text(CHANGELOG.replace(f"## [{VERSION}]", "## [9.8.5]"))
        self.refused("says nothing of 9.8.7")


if __name__ == "__main__":
    unittest.main()
