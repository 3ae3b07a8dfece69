#!/usr/bin/env python3
"""Schemathesis, a client that is generated from docs/openapi.yaml, asks a runner for everything there with right and wrong values.

No answer may be 500 or above, or differ from the description: status code, type, fields. Needs `target/schemathesis`
of `tests/check/python.sh`.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from checks import Report, chosen, options  # noqa: E402
from runner import ROOT, Runner  # noqa: E402

# GET /videoroom is left out: without credentials it is a 500 that names them. So is /calls/events, a response without an end.
CHECKS_OF_ANSWERS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
LIMIT_S = 300


def ask(runner, *arguments):
    """Runs Schemathesis to its end. Returns the line that counts its requests."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", str(ROOT / "docs" / "openapi.yaml"), "--url", runner.url,
        "--checks", CHECKS_OF_ANSWERS, "--phases", "coverage,fuzzing", "--max-examples", "20", "--seed", "1", "--no-color",
        "--generation-database", "none", "--exclude-path", "/videoroom", "--exclude-path", "/calls/events", *arguments,
    ]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "target" / "schemathesis"), str(HERE)]),
        "SCHEMATHESIS_HOOKS": "hooks",
    }
    # It keeps what it has found in its working directory.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout[-8000:]
    return next(line.strip() for line in done.stdout.splitlines() if " generated, " in line)


def open_runner(place):
    """without a key: every route answers as it is described"""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "file.txt").write_text("a file\n")
        return ask(place(Runner, "--bot", "echo", "--downloads-folder", folder, "--uploads-folder", folder + "/in"))


def with_key(place):
    """with a key: the same for the operator, and every refusal is as described"""
    with tempfile.TemporaryDirectory() as folder:
        runner = place(
            Runner, "--bot", "echo", "--api-key", "correct-horse-battery", "--metrics", "key", "--ws-auth", "token",
            "--uploads-folder", folder)
        refused = ask(runner)
        return f"{ask(runner, '--header', 'Authorization: Bearer correct-horse-battery')}; without it: {refused}"


def served(place):
    """the runner serves the description as JSON, each value as it is in the file"""
    sys.path.insert(0, str(ROOT / "target" / "schemathesis"))
    import yaml

    runner = place(Runner, "--bot", "echo")
    with urllib.request.urlopen(f"{runner.url}/openapi.json", timeout=LIMIT_S) as answer:
        found = json.load(answer)
    wanted = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text())
    assert found == wanted, "the JSON is not the YAML"
    return f"{len(found['paths'])} paths"


CHECKS = {"served": served, "open": open_runner, "with_key": with_key}


def main():
    given = options(__doc__, CHECKS).parse_args()
    with Report() as report:
        for name, check in chosen(CHECKS, given.checks).items():
            with report.check(check, name) as result:
                result.said = check(lambda kind, *arguments: result.keep(kind(given.binary.resolve(), *arguments)))
    sys.exit(report.code)


if __name__ == "__main__":
    main()
