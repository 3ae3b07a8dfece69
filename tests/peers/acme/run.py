"""`--tls acme` against Pebble, the ACME test server of Let's Encrypt. Prints a line per check; exits with 1 when one failed.

    run.py --pebble FOLDER [--binary PATH] [CHECK...]      FOLDER is what ../../check/pebble.sh prints; needs openssl

Each check has a Pebble, a name server and a runner of its own on free ports, and the checks run side by side. Pebble validates
names at the port of its configuration, which is that of the runner: a forwarded port 443.
"""

import base64
import concurrent.futures
import http.client
import http.server
import json
import os
import pathlib
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from checks import Report, chosen, free_ports, options, wait_until
from runner import Runner

NAME = "bot.example.net"
# Nothing listens there.
ELSEWHERE = "127.0.0.2"
# A time limit.
PATIENCE_S = 60
# Of certificates that are renewed during the check.
SHORT_S = 30


def until(what, condition, limit_s=PATIENCE_S):
    """The first true value of the condition."""
    return wait_until(condition, what, limit_s)


class World:
    """Pebble, its name server and a state folder; the runner comes and goes."""

    def __init__(self, pebble, binary, validity_s=90 * 86400, variables=None):
        self.tools, self.binary = pathlib.Path(pebble), binary
        self.variables = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "0", **(variables or {})}
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.port, self.directory_port, self.management_port, self.dns_port, self.dns_management_port = free_ports(5)
        self.processes, self.runner, self.server, self.limits = [], None, None, None
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                        self.folder / "key.pem", "-out", self.folder / "cert.pem", "-days", "2", "-subj", "/CN=pebble",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"], check=True, capture_output=True)
        (self.folder / "config.json").write_text(json.dumps({"pebble": {
            "listenAddress": f"127.0.0.1:{self.directory_port}", "managementListenAddress": f"127.0.0.1:{self.management_port}",
            "certificate": str(self.folder / "cert.pem"), "privateKey": str(self.folder / "key.pem"),
            "httpPort": 1, "tlsPort": self.port, "retryAfter": {"authz": 1, "order": 1}, "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "", "validityPeriod": validity_s}}}}))
        self.start("pebble-challtestsrv", "-dnsserver", f"127.0.0.1:{self.dns_port}", "-management",
                   f"127.0.0.1:{self.dns_management_port}", "-defaultIPv6", "", "-doh", "", "-http01", "", "-https01", "",
                   "-tlsalpn01", "")
        until("the name server", lambda: self.answers(self.dns_management_port))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.runner:
            if kind:
                print(self.runner.log_text(), flush=True)
            self.runner.stop()
        if self.limits:
            self.limits.stop()
        for process in self.processes:
            process.kill()
            process.wait()
        self.temporary.cleanup()

    def start(self, program, *arguments):
        log = open(self.folder / f"{program}.log", "ab")
        process = subprocess.Popen([self.tools / program, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   cwd=self.folder, env={**os.environ, **self.variables})
        self.processes.append(process)
        return process

    def answers(self, port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def start_pebble(self):
        self.server = self.start("pebble", "-config", "config.json", "-dnsserver", f"127.0.0.1:{self.dns_port}")
        until("Pebble", lambda: self.answers(self.management_port) and self.answers(self.directory_port))

    def stop_pebble(self):
        self.server.kill()
        self.server.wait()

    def start_limits(self):
        """Puts rate limits, which Pebble lacks, between the runner and Pebble."""
        self.limits = RateLimits(self.folder, self.directory_port)

    def resolve_to(self, address):
        body = json.dumps({"ip": address}).encode()
        urllib.request.urlopen(f"http://127.0.0.1:{self.dns_management_port}/set-default-ipv4", body).close()

    def start_runner(self, *options):
        self.runner = Runner(
            self.binary, "--bot", "echo", "--tls", "acme", "--acme-name", NAME, "--acme-email", "me@example.net",
            "--acme-directory", f"https://localhost:{self.limits.port if self.limits else self.directory_port}/dir", "--acme-root", self.folder / "cert.pem",
            "--state-dir", self.folder / "state", *options, port=self.port)
        return self.runner

    def stop_runner(self):
        """The log of the run."""
        self.runner.process.terminate()
        self.runner.process.wait()
        log = self.runner.log_text()
        self.runner.stop()
        self.runner = None
        for secret in self.secrets():
            assert secret not in log, "a key is in the log"
        return log

    def secrets(self):
        yield "PRIVATE KEY"
        for path in (self.folder / "state").glob("acme-*.json"):
            yield json.loads(path.read_text())["account"]["key_pkcs8"]

    def log_has(self, *words, count=1):
        """Whether one line of the runner's log has all these words."""
        lines = self.runner.log_text().splitlines()
        return sum(all(word in line for word in words) for line in lines) >= count

    def hang_up(self):
        self.runner.process.send_signal(signal.SIGHUP)

    def orders(self):
        """Orders that Pebble has taken."""
        return (self.folder / "pebble.log").read_text().count("POST /order-plz")

    def root(self):
        """PEM of the root that Pebble's certificates lead to."""
        context = ssl.create_default_context(cafile=self.folder / "cert.pem")
        with urllib.request.urlopen(f"https://localhost:{self.management_port}/roots/0", context=context) as reply:
            return reply.read().decode()

    def connect(self, root, name=NAME):
        """A TLS connection to the runner as a browser opens it, with this root alone."""
        context = ssl.create_default_context(cadata=root)
        tcp = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        try:
            return context.wrap_socket(tcp, server_hostname=name)
        except BaseException:
            tcp.close()
            raise

    def serial(self, root):
        """The serial number of the certificate of the name, `None` while the root does not verify it."""
        try:
            with self.connect(root) as tls:
                return tls.getpeercert()["serialNumber"]
        except ssl.SSLCertVerificationError:
            return None

    def until_issued(self, root):
        return until("a certificate", lambda: self.serial(root))

    def status(self, tls, host):
        """The status of a request on a connection."""
        tls.sendall(f"GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n") and (read := tls.recv(1)):
            head += read
        return int(head.split()[1])


class RateLimits:
    """Passes requests on to Pebble, and refuses orders while `retry_after` is set."""

    def __init__(self, folder, upstream):
        self.retry_after, self.refused = None, 0
        limits = self
        trusted = ssl.create_default_context(cafile=folder / "cert.pem")

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path == "/order-plz" and limits.retry_after:
                    limits.refused += 1
                    problem = {"type": "urn:ietf:params:acme:error:rateLimited", "status": 429,
                               "detail": "too many certificates already issued"}
                    headers = {"Content-Type": "application/problem+json", "Retry-After": limits.retry_after}
                    return self.answer(429, headers, json.dumps(problem).encode())
                # Pebble makes its URLs of the header `Host`, which names this server.
                upstream_connection = http.client.HTTPSConnection("localhost", upstream, context=trusted, timeout=PATIENCE_S)
                upstream_connection.request(self.command, self.path, body, dict(self.headers))
                reply = upstream_connection.getresponse()
                self.answer(reply.status, dict(reply.getheaders()), reply.read())
                upstream_connection.close()

            def answer(self, status, headers, body):
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_HEAD = do_POST = handle_any

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        # With a handshake per thread: one that hangs must not block the others.
        self.server.socket = own.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class WebSocket:
    """A plain client's socket over TLS: answers to pings show that it is open."""

    def __init__(self, tls):
        self.tls = tls
        key = base64.b64encode(os.urandom(16)).decode()
        tls.sendall((f"GET /ws-client HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.read(1)
        assert head.startswith(b"HTTP/1.1 101"), head

    def read(self, size):
        whole = b""
        while len(whole) < size:
            part = self.tls.recv(size - len(whole))
            assert part, "the socket was closed"
            whole += part
        return whole

    def ping(self):
        payload = os.urandom(8)
        mask = os.urandom(4)
        masked = bytes(each ^ mask[n % 4] for n, each in enumerate(payload))
        self.tls.sendall(bytes([0x89, 0x80 | len(payload)]) + mask + masked)
        while True:
            first, length = self.read(2)
            if length == 126:
                length, = struct.unpack(">H", self.read(2))
            body = self.read(length)
            assert first & 15 != 8, "the socket was closed"
            if first & 15 == 10 and body == payload:
                return


def check_issued(world):
    """A certificate is issued and served for the name; other names get the runner's own; a restart orders none."""
    with world() as here:
        here.start_pebble()
        runner = here.start_runner()
        root = here.root()
        serial = here.until_issued(root)
        with here.connect(root) as tls:
            assert here.status(tls, NAME) == 200
        own = urllib.request.urlopen(f"http://127.0.0.1:{here.port}/ca.crt").read().decode()
        with here.connect(own, "localhost") as tls:
            assert here.status(tls, "localhost") == 200
        # Only a validation in progress is answered.
        context = ssl.create_default_context(cadata=root)
        context.set_alpn_protocols(["acme-tls/1"])
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", here.port)) as tcp:
            try:
                context.wrap_socket(tcp, server_hostname=NAME)
                raise AssertionError("a validation was answered that was not in progress")
            except (ssl.SSLError, ConnectionError):
                pass
        for path in (here.folder / "state").iterdir():
            assert path.stat().st_mode & 0o077 == 0, path
        assert here.log_has("INFO", "the certificate of", NAME, "89 days", "renewed in"), runner.log_text()
        doctor = subprocess.run([here.binary, "doctor", *runner.process.args[1:]], capture_output=True, text=True, timeout=60)
        assert f"the certificate of {NAME} by ACME expires in 89 days" in doctor.stdout, doctor.stdout
        here.stop_runner()
        orders = here.orders()
        here.start_runner()
        assert here.serial(root) == serial
        here.hang_up()
        until("SIGHUP", lambda: here.log_has("SIGHUP") or here.log_has("stored certificate"))
        assert here.orders() == orders == 1, here.orders()
        here.stop_runner()


def check_renewed(world):
    """A certificate that ends soon is renewed while a WebSocket stays open."""
    with world(validity_s=SHORT_S) as here:
        here.start_pebble()
        here.start_runner()
        root = here.root()
        first = here.until_issued(root)
        with here.connect(root) as tls:
            open_socket = WebSocket(tls)
            open_socket.ping()
            second = until("a renewal", lambda: (serial := here.serial(root)) and serial != first and serial)
            open_socket.ping()
            assert tls.getpeercert()["serialNumber"] == first != second
        assert here.orders() == 2
        here.stop_runner()


def check_refused(world):
    """A failed validation is a warning that says what to do; orders wait, also after a restart, until SIGHUP."""
    with world() as here:
        here.start_pebble()
        here.resolve_to(ELSEWHERE)
        here.start_runner()
        until("a warning", lambda: here.log_has("WARN", NAME, "(unauthorized)", "port 443", f"port {here.port} ", "SIGHUP"))
        assert here.log_has("WARN", "Next order in 1", " min"), here.runner.log_text()
        here.stop_runner()
        here.start_runner()
        with urllib.request.urlopen(f"http://127.0.0.1:{here.port}/status") as reply:
            assert reply.status == 200
        assert not here.log_has("ordering") and here.orders() == 1
        here.resolve_to("127.0.0.1")
        here.hang_up()
        here.until_issued(here.root())
        here.stop_runner()


def check_limited(world):
    """A rate limit of the directory holds for as long as it says, also after a restart and SIGHUP; the runner serves meanwhile."""
    with world() as here:
        here.start_pebble()
        here.start_limits()
        here.limits.retry_after = "7200"
        here.start_runner()
        until("a warning", lambda: here.log_has(
            "WARN", "too many certificates already issued (rateLimited)", "--acme-staging", "Next order in 2 h, as the directory asks;"))
        here.stop_runner()
        here.start_runner()
        here.hang_up()
        until("SIGHUP", lambda: here.log_has("INFO", "the directory asked for no order in the next"))
        own = urllib.request.urlopen(f"http://127.0.0.1:{here.port}/ca.crt").read().decode()
        with here.connect(own, "localhost") as tls:
            assert here.status(tls, "localhost") == 200
        log = here.stop_runner()
        assert "ordering" not in log and here.limits.refused == 1 and here.orders() == 0, log
        # The stored pause ends in the past.
        for path in (here.folder / "state").glob("acme-*.json"):
            stored = json.loads(path.read_text())
            stored["notBefore"] = int(time.time()) - 1
            path.write_text(json.dumps(stored))
        here.limits.retry_after = None
        here.start_runner()
        here.until_issued(here.root())
        here.stop_runner()


def check_limited_briefly(world):
    """A limit that is shorter than the runner's own pause leaves SIGHUP to the operator."""
    with world() as here:
        here.start_pebble()
        here.start_limits()
        here.limits.retry_after = "1"
        here.start_runner()
        until("a warning", lambda: here.log_has("WARN", "(rateLimited)", "Next order in 1", "min, or at once after SIGHUP"))
        here.limits.retry_after = None
        here.hang_up()
        here.until_issued(here.root())
        here.stop_runner()


def check_down(world):
    """Without the directory the runner serves and says so, and gets its certificate once the directory is there."""
    with world() as here:
        here.start_runner()
        until("a warning", lambda: here.log_has("WARN", "connecting to localhost", "Next order in 1"))
        own = urllib.request.urlopen(f"http://127.0.0.1:{here.port}/ca.crt").read().decode()
        with here.connect(own, "localhost") as tls:
            assert here.status(tls, "localhost") == 200
        here.start_pebble()
        here.until_issued(here.root())
        here.stop_runner()


def check_nonces(world):
    """Rejected nonces are survived."""
    with world(variables={"PEBBLE_WFE_NONCEREJECT": "20"}) as here:
        here.start_pebble()
        here.start_runner()
        here.until_issued(here.root())
        here.stop_runner()


def check_forgotten(world):
    """A directory that has lost the account gets another one."""
    with world() as here:
        here.start_pebble()
        here.start_runner()
        here.until_issued(here.root())
        here.stop_runner()
        for path in (here.folder / "state").glob("acme-*.pem"):
            path.unlink()
        here.stop_pebble()
        here.start_pebble()
        here.start_runner()
        until("a warning", lambda: here.log_has("WARN", "does not know the stored account"))
        here.hang_up()
        here.until_issued(here.root())
        here.stop_runner()


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}


def main(pebble, binary, names):
    def world(**settings):
        return World(pebble, binary, **settings)

    def run(name, check):
        start = time.monotonic()
        with report.check(check, name) as result:
            check(world)
            result.said = f"{time.monotonic() - start:.1f} s"

    checks = chosen(CHECKS, names)
    with Report() as report, concurrent.futures.ThreadPoolExecutor(len(checks)) as pool:
        list(pool.map(run, checks, checks.values()))
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--pebble", type=pathlib.Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    sys.exit(main(given.pebble.resolve(), str(given.binary.resolve()), given.checks))
