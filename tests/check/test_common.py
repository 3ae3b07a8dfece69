#!/usr/bin/env python3
"""Tests of what tests/check.sh tells: how results are counted, what a missing tool does, and when all have passed.

    tests/check/test_common.py
"""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Lanes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "tests/check").mkdir(parents=True)
        (self.folder / "tests/check/common.sh").write_text((HERE / "common.sh").read_text())

    def run_lanes(self, script, stages, ci=False):
        """Runs `script` with the functions of common.sh and with a check.sh of these stages; returns code and output."""
        cases = "".join(f"{name}) {code} ;;\n" for name, code in stages.items())
        check = self.folder / "tests/check.sh"
        check.write_text(f"#!/usr/bin/env bash\nset -eu\n. tests/check/common.sh\nreal_time=\ncase $1 in\n{cases}esac\n")
        check.chmod(0o755)
        variables = {key: value for key, value in os.environ.items() if key != "CI"}
        done = subprocess.run(
            ["bash", "-euc", f". tests/check/common.sh\nreal_time=\nbegin_lanes\n{script}\nend_lanes"], cwd=self.folder,
            capture_output=True, text=True, env={**variables, **({"CI": "true"} if ci else {})})
        return done.returncode, done.stdout + done.stderr

    def last(self, output):
        return output.strip().splitlines()[-1]

    def test_results_of_every_kind_of_runner_are_counted(self):
        code, output = self.run_lanes("together 'cargo node' 'python peers plain'", {
            "cargo": "echo 'test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured'; echo 'test result: ok. 3 passed; 0 failed;'",
            "node": "printf '# tests 4\\n# pass 4\\n# fail 0\\n'",
            "python": "echo 'Ran 7 tests in 0.1s'",
            "peers": "printf 'PASS tone: heard\\nPASS loss: heard\\n'",
            "plain": "true",
        })
        self.assertEqual((code, self.last(output)), (0, "29 passed, 0 failed, 0 skipped"), output)

    def test_the_processor_time_of_each_stage_of_a_lane_is_its_own(self):
        burn = "python3 -c 'import time\nwhile time.process_time() < 0.5: pass'"
        code, output = self.run_lanes("together 'busy idle'", {"busy": burn, "idle": "sleep 0.1"})
        self.assertEqual(code, 0, output)
        used = {name: float(seconds) for name, seconds in re.findall(r"^(\w+) .*; own cpu ([0-9.]+) s$", output, re.MULTILINE)}
        self.assertGreater(used["busy"], 0.4, output)
        self.assertLess(used["idle"], used["busy"] / 2, output)

    def test_a_failed_stage_fails_the_whole_and_the_others_run(self):
        code, output = self.run_lanes("together 'first second'", {
            "first": "printf 'PASS a: x\\nFAIL b: no sound\\n'; exit 1", "second": "echo PASS c: y",
        })
        self.assertEqual((code, self.last(output)), (1, "2 passed, 1 failed, 0 skipped"), output)
        self.assertIn("not passed: first", output)
        self.assertIn("FAIL b: no sound", output)

    def test_a_stage_that_ends_by_an_error_without_a_count_is_one_failure(self):
        code, output = self.run_lanes("together 'broken'", {"broken": "exit 7"})
        self.assertEqual((code, self.last(output)), (1, "0 passed, 1 failed, 0 skipped"), output)

    def test_a_count_of_passes_does_not_hide_an_exit_code(self):
        code, output = self.run_lanes("together 'broken'", {"broken": "echo PASS a: x; exit 7"})
        self.assertEqual((code, self.last(output)), (1, "1 passed, 1 failed, 0 skipped"), output)

    def test_a_missing_tool_is_a_skip_that_names_its_command(self):
        stages = {"one": "needs 'apt-get install such-a-tool' such-a-tool || exit 0"}
        code, output = self.run_lanes("together 'one'", stages)
        self.assertEqual((code, self.last(output)), (0, "0 passed, 0 failed, 1 skipped"), output)
        self.assertIn("SKIPPED: such-a-tool is not installed: apt-get install such-a-tool", output)

    def test_a_missing_tool_is_a_failure_in_the_gate(self):
        stages = {"one": "needs 'apt-get install such-a-tool' such-a-tool || exit 0"}
        code, output = self.run_lanes("together 'one'", stages, ci=True)
        self.assertEqual(code, 1, output)

    def test_a_killed_lane_is_a_failure(self):
        code, output = self.run_lanes("together 'one two'", {"one": "kill -9 $PPID", "two": "true"})
        self.assertEqual(code, 1, output)
        self.assertIn("not passed: one two", output)

    BUSY = "FAIL b: not judged: machine too busy to judge: others took up to 1.9 of a core for 2 s"

    def test_what_was_not_judged_is_judged_with_nothing_beside_it(self):
        stages = {"calls": f"if [ -n \"${{CHECKS_ONLY:-}}\" ]; then echo \"PASS $CHECKS_ONLY: x\"; else echo PASS a: x; echo '{self.BUSY}'; exit 3; fi"}
        code, output = self.run_lanes("together 'calls'\njudge_alone", stages)
        self.assertEqual((code, self.last(output)), (0, "2 passed, 0 failed, 0 skipped"), output)
        self.assertIn("calls: 1 checks judged with nothing beside them", output)

    def test_what_stays_without_a_verdict_fails(self):
        code, output = self.run_lanes("together 'calls'\njudge_alone", {"calls": f"echo PASS a: x; echo '{self.BUSY}'; exit 3"})
        self.assertEqual(code, 1, output)
        self.assertIn("machine too busy to judge", output)

    def test_a_verdict_is_final(self):
        stages = {"calls": f"[ -z \"${{CHECKS_ONLY:-}}\" ] || exit 0; echo FAIL a: no sound; echo '{self.BUSY}'; exit 1"}
        code, output = self.run_lanes("together 'calls'\njudge_alone", stages)
        self.assertEqual((code, self.last(output)), (1, "0 passed, 2 failed, 0 skipped"), output)

    def test_a_stage_that_runs_none_of_the_checks_again_fails(self):
        stages = {"calls": f"[ -z \"${{CHECKS_ONLY:-}}\" ] || {{ echo PASS control: x; exit 0; }}; echo '{self.BUSY}'; exit 3"}
        code, output = self.run_lanes("together 'calls'\njudge_alone", stages)
        self.assertEqual(code, 1, output)

    def test_a_test_in_rust_is_judged_by_the_measure_of_its_stage(self):
        again = "if [ -n \"${CHECKS_ONLY:-}\" ]; then echo 'test result: ok. 1 passed; 0 failed;'; exit 0; fi\n"
        for over, expected in (("2.0", (0, "4 passed, 0 failed, 0 skipped")), ("0.0", (1, "3 passed, 1 failed, 0 skipped"))):
            stages = {"calls": f"{again}echo '{{\"seconds_over\": {over}}}' >target/check/calls.busy\n"
                               "echo '---- tone::heard stdout ----'; echo 'test result: FAILED. 3 passed; 1 failed;'; exit 1"}
            code, output = self.run_lanes("together 'calls'\njudge_alone", stages)
            self.assertEqual((code, self.last(output)), expected, output)

    def test_processes_share_the_checks_of_a_stage(self):
        program = self.folder / "program.py"
        program.write_text(f"import sys, time\nsys.path.append({str(HERE.parent / 'peers')!r})\nfrom checks import left, show\n"
                           "for name in left('abcdef'):\n    time.sleep(0.01)\n    show(f'PASS {name}: x')\n")
        stages = {"calls": f"shared python3 {program}; exit ${{verdict:-0}}"}
        code, output = self.run_lanes("together 'calls'", stages)
        self.assertEqual((code, self.last(output)), (0, "6 passed, 0 failed, 0 skipped"), output)

    def test_the_verdict_of_processes_side_by_side_is_that_of_all(self):
        part = "{ local one=(bash -c 'echo PASS a: x; exit %d') other=(bash -c 'echo PASS b: y; exit %d'); beside one other; }"
        for codes, expected in (((0, 0), 0), ((3, 0), 3), ((0, 3), 3), ((1, 3), 1), ((3, 1), 1), ((7, 0), 1)):
            stages = {"calls": f"both() {part % codes}; both; exit ${{verdict:-0}}"}
            self.run_lanes("together 'calls'", stages)
            log = self.folder / "target/check"
            found = 0 if (log / "calls.passed").exists() else 3 if (log / "calls.open").exists() else 1
            self.assertEqual(found, expected, codes)

    def test_what_is_judged_again_has_no_process_beside_it(self):
        stages = {"calls": "both() { local one=(bash -c 'echo PASS a: ${CHECKS_SHARED:-x}'); CHECKS_ONLY=a shared \"${one[@]}\"; }; both"}
        code, output = self.run_lanes("together 'calls'", stages)
        self.assertEqual((code, self.last(output)), (0, "1 passed, 0 failed, 0 skipped"), output)
        self.assertIn("PASS a: x", (self.folder / "target/check/calls.log").read_text())


if __name__ == "__main__":
    unittest.main()
