"""A runner that lacks most abilities: what it says of them, and that it serves what it has. Prints a line per check.

    run.py --binary PATH      of a build with the features `webrtc` and `process` alone; exits with 1 when a check failed

Calls need aiortc and websockets, as requirements.txt of the folder `aiortc` and of the example bots name them; without them
the check of the call says that it was skipped.
"""

import argparse
import asyncio
import os
import pathlib
import subprocess
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "aiortc"))

from runner import ROOT, Runner

MARK = "[not in this build]"


def run(binary, *args):
    """Exit code, stdout and stderr of a command that ends by itself."""
    done = subprocess.run([binary, *args], capture_output=True, text=True, timeout=20, cwd="/")
    return done.returncode, done.stdout, done.stderr


def marked_help(binary):
    """the help marks what is absent, and nothing else"""
    code, text, _ = run(binary, "--help")
    assert code == 0 and "This build lacks: turn, telephony, websocket" in text, text
    lines = text.splitlines()

    def marks(option):
        at = next(n for n, line in enumerate(lines) if option in line.replace(",", " ").split() and line.lstrip().startswith("-"))
        return MARK in lines[at] or MARK in lines[at + 1] and not lines[at + 1].lstrip().startswith("--")

    for option in ("--tls", "--state-dir", "--bot", "--metrics", "--no-verify-webhooks", "--direct"):
        assert marks(option), option
    for option in ("--port", "--embedded", "--ice-servers", "--api-key"):
        assert not marks(option), option


def refused_options(binary):
    """an option of an absent ability ends with exit code 2 and the name of its feature"""
    for feature, args in [
        ("tls", ["--tls", "auto", "--state-dir", "/tmp"]),
        ("telephony", ["-t", "telephony_d"]),
        ("websocket", ["-t", "websocket"]),
        ("mediaroom", ["-t", "livekit"]),
        ("metrics", ["--metrics", "any"]),
        ("doctor", ["doctor"]),
        ("bots", ["--bot", "echo"]),
        ("bots", []),
    ]:
        code, _, error = run(binary, *args)
        assert code == 2 and f"the cargo feature `{feature}` brings it" in error, (args, code, error)
    # What only turns it off is no wish for it.
    runner = Runner(binary, "--tls", "off", "--metrics", "off", "--", "true")
    runner.stop()


def refused_requests(binary):
    """absent transports and routes say what they lack; /status lists only what is there"""
    runner = Runner(binary, "--", "true", variables={"VIDEOROOM_API_KEY": "hunter2", "TWILIO_AUTH_TOKEN": "hunter2"})
    try:
        status, reply = runner.call("GET", "/status")
        assert status == 200 and reply["transports"] == ["webrtc"], reply
        for name, feature in [("telephony_b", "telephony"), ("daily", "videoroom"), ("websocket", "websocket")]:
            status, reply = runner.call("POST", "/start", {"transport": name})
            assert status == 400 and f"the cargo feature `{feature}` brings it" in reply["detail"], reply
        for path, wanted, feature in [
            ("/", 404, "page"),
            ("/client/", 404, "page"),
            ("/metrics", 404, "metrics"),
            ("/ca.crt", 404, "tls"),
            ("/videoroom", 501, "videoroom"),
            ("/ws-client", 501, "websocket"),
            ("/ws", 501, "telephony"),
        ]:
            status, reply = runner.call("GET", path)
            assert status == wanted and f"`{feature}`" in reply["detail"], (path, status, reply)
        status, reply = runner.call("POST", "/start", {})
        assert status == 200 and reply["sessionId"], reply
        warned = [line for line in runner.log_text().splitlines() if "not used by this build" in line]
        assert len(warned) == 1 and "VIDEOROOM_API_KEY" in warned[0] and "TWILIO_AUTH_TOKEN" in warned[0], warned
        assert "hunter2" not in runner.log_text()
    finally:
        runner.stop()


def called(binary):
    """a peer calls, and a program answers: its tone comes back; microcontrollers are offered one address"""
    try:
        import websockets.sync.client  # noqa: F401  (the program's own)
        from client import Client, tone_share
    except ImportError as missing:
        return f"SKIPPED: {missing}"

    async def call():
        client = Client(runner)
        await client.connect()
        share = tone_share(await client.listen_for(3), client.hz)
        await client.close()
        await runner.wait_for_sessions(0, 15)
        assert share > 0.9, f"share of the tone {share:.2f}"
        return f"share {share:.3f}"

    said = []
    program = [sys.executable, str(ROOT / "tests" / "examples" / "bots" / "echo.py")]
    for embedded in ((), ("--embedded", "--host", "127.0.0.1")):
        runner = Runner(binary, *embedded, "--", *program)
        try:
            said.append(asyncio.run(call()))
        except BaseException:
            print(runner.log_text(), file=sys.stderr)
            raise
        finally:
            runner.stop()
    return ", ".join(said)


def main(binary):
    failed = 0
    for check in (marked_help, refused_options, refused_requests, called):
        try:
            said = check(binary)
            print(f"PASS {check.__name__}: {check.__doc__}" + (f" ({said})" if said else ""), flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {check.__name__}: {check.__doc__}: {error!r}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    os.environ.pop("RUST_LOG", None)
    sys.exit(main(parser.parse_args().binary.resolve()))
