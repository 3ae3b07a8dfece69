"""Three replicas behind a real HAProxy with the configuration of docs/haproxy.cfg, everything on free ports of loopback."""

import asyncio
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from checks import free_ports
from runner import ROOT, Runner

NAMES = "abc"
# Longer than any call that is not told to stay.
DRAIN_S = 60
OPTIONS = ["--bot", "echo", "--host", "127.0.0.1", "--ws-auth", "token", "--drain", str(DRAIN_S), "--max-sessions", "96"]


class Cluster:
    """Speaks HTTP with the balancer as `Runner` does with a runner."""

    headers = {}
    call, fetch = Runner.call, Runner.fetch

    def __init__(self, binary, options=()):
        self.binary, self.options = binary, [*OPTIONS, *options]
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.key = self.folder / "cluster.key"
        self.key.touch(0o600)
        self.key.write_text(os.urandom(32).hex() + "\n")
        port, *ports = free_ports(1 + len(NAMES))
        self.url = f"http://127.0.0.1:{port}"
        self.ports = dict(zip(NAMES, ports))
        self.replicas, self.logs = {}, []
        for name in NAMES:
            self.start(name)
        addresses = {f"REPLICA_{name.upper()}": f"127.0.0.1:{self.ports[name]}" for name in NAMES}
        self.log = open(self.folder / "haproxy.log", "a+")
        self.balancer = subprocess.Popen(
            [shutil.which("haproxy") or "/usr/sbin/haproxy", "-db", "-f", ROOT / "docs" / "haproxy.cfg"],
            env={**os.environ, **addresses, "BALANCER_BIND": f"127.0.0.1:{port}"},
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def start(self, name):
        own = ["--cluster-key-file", str(self.key), "--replica-name", name]
        self.replicas[name] = Runner(self.binary, *self.options, *own, port=self.ports[name])

    async def ready(self, limit_s=20):
        """Waits until the balancer gives each replica its turn."""
        start, seen = time.monotonic(), set()
        while seen != set(NAMES):
            assert time.monotonic() - start < limit_s, f"the balancer reaches only {seen}: {self.balancer_log()}"
            try:
                status, said = await self.fetch("GET", "/status")
                seen |= {said["replica"]} if status == 200 else set()
            except OSError:
                # It is not listening yet.
                await asyncio.sleep(0.05)

    async def sessions(self, name):
        return await self.replicas[name].sessions()

    async def counts(self):
        return {name: await self.sessions(name) for name in self.replicas}

    async def restart(self, name, limit_s=DRAIN_S + 10):
        """SIGTERM, the end of the last call, and a new process. Returns the seconds of the drain."""
        old, start = self.replicas.pop(name), time.monotonic()
        old.process.terminate()
        code = await asyncio.to_thread(old.process.wait, limit_s)
        took = time.monotonic() - start
        log = self.keep(name, old)
        assert code == 0 and "all sessions have ended" in log, f"{name}: code {code}\n{log}"
        self.start(name)
        await self.ready()
        return took

    def kill(self, name):
        old = self.replicas.pop(name)
        old.process.send_signal(signal.SIGKILL)
        old.process.wait()
        self.keep(name, old)

    def keep(self, name, old):
        log = old.log_text()
        self.logs.append(f"--- replica {name}\n{log}")
        old.stop()
        return log

    def balancer_log(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def log_text(self):
        live = [f"--- replica {name}\n{replica.log_text()}" for name, replica in self.replicas.items()]
        return "\n".join([*self.logs, *live, "--- haproxy", self.balancer_log()])

    def stop(self):
        self.balancer.kill()
        self.balancer.wait()
        for replica in self.replicas.values():
            replica.stop()
        self.log.close()
        shutil.rmtree(self.folder)
