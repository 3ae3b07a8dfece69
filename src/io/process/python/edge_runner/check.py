"""The report of `edge-runner doctor bot.py`: one line of JSON on stdout.

In: the file of a bot. Its imports are run; what is under `if __name__ == "__main__"` is not.
"""

import ast
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import signal
import sys
import time

LIMIT_S = 60


def check(name):
    """Reports about a file, and returns the exit code. Ends the process after `LIMIT_S`."""
    signal.alarm(LIMIT_S)
    from .run import Runner, load
    from .hooks import Hooks

    report, file = sys.stdout, pathlib.Path(name)
    # What the file prints is no report.
    sys.stdout = sys.stderr
    sys.argv = [name]
    sys.path.insert(0, str(file.resolve().parent))
    Hooks(Runner(file, {})).install()
    found = {"python": platform.python_version(), "pipecat": version("pipecat-ai"), "missing": [], "import_ms": None, "error": None}
    try:
        found["missing"] = missing_modules(file.read_bytes())
        if not found["missing"]:
            began = time.monotonic()
            load(file, "edge_runner_checked_bot")
            found["import_ms"] = round(1000 * (time.monotonic() - began))
    except (Exception, SystemExit) as error:
        found["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found), file=report, flush=True)
    # Threads of what was imported do not hold the report up.
    os._exit(0)


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def missing_modules(source):
    """Returns the modules that a file imports at its top and that cannot be found."""
    names = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names.append(statement.module)
    return sorted({name for name in names if not is_found(name)})


def is_found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
