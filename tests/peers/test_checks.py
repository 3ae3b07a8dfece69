#!/usr/bin/env python3
"""Tests of the ports that checks choose ahead of their use, and of the checks that the gate leaves to a night.

    tests/peers/test_checks.py
"""

import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import unittest
from unittest import mock

import checks

HERE = pathlib.Path(__file__).resolve().parent
# A port takes a file descriptor, of which a login on macOS has 256. With one seed, every choice begins with the same ports.
COUNT = 50
SCRIPT = f"import checks, random, sys; random.seed(1); print(*checks.free_ports({COUNT}), flush=True); sys.stdin.read()"


class FreePorts(unittest.TestCase):
    def test_processes_side_by_side_get_different_ports(self):
        pair = [subprocess.Popen([sys.executable, "-c", SCRIPT], cwd=HERE, text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE) for _ in range(2)]
        ports = [port for process in pair for port in process.stdout.readline().split()]
        for process in pair:
            process.communicate()
        self.assertEqual((len(ports), len(set(ports))), (2 * COUNT, 2 * COUNT))

    def test_a_port_is_given_once(self):
        ports = []
        for _ in range(2):
            random.seed(1)
            ports += checks.free_ports(COUNT)
        self.assertEqual(len(set(ports)), 2 * COUNT)

    def test_no_outgoing_connection_takes_one(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            given_by_the_system = server.getsockname()[1]
        for port in checks.free_ports(100):
            self.assertLess(port, checks.first_outgoing_port())
            self.assertLess(port, given_by_the_system)

    def test_a_port_of_another_program_is_not_free(self):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            port, = checks.free_ports(1)
            self.assertTrue(checks.is_free(port))
            with socket.socket(type=kind) as other:
                other.bind(("127.0.0.1", port))
                if kind == socket.SOCK_STREAM:
                    other.listen()
                self.assertFalse(checks.is_free(port))


class Night(unittest.TestCase):
    def test_every_name_is_a_check(self):
        for folder in {line.partition(" ")[0] for line in checks.NIGHT.read_text().splitlines() if line and line[0] != "#"}:
            names = checks.at_night(folder)
            text = "\n".join(file.read_text() for file in (HERE / folder).glob("*.mjs" if folder == "browser" else "*.py"))
            self.assertEqual(len(names), len(set(names)), folder)
            for name in names:
                # Firefox has most of its names from those of the page.
                in_browser = "(page|sessions|phone|firefox): " + re.escape(name.removeprefix("firefox: ")) if "firefox: " in name else re.escape(name)
                pattern = f"'{in_browser}'" if folder == "browser" else f'def {name}\\(|"{name}": '
                self.assertRegex(text, pattern)

    def test_the_gate_alone_leaves_them_out(self):
        given = {"tokens": 1, "lost": 2}
        with mock.patch.object(sys, "argv", ["tests/peers/moq/run.py"]):
            for variables, names, wanted in (({}, [], given), ({"CHECKS_GATE": "1"}, [], {"tokens": 1}), ({"CHECKS_GATE": "1"}, ["lost"], {"lost": 2}),
                                             ({"CHECKS_GATE": "1", "CHECKS_ONLY": "lost"}, [], {"lost": 2})):
                with mock.patch.dict(os.environ, {"CHECKS_GATE": "", "CHECKS_ONLY": "", **variables}):
                    self.assertEqual(checks.chosen(given, names), wanted, variables)


if __name__ == "__main__":
    unittest.main()
