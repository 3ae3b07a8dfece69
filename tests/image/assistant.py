"""The qemu-virt image as an assistant: a few lines in edge-runner.txt, and Chromium asks it a spoken question through forwarded ports.

    assistant.py IMAGE [--picture FILE]      in a network namespace of its own: `unshare --net python assistant.py IMAGE`

The board is emulated with qemu's user network, as boards/qemu-virt/README.md has it. The speech-to-speech service is the scripted one
of tests/peers/assistants, on this machine; the board reaches it as 10.0.2.2. Needs what tests/peers/assistants and
tests/peers/browser need.
"""

import argparse
import asyncio
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"
# At the end, because a folder has the name of a package.
sys.path += [str(PEERS / "assistants"), str(PEERS)]

from machine import BOOT_LIMIT_S, BOOT_PARTITION, FIRMWARE, run
from realtime_server import KEY, Service

PORT = 7860
# Of the callers. The console shows the one that the board would generate, as tests/image/run.py checks.
API_KEY = "key-of-the-callers"
# This machine, for a board in qemu's user network.
HOST = "10.0.2.2"
# Greeting, question and answer of an emulated board.
CALL_LIMIT_S = 600


def disk(folder, image, settings):
    """A card with the image and these settings."""
    path, text = folder / "board.img", folder / "edge-runner.txt"
    run("cp", "--sparse=always", image, path)
    run("truncate", "-s", "2G", path)
    text.write_text(settings)
    run("mcopy", "-o", "-i", f"{path}@@{BOOT_PARTITION}", text, "::edge-runner.txt")
    return path


def start(folder, card):
    """The machine; its console is a file."""
    forwards = "".join(f",hostfwd={kind}:127.0.0.1:{PORT}-:{PORT}" for kind in ("tcp", "udp"))
    return subprocess.Popen(
        ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72", "-smp", "2", "-m", "1024", "-bios", FIRMWARE,
         "-drive", f"file={card},format=raw,if=virtio", "-device", "virtio-rng-pci", "-display", "none", "-monitor", "none",
         "-netdev", f"user,id=net{forwards}", "-device", "virtio-net-pci,netdev=net,romfile=", "-serial", f"file:{folder / 'console'}"], stdin=subprocess.DEVNULL)


async def ready(machine):
    """`/status` of the board, once it answers."""
    def ask():
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/status", timeout=10) as reply:
            return json.loads(reply.read())

    began = time.monotonic()
    while True:
        assert machine.poll() is None, "the machine ended"
        assert time.monotonic() - began < BOOT_LIMIT_S, f"no answer within {BOOT_LIMIT_S} s"
        try:
            return await asyncio.to_thread(ask)
        except (OSError, ValueError):
            await asyncio.sleep(2)


async def call(key, picture):
    """What Chromium saw of the call."""
    command = [shutil.which("node"), PEERS / "browser" / "assistant.mjs", "answers", f"http://localhost:{PORT}#key={key}", *picture]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    said, wrong = await asyncio.wait_for(process.communicate(), CALL_LIMIT_S)
    assert process.returncode == 0, wrong.decode()
    return json.loads(said)


async def main(image, picture):
    # Browsers do not use loopback for media, so there is an interface, which leads nowhere.
    for words in ("link set lo up", "link add eth0 type bridge", "address add 10.99.0.1/24 dev eth0", "link set eth0 up"):
        run("ip", *words.split())
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "record", "w") as record:
        folder = pathlib.Path(folder)
        async with Service(KEY, record) as service:
            settings = "\n".join([
                "RUNNER_BOT = realtime", f"OPENAI_API_KEY = {KEY}",
                # In place of the vendor: the service on this machine, and the address of the forwarded ports.
                f"OPENAI_BASE_URL = http://{HOST}:{service.port}/v1", "REALTIME_MODEL = plain", "REALTIME_TRANSCRIPTION_MODEL = any",
                "RUNNER_ICE_ADDRESS = 127.0.0.1", f"RUNNER_API_KEY = {API_KEY}", ""])
            machine = start(folder, disk(folder, image, settings))
            try:
                began = time.monotonic()
                status = await ready(machine)
                booted = time.monotonic() - began
                seen = await call(API_KEY, picture)
            except Exception:
                print((folder / "console").read_text(errors="replace")[-4000:], file=sys.stderr)
                raise
            finally:
                machine.kill()
                machine.wait()
            console = (folder / "console").read_text(errors="replace")
            assert KEY not in console, "the console shows the key of the service"
    print(f"PASS the board answers a spoken question (/status after {booted:.0f} s: {status}; {seen})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("image", type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    given = parser.parse_args()
    asyncio.run(main(given.image.resolve(), [given.picture.resolve()] if given.picture else []))
