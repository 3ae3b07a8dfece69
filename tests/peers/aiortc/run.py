"""A second peer implementation, aiortc, against the runner. Prints a line per check; exits with 1 when one failed.

    run.py [--binary PATH] [--under PROGRAM] [CHECK...]      with what requirements.txt names

PROGRAM runs the binary where this machine cannot: ../../../cross/qemu, say.
"""

import asyncio
import fractions
import json
import pathlib
import sys
import time
import unittest.mock
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import av
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from checks import Report, chosen, left, options
from client import Client, RTCDtlsTransport, write_ssl
from echo import connects, control, hears_itself, hears_itself_through
from reference import SHARE_SPREAD, judge, judge_share
from relay import Relay, is_media
from runner import Runner

# What the runner promises: a vanished peer is freed within this time, and it ends so soon. The rest is the check's own polls, and
# a step of the runner's clock.
FREED_S, ENDED_S = 35 + 3, 3
# Of the runner's own check at a new port, and of the silence at the old one that it awaits.
FOLLOWED_S = 2
# A time limit: a clean leave is noticed at once.
NOTICED_S = 20


def rsa(bits):
    return generate_private_key(65537, bits)


async def tone(runner):
    """440 Hz in, 440 Hz back; leaving in good order frees the session at once"""
    client = Client(runner)
    await client.connect()
    share = await hears_itself(client, 3)
    await client.close()
    took = await runner.wait_for_sessions(0, NOTICED_S)
    return f"{share}, freed after {took:.2f} s"


async def certificates(runner):
    """callers with RSA keys of 2048 to 4096 bits and on P-384 talk; those with other keys do not, and the log names each"""
    async def call(key, limit_s=30):
        client = Client(runner, key=key)
        try:
            await client.connect(limit_s=limit_s)
            await hears_itself(client, 1)
        finally:
            await client.close()

    # As aiortc sends it: a dozen pieces in one datagram.
    await call(rsa(2048))
    with unittest.mock.patch.object(RTCDtlsTransport, "_write_ssl", write_ssl):
        for key in (rsa(3072), rsa(4096), ec.generate_private_key(ec.SECP384R1())):
            await call(key)
    # The first is what FFmpeg makes.
    refused = [
        (ec.generate_private_key(ec.SECP224R1()), "on the curve secp224r1"),
        (ec.generate_private_key(ec.SECP521R1()), "on the curve secp521r1"),
    ]
    for key, name in refused:
        try:
            await call(key, 5)
        except AssertionError:
            pass
        else:
            raise AssertionError(f"{name} was taken")
    await runner.wait_for_sessions(0, FREED_S)
    lines = [line for line in runner.log_text().splitlines() if "handshake failed" in line]
    assert len(lines) == len(refused), lines
    for line, (_, name) in zip(lines, refused):
        assert "WARN" in line and name in line, line
    return f"{len(refused)} refused by name"


async def trickle(runner):
    """an offer without candidates, then PATCH with real, .local and empty ones"""
    client = Client(runner, trickle=True)
    await client.connect()
    share = await hears_itself(client, 2)
    await client.close()
    return share


async def video(runner):
    """a caller that offers two video sections beside audio and data is connected as soon as without the runner, and its channel opens"""
    client = Client(runner, videos=2)
    try:
        took = await connects(client)
        answer = client.pc.remoteDescription.sdp
        assert answer.count("m=video") == 2 and "m=video 0" not in answer, answer
        assert [each.currentDirection for each in client.pc.getTransceivers()][1:] == ["inactive"] * 2
        await hears_itself(client, 2)
        # A second offer on the same connection changes nothing.
        await client.offer()
        return f"{took}, {await hears_itself(client, 1)}"
    finally:
        await client.close()


async def eight(runner):
    """eight sessions at once, each hears its own tone only"""
    clients = [Client(runner, hz=300 + 170 * n) for n in range(8)]
    try:
        await asyncio.gather(*(client.connect() for client in clients))
        assert await runner.sessions() == 8
        received = await asyncio.gather(*(client.listen_for(3) for client in clients))
        shares = [client.share(pcm) for client, pcm in zip(clients, received)]
        others = [clients[n - 1].share(pcm) for n, pcm in enumerate(received)]
        alone = await control()
        own = judge_share(min(shares), alone.share(), what="lowest share of the own tone")
        other = judge("highest of another's", max(others), alone.share(clients[0].hz), SHARE_SPREAD, at_most=True)
        return f"{own}; {other}"
    finally:
        await asyncio.gather(*(client.close() for client in clients))


async def rtvi(runner):
    """client-ready gets bot-ready with its id, a message its answer; unknown types are refused, rubbish does no harm"""
    client = Client(runner)
    try:
        await client.connect()
        for n in range(3):
            client.send({"type": "signalling", "message": {"type": "trackStatus", "receiver_index": n, "enabled": n == 0}})
        about = {"library": "aiortc check"}
        client.send({"label": "rtvi-ai", "type": "client-ready", "id": "d2d923ea", "data": {"version": "2.1.0", "about": about}})
        ready = await client.until(lambda: client.message("bot-ready", id="d2d923ea"), "bot-ready")
        assert ready["data"]["version"].split(".")[0] == "2", ready
        client.send({"label": "rtvi-ai", "type": "no-such-thing", "id": "00000001", "data": {}})
        refused = await client.until(lambda: client.message("error-response", id="00000001"), "error-response")
        assert refused["data"]["error"] == "Unsupported type no-such-thing", refused
        client.send({"label": "rtvi-ai", "type": "client-message", "id": "00000002", "data": {"t": "any", "d": {"n": [7, None]}}})
        answer = await client.until(lambda: client.message("server-response", id="00000002"), "server-response")
        assert answer["data"] == {"t": "any", "d": {"n": [7, None]}}, answer
        for rubbish in ("", "ping", "{", "[]", "null", "\x00", '{"label":7}', "ping: " + "9" * 5000):
            client.channel.send(rubbish)
        client.channel.send(b"\x00\xff\xfe")
        client.send({"label": "rtvi-ai", "type": "client-ready", "id": "d2d923eb", "data": {"version": "3.0.0", "about": about}})
        await client.until(lambda: client.message("bot-ready", id="d2d923eb"), "a second bot-ready")
        assert client.message("error-response", id="d2d923eb"), client.messages
        assert not [text for text in client.messages if text.startswith("p")], client.messages
        return json.dumps(ready["data"])
    finally:
        await client.close()


async def renegotiation(runner):
    """a second offer on the same connection keeps bot, pc_id and sound"""
    client = Client(runner)
    try:
        await client.connect()
        pc_id = client.pc_id
        await client.offer()
        assert client.pc_id == pc_id, "another pc_id"
        share = await hears_itself(client, 2)
        assert await runner.sessions() == 1
        assert client.channel.readyState == "open"
        return share
    finally:
        await client.close()


async def restart(runner):
    """restart_pc with a known pc_id puts a new connection under the same bot; an unknown one is 404"""
    client = Client(runner)
    try:
        await client.connect()
        first = client.pc_id
        await client.listen_for(1)
        await client.connect(restart=True)
        share = await hears_itself(client, 3)
        assert await runner.sessions() == 1, "the bot was not kept"
        client.send({"label": "rtvi-ai", "type": "client-ready", "id": "0000000a", "data": {"version": "2.1.0"}})
        await client.until(lambda: client.message("bot-ready", id="0000000a"), "the bot on the new channel")
        body = {"sdp": client.pc.localDescription.sdp, "type": "offer", "pc_id": "gone", "restart_pc": True}
        status, reply = await runner.fetch("POST", "/api/offer", body)
        assert status == 404 and reply["detail"], (status, reply)
        return f"{share}, pc_id {'new' if client.pc_id != first else 'kept'}"
    finally:
        await client.close()


async def farewell(runner):
    """a runner that is told to end says peerLeft first, and is gone within 3 s"""
    client = Client(runner)
    try:
        await client.connect()
        runner.process.terminate()
        start = time.monotonic()
        code = await asyncio.to_thread(runner.process.wait, 20)
        took = time.monotonic() - start
        assert code == 0, f"exit code {code}"
        assert client.message("signalling", message={"type": "peerLeft", "reason": "the runner is stopping"}), client.messages
        judge("seconds until it ended", took, ENDED_S, 1, at_most=True)
        return f"ended after {took:.2f} s"
    finally:
        await client.close()


async def vanish(runner):
    """a peer that goes silent without a word is freed in time"""
    relay = Relay()
    client = Client(runner, relay=relay)
    try:
        await client.connect()
        await hears_itself(client, 1)
        relay.silent = True
        took = await runner.wait_for_sessions(0, FREED_S)
        return f"freed after {took:.1f} s"
    finally:
        await client.close()


async def moved(runner):
    """a NAT gives the peer another port in the middle of the call: it hears the bot there soon after its first check"""
    relay, seen = Relay(), {}
    client, forward = Client(runner, relay=relay), relay.forward

    def watch(way, data, sender):
        if way == "up" and data[:2] == b"\0\1":
            seen.setdefault("check", time.monotonic())
        elif way == "down" and is_media(data) and "check" in seen:
            seen.setdefault("media", time.monotonic())
        forward(way, data, sender)

    try:
        await client.connect()
        await hears_itself(client, 1)
        await relay.rebind()
        relay.forward = watch
        await client.until(lambda: "media" in seen, "the bot's sound at the new port")
        took = judge("seconds after the check", seen["media"] - seen["check"], 0, FOLLOWED_S, at_most=True)
        share = await hears_itself(client, 2)
        assert await runner.sessions() == 1
        return f"{took}, {share}"
    finally:
        await client.close()


async def never(runner):
    """an offer whose peer never connects is freed in time"""
    client = Client(runner)
    await client.start()
    import aiortc
    from relay import without_candidates
    pc = aiortc.RTCPeerConnection()
    pc.addTransceiver("audio")
    await pc.setLocalDescription(await pc.createOffer())
    body = {"sdp": without_candidates(pc.localDescription.sdp), "type": "offer"}
    status, reply = await runner.fetch("POST", client.path, body)
    assert status == 200, (status, reply)
    took = await runner.wait_for_sessions(0, 15 + 3)
    await pc.close()
    return f"freed after {took:.1f} s"


async def loss(runner):
    """20 % loss both ways through a seeded relay: it connects, and what is lost is made up"""
    relay = Relay(loss=0.2, seed=20)
    # Nine periods fit a frame: where one is missing the next continues in phase.
    client = Client(runner, hz=450, relay=relay)
    try:
        await client.connect()
        # Silence in the place of what is lost.
        share = await hears_itself_through(client, 8, instead=0)
        assert await runner.sessions() == 1
        client.send({"label": "rtvi-ai", "type": "client-ready", "id": "0000000b", "data": {"version": "2.1.0"}})
        await client.until(lambda: client.message("bot-ready", id="0000000b"), "bot-ready")
        return share
    finally:
        await client.close()


async def g711(runner, codec, payload_type):
    """A call in one law of G.711, on loopback: 440 Hz in and back, a second offer, and the log's word for the codec."""
    client = Client(runner, codec=codec)
    try:
        await client.connect()
        formats = [line for line in client.pc.remoteDescription.sdp.splitlines() if line.startswith("m=audio")]
        assert [line.split(" ")[3:] for line in formats] == [[str(payload_type)]], formats
        share = await hears_itself(client, 3)
        assert client.rate == 8_000, client.rate
        await client.offer()
        await hears_itself(client, 1)
        client.send({"label": "rtvi-ai", "type": "client-ready", "id": "0000000c", "data": {"version": "2.1.0"}})
        await client.until(lambda: client.message("bot-ready", id="0000000c"), "bot-ready")
        assert f"session started: webrtc, {codec}" in runner.log_text()
        return share
    finally:
        await client.close()


async def pcmu(runner):
    """a caller that offers PCMU alone: 440 Hz in, 440 Hz back"""
    return await g711(runner, "PCMU", 0)


async def pcma(runner):
    """a caller that offers PCMA alone: 440 Hz in, 440 Hz back"""
    return await g711(runner, "PCMA", 8)


async def other_codec(runner):
    """restart_pc with another codec each time: the bot stays, and the tone comes back in the new one"""
    client = Client(runner, codec="PCMU")
    try:
        await client.connect()
        shares = []
        for codec, rate in [("PCMU", 8_000), (None, 48_000), ("PCMA", 8_000)]:
            if client.codec != codec:
                client.codec = codec
                await client.connect(restart=True)
            await client.until(lambda: client.frames > 10 and client.rate == rate, f"{codec or 'Opus'} at {rate} Hz")
            shares.append(f"{codec or 'Opus'}: {await hears_itself(client, 2)}")
        assert await runner.sessions() == 1, "the bot was not kept"
        return "; ".join(shares)
    finally:
        await client.close()


async def pcmu_loss(runner):
    """a caller in PCMU with 10 % loss both ways: what is lost is made up"""
    relay = Relay(loss=0.1, seed=20)
    client = Client(runner, hz=450, relay=relay, codec="PCMU")
    try:
        await client.connect()
        # What is made up is the packet before, backwards, which turns the phase round at the most.
        return await hears_itself_through(client, 8, instead=-8000)
    finally:
        await client.close()


def publish(url):
    """Publishes a second of silence by FFmpeg's muxer of WHIP; returns its error."""
    try:
        with av.open(url, "w", format="whip") as container:
            stream = container.add_stream("libopus", rate=48_000, layout="stereo")
            for number in range(50):
                frame = av.AudioFrame(format="s16", layout="stereo", samples=960)
                frame.planes[0].update(bytes(frame.planes[0].buffer_size))
                frame.sample_rate, frame.pts, frame.time_base = 48_000, number * 960, fractions.Fraction(1, 48_000)
                container.mux(stream.encode(frame))
    except av.FFmpegError as error:
        return error
    return None


async def ffmpeg(runner):
    """FFmpeg's muxer of WHIP gets its answer and cannot connect, since its answers to checks lack an attribute: the log says so"""
    error = await asyncio.to_thread(publish, f"{runner.url}/whip")
    assert error, "it connects: it is a known-bad case no more, and belongs among the clients that work"
    await runner.wait_for_sessions(0, FREED_S)
    log = runner.log_text()
    assert "session started" in log, log
    assert "XOR-MAPPED-ADDRESS" in log, log
    return f"its words: {error}"


async def metrics(runner):
    """a reader of Prometheus understands what is counted of a talk"""
    from prometheus_client.parser import text_string_to_metric_families

    client = Client(runner)
    await client.connect()
    try:
        await asyncio.sleep(2)
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(runner.url + "/metrics", timeout=10).read().decode())
        families = {family.name: family for family in text_string_to_metric_families(text)}
        live = {sample.labels["transport"]: sample.value for sample in families["edge_runner_sessions"].samples}
        assert live["webrtc"] == 1, live
        frames = {sample.labels["transport"]: sample.value for sample in families["edge_runner_audio_frames_sent"].samples}
        assert frames["webrtc"] > 25, frames
        untyped = [name for name, family in families.items() if family.type not in ("counter", "gauge", "histogram")]
        assert not untyped, untyped
        return f"{len(families)} families, {len(text)} bytes"
    finally:
        await client.close()


# Those that take longest come first: several processes may share the checks.
CHECKS = [loss, vanish, certificates, pcmu_loss, never, tone, trickle, video, rtvi, renegotiation, restart, eight, pcmu, pcma, other_codec, farewell,
          moved, ffmpeg, metrics]


async def main(binary, under, names):
    with Report() as report:
        checks = chosen(CHECKS, names)
        for check in map(checks.get, left(checks)):
            with report.check(check) as result:
                result.said = await check(result.keep(Runner(binary, "--bot", "echo", inside=under)))
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--under", type=pathlib.Path, metavar="PROGRAM")
    given = parser.parse_args()
    # The runner starts in a folder of its own.
    under = [given.under.resolve()] if given.under else []
    sys.exit(asyncio.run(main(given.binary.resolve(), under, given.checks)))
