"""Kills the cloud service repeatedly and checks each time that nothing is lost. Uses only the standard library.

    chaos.py --binary PATH [--rounds 100] [--seed N] [--folder DIR]

Each round starts the service on the same data directory, looks at what the last kill left, gives it uploads and builds, and
kills it with SIGKILL at a random moment of one phase: an upload on its way, an archive being unpacked, a command that runs, a
record being written. After each kill and start:
  - every build that was answered with 201 is there, as it was if it had ended;
  - `PRAGMA integrity_check` finds nothing in a copy of the database;
  - no part of an upload is left, and every archive gunzips; one that was answered with 204 is the one that was sent;
  - no process has the data directory in its environment. In some rounds the guard that sees to that is killed first; then
    the next start has to.
At last all builds end, kept images are there, and SIGTERM ends the service with 0. The same seed kills in the same phases and after
the same delays; what the service is doing then is up to the machine. Prints a line per ten rounds and a table; exits with 1, and keeps
the folder, when something was lost.
"""

import argparse
import collections
import gzip
import hashlib
import http.client
import io
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

KEY = "sk_chaos_0123456789abcdef"
PHASES = ("upload", "unpack", "build", "record")
FINAL = ("success", "failed", "timeout")
# Exceeds every step on a slow machine.
PATIENCE_S = 120
# Starts a child, takes some time, creates an image.
COMMAND = 'sleep 300 & echo "attempt $BUILD_ATTEMPT"; sleep "$(cat pause)"; echo image > "$BUILD_OUT/bot.img"'
BOUNDARY = "----chaos-0123456789abcdef"


class Lost(Exception):
    """A violated guarantee."""


def check(holds, what):
    if not holds:
        raise Lost(what)


def context(rng, entries, noise_bytes, pause_s):
    """Creates a unique gzipped tar archive."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            files = [("Dockerfile", b"FROM scratch\n"), ("pause", b"%.3f" % pause_s), ("noise", rng.randbytes(noise_bytes))]
            files += [(f"many/{n % 17}/{n}", b"%d" % n) for n in range(entries)]
            for name, content in files:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


class Service:
    """One run of the service."""

    def __init__(self, binary, data, log):
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("CLOUD_", "RUNNER_", "RUST_LOG"))}
        variables["CLOUD_PRIVATE_KEYS"] = KEY
        self.log = open(log, "a")
        self.process = subprocess.Popen(
            [binary, "cloud", "serve", "--port", "0", "--data-dir", str(data), "--min-free", "0", "--max-builds", "3",
             "--max-pending", "100000", "--build-grace", "1", "--", "sh", "-c", COMMAND],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True, env=variables)
        for line in self.process.stdout:
            if "listening on http://" in line:
                self.port = int(line.strip().rstrip("/").rsplit(":", 1)[1])
                break
        else:
            raise Lost(f"the service did not start, it ended with {self.process.wait()}; see {log}")
        # Read to the end; a full pipe would block the service.
        self.reader = threading.Thread(target=lambda: collections.deque(self.process.stdout, maxlen=0), daemon=True)
        self.reader.start()

    def guard(self):
        """Returns the guard process."""
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(b"cloud-guard\0"):
                    if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == self.process.pid:
                        return int(entry.name)
            except OSError:
                continue
        raise Lost("the service has no guard")

    def kill(self, with_guard=False):
        if with_guard:
            os.kill(self.guard(), signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.log.close()

    def stop(self):
        self.process.terminate()
        code = self.process.wait(timeout=PATIENCE_S)
        self.reader.join()
        self.log.close()
        return code


class Client:
    """One connection."""

    def __init__(self, service):
        self.connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE_S)

    def call(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {KEY}"}
        data = None if body is None else json.dumps(body).encode()
        self.connection.request(method, path, data, headers)
        reply = self.connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if text else None

    def upload(self, grant, archive, pieces=1, pause_s=0.0):
        """Sends an archive in pieces."""
        body = b""
        for name, value in grant["uploadFields"].items():
            body += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        body += (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="context.tar.gz"\r\n'
                 "Content-Type: application/gzip\r\n\r\n").encode()
        body += archive + f"\r\n--{BOUNDARY}--\r\n".encode()
        path = "/" + grant["uploadUrl"].split("/", 3)[3]
        self.connection.putrequest("POST", path)
        self.connection.putheader("Content-Type", f"multipart/form-data; boundary={BOUNDARY}")
        self.connection.putheader("Content-Length", str(len(body)))
        self.connection.endheaders()
        size = -(-len(body) // pieces)
        for at in range(0, len(body), size):
            self.connection.send(body[at:at + size])
            time.sleep(pause_s)
        reply = self.connection.getresponse()
        reply.read()
        return reply.status


class Known:
    """What the service has confirmed."""

    def __init__(self):
        self.lock = threading.Lock()
        # Build id to the build as last seen.
        self.builds = {}
        # Upload id to the MD5 of an archive answered with 204.
        self.uploads = {}
        # Uploads without a build.
        self.unused = []
        self.counts = collections.Counter()

    def created(self, reply):
        with self.lock:
            self.builds[reply["build"]["id"]] = reply["build"]
            self.counts["builds"] += 1


class Round:
    """Load on one run, until the kill."""

    def __init__(self, service, known, rng, phase):
        self.service, self.known, self.phase = service, known, phase
        self.seeds = [rng.getrandbits(64) for _ in range(3)]
        self.reached = threading.Event()
        self.over = threading.Event()
        self.faults = []

    def run(self, delay_s, with_guard):
        # One thread causes the phase, another works beside it.
        works = [getattr(self, self.phase), self.beside]
        threads = [threading.Thread(target=self.guarded, args=(work, seed), daemon=True)
                   for work, seed in zip(works, self.seeds)]
        for thread in threads:
            thread.start()
        check(self.reached.wait(PATIENCE_S), f"the phase {self.phase} never came: {self.faults}")
        time.sleep(delay_s)
        self.over.set()
        self.service.kill(with_guard)
        for thread in threads:
            thread.join()
        check(not self.faults, "; ".join(self.faults))

    def guarded(self, work, seed):
        try:
            work(Client(self.service), random.Random(seed))
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            # Interrupted by the kill; before the kill this is a failure.
            if not self.over.is_set():
                self.faults.append(f"{work.__name__}: {error!r}")
                self.reached.set()
        except Lost as error:
            self.faults.append(str(error))
            self.reached.set()

    def put(self, client, archive, **how):
        """Uploads an archive; returns the id."""
        status, grant = client.call("POST", "/v1/builds/upload-url", {})
        check(status == 200, f"a grant was answered with {status}: {grant}")
        if how:
            self.reached.set()
        status = client.upload(grant, archive, **how)
        check(status == 204, f"an upload was answered with {status}")
        with self.known.lock:
            self.known.uploads[grant["uploadId"]] = hashlib.md5(archive).hexdigest()
            self.known.counts["uploads"] += 1
        return grant["uploadId"]

    def make(self, client, upload, file="Dockerfile"):
        status, reply = client.call("POST", "/v1/builds", {"uploadId": upload, "region": "local", "buildfilePath": file})
        check(status in (200, 201), f"a build was answered with {status}: {reply}")
        if status == 201:
            self.known.created(reply)
        return reply["build"]["id"]

    def upload(self, client, rng):
        """Archives of up to a megabyte, in pieces."""
        while not self.over.is_set():
            archive = context(rng, 3, rng.randrange(1, 1 << 20), 0.01)
            upload = self.put(client, archive, pieces=rng.randrange(8, 40), pause_s=rng.uniform(0.0, 0.02))
            with self.known.lock:
                self.known.unused.append(upload)

    def unpack(self, client, rng):
        """Archives of many entries."""
        while not self.over.is_set():
            self.make(client, self.put(client, context(rng, 800, 1000, 0.01)))
            self.reached.set()

    def build(self, client, rng):
        """Runs a command for a while."""
        while not self.over.is_set():
            build = self.make(client, self.put(client, context(rng, 3, 1000, rng.uniform(0.0, 0.5))))
            status = "pending"
            while status == "pending" and not self.over.is_set():
                status = client.call("GET", f"/v1/builds/{build}")[1]["build"]["status"]
            self.reached.set()

    def record(self, client, rng):
        """Writes records quickly: grants, and builds that fail."""
        upload = self.put(client, context(rng, 3, 1000, 0.0))
        self.make(client, upload)
        self.reached.set()
        for n in range(12):
            if self.over.is_set():
                return
            self.make(client, upload, f"absent/{n}")
            client.call("POST", "/v1/builds/upload-url", {})

    def beside(self, client, rng):
        """Builds an archive of an earlier run and one of this run."""
        with self.known.lock:
            upload = self.known.unused.pop() if self.known.unused else None
        if upload:
            self.make(client, upload)
        self.make(client, self.put(client, context(rng, 20, rng.randrange(1, 1 << 16), 0.02)))


def processes_with(data):
    """Returns processes with the data directory in their environment."""
    marker = os.fsencode(str(data)) + b"/"
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if marker in (entry / "environ").read_bytes():
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state not in "ZX":
                    found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ")))
        except OSError:
            continue
    return found


def gone(data, among=None):
    """Waits until no process, or none of the given ones, works in the data directory."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        left = [process for process in processes_with(data) if among is None or process in among]
        if not left:
            return
        time.sleep(0.005)
    raise Lost(f"processes outlived the service: {left}")


def after_kill(data, folder, found):
    """Checks the data directory while no service runs."""
    found["parts of uploads"] += len(list((data / "tmp").iterdir()))
    found["scratch folders"] += len(list((data / "scratch").glob("*")))
    found["journals"] += (data / "builds.db-wal").exists()
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in ("builds.db", "builds.db-wal"):
        if (data / name).exists():
            shutil.copy(data / name, copy / name)
    database = sqlite3.connect(copy / "builds.db")
    whole = database.execute("PRAGMA integrity_check").fetchall()
    check(whole == [("ok",)], f"the database: {whole}")
    unsealed = database.execute(
        "SELECT COUNT(*) FROM build LEFT JOIN upload ON upload.id = build.upload WHERE upload.sealed IS NOT 1").fetchone()
    check(unsealed == (0,), f"{unsealed} builds without a sealed upload")
    database.close()


def archives(data, known, seen):
    """Checks that every archive is complete; unchanged ones are checked once."""
    for path in (data / "archives").glob("*/*"):
        check(path.name.endswith(".tar.gz"), f"{path} is no archive")
        about = path.stat()
        mark = (about.st_ino, about.st_mtime_ns, about.st_size)
        upload = path.name.removesuffix(".tar.gz")
        wanted = known.uploads.get(upload)
        if seen.get(upload) == (mark, wanted):
            continue
        packed = path.read_bytes()
        try:
            gzip.decompress(packed)
        except (OSError, EOFError, ValueError) as error:
            raise Lost(f"{path}: {error!r}") from error
        check(wanted in (None, hashlib.md5(packed).hexdigest()), f"{path} is not what was sent")
        seen[upload] = (mark, wanted)
    missing = set(known.uploads) - set(seen)
    check(not missing, f"archives are missing: {missing}")


def builds(client, known):
    """Checks that every confirmed build exists and ended ones are unchanged."""
    for build, before in list(known.builds.items()):
        status, reply = client.call("GET", f"/v1/builds/{build}")
        check(status == 200, f"build {build} is answered with {status}: {reply}")
        now = reply["build"]
        if before["status"] in FINAL:
            check(now == before, f"build {build} changed after its end: {before} {now}")
        check(now["updatedAt"] >= before["updatedAt"], f"build {build} went back: {before} {now}")
        if before["status"] == "building":
            check(now["status"] != "pending" and now["startedAt"] == before["startedAt"], f"{before} {now}")
        known.builds[build] = now


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", required=True)
    arguments.add_argument("--rounds", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    arguments.add_argument("--folder", type=pathlib.Path, help="where the data goes; a temporary one otherwise")
    asked = arguments.parse_args()
    folder = asked.folder or pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
    data = folder.resolve() / "data"
    data.mkdir(parents=True)
    log = folder / "log"
    print(f"seed {asked.seed}, {asked.rounds} rounds in {folder}", flush=True)
    rng = random.Random(asked.seed)
    known, seen, killed, found = Known(), {}, collections.Counter(), collections.Counter()
    left = []
    began = time.monotonic()
    number, service = 0, None
    try:
        for number in range(1, asked.rounds + 1):
            service = Service(asked.binary, data, log)
            parts = list((data / "tmp").iterdir())
            check(not parts, f"left of uploads: {parts}")
            gone(data, left)
            archives(data, known, seen)
            builds(Client(service), known)
            phase = PHASES[(number - 1) % len(PHASES)]
            # In the middle of a build each time.
            with_guard = number % 8 == 3
            Round(service, known, rng, phase).run(rng.expovariate(1 / 0.04), with_guard)
            killed[phase] += 1
            left = []
            if with_guard:
                left = processes_with(data)
                found["processes whose guard was killed"] += len(left)
            else:
                gone(data)
            after_kill(data, folder, found)
            if number % 10 == 0:
                print(f"{number} kills, {time.monotonic() - began:.0f} s: {known.counts['uploads']} uploads, "
                      f"{known.counts['builds']} builds", flush=True)
        service = Service(asked.binary, data, log)
        client = Client(service)
        until = time.monotonic() + PATIENCE_S
        while any(build["status"] not in FINAL for build in known.builds.values()):
            check(time.monotonic() < until, "builds do not end")
            builds(client, known)
            time.sleep(0.1)
        archives(data, known, seen)
        for build in known.builds.values():
            if build["status"] == "success":
                path = "/" + build["imageUri"].split("/", 3)[3]
                client.connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}"})
                reply = client.connection.getresponse()
                check((reply.status, reply.read()) == (200, b"image\n"), f"the image of {build}: {reply.status}")
        total = client.call("GET", "/v1/builds?limit=1")[1]["total"]
        client.connection.close()
        code = service.stop()
        check(code == 0, f"SIGTERM ended the service with {code}")
        gone(data)
        after_kill(data, folder, collections.Counter())
        check((data / "builds.db-wal").stat().st_size == 0, "an end in order leaves something in the journal")
        check(not list((data / "scratch").iterdir()), "scratch folders are left")
    except Lost as lost:
        print(f"LOST in round {number} of seed {asked.seed}: {lost}\nsee {folder}", flush=True)
        return 1
    finally:
        if service and service.process.poll() is None:
            service.kill()
    states = collections.Counter(build["status"] for build in known.builds.values())
    interrupted = sum("interrupted" in build.get("errorMessage", "") for build in known.builds.values())
    took = time.monotonic() - began
    print(f"{asked.rounds} kills ({', '.join(f'{n} in {phase}' for phase, n in killed.items())}), {took:.0f} s, "
          f"{took / max(asked.rounds, 1):.2f} s each: nothing lost")
    print(f"left by kills: {', '.join(f'{n} {what}' for what, n in found.items())}")
    print(f"{known.counts['uploads']} uploads; {len(known.builds)} builds answered with 201, {total} recorded: "
          f"{', '.join(f'{n} {status}' for status, n in sorted(states.items()))}; {interrupted} had their last attempt")
    if not asked.folder:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
