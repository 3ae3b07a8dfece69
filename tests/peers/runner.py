"""Starts the runner for a check and speaks HTTP with it; nothing but the standard library."""

import asyncio
import json
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where cargo puts it when it is not told otherwise.
BINARY = ROOT / "target" / "debug" / "edge-runner"


class Runner:
    # What every request has beside its type.
    headers = {}

    def __init__(self, binary, *args, inside=(), port=0, variables=None, rtc=True):
        """`inside` is the beginning of a command that runs the rest of it elsewhere; `variables` are more than there are;
        without `rtc` it is a runner that has no WebRTC."""
        self.folder = tempfile.TemporaryDirectory()
        # The runner appends, for it shares the position that reading moves.
        self.log = open(pathlib.Path(self.folder.name) / "log", "a+")
        self.process = subprocess.Popen(
            [*inside, binary, "--port", str(port), *(["--rtc-port", str(port)] if rtc else []), *args],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, cwd=self.folder.name, text=True,
            env={**os.environ, **(variables or {})})
        for line in self.process.stdout:
            if "listening on http://" in line:
                self.url = line.split("listening on ")[1].strip().rstrip("/")
                return
        raise RuntimeError("the runner ended at start: " + self.log_text())

    def log_text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def call(self, method, path, body=None, limit_s=30):
        """Status and JSON of the reply."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=limit_s) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    async def fetch(self, method, path, body=None, limit_s=30):
        return await asyncio.to_thread(self.call, method, path, body, limit_s)

    async def sessions(self):
        return (await self.fetch("GET", "/status"))[1]["sessions"]

    async def wait_for_sessions(self, wanted, limit_s):
        """Seconds it took, or an error."""
        start = time.monotonic()
        while (live := await self.sessions()) != wanted:
            if time.monotonic() - start > limit_s:
                raise AssertionError(f"{live} sessions after {limit_s} s, {wanted} wanted")
            await asyncio.sleep(0.05)
        return time.monotonic() - start

    async def wait_for_log(self, words, limit_s=10):
        """Seconds until the log has these words, or an error. A client is told the end of a call before the log is."""
        start = time.monotonic()
        while words not in self.log_text():
            if time.monotonic() - start > limit_s:
                raise AssertionError(f"not in the log within {limit_s} s: {words}")
            await asyncio.sleep(0.01)
        return time.monotonic() - start
