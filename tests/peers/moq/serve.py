"""Checks of serve mode: the runner's own QUIC socket."""

import asyncio
import json
import signal
import sys
from urllib.parse import urlsplit

from peer import ANY_SOUND, CLEAN, NOTICED_S, ROOT, Peer, Spread, hears_itself, measure, starts

# A player that stood still catches up, or waits until its buffer is full again.
AFTER_STOP = Spread(CLEAN.share, 0.4)


async def talks(runner, kind):
    answer = await starts(runner)
    assert answer["moq"]["serve"] is True and answer["moq"]["transcriptTrack"] == "transcript.json.z", answer
    async with Peer(answer, kind) as peer:
        await peer.ready()
        share = await hears_itself(peer)
        await peer.ask(7)
        await peer.leave()
        took = await runner.wait_for_sessions(0, NOTICED_S)
    return f"share {share:.3f}, freed after {took:.2f} s"


def talker(kind, doc):
    async def check(place):
        return await talks(place.runner(), kind)
    check.__doc__ = doc
    return check


async def unchanged(place):
    """an unchanged Pipecat bot, which knows nothing of QUIC: it is ready, plays back what it hears, and ends with the caller"""
    bot = ROOT / "tests" / "peers" / "pipecat" / "unchanged_bot.py"
    runner = place.runner(bot=("--python", sys.executable, str(bot), "--name", "Ada"))
    async with Peer(await starts(runner)) as peer:
        await peer.ready()
        await peer.until(lambda: "BotStoppedSpeakingFrame" in runner.log_text(), "the end of the greeting")
        share, _ = await measure(peer, 2)
        # The greeting has another tone, and the bot's own rate is 8 kHz.
        assert share > 0.5, f"a share of {share} of the peer's own tone"
        await peer.leave()
        await runner.wait_for_sessions(0, NOTICED_S)
    log = runner.log_text()
    assert "hello, Ada" in log and "the bot returns" in log and "Traceback" not in log, log
    return f"share {share:.3f}"


async def numbered(place):
    """records of the bot carry `seq` from 0 and one `epoch`"""
    async with Peer(await starts(place.runner())) as peer:
        await peer.ready()
        for n in range(3):
            await peer.ask(n)
        records = peer.records()
        assert [record["seq"] for record in records] == list(range(len(records))), records
        assert len({record["epoch"] for record in records}) == 1 and len(records[0]["epoch"]) == 16, records
        return f"{len(records)} records"


async def killed(place):
    """a peer that is killed is gone from /status"""
    runner = place.runner()
    async with Peer(await starts(runner)) as peer:
        await peer.ready()
        peer.process.kill()
        # The idle time of QUIC.
        took = await runner.wait_for_sessions(0, 30 + NOTICED_S)
    return f"freed after {took:.1f} s"


async def terminated(place):
    """a runner that gets SIGTERM says session-ending to the peer, and retracts its broadcast"""
    runner = place.runner()
    async with Peer(await starts(runner)) as peer:
        await peer.ready()
        runner.process.send_signal(signal.SIGTERM)
        last = await peer.until(lambda: peer.record("session-ending", label="moq-transport"), "session-ending")
        assert peer.records()[-1] == last, peer.records()
        await peer.until(lambda: peer.event("left") or peer.event("closed"), "the end of the broadcast")
        await asyncio.to_thread(runner.process.wait, 10)
        assert runner.process.returncode == 0, runner.process.returncode
    return "exit code 0"


async def stalled(place):
    """after the runner stood still for 700 ms, moq-rs 0.4, 0.5 and Pipecat hear on"""
    runner = place.runner()
    kinds = (("0.4", 440), ("0.5", 700), ("pipecat", 990))
    async with (Peer(await starts(runner), *kinds[0]) as one, Peer(await starts(runner), *kinds[1]) as two,
                Peer(await starts(runner), *kinds[2]) as three):
        peers = (one, two, three)
        await asyncio.gather(*(peer.ready() for peer in peers))
        await asyncio.gather(*(hears_itself(peer, 1, ANY_SOUND) for peer in peers))
        runner.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.7)
        runner.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(1)
        shares = await asyncio.gather(*(hears_itself(peer, 2, AFTER_STOP) for peer in peers))
        assert await runner.sessions() == len(peers)
    return "shares " + ", ".join(f"{share:.3f}" for share in shares)


async def together(place):
    """two sessions at once with namespaces of their own: each hears its own tone only"""
    runner = place.runner()
    answers = [await starts(runner), await starts(runner)]
    spaces = [answer["moq"]["namespace"] for answer in answers]
    assert len(set(spaces)) == 2, spaces
    async with Peer(answers[0], "0.4", hz=440) as one, Peer(answers[1], "0.5", hz=990) as two:
        await asyncio.gather(one.ready(), two.ready())
        assert await runner.sessions() == 2
        found = await asyncio.gather(hears_itself(one), hears_itself(two))
        await one.leave()
        await runner.wait_for_sessions(1, NOTICED_S)
        found.append(await hears_itself(two, 1))
    return "shares " + ", ".join(f"{share:.3f}" for share in found)


async def named(place):
    """a namespace that the request names is taken"""
    runner = place.runner()
    answer = await starts(runner, namespace="queue/7")
    assert answer["moq"]["namespace"] == "queue/7", answer
    async with Peer(answer) as peer:
        await peer.ready()
        return f"share {await hears_itself(peer, 2, ANY_SOUND):.3f}"


async def program(place):
    """a program as the bot: it is told kind and fields, answers client-ready, and echoes"""
    script = ROOT / "examples" / "bots" / "echo.py"
    tell = "import os, runpy, sys; print('told', os.environ['RUNNER_ARGUMENTS'], flush=True); " \
        "sys.path[0] = os.path.dirname(sys.argv[1]); runpy.run_path(sys.argv[1], run_name='__main__')"
    runner = place.runner(bot=("--", sys.executable, "-c", tell, str(script)))
    answer = await starts(runner, body={"from": "check"})
    async with Peer(answer, "0.5") as peer:
        ready = await peer.ready()
        share = await hears_itself(peer)
        told = next(line for line in runner.log_text().splitlines() if "told {" in line)
        told = json.loads(told[told.index("told ") + 5:])
        moq = answer["moq"]
        wanted = {
            "kind": "moq", "session_id": answer["sessionId"], "body": {"from": "check"}, "handle_sigint": False,
            "handle_sigterm": True, "idle_timeout": 300, "relay_url": moq["relayUrl"], "namespace": moq["namespace"],
            "bot_id": moq["botId"], "client_id": moq["clientId"], "serve": True, "media_url": told.get("media_url")}
        assert told == wanted and told["media_url"].startswith("ws://127.0.0.1:"), told
        await peer.leave()
        await runner.wait_for_sessions(0, 10 + NOTICED_S)
    return f"share {share:.3f}, {ready['data']['about']['library']}"


async def strangers(place):
    """a peer in a namespace that was not started sees nothing, nor one that publishes elsewhere and asks for a live bot"""
    runner = place.runner()
    answer = await starts(runner)
    async with Peer(answer, hz=440) as peer:
        await peer.ready()
        foreign = {"publish": "pipecat-0000000000000000/request"}
        async with (Peer(answer, publish=foreign["publish"], consume="pipecat-0000000000000000/response") as lost,
                    Peer(answer, **foreign) as curious, Peer(answer, hz=990) as second):
            for stranger in (lost, curious, second):
                await stranger.until(lambda: stranger.event("connected") or stranger.event("refused"), "a connection")
            await hears_itself(peer, spread=ANY_SOUND)
            for stranger in (lost, curious):
                assert not stranger.event("joined"), stranger.events
            assert not second.records(), second.records()
        assert await runner.sessions() == 1
        await hears_itself(peer, 1, ANY_SOUND)
    return "no broadcast was announced to them"


async def tokens(place):
    """--ws-auth token: the URL of `/start` opens one connection, whatever the library; used again or without its token, none"""
    runner = place.runner("--ws-auth", "token")
    for kind in ("0.4", "0.5", "pipecat"):
        answer = await starts(runner)
        async with Peer(answer, kind) as peer:
            await peer.ready()
            await hears_itself(peer, 1, ANY_SOUND)
            await refused(answer, answer["moq"]["relayUrl"])
            await peer.leave()
        await runner.wait_for_sessions(0, NOTICED_S)
        url = urlsplit(answer["moq"]["relayUrl"])
        assert url.path != "/moq" or url.query, url
        await refused(answer, f"{url.scheme}://{url.netloc}/moq")
    return url._replace(netloc="…").geturl()[:24] + "…"


async def refused(answer, url):
    async with Peer(answer, "0.5", url=url) as stranger:
        await stranger.until(lambda: stranger.event("refused") or stranger.event("closed"), "a refusal")
        assert not stranger.event("joined"), stranger.events


CHECKS = {
    "old": talker("0.4", "moq-rs 0.4: RTVI both ways, its own tone, a leave that ends the session"),
    "new": talker("0.5", "moq-rs 0.5: the same"),
    "pipecat": talker("pipecat", "Pipecat 1.14's own transport: the same"),
    "unchanged": unchanged, "numbered": numbered, "killed": killed, "terminated": terminated, "stalled": stalled, "together": together, "named": named,
    "program": program, "strangers": strangers, "tokens": tokens,
}
