"""A runner with an echo bot on PyPI's moq-rs 0.5, for checks of the checks: `run.py --binary echo_bot.py`.

It takes the options that the checks give, ignores the others, and answers `/start` and `/status`.
"""

import argparse
import asyncio
import base64
import hashlib
import pathlib
import secrets
import signal
import ssl
import uuid

import moq
from aiohttp import web

RATE = 48_000
TRANSCRIPT = "transcript.json.z"


class Session:
    """One bot. `published` and `consumed` are the same origin when serving."""

    def __init__(self, namespace, published, consumed):
        self.consumed, self.path, self.seq, self.epoch = consumed, f"{namespace}/request", 0, secrets.token_hex(8)
        self.goodbye, self.sent, self.seen = False, 0, (-1, None)
        self.broadcast = published.create_broadcast(f"{namespace}/response")
        self.log = self.broadcast.publish_json_stream(TRANSCRIPT, compression=True)
        self.audio = self.broadcast.encode_audio(
            "bot-audio", moq.AudioEncoderInput(format=moq.AudioSampleFormat.S16, sample_rate=RATE, channels=1),
            moq.AudioEncoderOutput(
                codec=moq.AudioCodec.opus(), sample_rate=RATE, channels=None, bitrate=None, frame_duration_us=20_000))
        self.broadcast.announce()

    async def run(self, patience_s):
        """Until the user left, or was away for so long."""
        limit_s = 30
        while not self.goodbye:
            announced = self.consumed.consume().announced_broadcast(self.path)
            try:
                user = await asyncio.wait_for(announced.available(), limit_s)
            except TimeoutError:
                return
            tasks = [asyncio.create_task(self.echo(user)), asyncio.create_task(self.answer(user))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            limit_s = patience_s

    async def echo(self, user):
        async for catalog in await user.subscribe_catalog():
            if catalog.audio:
                name, track = next(iter(catalog.audio.items()))
                break
        into = moq.AudioDecoderOutput(
            format=moq.AudioSampleFormat.S16, sample_rate=RATE, channels=track.channel_count, max_age_us=500_000)
        async for frame in await user.decode_audio(name, track, into):
            # The left channel.
            pcm = bytes(memoryview(frame.data).cast("h")[::track.channel_count].tobytes())
            self.audio.write(moq.AudioFrame(timestamp_us=self.sent * 1_000_000 // RATE, data=pcm))
            self.sent += len(pcm) // 2

    async def answer(self, user):
        async for record in await user.subscribe_json_stream(TRANSCRIPT, compression=True):
            seen = record.get("seq", -1), record.get("epoch")
            if seen[1] and seen[1] == self.seen[1] and seen[0] <= self.seen[0]:
                continue
            self.seen = seen
            if record["type"] == "client-ready":
                self.tell("bot-ready", id=record["id"], data={"version": "2.1.0", "about": {"library": "reference"}})
            elif record["type"] == "client-message":
                self.tell("server-response", id=record["id"], data=record["data"])
            elif record["type"] == "session-ending":
                self.goodbye = True
                return

    def tell(self, kind, label="rtvi-ai", **fields):
        self.log.append({"label": label, "type": kind, **fields, "seq": self.seq, "epoch": self.epoch})
        self.seq += 1

    async def end(self):
        self.tell("session-ending", label="moq-transport")
        await asyncio.sleep(0.25)
        for track in (self.audio, self.log):
            track.finish()
        self.broadcast.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--moq-bind", default="127.0.0.1:0")
    parser.add_argument("--moq-connect")
    parser.add_argument("--moq-tls-cert")
    options, _ = parser.parse_known_args()
    live, shared = set(), moq.OriginProducer()

    async def start(request):
        body = await request.json()
        namespace = body.get("namespace") or f"pipecat-{secrets.token_hex(8)}"
        ready = asyncio.Event()

        async def run():
            if options.moq_connect:
                published, consumed = moq.OriginProducer(), moq.OriginProducer()
                session = Session(namespace, published, consumed)
                live.add(session)
                async with moq.Client(options.moq_connect, tls_verify=False, publish=published, subscribe=consumed):
                    ready.set()
                    await session.run(30)
            else:
                session = Session(namespace, shared, shared)
                live.add(session)
                ready.set()
                await session.run(0)
            await session.end()
            live.discard(session)

        tasks.append(asyncio.create_task(run()))
        await asyncio.wait_for(ready.wait(), 15)
        return web.json_response({"sessionId": str(uuid.uuid4()), "moq": {
            "relayUrl": options.moq_connect or f"https://localhost:{server.local_addr.rsplit(':', 1)[1]}/moq",
            "certHash": fingerprint,
            "serve": not options.moq_connect, "namespace": namespace, "clientId": "request", "botId": "response",
            "transcriptTrack": TRANSCRIPT}}, headers={"Access-Control-Allow-Origin": request.headers.get("Origin", "*")})

    async def status(_):
        return web.json_response({"status": "ready", "sessions": len(live)})

    async def preflight(request):
        return web.Response(headers={
            "Access-Control-Allow-Origin": request.headers["Origin"], "Access-Control-Allow-Headers": "content-type"})

    app, ended, tasks = web.Application(), asyncio.Event(), []
    app.add_routes([web.post("/start", start), web.get("/status", status), web.options("/start", preflight)])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with moq.Server(options.moq_bind, tls_generate=["localhost"], publish=shared, subscribe=shared) as server:
        if options.moq_tls_cert:
            der = ssl.PEM_cert_to_DER_cert(pathlib.Path(options.moq_tls_cert).read_text())
            fingerprint = base64.b64encode(hashlib.sha256(der).digest()).decode()
        else:
            fingerprint = base64.b64encode(bytes.fromhex(server.cert_fingerprints()[0])).decode()
        serving = asyncio.create_task(server.serve())
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(f"listening on http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}", flush=True)
        await ended.wait()
        await asyncio.gather(*(session.end() for session in live))
        serving.cancel()


asyncio.run(main())
