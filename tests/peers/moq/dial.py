"""Checks of dial mode: runner and peers behind the published relay."""

import asyncio
import base64
import hashlib
import pathlib
import re
import ssl
import subprocess
import tempfile
import time
from contextlib import asynccontextmanager

from peer import ANY_SOUND, NOTICED_S, Peer, hears_itself, starts
from reference import judge

# QUIC notices within 30 s that a relay is gone; the runner dials for 30 s more.
IDLE_S, REDIAL_S = 30, 30
# What the runner promises to one who starts a call while the relay is away.
ANSWERED_S = 17


NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


class Relay:
    """The relay, with a self-signed certificate, or one of an authority. It can be ended and started again at the same port."""

    def __init__(self, program, inside=(), has_authority=False):
        self.program, self.inside, self.port = program, inside, 0
        self.folder, self.apart = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
        # The relay watches the folder of the files, so nothing else is in there.
        self.cert, self.key = (str(pathlib.Path(self.folder.name, name)) for name in ("cert.pem", "key.pem"))
        authority, authority_key = (str(pathlib.Path(self.apart.name, name)) for name in ("ca.pem", "ca-key.pem"))
        self.authority = authority if has_authority else None
        signed = []
        if has_authority:
            openssl("req", "-x509", *KEY, "-days", "13", "-subj", "/CN=Authority of a check", "-keyout", authority_key,
                    "-out", authority)
            signed = ["-CA", authority, "-CAkey", authority_key, "-addext", "basicConstraints=critical,CA:FALSE"]
        openssl("req", "-x509", *KEY, "-days", "13", "-subj", "/CN=localhost", "-addext", NAMES, *signed, "-keyout", self.key,
                "-out", self.cert)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()
        self.apart.cleanup()

    def start(self):
        self.process = subprocess.Popen(
            [*self.inside, self.program, "--listen", f"[::]:{self.port}", "--listen-tls-cert", self.cert, "--listen-tls-key",
             self.key, "--auth-public", "**"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:
            said.append(re.sub(r"\x1b\[\d+m", "", line))
            if found := re.search(r"listening addr=\S+:(\d+)", said[-1]):
                self.port = int(found[1])
                # So that the pipe never fills up.
                asyncio.get_running_loop().run_in_executor(None, self.process.stdout.read)
                return
        raise RuntimeError("the relay ended: " + "".join(said))

    async def end(self, *, kill):
        self.process.kill() if kill else self.process.terminate()
        await asyncio.to_thread(self.process.wait)

    def runner(self, place, *more, **how):
        return place.runner(
            "--moq-connect", f"https://localhost:{self.port}/moq", "--moq-tls-cert", self.cert, "--moq-tls-insecure",
            *more, **how)


    def hash(self):
        """SHA-256 of its certificate."""
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pathlib.Path(self.cert).read_text())).digest()

    def verified(self, place, url, *more, **how):
        """A runner that verifies it, by the authorities of its environment."""
        trust = {"SSL_CERT_FILE": self.authority} if self.authority else {}
        return place.runner("--moq-connect", url, *more, variables=trust, **how)


async def call(runner, kind, hz=440, *, has_hash=True, **sound):
    answer = await starts(runner)
    assert answer["moq"]["serve"] is False and bool(answer["moq"]["certHash"]) == has_hash, answer
    async with Peer(answer, kind, hz) as peer:
        await peer.ready()
        share = await hears_itself(peer, **sound)
        await peer.ask(7)
        await peer.leave(goodbye=True)
    return answer["moq"]["namespace"], share


async def relayed(place):
    """moq-rs 0.4, 0.5 and Pipecat behind the relay, at once: RTVI both ways, the own tone only, a leave that ends the session"""
    with Relay(place.relay) as relay:
        runner = relay.runner(place)
        calls = await asyncio.gather(call(runner, "0.4", 440), call(runner, "0.5", 700), call(runner, "pipecat", 990))
        assert len({namespace for namespace, _ in calls}) == 3, calls
        # Pipecat's last words are lost at times: then the relay has to notice, and the runner waits for the peer to come back.
        took = await runner.wait_for_sessions(0, IDLE_S + REDIAL_S + NOTICED_S)
        return "shares " + ", ".join(f"{share:.3f}" for _, share in calls) + f", freed after {took:.2f} s"


async def commanded(place):
    """`edge-runner call` behind the relay: a text and its answer; it leaves, and so does the bot"""
    with Relay(place.relay) as relay:
        runner = relay.runner(place)
        options = ["-t", "moq", "--text", "hello", "--expect-text", "hello"]
        called = await asyncio.to_thread(subprocess.run, [place.binary, "call", runner.url, *options], stdin=subprocess.DEVNULL,
                                         capture_output=True, text=True, timeout=60)
        assert called.returncode == 0, called.stdout + called.stderr
        took = await runner.wait_for_sessions(0, IDLE_S + REDIAL_S + NOTICED_S)
        return f"freed after {took:.2f} s"


async def neighbours(place):
    """two runners behind one relay at once"""
    with Relay(place.relay) as relay:
        runners = [relay.runner(place), relay.runner(place)]
        calls = await asyncio.gather(*(call(runner, "0.5", hz) for runner, hz in zip(runners, (440, 990))))
        return "shares " + ", ".join(f"{share:.3f}" for _, share in calls)


async def verified(place):
    """a relay whose certificate the system's authorities issued is verified, and a call goes through; others are refused"""
    with Relay(place.relay, has_authority=True) as relay:
        url = f"https://localhost:{relay.port}/moq"
        _, share = await call(relay.verified(place, url), "0.5", has_hash=False, spread=ANY_SOUND)
        stranger = place.runner("--moq-connect", url)
        status, reply = await stranger.fetch("POST", "/start", {"transport": "moq"}, limit_s=20)
        assert status in (502, 504), (status, reply)
    return f"share {share:.3f}; without the authority {status}: {reply['detail']}"


async def forms(place):
    """every form of URL reaches the relay: moqt, moql, https without a path, by an address of IPv6 and IPv4"""
    said = []
    with Relay(place.relay, has_authority=True) as relay:
        for form in ("moqt://localhost:{}/moq", "moql://localhost:{}/moq", "https://localhost:{}", "https://[::1]:{}/moq",
                     "https://127.0.0.1:{}/moq"):
            runner = relay.verified(place, form.format(relay.port))
            answer = await starts(runner)
            host = form.split("://")[1].split("{}")[0]
            assert answer["moq"]["relayUrl"] == f"https://{host}{relay.port}/moq", answer
            async with Peer(answer, "0.5") as peer:
                await peer.ready()
                share = await hears_itself(peer, 1, spread=ANY_SOUND)
                await peer.leave(goodbye=True)
            await runner.wait_for_sessions(0, NOTICED_S)
            said.append(f"{form.split('{')[0]} {share:.2f}")
            place.done_with(runner)
    return ", ".join(said)


@asynccontextmanager
async def published(port, hash_of):
    """A server of HTTP that has a hash at /certificate.sha256, on the TCP port of the same number."""
    asked = []

    async def answer(reader, writer):
        line = await reader.readline()
        if not line.startswith(b"GET "):
            # The library tries a WebSocket over TLS at the same port.
            writer.close()
            return
        asked.append(line.decode())
        while (await reader.readline()).strip():
            pass
        body = hash_of.hex()
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    try:
        yield asked
    finally:
        server.close()


async def plain(place):
    """http:// takes the certificate by the hash that the relay publishes, warns at start-up, and refuses another certificate"""
    with Relay(place.relay) as relay:
        runner = place.runner("--moq-connect", f"http://127.0.0.1:{relay.port}/moq")
        await runner.wait_for_log("comes over plain HTTP")
        async with published(relay.port, relay.hash()) as asked:
            answer = await starts(runner)
            assert asked == ["GET /certificate.sha256 HTTP/1.1\r\n"], asked
            assert answer["moq"]["certHash"] == base64.b64encode(relay.hash()).decode(), answer
            assert answer["moq"]["relayUrl"] == f"https://127.0.0.1:{relay.port}/moq", answer
            async with Peer(answer, "0.5") as peer:
                await peer.ready()
                share = await hears_itself(peer, 1, spread=ANY_SOUND)
                await peer.leave(goodbye=True)
            await runner.wait_for_sessions(0, NOTICED_S)
        async with published(relay.port, bytes(32)):
            status, reply = await runner.fetch("POST", "/start", {"transport": "moq"}, limit_s=20)
            assert status in (502, 504), (status, reply)
    return f"share {share:.3f}; another hash: {status}, {reply['detail']}"


async def again(peer, limit_s):
    """Waits until the own tone comes back again. Returns the seconds it took."""
    start = time.monotonic()
    while True:
        try:
            await hears_itself(peer, 2, ANY_SOUND)
            return time.monotonic() - start
        except AssertionError:
            if time.monotonic() - start > limit_s:
                raise


def restarted(kill, doc):
    async def check(place):
        with Relay(place.relay) as relay:
            runner = relay.runner(place)
            answers = [await starts(runner), await starts(runner)]
            async with Peer(answers[0], "0.5", 440) as library, Peer(answers[1], "pipecat", 990) as pipecat:
                peers = (library, pipecat)
                await asyncio.gather(*(peer.ready() for peer in peers), *(hears_itself(peer, spread=ANY_SOUND) for peer in peers))
                await relay.end(kill=kill)
                relay.start()
                took = await asyncio.gather(*(again(peer, IDLE_S + REDIAL_S) for peer in peers))
                await asyncio.gather(*(peer.ask(8) for peer in peers))
                assert await runner.sessions() == 2
                # Pipecat drops what it has seen before; the library tells all of it again.
                assert len([record for record in pipecat.records() if record["type"] == "bot-ready"]) == 1, pipecat.records()
                await asyncio.gather(*(peer.leave(goodbye=True) for peer in peers))
                await runner.wait_for_sessions(0, IDLE_S + REDIAL_S + NOTICED_S)
        return "the tone is back after " + ", ".join(f"{each:.1f} s" for each in took)
    check.__doc__ = doc
    return check


async def lost(place):
    """a relay that stays away ends the session"""
    with Relay(place.relay) as relay:
        runner = relay.runner(place)
        async with Peer(await starts(runner)) as peer:
            await peer.ready()
            await relay.end(kill=False)
            took = await runner.wait_for_sessions(0, IDLE_S + REDIAL_S + NOTICED_S)
    return f"freed after {took:.1f} s"


async def absent(place):
    """`/start` without a relay answers an error with a reason in time, and leaves no session"""
    with Relay(place.relay) as relay:
        runner = relay.runner(place)
        await relay.end(kill=True)
        start = time.monotonic()
        status, reply = await runner.fetch("POST", "/start", {"transport": "moq"}, limit_s=20)
        took = time.monotonic() - start
        assert status in (502, 504) and reply["detail"], (status, reply)
        judge("seconds until the error", took, ANSWERED_S, 0, at_most=True)
        await runner.wait_for_sessions(0, NOTICED_S)
    return f"{status} after {took:.1f} s: {reply['detail']}"


CHECKS = {
    "relayed": relayed, "commanded": commanded, "neighbours": neighbours, "verified": verified, "forms": forms, "plain-http": plain, "absent": absent,
    "lost": lost,
    "restarted": restarted(False, "calls go on after the relay was restarted"),
    "relay-killed": restarted(True, "calls go on after the relay was killed and started again"),
}
