#!/usr/bin/env python3
"""Tests the life cycle of the Debian package in a minimal Debian of the package's architecture.

    tests/deb/run.py [--arch arm64|armhf|amd64] [--binary FILE | --package FILE]

In: a package, or a release binary of that architecture of which it makes one (default: the one of `cross/build`, or of cargo
for amd64); root, mmdebstrap, and qemu-user-static for a foreign architecture. The Debian is made once and kept as a tarball in
the cache folder of the tools, ${EDGE_RUNNER_TOOLS:-~/.cache/edge-runner}. Out: a line for each thing that was seen; exit code 1
at the first that was not.

Everything happens in namespaces of its own, of users, mounts and network, which end with the program: foreign programs are
registered with the kernel for that namespace alone, no network is there beyond loopback, and nothing is left behind.
Refuses: kernels before 6.7, whose binfmt_misc is one for the whole machine; exit code 77 tells of it, and of missing tools.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from debian import CLONE_NEWNET, SUITE, Chroot, cannot, debian, failed, inside, register, run, seen

ROOT = Path(__file__).resolve().parents[2]
TARGET = {"arm64": "aarch64-unknown-linux-gnu", "armhf": "armv7-unknown-linux-gnueabihf"}
UNIT = "edge-runner.service"
ENV = "/etc/edge-runner/edge-runner.env"
KEY = "/etc/edge-runner/api-key.env"
AVAHI = "/etc/avahi/services/edge-runner.service"
# A start under emulation takes seconds on a busy machine; only a failure waits this long.
PATIENCE_S = 120


# --- The package


def version_of(package):
    return run("dpkg-deb", "-f", package, "Version").strip()


def make_package(binary, arch, out):
    made = run(ROOT / "boards/package", "--binary", binary, "--arch", arch, "--out", out)
    package = Path(made.strip())
    again = out / "again"
    run(ROOT / "boards/package", "--binary", binary, "--arch", arch, "--out", again)
    if package.read_bytes() != (again / package.name).read_bytes():
        failed("the same input gives a different package")
    seen(f"{package.name}: {package.stat().st_size} bytes, identical when built again")
    return package


def look_at(package):
    if shutil.which("lintian"):
        for line in run("lintian", "--allow-root", "--fail-on", "error", package).splitlines():
            seen(f"lintian: {line}")
    seen(f"depends on {run('dpkg-deb', '-f', package, 'Depends').strip() or 'nothing'}")


def make_older(package, out):
    """The same package with a lower version and different configuration files, to test an upgrade."""
    tree = out / "older"
    run("dpkg-deb", "-R", package, tree)
    for inside in (ENV, AVAHI):
        with (tree / inside.lstrip("/")).open("a") as file:
            file.write("<!-- of the older version -->\n" if inside == AVAHI else "# of the older version\n")
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*", "Version: 0.0.1", control.read_text()))
    older = out / "edge-runner-older.deb"
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, older)
    return older


def check_files(chroot):
    for inside, expected in {
        "/usr/bin/edge-runner": "755 root:root",
        f"/usr/lib/systemd/system/{UNIT}": "644 root:root",
        "/usr/lib/edge-runner/select-board": "755 root:root",
        "/usr/lib/edge-runner/api-key": "755 root:root",
        ENV: "600 root:root",
        KEY: "600 root:root",
        AVAHI: "644 root:root",
        "/usr/share/edge-runner/boards/qemu-virt.env": "644 root:root",
        "/usr/share/doc/edge-runner/README.md": "644 root:root",
        "/usr/share/doc/edge-runner/copyright": "644 root:root",
    }.items():
        if (found := chroot.stat(inside)) != expected:
            failed(f"{inside} is {found}, not {expected}")
    account = chroot.run("getent", "passwd", "edge-runner").strip().split(":")
    if account[5:] != ["/var/lib/edge-runner", "/usr/sbin/nologin"]:
        failed(f"the account is {account}")
    wanted = chroot.path(f"/etc/systemd/system/multi-user.target.wants/{UNIT}")
    if not wanted.is_symlink():
        failed(f"{wanted} is missing: the service is not enabled")
    chroot.run("dpkg", "--verify", "edge-runner")
    seen("files, owners, modes, the user, and the service enabled")
    # The build for boards has no cloud service; the package for PCs has its unit.
    brings_cloud = chroot.path("/usr/lib/systemd/system/edge-runner-cloud.service").exists()
    if brings_cloud != (chroot.run("dpkg", "--print-architecture").strip() == "amd64"):
        failed("the package has the unit of the cloud service where its binary has none, or lacks it where it has")


# --- The service, as systemd starts it


def settings(file):
    """The variables of an EnvironmentFile without quotes."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def unit_of(chroot):
    """The lines of the unit by key, with all values of a repeated key."""
    keys = {}
    for line in chroot.path(f"/usr/lib/systemd/system/{UNIT}").read_text().splitlines():
        if line and line[0] not in "#[":
            key, value = line.split("=", 1)
            keys.setdefault(key, []).append(value)
    return keys


def notified(supervisor, text):
    """Waits for a notification of the runner."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        supervisor.settimeout(deadline - time.monotonic())
        try:
            if text in supervisor.recv(4096).decode().split():
                return
        except TimeoutError:
            break
    failed(f"the service did not say {text}")


def ask(path, secure, method="GET", **headers):
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind("127.0.0.1", 7860, timeout=PATIENCE_S, **({"context": unverified} if secure else {}))
    connection.request(method, path, "{}" if method == "POST" else None, headers)
    reply = connection.getresponse()
    return reply.read() if reply.status == 200 else reply.status


def check_service(chroot):
    unit = unit_of(chroot)
    # The folders that systemd creates for the unit.
    for folder in ("/var/lib/edge-runner", "/var/log/edge-runner", "/run/edge-runner"):
        chroot.run("install", "-d", "-o", unit["User"][0], "-g", unit["Group"][0], "-m", "750", folder)
    as_user = [shutil.which("chroot"), f"--userspec={unit['User'][0]}:{unit['Group'][0]}", str(chroot.root)]
    board = run(*as_user, *unit["ExecStartPre"][0].removeprefix("-").split()).strip()
    environment = {"PATH": "/usr/bin:/bin", "STATE_DIRECTORY": "/var/lib/edge-runner", "NOTIFY_SOCKET": "/run/edge-runner/n"}
    for file in unit["EnvironmentFile"]:
        environment.update(settings(chroot.path(file.removeprefix("-"))))
    key = environment["RUNNER_API_KEY"]
    if len(key) != 48 or f"/#key={key}" not in chroot.run("/usr/lib/edge-runner/api-key"):
        failed("the key is not shown or not valid")
    supervisor = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    # The length of a socket path is limited, and the path of the chroot may be longer.
    os.chdir(chroot.path("/run/edge-runner"))
    supervisor.bind("n")
    os.chmod("n", 0o666)
    log = tempfile.TemporaryFile()
    command = unit["ExecStart"][0].replace("$RUNNER_ARGS", environment.get("RUNNER_ARGS", "")).split()
    words = ["env", "-C", unit["WorkingDirectory"][0], *command]
    service = subprocess.Popen(as_user + words, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        notified(supervisor, "READY=1")
        for secure in (False, True):
            status = json.loads(ask("/status", secure))
            if status["status"] != "ready":
                failed(f"/status answers {status}")
        if b"BEGIN CERTIFICATE" not in ask("/ca.crt", False):
            failed("/ca.crt is no certificate")
        if (without := ask("/start", False, "POST")) != 401:
            failed(f"/start without the key answers {without}")
        started = ask("/start", True, "POST", Authorization=f"Bearer {key}")
        if not isinstance(started, bytes) or "sessionId" not in json.loads(started):
            failed(f"/start with the key answers {started}")
        service.send_signal(1)
        notified(supervisor, "RELOADING=1")
        service.terminate()
        if (code := service.wait(PATIENCE_S)) != 0:
            failed(f"the service ended with {code}")
    except BaseException:
        log.seek(0)
        print(log.read().decode())
        raise
    finally:
        service.kill()
        log.seek(0)
        if key in log.read().decode():
            failed("the key stands in the log")
        supervisor.close()
        os.unlink("n")
        os.chdir("/")
    if chroot.stat("/var/lib/edge-runner/authority.pem") != "600 edge-runner:edge-runner":
        failed("the authority's key is not the user's alone")
    seen(board)
    seen("callers need the generated key, and no log has it")
    seen(f"as its user: ready, {status['version']}, HTTP and HTTPS answer, SIGHUP reloads, SIGTERM ends it with 0")


# --- The life of a package


def life(chroot, package, older):
    shutil.copy(package, chroot.path("/new.deb"))
    shutil.copy(older, chroot.path("/older.deb"))
    before = chroot.files()
    env, avahi = chroot.path(ENV), chroot.path(AVAHI)

    chroot.apt("install", "--no-install-recommends", "/new.deb")
    seen("installed, without network")
    check_files(chroot)
    check_service(chroot)
    made = chroot.path(KEY).read_text()
    chroot.apt("install", "--reinstall", "/new.deb")
    check_files(chroot)
    if chroot.path(KEY).read_text() != made:
        failed("a second installation made a new key")
    seen("installed again: the same key")
    chroot.apt("purge", "edge-runner")
    check_gone(chroot, before)

    chroot.apt("install", "--no-install-recommends", "/older.deb")
    if chroot.path(KEY).read_text() == made:
        failed("two installations have one key")
    env.write_text(env.read_text().replace("#RUNNER_PORT=7860", "RUNNER_PORT=7861"))
    own = env.read_text()
    # The state of earlier versions, which made no key.
    chroot.path(KEY).unlink()
    chroot.run("chown", "root:edge-runner", ENV)
    chroot.run("chmod", "640", ENV)
    chroot.apt("install", "--no-install-recommends", "/new.deb")
    installed = chroot.run("dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}", "edge-runner")
    if installed != f"{version_of(package)} installed":
        failed(f"after the upgrade: {installed}")
    if env.read_text() != own or chroot.stat(ENV) != "600 root:root":
        failed(f"{ENV} was changed by its owner, and not kept, or can be read by bots")
    if chroot.path(KEY).exists():
        failed("an upgrade made a key and locked callers out")
    if "older version" in avahi.read_text():
        failed(f"{AVAHI} was not modified, but not replaced either")
    seen("upgraded: the modified file is kept, the unmodified one replaced; no key is added")
    chroot.apt("install", "--allow-downgrades", "--no-install-recommends", "/older.deb")
    chroot.apt("install", "--no-install-recommends", "/new.deb")
    chroot.path(f"/etc/systemd/system/multi-user.target.wants/{UNIT}").unlink()
    chroot.apt("install", "--reinstall", "/new.deb")
    if chroot.path(f"/etc/systemd/system/multi-user.target.wants/{UNIT}").exists():
        failed("a service that was disabled is enabled again")
    seen("downgraded and upgraded; a disabled service stays disabled")
    chroot.run("install", "-D", "/dev/null", "/var/lib/edge-runner/kept")
    chroot.run("install", "-D", "/dev/null", "/var/log/edge-runner/kept")
    chroot.apt("remove", "edge-runner")
    if chroot.path("/usr/bin/edge-runner").exists() or env.read_text() != own:
        failed("after the removal the binary exists, or the configuration does not")
    if not chroot.path("/var/lib/edge-runner/kept").exists():
        failed("a removal deleted the state")
    seen("removed: configuration and state stay")
    with pretended_systemd(chroot) as told:
        chroot.apt("install", "--no-install-recommends", "/new.deb")
        check_reported(told, "restart")
        chroot.apt("install", "--reinstall", "/new.deb")
        check_reported(told, "restart")
        chroot.apt("remove", "edge-runner")
        check_reported(told, "stop")
    seen("installed again: systemd gets a start, and a stop at the removal")
    chroot.apt("purge", "edge-runner")
    check_gone(chroot, before)


@contextlib.contextmanager
def pretended_systemd(chroot):
    """A fake systemctl: reports no active service and records its arguments."""
    systemctl, folder = chroot.path("/usr/bin/systemctl"), chroot.path("/run/systemd/system")
    if systemctl.exists():
        failed("this Debian has a systemctl of its own")
    made = [place for place in (folder, folder.parent) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    systemctl.write_text('#!/bin/sh\ncase "$*" in *is-active*) exit 3 ;; *is-enabled*) echo enabled ;; *) echo "$*" >>/told ;; esac\n')
    systemctl.chmod(0o755)
    told = chroot.path("/told")
    told.touch()
    try:
        yield told
    finally:
        told.unlink()
        systemctl.unlink()
        for place in made:
            place.rmdir()


def check_reported(told, word):
    lines = told.read_text().splitlines()
    told.write_text("")
    if not any(line.split()[-2:] == [word, UNIT] for line in lines):
        failed(f"systemd was not told to {word} {UNIT}, but: {lines}")


def check_gone(chroot, before):
    left = {path for path in chroot.files() - before if not re.match(r"\./etc/(passwd|group|shadow|gshadow|sub[ug]id)-?$", path)}
    # Folders of systemd belong to no package, and are empty.
    left = {path for path in left if not (path.startswith("./etc/systemd") and chroot.path(path[2:]).is_dir())}
    left = {path for path in left if not path.startswith("./var/lib/systemd") or not chroot.path(path[2:]).is_dir()}
    if left or chroot.path("/var/log/edge-runner").exists():
        failed(f"left after the purge: {sorted(left)}")
    if lost := before - chroot.files():
        failed(f"lost after the purge: {sorted(lost)}")
    seen("purged: only the user is left")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--arch", choices=["arm64", "armhf", "amd64"], default="arm64")
    arguments.add_argument("--binary", type=Path)
    arguments.add_argument("--package", type=Path)
    given = arguments.parse_args()
    arch = given.arch
    folder = TARGET.get(arch, ".")
    package = given.package and given.package.resolve(strict=True)
    binary = (given.binary or ROOT / "target" / folder / "release/edge-runner").resolve()
    if not package and not binary.is_file():
        failed(f"{binary} does not exist: {'cross/build ' + folder if arch in TARGET else 'cargo build --release'}")
    if os.geteuid() != 0:
        cannot("a Debian of its own needs root")
    tarball = debian(SUITE, arch, "ca-certificates")
    with tempfile.TemporaryDirectory() as work:
        # Mounts below the folder exist only in the child, so removing it is safe.
        code = inside(lambda: take_through(arch, package or binary, tarball, Path(work)), CLONE_NEWNET)
    sys.exit(code)


def take_through(arch, given, tarball, out):
    register(arch)
    run("ip", "link", "set", "lo", "up")
    package = given if given.suffix == ".deb" else make_package(given, arch, out)
    look_at(package)
    root = out / "root"
    root.mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=755", "none", root)
    chroot = Chroot(root)
    chroot.unpack(tarball)
    life(chroot, package, make_older(package, out))
    print(f"the package for {arch} lives and dies as it should", flush=True)


main()
