"""Tests tests/peers/pipecat-bots/preloaded.py: a program in an interpreter that waits is a process of its own. Without Pipecat, whose
modules are then missing: `python3 tests/check/test_preloaded.py`. Linux alone."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "peers" / "pipecat-bots"))
sys.dont_write_bytecode = True

from preloaded import Interpreter  # noqa: E402


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kept = contextlib.ExitStack()
        cls.addClassCleanup(kept.close)
        cls.folder = pathlib.Path(kept.enter_context(tempfile.TemporaryDirectory()))
        cls.python = kept.enter_context(Interpreter(cls.folder, {}))

    def run_program(self, *arguments, **variables):
        done = subprocess.run([self.python, *arguments], capture_output=True, text=True, cwd=self.folder, timeout=60,
                              input="from the input", env={**os.environ, **variables})
        return done.returncode, done.stdout, done.stderr

    def test_a_program_has_the_streams_the_variables_and_the_folder_of_its_caller(self):
        code = "import os, sys\nprint(sys.argv, os.environ['WORD'], os.getcwd(), input())\nprint('error', file=sys.stderr)\nsys.exit(7)"
        said = f"['-c', 'a', '--b'] spoken {self.folder.resolve()} from the input\n"
        self.assertEqual(self.run_program("-c", code, "a", "--b", WORD="spoken"), (7, said, "error\n"))

    def test_a_file_is_the_main_module_with_the_modules_beside_it(self):
        (self.folder / "beside.py").write_text("WORD = 'beside'\n")
        (self.folder / "file.py").write_text("import sys, beside\nbot = 1\nprint(__name__, sys.argv[1:], beside.WORD, sys.modules['__main__'].bot)\n")
        self.assertEqual(self.run_program("file.py", "a"), (0, "__main__ ['a'] beside 1\n", ""))

    def test_a_program_that_fails_says_why_and_leaves_the_next_one_alone(self):
        code, _, log = self.run_program("-c", "1 / 0")
        self.assertEqual((code, log.splitlines()[-1]), (1, "ZeroDivisionError: division by zero"))
        self.assertEqual(self.run_program("-c", "import os, signal\nos.kill(os.getpid(), signal.SIGABRT)")[0], 128 + signal.SIGABRT)
        self.assertEqual(self.run_program("-c", "print('next')"), (0, "next\n", ""))

    def test_a_program_ends_with_its_caller(self):
        caller = subprocess.Popen([self.python, "-c", "import time\nprint('ready', flush=True)\ntime.sleep(600)"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        with caller:
            self.assertEqual(caller.stdout.readline(), b"ready\n")
            caller.kill()
            # The end of its output, which the program alone still has.
            self.assertEqual(caller.stdout.read(), b"")


if __name__ == "__main__":
    unittest.main()
