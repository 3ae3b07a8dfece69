"""The command `edge-runner`, which this package brings along: `python -m edge_runner`, and where it is.

A bot that the command runs imports nothing of this: the command brings what it needs itself.
"""

import os
import sys
import sysconfig
from typing import List

__all__ = ["program"]


def program() -> str:
    """Returns the path of the command that was installed with this package.

    Raises `FileNotFoundError` if it is not there.
    """
    searched = _folders()
    for folder in searched:
        path = os.path.join(folder, "edge-runner")
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"the command edge-runner is not in {' or '.join(searched)}: install the package again")


def _folders() -> List[str]:
    """Returns where installers put commands: of this environment, of the user, and of `pip install --target`."""
    folders = [sysconfig.get_path("scripts")]
    if sys.platform != "win32":
        folders.append(sysconfig.get_path("scripts", "posix_user"))
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"))
    return folders
