"""Runs the command in place of this process: `python -m edge_runner ARGUMENTS`."""

import os
import sys
from typing import NoReturn

from . import program


def main() -> NoReturn:
    path = program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
