"""A minimal Debian of any architecture in namespaces of its own, for programs that test in one.

The Debian is made once and kept as a tarball in the cache folder of the tools, ${EDGE_RUNNER_TOOLS:-~/.cache/edge-runner}. Namespaces of
users, mounts and network end with the program: foreign programs are registered with the kernel for that namespace alone, and nothing
is left behind. Needs root, mmdebstrap, and qemu-user-static for a foreign architecture. Refuses: kernels before 6.7, whose binfmt_misc
is one for the whole machine.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

SUITE = "bookworm"
# Exit code that tells of a missing tool or right.
CANNOT = 77
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
# ELF magic and mask of the architecture, for binfmt_misc.
ELF = {
    "arm64": ("aarch64", r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"),
    "armhf": ("arm", r"\x7fELF\x01\x01\x01" + r"\x00" * 9 + r"\x02\x00\x28\x00"),
}
MASK = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe\xff\xff\xff"
DEVICES = ["null", "zero", "full", "random", "urandom", "tty"]
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def cannot(text):
    print(f"skipped: {text}")
    sys.exit(CANNOT)


def failed(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def seen(text):
    print(f"  {text}", flush=True)


def run(*command, **kept):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, **kept)
    if done.returncode != 0:
        failed(f"{' '.join(str(word) for word in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


# --- Namespaces


def inside(does, more):
    """Calls a function in a child process with its own namespaces, as root there, with all user ids mapped. Returns the
    exit code."""
    libc = ctypes.CDLL(None, use_errno=True)
    ready, mapped = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | more) != 0:
                cannot(f"namespaces are not allowed here: {os.strerror(ctypes.get_errno())}")
            os.write(ready[1], b".")
            os.read(mapped[0], 1)
            run("mount", "--make-rprivate", "/")
            does()
            code = 0
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            # The parent removes the folders that it made.
            os._exit(code)
    os.close(ready[1])
    if os.read(ready[0], 1):
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text("0 0 65536\n")
        os.write(mapped[1], b".")
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def register(arch):
    """Registers the emulator of the architecture with the kernel, for this namespace."""
    if arch not in ELF:
        return
    name, magic = ELF[arch]
    interpreter = shutil.which(f"qemu-{name}-static") or cannot(f"qemu-{name}-static: apt-get install qemu-user-static")
    run("mount", "-t", "binfmt_misc", "none", "/proc/sys/fs/binfmt_misc")
    if Path("/proc/sys/fs/binfmt_misc/status").stat().st_uid != 0 or any(
        entry.name not in ("register", "status") for entry in Path("/proc/sys/fs/binfmt_misc").iterdir()
    ):
        cannot("this kernel has one binfmt_misc for the whole machine; 6.7 and later have one for each user namespace")
    # F: the kernel opens the interpreter now, so it need not be in the chroot.
    Path("/proc/sys/fs/binfmt_misc/register").write_text(f":qemu-{name}:M::{magic}:{MASK}:{interpreter}:F")


# --- The Debian


def tools():
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("EDGE_RUNNER_TOOLS") or Path(cache) / "edge-runner")


def mirror():
    """The Debian mirror of this machine, or deb.debian.org."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], capture_output=True, text=True
    ).stdout.split()
    found = [uri for uri in listed if re.search(r"/debian/?$", uri)]
    return found[0] if found else "http://deb.debian.org/debian"


def debian(suite, arch, *packages):
    """The tarball of a minimal Debian of this architecture with these packages, made once."""
    name = "-".join([suite, arch, *(package for package in packages if package != "ca-certificates")])
    tarball = tools() / "deb" / f"{name}.tar"
    if not tarball.exists():
        if not shutil.which("mmdebstrap"):
            cannot("mmdebstrap is not installed: apt-get install mmdebstrap qemu-user-static")
        print(f"making {name}, once", flush=True)
        # Downloads packages, so it needs the network.
        if code := inside(lambda: make_tarball(suite, arch, packages, tarball), 0):
            sys.exit(code)
    return tarball


def make_tarball(suite, arch, packages, tarball):
    register(arch)
    tarball.parent.mkdir(parents=True, exist_ok=True)
    new = tarball.with_suffix(f".{os.getpid()}.tar")
    run(
        "mmdebstrap", "--mode=root", "--skip=check/qemu", "--variant=minbase", f"--architectures={arch}",
        # Without package lists and cache, since nothing is downloaded later.
        f"--include={','.join(packages)}", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--dpkgopt=path-include=/usr/share/doc/edge-runner/*",
        suite, new, mirror(),
    )  # fmt: skip
    new.rename(tarball)


class Chroot:
    def __init__(self, root):
        self.root = Path(root)

    def unpack(self, tarball):
        run("tar", "-x", "-f", tarball, "-C", self.root, "--exclude=./dev/*")
        for device in DEVICES:
            (self.root / "dev" / device).touch()
            run("mount", "--bind", f"/dev/{device}", self.root / "dev" / device)
        run("mount", "--rbind", "/proc", self.root / "proc")

    def path(self, inside):
        return self.root / str(inside).lstrip("/")

    def run(self, *command):
        return run("chroot", self.root, *command, env=ENVIRONMENT)

    def apt(self, *command):
        # No prompt: if both sides changed a file, dpkg keeps the administrator's.
        return self.run("apt-get", "-qq", "-y", "-o", "Dpkg::Options::=--force-confdef", *command)

    def files(self):
        """Every path except those that change by themselves."""
        ours = ("./proc", "./dev", "./var/log", "./var/cache", "./var/lib/dpkg", "./var/lib/apt", "./tmp", "./etc/.pwd.lock")
        found = set()
        for folder, folders, files in os.walk(self.root):
            place = "./" + os.path.relpath(folder, self.root)
            place = "." if place == "./." else place.replace("././", "./")
            folders[:] = [name for name in folders if f"{place}/{name}" not in ours]
            found.update(f"{place}/{name}" for name in folders + files if f"{place}/{name}" not in ours)
        return found

    def stat(self, inside):
        return self.run("stat", "-c", "%a %U:%G", inside).strip()
