"""The qemu-virt image as it is flashed: Chromium fills in the setup page, and the board takes what it says.

    setup.py IMAGE      in a network namespace of its own: `unshare --net python setup.py IMAGE`

The board is emulated with qemu's user network; its ports 80, 7860 and 22 are forwarded. edge-runner.txt stays as it is shipped.
Needs what tests/peers/browser needs, and a client of ssh.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from machine import BOOT_LIMIT_S, FIRMWARE, run

HERE = pathlib.Path(__file__).resolve().parent
PASSWORD = "correct horse 1"
SSH_PORT = 2222


def start(folder, image):
    card = folder / "board.img"
    run("cp", "--sparse=always", image, card)
    run("truncate", "-s", "2G", card)
    forwards = "".join(f",hostfwd={kind}:127.0.0.1:{here}-:{there}" for kind, here, there in
                       [("tcp", 80, 80), ("tcp", 7860, 7860), ("udp", 7860, 7860), ("tcp", SSH_PORT, 22)])
    return subprocess.Popen(
        ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72", "-smp", "2", "-m", "1024", "-bios", FIRMWARE,
         "-drive", f"file={card},format=raw,if=virtio", "-device", "virtio-rng-pci", "-device", "i6300esb", "-display", "none",
         "-monitor", "none", "-netdev", f"user,id=net{forwards}", "-device", "virtio-net-pci,netdev=net,romfile=",
         "-serial", f"file:{folder / 'console'}"], stdin=subprocess.DEVNULL)


def get(url, host, limit_s=10):
    """Status and text of a GET."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host}), timeout=limit_s) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def page_answers(machine):
    """Waits for the setup page."""
    began = time.monotonic()
    while True:
        assert machine.poll() is None, "the machine ended"
        assert time.monotonic() - began < BOOT_LIMIT_S, f"no setup page within {BOOT_LIMIT_S} s"
        try:
            if get("http://127.0.0.1/state", "edge-runner.local")[0] == 200:
                return time.monotonic() - began
        except OSError:
            time.sleep(1)


def inside(folder, command):
    """The output of a command on the board, with the password that the page was given."""
    asker = folder / "asker"
    asker.write_text(f"#!/bin/sh\necho '{PASSWORD}'\n")
    asker.chmod(0o700)
    done = subprocess.run(
        ["setsid", "ssh", "-p", str(SSH_PORT), "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={folder / 'known'}",
         "-o", "PubkeyAuthentication=no", "-o", "LogLevel=ERROR", "edge@127.0.0.1", command],
        env={**os.environ, "SSH_ASKPASS": str(asker), "SSH_ASKPASS_REQUIRE": "force"}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def check(folder, machine):
    booted = page_answers(machine)
    print(f"PASS the setup page answers {booted:.0f} s after power-on", flush=True)
    status, said = get("http://127.0.0.1/", "evil.example")
    assert status == 421 and "edge-runner.local" in said, (status, said)
    began = time.monotonic()
    done = subprocess.run([shutil.which("node"), HERE / "setup.mjs", "http://edge-runner.local"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    address = done.stdout.strip().splitlines()[-1]
    key = address.split("#key=")[1]
    print(f"PASS Chromium fills in the page; the runner is back, and the page closed, {time.monotonic() - began:.0f} s later", flush=True)

    known = inside(folder, "hostname; sudo cat /etc/edge-board/setup.txt /var/lib/edge-runner/edge-runner.toml; sudo /usr/lib/edge-runner/api-key; systemctl is-active edge-setup;"
                   " systemctl --failed --no-legend --plain; id -un")
    lines = known.splitlines()
    assert lines[0] == "kitchen" and "hostname = kitchen" in lines and 'bot = "parrot"' in lines, known
    assert f"https://kitchen.local:7860/#key={key}" in lines and "inactive" in lines and lines[-1] == "edge", known
    journal = inside(folder, "sudo journalctl --no-pager")
    console = (folder / "console").read_text(errors="replace")
    assert key not in journal and PASSWORD not in journal and PASSWORD not in console, "a secret is in the log"
    print("PASS ssh takes the password; the name, the bot and the key are set; no secret is in the journal", flush=True)
    # The kernel of this image has no driver for a watchdog of the emulator.
    watchdog = inside(folder, "systemctl show --value -p RuntimeWatchdogUSec; ls /dev/watchdog0 2>&1 || true").splitlines()
    assert watchdog[0] == "15s", watchdog
    print(f"PASS systemd sets a watchdog to 15 s: {watchdog[1]}", flush=True)

    unauthorised = urllib.request.Request("http://127.0.0.1:7860/start", b"{}", {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(unauthorised, timeout=30)
        raise AssertionError("a caller without the key is admitted")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error.code
    allowed = urllib.request.Request(unauthorised.full_url, b"{}", {**unauthorised.headers, "Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(allowed, timeout=30) as reply:
        assert reply.status == 200
    print("PASS callers need the key, and are admitted with it", flush=True)


def main(image):
    run("ip", "link", "set", "lo", "up")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        machine = start(folder, image)
        try:
            check(folder, machine)
        except Exception:
            print((folder / "console").read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        finally:
            machine.kill()
            machine.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("image", type=pathlib.Path)
    main(parser.parse_args().image.resolve())
