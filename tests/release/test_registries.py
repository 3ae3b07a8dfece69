#!/usr/bin/env python3
"""Tests boards/release.d/wheel.py and npm.py with stand-ins for programs: what is in the packages, that two runs give the same bytes,
and that pip and npm install one that works.

    tests/release/test_registries.py

In: a C compiler, for a program of this machine; npm, if it is there; no network.
"""

import base64
import csv
import email
import gzip
import hashlib
import importlib.util
import io
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

# Of all stages that count skips.
sys.path.append(str(Path(__file__).resolve().parents[1] / "check"))
from skips import lacks  # noqa: E402

SCRIPTS = Path(__file__).resolve().parents[2] / "boards/release.d"
VERSION = "9.8.7"
NAME = "edge-bot-runner"
# Prints its arguments, and ends with their number; with `wait` by SIGTERM, which it says.
PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    sigset_t set;
    int caught;
    for (int at = 1; at < count; at++) printf("%s\n", words[at]);
    fflush(stdout);
    if (count < 2 || strcmp(words[1], "wait")) return count - 1;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, 0);
    printf("waits\n");
    fflush(stdout);
    sigwait(&set, &caught);
    printf("caught %d\n", caught);
    return 7;
}
"""
STATIC = {
    "x86_64-unknown-linux-musl": (64, 62, ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"]),
    "aarch64-unknown-linux-musl": (64, 183, ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"]),
    "armv7-unknown-linux-musleabihf": (32, 40, ["manylinux_2_17_armv7l", "manylinux2014_armv7l", "musllinux_1_1_armv7l"]),
    "arm-unknown-linux-musleabihf": (32, 40, ["linux_armv6l"]),
}


def program_file(bits, machine, interpreter=False):
    """An ELF header and one program header, which no machine runs."""
    wide = bits == 64
    head = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9) + struct.pack("<HHI", 2, machine, 1)
    address = "QQQ" if wide else "III"
    start, size = (64, 56) if wide else (52, 32)
    head += struct.pack(f"<{address}IHHHHHH", 0, start, 0, 0, start, size, 1, 0, 0, 0)
    return head + struct.pack("<I", 3 if interpreter else 1) + bytes(size - 4)


@unittest.skipUnless(sys.platform == "linux", "the packages are for Linux")
class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = Path(cls.folder.name)
        cls.notices = cls.root / "THIRD-PARTY.txt"
        cls.notices.write_text("licences of others\n")
        cls.programs = {}
        for target, (bits, machine, _) in STATIC.items():
            cls.programs[target] = cls.root / target
            cls.programs[target].write_bytes(program_file(bits, machine))
        cls.own_target = f"{platform.machine()}-unknown-linux-gnu"
        cls.own = cls.root / "own"
        subprocess.run(["cc", "-x", "c", "-", "-o", cls.own], input=PROGRAM, text=True, check=True)
        cls.packed = cls.root / "packed"
        cls.write("wheel.py", cls.packed)
        cls.write("npm.py", cls.packed)

    @classmethod
    def write(cls, script, out, programs=None, version=VERSION):
        out.mkdir(exist_ok=True)
        pairs = [f"{target}={path}" for target, path in (programs or cls.programs).items()]
        command = [sys.executable, SCRIPTS / script, "--version", version, "--notices", cls.notices, "--out", out, *pairs]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=programs is None)

    def test_the_same_input_gives_the_same_bytes(self):
        for script in ("wheel.py", "npm.py"):
            self.write(script, self.root / "again")
        names = sorted(path.name for path in self.packed.iterdir())
        self.assertEqual(names, sorted(path.name for path in (self.root / "again").iterdir()))
        self.assertEqual(len(names), 8)
        for name in names:
            self.assertEqual((self.packed / name).read_bytes(), (self.root / "again" / name).read_bytes(), name)

    def test_a_wheel_has_the_tags_of_its_processor(self):
        for target, (*_, tags) in STATIC.items():
            name = f"edge_bot_runner-{VERSION}-py3-none-{'.'.join(tags)}.whl"
            with self.subTest(target), zipfile.ZipFile(self.packed / name) as wheel:
                about = email.message_from_bytes(wheel.read(f"edge_bot_runner-{VERSION}.dist-info/WHEEL"))
                self.assertEqual(about.get_all("Tag"), [f"py3-none-{tag}" for tag in tags])
                self.assertEqual(about["Root-Is-Purelib"], "false")
                script = wheel.getinfo(f"edge_bot_runner-{VERSION}.data/scripts/edge-runner")
                self.assertEqual(wheel.read(script), self.programs[target].read_bytes())

    def test_record_lists_every_file_with_its_hash_and_the_program_alone_is_executable(self):
        for path in self.packed.glob("*.whl"):
            with self.subTest(path.name), zipfile.ZipFile(path) as wheel:
                record = f"edge_bot_runner-{VERSION}.dist-info/RECORD"
                rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(wheel.read(record).decode()))}
                self.assertEqual(set(rows), set(wheel.namelist()))
                self.assertEqual(rows.pop(record), ("", ""))
                for name, (digest, size) in rows.items():
                    found = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, size), (f"sha256={found}", str(wheel.getinfo(name).file_size)), name)
                for entry in wheel.infolist():
                    mode = 0o100755 if entry.filename.endswith("/scripts/edge-runner") else 0o100644
                    self.assertEqual((entry.external_attr >> 16, entry.date_time), (mode, (2026, 9, 21, 14, 13, 20)), entry.filename)
                about = email.message_from_bytes(wheel.read(record.replace("RECORD", "METADATA")))
                self.assertEqual((about["Name"], about["Version"], about["Requires-Dist"]), (NAME, VERSION, None))
                self.assertIn(f"pip install {NAME}", about.get_payload())
                for licence in about.get_all("License-File"):
                    self.assertIn(record.replace("RECORD", f"licenses/{licence}"), rows)
                self.assertIn("edge_runner/py.typed", rows)

    def test_versions_before_a_release_have_the_form_of_the_index(self):
        out = self.root / "before"
        self.assertEqual(self.write("wheel.py", out, self.programs, "1.0.0-rc.2").returncode, 0)
        self.assertTrue(all("-1.0.0rc2-" in path.name for path in out.iterdir()))
        refused = self.write("wheel.py", out, self.programs, "1.0.0-next")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("expected X.Y.Z", refused.stderr)

    def test_a_program_for_another_target_is_refused(self):
        dynamic, text = self.root / "dynamic", self.root / "text"
        dynamic.write_bytes(program_file(64, 62, interpreter=True))
        text.write_text("#!/bin/sh\n")
        musl = "x86_64-unknown-linux-musl"
        for target, path, why in [
            ("aarch64-unknown-linux-musl", self.programs[musl], "another processor"),
            (musl, self.programs["arm-unknown-linux-musleabihf"], "another processor"),
            (musl, dynamic, "dynamic"),
            ("x86_64-unknown-linux-gnu", self.programs[musl], "static"),
            (musl, text, "no program"),
        ]:
            for script in ("wheel.py", "npm.py"):
                refused = self.write(script, self.root / "refused", {target: path})
                self.assertEqual(refused.returncode, 1, refused.stdout)
                self.assertIn(why, refused.stderr)
                self.assertNotIn("Traceback", refused.stderr)
        self.assertEqual(list((self.root / "refused").iterdir()), [])

    def test_a_program_with_packed_relocations_needs_the_glibc_that_reads_them(self):
        packed = self.root / "packed-relocations"
        packed.write_bytes(program_file(64, 62, interpreter=True) + b"\0GLIBC_2.34\0GLIBC_ABI_DT_RELR\0")
        written = self.write("wheel.py", self.root / "packed-wheel", {"x86_64-unknown-linux-gnu": packed})
        self.assertIn("-manylinux_2_36_x86_64", written.stdout)

    def test_pip_installs_a_wheel_that_runs(self):
        out, home = self.root / "own-wheel", self.root / "environment"
        written = self.write("wheel.py", out, {self.own_target: self.own})
        self.assertEqual(written.returncode, 0, written.stderr)
        self.assertRegex(written.stdout, r"-manylinux_2_\d+_")
        if importlib.util.find_spec("ensurepip") is None:
            lacks(self, "pip in an environment of its own: apt-get install python3-venv")
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links", out, NAME]
        subprocess.run(pip, check=True)
        for command in ([home / "bin/edge-runner"], [home / "bin/python", "-m", "edge_runner"], [home / f"bin/{NAME}"]):
            ran = subprocess.run([*command, "a b", "-c"], stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual((ran.stdout, ran.returncode), ("a b\n-c\n", 2), command)
        code = "import edge_runner; print(edge_runner.program())"
        found = subprocess.run([home / "bin/python", "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(Path(found.strip()), home / "bin/edge-runner")
        (home / "bin/edge-runner").unlink()
        missing = subprocess.run([home / "bin/python", "-c", code], stderr=subprocess.PIPE, text=True, check=False)
        self.assertIn("install the package again", missing.stderr)

    def test_a_package_of_npm_is_for_one_processor(self):
        names = {"x64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl", "arm": "armv7-unknown-linux-musleabihf"}
        for processor, target in names.items():
            with self.subTest(processor), tarfile.open(self.packed / f"{NAME}-linux-{processor}-{VERSION}.tgz") as tar:
                about = json.load(tar.extractfile("package/package.json"))
                self.assertEqual((about["os"], about["cpu"], about["version"]), (["linux"], [processor], VERSION))
                self.assertEqual(tar.extractfile("package/edge-runner").read(), self.programs[target].read_bytes())
                modes = {member.name: member.mode for member in tar if member.mode != 0o644}
                self.assertEqual(modes, {"package/edge-runner": 0o755})
        path = self.packed / f"{NAME}-{VERSION}.tgz"
        self.assertEqual(gzip.decompress(path.read_bytes())[257:262], b"ustar")
        with tarfile.open(path) as tar:
            about = json.load(tar.extractfile("package/package.json"))
        self.assertEqual(about["optionalDependencies"], {f"{NAME}-linux-{processor}": VERSION for processor in names})
        self.assertEqual(set(about["bin"]), {"edge-runner", NAME})

    def is_own(self, path):
        """Whether this is the package for the processor of this machine."""
        processor = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "arm")
        return path.name.startswith(f"{NAME}-linux-{processor}-")

    def test_npm_installs_packages_that_run(self):
        if not shutil.which("npm"):
            lacks(self, "npm is not installed: apt-get install npm")
        out, home = self.root / "own-npm", self.root / "project"
        # Those of other processors are in no registry either, and npm goes on without them.
        others = {target: path for target, path in self.programs.items() if target.split("-")[0] != platform.machine()}
        written = self.write("npm.py", out, {self.own_target: self.own, **others})
        self.assertEqual(written.returncode, 0, written.stderr)
        home.mkdir()
        (home / "package.json").write_text('{"private": true}\n')
        # `npm_` variables are those of an npm that runs this test.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("npm_")}
        environment |= {"npm_config_cache": str(self.root / "cache"), "npm_config_offline": "true", "npm_config_audit": "false"}
        archives = [out / f"{NAME}-{VERSION}.tgz", *(path for path in out.iterdir() if self.is_own(path))]
        self.assertEqual(len(archives), 2)
        npm = subprocess.run(["npm", "install", *archives], cwd=home, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(npm.returncode, 0, npm.stderr)
        command = home / "node_modules/.bin/edge-runner"
        ran = subprocess.run([command, "a b", "-c"], stdout=subprocess.PIPE, text=True, check=False)
        self.assertEqual((ran.stdout, ran.returncode), ("a b\n-c\n", 2))
        for name in ("edge-runner", NAME):
            ran = subprocess.run(["npx", name, "a"], cwd=home, env=environment, stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual((ran.stdout, ran.returncode), ("a\n", 1))
        waiting = subprocess.Popen([command, "wait"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.assertEqual([waiting.stdout.readline() for _ in range(2)], ["wait\n", "waits\n"])
        waiting.send_signal(signal.SIGTERM)
        self.assertEqual((waiting.communicate()[0], waiting.returncode), (f"caught {int(signal.SIGTERM)}\n", 7))
        shutil.rmtree(next((home / "node_modules").glob(f"{NAME}-linux-*")))
        missing = subprocess.run([command], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(missing.returncode, 1)
        self.assertIn("without --omit=optional", missing.stderr)


if __name__ == "__main__":
    unittest.main()
