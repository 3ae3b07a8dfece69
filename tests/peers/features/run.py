"""A runner without some features: its messages about them, and the features that it has. Prints a line per check.

    run.py --profile smallest|telephone --binary PATH      of a build with the features of that name in Cargo.toml;
                                                           exits with 1 when a check failed

The call over WebRTC needs aiortc and websockets, as requirements.txt of the folder `aiortc` and of the example bots name them;
without them its check says that it was skipped.
"""

import argparse
import asyncio
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "aiortc"))

from checks import Report
from runner import ROOT, Runner

MARK = "[not in this build]"
PROFILES = {
    "smallest": {"webrtc"},
    "telephone": {"telephony"},
}
# An option of the help: its name, the placeholder of its value, and its text, which begins behind them or on the next line.
OPTION = re.compile(r"^ {2,6}(?:-\w, )?(--[a-z-]+)(?:, --[a-z0-9-]+)*(?: (\S+))?(?: {2,}(\S.*)|\n {32}(\S.*))$", re.MULTILINE)
# A valid value by the placeholder, and for the options whose values are of another kind; without either, 1.
SAMPLES = {
    "ADDR": "192.0.2.1", "ADDR:PORT": "[::]:0", "COMMAND": "true", "DIR": "/tmp", "FILE": "/a", "HOST": "a", "HZ": "8000", "ID": "a",
    "KEY": "0123456789abcdef", "LOAD": "0.5", "MB": "64", "NAME": "a", "NUMBER": "+15550001111", "ORIGIN": "https://a",
    "PERCENT": "50", "PROGRAM": "true", "SERVER": "stun:a", "T": "webrtc", "URL": "https://a", "WORD": "stop",
    "--acme-email": "me@example.net", "--acme-name": "bot.example.net", "--local-wake": "tcp://a:1",
}
# Features whose options begin alike.
FAMILIES = {"--acme-": "acme", "--calls-": "calls", "--local-": "local", "--moq-": "moq"}
TRANSPORTS = {
    "webrtc": "webrtc", "videoroom": "videoroom", "mediaroom": "mediaroom", "telephony_a": "telephony",
    "telephony_b": "telephony", "telephony_c": "telephony", "telephony_d": "telephony", "websocket": "websocket",
    "moq": "moq",
}
# Variables of absent features, set to values that the feature would reject, and the names in warnings.
NONSENSE = {
    "TWILIO_AUTH_TOKEN": ("telephony", "hunter 2"), "TELCO_B_PUBLIC_KEY": ("telephony", "hunter2"),
    "TELCO_A_API_URL": ("telephony", "hunter2"), "VIDEOROOM_API_KEY": ("videoroom", "hunter 2"),
    "VIDEOROOM_ROOM_URL": ("videoroom", "hunter2"), "RUNNER_START_NAMES": ("videoroom", "hunter2"),
    "LIVEKIT_API_SECRET": ("mediaroom", "hunter 2"), "MEDIAROOM_URL": ("mediaroom", "hunter2"),
    "WHATSAPP_TOKEN": ("messaging", "hunter 2"), "MESSAGING_API_URL": ("messaging", "hunter2"),
}
CREDENTIALS = {"TWILIO_AUTH_TOKEN", "TELCO_B_PUBLIC_KEY", "VIDEOROOM_API_KEY", "LIVEKIT_API_SECRET", "WHATSAPP_TOKEN"}
ROUTES = [
    ("/", 404, "page"),
    ("/client/", 404, "page"),
    ("/ca.crt", 404, "tls"),
    ("/videoroom", 501, "videoroom"),
    ("/messaging", 501, "messaging"),
    ("/calls", 501, "calls"),
    ("/ws-client", 501, "websocket"),
    ("/ws", 501, "telephony"),
]


class Build:
    def __init__(self, binary, profile):
        self.binary = binary
        self.has = PROFILES[profile]

    def run(self, *args, **variables):
        """Returns exit code, stdout and stderr of a command that ends by itself."""
        done = subprocess.run(
            [self.binary, *args], capture_output=True, text=True, timeout=20, cwd="/", env={**os.environ, **variables})
        return done.returncode, done.stdout, done.stderr

    def serve(self, *args, **more):
        return Runner(self.binary, *args, rtc="webrtc" in self.has, **more)

    def absent(self, features):
        """Returns the first of them if the build has none of them."""
        return None if self.has.intersection(features) else features[0]


def warnings(runner):
    """Returns the text of each warning so far."""
    return [line for line in runner.log_text().splitlines() if " WARN " in line]


def banner(runner):
    """Returns the rows of the banner by name; a row without a name belongs to the one before."""
    rows, name = {}, None
    for line in runner.process.stdout:
        if line.startswith("  "):
            name = line[2:13].strip() or name
            rows[name] = rows.get(name, "") + line[13:]
        if name == "Stop":
            return rows
    raise AssertionError("the banner has no end")


def options(text):
    """Returns name, placeholder and text of each option in a help."""
    return [(name, value, here or below) for name, value, here, below in OPTION.findall(text)]


def lacked(text):
    """Returns the features that a build lacks, by its help."""
    return "".join(re.search(r"This build lacks:(.*)\nOptions marked", text, re.S).group(1).split()).split(",")


def sample(name, placeholder):
    """Returns the words that request an option: its name, and a value if it takes one. `off` and `none` request nothing."""
    if not placeholder or placeholder.startswith("["):
        return [name]
    kinds = placeholder.rstrip(".").split("|")
    first = kinds[0] if kinds[0] in SAMPLES else re.match(r"[A-Z]+|", placeholder)[0]
    chosen = next((kind for kind in kinds if kind.islower() and kind not in ("off", "none")), None)
    return [name, SAMPLES.get(name) or SAMPLES.get(first) or chosen or "1"]


def marked_help(build):
    """the help marks absent features, and nothing else"""
    code, text, _ = build.run("--help")
    lacks = lacked(text)
    assert code == 0 and not build.has.intersection(lacks) and len(lacks) + len(build.has) == 23, text
    every = {name for name, *_ in options((ROOT / "tests" / "data" / "help.txt").read_text())}
    listed = {name for name, *_ in options(text)}
    assert len(every) > 80 and listed == every, every ^ listed
    transports = " ".join(re.search(r"One of\s+(webrtc.*?)\.\n", text, re.S).group(1).split())
    for name, feature in TRANSPORTS.items():
        # Vendor names come first, with the wire name in parentheses.
        is_marked = f"{name} {MARK}" in transports or f"({name}) {MARK}" in transports
        assert is_marked == (feature not in build.has), transports
    usage = text[text.index("Usage:"):text.index("Options marked")]
    commands = ["new", "doctor", "config", "call", *([] if "telephony" in build.has else ["phone"]), "setup", "update", "cloud"]
    assert [line.split()[1] for line in usage.splitlines() if MARK in line] == commands, usage
    assert all(len(line) <= 100 for line in text.splitlines())
    line = next(text for text in text.splitlines() if "PIPECAT_ICE_SERVERS" in text)
    assert (MARK in line) == ("webrtc" not in build.has), line


def refused_options(build):
    """each option that the help marks, a transport, a command and a variable of an absent feature end with exit code 2 and its name"""
    _, text, _ = build.run("--help")
    lacks, marks = lacked(text), 0
    for name, placeholder, help in options(text):
        # What turns a feature off needs none, and transports have a list. The last option is refused where the one before it is not.
        if name in ("--no-dialin", "--transport", "--help", "--version"):
            continue
        host = {"RUNNER_HOST": "127.0.0.1"} if name == "--embedded" else {}
        code, _, error = build.run(*sample(name, placeholder), "--tools", "true", HOME="/tmp", **host)
        # An option may stand for a transport.
        refused = re.search(f"`(?:{name}|-t [a-z]+)` is not in this build: it needs the cargo feature `(.*)`", error)
        assert code == (2 if refused else code or 2) and bool(refused) == help.startswith(MARK), (name, help, code, error)
        if refused:
            family = next((feature for start, feature in FAMILIES.items() if name.startswith(start)), refused[1])
            assert refused[1] in lacks and refused[1] == family, error
            marks += 1
    assert marks >= 15, marks
    asked = [(build.absent((feature,)), ["-t", name, "-x", "a.example"]) for name, feature in TRANSPORTS.items()]
    asked += [(build.absent(("doctor",)), ["doctor"]), (build.absent(("setup",)), ["setup", "--spool", "/tmp"]),
              (build.absent(("update",)), ["update"]),
              (build.absent(("config",)), ["config", "show"]),
              (build.absent(("new",)), ["new", "python", "a-bot"]),
              (build.absent(("call",)), ["call", "http://localhost:7860"]),
              (build.absent(("telephony",)), ["phone", "set-up", "twilio"]),
              (build.absent(("cloud",)), ["cloud", "serve"])]
    asked += [(build.absent(("assistants",)), ["--bot", name]) for name in ("realtime", "cascade")]
    for feature, args in asked:
        if feature:
            code, _, error = build.run(*args, HOME="/tmp")
            assert code == 2 and f"it needs the cargo feature `{feature}`" in error, (args, code, error)
    code, _, error = build.run(RUNNER_TLS="auto")
    assert code == 2 and "(set by RUNNER_TLS)" in error, error
    # A value that turns a feature off does not request it.
    runner = build.serve("--tls", "off", "--metrics", "off", "--no-dialin", "--", "true")
    try:
        assert warnings(runner) == [], runner.log_text()
    finally:
        runner.stop()
    return f"{marks} options"


def told(build):
    """absent features are in no row and no warning, except for credentials and settings of a board's profile"""
    variables = {name: value for name, (feature, value) in NONSENSE.items() if feature not in build.has}
    key = {"RUNNER_API_KEY": "0123456789abcdef", "RUNNER_OPUS_COMPLEXITY": "0"}
    runner = build.serve("--", "true", variables={**variables, **key})
    try:
        rows, warned = banner(runner), warnings(runner)
        assert "hunter" not in runner.log_text()
    finally:
        runner.stop()
    unused, *more = warned
    names = {name for name in CREDENTIALS if name in unused}
    assert "this build lacks" in unused and names == CREDENTIALS.intersection(variables), warned
    if "webrtc" in build.has:
        assert more == [] and "connect a client to http://localhost:" in rows["Talk"] and "WebRTC" in rows, (warned, rows)
        assert rows["Key"] == "`Authorization: Bearer KEY` for /start and /api/offer\n", rows
    else:
        [tuning, sockets] = more
        assert tuning.endswith("lacks `webrtc` and ignores RUNNER_OPUS_COMPLEXITY"), warned
        assert "/ws are open to everyone" in sockets, warned
        assert not {"Talk", "Elsewhere", "WebRTC"}.intersection(rows), rows
        assert "for /start\n" in rows["Key"] and "--ws-auth token" in rows["Key"], rows
    assert "Rooms" not in rows, rows


def refused_requests(build):
    """absent transports and routes name the missing feature; /status lists only the present ones"""
    runner = build.serve("--", "true")
    try:
        status, reply = runner.call("GET", "/status")
        served = [name for name, feature in TRANSPORTS.items() if feature in build.has]
        assert status == 200 and reply["transports"] == served and reply["without_bot"] == [], reply
        for name, feature in TRANSPORTS.items():
            if feature not in build.has:
                status, reply = runner.call("POST", "/start", {"transport": name})
                assert status == 400 and f"it needs the cargo feature `{feature}`" in reply["detail"], reply
        for path, wanted, feature in ROUTES:
            if feature not in build.has:
                status, reply = runner.call("GET", path)
                assert status == wanted and f"`{feature}`" in reply["detail"], (path, status, reply)
        status, reply = runner.call("POST", "/start", {})
        assert status == 200 and reply["sessionId" if "webrtc" in build.has else "wsUrl"], reply
        assert warnings(runner) == [], runner.log_text()
    finally:
        runner.stop()


def called(build):
    """a peer calls a bot in a process and hears its tone; microcontrollers get one address"""
    if "webrtc" not in build.has:
        return "this build has no WebRTC"
    try:
        import websockets.sync.client  # noqa: F401  (the program's own)
        from client import Client
        from echo import hears_itself
    except ImportError as missing:
        return f"SKIPPED: {missing}"

    async def call():
        client = Client(runner)
        await client.connect()
        share = await hears_itself(client, 3)
        await client.close()
        await runner.wait_for_sessions(0, 30)
        return share

    said = []
    program = [sys.executable, str(ROOT / "examples" / "bots" / "echo.py")]
    for embedded in ((), ("--embedded", "--host", "127.0.0.1")):
        runner = build.serve(*embedded, "--", *program)
        try:
            said.append(asyncio.run(call()))
        except BaseException:
            print(runner.log_text(), file=sys.stderr)
            raise
        finally:
            runner.stop()
    return ", ".join(said)


def main(build):
    with Report() as report:
        for check in (marked_help, refused_options, told, refused_requests, called):
            with report.check(check) as result:
                result.said = check(build)
    return report.code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", choices=PROFILES, required=True)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    os.environ.pop("RUST_LOG", None)
    arguments = parser.parse_args()
    sys.exit(main(Build(arguments.binary.resolve(), arguments.profile)))
