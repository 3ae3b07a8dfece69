"""Makes the bots of `pipecat init`, one for every service that it offers: `generate.py FOLDER`. Each is in a folder of its name."""

import fcntl
import hashlib
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
# What the generator of bots and Pipecat's own runner need beside Pipecat.
LIBRARIES = ROOT / "target" / "pipecat-cli"


def kinds():
    """Options of `pipecat init` by the name of the bot."""
    from pipecat.cli.registry import ServiceLoader

    def of(kind):
        return [service.value for service in ServiceLoader.get_all_services_by_type(kind)]

    stt, llm, tts, realtime = map(of, ("stt", "llm", "tts", "realtime"))
    for number in range(max(map(len, (stt, llm, tts)))):
        parts = [of_kind[number % len(of_kind)] for of_kind in (stt, llm, tts)]
        options = ["--mode", "cascade", "--stt", parts[0], "--llm", parts[1], "--tts", parts[2]]
        # What a bot has beside its services.
        options += [[], ["--recording"], ["--transcription"], ["--eval"]][number % 4]
        yield f"cascade-{number:02}-" + "-".join(parts), options
    for name in realtime:
        yield f"realtime-{name}", ["--mode", "realtime", "--realtime", name]


def main(folder):
    from pipecat.cli.main import app
    from typer.testing import CliRunner

    for name, options in kinds():
        transports = ["--bot-type", "web", "--transport", "smallwebrtc", "--transport", "websocket"]
        given = ["init", str(folder / name), "--no-context-hub", "--name", name, *transports, *options]
        result = CliRunner().invoke(app, given)
        if result.exit_code or not list((folder / name).rglob("bot.py")):
            sys.exit(f"pipecat {' '.join(given)}: {result.output} {result.exception!r}")


def made_once():
    """The folder of the bots. They are made once for this file and a version of Pipecat."""
    version = importlib.metadata.version("pipecat-ai")
    name = f"{version}-{hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:16]}"
    folder = ROOT / "target" / "pipecat-bots"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Another process of the stage may be at it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / name).exists():
            for old in folder.glob("*-*"):
                shutil.rmtree(old)
            path = os.pathsep.join([str(LIBRARIES), *filter(None, [os.environ.get("PYTHONPATH")])])
            new = folder / f"{name}.new"
            subprocess.run([sys.executable, __file__, new], check=True, env={**os.environ, "PYTHONPATH": path})
            new.rename(folder / name)
    return folder / name


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
