"""The runner and the cloud service with a wrong clock: each signer and verifier, by each fault. Prints a line per cell of the table.

    run.py [--binary PATH] [--pebble FOLDER] [--store PATH --shared PATH] [CELL...]      exits with 1 when a check failed

A row of the table is a signer or a verifier, a function of this file; a column is a fault of the clock (CLOCKS, and BACK for the rows
of STEPPED). Each cell starts programs whose clock has that fault, or in the column BACK gets it once they listen, asks, sets the clock
right in mid-life, and asks again; what it expects is in the row. The clock of everybody else, this process included, is right.
`row_column` is the name of a cell.

The clock is that of libfaketime (Debian's package `faketime`), which reads the offset from a file at each look. It leaves
CLOCK_MONOTONIC alone, or a timer that runs while the clock is set back by a day would fire a day later (the row `worker`). A machine
that sleeps for an hour is not here, since nothing but a kernel makes its monotonic clock stand still. Tests in virtual time have one,
for a registration and for a call: src/proto/livekit/worker/tests.rs, src/proto/webrtc/session/tests/outages.rs.

Needs `openssl`, for the row of ACME what ../../check/pebble.sh prints, and for that of the object store what ../../check/versitygw.sh
prints, PostgreSQL, and as `--shared` a program with the feature `scale`. Otherwise nothing but the standard library.
"""

import base64
import concurrent.futures
import fcntl
import functools
import glob
import gzip
import hashlib
import hmac
import http.server
import importlib.util
import io
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from checks import Report, chosen, free_ports, options, wait_until
from runner import ROOT, Runner

DAY_S = 86_400
# How far the clock of the program is from the right one until it is set.
CLOCKS = {"a_year_behind": -365 * DAY_S, "a_week_behind": -7 * DAY_S, "a_day_ahead": DAY_S}
# The clock is right until a program listens, and is then set back by this.
BACK = {"right_then_a_week_back": -7 * DAY_S}
# The same in src/proto/limits.
RELEASED_S = int(re.search(r"RELEASED_S: u64 = ([\d_]+)", (ROOT / "src/proto/limits/mod.rs").read_text())[1].replace("_", ""))
# Servers of LiveKit allow this much between the clocks.
LEEWAY_S = 60
KEY, SECRET = "APIclock", "secret-of-the-clock-0123456789abcdef"
# Cells that run side by side. Most wait for a pause of the runner.
LANES = 4


# --- The clock.

def library():
    """The path of libfaketime."""
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1") or glob.glob("/usr/lib/faketime/libfaketimeMT.so.1")
    if not found:
        sys.exit("libfaketime is missing: apt-get install faketime")
    return found[0]


class Clock:
    """The clock of some programs, which has a fault until it is set right."""

    def __init__(self, folder, offset_s):
        self.file = folder / "offset"
        self.offset_s = offset_s
        self.write(offset_s)

    def write(self, offset_s):
        # Renamed into place, so that no program reads half of it.
        part = self.file.with_suffix(".part")
        part.write_text(f"{offset_s:+d}\n")
        part.rename(self.file)
        # The offset of now.
        self.now_s = offset_s

    def correct(self):
        self.write(0)

    def variables(self):
        return {"LD_PRELOAD": library(), "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}

    def is_ahead(self):
        return self.offset_s > 0


class Cell:
    """What one cell has: a folder, a clock, and programs that end with it."""

    def __init__(self, result, given, folder, offset_s, is_stepped=False):
        self.result, self.given, self.folder, self.is_stepped = result, given, folder, is_stepped
        self.clock = Clock(folder, offset_s)

    def started(self, start):
        """What `start` returns: a program that listens, whose clock has the fault of the cell."""
        if not self.is_stepped:
            return self.result.keep(start())
        self.clock.write(0)
        program = self.result.keep(start())
        self.clock.write(self.clock.offset_s)
        return program

    def before(self, make):
        """What `make` returns before the clock is set back, in a list; an empty one in other columns."""
        if not self.is_stepped:
            return []
        self.clock.write(0)
        made = make()
        self.clock.write(self.clock.offset_s)
        return [made]

    def runner(self, *args, variables=None, is_right=False):
        """A runner with the clock of the cell, or with the right one."""
        if is_right:
            return self.result.keep(Runner(self.given.binary, "--bot", "echo", *args, variables=variables))
        variables = {**self.clock.variables(), **(variables or {})}
        return self.started(lambda: Runner(self.given.binary, "--bot", "echo", *args, variables=variables))

    def server(self, answer, context=None):
        return self.result.keep(Server(answer, context))


def log_has(runner, *words):
    """Whether one line of the log has all these words."""
    return any(all(word in line for word in words) for line in runner.log_text().splitlines())


def until_log_has(runner, *words):
    wait_until(lambda: log_has(runner, *words), f"a line with {words}")


# --- The other side: a server, and requests.

class Server:
    """A server of HTTP on loopback, which keeps its requests. `answer` returns status and JSON, or None for one of its own."""

    def __init__(self, answer, context=None):
        outer, self.asked = self, []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.path, self.headers.get("Authorization", ""), body))
                status, reply = answer(self, body)
                if status:
                    reply = json.dumps(reply).encode()
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(reply)))
                    self.end_headers()
                    self.wfile.write(reply)

            do_GET = do_POST = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A runner that ends, or refuses a certificate, closes its connections.
        self.server.handle_error = lambda *_: None
        if context:
            # With a handshake per thread: one that hangs must not block the others.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def log_text(self):
        return "\n".join(f"asked: {path}" for path, *_ in self.asked)


def ask(runner, path, body, headers=None, method="POST"):
    """Status and text of the reply."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(runner.url + path, body, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def start(runner, body):
    status, text = ask(runner, "/start", body)
    assert status == 200, (status, text)
    return json.loads(text)


def upgrade(port, target, key="dGhlIHNhbXBsZSBub25jZQ=="):
    """The status of an upgrade to a WebSocket, and the text of a refusal."""
    with socket.create_connection(("127.0.0.1", port), 30) as tcp:
        tcp.sendall((f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n").encode())
        head = b""
        while b"\r\n\r\n" not in head and (part := tcp.recv(4096)):
            head += part
        return int(head.split()[1]), head.partition(b"\r\n\r\n")[2].decode(errors="replace")


def port_of(runner):
    return urllib.parse.urlsplit(runner.url).port


def unpadded(text):
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def signed(claims):
    """A token as LiveKit's servers sign it."""
    part = f"{unpadded(json.dumps({'alg': 'HS256'}).encode())}.{unpadded(json.dumps(claims).encode())}"
    return f"{part}.{unpadded(hmac.digest(SECRET.encode(), part.encode(), 'sha256'))}"


def is_good(token):
    """Whether a server with the right clock takes this token."""
    part, _, tag = token.rpartition(".")
    if not part:
        return False
    assert hmac.compare_digest(tag, unpadded(hmac.digest(SECRET.encode(), part.encode(), "sha256"))), "foreign token"
    claims = part.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    return claims["nbf"] - LEEWAY_S <= time.time() < claims["exp"] + LEEWAY_S


# --- Rows: LiveKit.

def rooms(cell, context=None):
    """A server of LiveKit that judges tokens, registers workers and has no rooms."""
    def answer(request, _body):
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token or not is_good(token):
            return 401, {"msg": "invalid token"}
        if request.path != "/agent":
            return 503, {}
        key = request.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        request.send_response(101)
        request.send_header("Connection", "Upgrade")
        request.send_header("Upgrade", "websocket")
        request.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        request.end_headers()
        # ServerMessage with RegisterWorkerResponse, whose first field is the id of the worker.
        name = b"AW_clock"
        inner = b"\x0a" + bytes([len(name)]) + name
        message = b"\x0a" + bytes([len(inner)]) + inner
        request.wfile.write(b"\x82" + bytes([len(message)]) + message)
        request.wfile.flush()
        while request.rfile.read(1):
            pass
        request.close_connection = True
        return None, None

    return cell.server(answer, context)


def bearers(server):
    """The path and the token of each request."""
    return [(path, authorization.removeprefix("Bearer ")) for path, authorization, _ in server.asked]


def of_rooms(server, scheme="ws", host="127.0.0.1"):
    return {"MEDIAROOM_URL": f"{scheme}://{host}:{server.port}", "MEDIAROOM_API_KEY": KEY, "MEDIAROOM_API_SECRET": SECRET}


def worker(cell):
    """The registration at a LiveKit server: refused with a line that names the clocks, made once the clock is right"""
    runner = cell.runner("--register", variables=of_rooms(rooms(cell)))
    until_log_has(runner, "WARN", "401", "clocks")
    assert runner.call("GET", "/worker")[0] == 503
    cell.clock.correct()
    until_log_has(runner, "registered")
    assert runner.call("GET", "/worker")[0] == 200


def room(cell):
    """`/start` for a LiveKit room: the caller's and the bot's token; the bot's refusal names the clock"""
    server = rooms(cell)
    runner = cell.runner(variables=of_rooms(server))
    assert not is_good(start(runner, {"transport": "mediaroom"})["token"])
    until_log_has(runner, "(401)", "the clock of this machine must be right")
    cell.clock.correct()
    assert is_good(start(runner, {"transport": "mediaroom"})["token"])
    wait_until(lambda: any(is_good(token) for _, token in bearers(server)), "a good token of the bot")


def room_of_worker(cell):
    """`/start` of a registered runner, which asks the server for a room: the refusal names the clocks"""
    server = rooms(cell)
    runner = cell.runner("--register", variables=of_rooms(server))
    until_log_has(runner, "WARN", "401")
    status, text = ask(runner, "/start", {"transport": "mediaroom"})
    assert status >= 400 and ("clocks differ" in text or log_has(runner, "a room (401)", "clocks differ")), (status, text)
    cell.clock.correct()
    before = len(server.asked)
    ask(runner, "/start", {"transport": "mediaroom"})
    asked = [token for path, token in bearers(server)[before:] if path.startswith("/twirp/")]
    assert asked and all(map(is_good, asked)), "the token for the server's API is not good"


def room_over_tls(cell):
    """A LiveKit server with a certificate of two days: a line names the clock where it is not valid by it"""
    context, certificate = certified(cell.folder)
    variables = {**of_rooms(rooms(cell, context), "wss", "localhost"), "SSL_CERT_FILE": str(certificate)}
    runner = cell.runner(variables=variables)
    start(runner, {"transport": "mediaroom"})
    # A day ahead it is still valid, and the token is what the server refuses.
    words = "the clock of this machine must be right" if cell.clock.is_ahead() else "is the clock of this machine right?"
    until_log_has(runner, words)
    cell.clock.correct()
    start(runner, {"transport": "mediaroom"})
    until_log_has(runner, "503")


def certified(folder):
    """The configuration of a server of TLS, and the file of its certificate, which is valid from now on for two days."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out",
                    certificate, "-days", "2", "-subj", "/CN=clock", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext",
                    "basicConstraints=critical,CA:FALSE"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


# --- Rows: webhooks.

def refused_for_the_clock(cell, runner, send, name):
    """Sends a webhook until the clock is right; its refusal is told with the clock as the reason."""
    status, text = send()
    assert status in (401, 403), (status, text)
    until_log_has(runner, name, "this machine's clock")
    cell.clock.correct()
    status, text = send()
    assert status == 200, (status, text)


def room_webhook(cell):
    """A webhook of a LiveKit server: refused with the clock as the reason"""
    runner = cell.runner("--register", variables=of_rooms(rooms(cell)))

    def send():
        body = json.dumps({"event": "room_started", "room": {"name": "talk"}}).encode()
        now_s = int(time.time())
        token = signed({"iss": KEY, "nbf": now_s, "exp": now_s + 300, "sha256": base64.b64encode(hashlib.sha256(body).digest()).decode()})
        return ask(runner, "/mediaroom-webhook", body, {"Authorization": token, "Content-Type": "application/webhook+json"})

    refused_for_the_clock(cell, runner, send, "webhook of LiveKit")


def call_webhook(cell):
    """A webhook of a telephone provider whose signature has a time (Telnyx): refused with the clock as the reason"""
    folder = cell.folder
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder / "key"], check=True, capture_output=True)
    public = subprocess.run(["openssl", "pkey", "-in", folder / "key", "-pubout", "-outform", "DER"], check=True, capture_output=True)
    variables = {"TELCO_B_API_KEY": "key", "TELCO_B_PUBLIC_KEY": base64.b64encode(public.stdout[-32:]).decode()}
    runner = cell.runner("-t", "telephony_b", "-x", "bots.example.net", "--api-key", "0123456789abcdef", variables=variables)

    def send():
        body = b'{"data": {"payload": {}}}'
        stamp = str(int(time.time()))
        (folder / "message").write_bytes(f"{stamp}|".encode() + body)
        made = subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", folder / "key", "-in", folder / "message"],
                              check=True, capture_output=True)
        headers = {"telnyx-signature-ed25519": base64.b64encode(made.stdout).decode(), "telnyx-timestamp": stamp}
        return ask(runner, "/", body, headers)

    refused_for_the_clock(cell, runner, send, "")


def daily(cell):
    """Daily: a dial-in webhook is refused with the clock as the reason; rooms end four hours from now once the clock is right"""
    ends = []

    def answer(request, body):
        asked = json.loads(body or b"{}")
        if end := asked.get("properties", {}).get("exp"):
            ends.append(end)
        if request.path.endswith("/meeting-tokens"):
            return 200, {"token": "token"}
        return 200, {"url": "https://clock.daily.co/a", "name": "a", "privacy": "public",
                     "config": {"sip_uri": {"endpoint": "a@sip.example"}}}

    server = cell.server(answer)
    key = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
    variables = {"VIDEOROOM_API_KEY": "key", "VIDEOROOM_API_URL": f"http://127.0.0.1:{server.port}/v1", "PINLESS_HMAC_SECRET": key}
    variables = {**cell.clock.variables(), **variables}
    runner = cell.started(lambda: Runner(cell.given.binary, "--dialin", "--", "/bin/sleep", "600", variables=variables))
    body = json.dumps({"From": "+15550001111", "To": "+15550002222", "callId": "0b1c2d3e-0000-4000-8000-000000000001",
                       "callDomain": "0b1c2d3e-0000-4000-8000-000000000002"}).encode()

    def send():
        stamp = str(int(time.time()))
        tag = hmac.digest(base64.b64decode(key), f"{stamp}.".encode() + body, "sha256")
        headers = {"X-Pinless-Timestamp": stamp, "X-Pinless-Signature": base64.b64encode(tag).decode()}
        return ask(runner, "/videoroom-dialin-webhook", body, headers)

    refused_for_the_clock(cell, runner, send, "")
    assert ends and all(abs(end - time.time() - 4 * 3600) < 600 for end in ends), ends


def whatsapp(cell):
    """A WhatsApp call: answered while the clock is behind; ahead, a warning names the clock in place of the call"""
    def answer(_request, _body):
        return 200, {"messaging_product": "whatsapp", "success": True}

    server = cell.server(answer)
    variables = {"MESSAGING_TOKEN": "token", "MESSAGING_PHONE_NUMBER_ID": "1060000001", "MESSAGING_APP_SECRET": "app-secret",
                 "MESSAGING_WEBHOOK_VERIFICATION_TOKEN": "word", "MESSAGING_API_URL": f"http://127.0.0.1:{server.port}/v23.0"}
    runner = cell.runner("--messaging", variables=variables)
    offer = (ROOT / "tests" / "data" / "sdp" / "whatsapp.offer.sdp").read_text().replace("\r", "").replace("\n", "\r\n")

    def send(call_id):
        call = {"id": call_id, "from": "15550001111", "to": "15550002222", "event": "connect", "direction": "USER_INITIATED",
                "timestamp": str(int(time.time())), "session": {"sdp_type": "offer", "sdp": offer}}
        value = {"messaging_product": "whatsapp", "metadata": {"display_phone_number": "15550002222", "phone_number_id": "1060000001"},
                 "contacts": [], "calls": [call]}
        body = json.dumps({"object": "whatsapp_business_account",
                           "entry": [{"id": "102", "changes": [{"field": "calls", "value": value}]}]}).encode()
        tag = hmac.new(b"app-secret", body, "sha256").hexdigest()
        status, text = ask(runner, "/whatsapp", body, {"X-Hub-Signature-256": f"sha256={tag}"})
        assert status == 200, (status, text)

    def is_answered(call_id):
        return any(json.loads(body or b"{}").get("call_id") == call_id and b"accept" in body for _, _, body in server.asked)

    send("wacid.first")
    if cell.clock.is_ahead():
        until_log_has(runner, "WARN", "wacid.first", "missed", "this machine's clock")
    else:
        wait_until(lambda: is_answered("wacid.first"), "an answer to the call")
    cell.clock.correct()
    send("wacid.second")
    wait_until(lambda: is_answered("wacid.second"), "an answer to the call")


# --- Rows: events and records of calls.

# Receivers of Standard Webhooks allow this much.
TOLERANCE_S = 300
EVENTS_KEY = b"the key of the receiver, 32 byte"


def call(runner):
    """A short call."""
    status, text = upgrade(port_of(runner), "/ws-client")
    assert status == 101, (status, text)


def receiver(cell):
    """A receiver of events, with the right clock: the type and id of each call that it accepted, and whether it refused one."""
    accepted, refused = [], []

    def answer(request, body):
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        event, stamp, signature = (request.headers[name] for name in names)
        tag = base64.b64encode(hmac.digest(EVENTS_KEY, f"{event}.{stamp}.".encode() + body, "sha256")).decode()
        assert signature == f"v1,{tag}", "another signature"
        if abs(int(stamp) - time.time()) > TOLERANCE_S:
            refused.append(event)
            return 400, {}
        told = json.loads(body)
        accepted.append((told["type"], told["data"]["id"]))
        return 200, {}

    server = cell.server(answer)
    secret = "whsec_" + base64.b64encode(EVENTS_KEY).decode()
    return ("--events", f"http://127.0.0.1:{server.port}/hook"), {"RUNNER_EVENTS_SECRET": secret}, accepted, refused


def events(cell):
    """Signed events: refused with the clock as the reason; all are accepted once it is right, those of before it too"""
    options, variables, accepted, refused = receiver(cell)
    runner = cell.runner(*options, variables=variables)
    call(runner)
    until_log_has(runner, "WARN", "status 400", "this machine's clock is")
    wait_until(lambda: len(calls_of(runner)) == 1 and len(set(refused)) == 2, "two events that were refused")
    assert not accepted
    cell.clock.correct()
    call(runner)
    wanted = lambda: sorted((kind, each) for each in calls_of(runner) for kind in ("call.ended", "call.started"))
    wait_until(lambda: len(calls_of(runner)) == 2 and sorted(accepted) == wanted(), "all four events")
    assert not log_has(runner, "are dropped")


def calls_of(runner):
    """The ids of the calls that have ended."""
    _, body = runner.call("GET", "/calls")
    return [each["id"] for each in body["calls"] if each.get("outcome")]


def kept_events(cell):
    """Events that wait in `--calls-dir` when the runner ends under a wrong clock: the next start with the right one posts them"""
    options, variables, accepted, refused = receiver(cell)
    options = (*options, "--calls-dir", cell.folder / "calls")
    first = cell.runner(*options, variables=variables)
    call(first)
    wait_until(lambda: len(set(refused)) == 2, "two events that were refused")
    first.process.terminate()
    first.process.wait()
    assert len(list((cell.folder / "calls" / "events").glob("evt_*.json"))) == 2
    second = cell.runner(*options, variables=variables, is_right=True)
    wait_until(lambda: len(accepted) == 2, "the events of before")
    wait_until(lambda: not list((cell.folder / "calls" / "events").glob("evt_*.json")), "no event that waits")
    assert not log_has(second, "are dropped")


def records(cell):
    """Records of calls: each is in the file of its day by the clock; a jump ahead, and back, deletes none of the last 90 days"""
    folder = cell.folder / "calls"
    folder.mkdir()
    kept = folder / f"calls-{day(-80 * DAY_S)}.jsonl"
    kept.write_text('{"id": "kept"}\n')
    runner = cell.runner("--calls-dir", folder)

    def record(offset_s):
        """The file of a call under this clock."""
        cell.clock.write(offset_s)
        before = records_of(folder)
        days = {day(offset_s)}
        call(runner)
        wait_until(lambda: records_of(folder) != before, "a record")
        # Midnight may pass meanwhile.
        days.add(day(offset_s))
        after = records_of(folder)
        changed = [path for path in after if after[path] != before.get(path)]
        assert all(after.get(path, "").startswith(text) for path, text in before.items()), "a record is lost"
        assert len(changed) == 1 and changed[0].name in {f"calls-{each}.jsonl" for each in days}, changed

    for offset_s in (cell.clock.offset_s, 0, 365 * DAY_S, 365 * DAY_S, 0):
        record(offset_s)
    assert kept.exists()


def records_of(folder):
    """The texts of the files of records. One that was just made is empty until its first record is written."""
    texts = {path: path.read_text() for path in folder.glob("calls-*.jsonl")}
    return {path: text for path, text in texts.items() if text}


def day(offset_s):
    """The day in UTC by a clock with this offset, as names of files have it."""
    return time.strftime("%Y%m%d", time.gmtime(time.time() + offset_s))


# --- Rows: what the runner signs for itself, and for other replicas.

def token(cell):
    """Own tokens of WebSockets and ids of sessions: good under any clock, also where it is set between `/start` and the call"""
    runner = cell.runner("--ws-auth", "token")
    early = cell.before(lambda: start(runner, {"transport": "websocket"}))
    made = [start(runner, {"transport": "websocket"}) for _ in range(2)]
    opened = [upgrade(port_of(runner), f"/ws-client?token={each['token']}") for each in [*early, made[0]]]
    cell.clock.correct()
    opened.append(upgrade(port_of(runner), f"/ws-client?token={made[1]['token']}"))
    opened.append(upgrade(port_of(runner), f"/ws-client?token={start(runner, {'transport': 'websocket'})['token']}"))
    assert all(status == 101 for status, _ in opened), opened
    assert upgrade(port_of(runner), f"/ws-client?token={made[0]['token']}")[0] == 403, "a token was good twice"


def client_secret(cell):
    """Keys of one realtime call (`ek_`): good once under any clock, also where it is set between key and call"""
    runner = cell.runner()
    offer = (ROOT / "tests" / "data" / "sdp" / "chrome.offer.sdp").read_text().replace("\r", "").replace("\n", "\r\n").encode()

    def key():
        status, text = ask(runner, "/v1/realtime/client_secrets", {})
        assert status == 200, (status, text)
        made = json.loads(text)
        # By the clock of the runner, for a minute at least and a day at most.
        assert 60 <= made["expires_at"] - time.time() - cell.clock.now_s <= DAY_S, made["expires_at"]
        return made["value"]

    def call_with(value):
        return ask(runner, "/v1/realtime/calls", offer, {"Content-Type": "application/sdp", "Authorization": f"Bearer {value}"})[0]

    early = cell.before(key)
    keys = [key(), key()]
    assert all(call_with(each) == 201 for each in [*early, keys[0]])
    cell.clock.correct()
    assert call_with(keys[1]) == 201 and call_with(key()) == 201
    assert call_with(keys[0]) == 401, "a key was good twice"


def replicas(cell, *options):
    """A replica with the clock of the cell, and one with the right clock."""
    key = cell.folder / "key"
    key.write_text("cluster-0123456789abcdef0123456789abcdef\n")
    key.chmod(0o600)
    return [cell.runner("--cluster-key-file", key, "--replica-name", name, *options, is_right=is_right)
            for name, is_right in (("wrong", False), ("right", True))]


def replica_token(cell):
    """Tokens of replicas: good at their maker; at one with another clock refused with words about the clocks; good everywhere then"""
    wrong, right = replicas(cell, "--ws-auth", "token")

    def open_at(maker, taker):
        return upgrade(port_of(taker), f"/ws-client?token={start(maker, {'transport': 'websocket'})['token']}")

    assert open_at(wrong, wrong)[0] == open_at(right, right)[0] == 101
    for maker, taker in ((wrong, right), (right, wrong)):
        status, text = open_at(maker, taker)
        assert status == 403 and "clock" in text, (status, text)
    of_then = start(wrong, {"transport": "websocket"})["token"]
    cell.clock.correct()
    # It is of another time now, and no longer good for its life.
    status, text = upgrade(port_of(wrong), f"/ws-client?token={of_then}")
    assert status == 403, (status, text)
    for maker, taker in ((wrong, right), (right, wrong), (wrong, wrong)):
        status, text = open_at(maker, taker)
        assert status == 101, (status, text)


def sealed_id(cell):
    """Sealed ids of sessions: good at their maker; unknown at a replica with another clock; good everywhere then"""
    wrong, right = replicas(cell)

    def open_at(maker, taker):
        return upgrade(port_of(taker), f"/ws-client?sessionId={start(maker, {'transport': 'websocket'})['sessionId']}")[0]

    assert open_at(wrong, wrong) == open_at(right, right) == 101
    assert open_at(wrong, right) == open_at(right, wrong) == 404
    cell.clock.correct()
    assert open_at(wrong, right) == open_at(right, wrong) == 101


# --- Rows: certificates.

def certificate(cell):
    """`--tls auto`: a device with the right clock takes the certificate, before and after the correction"""
    runner = cell.runner("--tls", "auto", "--state-dir", cell.folder / "state")
    port = port_of(runner)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/ca.crt") as reply:
        root = reply.read().decode()

    def handshake():
        context = ssl.create_default_context(cadata=root)
        with socket.create_connection(("127.0.0.1", port), 30) as tcp, context.wrap_socket(tcp, server_hostname="localhost") as tls:
            return tls.getpeercert()["serialNumber"]

    handshake()
    cell.clock.correct()
    runner.process.send_signal(signal.SIGHUP)
    handshake()
    runner.process.terminate()
    runner.process.wait()
    # The stored one, after a start with the right clock.
    second = cell.runner("--tls", "auto", "--state-dir", cell.folder / "state", is_right=True)
    port = port_of(second)
    handshake()


def moq_certificate(cell):
    """Media over QUIC: the certificate that `/start` names by its hash is one that browsers take, once the clock is right"""
    runner = cell.runner("-t", "moq", "--moq-bind", "127.0.0.1:0")

    first = hash_in(start(runner, {"transport": "moq"}))
    cell.clock.correct()
    second = hash_in(start(runner, {"transport": "moq"}))
    # A clock a year behind is before the release, of which the certificate is then. It is valid for 13 days, and replaced where
    # they are over; that of a week ago and that of tomorrow are valid now.
    is_over = cell.clock.offset_s < -30 * DAY_S and time.time() > RELEASED_S + 12 * DAY_S
    assert (first != second) == is_over, (first, second)


def hash_in(reply):
    """The hash of a certificate in a reply of `/start`."""
    return next(value for key, value in walk(reply) if "hash" in key.lower() and value)


def walk(value, key=""):
    if isinstance(value, dict):
        for name, each in value.items():
            yield from walk(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from walk(each, key)
    else:
        yield key, value


def acme_module():
    spec = importlib.util.spec_from_file_location("acme_run", HERE.parent / "acme" / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def acme(cell):
    """`--tls acme`: an order under a wrong clock is made or names the clock; after the correction one is made"""
    if not cell.given.pebble:
        return "SKIPPED: Pebble is missing: tests/check/pebble.sh"
    acme = acme_module()
    acme.Runner = functools.partial(Runner, variables=cell.clock.variables())
    with acme.World(cell.given.pebble, cell.given.binary) as here:
        here.start_pebble()
        here.start_runner()
        if cell.clock.is_ahead():
            here.until_issued(here.root())
        else:
            until_log_has(here.runner, "WARN", "is the clock of this machine right?")
        cell.clock.correct()
        here.hang_up()
        here.until_issued(here.root())
        here.stop_runner()


def acme_pause(cell):
    """The pause after a failed order: stored under a wrong clock, it is not longer after the correction"""
    port = free_ports(1)[0]
    arguments = ("--tls", "acme", "--acme-name", "bot.example.net", "--acme-email", "me@example.net", "--acme-directory",
                 f"https://127.0.0.1:{port}/dir", "--state-dir", cell.folder / "state")
    first = cell.runner(*arguments)
    until_log_has(first, "WARN", "no new certificate", "Next order in 1")
    wait_until(lambda: any(json.loads(path.read_text()).get("notBefore") for path in (cell.folder / "state").glob("acme-*.json")),
               "a stored pause")
    first.process.terminate()
    first.process.wait()
    cell.clock.correct()
    second = cell.runner(*arguments)
    # The pause was of seconds, and its end is long over or far ahead by the right clock.
    until_log_has(second, "ordering a certificate")


# --- Rows: the cloud service.

class Cloud:
    """The service on a free port, on a data folder of the cell."""

    KEY = "sk_clock_0123456789abcdef"

    def __init__(self, binary, data, *args, variables=None):
        self.log = tempfile.TemporaryFile("w+")
        # The service appends, for it shares the position that reading moves. The mode of a file without a name does not say so.
        fcntl.fcntl(self.log, fcntl.F_SETFL, fcntl.fcntl(self.log, fcntl.F_GETFL) | os.O_APPEND)
        self.process = subprocess.Popen(
            [binary, "cloud", "serve", "--port", "0", "--data-dir", data, "--min-free", "0", *args, "--", "sh", "-c",
             'cp "$BUILD_FILE" "$BUILD_OUT/image"'],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, cwd=data.parent, text=True,
            env={**os.environ, **(variables or {}), "CLOUD_PRIVATE_KEYS": self.KEY})
        for line in self.process.stdout:
            if "listening on http://" in line:
                self.url = line.split("listening on ")[1].strip().rstrip("/")
                return
        raise RuntimeError("the service ended at start: " + self.log_text())

    def log_text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        self.process.terminate()
        self.process.wait(30)

    def call(self, method, path, body=None):
        text = ask(self, path, b"" if body is None else body, {"Authorization": f"Bearer {self.KEY}"}, method)
        return text[0], json.loads(text[1])

    def grant(self):
        status, grant = self.call("POST", "/v1/builds/upload-url", {"region": "local"})
        assert status == 200, grant
        return grant

    def upload(self, grant, text="FROM scratch\n"):
        """Status and text of an upload by this grant, of a context whose only file has this text."""
        archive, end = gzip.compress(tar_of("Dockerfile", text.encode())), "clock-0123456789"
        parts = [f'--{end}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
                 for name, value in grant["uploadFields"].items()]
        parts.append(f'--{end}\r\nContent-Disposition: form-data; name="file"; filename="context.tar.gz"\r\n'
                     f"Content-Type: application/gzip\r\n\r\n".encode() + archive + f"\r\n--{end}--\r\n".encode())
        request = urllib.request.Request(grant["uploadUrl"], b"".join(parts), {"Content-Type": f"multipart/form-data; boundary={end}"})
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def build(self, name="a"):
        """The id of a build that has ended well. One of another name is another build."""
        grant = self.grant()
        status, text = self.upload(grant, CONTENT.format(name))
        assert status in (200, 204), (status, text)
        status, made = self.call("POST", "/v1/builds", {"uploadId": grant["uploadId"], "region": "local", "dockerfilePath": "Dockerfile"})
        assert status in (200, 201), made
        build = made["build"]["id"]
        wait_until(lambda: self.status(build) == "success", "the end of the build")
        return build

    def status(self, build):
        status, told = self.call("GET", f"/v1/builds/{build}")
        return told.get("build", told).get("status") if status == 200 else status


def tar_of(name, content):
    """An archive of one file."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def cloud(cell, data, *args):
    return cell.started(lambda: Cloud(cell.given.binary, data, *args, variables=cell.clock.variables()))


def grant(cell):
    """Upload grants: good under any clock; one of before the clock was set is refused with advice, and the next one is good"""
    service = cloud(cell, cell.folder / "data")

    def is_refused(made):
        status, text = service.upload(made)
        return status == 403 and ("another grant" in text or "clock" in text)

    assert all(map(is_refused, cell.before(service.grant)))
    status, text = service.upload(service.grant())
    assert status == 204, (status, text)
    old = service.grant()
    cell.clock.correct()
    assert is_refused(old)
    service.build()
    service.stop()


def retention(cell):
    """Retention: builds are kept under any clock, and by one that was just set or that the service has just started with"""
    data = cell.folder / "data"
    service = cloud(cell, data)
    build = service.build()
    service.stop()
    # A year ahead, all builds are older than the 30 days that they are kept. The first sweep is made at the start.
    for offset_s in (0, 365 * DAY_S, 0):
        cell.clock.write(offset_s)
        service = cloud(cell, data)
        # A new build shows that the service works.
        assert service.status(service.build()) == "success"
        assert service.status(build) == "success", offset_s
        service.stop()


def store(cell):
    """Signatures for an object store: made by the time of the store, so requests, grants and links are good under any clock"""
    if not cell.given.servers:
        return "SKIPPED: an object store or PostgreSQL is missing: tests/check/versitygw.sh, apt-get install postgresql"
    place = cell.given.servers.place(cell.given.shared)
    variables = {**cell.clock.variables(), **place.variables}
    service = cell.result.keep(Cloud(cell.given.shared, cell.folder / "data", variables=variables))
    differs, agrees = "signed by the time of the store", "agrees with that of the object store again"
    for step, offset_s, words, times in (("wrong", cell.clock.offset_s, differs, 1), ("right", 0, agrees, 1),
                                         ("wrong again", cell.clock.offset_s, differs, 2)):
        cell.clock.write(offset_s)
        # The service asks the store for this, and so learns its time.
        wait_until(lambda: ready(service) == 200 and service.log_text().count(words) == times, f"{words}, while it is {step}")
        build = service.build(step)
        assert image_of(service, build) == CONTENT.format(step), step
    assert log_has(service, "WARN", "this machine's clock is", "that of the object store")
    service.stop()


CONTENT = "FROM scratch\n# {}\n"


def ready(service):
    """The status of `/readyz`."""
    try:
        with urllib.request.urlopen(service.url + "/readyz", timeout=30) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def image_of(service, build):
    """The image of a build, by its link of the object store."""
    request = urllib.request.Request(f"{service.url}/v1/images/{build}/image", headers={"Authorization": f"Bearer {Cloud.KEY}"})
    opener = urllib.request.build_opener(Unfollowed)
    try:
        opener.open(request, timeout=30)
        raise AssertionError("no redirect")
    except urllib.error.HTTPError as found:
        assert found.code == 302, (found.code, found.read())
        link = found.headers["Location"]
    with urllib.request.urlopen(link, timeout=30) as reply:
        return reply.read().decode()


class Unfollowed(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the caller: the store must not get the key of the service."""

    def redirect_request(self, *_):
        return None


ROWS = (
    worker, room, room_of_worker, room_over_tls, room_webhook, call_webhook, daily, whatsapp, events, kept_events, records, token,
    client_secret, replica_token, sealed_id, certificate, moq_certificate, acme, acme_pause, grant, retention, store,
)
# Rows that ask while the program runs. The others are of what it does at its start, or set the clock more than once themselves.
STEPPED = (
    room, room_over_tls, room_webhook, call_webhook, daily, whatsapp, events, kept_events, token, client_secret, replica_token, sealed_id,
    certificate, moq_certificate, grant,
)
CELLS = {f"{row.__name__}_{column}": (row, offset_s, clocks is BACK)
         for rows, clocks in ((ROWS, CLOCKS), (STEPPED, BACK)) for row in rows for column, offset_s in clocks.items()}


def main(given):
    def run(name):
        row, offset_s, is_stepped = cells[name]
        # The programs end before their folder does.
        with tempfile.TemporaryDirectory() as folder, report.check(row, name) as result:
            result.said = row(Cell(result, given, pathlib.Path(folder), offset_s, is_stepped))

    cells = chosen(CELLS, given.checks)
    given.servers = None
    if given.store and given.shared and any(row is store for row, *_ in cells.values()):
        sys.path.append(str(HERE.parent / "cloud"))
        from shared import Servers
        given.servers, given.shared = Servers(given.store.resolve()), given.shared.resolve()
    try:
        with Report() as report, concurrent.futures.ThreadPoolExecutor(LANES) as pool:
            list(pool.map(run, cells))
    finally:
        if given.servers:
            given.servers.stop()
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CELLS)
    parser.add_argument("--pebble", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--store", type=pathlib.Path, metavar="PATH")
    parser.add_argument("--shared", type=pathlib.Path, metavar="PATH")
    given = parser.parse_args()
    given.binary = given.binary.resolve()
    sys.exit(main(given))
