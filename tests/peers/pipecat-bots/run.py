"""Bots that others wrote, unchanged, on edge-runner and on Pipecat's own runner: those that `pipecat init` makes for each of its
services, of which each is a check, and Pipecat's examples where a folder has them. The services are scripted. Prints a line per
check; exits with 1 when one failed.

    run.py [--binary PATH] [--examples FOLDER] [CHECK...]
"""

import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "pipecat")]

import sound
from caller import RATE
from checks import Report, chosen, free_ports, left, options
from conversation import environment, on_edge_runner, on_pipecats_runner, running
from generate import made_once
from preloaded import Interpreter
from runner import Runner

SENTENCE = "What is the capital of France?"
# Checks side by side, which wait for most of their time; one where nothing may be beside it.
AT_ONCE = 1 if os.environ.get("CHECKS_ONLY") else 2
# Pipecat's own runner has every so many of the bots too.
COMPARED = 4
EVAL_S = 120


class Run:
    """What the checks have in common."""

    def __init__(self, binary, examples, folder):
        self.binary, self.examples = binary, examples
        made = {bot.relative_to(folder).parts[0]: bot for bot in sorted(folder.rglob("bot.py"))}
        self.bots = {name: bot for name, bot in made.items() if is_python(bot)}
        self.no_python = made.keys() - self.bots.keys()
        self.kept = contextlib.ExitStack()

    @functools.cache
    def python(self):
        """An interpreter that has imported most of what the bots import."""
        return self.kept.enter_context(Interpreter(self.kept.enter_context(tempfile.TemporaryDirectory()), environment()))


@functools.cache
def sentence():
    return sound.sentence(SENTENCE, RATE).astype("<i2").tobytes()


async def init_bots(run, _):
    """`pipecat init` makes a bot for each of its services"""
    assert len(run.bots) >= 40, f"{len(run.bots)} bots"
    return f"{len(run.bots)}; {len(run.no_python)} more are no Python"


def is_python(file):
    """The generator of Pipecat 1.14 makes a file for one service that no Python compiles."""
    try:
        compile(file.read_bytes(), file, "exec")
    except SyntaxError:
        return False
    return True


def of_init(name, is_compared):
    """The check of a bot."""
    async def check(run, result):
        bot, python = run.bots[name], run.python()
        ours = await on_edge_runner(run.binary, python, bot, sentence())
        result.show(lambda: ours.log)
        assert ours.is_whole, f"{ours.steps()}: {ours.why()}"
        stages = stages_of(ours.record)
        wanted = ["STT", "LLM", "TTS"] if name.startswith("cascade-") else ["LLM"]
        assert [kind for kind in ("STT", "LLM", "TTS") if any(kind in stage for stage in stages)] == wanted, ours.record
        if is_compared:
            theirs = await on_pipecats_runner(python, bot, sentence())
            assert ours == theirs, f"on Pipecat's runner: {theirs.steps()}: {theirs.why()}"
            return "as on Pipecat's runner"
        return None

    check.__doc__ = "a bot of `pipecat init` loads, connects, greets, answers and ends"
    return check


def stages_of(record):
    """The parts of the answer that the record of a call has, each with its time, by the names of their services."""
    answers = [text for text in record["turns"] if text["by"] == "bot" and text.get("latency_ms")]
    assert record["answers"] == 1 and len(answers) == 1, record
    return [stage["name"] for stage in answers[0]["stages"]]


async def evaluate(port, folder):
    """The result of the scenario with the bot at this port."""
    config, result = folder / "config.json", folder / "result.json"
    config.write_text(json.dumps({
        "scenario_path": str(HERE / "scenario.yaml"), "scenario_name": "text/text", "bot_url": f"ws://127.0.0.1:{port}/ws", "params": {},
        "logs_dir": str(folder), "prefix": "eval", "debug": False, "result_path": str(result)}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pipecat.evals._session_subprocess", config, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, errors = await asyncio.wait_for(process.communicate(), EVAL_S)
    assert process.returncode == 0, errors.decode()[-2000:]
    return json.loads(result.read_text())


def passed(result):
    """Of a result what does not depend on the time."""
    return result["passed"], result["failures"], [turn["status"] for turn in result["turns"]]


async def evaluation(run, _):
    """`pipecat eval` in text mode passes what it passes on Pipecat's runner, and the file of --runner-body reaches the bot"""
    bot = HERE / "evaluated_bot.py"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        body = folder / "body.yaml"
        body.write_text("greeting: Say hello.\n")
        given = ["--runner-body", str(body)]
        runner = Runner(run.binary, "--python", sys.executable, str(bot), *given, variables=environment())
        try:
            port = int(runner.url.rpartition(":")[2])
            # The runner stays for the next scenario.
            ours = [await evaluate(port, folder) for _ in range(2)]
            await runner.wait_for_sessions(0, 20)
            log = runner.log_text()
        finally:
            runner.stop()
        port, = free_ports(1)
        async with running(sys.executable, bot, port, *given):
            theirs = await evaluate(port, folder)
    assert theirs["passed"], theirs
    for result in ours:
        assert passed(result) == passed(theirs), f"{result}\n{log}"
    whole = "the bot returns, a session of eval, body {'greeting': 'Say hello.'}"
    assert log.count(whole) == 2, log
    return "2 of 2"


async def suite(run, _):
    """`pipecat eval suite` starts this runner by its template, with the body of the run, and passes"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        manifest = {
            "bots_dir": str(HERE), "scenarios_dir": str(HERE), "runs_dir": str(folder), "record": False,
            "spawn": f"{run.binary} --python {{python}} --rtc-port 0 --port {{port}} {{bot}}",
            "suite": [{"bot": "evaluated_bot.py", "scenarios": ["scenario"], "runner_body": {"data": {"greeting": "Say hello."}}}],
        }
        # YAML has JSON in it.
        (folder / "manifest.yaml").write_text(json.dumps(manifest))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pipecat.cli.main", "eval", "suite", folder / "manifest.yaml", stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env={**os.environ, **environment()})
        said, _ = await asyncio.wait_for(process.communicate(), EVAL_S)
        logs = "".join(log.read_text() for log in folder.rglob("*.log"))
    assert process.returncode == 0 and "1/1 passed" in said.decode(), said.decode() + logs
    assert "body {'greeting': 'Say hello.'}" in logs, logs
    return "1 of 1"


async def called(run, _):
    """`edge-runner call -t eval` plays a scenario on Pipecat's runner, and on this one"""
    bot = HERE / "evaluated_bot.py"

    async def play(url):
        process = await asyncio.create_subprocess_exec(
            run.binary, "call", url, "-t", "eval", "--scenario", HERE / "scenario.toml", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = await asyncio.wait_for(process.communicate(), EVAL_S)
        assert process.returncode == 0 and said.decode().count("passed: ") == 4, said.decode()

    port, = free_ports(1)
    async with running(sys.executable, bot, port):
        await play(f"http://127.0.0.1:{port}")
    runner = Runner(run.binary, "--python", sys.executable, str(bot), variables=environment())
    try:
        await play(runner.url)
    finally:
        runner.stop()
    return "2 of 2"


async def examples(run, _):
    """Pipecat's published examples: each comes as far as it can without video"""
    folder = run.examples
    if folder is None:
        return ("SKIPPED, AND NOT PROVED HERE: Pipecat's examples, which no package has: git clone https://github.com/pipecat-ai/pipecat, "
                "and give --examples pipecat/examples")
    files = [file for file in sorted(folder.rglob("*.py")) if "pipecat.runner.run import main" in file.read_text()]
    outcomes, rest = {}, iter(files)

    async def work():
        for file in rest:
            outcomes[file] = await on_edge_runner(run.binary, sys.executable, file, sentence())

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    for file, outcome in sorted(outcomes.items()):
        print(f"{file.relative_to(folder)}: {outcome.steps()}" + ("" if outcome.is_whole else f": {outcome.why()}"))
    counted = {field.name: sum(getattr(outcome, field.name) for outcome in outcomes.values())
               for field in dataclasses.fields(next(iter(outcomes.values()))) if field.compare}
    return f"{len(files)} files: " + ", ".join(f"{number} {name}" for name, number in counted.items())


def checks_of(run):
    bots = {name: of_init(name, nth % COMPARED == 0) for nth, name in enumerate(run.bots)}
    return {check.__name__: check for check in [evaluation, suite, called, init_bots]} | bots | {examples.__name__: examples}


async def main(run, checks):
    with Report() as report, run.kept:
        names = left(checks)

        async def work():
            for name in names:
                with report.check(checks[name], name) as result:
                    result.said = await checks[name](run, result)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, [evaluation, suite, called, init_bots, examples])
    parser.add_argument("--examples", type=pathlib.Path)
    given = parser.parse_args()
    run = Run(given.binary.resolve(), given.examples and given.examples.resolve(), made_once())
    sys.exit(asyncio.run(main(run, chosen(checks_of(run), given.checks))))
