#!/usr/bin/env python3
"""Counts the instructions of each component of the path of a frame, and prints boards/SPEED.md's tables.

    tests/speed/run.py [--machines x86_64,aarch64,aarch64-soft,armv7] [--only REGEX] [--write boards/SPEED.md]

In: the example `speed`, built here for each machine with the profile and the codec of a release. On x86-64 callgrind counts; for ARM a plug-in
of qemu-user (count.c) does, on code that runs as it would on a board. Each component runs N and 2 N frames, and the difference is
that of N frames: the start cancels out, and so the figures are the same each time, but for the little that random keys change.
Out: tables in Markdown, and target/speed/counts.json. With --write they replace what stands between the marks in that file.
Refuses, and says what to install: a machine without valgrind, a C compiler or Debian's packages of qemu.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import tables

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OUT = ROOT / "target" / "speed"
CACHE = pathlib.Path(
    os.environ.get("EDGE_RUNNER_TOOLS")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "edge-runner"
)
# Half a round of the voice, so that two runs end with a whole one.
FRAMES = 75
# What the instructions for cryptography make a difference to; the rest is not counted twice.
ENCRYPTED = re.compile("srtp|clients|session")
# Machine: Rust's target, qemu's name, Debian's name for the C library, the words added to a run.
MACHINES = {
    "x86_64": (None, None, None, []),
    "aarch64": ("aarch64-unknown-linux-gnu", "aarch64", "aarch64-linux-gnu", []),
    "aarch64-soft": ("aarch64-unknown-linux-gnu", "aarch64", "aarch64-linux-gnu", ["soft"]),
    "armv7": ("armv7-unknown-linux-gnueabihf", "arm", "arm-linux-gnueabihf", []),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--only", default="", help="count these components alone, and print their numbers")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--built", action="store_true", help="take the examples as they were built last")
    arguments = parser.parse_args()
    machines = arguments.machines.split(",")
    for machine in machines:
        if machine not in MACHINES:
            refuse(f"no machine `{machine}`: one of {', '.join(MACHINES)}")
    OUT.mkdir(parents=True, exist_ok=True)
    native = build(None, arguments.built)
    voice = OUT / "voice.bin"
    voice.write_bytes(run([native, "voice"]).stdout)
    known = [line.split("\t") for line in run([native, "list"]).stdout.decode().splitlines()]
    wanted = [(name, what) for name, what in known if re.search(arguments.only, name)]
    counts = {}
    for machine in machines:
        names = [name for name, _ in wanted if machine != "aarch64-soft" or ENCRYPTED.match(name)]
        counts[machine] = count_all(machine, native, voice, names, arguments.built)
        if machine == "aarch64-soft":
            counts[machine] = counts.get("aarch64", {}) | counts[machine]
    if arguments.only:
        for name, what in wanted:
            print(name, *(f"{machine}: {counts[machine].get(name)}" for machine in machines), what, sep="  ")
        return
    (OUT / "counts.json").write_text(json.dumps(counts, indent=1))
    text = tables.all(counts)
    print(text)
    if arguments.write:
        page = arguments.write.read_text()
        before, rest = page.split(tables.BEGIN)
        after = rest.split(tables.END)[1]
        arguments.write.write_text(f"{before}{tables.BEGIN}\n\n{text}\n{tables.END}{after}")


def count_all(machine, native, voice, names, built):
    """Returns the instructions of each component per frame, and of them those of scalar floating point, both as numbers."""
    target, qemu, library, words = MACHINES[machine]
    binary = build(target, built) if target else native
    count = (lambda line: counted_by_callgrind(line)) if target is None else counter(qemu, library, binary)

    def one(name):
        totals = [count([binary, name, str(frames), voice, *words]) for frames in (FRAMES, 2 * FRAMES)]
        return [round((totals[1][kind] - totals[0][kind]) / FRAMES) for kind in (0, 1)]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = dict(zip(names, pool.map(one, names)))
    say(f"{machine} is counted")
    return counts


def build(target, built):
    """Builds the example for a target, or for this machine, and returns its path."""
    folder = ROOT / "target" / (target or "") / "release"
    if not built:
        say(f"building for {target or 'this machine'}")
        # The codec of a release, which `cross/build` selects by itself.
        command = [ROOT / "cross" / "build", target] if target else ["cargo", "build", "--release", "--features", "libopus"]
        run([*command, "--quiet", "--example", "speed"], cwd=ROOT)
    return folder / "examples" / "speed"


def counted_by_callgrind(line):
    if not shutil.which("valgrind"):
        refuse("valgrind is not installed: apt-get install valgrind")
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *line]
    said = run(command).stderr.decode()
    return int(re.search(r"Collected\s*:\s*(\d+)", said).group(1)), 0


def counter(qemu, library, binary):
    """Returns what counts with the plug-in, built for the version of this qemu."""
    if not shutil.which("cc"):
        refuse("a C compiler is not installed: apt-get install gcc")
    emulator = emulator_with_plugins(qemu)
    prefixes = [CACHE / f"gcc-{debian}" / "usr" / library for debian in ("arm64", "armhf")]
    prefix = next((at for at in [*prefixes, pathlib.Path("/usr") / library] if (at / "lib").is_dir()), None)
    if prefix is None:
        refuse(f"the C library for {library} is neither in {CACHE} nor in /usr/{library}")

    def command(plugin, line):
        return [emulator, "-L", prefix, "-plugin", f"{plugin},floating=on", *line]

    def read(said):
        found = re.search(r"instructions: (\d+) floating: (\d+)", said)
        return found and (int(found.group(1)), int(found.group(2)))

    for version in range(1, 5):
        plugin = OUT / f"count-{version}.so"
        run(["cc", "-shared", "-fPIC", "-O2", f"-DAPI={version}", "-o", plugin, HERE / "count.c"])
        trial = subprocess.run(command(plugin, [binary, "list"]), capture_output=True, check=False)
        if read(trial.stderr.decode()):
            return lambda line: read(run(command(plugin, line)).stderr.decode())
    refuse(f"{emulator} loads no plug-in: {trial.stderr.decode().strip()}")


def emulator_with_plugins(qemu):
    """Returns a qemu-user that is linked dynamically, since the static one has no plug-ins: installed, or Debian's, unpacked."""
    name = f"qemu-{qemu}"
    unpacked = CACHE / "qemu-user" / "usr" / "bin" / name
    for candidate in (shutil.which(name), unpacked):
        if candidate and pathlib.Path(candidate).exists():
            return candidate
    say("fetching Debian's package qemu-user")
    packages = CACHE / "qemu-user.deb"
    packages.mkdir(parents=True, exist_ok=True)
    fetched = subprocess.run(["apt-get", "download", "-q", "qemu-user"], cwd=packages, capture_output=True, check=False)
    if fetched.returncode:
        refuse(f"qemu-user is not installed, and cannot be fetched ({fetched.stderr.decode().strip()}): apt-get update, and again")
    for package in packages.glob("*.deb"):
        run(["dpkg", "-x", package, CACHE / "qemu-user"])
    shutil.rmtree(packages)
    if subprocess.run([unpacked, "--version"], capture_output=True, check=False).returncode:
        refuse("the libraries of qemu-user are not installed: apt-get install qemu-user")
    return unpacked


def run(command, **options):
    done = subprocess.run(command, capture_output=True, check=False, **options)
    if done.returncode:
        line = " ".join(str(word) for word in command)
        refuse(f"`{line}` failed: {done.stderr.decode().strip()[-2000:]}")
    return done


def say(text):
    print(f"speed: {text}", file=sys.stderr, flush=True)


def refuse(text):
    say(text)
    # Also out of a thread of the pool.
    os._exit(1)


if __name__ == "__main__":
    main()
