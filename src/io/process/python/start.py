# Read from stdin, behind a line with the sources: `python3 - bot.py ...`. The package is imported
# from memory, so the runner needs no folder to write to.
import importlib.abc
import importlib.util
import sys


class Sources(importlib.abc.InspectLoader, importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=self.is_package(name))

    def is_package(self, name):
        return name == "edge_runner"

    def get_source(self, name):
        return SOURCES[name]


sys.meta_path.insert(0, Sources())
# The working directory, which Python puts first for a program from stdin.
sys.path[:] = [folder for folder in sys.path if folder]
from edge_runner.run import run  # noqa: E402

sys.exit(run(sys.argv[1:]))
