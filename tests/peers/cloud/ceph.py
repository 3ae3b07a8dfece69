"""Runs a command with a Ceph cluster on loopback, for the tests of the cloud service: a monitor, a manager, and a disk in memory.

    ceph.py COMMAND [ARGS...]      exits as the command does

The variable STORE of the command names a program that takes the arguments of versitygw, and is a gateway of the cluster at that address.
Needs Ceph, as Debian installs it. Everything ends with this process.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from checks import free_ports, wait_until
from shared import KEY

PROGRAMS = "ceph ceph-mon ceph-mgr ceph-osd monmaptool radosgw radosgw-admin".split()
# Without authentication Ceph hangs unless its messages are plain, too.
SETTINGS = """
auth cluster required = none
auth service required = none
auth client required = none
ms cluster mode = crc
ms service mode = crc
ms client mode = crc
ms mon cluster mode = crc
ms mon service mode = crc
ms mon client mode = crc
osd objectstore = memstore
memstore device bytes = 8589934592
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
rgw dynamic resharding = false
"""


class Ceph:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-ceph-"))
        self.processes = []
        (port,) = free_ports(1)
        self.config = self.folder / "ceph.conf"
        folders = "".join(f"{name} = {self.folder}/{value}\n" for name, value in {
            "run dir": "", "admin socket": "$name.$pid.asok", "log file": "$name.log", "mon data": "mon", "mgr data": "mgr", "osd data": "osd",
            "rgw data": "rgw", "crash dir": "",
        }.items())
        cluster = str(uuid.uuid4())
        self.config.write_text(
            f"[global]\nfsid = {cluster}\nmon host = v2:127.0.0.1:{port}\npublic addr = 127.0.0.1\ncluster addr = 127.0.0.1\n{folders}{SETTINGS}")
        for name in "mon", "mgr", "osd", "rgw":
            (self.folder / name).mkdir()
        monitors = self.folder / "monitors"
        self.ask("monmaptool", "--create", "--fsid", cluster, "--addv", "a", f"[v2:127.0.0.1:{port}]", monitors)
        self.ask("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors)
        self.run("ceph-mon", "-f", "-i", "a")
        self.run("ceph-mgr", "-f", "-i", "a")
        disk = str(uuid.uuid4())
        number = self.ask("ceph", "--connect-timeout", "60", "osd", "new", disk).strip()
        self.ask("ceph-osd", "--mkfs", "-i", number, "--osd-uuid", disk)
        self.run("ceph-osd", "-f", "-i", number)
        wait_until(lambda: self.state()["osdmap"]["num_up_osds"] == 1, "the disk is up", 60)
        wait_until(lambda: self.state()["mgrmap"]["available"], "the manager answers", 60)
        self.ask("radosgw-admin", "user", "create", "--uid", "tests", "--display-name", "tests", "--access-key", KEY["AWS_ACCESS_KEY_ID"],
                 "--secret-key", KEY["AWS_SECRET_ACCESS_KEY"])
        self.gateway = self.folder / "gateway"
        self.gateway.write_text(
            f'#!/bin/sh\nexec radosgw -c {self.config} -f -n client.rgw --rgw-frontends "beast endpoint=$2" 2>>{self.folder}/gateway.log\n')
        self.gateway.chmod(0o755)

    def state(self):
        return json.loads(self.ask("ceph", "status", "--format", "json"))

    def ask(self, name, *words):
        ran = subprocess.run([name, "-c", self.config, *words], capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, (name, words, ran.stderr)
        return ran.stdout

    def run(self, name, *words):
        log = open(self.folder / f"{name}.out", "w")
        self.processes.append(subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", name, "-c", self.config, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main(command):
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        sys.exit(f"{', '.join(missing)} missing: apt-get install --no-install-recommends radosgw ceph-mon ceph-mgr ceph-osd")
    ceph = None
    try:
        ceph = Ceph()
        print(subprocess.run(["radosgw", "--version"], capture_output=True, text=True).stdout.strip(), flush=True)
        return subprocess.run(command, env={**os.environ, "STORE": str(ceph.gateway)}).returncode
    finally:
        if ceph:
            ceph.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
