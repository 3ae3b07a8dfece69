"""Makes the bots of `pipecat init`, one for every service that it offers: `generate.py FOLDER`. Each is in a folder of its name."""

import pathlib
import sys

from pipecat.cli.main import app
from pipecat.cli.registry import ServiceLoader
from typer.testing import CliRunner


def kinds():
    """Options of `pipecat init` by the name of the bot."""
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
    for name, options in kinds():
        transports = ["--bot-type", "web", "--transport", "smallwebrtc", "--transport", "websocket"]
        given = ["init", str(folder / name), "--no-context-hub", "--name", name, *transports, *options]
        result = CliRunner().invoke(app, given)
        if result.exit_code or not list((folder / name).rglob("bot.py")):
            sys.exit(f"pipecat {' '.join(given)}: {result.output} {result.exception!r}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
