"""An ordinary user with sub-ids, as container engines without root need one, for the commands of a test that runs as root.

The user is known in the mount namespace of these commands alone: the files of this machine stay as they are. Needs `setpriv`, and
`newuidmap` of Debian's package uidmap.
"""

import os
import pathlib
import signal

# The user of BuildKit's image. Its sub-ids begin where no user of this machine has one.
ID = 1000
SUB_IDS = 100_000
FILES = "passwd", "group", "subuid", "subgid"
AS_USER = ("setpriv", "--reuid", str(ID), "--regid", str(ID), "--clear-groups")
# Runs a daemon in namespaces for processes and mounts. What changes its user is not ended with its parent: `end` does that.
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")
# Words of a shell that has a mount namespace of its own: the folder with these files, and the command.
ENTER = 'for name in ' + " ".join(FILES) + '; do mount --bind "$0/$name" "/etc/$name" || exit; done; exec ' + " ".join(AS_USER) + ' "$@"'


def known_user(folder):
    """Writes the files that make the user known into a folder. Returns the words before a command, in a mount namespace of its own."""
    folder = pathlib.Path(folder)
    for name in FILES[:2]:
        others = [line for line in pathlib.Path("/etc", name).read_text().splitlines() if line.split(":")[2] != str(ID)]
        mine = f"user:x:{ID}:{ID}::{folder}:/bin/sh" if name == "passwd" else f"user:x:{ID}:"
        (folder / name).write_text("\n".join([*others, mine, ""]))
    for name in FILES[2:]:
        (folder / name).write_text(f"user:{SUB_IDS}:65536\n")
    return ["sh", "-c", ENTER, str(folder)]


def first(process):
    """The id of the first process in the namespace of a daemon, with which all others of it end."""
    return pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]


def end(process):
    """Kills a daemon and all that it runs."""
    try:
        os.kill(int(first(process)), signal.SIGKILL)
    except (OSError, IndexError):
        # It has ended, or has not begun.
        process.kill()
    process.wait()


def own_folder(path):
    """A new folder of that user, in one that is open to all."""
    path.mkdir()
    os.chown(path, ID, ID)
    return path
