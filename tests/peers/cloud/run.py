"""Tests the published client against this service, and its packer against ours. Prints a line per check.

    run.py [--binary PATH] [--store PATH] [CHECK...]      exits with 1 when a check failed

With `--store`, the path of versitygw or a program with its arguments, the service keeps its records in PostgreSQL and archives in that store.
Needs requirements.txt and `curl`. The client's command line, upload routine and packer are used unchanged.
"""

import asyncio
import contextlib
import fnmatch
import gzip
import hashlib
import io
import json
import os
import pathlib
import pty
import random
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from checks import Report, chosen, options
from shared import Servers

KEY = "sk_peer_0123456789abcdef"
PUBLIC = "pk_peer_0123456789abcdef"
# Copies the build file as the image, and prints a line.
BUILDER = ["sh", "-c", 'echo "building $BUILD_FILE"; echo "a warning" >&2; cp "$BUILD_FILE" "$BUILD_OUT/image"']
CLI = "from pipecatcloud.cli.entry_point import entrypoint_cli_typer as run; run()"
PATIENCE_S = 120
# PostgreSQL and an object store, if the service shall use them.
servers = None


def clean(**more):
    """An environment without user settings."""
    ours = ("PIPECAT_", "CLOUD_", "BUILD_", "RUST_LOG")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(ours)}, **more}


class Cloud:
    """The service on a free port, with a data directory of its own unless there is one. `before` are words before its command."""

    def __init__(self, binary, *args, command=BUILDER, data=None, before=(), **variables):
        self.binary = binary
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-cloud-"))
        if before:
            # Another user has to get there.
            os.chmod(self.folder, 0o755)
        self.data = data or self.folder / "data"
        place = servers and servers.place(binary)
        self.bucket = place and place.bucket
        self.log = open(self.folder / "log", "a+")
        self.process = subprocess.Popen(
            [*before, binary, "cloud", "serve", "--port", "0", "--data-dir", self.data, "--min-free", "0", *args, "--", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, cwd=self.folder, text=True,
            env=clean(**{"CLOUD_PRIVATE_KEYS": KEY, "CLOUD_PUBLIC_KEYS": PUBLIC, **(place.variables if place else {}), **variables}))
        for line in self.process.stdout:
            if "listening on http://" in line:
                self.url = line.split("listening on ")[1].strip().rstrip("/")
                return
        self.stop()
        raise RuntimeError("the service ended at start")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.log.flush()
            self.log.seek(0)
            print(self.log.read(), file=sys.stderr)
        self.stop()

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, path, body=None):
        """Returns status and JSON of the reply."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def grant(self):
        status, grant = self.call("POST", "/v1/builds/upload-url", {"region": "local"})
        assert status == 200, grant
        return grant

    def archives(self):
        """Returns the keys of the stored archives."""
        folder = self.data / "archives"
        return {key for key in self.bucket.keys() if key.endswith(".gz")} if self.bucket else {
            str(path.relative_to(folder)) for path in folder.glob("*/*.gz")}

    def archive(self, key):
        """Returns a stored archive."""
        return self.bucket.read(key) if self.bucket else (self.data / "archives" / key).read_bytes()

    def stored(self, grant):
        """Returns the stored archive of an upload."""
        return self.archive(grant["uploadFields"]["key"])

    def ours(self, folder, *args, check=True):
        """Runs our client on a folder and returns its output."""
        ran = subprocess.run(
            [self.binary, "cloud", "build", folder, "--json", *args], stdin=subprocess.DEVNULL, capture_output=True,
            env=clean(CLOUD_API_URL=self.url, CLOUD_API_KEY=KEY), cwd=self.folder, timeout=PATIENCE_S)
        if check:
            assert ran.returncode == 0, ran.stderr.decode(errors="replace")
        return json.loads(ran.stdout)

    def theirs(self, *args, token=KEY, organization=None):
        """Runs the published command line; returns exit code, stdout and stderr."""
        variables = {
            "PIPECAT_API_HOST": self.url, "PIPECAT_TOKEN": token, "PIPECAT_CONFIG_PATH": str(self.folder / "absent.toml"),
            "PIPECAT_OUTPUT": "json", "COLUMNS": "200",
        }
        if organization:
            variables["PIPECAT_ORG"] = organization
        ran = subprocess.run(
            [sys.executable, "-c", CLI, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env=clean(**variables), cwd=self.folder, timeout=PATIENCE_S)
        return ran.returncode, ran.stdout, ran.stderr


def packed_by_them(folder, extra=(), build_file="Dockerfile"):
    """Returns the published packer's archive."""
    from pipecatcloud._utils.build_utils import create_deterministic_tarball, get_exclusions

    exclusions = get_exclusions(pathlib.Path(folder), list(extra))
    return create_deterministic_tarball(str(folder), exclusions, build_file).tarball


def write(folder, name, content=b"content\n", mode=0o644):
    path = os.path.join(os.fsencode(folder), name if isinstance(name, bytes) else os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)


def awkward(folder):
    """Creates a tree with difficult names and modes."""
    write(folder, "Dockerfile", b"FROM scratch\n")
    write(folder, "a/b", b"")
    write(folder, "a-b", b"x" * 511)
    write(folder, "a.b", b"x" * 512)
    write(folder, "B/c", b"x" * 513)
    write(folder, "bin/run", b"#!/bin/sh\n", 0o755)
    write(folder, "bin/only-group", b"#!/bin/sh\n", 0o610)
    write(folder, "read-only", mode=0o400)
    write(folder, "large", random.Random(1).randbytes(300_000) + b"\0" * 300_000)
    write(folder, "d/" * 49 + "xy")
    write(folder, "d/" * 49 + "xyz")
    write(folder, "n" * 200)
    write(folder, "Grüße 😀.txt")
    write(folder, "e\u0301")
    write(folder, b"caf\xe9/\xff\xfe")
    write(folder, b"\xed\xa0\x80")
    write(folder, "\ufb00")
    write(folder, "\U0001f600")
    write(folder, "new\nline")
    write(folder, "back\\slash")
    write(folder, "sp ace/[x]/*?")
    write(folder, ".env", b"SECRET=1\n")
    write(folder, ".env.local")
    write(folder, "deep/.git/config")
    write(folder, "deep/node_modules/x/index.js")
    write(folder, "deep/server.log")
    write(folder, "deep/x.pyc")
    os.makedirs(folder / "empty" / "emptier")
    write(folder.parent / "outside", "far", b"far away\n")
    os.symlink("large", folder / "link")
    os.symlink("bin/run", folder / "link-to-run")
    os.symlink(folder.parent / "outside" / "far", folder / "link-out")
    os.symlink("deep", folder / "link-to-folder")
    os.symlink("nowhere", folder / "dangling.log")


IGNORES = {
    "none": None,
    "empty": b"",
    "words": b"# comment\n\n ./deep/ \r\n*.log\rd/d\nlin[!x]\n",
    "signs": b"\x1fa-b\xc2\xa0\n[]\n[\n*\\*\nnew*line\n",
    "of the build file's folder": b"B*\n?-?\nn*\n",
}


def archives_are_equal(binary):
    """Our archives of a difficult tree equal those of the published packer, with five ignore files.
    Rules that the published packer does not have are Docker's, and packed otherwise on purpose."""
    told = []
    with Cloud(binary) as cloud:
        folder = cloud.folder / "tree"
        folder.mkdir()
        awkward(folder)
        for name, text in IGNORES.items():
            ignore = folder / ".dockerignore"
            ignore.unlink(missing_ok=True)
            if text is not None:
                write(folder, ".dockerignore", text)
            if name != "none":
                # Not excluded by the ignore file.
                with contextlib.suppress(FileNotFoundError):
                    (folder / "dangling.log").unlink()
            told.append(compare(cloud, folder))
    return ", ".join(told)


def compare(cloud, folder, *excluded):
    """Packs a folder with both; returns entries and KiB. The published packer follows all links."""
    args = ["--follow-links", *(f"--exclude={pattern}" for pattern in excluded)]
    before = cloud.archives()
    made = cloud.ours(folder, *args)
    (new,) = cloud.archives() - before
    ours, theirs = cloud.archive(new), packed_by_them(folder, excluded)
    assert made["contextHash"] == hashlib.md5(ours).hexdigest()[:16] == made["build"]["contextHash"], made
    assert made["build"]["contextSizeBytes"] == len(ours), made
    assert ours[:10] == theirs[:10], f"{ours[:10]} and {theirs[:10]}"
    one, other = gzip.decompress(ours), gzip.decompress(theirs)
    assert one == other, f"they differ from byte {next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), None)} on"
    return f"{len(one) >> 10} KiB as {len(ours)} bytes, theirs {len(theirs)}"


def etag_of(archive):
    return f'"{hashlib.md5(archive).hexdigest()}"'


def is_common(pattern):
    """Tells whether Docker and the published packer read a pattern alike, and it keeps the build file."""
    return not (fnmatch.fnmatch("Dockerfile", pattern) or pattern.startswith(("#", "!", "/"))
                or any(part in pattern for part in ("**", "[!", "[^")) or {".", ".."} & set(pattern.split("/")))


def patterns_are_equal(binary):
    """Trees with random names and patterns are packed alike."""
    dice = random.Random(7)
    letters = "ab-!]^[.*?c "

    def word(least, most):
        return "".join(dice.choice(letters) for _ in range(dice.randint(least, most))).strip() or "a"

    with Cloud(binary) as cloud:
        folder = cloud.folder / "tree"
        folder.mkdir()
        write(folder, "Dockerfile")
        for _ in range(150):
            with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
                write(folder, "/".join(word(1, 4).strip(".") or "x" for _ in range(dice.randint(1, 3))))
        left = 0
        for turn in range(12):
            patterns = [f"{word(1, 3)}/{word(1, 3)}" if dice.random() < 0.3 else word(1, 5) for _ in range(4)]
            patterns = [pattern for pattern in patterns if is_common(pattern)]
            ignore = folder / ".dockerignore"
            ignore.unlink(missing_ok=True)
            # Makes archives unique; equal ones would be cache hits.
            write(folder, "turn", str(turn).encode())
            if turn % 2:
                compare(cloud, folder, *patterns)
            else:
                write(folder, ".dockerignore", "\n".join(patterns).encode())
                compare(cloud, folder)
            left += len(patterns)
    return f"{left} patterns"


def uploads_by_them(binary):
    """The published upload routine works, and a build has the client's hash (I-25)."""
    from pipecatcloud._utils.build_utils import upload_to_s3

    with Cloud(binary) as cloud:
        folder = cloud.folder / "tree"
        folder.mkdir()
        awkward(folder)
        archive = packed_by_them(folder)
        grant = cloud.grant()
        assert asyncio.run(upload_to_s3(archive, grant["uploadUrl"], grant["uploadFields"]))
        assert cloud.stored(grant) == archive
        status, made = cloud.call("POST", "/v1/builds", {"uploadId": grant["uploadId"], "region": "local",
                                                        "dockerfilePath": "Dockerfile"})
        assert status == 201 and made["cached"] is False, made
        assert made["contextHash"] == hashlib.md5(archive).hexdigest()[:16], made
        # A modified field.
        grant = cloud.grant()
        fields = {**grant["uploadFields"], "key": "default/other.tar.gz"}
        assert not asyncio.run(upload_to_s3(archive, grant["uploadUrl"], fields))
    return f"{len(archive)} bytes"


def uploads_by_stock_clients(binary):
    """`requests` and `curl -F`, with and without `Expect: 100-continue`, can upload (I-06, I-07)."""
    import requests

    with Cloud(binary) as cloud:
        # Above 1 MiB curl waits for a 100 by itself.
        for size in (1000, 3_000_000):
            archive = gzip.compress(random.Random(size).randbytes(size))
            grant = cloud.grant()
            file = {"file": ("context.tar.gz", io.BytesIO(archive), "application/gzip")}
            reply = requests.post(grant["uploadUrl"], data=grant["uploadFields"], files=file, timeout=30)
            assert reply.status_code == 204 and cloud.stored(grant) == archive, reply.text
            # Ceph leaves it out.
            etag = reply.headers.get("ETag", servers and etag_of(archive))
            assert etag == etag_of(archive), reply.headers
            path = cloud.folder / "archive"
            path.write_bytes(archive)
            for expect in (["-H", "Expect:"], ["-H", "Expect: 100-continue"], []):
                grant = cloud.grant()
                fields = [word for name, value in grant["uploadFields"].items() for word in ("-F", f"{name}={value}")]
                ran = subprocess.run(
                    ["curl", "-sS", "-v", "--max-time", "60", *expect, *fields, "-F", f"file=@{path};type=application/gzip",
                     "-w", "%{http_code}", grant["uploadUrl"]], capture_output=True, text=True)
                assert ran.stdout.endswith("204") and cloud.stored(grant) == archive, ran.stdout + ran.stderr
                continued = "HTTP/1.1 100" in ran.stderr
                # Whether a store asks for the body is its own affair.
                assert servers or continued == (expect != ["-H", "Expect:"] and (bool(expect) or size > 1 << 20)), ran.stderr
    return "1 kB and 3 MB, four ways each"


def command_line_reads(binary):
    """The published command line lists regions and builds and shows a build with its log (I-25)."""
    with Cloud(binary) as cloud:
        folder = cloud.folder / "tree"
        folder.mkdir()
        write(folder, "Dockerfile", b"FROM scratch\n")
        made = cloud.ours(folder, "--wait", "--poll", "0.2")
        id = made["build"]["id"]
        for organization in ("default", None):
            def said(*args):
                code, out, err = cloud.theirs(*args, organization=organization)
                assert code == 0, f"{args}: {code} {out} {err}"
                return json.loads(out)

            regions = said("regions", "list")
            assert '"local"' in json.dumps(regions), regions
            builds = said("build", "list")
            assert [build["id"] for build in builds["builds"]] == [id] and builds["total"] == 1, builds
            assert said("build", "list", "--status", "failed")["builds"] == []
            build = said("build", "status", id)
            assert build["status"] == "success" and build["dockerfilePath"] == "Dockerfile", build
            logs = said("build", "logs", id)["logs"]
            assert "building Dockerfile" in logs and "a warning" in logs, logs
        # As text too: a missing member would cause a traceback.
        for args in (("regions", "list"), ("build", "list"), ("build", "status", id), ("build", "logs", id)):
            code, out, err = cloud.theirs("--output", "plain", *args)
            assert code == 0 and "Traceback" not in out + err, f"{args}: {code} {out} {err}"
        code, out, err = cloud.theirs("build", "status", "00000000-0000-4000-8000-000000000000", organization="default")
        assert code != 0 or "not found" in (out + err).lower(), out + err
        code, out, err = cloud.theirs("build", "list", token=PUBLIC, organization="default")
        assert code != 0 and "nauthorized" in out + err, out + err
    return f"build {id}"


def command_line_builds(binary):
    """The build part of the published `deploy` works, and reuses the build the second time (I-25)."""
    with Cloud(binary) as cloud:
        folder = cloud.folder / "tree"
        folder.mkdir()
        write(folder, "Dockerfile", b"FROM scratch\n")
        write(folder, "app.py", b"print()\n")
        outputs = []
        for _ in range(2):
            code, out, err = cloud.theirs("deploy", "agent", "--yes", "--build-dir", str(folder), organization="default")
            outputs.append(out + err)
            # This service has no agents, so the next step of `deploy` fails.
            assert code == 1, f"{code}: {out} {err}"
        status, list_ = cloud.call("GET", "/v1/builds")
        assert status == 200 and list_["total"] == 1, list_
        build = list_["builds"][0]
        assert build["status"] == "success", build
        assert build["contextHash"] == hashlib.md5(packed_by_them(folder)).hexdigest()[:16], build
        assert all(build["id"] in output for output in outputs), outputs
    return f"build {build['id']}"


def a_bar_on_a_terminal(binary):
    """Our upload shows a bar with percentage, rate and remaining time on a terminal (I-27)."""
    with Cloud(binary) as cloud:
        folder = cloud.folder / "tree"
        folder.mkdir()
        write(folder, "Dockerfile")
        write(folder, "noise", random.Random(3).randbytes(20_000_000))
        ours, theirs = pty.openpty()
        child = subprocess.Popen(
            [binary, "cloud", "build", str(folder)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
            env=clean(CLOUD_API_URL=cloud.url, CLOUD_API_KEY=KEY), cwd=cloud.folder)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        code = child.wait(PATIENCE_S)
        text = shown.decode()
        assert code == 0, text
        bars = re.findall(r"\r *(\d+) % \[(#*) *\] [\d.]+ \w+ of 19.1 MiB, [\d.]+ [KMG]iB/s(, [\d:]+ (?:s|min) left)?\x1b\[K", text)
        assert bars and bars[-1][0] == "100" and not bars[-1][2], repr(text)
        assert [int(bar[0]) for bar in bars] == sorted(int(bar[0]) for bar in bars), bars
        assert "upload:" not in text and text.count("\x1b[K") == len(bars), repr(text)
    return f"{len(bars)} times"


CHECKS = (
    archives_are_equal, patterns_are_equal, uploads_by_them, uploads_by_stock_clients, command_line_reads, command_line_builds,
    a_bar_on_a_terminal,
)


def main(given):
    global servers
    binary = given.binary.resolve()
    servers = given.store and Servers(given.store.resolve())
    try:
        with Report() as report:
            for check in chosen(CHECKS, given.checks).values():
                with report.check(check) as result:
                    result.said = check(binary)
    finally:
        if servers:
            servers.stop()
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--store", type=pathlib.Path)
    sys.exit(main(parser.parse_args()))
