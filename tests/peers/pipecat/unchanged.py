"""Checks of `edge-runner bot.py` with a bot for Pipecat's own runner, `unchanged_bot.py`."""

import asyncio
import importlib.util
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
import urllib.request

import messaging
import providers
from call import Call
from checks import until
from client import RATE, Client
from programs import HZ, NOTICED_S, STARTED_S, hum, socket_url
from sound import in_tune, tone

BOT = str(pathlib.Path(__file__).with_name("unchanged_bot.py"))
# A time limit for what the bot does at once.
SOON_S = 20
# Calls whose median is reported, and calls in a row that leave nothing: less than 12 KiB each.
CALLS = 20
MANY, LEAK_KIB = 200, 2048


def browser(runner):
    """aiortc as the stock web client behaves; its module has the name of one of this folder."""
    path = pathlib.Path(__file__).resolve().parents[1] / "aiortc" / "client.py"
    spec = importlib.util.spec_from_file_location("aiortc_client", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Client(runner, hz=HZ)


def run(start, *arguments):
    # The log of the checks themselves has errors alone.
    return start("--python", sys.executable, BOT, "--name", "Ada", *arguments, LOGURU_LEVEL="INFO")


def press(key):
    return {"label": "rtvi-ai", "type": "dtmf", "id": key, "data": {"buttons": [key]}}


async def ended(runner, calls):
    """The caller has left: the bot's handler ran to its end, `bot()` returned, and nothing failed."""
    await runner.wait_for_sessions(0, NOTICED_S)
    log = runner.log_text()
    for words in ("hello, Ada", "the caller left", "the call is saved", "the bot returns"):
        assert log.count(words) == calls, f"{log.count(words)} times: {words}"
    assert "failed" not in log and "Traceback" not in log, "something failed"


async def unchanged_client(start):
    """an unchanged Pipecat bot for a plain client: greets, is ready, plays back, and ends when the client leaves"""
    runner = run(start)
    async with Client(socket_url(runner, "/ws-client")) as peer:
        ready = await peer.ready(limit_s=STARTED_S)
        await peer.until(lambda: "BotStoppedSpeakingFrame" in runner.log_text(), "the end of the greeting", SOON_S)
        hum(peer, RATE)
        await asyncio.sleep(1)
        said = in_tune(await peer.listen_for(2), HZ, RATE, tone(HZ, RATE, 0, RATE))
    await ended(runner, 1)
    assert "no transport parameters for `websocket`" in runner.log_text()
    return f"{ready['version']}, {said}"


async def unchanged_browser(start):
    """an unchanged Pipecat bot over WebRTC: it greets, an interruption drops its speech, a key and a picture are answered"""
    runner = run(start)
    peer = browser(runner)
    try:
        await peer.connect()
        peer.send({"label": "rtvi-ai", "type": "client-ready", "id": "r", "data": {"version": "2.1.0", "about": {"library": "check"}}})
        await peer.until(lambda: peer.message("bot-ready", id="r"), "bot-ready", STARTED_S)
        await runner.wait_for_log("BotStoppedSpeakingFrame", SOON_S)
        peer.send(press("6"))
        await runner.wait_for_log("picture: {'error': 'There is no camera", SOON_S)
        said = peer.share(await peer.listen_for(2))
        assert said > 0.5, f"a share of {said} of the caller's own tone"
        spoken = runner.log_text().count("BotStoppedSpeakingFrame")
        peer.send(press("7"))
        await peer.until(lambda: runner.log_text().count("BotStartedSpeakingFrame") > spoken, "a long speech", SOON_S)
        began = time.monotonic()
        peer.send(press("8"))
        await peer.until(lambda: runner.log_text().count("BotStoppedSpeakingFrame") > spoken, "the interruption", SOON_S)
        took = time.monotonic() - began
        assert took < 15, f"20 s of speech were interrupted after {took} s"
    finally:
        await peer.close()
    await ended(runner, 1)
    return f"a share of {said:.3f}"


async def unchanged_calls(start):
    """an unchanged Pipecat bot in calls of four providers: greets, hears keys, plays back, hangs up by itself"""
    runner = run(start)

    async def one(provider):
        async with Call(provider, socket_url(runner, "/ws")) as call:
            await call.until(lambda: len(call.received()) > 0.5 * provider.rate, "the greeting", STARTED_S)
            hum(call, provider.rate)
            await asyncio.sleep(2)
            control = await provider.coded(tone(HZ, provider.rate, 0, provider.rate))
            said = in_tune(await call.listen_for(2), HZ, provider.rate, control)
            call.voice = None
            await call.send(provider.dtmf("9"))
            await asyncio.wait_for(call.socket.wait_closed(), NOTICED_S)
            assert call.socket.close_code == 1000, f"closed with {call.socket.close_code}"
            assert len(call.marks) >= 1, "no mark at the end of the greeting"
        return said

    said = [await one(kind()) for kind in providers.EACH]
    await runner.wait_for_sessions(0, NOTICED_S)
    log = runner.log_text()
    assert log.count("key 9") == log.count("the bot returns") == len(providers.EACH), "a bot did not return"
    assert "the caller left" not in log, "the bot itself ended the calls"
    return "; ".join(said)


async def unchanged_by_hand(start):
    """bots that build SmallWebRTCTransport and FastAPIWebsocketTransport themselves, without the provider's secrets"""
    runner = run(start, "--by-hand")
    peer = browser(runner)
    try:
        await peer.connect()
        await runner.wait_for_log("BotStoppedSpeakingFrame", STARTED_S)
    finally:
        await peer.close()
    await runner.wait_for_sessions(0, NOTICED_S)
    provider = providers.Twilio()
    async with Call(provider, socket_url(runner, "/ws")) as call:
        await call.until(lambda: len(call.received()) > 0.5 * provider.rate, "the greeting", STARTED_S)
        await call.hang_up()
    await ended(runner, 2)
    assert "a call of twilio" in runner.log_text()


def private_kib(pid):
    """Memory of a process that no other has."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


async def timed(runner, calls):
    """Has calls one after the other. Returns the medians of the times to `bot-ready` and to the first sound in seconds, and
    of the private memory of the bot in MiB."""
    found = []
    for nth in range(calls):
        began = time.monotonic()
        async with Client(socket_url(runner, "/ws-client")) as peer:
            await peer.ready(limit_s=STARTED_S)
            ready = time.monotonic() - began
            await peer.until(lambda: len(peer.received()) > 0, "the greeting", SOON_S)
            sound = time.monotonic() - began
            await peer.until(lambda: runner.log_text().count("BotStoppedSpeakingFrame") > nth, "its end", SOON_S)
            found.append((ready, sound, private_kib(newest_bot(runner)) / 1024))
        await runner.wait_for_sessions(0, NOTICED_S)
    return [statistics.median(values) for values in zip(*found)]


def newest_bot(runner):
    """Returns the process of the last call that began."""
    return int(runner.log_text().rsplit("the bot is process ", 1)[1].split()[0])


async def unchanged_warm(start):
    """an unchanged Pipecat bot, calls of one loaded process beside calls that load it: times and memory, no process left"""
    said = []
    for warm, words in (("1", "warm"), ("0", "spawned")):
        runner = start("-v", "--warm", warm, "--python", sys.executable, BOT, "--name", "Ada", LOGURU_LEVEL="INFO")
        if warm == "1":
            await runner.wait_for_log("the bot is loaded before its calls: Fork", STARTED_S)
        ready, sound, memory = await timed(runner, CALLS)
        await ended(runner, CALLS)
        said.append(f"{words}: ready {ready:.3f} s, sound {sound:.3f} s, {memory:.0f} MiB private")
    return "; ".join(said)


def held(pid):
    """What a process holds: its anonymous memory in KiB, its descriptors, and its children. A page counts whether a child shares it or
    not: how many they share depends on what the child that waits has done so far."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    anonymous = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return anonymous, len(os.listdir(f"/proc/{pid}/fd")), len(children)


async def unchanged_many(start):
    """200 calls in a row of an unchanged Pipecat bot leave no process, no descriptor and no memory, in the runner and in the process
    that forks"""
    runner = start("-v", "--python", sys.executable, BOT, "--name", "Ada", LOGURU_LEVEL="INFO")
    await runner.wait_for_log("the bot is loaded before its calls: Fork", STARTED_S)
    pids = [runner.process.pid, int(runner.log_text().split("the process that loads the bot is process ")[1].split()[0])]
    for nth in range(1, MANY + 1):
        async with Client(socket_url(runner, "/ws-client")) as peer:
            await peer.ready(limit_s=STARTED_S)
        await runner.wait_for_sessions(0, NOTICED_S)
        if nth == MANY // 10:
            # With the child that waits for the next call.
            await until(lambda: held(pids[1])[2] == 1, "one child, which waits", SOON_S)
            before = [held(pid) for pid in pids]
    assert "failed" not in runner.log_text() and "Traceback" not in runner.log_text(), "something failed"
    # The system closes what is left of the last call.
    await until(lambda: all(held(pid)[1:] == early[1:] for pid, early in zip(pids, before)), "as many descriptors and children", SOON_S)
    grown = [held(pid)[0] - early[0] for pid, early in zip(pids, before)]
    assert max(grown) < LEAK_KIB, f"{grown} KiB more in the runner and the process that forks"
    return f"{grown[0]} and {grown[1]} KiB more after {MANY - MANY // 10} calls"


async def unchanged_rehearsed(start):
    """a process that waits for its call rehearses one with this version of Pipecat, of which nothing is in the log, and takes it"""
    runner = start("--python", sys.executable, BOT, "--name", "Ada", LOGURU_LEVEL="DEBUG")
    await runner.wait_for_log("A call was rehearsed in", STARTED_S)
    log = runner.log_text()
    assert "PipelineWorker" not in log and "Traceback" not in log, "the rehearsal is in the log"
    async with Client(socket_url(runner, "/ws-client")) as peer:
        await peer.ready(limit_s=STARTED_S)
        await peer.until(lambda: "BotStoppedSpeakingFrame" in runner.log_text(), "the end of the greeting", SOON_S)
    await ended(runner, 1)
    await until(lambda: runner.log_text().count("A call was rehearsed in") == 2, "the rehearsal of the next call", SOON_S)
    assert "not rehearsed" not in runner.log_text()


async def unchanged_video(start):
    """a bot with video output is refused in one sentence"""
    runner = run(start, "--video")
    peer = browser(runner)
    try:
        await peer.connect()
        await runner.wait_for_log("The bot sets video_out_enabled, and edge-runner carries no video.", STARTED_S)
    finally:
        await peer.close()
    await runner.wait_for_sessions(0, NOTICED_S)
    assert "Traceback" not in runner.log_text()


async def unchanged_whatsapp(start):
    """an unchanged Pipecat bot in a WhatsApp call: the caller hears it, and it ends when the caller leaves"""
    async with messaging.Caller() as caller, messaging.Graph() as graph:
        variables = {**messaging.VARIABLES, "MESSAGING_API_URL": graph.url + "/v23.0", "LOGURU_LEVEL": "INFO"}
        runner = start("--messaging", "--python", sys.executable, BOT, "--name", "Ada", **variables)
        body = messaging.webhook("wacid.CHECK", caller.sdp)
        assert await asyncio.to_thread(messaging.post, runner.url, body) == (200, {"status": "success"})
        await until(lambda: graph.requests, "pre_accept")
        await caller.answered(json.loads(graph.requests[0][4])["session"]["sdp"])
        await runner.wait_for_log("BotStoppedSpeakingFrame", STARTED_S)
        assert caller.received >= 20, f"{caller.received} frames heard"
        await caller.connection.close()
        await ended(runner, 1)


async def unchanged_whip(start):
    """an unchanged Pipecat bot for a WHIP client: greets when it is connected, and ends by DELETE"""
    runner = run(start)
    async with messaging.Caller() as caller:
        status, headers, answer = await asyncio.to_thread(whip, runner.url + "/whip", "POST", caller.sdp)
        assert status == 201, (status, answer)
        await caller.answered(answer)
        await runner.wait_for_log("BotStoppedSpeakingFrame", STARTED_S)
        assert caller.received >= 20, f"{caller.received} frames heard"
        status, _, said = await asyncio.to_thread(whip, runner.url + headers["Location"], "DELETE")
        assert status == 200, (status, said)
        await ended(runner, 1)


def whip(url, method, sdp=None):
    request = urllib.request.Request(url, sdp and sdp.encode(), {"Content-Type": "application/sdp"} if sdp else {}, method=method)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return reply.status, reply.headers, reply.read().decode()


async def unchanged_sandbox(start):
    """an unchanged Pipecat bot in the sandbox of the runner"""
    runner = run(lambda *arguments, **variables: start("--sandbox", *arguments, **variables))
    async with Client(socket_url(runner, "/ws-client")) as peer:
        await peer.ready(limit_s=STARTED_S)
        await peer.until(lambda: "BotStoppedSpeakingFrame" in runner.log_text(), "the end of the greeting", SOON_S)
    await ended(runner, 1)


def posted(url, kind, data):
    request = urllib.request.Request(url, data, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


async def unchanged_uploads(start):
    """an unchanged Pipecat bot reads a file that its client has uploaded, also in the sandbox, and deletes it"""
    with tempfile.TemporaryDirectory() as folder:
        for options in ((), ("--sandbox",)):
            runner = run(lambda *arguments, **variables: start("-u", folder, *options, *arguments, **variables))
            content = random.randbytes(1_000_000)
            form = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + content + b"\r\n--B--\r\n"
            file = await asyncio.to_thread(posted, runner.url + "/files", "multipart/form-data; boundary=B", form)
            assert (file["name"], file["format"]) == ("a.png", "image/png"), file
            body = {"transport": "websocket", "body": {"file": file["source"]["url"]}}
            started = await asyncio.to_thread(posted, runner.url + "/start", "application/json", json.dumps(body).encode())
            assert started["fileUploadUrl"] == "/files", started
            async with Client(socket_url(runner, f"/ws-client?sessionId={started['sessionId']}")) as peer:
                await peer.ready(limit_s=STARTED_S)
                await peer.until(lambda: "read 1000000 bytes" in runner.log_text(), "the file", SOON_S)
            await ended(runner, 1)
            assert not list(pathlib.Path(folder).iterdir()), "the bot did not delete what it has read"


CHECKS = {check.__name__: check for check in [
    unchanged_client, unchanged_warm, unchanged_rehearsed, unchanged_many, unchanged_browser, unchanged_calls, unchanged_by_hand,
    unchanged_video, unchanged_whatsapp, unchanged_whip, unchanged_sandbox, unchanged_uploads]}
