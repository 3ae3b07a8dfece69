#!/usr/bin/env python3
"""Tests `edge-runner update` against a release of its own, which a server on the loopback interface holds.

    tests/release/test_update.py [--binary PATH] [CLASS[.TEST]...]      default: target/debug/edge-runner

Each case runs a copy of the program in a folder of its own, never the file of the build or a link to it; the end of the run checks
that the file of the build is as it was. The programs of the release are those of test_install.py, scripts that print their version.
Services run by a stand-in for `systemctl`, packages are given to one for `dpkg`. Mounts are in namespaces of their own.
"""

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from pathlib import Path

from test_install import TARGETS, VERSION, Files, Release, archive, program

BINARY = Path(__file__).resolve().parents[2] / "target/debug/edge-runner"
INSTALLED = ""  # the version of it
MEBIBYTE = 1024 * 1024
AVAILABLE = 100
# What runs with mounts of its own. Root needs no namespace of users for it.
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-euc"]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Handler(Files):
    """Also redirects what is below `/latest` and `/loop`, and waits before it sends an archive."""

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        for below, location in (("/latest/", f"/release/{name}"), ("/loop/", self.path), ("/away/", f"ftp://127.0.0.1/{name}")):
            if self.path.startswith(below):
                self.send_response(302)
                self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        if name.endswith(".tar.gz"):
            self.server.wanted.set()
            self.server.free.wait()
        super().do_GET()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder)
        self.release = Release(self.folder)
        self.addCleanup(self.release.close)
        server = self.release.server
        server.RequestHandlerClass = Handler
        # Clients that end early are what is tested.
        server.handle_error = lambda *_: None
        server.wanted, server.free = threading.Event(), threading.Event()
        server.free.set()
        self.key = self.release.key()
        self.release.sign()
        self.prefix = self.folder / "prefix"
        self.installed = self.prefix / "bin/edge-runner"
        self.installed.parent.mkdir(parents=True)
        self.reset()
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        self.stand_in("systemctl", "exit 1")

    def reset(self):
        """Installs the program that is tested: a copy."""
        self.installed.unlink(missing_ok=True)
        shutil.copyfile(BINARY, self.installed)
        self.installed.chmod(0o755)
        self.assertEqual(self.installed.stat().st_nlink, 1)

    def stand_in(self, tool, text):
        path = self.tools / tool
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def serve(self, version=VERSION, **programs):
        """Serves another release: these programs by what their targets end with, or those of test_install.py."""
        self.release.make(version)
        for target in TARGETS:
            for end, content in programs.items():
                if re.search(f"{end}[a-z]*$", target):
                    self.release.add(*archive(target, content, version))
        self.release.list()
        self.release.sign()

    def command(self, *words, file=None, url=None, key=None):
        found = [file or self.installed, "update", *words, "--from", url or self.release.url, "--key", key or self.key]
        return [str(word) for word in found]

    def environment(self):
        return {"PATH": f"{self.tools}:{os.environ['PATH']}", "HOME": str(self.folder)}

    def run_update(self, *words, command=None, **more):
        how = {"env": self.environment(), "cwd": "/", "capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": 120}
        user = more.pop("user", None)
        if user:
            how |= {"user": user, "group": user, "extra_groups": []}
        return subprocess.run(command or self.command(*words, **more), **how)

    def files(self):
        return sorted(path.name for path in self.installed.parent.iterdir())

    def installs(self, *words, **how):
        """The update works, and keeps the previous program."""
        done = self.run_update(*words, **how)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.files(), ["edge-runner", "edge-runner.previous"])
        self.assertEqual(digest(self.installed.with_suffix(".previous")), digest(BINARY))
        self.assertEqual(self.installed.stat().st_mode & 0o777, 0o755)
        return done.stdout

    def refuses(self, reason, *words, code=1, **how):
        """The update fails for this reason, and nothing changed."""
        done = self.run_update(*words, **how)
        self.assertEqual(done.returncode, code, done)
        self.assertIn(reason, done.stderr)
        self.assertEqual(self.files(), ["edge-runner"])
        self.assertEqual(digest(self.installed), digest(BINARY))
        return done.stderr

    def asked_for_archives(self):
        return [path for path in self.release.server.asked if path.endswith((".tar.gz", ".deb"))]

    def needs_mounts(self):
        if subprocess.run([*UNSHARE, "mount -t tmpfs none /mnt"], capture_output=True).returncode:
            self.skipTest("this user may not mount in a namespace")

    def in_namespace(self, mounts, *words):
        return self.run_update(command=[*UNSHARE, f'{mounts}\nexec "$@"', "sh", *self.command(*words)])

    def packaged(self):
        """Mounts of a machine whose dpkg has installed the program."""
        listed = self.folder / "list"
        listed.write_text(f"/.\n/usr\n{self.installed}\n")
        return f"mkdir -p /var/lib/dpkg/info\nmount -t tmpfs none /var/lib/dpkg/info\ncp {listed} /var/lib/dpkg/info/edge-runner.list\n"

    def board(self):
        """Mounts of a board that was started from an image."""
        return self.packaged() + "mount -t tmpfs none /usr/local/lib\nmkdir /usr/local/lib/edge-board\n"


class Download(Case):
    def test_a_newer_release_is_installed_and_the_previous_program_kept(self):
        shown = self.installs()
        self.assertIn(self.installed.read_bytes(), [program(target) for target in TARGETS])
        self.assertIn(f"The release is version {VERSION} of 2026-11-28, signed by the key SHA256:", shown)
        self.assertIn(f"Installed version {VERSION} as {self.installed}; the previous one is {self.installed}.previous", shown)
        self.assertIn("No service of systemd runs this program", shown)
        # The previous program is one that runs, and replaces an earlier one.
        again = subprocess.run([f"{self.installed}.previous", "--version"], capture_output=True, text=True, check=True)
        self.assertIn("edge-runner ", again.stdout)
        self.reset()
        self.installs()

    def test_an_installed_release_is_up_to_date(self):
        self.serve(INSTALLED)
        for words in ([], ["--check"], ["--allow-downgrade"]):
            done = self.run_update(*words)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn("there is nothing to do", done.stdout)
        self.assertEqual((self.files(), digest(self.installed)), (["edge-runner"], digest(BINARY)))
        self.assertEqual(self.asked_for_archives(), [])

    def test_a_check_has_an_exit_code_and_changes_nothing(self):
        done = self.run_update("--check")
        self.assertEqual((done.returncode, done.stderr), (AVAILABLE, ""), done)
        self.assertIn(f"version {VERSION} can be: `edge-runner update` installs it as {self.installed}", done.stdout)
        self.assertEqual((self.files(), digest(self.installed)), (["edge-runner"], digest(BINARY)))
        self.assertEqual(self.asked_for_archives(), [])
        self.refuses("did you mean `--check`", "--chek", code=2)
        self.refuses("is that of another key", "--check", key=self.release.key("other"))
        self.serve("0.0.1")
        self.refuses("--allow-downgrade installs it", "--check")

    def test_an_older_release_is_refused_unless_it_is_allowed(self):
        self.serve("0.0.1")
        self.assertIn(f"version {INSTALLED} is installed, and the release is version 0.0.1", self.refuses("--allow-downgrade installs it"))
        self.assertEqual(self.asked_for_archives(), [])
        self.installs("--allow-downgrade")

    def test_another_version_than_the_one_asked_for_is_refused(self):
        self.refuses(f"the release is version {VERSION}, and 9.9.9 was asked for", "--to", "9.9.9")
        self.installs("--to", f"v{VERSION}")

    def test_a_release_of_somebody_else_is_refused(self):
        other = self.release.key("other")
        self.refuses("is that of another key", key=other)
        self.refuses("is no public key of ssh", key="a key")
        self.release.sign("other")
        self.refuses("is that of another key")
        # A list that was changed after it was signed, and agrees with a changed program.
        self.release.sign()
        for target in TARGETS:
            self.release.add(*archive(target, program("of somebody else")))
        self.release.list()
        self.refuses("the signature of SHA256SUMS is wrong")
        self.release.add("SHA256SUMS.sig", b"not one")
        self.refuses("is no signature")
        del self.release.server.files["SHA256SUMS.sig"]
        self.refuses("has no SHA256SUMS.sig (status 404)")
        self.assertEqual(self.asked_for_archives(), [])

    def test_a_signature_for_another_purpose_is_refused(self):
        file = self.folder / "SHA256SUMS"
        file.with_suffix(".sig").unlink()
        subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", self.folder / "key", "-n", "git", file], check=True)
        self.release.add("SHA256SUMS.sig", file.with_suffix(".sig").read_bytes())
        self.refuses("was made for another purpose")

    def test_the_built_in_key_is_used_without_another(self):
        """A build whose list of keys is empty says so; another one does not know the key of this test."""
        command = self.command()[:-2]
        done = self.run_update(command=command)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, "is no public key of ssh|is that of another key")

    def test_an_old_release_under_a_new_version_is_refused(self):
        """A mirror has the archive of an earlier release, or of another target, under the name of this one."""
        names = [name for name in self.release.server.files if name.endswith(".tar.gz")]
        for content in (archive(TARGETS[0], program(TARGETS[0], version="1.0.0"))[1], archive("riscv64", b"")[1]):
            for name in names:
                self.release.server.files[name] = content
            self.refuses("the checksum of edge-runner-")

    def test_a_release_without_a_build_for_this_target_is_refused(self):
        for name in [name for name in self.release.server.files if name.endswith(".tar.gz")]:
            del self.release.server.files[name]
        self.release.list()
        self.release.sign()
        self.refuses("the release has no build for")
        self.refuses("the release has no build for", "--check")

    def test_the_static_program_is_taken_where_the_other_does_not_run(self):
        broken = program("", runs=False)
        self.serve(gnu=broken)
        shown = self.installs()
        if "-gnu" in shown:
            self.assertIn("does not run on this machine: exit status: 127", shown)
        self.assertIn(b"-musl", self.installed.read_bytes())
        self.reset()
        self.installed.with_suffix(".previous").unlink()
        self.serve(gnu=broken, musl=broken)
        self.refuses("does not run on this machine: exit status: 127")
        self.serve(gnu=program("", version="1.0.0"), musl=program("", version="1.0.0"))
        self.refuses("it says that it is `edge-runner 1.0.0")
        self.serve(gnu=b"not a program", musl=b"not a program")
        self.refuses("does not run on this machine")

    def test_a_damaged_archive_is_refused(self):
        names = [name for name in self.release.server.files if name.endswith(".tar.gz")]
        for content in (b"", b"not gzip", b"\x1f\x8b\x08" + bytes(100), archive("other", b"")[1]):
            for name in names:
                self.release.server.files[name] = content
            self.release.list()
            self.release.sign()
            self.refuses("has no program that can be unpacked")

    def test_downloads_that_end_early_or_are_too_long_are_refused(self):
        for name in (".tar.gz", "SHA256SUMS", "SHA256SUMS.sig", "BUILDINFO"):
            self.release.server.cut = name
            self.refuses("sent no valid response")
        self.release.server.cut = None
        long = bytes(64 * MEBIBYTE + 1)
        for name in [name for name in self.release.server.files if name.endswith(".tar.gz")]:
            self.release.server.files[name] = long
        self.refuses("is longer than 67108864 bytes")
        self.release.add("BUILDINFO", bytes(256 * 1024 + 1))
        self.refuses("is longer than 262144 bytes")

    def test_redirects_are_followed_within_limits(self):
        base = self.release.url.removesuffix("/release")
        self.installs(url=f"{base}/latest/download")
        self.reset()
        self.installed.with_suffix(".previous").unlink()
        self.refuses("leads from address to address", url=f"{base}/loop")
        self.refuses("leads to an address that is not allowed", url=f"{base}/away")
        self.refuses("has no SHA256SUMS (status 404)", url=f"{base}/none")

    def test_without_a_network_it_says_so(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            self.refuses("Is this machine online? Nothing was installed", url=url)
            self.refuses("Is this machine online? Nothing was installed", "--check", url=url)

    def test_two_at_once_take_turns(self):
        self.release.server.free.clear()
        first = subprocess.Popen(self.command(), env=self.environment(), cwd="/", stdout=subprocess.DEVNULL)
        try:
            self.assertTrue(self.release.server.wanted.wait(60))
            self.assertIn(f"another update of {self.installed} is running", self.run_update().stderr)
            # A check needs no turn.
            self.assertEqual(self.run_update("--check").returncode, AVAILABLE)
        finally:
            self.release.server.free.set()
        self.assertEqual(first.wait(60), 0)
        self.assertEqual(self.files(), ["edge-runner", "edge-runner.previous"])

    def test_a_kill_at_any_moment_leaves_a_program_that_runs(self):
        # Long enough that writing it takes a part of the time.
        new = {target: program(target) + b"exit\n" + os.urandom(8 * MEBIBYTE) for target in TARGETS}
        self.serve()
        for target in TARGETS:
            self.release.add(*archive(target, new[target]))
        self.release.list()
        self.release.sign()
        began = time.monotonic()
        self.assertEqual(self.run_update().returncode, 0)
        whole = time.monotonic() - began
        seen = set()
        moments = 24
        for moment in range(moments):
            if digest(self.installed) != digest(BINARY):
                self.reset()
            running = subprocess.Popen(self.command(), env=self.environment(), cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(whole * moment / moments)
            running.send_signal(signal.SIGKILL)
            running.wait()
            version = subprocess.run([self.installed, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
            seen.add(version)
            self.assertIn(version, (VERSION, INSTALLED))
            self.assertLessEqual(set(self.files()), {"edge-runner", "edge-runner.previous", ".edge-runner.new", ".edge-runner.old"})
        self.assertIn(INSTALLED, seen)
        # What a killed update left behind does not stop the next one.
        self.reset()
        self.installs()

    def test_a_user_without_the_right_gets_advice(self):
        locked = self.installed.parent
        locked.chmod(0o555)
        user = 65534 if os.geteuid() == 0 else None
        reason = f"this user may not write to {locked}: run it as a user who may, such as by sudo"
        self.refuses(reason, user=user)
        self.assertEqual(self.release.server.asked, [], "nothing is downloaded in vain")
        done = self.run_update("--check", user=user)
        self.assertEqual(done.returncode, AVAILABLE, done)
        self.assertIn(reason, done.stdout)
        locked.chmod(0o755)


class Mounts(Case):
    """Cases that need mounts."""

    def setUp(self):
        super().setUp()
        self.needs_mounts()

    def test_a_read_only_file_system_is_named(self):
        done = self.in_namespace(f"mount --bind {self.prefix} {self.prefix}\nmount -o remount,bind,ro {self.prefix}")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"{self.installed.parent} is on a read-only file system", done.stderr)

    def test_a_full_disk_is_named(self):
        for target in TARGETS:
            self.release.add(*archive(target, program(target) + b"exit\n" + os.urandom(4 * MEBIBYTE)))
        self.release.list()
        self.release.sign()
        size = BINARY.stat().st_size + 2 * MEBIBYTE
        binary, folder = self.folder / "copy", self.installed.parent
        shutil.copyfile(BINARY, binary)
        end = f'\n"$@" || code=$?\nls -A {folder}\ncmp {self.installed} {binary}\nexit $code'
        mounts = f"mount -t tmpfs -o size={size} none {folder}\ncp {binary} {self.installed}\nchmod 755 {self.installed}{end}"
        done = self.in_namespace(mounts)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"the disk with {folder} is full", done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "edge-runner", "nothing is left behind")

    def test_a_debian_package_is_left_to_its_tool(self):
        done = self.in_namespace(self.packaged())
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("installed by a Debian package, so update it by: curl", done.stderr)
        self.assertIn("sudo sh install.sh --deb. Nothing was installed", done.stderr)
        self.assertEqual(self.in_namespace(self.packaged(), "--check").returncode, AVAILABLE)

    def test_a_board_image_gets_the_package(self):
        given = self.folder / "given"
        self.stand_in("dpkg", f'cp "$3" {given}\necho "$1 $2 $DEBIAN_FRONTEND" >{given}.words\nrm {self.installed}\necho new >{self.installed}')
        done = self.in_namespace(self.board(), "--check")
        self.assertEqual((done.returncode, given.exists()), (AVAILABLE, False), done)
        done = self.in_namespace(self.board())
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(given.read_text(), ("amd64", "arm64", "armhf"))
        self.assertEqual(given.with_suffix(".words").read_text(), "--install --force-confold noninteractive\n")
        self.assertEqual(self.files(), ["edge-runner", "edge-runner.previous"])

    def test_a_package_that_fails_leaves_the_previous_program(self):
        self.stand_in("dpkg", f"rm {self.installed}\necho half >{self.installed}\necho 'no room' >&2\nexit 1")
        done = self.in_namespace(self.board())
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("dpkg could not install the package: no room", done.stderr)
        self.assertEqual(digest(self.installed), digest(BINARY))


class OtherTools(Case):
    def left_to(self, tool, command, file=None):
        file = file or self.installed
        done = self.run_update(file=file)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"This program was installed by {tool}, so update it by: {command}", done.stderr)
        self.assertEqual(self.release.server.asked, [])
        done = self.run_update("--check", file=file)
        self.assertEqual(done.returncode, AVAILABLE, done)
        self.assertIn(f"update it by: {command}", done.stdout)
        self.release.server.asked.clear()
        self.assertEqual(digest(file), digest(BINARY))

    def moved(self, path):
        file = self.prefix / path
        file.parent.mkdir(parents=True)
        shutil.move(self.installed, file)
        return file

    def test_pip_npm_cargo_and_builds_are_named(self):
        wheel = self.prefix / "lib/python3.11/site-packages/edge_bot_runner-0.1.0.dist-info"
        wheel.mkdir(parents=True)
        self.left_to("pip", "pip install --upgrade edge-bot-runner")
        # A link to it is the same program.
        link = self.folder / "link"
        link.symlink_to(self.installed)
        self.left_to("pip", "pip install --upgrade edge-bot-runner", link)
        shutil.rmtree(self.prefix / "lib")
        crates = self.prefix / ".crates.toml"
        crates.write_text('[v1]\n"edge-runner 0.1.0 (registry+https://github.com/rust-lang/crates.io-index)" = ["edge-runner"]\n')
        self.left_to("cargo", "cargo install --locked edge-runner")
        crates.write_text('[v1]\n"edge-runner-other 0.1.0 (registry)" = ["other"]\n')
        (self.installed.parent / ".fingerprint").mkdir()
        self.left_to("a build from source", "cargo build --release")
        (self.installed.parent / ".fingerprint").rmdir()
        self.left_to("npm", "npm install edge-bot-runner@latest", self.moved("node_modules/edge-bot-runner-linux-x64/edge-runner"))

    def test_pipx_and_uv_are_named(self):
        for place, command in (("pipx/venvs", "pipx upgrade edge-bot-runner"), ("uv/tools", "uv tool upgrade edge-bot-runner")):
            (self.prefix / place / "edge-bot-runner/lib/python3.12/site-packages/edge_bot_runner-0.1.0.dist-info").mkdir(parents=True)
            file = self.moved(f"{place}/edge-bot-runner/bin/edge-runner")
            self.left_to(place.split("/")[0], command, file)
            self.reset()


class Service(Case):
    """The program runs as a service of a stand-in for systemd."""

    def setUp(self):
        super().setUp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.state = self.folder / "state"
        self.state.mkdir()
        self.starts = self.state / "starts"
        self.stand_in("systemctl", f"""
[ "$1" != --user ] || shift
pid=$(cat {self.state}/pid 2>/dev/null || echo 0)
case $1 in
show)
    printf 'ActiveState=active\\nMainPID=%s\\nExecStart={{ path={self.installed} ; argv[]={self.installed} ; pid=0 }}\\n' $pid
    ;;
restart)
    [ ! -e {self.state}/refuse ] || {{ echo 'Access denied' >&2; exit 4; }}
    echo "$2" >>{self.starts}
    [ $pid = 0 ] || kill $pid 2>/dev/null || true
    while grep -qs '^State:.[^ZX]' /proc/$pid/status; do sleep 0.05; done
    {self.installed} --port {self.port} --rtc-port 0 </dev/null >>{self.state}/log 2>&1 &
    echo $! >{self.state}/pid
    ;;
esac""")
        self.addCleanup(self.stop)
        subprocess.run(["systemctl", "restart", "at first"], env=self.environment(), cwd="/", check=True)
        self.wait_for_answer()
        self.starts.unlink()

    def stop(self):
        try:
            os.kill(int((self.state / "pid").read_text()), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass

    def answers(self):
        try:
            return urllib.request.urlopen(f"{self.url}/livez", timeout=5).status == 200
        except OSError:
            return False

    def wait_for_answer(self):
        deadline = time.monotonic() + 60
        while not self.answers():
            if time.monotonic() > deadline:
                self.fail((self.state / "log").read_text())
            time.sleep(0.1)

    def serve_runner(self, start):
        """Serves programs that start the tested one as a runner, or do something else."""
        runner = self.folder / "runner"
        shutil.copyfile(BINARY, runner)
        runner.chmod(0o755)
        text = f'#!/bin/sh\nif [ "$1" = --version ]; then echo "edge-runner {VERSION}"; exit; fi\n{start.format(runner)}\n'
        self.serve(gnu=text.encode(), musl=text.encode())

    def test_the_service_is_restarted_and_answers(self):
        self.serve_runner('exec {} "$@"')
        before = (self.state / "pid").read_text()
        shown = self.installs("--runner", self.url)
        self.assertIn(f"The service edge-runner.service was restarted, and answers at {self.url}", shown)
        self.assertEqual(self.starts.read_text(), "edge-runner.service\n")
        self.assertNotEqual((self.state / "pid").read_text(), before)
        self.assertTrue(self.answers())

    def test_a_service_that_does_not_come_up_gets_the_previous_program_back(self):
        self.serve_runner("exit 1")
        done = self.run_update("--runner", self.url)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"version {VERSION} does not answer at {self.url} within 30 s after the restart of edge-runner.service", done.stderr)
        self.assertIn(f"Version {INSTALLED} is back, and answers", done.stderr)
        self.assertEqual((self.files(), digest(self.installed)), (["edge-runner"], digest(BINARY)))
        self.assertEqual(self.starts.read_text(), "edge-runner.service\n" * 2)
        self.assertTrue(self.answers())

    def test_a_signal_in_the_wait_brings_the_previous_program_back(self):
        self.serve_runner("exec sleep 1000")
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            with subprocess.Popen(self.command("--runner", self.url), env=self.environment(), cwd="/", text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as update:
                for line in update.stdout:
                    if "Waiting up to 30 s for the answer" in line:
                        break
                update.send_signal(getattr(signal, name))
                _, complaint = update.communicate(timeout=120)
            self.assertEqual(update.returncode, 1, (name, complaint))
            self.assertIn(f"{name} has ended the wait before version {VERSION} answered at {self.url}", complaint)
            self.assertIn(f"Version {INSTALLED} is back, and answers", complaint)
            self.assertEqual((self.files(), digest(self.installed)), (["edge-runner"], digest(BINARY)))
            self.assertTrue(self.answers())

    def test_a_board_whose_package_does_not_answer_gets_the_previous_program_back(self):
        self.needs_mounts()
        silent = f"#!/bin/sh\n[ \"$1\" = --version ] || exit 1\necho edge-runner {VERSION}"
        # As the scripts of the package do, it restarts the service.
        self.stand_in("dpkg", f"rm {self.installed}\ncat >{self.installed} <<'end'\n{silent}\nend\nchmod 755 {self.installed}\n"
                              "systemctl restart edge-runner.service")
        done = self.in_namespace(self.board(), "--runner", self.url)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f"version {VERSION} does not answer at {self.url} within 30 s after the restart of edge-runner.service", done.stderr)
        self.assertIn(f"Version {INSTALLED} is back, and answers", done.stderr)
        self.assertEqual((self.files(), digest(self.installed)), (["edge-runner"], digest(BINARY)))
        self.assertEqual(self.starts.read_text(), "edge-runner.service\n" * 2)
        self.assertTrue(self.answers())

    def test_a_service_that_may_not_be_restarted_gets_the_previous_program_back(self):
        self.serve_runner('exec {} "$@"')
        (self.state / "refuse").touch()
        done = self.run_update("--runner", self.url)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("it was not restarted: Access denied", done.stderr)
        self.assertEqual((self.files(), digest(self.installed)), (["edge-runner"], digest(BINARY)))
        self.assertFalse(self.starts.exists())

    def test_a_service_whose_answer_cannot_be_judged_is_left_alone(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            self.assertIn("--runner URL says where it answers", self.refuses(f"does not answer at {url}", "--runner", url))
        self.assertEqual(self.asked_for_archives(), [])
        self.assertFalse(self.starts.exists())
        done = self.run_update("--check")
        self.assertEqual((done.returncode, self.starts.exists()), (AVAILABLE, False), done)

    def test_a_service_of_another_program_is_not_restarted(self):
        text = (self.tools / "systemctl").read_text().replace(f"path={self.installed} ;", "path=/usr/bin/edge-runner ;")
        (self.tools / "systemctl").write_text(text)
        self.assertIn("No service of systemd runs this program", self.installs())
        self.assertFalse(self.starts.exists())
        # Unless it is named.
        self.reset()
        self.installed.with_suffix(".previous").unlink()
        self.serve_runner('exec {} "$@"')
        self.installs("--service", "kitchen.service", "--runner", self.url)
        self.assertEqual(self.starts.read_text(), "kitchen.service\n")

    def test_a_named_service_has_to_run(self):
        self.stand_in("systemctl", "echo ActiveState=inactive")
        self.refuses("no such service is running", "--service", "kitchen.service")


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--binary"]:
        BINARY = Path(words[1]).resolve()
        words = words[2:]
    before = (digest(BINARY), BINARY.stat().st_ino, BINARY.stat().st_nlink, BINARY.stat().st_mtime_ns)
    INSTALLED = subprocess.run([BINARY, "--version"], cwd="/", capture_output=True, text=True, check=True).stdout.split()[1]
    ran = unittest.main(argv=[sys.argv[0], *words], exit=False)
    after = (digest(BINARY), BINARY.stat().st_ino, BINARY.stat().st_nlink, BINARY.stat().st_mtime_ns)
    if before != after:
        sys.exit(f"the tests changed {BINARY}")
    sys.exit(not ran.result.wasSuccessful())
