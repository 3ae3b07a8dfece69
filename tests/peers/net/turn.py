"""coturn in a network namespace, with one user."""

import pathlib
import subprocess
import tempfile
import time

PORT = 3478
USER, SECRET = "caller", "only-for-checks"


class Turn:
    """A server at `address` of `host`; it can be killed and started again."""

    def __init__(self, host, address):
        self.host, self.address = host, address
        self.folder = tempfile.TemporaryDirectory()
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [*self.host.inside, "turnserver", "-n", "--no-cli", "--no-tls", "--no-dtls", "--lt-cred-mech",
             "--listening-ip", self.address, "--relay-ip", self.address, "--listening-port", str(PORT),
             "--min-port", "49160", "--max-port", "49260", "--realm", "check", "--user", f"{USER}:{SECRET}",
             "--log-file", "stdout", "--pidfile", f"{self.folder.name}/pid", "--userdb", f"{self.folder.name}/db"],
            stdin=subprocess.DEVNULL, stdout=open(f"{self.folder.name}/log", "a"), stderr=subprocess.STDOUT,
            cwd=self.folder.name)
        probe = f"import socket; socket.create_connection(('{self.address}', {PORT}), 1).close()"
        for _ in range(100):
            if subprocess.run([*self.host.inside, "python3", "-c", probe], stderr=subprocess.DEVNULL).returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError("coturn does not listen:\n" + self.log_text())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def log_text(self):
        return pathlib.Path(self.folder.name, "log").read_text(errors="replace")

    def server(self, scheme="turn", query="", secret=SECRET):
        """One entry of a list of ICE servers."""
        url = f"{scheme}:{self.address}:{PORT}{query}"
        return {"urls": url} if scheme == "stun" else {"urls": url, "username": USER, "credential": secret}

    def close(self):
        self.kill()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
