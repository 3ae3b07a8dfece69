"""The parent's end of `peer.py`."""

import json
import pathlib
import subprocess
import sys

PEER = pathlib.Path(__file__).with_name("peer.py")


class Caller:
    """An aiortc caller in the namespace of `host`."""

    def __init__(self, host):
        self.process = subprocess.Popen(
            [*host.inside, sys.executable, PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, do, **order):
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        said = json.loads(line) if line else {"error": "the caller ended"}
        if "error" in said:
            raise AssertionError(f"{do}: {said['error']}")
        return said

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
