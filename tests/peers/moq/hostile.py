"""Checks with peers that misbehave, on aioquic: they end clearly, and another call goes on."""

import asyncio
import json
import ssl
import zlib
from contextlib import asynccontextmanager
from secrets import token_hex
from urllib.parse import urlsplit

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import encode_uint_var
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import HeadersReceived, WebTransportStreamDataReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, StopSendingReceived, StreamDataReceived, StreamReset

from peer import NOTICED_S, Peer, hears_itself, starts

ANNOUNCE, SUBSCRIBE, GROUP = 1, 2, 0
# The runner may grow by this much, in KiB: a caller's log of 2 MiB, 1 MiB of incomplete frames, and 1 MiB that is inflated.
GROWTH_KIB = 4 * 1024


def text(value):
    return encode_uint_var(len(value)) + value.encode()


def sized(message):
    """moq-lite-04: each message has its length before it."""
    return encode_uint_var(len(message)) + message


class Raw(QuicConnectionProtocol):
    """One WebTransport session, and streams as bytes."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http, self.status, self.ended, self.refused = None, asyncio.Event(), None, set()
        self.code, self.streams, self.asked, self.own = None, {}, [], set()
        self.session, self.closed = None, b""

    def quic_event_received(self, event):
        # The runner's control stream may arrive with the end of the handshake, before `begin`.
        if self.http is None and isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic, enable_webtransport=True)
        if isinstance(event, ConnectionTerminated):
            self.ended = event
            self.status.set()
        if isinstance(event, (StreamReset, StopSendingReceived)):
            self.refused.add(event.stream_id)
        if isinstance(event, StreamDataReceived) and event.stream_id in self.own:
            # aioquic takes what comes on its own streams for frames of HTTP/3.
            self.received(event.stream_id, event.data)
            return
        if isinstance(event, StreamDataReceived) and event.stream_id == self.session and (event.end_stream or self.code):
            self.closed += event.data or b"fin"
        for found in self.http.handle_event(event) if self.http else ():
            if isinstance(found, HeadersReceived):
                self.code = dict(found.headers)[b":status"]
                self.status.set()
            if isinstance(found, WebTransportStreamDataReceived):
                self.received(found.stream_id, found.data)

    def received(self, stream, data):
        self.streams[stream] = self.streams.get(stream, b"") + data
        # The runner opens streams as well: it asks for announcements, and subscribes.
        if stream % 4 == 1 and stream not in self.asked:
            self.asked.append(stream)

    async def begin(self, url):
        self.session = self._quic.get_next_available_stream_id()
        self.http.send_headers(self.session, [
            (b":method", b"CONNECT"), (b":scheme", b"https"), (b":authority", url.netloc.encode()),
            (b":path", url.path.encode()), (b":protocol", b"webtransport"), (b"sec-webtransport-http3-draft02", b"1"),
            (b"wt-available-protocols", b'"moq-lite-04"')])
        self.transmit()
        await asyncio.wait_for(self.status.wait(), 20)

    def open(self, data, *, one_way=False, end=False):
        """A stream of the session that begins with these bytes."""
        stream = self.http.create_webtransport_stream(self.session, is_unidirectional=one_way)
        if not one_way:
            self.own.add(stream)
        self._quic.send_stream_data(stream, data, end)
        return stream

    def send(self, stream, data, end=False):
        self._quic.send_stream_data(stream, data, end)

    def read_no_more(self):
        """Gives no more room, neither for bytes nor for streams."""
        self._quic._write_connection_limits = self._quic._write_stream_limits = lambda **_: None

    def reason(self):
        if self.ended:
            return f"the connection ended with {self.ended.error_code}, {self.ended.reason_phrase!r}"
        return f"the session ended: {self.closed!r}" if self.closed else f"{len(self.refused)} streams refused"

    async def until(self, condition, what, limit_s=10):
        for _ in range(limit_s * 50):
            if condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not within {limit_s} s: {what}; {self.reason()}")

    async def announce(self, path):
        """Answers what the runner asks for with one broadcast, and waits until it subscribes."""
        await self.until(lambda: self.asked, "the question for announcements")
        asked = self.streams[self.asked[0]]
        prefix = asked[3:3 + asked[2]].decode()
        suffix = path.removeprefix(prefix).lstrip("/")
        self.send(self.asked[0], sized(b"\x01" + text(suffix) + b"\x01" + encode_uint_var(77)))
        self.transmit()
        await self.until(lambda: self.subscription("transcript.json.z"), "the subscription to the records")

    def subscription(self, track):
        """Stream and id of the runner's subscription to a track."""
        for stream in self.asked[1:]:
            data = self.streams[stream]
            if data[0] == SUBSCRIBE and track.encode() in data:
                return stream, data[2]
        return None

    def publish(self, track, frames, sequence=0):
        """Accepts the runner's subscription, and opens a group with these frames."""
        stream, number = self.subscription(track)
        self.send(stream, b"\x00" + sized(b"\x00\x00\x00\x00\x00"))
        group = self.open(b"\x00" + sized(encode_uint_var(number) + encode_uint_var(sequence)), one_way=True)
        for frame in frames:
            self.send(group, sized(frame))
        self.transmit()
        return group


class Records:
    """The compressed log of records."""

    def __init__(self):
        self.deflate = zlib.compressobj(9, zlib.DEFLATED, -15)

    def frame(self, record):
        data = self.deflate.compress(json.dumps(record).encode()) + self.deflate.flush(zlib.Z_SYNC_FLUSH)
        return data.removesuffix(b"\x00\x00\xff\xff")


def configured(**limits):
    return QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name="localhost",
        max_datagram_frame_size=65536, **limits)


@asynccontextmanager
async def raw(answer, **limits):
    url = urlsplit(answer["moq"]["relayUrl"])
    async with connect("127.0.0.1", url.port, configuration=configured(**limits), create_protocol=Raw, wait_connected=True) as link:
        await link.begin(url)
        assert link.code == b"200", (link.code, link.ended)
        yield link


def resident_kib(runner):
    with open(f"/proc/{runner.process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def warned(runner, since):
    """Lines of the log that name a reason, since an offset."""
    return [line for line in runner.log_text()[since:].splitlines() if "WARN" in line]


def beside(doc):
    """Makes a check of what a bad peer does: it has a session of its own beside an ordinary call."""
    def made(misbehave):
        async def check(place):
            runner = place.runner()
            async with Peer(await starts(runner), "0.5") as peer:
                await peer.ready()
                await hears_itself(peer, 1)
                answer, before, since = await starts(runner), resident_kib(runner), len(runner.log_text())
                said = await misbehave(runner, answer)
                await hears_itself(peer, 2)
                await peer.ask(7)
                grown = resident_kib(runner) - before
                assert grown < GROWTH_KIB, f"{grown} KiB more"
                lines = warned(runner, since)
            return f"{said}; {grown} KiB more; log: {lines[-1][-160:] if lines else 'no warning'}"
        check.__doc__ = doc
        return check
    return made


async def joined(link, answer):
    """As far as an ordinary peer comes: announced, and with a subscription to the bot's records."""
    await link.announce(f"{answer['moq']['namespace']}/{answer['moq']['clientId']}")
    path = f"{answer['moq']['namespace']}/{answer['moq']['botId']}"
    records = Records()
    group = link.publish("transcript.json.z", [records.frame({
        "label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "2.1.0", "about": {"library": "raw"}}})])
    link.subscribed = link.open(encode_uint_var(SUBSCRIBE) + sized(
        b"\x00" + text(path) + text("transcript.json.z") + b"\x00\x00\x00\x00\x00"))
    link.transmit()
    await link.until(lambda: any(s % 4 == 3 and len(data) > 20 for s, data in link.streams.items()), "records of the bot")
    return records, group


async def ended(link, runner, what, sessions=1):
    """The runner ended the connection, and the session of it."""
    await link.until(lambda: link.ended or link.closed, f"the end of the connection: {what}", 20)
    await runner.wait_for_sessions(sessions, NOTICED_S)
    return f"{what}: {link.reason()}"


@beside("a peer on aioquic that behaves, as the ground for the others, is served")
async def plain(runner, answer):
    async with raw(answer) as link:
        await joined(link, answer)
        link.close()
    await runner.wait_for_sessions(1, NOTICED_S)
    return "served"


@beside("a peer that asks for 8,000 answers and reads none is ended")
async def deaf(runner, answer):
    async with raw(answer, max_data=65536, max_stream_data=16384) as link:
        records, group = await joined(link, answer)
        link.read_no_more()
        for n in range(8000):
            link.send(group, sized(records.frame({
                "label": "rtvi-ai", "type": "client-message", "id": str(n), "data": {"t": "any", "d": {"n": token_hex(500)}}})))
            if n % 50 == 0:
                link.transmit()
                await asyncio.sleep(0)
        link.transmit()
        return await ended(link, runner, "8,000 requests")


@beside("a peer that opens streams of unknown types: each is refused alone, and above their limit its session ends")
async def unknown(runner, answer):
    async with raw(answer) as link:
        await joined(link, answer)
        bad = [(encode_uint_var(kind) + bytes(100), one_way, False) for kind in (0x3F, 0x1234) for one_way in (False, True)]
        await refuses(link, runner, bad * 10)
        return await overdone(link, runner, bad, "40 refused, then more of them")


async def refuses(link, runner, bad):
    """Each of these streams is refused, and nothing else is."""
    for data, one_way, end in bad:
        stream = link.open(data, one_way=one_way, end=end)
        link.transmit()
        await link.until(lambda: stream in link.refused, f"a refusal of {data[:40]!r}")
    assert not link.ended and not link.closed, link.reason()
    assert await runner.sessions() == 2


async def overdone(link, runner, bad, what):
    """Above the limit of such streams the session ends."""
    for n in range(300):
        if link.ended or link.closed:
            break
        data, one_way, end = bad[n % len(bad)]
        stream = link.open(data, one_way=one_way, end=end)
        link.transmit()
        await link.until(lambda: stream in link.refused or link.ended or link.closed, "a refusal, or the end")
    return await ended(link, runner, what)


def malformed(path):
    """Beginnings of streams, each against a rule of the format: the bytes, whether the stream is unidirectional, and whether it
    ends."""
    longest, track = b"\xff" * 8, text("bot-audio")
    subscribe = encode_uint_var(SUBSCRIBE)
    return [
        # A length, an id, a count that are the largest of all varints; a text longer than its message.
        (encode_uint_var(ANNOUNCE) + longest, False, False),
        (subscribe + longest, False, False),
        (encode_uint_var(GROUP) + longest, True, False),
        (encode_uint_var(ANNOUNCE) + sized(longest), False, False),
        (subscribe + sized(longest + text(path) + track + b"\x00\x00\x00\x00" + longest[:4]), False, False),
        (subscribe + sized(b"\x09" + encode_uint_var(2**30) + path.encode()), False, False),
        # Above the limits of a message, a path and a track's name.
        (encode_uint_var(ANNOUNCE) + encode_uint_var(1_000_000) + bytes(20_000), False, False),
        (subscribe + sized(b"\x09" + text("a" * 2000) + track + b"\x00\x00\x00\x00\x00"), False, False),
        (subscribe + sized(b"\x09" + text(path) + text("t" * 300) + b"\x00\x00\x00\x00\x00"), False, False),
        # Ends in the middle of the type and of a message, and bytes behind the last field.
        (b"\x40", False, True),
        (subscribe + encode_uint_var(60) + b"\x09", False, True),
        (subscribe + sized(b"\x09" + text(path) + track + b"\x00\x00\x00\x00\x00" + b"more"), False, False),
        # A text that is not UTF-8.
        (encode_uint_var(ANNOUNCE) + sized(b"\x02\xff\xfe" + b"\x00"), False, False),
    ]


@beside("streams with varints of 62 bits, lengths above the limits, and messages that are cut: each is refused alone")
async def oversized(runner, answer):
    async with raw(answer) as link:
        await joined(link, answer)
        bad = malformed(f"{answer['moq']['namespace']}/{answer['moq']['botId']}")
        await refuses(link, runner, bad)
        return await overdone(link, runner, bad, f"{len(bad)} refused, then more of them")


@beside("a peer that announces 10,000 broadcasts is ended")
async def announcing(runner, answer):
    async with raw(answer) as link:
        await joined(link, answer)
        for n in range(10_000):
            link.send(link.asked[0], sized(b"\x01" + text(f"{n:0200}") + b"\x01" + encode_uint_var(77)))
            if n % 100 == 0:
                link.transmit()
                await asyncio.sleep(0)
        link.transmit()
        return await ended(link, runner, "10,000 announcements")


@beside("a peer with a catalog of 10 MB is ended")
async def catalogued(runner, answer):
    async with raw(answer) as link:
        await joined(link, answer)
        await link.until(lambda: link.subscription("catalog.json"), "the subscription to the catalog")
        stream, number = link.subscription("catalog.json")
        link.send(stream, b"\x00" + sized(b"\x00\x00\x00\x00\x00"))
        group = link.open(b"\x00" + sized(encode_uint_var(number) + b"\x00") + encode_uint_var(10_000_000), one_way=True)
        for _ in range(1000):
            link.send(group, b" " * 10_000)
            link.transmit()
            await asyncio.sleep(0)
        return await ended(link, runner, "10 MB")


@beside("a peer with a record that inflates to 100 MB is ended")
async def bomb(runner, answer):
    async with raw(answer) as link:
        records, group = await joined(link, answer)
        link.send(group, sized(records.frame({"label": "rtvi-ai", "type": "x", "data": " " * 100_000_000})))
        link.transmit()
        return await ended(link, runner, "100 MB")


@beside("1,000 handshakes that begin and go no further: some are asked to prove their address, and a new call is served")
async def flood(runner, answer):
    url, loop, answers = urlsplit(answer["moq"]["relayUrl"]), asyncio.get_running_loop(), []

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data, _):
            answers.append(data)

    transport, _ = await loop.create_datagram_endpoint(Receiver, remote_addr=("127.0.0.1", url.port))
    for n in range(1000):
        connection = QuicConnection(configuration=configured())
        connection.connect(("127.0.0.1", url.port), now=loop.time())
        for data, _ in connection.datagrams_to_send(now=loop.time()):
            transport.sendto(data)
        if n % 20 == 0:
            await asyncio.sleep(0)
    async with raw(answer) as link:
        await joined(link, answer)
        link.close()
    transport.close()
    # A long header of the type Retry.
    retries = sum(data[0] & 0xF0 == 0xF0 for data in answers)
    assert retries, f"{len(answers)} answers"
    await runner.wait_for_sessions(1, NOTICED_S)
    return f"{len(answers)} answers, {retries} of them Retry"


CHECKS = {"plain": plain, "deaf": deaf, "unknown": unknown, "oversized": oversized, "announcing": announcing, "catalogued": catalogued, "bomb": bomb,
          "flood": flood}
