#!/usr/bin/env python3
"""Tests that a night on GitHub runs what `tests/check.sh all` runs beyond the gate.

    tests/check/test_workflows.py

In: tests/check.sh, tests/peers/night.txt, .github/workflows/nightly.yml and the table of tests/README.md, read as text.
"""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECK = (ROOT / "tests/check.sh").read_text()
NIGHTLY = (ROOT / ".github/workflows/nightly.yml").read_text()
# Stages of the gate by the folders of tests/peers that tests/peers/night.txt names, and those that the gate's variables shorten.
OF_FOLDER = {"browser": {"browser", "firefox"}, "moq": {"moq"}, "room": {"rooms", "livekit", "jobs"}, "assistants": {"assistants"}}
SHORTENED = {"features", "chaos", "calls-chaos"}
# A job of its own, without a container.
OWN_JOB = {"advisories"}


def body(function):
    """The lines of a function of tests/check.sh."""
    return re.search(rf"^{function}\(\) {{\n(.*?)^}}", CHECK, re.MULTILINE | re.DOTALL)[1]


def lanes(function):
    """The stages that a function runs in lanes."""
    return set(" ".join(re.findall(r"'([^']*)'", " ".join(re.findall(r"^ *together (.*)$", body(function), re.MULTILINE)))).split())


def known():
    """The stages that tests/check.sh takes."""
    return {name for names in re.findall(r"^    ([a-z][a-z0-9 |-]*)\) ", body("stage"), re.MULTILINE) for name in names.split(" | ")}


def matrix():
    """The stages of the matrix, in order, and those that it includes with figures of their own."""
    block = re.search(r"^        stage:\n(.*?)^        minutes:.*?^        include:\n(.*?)^    name:", NIGHTLY, re.MULTILINE | re.DOTALL)
    return re.findall(r"^          - ([a-z0-9-]+)$", block[1], re.MULTILINE), re.findall(r"\{ stage: ([a-z0-9-]+),", block[2])


class Night(unittest.TestCase):
    def test_a_night_on_github_runs_each_stage_of_a_night(self):
        stages, included = matrix()
        self.assertEqual(len(stages), len(set(stages)), "a stage twice")
        self.assertEqual(set(stages) & set(included), set(), "an inclusion would change the figures of the matrix")
        wanted = lanes("all") | SHORTENED | set().union(*OF_FOLDER.values())
        self.assertEqual({*stages, *included} | OWN_JOB, wanted)
        for job in OWN_JOB:
            self.assertRegex(NIGHTLY, rf"(?m)^  {job}:$")

    def test_the_stages_whose_checks_wait_for_a_night_are_known(self):
        lines = (ROOT / "tests/peers/night.txt").read_text().splitlines()
        self.assertEqual({line.split()[0] for line in lines if line and not line.startswith("#")}, OF_FOLDER.keys())
        self.assertEqual((SHORTENED | set().union(*OF_FOLDER.values())) - lanes("gate_lanes"), set())
        self.assertIn("export CHECKS_GATE=1 ROUNDS=${ROUNDS:-30} KILLS=${KILLS:-20}", body("gate"))

    def test_each_stage_of_a_lane_or_a_night_is_one(self):
        stages, included = matrix()
        self.assertEqual((lanes("all") | lanes("gate_lanes") | lanes("people") | {*stages, *included}) - known(), set())

    def test_the_table_of_nights_has_each_stage(self):
        table = (ROOT / "tests/README.md").read_text().split("## When the stages of a night last ran green")[1].split("\n## ")[0]
        self.assertEqual(set(re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE)), lanes("all"))


if __name__ == "__main__":
    unittest.main()
