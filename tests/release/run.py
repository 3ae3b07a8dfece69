#!/usr/bin/env python3
"""Uses the files of a release as those who download them do.

    unshare --net tests/release/run.py DIR

In: DIR, made by boards/release and signed; root, a network namespace of its own; skopeo, umoci and runc; for ARM programs the
emulator of cross/qemu. Out: a line for each thing that was seen; exit code 1 at the first that was not.
"""

import functools
import hashlib
import http.client
import http.server
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/deb"))

from debian import failed, run, seen

USER = 65532
# A start under emulation takes seconds on a busy machine; only a failure waits this long.
PATIENCE_S = 120


def ask(port, path, secure=False):
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind("127.0.0.1", port, timeout=PATIENCE_S, **({"context": unverified} if secure else {}))
    connection.request("GET", path)
    reply = connection.getresponse()
    body = reply.read()
    if reply.status != 200:
        failed(f"{path}: {reply.status} {body[:200]}")
    return body


class Served:
    """A runner, from its first log line to its end by SIGTERM."""

    def __init__(self, command, **how):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"listening on \S+?:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            failed(f"{command} does not start:\n{''.join(self.log)}")
        threading.Thread(target=lambda: self.log.extend(self.process.stdout), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def stop(self, how):
        how()
        if (code := self.process.wait(PATIENCE_S)) != 0:
            failed(f"the runner ends with {code}:\n{''.join(self.log)}")


# --- The files


def check_sums(release, version):
    listed = dict(reversed(line.split("  ", 1)) for line in (release / "SHA256SUMS").read_text().splitlines())
    present = {path.name for path in release.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    if present != set(listed):
        failed(f"SHA256SUMS and the folder differ: {present ^ set(listed)}")
    for name, wanted in listed.items():
        if hashlib.sha256((release / name).read_bytes()).hexdigest() != wanted:
            failed(f"the checksum of {name} is wrong")
    seen(f"SHA256SUMS lists {len(listed)} files of {version}")


def check_install(release, folder):
    """The published script, which knows the key, over HTTP."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=release))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for extra in ([], ["--static"]):
        if extra and not list(release.glob("*-x86_64-unknown-linux-musl.tar.gz")):
            continue
        shown = run("sh", release / "install.sh", "--from", url, "--prefix", folder / "prefix", *extra)
        if "The release is signed" not in shown:
            failed(f"install.sh does not verify the signature:\n{shown}")
        seen(f"{' '.join(['install.sh', *extra])}: {shown.strip().splitlines()[1]}")
    run("sh", release / "install.sh", "--from", url, "--deb", "--dry-run")
    server.shutdown()


def check_programs(release, folder, version):
    for archive in sorted(release.glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
            if any(member.uid or member.gid or member.uname for member in tar):
                failed(f"{archive.name} names a user of this machine")
        content = folder / archive.name.removesuffix(".tar.gz")
        binary = content / "edge-runner"
        target = archive.name.removesuffix(".tar.gz").split("-", 3)[3]
        under = [] if target.startswith("x86_64") else [str(ROOT / "cross/qemu")]
        if not (shown := run(*under, binary, "--version")).startswith(f"edge-runner {version} (libopus "):
            failed(f"{archive.name}: {shown}")
        is_static = "NEEDED" not in run("readelf", "-dW", binary)
        if is_static != ("musl" in target):
            failed(f"{archive.name} is{'' if is_static else ' not'} static")
        for name in ("README.md", "LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt", "edge-runner.1", "completions/edge-runner.bash"):
            if not (content / name).stat().st_size:
                failed(f"{archive.name}: {name} is empty")
        with Served([*under, str(binary), "--port", "0", "--rtc-port", "0"]) as served:
            if json.loads(ask(served.port, "/status"))["status"] != "ready":
                failed(f"{archive.name} is not ready")
            ask(served.port, "/client/")
            served.stop(served.process.terminate)
        seen(f"{archive.name}: {archive.stat().st_size} bytes, program {binary.stat().st_size}, serves its page")


def check_packages(release):
    for package in sorted(release.glob("*.deb")):
        listed = run("dpkg-deb", "--contents", package)
        for path in ("/usr/bin/edge-runner", "bash-completion/completions/edge-runner", "edge-runner.1.gz", "THIRD-PARTY.txt.gz"):
            if path not in listed:
                failed(f"{package.name} has no {path}")
        fields = run("dpkg-deb", "--field", package, "Architecture", "Depends").split("\n")
        seen(f"{package.name}: {package.stat().st_size} bytes, {', '.join(filter(None, fields))}")


# --- Packages of registries


def check_wheels(release):
    """What pip and npm install of this processor has a call, without a network."""
    wheels = sorted(release.glob("*.whl"))
    if not wheels:
        seen("no wheels and no packages for npm, as no static program was made")
        return
    for package in [*wheels, *sorted(release.glob("*.tgz"))]:
        seen(f"{package.name}: {package.stat().st_size} bytes")
    run(ROOT / "tests/release/try.sh", release)
    seen("pip and npm install programs that make bots for Python and Node, and the bots' tests have a call with them")


# --- The container image


def check_container(release, folder, version):
    archive = next(release.glob("*-oci.tar"), None)
    if archive is None:
        seen("no container image, as no static program was made")
        return
    index = json.loads(run("skopeo", "inspect", "--raw", f"oci-archive:{archive}:edge-runner:{version}"))
    for entry in index["manifests"]:
        machine = entry["platform"]
        name = "-".join([machine["architecture"], machine.get("variant", "")]).rstrip("-")
        variant = ["--override-variant", machine["variant"]] if "variant" in machine else []
        run("skopeo", "copy", "--quiet", "--override-os", "linux", "--override-arch", machine["architecture"], *variant,
            f"oci-archive:{archive}:edge-runner:{version}", f"oci:{folder}/layout:{name}")  # fmt: skip
        bundle = folder / f"bundle-{name}"
        run("umoci", "unpack", "--image", f"{folder}/layout:{name}", bundle)
        root = bundle / "rootfs"
        under = [] if machine["architecture"] == "amd64" else [ROOT / "cross/qemu"]
        if not run(*under, root / "edge-runner", "--version").startswith(f"edge-runner {version} (libopus "):
            failed(f"the program for {name} is another")
        programs = [path for path in root.rglob("*") if path.is_file() and path.stat().st_mode & 0o111]
        if programs != [root / "edge-runner"]:
            failed(f"the image for {name} has other programs: {programs}")
        state = (root / "var/lib/edge-runner").stat()
        if (state.st_uid, state.st_mode & 0o777) != (USER, 0o700):
            failed(f"the folder for state is {state}")
        authorities = (root / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE")
        if authorities < 100:
            failed(f"{authorities} public authorities")
        seen(f"image for linux/{name}: one program, {authorities} public authorities")
        if machine["architecture"] == "amd64":
            run_container(bundle, folder)


def run_container(bundle, folder):
    """Runs the image, with a read-only file system, as runc takes it from umoci. Its network is that of this process."""
    file = bundle / "config.json"
    config = json.loads(file.read_text())
    if config["process"]["user"]["uid"] != USER:
        failed(f"the container's user is {config['process']['user']}")
    config["linux"]["namespaces"] = [each for each in config["linux"]["namespaces"] if each["type"] != "network"]
    config["process"]["terminal"] = False
    config["process"]["args"] += ["--tls", "auto"]
    config["process"]["capabilities"] = {}
    config["root"]["readonly"] = True
    state = {"destination": "/var/lib/edge-runner", "type": "tmpfs", "source": "tmpfs"}
    state["options"] = ["nosuid", "nodev", f"uid={USER}", f"gid={USER}", "mode=700"]
    config["mounts"] = [each for each in config["mounts"] if each["destination"] != state["destination"]] + [state]
    file.write_text(json.dumps(config))
    runc = ["runc", "--root", str(folder / "runc")]
    with Served([*runc, "run", "--bundle", str(bundle), "edge-runner-release"]) as served:
        try:
            if served.port != 7860:
                failed(f"the container listens on {served.port}")
            for secure in (False, True):
                if json.loads(ask(7860, "/status", secure))["status"] != "ready":
                    failed("the container is not ready")
            ask(7860, "/client/")
            process = json.loads(run(*runc, "state", "edge-runner-release"))["pid"]
            status = Path(f"/proc/{process}/status").read_text()
            users = re.search(r"(?m)^Uid:\s+(.*)$", status)[1].split()
            if set(users) != {str(USER)} or not re.search(r"(?m)^CapEff:\s+0+$", status):
                failed(f"the runner in the container has more rights than it needs:\n{status}")
            key = Path(f"/proc/{process}/root/var/lib/edge-runner/api-key")
            if len(key.read_text().strip()) != 48 or key.stat().st_mode & 0o777 != 0o600:
                failed("the container did not make a key of callers for its owner")
            # SIGTERM reaches the runner as process 1 of the container.
            served.stop(lambda: run(*runc, "kill", "edge-runner-release", "TERM"))
        finally:
            subprocess.run([*runc, "delete", "--force", "edge-runner-release"], capture_output=True, check=False)
    seen(f"runc runs it as user {USER} without capabilities, read-only; HTTP, HTTPS and the page answer; SIGTERM ends it with 0")


# --- The list of components


def check_components(release, version):
    text = next(release.glob("*.cdx.json")).read_text()
    if "file://" in text or str(ROOT) in text:
        failed("the list of components names folders of this machine")
    bom = json.loads(text)
    if (bom["bomFormat"], bom["metadata"]["component"]["version"]) != ("CycloneDX", version):
        failed(f"the list of components is of {bom['metadata']['component']}")
    found = {(each["name"], each["version"]) for each in bom["components"]}
    shown = run("cargo", "tree", "--locked", "--package", "edge-runner", "--edges", "normal", "--target", "all", "--prefix", "none",
                "--format", "{p}", cwd=ROOT)  # fmt: skip
    wanted = {(line.split()[0], line.split()[1].removeprefix("v")) for line in shown.splitlines() if line} - {("edge-runner", version)}
    if missing := wanted - found:
        failed(f"the list of components lacks {missing}")
    references = {each["bom-ref"] for each in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
    for each in bom["dependencies"]:
        if not {each["ref"], *each.get("dependsOn", [])} <= references:
            failed(f"the list of components refers to what it lacks: {each}")
    without = [each["name"] for each in bom["components"] if not each.get("licenses")]
    if without:
        failed(f"no licence is stated for {without}")
    seen(f"CycloneDX {bom['specVersion']}: {len(found)} components, {len(wanted)} of them compiled in, each with its licence")


def main():
    release = Path(sys.argv[1]).resolve()
    version = re.search(r"(?m)^edge-runner (.*)$", (release / "BUILDINFO").read_text())[1]
    run("ip", "link", "set", "lo", "up")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        folder = Path(folder)
        check_sums(release, version)
        check_install(release, folder)
        check_programs(release, folder, version)
        check_packages(release)
        check_wheels(release)
        check_components(release, version)
        check_container(release, folder, version)


if __name__ == "__main__":
    main()
