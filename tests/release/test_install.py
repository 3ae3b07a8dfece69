#!/usr/bin/env python3
"""Tests boards/install.sh against a release of its own, which a server on the loopback interface holds.

    tests/release/test_install.py

The programs of that release are scripts that print their target. The script runs with a PATH that has only what it says that
it needs, so that another need shows, and with stand-ins for `uname`, `getconf`, `id` and `apt-get` where a test plays another
machine. In each of the shells that are installed: sh, and those of bash and busybox.
"""

import hashlib
import http.server
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
from pathlib import Path

# Of all stages that count skips.
sys.path.append(str(Path(__file__).resolve().parents[1] / "check"))
from skips import lacks  # noqa: E402

SCRIPT = Path(__file__).resolve().parents[2] / "boards/install.sh"
VERSION = "9.8.7"
TARGETS = [
    "x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl", "aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl",
    "armv7-unknown-linux-gnueabihf", "armv7-unknown-linux-musleabihf", "arm-unknown-linux-musleabihf",
]  # fmt: skip
# What the script may use, but for the programs that download, sign and look at the machine.
NEEDS = "sed grep awk tar gzip mktemp rm mkdir cp mv chmod head cut cat sha256sum sh".split()
SHELLS = [shell for shell in (["sh"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(shell[0])]


def program(target, runs=True, version=VERSION):
    """The program of a target."""
    text = f'#!/bin/sh\necho "edge-runner {version} {target}"\n' if runs else "#!/bin/sh\nexit 127\n"
    return text.encode()


def archive(target, content, version=VERSION):
    name = f"edge-runner-{version}-{target}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo(f"{name}/edge-runner")
        info.size, info.mode = len(content), 0o755
        tar.addfile(info, io.BytesIO(content))
    return f"{name}.tar.gz", packed.getvalue()


class Files(http.server.BaseHTTPRequestHandler):
    """Serves the release at every path that ends with the name of one of its files."""

    def do_GET(self):
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path.rsplit("/", 1)[1])
        if content is None or "/none/" in self.path:
            self.send_error(404)
            return
        self.send_response(200)
        cut = self.path.endswith(self.server.cut) if self.server.cut else False
        self.send_header("Content-Length", str(len(content) + (1 if cut else 0)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Release:
    """A release, its key and its server."""

    def __init__(self, folder):
        self.folder = folder
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
        self.server.files, self.server.asked, self.server.cut = {}, [], None
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/release"
        self.make(VERSION)

    def make(self, version):
        """Every file of this version, in place of those of another."""
        self.server.files.clear()
        for target in TARGETS:
            self.add(*archive(target, program(target, version=version), version))
        for debian in ("amd64", "arm64", "armhf"):
            self.add(f"edge-runner_{version}_{debian}.deb", debian.encode())
        self.add("BUILDINFO", f"edge-runner {version}\ndate 2026-11-28\ncommit 0123\n".encode())
        self.list()

    def add(self, name, content):
        self.server.files[name] = content

    def list(self):
        names = sorted(name for name in self.server.files if not name.startswith("SHA256SUMS"))
        lines = [f"{hashlib.sha256(self.server.files[name]).hexdigest()}  {name}\n" for name in names]
        self.add("SHA256SUMS", "".join(lines).encode())

    def key(self, name="key"):
        """The public half of a new key."""
        private = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a maintainer", "-f", private], check=True)
        return private.with_suffix(".pub").read_text().strip()

    def sign(self, name="key"):
        file = self.folder / "SHA256SUMS"
        file.write_bytes(self.server.files["SHA256SUMS"])
        signature = self.folder / "SHA256SUMS.sig"
        signature.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", self.folder / name, "-n", "edge-runner", file], check=True)
        self.add(signature.name, signature.read_bytes())

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder)
        self.release = Release(self.folder)
        self.addCleanup(self.release.close)
        self.prefix = self.folder / "prefix"
        self.installed = self.prefix / "bin/edge-runner"
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        for tool in [*NEEDS, "curl", "ssh-keygen", "id"]:
            self.link(tool)
        self.machine()

    # --- The machine that the script meets

    def link(self, tool):
        (self.tools / tool).symlink_to(shutil.which(tool) or self.fail(f"{tool} is not installed"))

    def stand_in(self, tool, text):
        path = self.tools / tool
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def machine(self, hardware="x86_64", system="Linux", bits=64, glibc="2.36"):
        self.stand_in("uname", f'case $1 in -m) echo {hardware} ;; *) echo {system} ;; esac')
        known = f"GNU_LIBC_VERSION) echo 'glibc {glibc}' ;;" if glibc else ""
        self.stand_in("getconf", f"case $1 in LONG_BIT) echo {bits} ;; {known} *) exit 1 ;; esac")

    def run_script(self, *words, shell=("sh",), script=SCRIPT, user=None, home=None, prefix=True, url=None):
        path = shutil.which(shell[0])
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        temporary.chmod(0o1777)
        words = [*words, *(["--prefix", self.prefix] if prefix else [])]
        words += ["--from", url or self.release.url] if url != "" else []
        done = subprocess.run(
            [path, *shell[1:], script, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/",
            env={"PATH": str(self.tools), "HOME": str(home or self.folder), "TMPDIR": str(temporary)},
            **({"user": user, "group": user, "extra_groups": []} if user else {}),
        )  # fmt: skip
        self.assertEqual(list(temporary.iterdir()), [], "files are left behind")
        return done

    def installs(self, target, *words, **how):
        done = self.run_script(*words, **how)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.installed.read_bytes(), program(target))
        self.assertEqual([path.name for path in self.installed.parent.iterdir()], ["edge-runner"])
        return done.stdout

    def refuses(self, reason, *words, code=1, **how):
        """The script fails for this reason, and a program of earlier stays as it was."""
        self.installed.parent.mkdir(parents=True, exist_ok=True)
        self.installed.write_text("the program of earlier")
        done = self.run_script(*words, **how)
        self.assertEqual(done.returncode, code, done)
        self.assertIn(reason, done.stderr)
        self.assertEqual(self.installed.read_text(), "the program of earlier")
        self.assertEqual([path.name for path in self.installed.parent.iterdir()], ["edge-runner"])

    # --- Success

    def test_installs_the_program_in_every_shell(self):
        for shell in SHELLS:
            with self.subTest(shell=shell):
                shutil.rmtree(self.prefix, ignore_errors=True)
                shown = self.installs("x86_64-unknown-linux-gnu", shell=shell)
                self.assertEqual(self.installed.stat().st_mode & 0o777, 0o755)
                self.assertIn(f"The release is version {VERSION} of 2026-11-28.", shown)
                self.assertIn(f"Installed {self.installed}: edge-runner {VERSION}", shown)
                self.assertIn(f"{self.installed.parent} is not in PATH", shown)
                self.assertIn("No key is known", shown)

    def test_replaces_a_program_of_earlier(self):
        self.installed.parent.mkdir(parents=True)
        self.installed.write_text("the program of earlier")
        self.installs("x86_64-unknown-linux-gnu")

    def test_picks_the_build_for_the_machine(self):
        for machine, target in [
            ({"hardware": "x86_64"}, "x86_64-unknown-linux-gnu"),
            ({"hardware": "x86_64", "glibc": "2.34"}, "x86_64-unknown-linux-gnu"),
            ({"hardware": "x86_64", "glibc": "2.31"}, "x86_64-unknown-linux-musl"),
            ({"hardware": "x86_64", "glibc": "3.0"}, "x86_64-unknown-linux-gnu"),
            ({"hardware": "x86_64", "glibc": None}, "x86_64-unknown-linux-musl"),
            ({"hardware": "x86_64", "bits": 32}, "x86_64-unknown-linux-musl"),
            ({"hardware": "aarch64"}, "aarch64-unknown-linux-gnu"),
            ({"hardware": "aarch64", "glibc": None}, "aarch64-unknown-linux-musl"),
            ({"hardware": "aarch64", "bits": 32}, "armv7-unknown-linux-gnueabihf"),
            ({"hardware": "armv7l", "bits": 32}, "armv7-unknown-linux-gnueabihf"),
            ({"hardware": "armv7l", "bits": 32, "glibc": None}, "armv7-unknown-linux-musleabihf"),
            ({"hardware": "armv6l", "bits": 32}, "arm-unknown-linux-musleabihf"),
        ]:
            with self.subTest(machine=machine):
                self.machine(**machine)
                self.installs(target)

    def test_the_static_build_is_taken_on_demand_and_where_the_other_does_not_run(self):
        self.installs("x86_64-unknown-linux-musl", "--static")
        self.release.add(*archive("x86_64-unknown-linux-gnu", program("", runs=False)))
        self.release.list()
        self.assertIn("trying the static one", self.installs("x86_64-unknown-linux-musl"))
        self.release.add(*archive("x86_64-unknown-linux-musl", program("", runs=False)))
        self.release.list()
        self.refuses("does not run on this machine. Nothing was installed")

    def test_wget_serves_where_curl_is_missing(self):
        wgets = [["wget"]] if shutil.which("wget") else []
        wgets += [["busybox", "wget"]] if shutil.which("busybox") else []
        if not wgets:
            lacks(self, "wget is not installed: apt-get install wget")
        (self.tools / "curl").unlink()
        for wget in wgets:
            with self.subTest(wget=wget):
                self.stand_in("wget", f'exec {shutil.which(wget[0])} {" ".join(wget[1:])} "$@"')
                self.installs("x86_64-unknown-linux-gnu")
                self.refuses("there is no such release", url=f"{self.release.url}/none/")

    def test_a_dry_run_verifies_and_installs_nothing(self):
        done = self.run_script("--dry-run")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"x86_64-unknown-linux-gnu.tar.gz is intact, and would be installed as {self.installed}", done.stdout)
        self.assertFalse(self.prefix.exists())

    def test_asks_for_the_latest_release_or_for_a_version(self):
        copy = self.folder / "install.sh"
        copy.write_text(SCRIPT.read_text().replace("release_url='https://github.com/edge-runner/edge-runner/releases'", f"release_url='{self.release.url}'"))
        self.installs("x86_64-unknown-linux-gnu", script=copy, url="")
        self.assertEqual(self.release.server.asked[0], "/release/latest/download/SHA256SUMS")
        self.release.server.asked.clear()
        self.installs("x86_64-unknown-linux-gnu", "--version", f"v{VERSION}", script=copy, url="")
        self.assertEqual(self.release.server.asked[0], f"/release/download/v{VERSION}/SHA256SUMS")

    # --- Signatures

    def test_a_signature_of_the_right_key_is_accepted(self):
        key = self.release.key()
        self.release.sign()
        for how in (key, self.folder / "key.pub"):
            self.assertIn("The release is signed: ED25519 key SHA256:", self.installs("x86_64-unknown-linux-gnu", "--key", how))
        # Two keys, as when one replaces the other.
        self.installs("x86_64-unknown-linux-gnu", "--key", f"{self.release.key('next')}\n{key}")

    def test_a_published_copy_has_the_key(self):
        copy = self.folder / "install.sh"
        kind, body = self.release.key().split()[:2]
        copy.write_text(SCRIPT.read_text().replace("release_key=''", f"release_key='{kind} {body}'"))
        self.release.sign()
        self.assertIn("The release is signed", self.installs("x86_64-unknown-linux-gnu", script=copy))
        self.release.list()
        self.release.add("SHA256SUMS", self.release.server.files["SHA256SUMS"] + b"\n")
        self.refuses("the signature of SHA256SUMS is wrong", script=copy)

    def test_a_wrong_signature_is_refused(self):
        key = self.release.key()
        other = self.release.key("other")
        self.release.sign("other")
        self.refuses("the signature of SHA256SUMS is wrong", "--key", key)
        self.installs("x86_64-unknown-linux-gnu", "--key", other)
        # The list is changed after it was signed, and agrees with the changed archive.
        self.release.add(*archive("x86_64-unknown-linux-gnu", program("of somebody else")))
        self.release.list()
        self.refuses("the signature of SHA256SUMS is wrong", "--key", other)
        del self.release.server.files["SHA256SUMS.sig"]
        self.refuses("has no SHA256SUMS.sig, and releases are signed", "--key", key)
        self.refuses("the key is no public key of ssh", "--key", "a key")

    def test_without_ssh_keygen_a_signed_release_is_refused_unless_the_user_says_so(self):
        key = self.release.key()
        self.release.sign()
        (self.tools / "ssh-keygen").unlink()
        self.refuses("ssh-keygen is needed", "--key", key)
        self.assertIn("is not verified", self.installs("x86_64-unknown-linux-gnu", "--key", key, "--unsigned"))

    def test_a_signature_for_another_purpose_is_refused(self):
        key = self.release.key()
        file = self.folder / "SHA256SUMS"
        file.write_bytes(self.release.server.files["SHA256SUMS"])
        subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", self.folder / "key", "-n", "git", file], check=True)
        self.release.add("SHA256SUMS.sig", (self.folder / "SHA256SUMS.sig").read_bytes())
        self.refuses("the signature of SHA256SUMS is wrong", "--key", key)

    # --- Versions

    def earlier(self, version):
        """A program of this version is installed."""
        self.installed.parent.mkdir(parents=True, exist_ok=True)
        self.installed.write_bytes(program("of earlier", version=version))
        self.installed.chmod(0o755)

    def test_another_release_under_the_name_of_the_version_is_refused(self):
        key = self.release.key()
        self.release.make("1.0.0")
        self.release.sign()
        self.refuses("has version 1.0.0, and 2.0.0 was asked for. Nothing was installed", "--version", "2.0.0", "--key", key)
        # A list cannot name a file of another version than its own.
        self.release.make("2.0.0")
        old = archive("x86_64-unknown-linux-gnu", program("", version="1.0.0"), "1.0.0")
        del self.release.server.files["edge-runner-2.0.0-x86_64-unknown-linux-gnu.tar.gz"]
        self.release.add(*old)
        self.release.list()
        self.refuses("the release has no build for x86_64-unknown-linux-gnu")

    def test_an_older_release_than_the_installed_one_is_refused(self):
        key = self.release.key()
        self.release.sign()
        # A date and a checksum do not count: only that the version is older.
        for installed, is_refused in [
            ("9.8.8", True), ("9.10.0", True), ("10.0.0", True), ("9.8.8-rc.1", True), ("9.8.7.1", True),
            (VERSION, False), ("9.8.7-rc.1", False), ("9.8.7-1", False), ("9.7.10", False), ("9.8.7+build", False), ("0.10.0", False),
        ]:  # fmt: skip
            for shell in SHELLS:
                with self.subTest(installed=installed, shell=shell):
                    self.earlier(installed)
                    done = self.run_script("--key", key, shell=shell)
                    self.assertEqual(done.returncode, 1 if is_refused else 0, done)
                    kept = program("of earlier", version=installed)
                    self.assertEqual(self.installed.read_bytes() == kept, is_refused)
                    if is_refused:
                        self.assertIn(f"version {installed} is installed, and the release is version {VERSION}", done.stderr)
        self.earlier("10.0.0")
        self.installs("x86_64-unknown-linux-gnu", "--key", key, "--allow-downgrade")

    def test_versions_before_a_release_have_an_order(self):
        for older, newer in [("1.0.0-alpha", "1.0.0-alpha.1"), ("1.0.0-alpha.9", "1.0.0-alpha.10"), ("1.0.0-2", "1.0.0-alpha"), ("1.0.0-beta", "1.0.0-rc")]:
            for released, installed in [(older, newer), (newer, older)]:
                with self.subTest(released=released, installed=installed):
                    self.release.make(released)
                    self.earlier(installed)
                    self.assertEqual(self.run_script().returncode, 1 if released == older else 0)

    def test_an_older_package_than_the_installed_one_is_refused(self):
        given = self.folder / "given"
        self.stand_in("dpkg", "echo amd64")
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", f'echo "$*" >{given}')
        for state, is_refused in [("installed 10.0.0", True), (f"installed {VERSION}", False), ("config-files 10.0.0", False)]:
            with self.subTest(state=state):
                given.unlink(missing_ok=True)
                self.stand_in("dpkg-query", f"printf '%s' '{state}'")
                done = self.run_script("--deb")
                self.assertEqual((done.returncode, given.exists()), (1, False) if is_refused else (0, True), done)
        self.stand_in("dpkg-query", "printf 'installed 10.0.0'")
        self.assertEqual(self.run_script("--deb", "--allow-downgrade").returncode, 0)
        self.assertIn("install -y --allow-downgrades /", given.read_text())

    def test_a_release_that_says_no_version_is_refused(self):
        for text in ("", f"edge-runner {VERSION}\n", "edge-runner\ndate 2026-11-28\n", "date 2026-11-28\n"):
            self.release.add("BUILDINFO", text.encode())
            self.release.list()
            self.refuses("BUILDINFO says no version and date")
        self.release.add("BUILDINFO", f"edge-runner {VERSION}\ndate 2026-11-29\n".encode())
        self.refuses("the checksum of BUILDINFO is")
        del self.release.server.files["BUILDINFO"]
        self.release.list()
        self.refuses("SHA256SUMS has no BUILDINFO")

    # --- Failures

    def test_offline_says_so(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            for shell in SHELLS:
                self.refuses("cannot be reached. Is this machine online? Nothing was installed", url=url, shell=shell)

    def test_a_missing_release_says_so(self):
        self.refuses("there is no such release", url=f"{self.release.url}/none/")

    def test_a_wrong_checksum_is_refused(self):
        name, content = archive("x86_64-unknown-linux-gnu", program("of somebody else"))
        self.release.add(name, content)
        for shell in SHELLS:
            self.refuses(f"the checksum of {name} is {hashlib.sha256(content).hexdigest()}", shell=shell)

    def test_a_download_that_ends_early_is_refused(self):
        self.release.server.cut = ".tar.gz"
        self.refuses("cannot be reached")

    def test_a_listed_file_that_is_missing_is_refused(self):
        del self.release.server.files[archive("x86_64-unknown-linux-gnu", b"")[0]]
        self.refuses("is missing, and SHA256SUMS names it")

    def test_a_release_without_a_build_for_the_machine_is_refused(self):
        del self.release.server.files[archive("x86_64-unknown-linux-gnu", b"")[0]]
        self.release.list()
        self.refuses("the release has no build for x86_64-unknown-linux-gnu")

    def test_other_machines_and_systems_are_refused(self):
        self.machine(hardware="riscv64")
        self.refuses("there is no build for `riscv64`")
        self.machine(hardware="i686", bits=32)
        self.refuses("there is no build for `i686`")
        self.machine(system="Darwin", hardware="arm64")
        self.refuses("releases have builds for Linux, and this is macOS. The code type-checks for macOS, and was never run there")
        self.machine(system="FreeBSD", hardware="amd64")
        self.refuses("releases have builds for Linux, and this is FreeBSD, for which the code was never built")

    def test_missing_tools_are_named(self):
        (self.tools / "curl").unlink()
        self.refuses("curl or wget is needed")
        self.link("curl")
        (self.tools / "sha256sum").unlink()
        self.refuses("sha256sum, shasum or openssl is needed")

    def test_wrong_usage_exits_with_2(self):
        self.refuses("there is no option `--no-such`", "--no-such", code=2)
        self.refuses("`1/2` is no version", "--version", "1/2", code=2)
        self.refuses("is no URL", url="file:///etc", code=2)
        done = self.run_script("--from", prefix=False, url="")
        self.assertEqual(done.returncode, 2)

    def test_a_script_that_arrives_in_part_does_nothing(self):
        text = SCRIPT.read_bytes()
        part = self.folder / "part.sh"
        for bytes_kept in range(0, len(text) - len(b'main "$@"\n'), 97):
            part.write_bytes(text[:bytes_kept])
            subprocess.run(["sh", part, "--from", self.release.url], capture_output=True, env={"PATH": str(self.tools), "HOME": str(self.folder)})
        self.assertEqual(self.release.server.asked, [])

    # --- Users

    def test_without_root_it_installs_into_the_home_folder(self):
        home = self.folder / "home"
        home.mkdir()
        user = None
        if os.geteuid() == 0:
            user = 65534
            os.chown(home, user, user)
        else:
            self.stand_in("id", "echo 1000")
        done = self.run_script(prefix=False, home=home, user=user)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual((home / ".local/bin/edge-runner").read_bytes(), program("x86_64-unknown-linux-gnu"))

    def test_a_folder_that_is_not_writable_is_named(self):
        locked = self.folder / "locked"
        (locked / "bin").mkdir(parents=True)
        (locked / "bin").chmod(0o555)
        user = 65534 if os.geteuid() == 0 else None
        done = self.run_script("--prefix", locked, prefix=False, user=user)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"{locked}/bin is not writable: run this as root, or choose another folder with --prefix", done.stderr)
        self.assertEqual(list((locked / "bin").iterdir()), [])
        self.assertEqual(self.release.server.asked, ["/release/SHA256SUMS", "/release/BUILDINFO"], "the program is not downloaded in vain")

    # --- The package

    def test_the_package_is_verified_and_given_to_apt(self):
        given = self.folder / "given"
        self.stand_in("dpkg", "echo armhf")
        self.stand_in("id", "echo 0")
        self.stand_in("apt-get", f'for last in "$@"; do :; done; cat "$last" >{given}; echo "$*" >>{given}')
        self.machine(hardware="aarch64", bits=32)
        done = self.run_script("--deb")
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(given.read_text(), rf"^armhfinstall -y /\S+/edge-runner_{VERSION}_armhf.deb\n$")
        self.assertFalse(self.prefix.exists())
        given.unlink()
        self.release.add(f"edge-runner_{VERSION}_armhf.deb", b"of somebody else")
        done = self.run_script("--deb")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("the checksum of edge-runner_", done.stderr)
        self.assertFalse(given.exists())

    def test_the_package_needs_root_and_debian(self):
        self.stand_in("id", "echo 1000")
        self.refuses("this is no Debian", "--deb")
        self.stand_in("dpkg", "echo amd64")
        self.refuses("a package needs root", "--deb")
        self.stand_in("dpkg", "echo riscv64")
        self.refuses("the release has no package for riscv64", "--deb")
        # Raspberry Pi OS calls ARMv6 `armhf`, and the package is for ARMv7.
        self.stand_in("dpkg", "echo armhf")
        self.machine(hardware="armv6l", bits=32)
        self.refuses("there is no package for this machine", "--deb")


if __name__ == "__main__":
    unittest.main()
