"""Kills the runner repeatedly while records of calls are written, and checks each time that none is lost. Uses only the standard library.

    chaos.py --binary PATH [--kills 200] [--seed N] [--folder DIR]

Each round starts the runner with the same `--calls-dir` and a receiver of `--events`, has calls from several clients at a time, and kills it
with SIGKILL at a random moment. One client is a telephone that its bot does not take, so that there are records of calls that were turned
away, in files of their own. The receiver refuses some events, so that some wait at each kill. A kill leaves whole writes; a power cut
leaves parts of them. So some rounds add the beginning of a record, without its end, or zeros before a whole one, and the beginning of an event.

A record counts as written once its line was seen in the folder, and an event as kept once its file was. After each start:
  - every line of every file is one record of its kind, and no call has two;
  - every record that was written is there, unchanged.
A client has its next call when it has seen the end of the last one, so its records are written in that order: where a later one is on the
disk, each earlier one is. At last, with a receiver that accepts everything:
  - every event that was kept, or whose record is on the disk, was accepted: it is kept before its record is written;
  - it came with the same body each time, a valid signature, and the record that is in the file.
The same seed kills after the same delays; what the runner is doing then is up to the machine. Prints a line per twenty kills; exits with 1,
and keeps the folder, when something was lost.
"""

import argparse
import base64
import collections
import hashlib
import hmac
import http.client
import http.server
import json
import os
import pathlib
import random
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS = 4
# Refused calls of one run: below the 60 a minute that have records, and within the bytes that their files may have.
REFUSED_CALLS_MAX = 20
# The number chooses the bot that takes none but Austrian numbers.
SETTINGS = """[bots.open]
bot = "echo"
[bots.kept]
bot = "echo"
numbers = ["+4312345"]
callers = ["+43*"]
"""
# Exceeds every step on a slow machine.
PATIENCE_S = 60
KEY = b"the key of the receiver, 32 byte"
REFUSED = 0.05
# Events that wait before the receiver accepts all of a round: the runner keeps 1,024.
WAITING_MAX = 200
# Of the end of a file, more than waits to be written.
TAIL_BYTES = 256 * 1024


class Lost(Exception):
    """A violated guarantee."""


def check(holds, what):
    if not holds:
        raise Lost(what)


class Receiver:
    """The receiver of `--events`."""

    def __init__(self, seed):
        self.lock = threading.Lock()
        self.rng = random.Random(seed)
        self.refuses = True
        # Of each event that came: its body, and whether it was accepted.
        self.bodies, self.accepted = {}, set()
        self.refused, self.faults = 0, []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(receiver.take(self.headers, body))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                """A connection ends with the runner."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, headers, body):
        event = headers["webhook-id"]
        signed = b".".join([event.encode(), headers["webhook-timestamp"].encode(), body])
        wanted = "v1," + base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
        with self.lock:
            if headers["webhook-signature"] != wanted:
                self.faults.append(f"{event} has another signature")
            if self.bodies.setdefault(event, body) != body:
                self.faults.append(f"{event} came with two bodies")
            if self.refuses and self.rng.random() < REFUSED:
                self.refused += 1
                return 503
            self.accepted.add(event)
            return 200


class Run:
    """One run of the runner."""

    def __init__(self, binary, folder, receiver):
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("RUNNER_", "RUST_LOG"))}
        variables["RUNNER_EVENTS_SECRET"] = "whsec_" + base64.b64encode(KEY).decode()
        self.log = open(folder / "log", "a")
        (folder / "settings.toml").write_text(SETTINGS)
        self.process = subprocess.Popen(
            [binary, "--host", "127.0.0.1", "--port", "0", "--rtc-port", "0", "--config", "settings.toml", "--calls-dir", str(folder / "calls"),
             "--events", f"http://127.0.0.1:{receiver.port}/hook"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True, env=variables, cwd=folder)
        for line in self.process.stdout:
            if "listening on http://" in line:
                self.port = int(line.strip().rstrip("/").rsplit(":", 1)[1])
                break
        else:
            raise Lost(f"the runner did not start, it ended with {self.process.wait()}; see {folder / 'log'}")
        # Read to the end; a full pipe would block the runner.
        self.reader = threading.Thread(target=lambda: collections.deque(self.process.stdout, maxlen=0), daemon=True)
        self.reader.start()

    def end(self, how):
        how(self.process)
        code = self.process.wait(timeout=PATIENCE_S)
        self.reader.join()
        self.log.close()
        return code


class Ends:
    """What `/calls/events` tells of ended calls, by their names."""

    def __init__(self, run):
        self.ended, self.is_over = set(), False
        self.changed = threading.Condition()
        self.connection = http.client.HTTPConnection("127.0.0.1", run.port, timeout=PATIENCE_S)
        self.connection.request("GET", "/calls/events")
        self.stream = self.connection.getresponse()
        check(self.stream.status == 200, f"/calls/events answers {self.stream.status}")
        # The head of the stream: from here on, nothing is missed.
        self.stream.readline()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        event = ""
        try:
            for line in self.stream:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and event == "ended":
                    with self.changed:
                        self.ended.add(name_of(json.loads(value)))
                        self.changed.notify_all()
        except (OSError, http.client.HTTPException, ValueError):
            pass
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def wait(self, text):
        """Waits for the end of a call; returns whether it came."""
        with self.changed:
            return self.changed.wait_for(lambda: text in self.ended or self.is_over, PATIENCE_S) and text in self.ended


def name_of(record):
    """What the client typed in a call, and of one that was turned away its number."""
    if record["outcome"] == "refused":
        return record["caller"]
    return record["turns"][0]["text"] if record["turns"] else None


def frame(opcode, payload):
    """A frame of a WebSocket, masked."""
    mask = secrets.token_bytes(4)
    length = struct.pack("!B", 0x80 | len(payload)) if len(payload) < 126 else struct.pack("!BH", 0x80 | 126, len(payload))
    return bytes([0x80 | opcode]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def field(number, payload):
    """A field of protobuf with a length."""
    length = len(payload)
    varint = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return bytes([number << 3 | 2]) + varint + payload


def call(port, text):
    """A call on `/ws-client` that types a text."""
    message = json.dumps({"label": "rtvi-ai", "type": "send-text", "id": "1", "data": {"content": text}})
    connect(port, "/ws-client", frame(2, field(4, field(1, message.encode()))) + frame(8, b"\x03\xe8"))


def telephone(port, number):
    """A call of a telephone that is turned away."""
    start = {"accountSid": "AC1", "streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"],
             "customParameters": {"from_number": number, "to_number": "+4312345"},
             "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}
    messages = [{"event": "connected", "protocol": "Call", "version": "1.0.0"},
                {"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": start}]
    connect(port, "/ws", b"".join(frame(1, json.dumps(message).encode()) for message in messages), frame(8, b"\x03\xf0"))


def connect(port, path, frames, answer=b""):
    """Sends frames on a WebSocket, an answer to what comes first, and reads to its end."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stream:
        stream.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(secrets.token_bytes(16)).decode()}\r\n\r\n").encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = stream.recv(4096)
            if not piece:
                raise ConnectionError("no upgrade")
            head += piece
        check(head.startswith(b"HTTP/1.1 101 "), f"{path} answers {head[:200]!r}")
        stream.sendall(frames)
        while stream.recv(4096):
            stream.sendall(answer)
            answer = b""


def files(folder):
    """The files of records."""
    return sorted((folder / "calls").glob("*.jsonl"))


def is_of_refused(path):
    return path.name.startswith("refused-")


def records(folder):
    """Every record of the files, by its name: its line. Fails for a broken line, a call with two, and one in a file of the other kind."""
    found = {}
    for path in files(folder):
        content = path.read_bytes()
        check(content.endswith(b"\n") or not content, f"{path.name} ends within a line: {content[-80:]!r}")
        for line in content.splitlines():
            try:
                record = json.loads(line)
                text = name_of(record)
                check((record["outcome"] == "refused") == is_of_refused(path), f"{path.name} has a call of the other kind: {record}")
            except (ValueError, KeyError, IndexError) as error:
                raise Lost(f"{path.name} has a broken line: {line[:200]!r}: {error!r}") from error
            # A call that was cut off before its text has none.
            if text is not None:
                check(text not in found, f"{path.name} has two records of the call {text}")
                found[text] = line
    return found


def newest_file(folder, is_refused):
    """The file that records of a kind go to: the highest number of the last day."""
    of_kind = (path for path in files(folder) if is_of_refused(path) == is_refused)
    return max(of_kind, key=lambda path: [int(part) for part in path.stem.split("-")[1:]], default=None)


def tail(folder, is_refused):
    """The end of the newest file of a kind."""
    newest = newest_file(folder, is_refused)
    if newest is None:
        return b""
    with open(newest, "rb") as file:
        file.seek(max(0, newest.stat().st_size - TAIL_BYTES))
        return file.read()


def kept(folder):
    """The ids of the events that are kept."""
    return {path.stem for path in (folder / "calls" / "events").glob("evt_*.json")}


class Round:
    """Calls on one run, until the kill."""

    def __init__(self, run, folder, number, rng):
        self.run, self.folder, self.number = run, folder, number
        # The last one is the telephone.
        self.seeds = [rng.getrandbits(64) for _ in range(CLIENTS + 1)]
        self.delay_s = rng.expovariate(1 / 0.06)
        self.ends = Ends(run)
        self.reached, self.over = threading.Event(), threading.Event()
        # What was seen on the disk, and the calls of each client whose end was seen, in order.
        self.written, self.order, self.faults = set(), [[] for _ in self.seeds], []

    def have(self):
        threads = [threading.Thread(target=self.client, args=(nth, random.Random(seed)), daemon=True) for nth, seed in enumerate(self.seeds)]
        for thread in threads:
            thread.start()
        check(self.reached.wait(PATIENCE_S), f"no call ended: {self.faults}")
        time.sleep(self.delay_s)
        self.over.set()
        self.run.end(lambda process: process.kill())
        for thread in threads:
            thread.join()
        check(not self.faults, "; ".join(self.faults))

    def client(self, nth, rng):
        try:
            is_refused = nth == CLIENTS
            for count in range(REFUSED_CALLS_MAX if is_refused else 1_000_000):
                text = f"+1555{self.number:05}{count:04}" if is_refused else f"call {self.number}.{nth}.{count}"
                (telephone if is_refused else call)(self.run.port, text)
                if not self.ends.wait(text):
                    check(self.over.is_set(), f"the end of {text} did not come")
                    return
                self.order[nth].append(text)
                self.reached.set()
                # Looking now and then is what keeps the clients from running ahead of the disk.
                if rng.random() < 0.5 and not self.look(text, is_refused):
                    return
        except (OSError, http.client.HTTPException) as error:
            # Interrupted by the kill; before the kill this is a failure.
            if not self.over.is_set():
                self.faults.append(f"client {nth}: {error!r}")
                self.reached.set()
        except Lost as lost:
            self.faults.append(str(lost))
            self.reached.set()

    def look(self, text, is_refused):
        """Waits until a record is on the disk; returns whether it came before the kill."""
        wanted = json.dumps(text).encode()
        until = time.monotonic() + PATIENCE_S
        while b"\n" not in tail(self.folder, is_refused).partition(wanted)[2]:
            if self.over.is_set():
                return False
            check(time.monotonic() < until, f"the record of {text} is not written")
            time.sleep(0.001)
        self.written.add(text)
        return True


def cut_power(folder, rng):
    """Leaves what a power cut may leave of unfinished writes: parts of a record and of an event."""
    newest = newest_file(folder, rng.random() < 0.5)
    content = newest.read_bytes() if newest else b""
    if content:
        line = content.splitlines()[-1]
        lost = bytes(rng.randrange(1, 4096)) + b"\n" + line + b"\n"
        with open(newest, "ab") as file:
            file.write(rng.choice([line[:rng.randrange(1, len(line))], lost]))
        (folder / "calls" / "events" / "new.part").write_bytes(line[:rng.randrange(len(line))])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", required=True)
    arguments.add_argument("--kills", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    arguments.add_argument("--folder", type=pathlib.Path, help="where the data goes; a temporary one otherwise")
    asked = arguments.parse_args()
    folder = (asked.folder or pathlib.Path(tempfile.mkdtemp(prefix="calls-chaos-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {asked.seed}, {asked.kills} kills in {folder}", flush=True)
    rng = random.Random(asked.seed)
    receiver = Receiver(rng.getrandbits(64))
    binary = str(pathlib.Path(asked.binary).resolve())
    known, written, events, orders, counts = {}, set(), set(), [], collections.Counter()
    began, number, run = time.monotonic(), 0, None

    def start():
        """Starts the runner, and checks what is in the folder then."""
        run = Run(binary, folder, receiver)
        try:
            found = records(folder)
            for text, line in known.items():
                check(found.get(text) == line, f"the record of {text} is lost or changed: {found.get(text)}")
            check(written <= found.keys(), f"records that were on the disk are gone: {written - found.keys()}")
        except Lost:
            run.end(lambda process: process.kill())
            raise
        known.update(found)
        return run

    try:
        for number in range(1, asked.kills + 1):
            receiver.refuses = len(kept(folder)) < WAITING_MAX
            run = start()
            # Without calls, the receiver catches up.
            until = time.monotonic() + PATIENCE_S
            while not receiver.refuses and len(kept(folder)) >= WAITING_MAX:
                check(time.monotonic() < until, f"{len(kept(folder))} events are not posted")
                time.sleep(0.01)
            each = Round(run, folder, number, rng)
            each.have()
            run = None
            waiting = kept(folder)
            events |= waiting
            counts["most events"] = max(counts["most events"], len(waiting))
            counts["calls"] += sum(map(len, each.order))
            counts["refused calls"] += len(each.order[-1])
            if rng.random() < 0.5:
                cut_power(folder, rng)
                counts["torn writes"] += 1
            written |= each.written
            orders.extend(each.order)
            if number % 20 == 0:
                print(f"{number} kills, {time.monotonic() - began:.0f} s: {counts['calls']} calls, {len(known)} records, "
                      f"{len(events)} events waited at a kill, {receiver.refused} were refused", flush=True)
        receiver.refuses = False
        run = start()
        until = time.monotonic() + PATIENCE_S
        while kept(folder):
            check(time.monotonic() < until, f"{len(kept(folder))} events are not posted")
            time.sleep(0.05)
        code = run.end(lambda process: process.terminate())
        run = None
        check(code == 0, f"SIGTERM ended the runner with {code}")
        found = records(folder)
        check(found == known, "an idle run changed the records")
        judge(orders, found, events, receiver)
        log = (folder / "log").read_text()
        for words in ("is not written", "are dropped", "are not written"):
            check(words not in log, f"the log says `{words}`: the disk is too slow to judge")
    except Lost as lost:
        print(f"LOST in round {number} of seed {asked.seed}: {lost}\nsee {folder}", flush=True)
        return 1
    finally:
        if run:
            run.end(lambda process: process.kill())
    print(f"{asked.kills} kills, {counts['torn writes']} torn writes: {counts['calls']} calls, {counts['refused calls']} of them refused, "
          f"{len(known)} records, none lost, none twice; "
          f"{len(receiver.bodies)} events, {len(events)} waited at a kill, up to {counts['most events']} at one, all accepted", flush=True)
    if not asked.folder:
        shutil.rmtree(folder)
    return 0


def judge(orders, found, events, receiver):
    """Compares what clients, files and the receiver know."""
    ended = {}
    for event, body in receiver.bodies.items():
        body = json.loads(body)
        if body["type"] == "call.ended":
            ended[name_of(body["data"])] = (event, body["data"])
    for order in orders:
        present = [text in found for text in order]
        check(present == sorted(present, reverse=True), f"a record is missing before a later one: {list(zip(order, present))}")
        for text in [text for text in order if text in found]:
            check(text in ended and ended[text][0] in receiver.accepted, f"the event of the end of {text} is lost")
    for text, (_, record) in ended.items():
        if text in found:
            check(record == json.loads(found[text]), f"the event and the record of {text} differ")
    check(events <= receiver.accepted, f"events that were kept are lost: {events - receiver.accepted}")
    check(not receiver.faults, "; ".join(receiver.faults[:5]))


if __name__ == "__main__":
    sys.exit(main())
