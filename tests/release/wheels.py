#!/usr/bin/env python3
"""Installs the wheels of a release on systems of their own, by what people type, from an index on loopback.

    tests/release/wheels.py DIR [--systems NAME,...] [--without-call]

In: DIR with wheels; root, mmdebstrap and qemu-user-static. A system whose wheel DIR lacks is left out. On each, in namespaces
without a network: pip refuses the environment of Debian, and installs into one of its own; pipx and uv install, run and remove;
three commands start the program; a bot of `edge-runner new python` has its call, unless --without-call is given, for wheels of
programs that only say their version. Out: a line for each thing that was seen, and a table in Markdown; exit code 1 at the first
that was not, 77 if a tool or right is missing.
"""

import argparse
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "deb"))

from debian import CLONE_NEWNET, ENVIRONMENT, Chroot, cannot, debian, failed, inside, register, run, seen, tools

PYTHON = ("python3-venv", "python3-pip", "pipx")
# Suite of Debian, its architecture, and the end of the name of the wheel for it.
SYSTEMS = {
    "debian-12-amd64": ("bookworm", "amd64", "x86_64"),
    "debian-13-amd64": ("trixie", "amd64", "x86_64"),
    "debian-12-arm64": ("bookworm", "arm64", "aarch64"),
    "debian-12-armhf": ("bookworm", "armhf", "armv7l"),
}
# Platforms of the files of uv.
PLATFORMS = ("manylinux_2_17_x86_64", "manylinux_2_17_aarch64", "manylinux_2_17_armv7l")
# A start under emulation takes seconds on a busy machine; only a failure waits this long.
PATIENCE_S = 600


class Index(http.server.BaseHTTPRequestHandler):
    """A simple index (PEP 503) of the wheels of some folders. `taken` has the names of those that were fetched."""

    folders, taken = (), []

    def do_GET(self):
        words = self.path.strip("/").split("/")
        files = {path.name: path for folder in self.folders for path in folder.glob("*.whl")}
        if words[0] == "files" and words[-1] in files:
            if self.command == "GET":
                self.taken.append(words[-1])
            return self.answer(files[words[-1]].read_bytes(), "application/octet-stream")
        found = [path for name, path in sorted(files.items()) if normalized(name.split("-")[0]) == words[-1]]
        if words[0] != "simple" or not found:
            return self.send_error(404)
        links = (f'<a href="/files/{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">{path.name}</a>' for path in found)
        return self.answer(f"<!DOCTYPE html><html><body>{' '.join(links)}</body></html>".encode(), "text/html")

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    # uv asks for the length first.
    do_HEAD = do_GET

    def log_message(self, *_):
        pass


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def fetch_tools():
    """The folder with uv for every platform, and with what pipx fetches, fetched once."""
    pins = HERE / "requirements.txt"
    folder = tools() / f"wheels-{hashlib.sha256(pins.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        new = folder.with_suffix(f".{os.getpid()}")
        for platform in PLATFORMS:
            run(
                sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
                "--only-binary", ":all:", "--platform", platform, "--dest", new, "--requirement", pins,
            )  # fmt: skip
        new.rename(folder)
    return folder


class System:
    """A root with Python, and the index."""

    def __init__(self, chroot, index, name, version):
        self.chroot, self.name, self.version = chroot, name, version
        self.url = f"http://127.0.0.1:{index.server_port}/simple/"
        self.wheel = None

    def try_to(self, *command, **variables):
        environment = {
            **ENVIRONMENT, "PATH": "/root/.local/bin:" + ENVIRONMENT["PATH"], "HOME": "/root", "PIP_INDEX_URL": self.url,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1", "PIP_ROOT_USER_ACTION": "ignore", "UV_DEFAULT_INDEX": self.url,
            "UV_NO_CACHE": "1", "UV_PYTHON_DOWNLOADS": "never", **variables,
        }  # fmt: skip
        return subprocess.run(
            ["chroot", str(self.chroot.root), *command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def run(self, *command, **variables):
        done = self.try_to(*command, **variables)
        if done.returncode != 0:
            failed(f"{' '.join(command)}\n{done.stdout}")
        return done.stdout.strip()

    def starts(self, *command):
        """The program says its version by this command."""
        said = self.run(*command, "--version").splitlines()[-1:]
        if not said or not said[0].startswith(f"edge-runner {self.version} "):
            failed(f"{' '.join(command)} --version says {said}, not edge-runner {self.version}")

    def is_gone(self, *paths):
        for path in paths:
            if os.path.lexists(self.chroot.path(path)):
                failed(f"{path} is left after the removal")

    def versions(self):
        """Of what installs here."""
        found = {"Python": self.run("python3", "--version").split()[-1]}
        for tool, command in (("pip", ["/venv/bin/pip"]), ("pipx", ["pipx"]), ("uv", ["/venv/bin/uv"])):
            found[tool] = re.search(r"\d[\d.]*", self.run(*command, "--version"))[0]
        return ", ".join(f"{tool} {version}" for tool, version in found.items())


def check_pip(system):
    refused = system.try_to("python3", "-m", "pip", "install", system.name)
    if refused.returncode == 0 or "externally-managed-environment" not in refused.stdout:
        failed(f"pip installs into Debian's own environment:\n{refused.stdout}")
    seen("pip refuses Debian's own environment, and names pipx")
    system.run("python3", "-m", "venv", "/venv")
    before = set(os.listdir(system.chroot.path("/venv/bin")))
    Index.taken.clear()
    system.run("/venv/bin/pip", "install", system.name)
    system.wheel = next(name for name in Index.taken if normalized(name.split("-")[0]) == system.name)
    system.starts("/venv/bin/edge-runner")
    system.starts("/venv/bin/python", "-m", "edge_runner")
    system.starts(f"/venv/bin/{system.name}")
    seen(f"pip installs {system.wheel}, and three commands start it")
    return before


def check_call(system):
    """What README says next: a bot, and its test, which is a call."""
    system.run("sh", "-c", "cd /root && /venv/bin/edge-runner new python my-bot")
    said = system.run("sh", "-c", "cd /root/my-bot && /venv/bin/python test_bot.py", EDGE_RUNNER="/venv/bin/edge-runner")
    seen(f"a bot of `edge-runner new python` has its call: {said.splitlines()[-1]}")


def check_pip_removes(system, before):
    system.run("/venv/bin/pip", "uninstall", "--yes", system.name)
    left = set(os.listdir(system.chroot.path("/venv/bin"))) - before
    packages = [path.name for path in system.chroot.path("/venv/lib").glob("python3*/site-packages/edge_*")]
    if left or packages:
        failed(f"left by pip: {sorted(left)} {packages}")
    seen("pip removes it all")


def check_pipx(system):
    system.run("pipx", "install", system.name)
    system.starts("/root/.local/bin/edge-runner")
    system.starts(f"/root/.local/bin/{system.name}")
    system.run("pipx", "uninstall", system.name)
    system.is_gone("/root/.local/bin/edge-runner", f"/root/.local/bin/{system.name}")
    system.starts("pipx", "run", system.name)
    seen("pipx installs it, removes it, and runs it without an installation")


def check_uv(system):
    system.run("/venv/bin/uv", "tool", "install", system.name)
    system.starts("/root/.local/bin/edge-runner")
    system.starts(f"/root/.local/bin/{system.name}")
    system.run("/venv/bin/uv", "tool", "uninstall", system.name)
    system.is_gone("/root/.local/bin/edge-runner", f"/root/.local/bin/{system.name}")
    system.starts("/venv/bin/uvx", system.name)
    seen("uv installs it as a tool, removes it, and uvx runs it without an installation")


def take_through(title, tarball, wheels, folders, out, report, with_call):
    register(SYSTEMS[title][1])
    run("ip", "link", "set", "lo", "up")
    root = out / "root"
    root.mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=755", "none", root)
    chroot = Chroot(root)
    chroot.unpack(tarball)
    # The installer of a distribution writes it.
    chroot.path("/etc/hosts").write_text("127.0.0.1 localhost\n")
    Index.folders = folders
    index = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=index.serve_forever, daemon=True).start()
    stem = wheels[0].name.split("-")
    system = System(chroot, index, normalized(stem[0]), stem[1])
    before = check_pip(system)
    if with_call:
        check_call(system)
    check_pip_removes(system, before)
    system.run("/venv/bin/pip", "install", "uv")
    check_pipx(system)
    check_uv(system)
    tag = system.wheel.removesuffix(".whl").split("-py3-none-")[1].replace(".", ", ")
    report.write_text(json.dumps([title, system.versions(), tag]))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("dir", type=Path)
    arguments.add_argument("--systems", default=",".join(SYSTEMS))
    arguments.add_argument("--without-call", action="store_true")
    given = arguments.parse_args()
    with_call = not given.without_call
    asked = given.systems.split(",")
    if unknown := [title for title in asked if title not in SYSTEMS]:
        sys.exit(f"wheels.py: there is no system {', '.join(unknown)}: expected some of {', '.join(SYSTEMS)}")
    if os.geteuid() != 0:
        cannot("a system of its own needs root")
    folder = given.dir.resolve()
    rows = []
    for title in asked:
        suite, arch, end = SYSTEMS[title]
        wheels = [path for path in sorted(folder.glob("*.whl")) if path.stem.endswith(end)]
        if not wheels:
            print(f"{title}: {folder} has no wheel for it")
            continue
        tarball, folders = debian(suite, arch, "ca-certificates", *PYTHON), (folder, fetch_tools())
        print(title, flush=True)
        with tempfile.TemporaryDirectory() as work:
            report = Path(work) / "report.json"
            # Mounts below the folder exist only in the child, so removing it is safe.
            code = inside(lambda: take_through(title, tarball, wheels, folders, Path(work), report, with_call), CLONE_NEWNET)
            if code:
                sys.exit(code)
            rows.append(json.loads(report.read_text()))
    if not rows:
        failed(f"{folder} has no wheel for any of {given.systems}")
    print("\n| system | installs by | wheel that was taken | seen |\n|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} | pip, pipx, uv tool, uvx{', a call' if with_call else ''} |")


if __name__ == "__main__":
    main()
