"""Black-box checks of the qemu-virt image, from first boot to power cuts. Prints a line per check; exits with 1 when one failed.

    run.py IMAGE [--seed N] [--keep] [--cuts N]      as root, in a network namespace of its own: `unshare --net python run.py IMAGE`

Two boards boot from the same image. The first has a fixed address, a name, a key and wrong lines in its edge-runner.txt; the second
has only a key and uses DHCP. The power of the first is cut during its first boot, and later during writes and a call: the disk keeps or
loses each write since the last flush at random. Every wait has a long limit, because the machines are emulated.
With --cuts the first board alone loses its power that often: once during writes, and four times while it boots after that.
"""

import argparse
import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers" / "aiortc"))

import aioice.ice
from client import Client
from echo import hears_itself
from machine import BOOT_LIMIT_S, Board, run
from runner import Runner

PORT = 7860
ROOT_PARTITION = 2
# Of which the last boot is checked.
CUTS_PER_ROUND = 5
# Of the share of a tone: an emulated processor is late with some frames.
EMULATED_SPREAD = 0.1
BOARD_SECRET = "a pass phrase of no one"


class Remote(Runner):
    """The runner on a board, with the interface of a local one."""

    def __init__(self, address, key):
        self.url = f"http://{address}:{PORT}"
        self.headers = {"Authorization": f"Bearer {key}"}

    def stop(self):
        pass


class TestBed:
    """Both boards and their state. Checks run in order and depend on each other."""

    def __init__(self, folder, image, seed, cuts):
        self.folder, self.image, self.seed, self.cuts = pathlib.Path(folder), image, seed, cuts
        self.key = self.folder / "key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "check", "-f", self.key)
        self.public = (self.folder / "key.pub").read_text().strip()
        self.boards, self.known, self.others = [], {}, []

    def board(self, number, settings):
        board = Board(self.folder, self.image, number, settings.encode(errors="surrogateescape"), self.seed * 100)
        self.boards.append(board)
        return board

    def ssh_command(self, board, *more):
        return ["ssh", "-i", str(self.key), "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={board.folder / 'known'}",
                "-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60",
                "-o", "ServerAliveInterval=15", *more, f"edge@{board.address}"]

    async def inside(self, board, command, check=True, limit_s=240):
        """The output of a command on the board."""
        process = await asyncio.create_subprocess_exec(
            *self.ssh_command(board), command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            said, _ = await asyncio.wait_for(process.communicate(), limit_s)
        except TimeoutError:
            process.kill()
            raise AssertionError(f"`{command}` has no end after {limit_s} s") from None
        said = said.decode(errors="replace").strip()
        assert not check or process.returncode == 0, f"`{command}`: {process.returncode}: {said}"
        return said

    def stop(self):
        for process in self.others:
            process.kill()
        for board in self.boards:
            board.stop()


async def until(condition, what, limit_s, pause_s=1.0):
    """Polls until the result is true; returns it and the seconds that passed."""
    start = time.monotonic()
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException, RuntimeError, AssertionError, ValueError):
            if answer := await condition():
                return answer, time.monotonic() - start
        if time.monotonic() - start > limit_s:
            raise AssertionError(f"not within {limit_s} s: {what}")
        await asyncio.sleep(pause_s)


def fetch(address, path, scheme="http", context=None, limit_s=10):
    with urllib.request.urlopen(f"{scheme}://{address}:{PORT}{path}", timeout=limit_s, context=context) as reply:
        return reply.read()


def post(address, path, **headers):
    request = urllib.request.Request(f"http://{address}:{PORT}{path}", b"{}", {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.read()


def status_of(board, **more):
    status = json.loads(fetch(board.address, "/status", **more))
    assert status["status"] == "ready", status
    return status


async def ready(board):
    async def ask():
        assert board.machine.poll() is None, "the machine ended"
        return await asyncio.to_thread(status_of, board)

    async def ssh_answers():
        (await asyncio.open_connection(board.address, 22))[1].close()
        return True

    took = (await until(ask, f"/status of {board.address}", BOOT_LIMIT_S))[1]
    # The runner may answer before ssh does.
    await until(ssh_answers, f"ssh of {board.address}", BOOT_LIMIT_S)
    return took


def certificate(board):
    """The SHA-256 of the board's certificate, after verification against the CA that the board serves."""
    authority = fetch(board.address, "/ca.crt")
    try:
        text = authority.decode()
        assert "BEGIN" in text
    except (UnicodeDecodeError, AssertionError):
        text = ssl.DER_cert_to_PEM_cert(authority)
    context = ssl.create_default_context(cadata=text)
    with socket.create_connection((board.address, PORT), 20) as plain:
        with context.wrap_socket(plain, server_hostname=board.address) as secure:
            return hashlib.sha256(secure.getpeercert(True)).hexdigest()


def ssh_host_keys(board):
    said = subprocess.run(["ssh-keyscan", "-T", "60", board.address], capture_output=True, text=True, check=True).stdout
    return sorted(line.split(" ", 1)[1] for line in said.splitlines() if line and not line.startswith("#"))


def ask_mdns(host, name, limit_s=30):
    """The address in the answer to an mDNS query for `name`."""
    labels = b"".join(struct.pack("B", len(part)) + part.encode() for part in name.split("."))
    question = struct.pack(">HHHHHH", 7, 0, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host))
    asker.bind((host, 0))
    asker.settimeout(3)
    start = time.monotonic()
    while time.monotonic() - start < limit_s:
        asker.sendto(question, ("224.0.0.251", 5353))
        with contextlib.suppress(TimeoutError):
            answer = asker.recv(1500)
            if struct.unpack(">H", answer[6:8])[0]:
                return socket.inet_ntoa(answer[-4:])
    raise AssertionError(f"no answer for {name}")


@contextlib.asynccontextmanager
async def call(board, hz):
    """A connected WebRTC call over UDP."""
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: [board.host]
    client = Client(Remote(board.address, board.key), hz=hz)
    try:
        await client.connect()
        yield client
    finally:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(), 20)


# Checks. ----------------------------------------------------------------------------------------------------------------------


async def cut_while_starting(board, word, pause_s):
    """Cuts the power this long after the console printed the word. Returns the report of the disk cache."""
    await until(lambda: asyncio.sleep(0, word in board.console_of(board.starts).read_text(errors="replace")),
                f"{word} on the console", BOOT_LIMIT_S, 0.2)
    await asyncio.sleep(pause_s)
    return await asyncio.to_thread(board.cut)


async def unfinished(bed):
    """a power cut during the first boot, while the board generates its ids: what it has then must work and stay"""
    settings = "\r\n".join([
        "\ufeff# a comment", "HostName = kitchen", "this line is wrong", "address=10.77.1.2/24", "  gateway = 10.77.1.1", "dns = 10.77.1.1",
        f"wifi_passphrase = {BOARD_SECRET}", f"ssh_key = {bed.public}", "hostname = not_a_name", "RUNNER_BOT = echo",
        "runner_max_sessions = 3", f"RUNNER_PROXY = {BOARD_SECRET}\udcff", "openai_api_key = sk-of-no-one", ""])
    bed.one = bed.board(1, settings)
    bed.one.start()
    rng = random.Random(bed.seed)
    # While it generates machine-id, partition and file system, name and ssh key, certificate.
    word = rng.choice(["systemd[1]", "edge-board-grow.service", "edge-board.service", "edge-runner.service"])
    pause_s = rng.uniform(0, 5)
    return f"{pause_s:.1f} s after {word}; {await cut_while_starting(bed.one, word, pause_s)}"


async def first_start(bed):
    """the board takes the fixed address of edge-runner.txt, with CRLF and a byte-order mark, and answers /status"""
    bed.one.start()
    took = await ready(bed.one)
    return f"/status after {took:.0f} s: {status_of(bed.one)}"


async def https(bed):
    """/status over HTTPS, with the board's certificate, signed by its own CA"""
    bed.certificate = await asyncio.to_thread(certificate, bed.one)
    unverified = ssl._create_unverified_context()
    status_of(bed.one, scheme="https", context=unverified)
    return bed.certificate[:16]


async def keys_only(bed):
    """ssh accepts the key of edge-runner.txt for edge, who has sudo; root and passwords are rejected"""
    said = await bed.inside(bed.one, "id -un; sudo id -un")
    assert said.split() == ["edge", "root"], said
    for user in ("edge", "root"):
        command = ["ssh", "-v", "-o", "PubkeyAuthentication=no", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
                   "-o", f"UserKnownHostsFile={bed.folder / 'any'}", f"{user}@{bed.one.address}", "true"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        refusal = [line for line in done.stderr.splitlines() if "Permission denied" in line]
        assert done.returncode and refusal and "(publickey)" in refusal[0], done.stderr[-500:]
    root = bed.ssh_command(bed.one)[:-1] + [f"root@{bed.one.address}", "true"]
    assert (await asyncio.to_thread(subprocess.run, root, capture_output=True)).returncode
    shadow = await bed.inside(bed.one, "sudo cut -d: -f1,2 /etc/shadow | grep -E '^(root|edge):'")
    assert all(line.split(":")[1].startswith(("*", "!")) for line in shadow.splitlines()), shadow
    return "edge by key; only publickey is offered"


async def key_of_callers(bed):
    """the board generated an API key: without it callers get 401, the console shows it in a URL, the journal never does"""
    shown = await bed.inside(bed.one, "sudo /usr/lib/edge-runner/api-key; sudo stat -c '%a %U' /etc/edge-runner/api-key.env /run/issue.d/edge-board.issue")
    bed.one.key = shown.split("#key=", 1)[1].split()[0]
    assert len(bed.one.key) == 48 and shown.split()[-4:] == ["600", "root", "600", "root"], shown
    try:
        await asyncio.to_thread(post, bed.one.address, "/start")
        raise AssertionError("a caller without the key was served")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error
    await asyncio.to_thread(post, bed.one.address, "/start", Authorization=f"Bearer {bed.one.key}")
    assert f"#key={bed.one.key}" in bed.one.console, "the console does not show it"
    journal = await bed.inside(bed.one, "sudo journalctl --no-pager")
    assert bed.one.key not in journal, "the journal has it"
    return "/start asks for it"


async def names(bed):
    """the host name is that of edge-runner.txt, and kitchen.local resolves by mDNS"""
    said = await bed.inside(bed.one, "hostname; cat /etc/hostname; getent hosts kitchen")
    assert said.split()[:2] == ["kitchen", "kitchen"] and "kitchen" in said.splitlines()[2], said
    address = await asyncio.to_thread(ask_mdns, bed.one.host, "kitchen.local")
    assert address == bed.one.address, address
    return address


async def wrong_lines(bed):
    """wrong lines are reported by number, in the journal and on the console, without their values; the others apply"""
    journal = await bed.inside(bed.one, "sudo journalctl --no-pager -u edge-board -o cat")
    for number in (3, 9, 12):
        assert f"line {number}:" in journal, journal
        assert f"line {number}:" in bed.one.console, "not on the console"
    assert "wifi_passphrase is there, and no wifi_ssid" in journal, journal
    everything = await bed.inside(bed.one, "sudo journalctl --no-pager; sudo cat /run/issue.d/*")
    for text in (journal, everything, bed.one.console):
        assert BOARD_SECRET not in text, "the value of a wrong line was told"
    return "lines 3, 9 and 12"


async def unreadable(bed):
    """unreadable or missing settings restrict the runner to the board and keep the host name"""
    said = await bed.inside(
        bed.one, "sudo sh -c 'exec 2>&1; cd /run/edge-board; printf \"\\377\\376R\\0\" >wrong; for file in wrong gone; do /usr/local/lib/edge-board/apply $file;"
        " echo \"then: $(grep -vE \"^RUNNER_(CONFIG|SETTINGS)=\" runner.env) $(hostname)\"; done; rm wrong; /usr/local/lib/edge-board/apply; cat runner.env'")
    then = [line for line in said.splitlines() if line.startswith("then: ")]
    assert then == ['then: RUNNER_HOST="localhost" kitchen'] * 2 and said.count("the runner answers this board alone") == 2, said
    again = said.rsplit(then[-1], 1)[1]
    assert 'RUNNER_BOT="echo"' in again and "RUNNER_HOST" not in again, said
    return then[0]


async def service(bed):
    """the service is active with a watchdog, as its own user, with the RUNNER_ lines; its start-up line is in the journal"""
    said = await bed.inside(
        bed.one, "systemctl show edge-runner -p ActiveState,SubState,WatchdogUSec,Type,User; systemctl is-enabled edge-runner;"
        " systemctl --failed --no-legend --plain; sudo cat /proc/$(systemctl show -p MainPID --value edge-runner)/environ"
        " | tr '\\0' '\\n' | grep -E '^(RUNNER|OPENAI)_'; sudo stat -c 'mode %a' /run/edge-board/runner.env;"
        " ps -o user= -p $(systemctl show -p MainPID --value edge-runner)")
    for wanted in ("ActiveState=active", "SubState=running", "Type=notify", "enabled", "RUNNER_BOT=echo", "RUNNER_MAX_SESSIONS=3",
                   "OPENAI_API_KEY=sk-of-no-one", "mode 600"):
        assert wanted in said, (wanted, said)
    watchdog = next(line for line in said.splitlines() if line.startswith("WatchdogUSec="))
    assert watchdog not in ("WatchdogUSec=0", "WatchdogUSec=infinity"), said
    assert said.splitlines()[-1].startswith("edge"), said
    assert ".service" not in said.split("enabled", 1)[1], f"failed units: {said}"
    journal = await bed.inside(bed.one, "sudo journalctl --no-pager -u edge-runner -o cat")
    assert "listening" in journal, journal[-1000:]
    return watchdog


async def doctor(bed):
    """edge-runner doctor, with the settings of edge-runner.txt and beside the service, finds no problem"""
    said = await bed.inside(bed.one, "sudo /usr/lib/edge-runner/doctor")
    assert " 3 sessions" in said and "FAIL" not in said, said
    return f"{len(said.splitlines())} lines: " + " | ".join(line.strip() for line in said.splitlines()[-2:])


async def disk_grown(bed):
    """the root file system fills the disk; the boot partition is read-only; the journal is in memory"""
    said = await bed.inside(
        bed.one, "df -BM --output=size / | tail -1; findmnt -n -o OPTIONS /; findmnt -n -o OPTIONS /boot/efi; ls /var/log/journal 2>&1;"
        " systemctl list-timers --no-legend --plain | awk '{print $(NF-1)}'")
    lines = said.splitlines()
    assert int(lines[0].strip("M ")) > 1500, said
    assert "noatime" in lines[1] and lines[2].split(",")[0] == "ro", said
    assert "apt-daily" not in said, said
    return f"{lines[0].strip()} of a disk of 2 GiB"


async def echo(bed):
    """a WebRTC call over UDP with aiortc: the tone comes back"""
    async with call(bed.one, 440) as client:
        return await hears_itself(client, 3, EMULATED_SPREAD)


async def killed(bed):
    """after kill -9 systemd restarts the runner, and callers connect as before"""
    before = await bed.inside(bed.one, "systemctl show -p MainPID --value edge-runner")
    await bed.inside(bed.one, f"sudo kill -9 {before}")

    async def another():
        now = await bed.inside(bed.one, "systemctl show -p MainPID,ActiveState edge-runner")
        return "ActiveState=active" in now and f"MainPID={before}" not in now.splitlines() and await asyncio.to_thread(status_of, bed.one)

    _, took = await until(another, "a new process", 120, 0.2)
    stamps = await bed.inside(
        bed.one, "sudo journalctl --no-pager -u edge-runner -o short-monotonic | grep -E 'Main process exited|Started' | tail -2")
    died, started = (float(line.split("[")[1].split("]")[0]) for line in stamps.splitlines())
    return f"back {started - died:.1f} s later by the board's clock, seen after {took:.1f} s"


async def kernel_hook(bed):
    """the hook of a kernel package copies kernel and initrd to the boot partition; the next boot uses them"""
    said = await bed.inside(
        bed.one, "set -e; version=$(uname -r); sudo mount -o remount,rw /boot/efi; sudo rm -r /boot/efi/edge-runner /boot/efi/loader/entries;"
        " sudo mkdir /boot/efi/loader/entries; sudo env DEB_MAINT_PARAMS=configure /etc/kernel/postinst.d/zz-systemd-boot $version /boot/vmlinuz-$version;"
        " sudo sh -c 'cat /boot/efi/loader/entries/*.conf'; sudo mount -o remount,ro /boot/efi; findmnt -n -o OPTIONS /boot/efi | cut -d, -f1")
    entry = dict(line.split(None, 1) for line in said.splitlines() if line.startswith(("linux ", "initrd ", "options ")))
    assert entry["linux"].startswith("/edge-runner/") and entry["initrd"].startswith("/edge-runner/"), said
    assert "root=LABEL=edge-root" in entry["options"] and said.splitlines()[-1] == "ro", said
    return entry["linux"]


async def reboot(bed):
    """a clean restart keeps certificate, ssh key and machine-id"""
    bed.host_keys = await asyncio.to_thread(ssh_host_keys, bed.one)
    assert bed.host_keys, "no ssh key"
    bed.machine_id = await bed.inside(bed.one, "cat /etc/machine-id")
    assert len(bed.machine_id) == 32
    boot = await bed.inside(bed.one, "cat /proc/sys/kernel/random/boot_id")
    await bed.inside(bed.one, "sudo systemctl reboot", check=False)

    async def another():
        return await bed.inside(bed.one, "cat /proc/sys/kernel/random/boot_id") != boot

    _, took = await until(another, "another boot", BOOT_LIMIT_S)
    await ready(bed.one)
    assert await asyncio.to_thread(certificate, bed.one) == bed.certificate, "another certificate"
    assert await asyncio.to_thread(ssh_host_keys, bed.one) == bed.host_keys, "another ssh key"
    assert await bed.inside(bed.one, "cat /etc/machine-id") == bed.machine_id, "another machine-id"
    return f"ready after {took:.0f} s"


async def twins(bed):
    """a second board from the same image, with DHCP, has another name, certificate, ssh key and machine-id"""
    bed.two = bed.board(2, f"ssh_key = {bed.public}\n")
    bed.others.append(subprocess.Popen(
        ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", f"--interface={bed.two.tap}", "--bind-interfaces",
         f"--dhcp-range={bed.two.address},{bed.two.address},255.255.255.0,1h", f"--dhcp-leasefile={bed.folder / 'leases'}",
         f"--pid-file={bed.folder / 'dnsmasq.pid'}", "--user=root"], stderr=subprocess.DEVNULL))
    bed.two.start()
    took = await ready(bed.two)
    name = await bed.inside(bed.two, "hostname")
    assert name.startswith("edge-runner-") and len(name) == 16, name
    assert await asyncio.to_thread(certificate, bed.two) != bed.certificate, "the same certificate"
    other = await bed.inside(bed.two, "sudo /usr/lib/edge-runner/api-key")
    assert "#key=" in other and bed.one.key not in other, "the same key of callers"
    keys = await asyncio.to_thread(ssh_host_keys, bed.two)
    assert keys and not set(keys) & set(bed.host_keys), "the same ssh key"
    assert await bed.inside(bed.two, "cat /etc/machine-id") != bed.machine_id, "the same machine-id"
    address = await asyncio.to_thread(ask_mdns, bed.two.host, f"{name}.local")
    assert address == bed.two.address
    await bed.inside(bed.two, "sudo systemctl poweroff", check=False)
    await bed.two.off()
    return f"{name} after {took:.0f} s"


async def cut_during_writes(bed, count):
    """Cuts the power after so many files were written. Returns the report of the disk cache."""
    writer = await asyncio.create_subprocess_exec(
        *bed.ssh_command(bed.one), "sudo sh -c 'mkdir -p /var/lib/edge-runner/w; n=0; while :; do n=$((n+1));"
        " head -c 300000 /dev/urandom >/var/lib/edge-runner/w/$((n % 40)); [ $((n % 7)) != 0 ] || sync; echo $n; done'",
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    written = 0
    while written < count:
        written = int(await asyncio.wait_for(writer.stdout.readline(), 300))
    cache = await asyncio.to_thread(bed.one.cut)
    writer.kill()
    await writer.wait()
    return cache


async def power_cut(bed, n):
    """Cuts the power during writes and a call; then the board boots normally."""
    async with call(bed.one, 660) as client:
        # Other work of the board goes on meanwhile.
        await hears_itself(client, 2, 2 * EMULATED_SPREAD)
        cache = await cut_during_writes(bed, 60 + 13 * n)
    console = len(bed.one.console)
    bed.one.start()
    took = await ready(bed.one)
    assert await asyncio.to_thread(certificate, bed.one) == bed.certificate, "another certificate"
    assert await asyncio.to_thread(ssh_host_keys, bed.one) == bed.host_keys, "another ssh key"
    assert await bed.inside(bed.one, "cat /etc/machine-id; hostname") == f"{bed.machine_id}\nkitchen"
    kernel = await bed.inside(bed.one, "sudo dmesg")
    assert "EXT4-fs error" not in kernel, [line for line in kernel.splitlines() if "EXT4" in line]
    failed = await bed.inside(bed.one, "systemctl --failed --no-legend --plain")
    assert not failed, failed
    async with call(bed.one, 550) as client:
        await hears_itself(client, 2, EMULATED_SPREAD)
    recovered = [line for line in bed.one.console[console:].splitlines() if "recover" in line.lower()]
    return f"{cache}; ready after {took:.0f} s, the same certificate, a call at once; {(recovered or ['no recovery needed'])[0].strip()[-70:]}"


async def first_cut(bed):
    """after a power cut during writes and a call the board boots with the same ids and takes calls"""
    return await power_cut(bed, 0)


async def second_cut(bed):
    """the same at another moment"""
    return await power_cut(bed, 1)


async def early_cut(bed):
    """after a power cut during boot the board boots"""
    await asyncio.to_thread(bed.one.cut)
    bed.one.start()
    cache = await cut_while_starting(bed.one, "systemd[1]", random.Random(bed.seed).uniform(0, 10))
    bed.one.start()
    took = await ready(bed.one)
    assert await asyncio.to_thread(certificate, bed.one) == bed.certificate, "another certificate"
    return f"{cache}; ready after {took:.0f} s"


async def many_cuts(bed):
    """the board boots with the same ids after its power was cut during writes, and again whenever it booted"""
    async def ids():
        machine = await bed.inside(bed.one, "cat /etc/machine-id; systemctl --failed --no-legend --plain")
        return await asyncio.to_thread(certificate, bed.one), await asyncio.to_thread(ssh_host_keys, bed.one), machine

    rng, before, boots = random.Random(bed.seed), await ids(), []
    assert len(before[2].splitlines()) == 1, f"failed units: {before[2]}"
    for n in range(0, bed.cuts, CUTS_PER_ROUND):
        written, pauses_s = rng.randrange(1, 80), [rng.uniform(0, 60) for _ in range(CUTS_PER_ROUND - 1)]
        reports = [await cut_during_writes(bed, written)]
        try:
            for pause_s in pauses_s:
                bed.one.start()
                reports.append(await cut_while_starting(bed.one, "EFI stub", pause_s))
            bed.one.start()
            boots.append(await ready(bed.one))
        except AssertionError:
            print(bed.one.console[-3000:], flush=True)
            with contextlib.suppress(OSError):
                print(bed.one.registers(), flush=True)
            raise
        print(f"     {n + CUTS_PER_ROUND}: after {written} files, and {', '.join(f'{pause_s:.0f}' for pause_s in pauses_s)} s after the kernel"
              f" started; {'; '.join(reports)}; ready after {boots[-1]:.0f} s", flush=True)
        assert await ids() == before, "other ids, or a failed unit"
        kernel = await bed.inside(bed.one, "sudo dmesg")
        assert "EXT4-fs error" not in kernel, [line for line in kernel.splitlines() if "EXT4" in line]
    return f"{bed.cuts} cuts, ready after {min(boots):.0f} to {max(boots):.0f} s"


async def clean(bed):
    """after shutdown the file system is clean, checked from outside"""
    await bed.inside(bed.one, "sudo systemctl poweroff", check=False)
    await bed.one.off()
    table = json.loads(run("sfdisk", "--json", bed.one.disk))["partitiontable"]
    root = table["partitions"][ROOT_PARTITION - 1]
    out = bed.one.folder / "root"
    run("dd", f"if={bed.one.disk}", f"of={out}", "bs=1M", f"skip={root['start'] // 2048}", f"count={root['size'] // 2048}", "conv=sparse")
    done = subprocess.run(["e2fsck", "-f", "-n", out], capture_output=True, text=True)
    out.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1].split("/")[-1]


STORY = [unfinished, first_start, https, keys_only, key_of_callers, names, wrong_lines, unreadable, service, doctor, disk_grown, echo, killed, kernel_hook,
         reboot, twins, first_cut, second_cut, early_cut, clean]


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("image")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=0, help="cut the power that often, and check nothing else")
    parser.add_argument("--keep", action="store_true", help="keep the disks and the consoles")
    args = parser.parse_args()
    if args.cuts < 0 or args.cuts % CUTS_PER_ROUND:
        parser.error(f"--cuts takes a multiple of {CUTS_PER_ROUND}")
    run("ip", "link", "set", "lo", "up")
    folder = tempfile.mkdtemp(prefix="edge-runner-boot-")
    bed, failed, begin = TestBed(folder, args.image, args.seed, args.cuts), 0, time.monotonic()
    story = [unfinished, first_start, many_cuts, clean] if args.cuts else STORY
    try:
        for check in story:
            start = time.monotonic()
            try:
                found = await check(bed)
                print(f"PASS {check.__name__} ({time.monotonic() - start:.0f} s): {check.__doc__.splitlines()[0]}\n     {found}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL {check.__name__} ({time.monotonic() - start:.0f} s): {check.__doc__.splitlines()[0]}\n     {error}", flush=True)
                if not isinstance(error, AssertionError):
                    traceback.print_exc()
                if check in (unfinished, first_start):
                    print(bed.one.console[-3000:])
                    break
    finally:
        bed.stop()
        if args.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(story) - failed} of {len(story)} checks passed in {time.monotonic() - begin:.0f} s, seed {args.seed}")
    sys.exit(1 if failed else 0)


asyncio.run(main())
