"""Bots that others wrote, unchanged, on edge-runner and on Pipecat's own runner: those that `pipecat init` makes for each of its
services, and Pipecat's examples where a folder has them. The services are scripted. Prints a line per check; exits with 1 when
one failed.

    run.py [--binary PATH] [--examples FOLDER] [CHECK...]
"""

import asyncio
import dataclasses
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
from conversation import LIBRARIES, environment, on_edge_runner, on_pipecats_runner, running
from runner import Runner

SENTENCE = "Hello there. What is the capital of France?"
AT_ONCE = 3
# Pipecat's own runner has every so many of the bots too.
COMPARED = 4
EVAL_S = 120


def sentence():
    return sound.sentence(SENTENCE, RATE).astype("<i2").tobytes()


async def side_by_side(jobs):
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(job):
        async with turns:
            return await job

    return await asyncio.gather(*map(in_turn, jobs))


async def init_bots(binary, _):
    """every bot of `pipecat init` loads, connects, greets, answers and ends; some of them on Pipecat's runner as well"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join([str(LIBRARIES), *filter(None, [os.environ.get("PYTHONPATH")])])
        subprocess.run([sys.executable, HERE / "generate.py", folder], check=True, env={**os.environ, "PYTHONPATH": path})
        made = sorted(pathlib.Path(folder).rglob("bot.py"))
        bots = [bot for bot in made if is_python(bot)]
        said = sentence()
        ours = await side_by_side([on_edge_runner(binary, bot, said) for bot in bots])
        theirs = await side_by_side([on_pipecats_runner(bot, said) for bot in bots[::COMPARED]])
        name = {bot: bot.relative_to(folder).parts[0] for bot in bots}
    bad = [f"{name[bot]}: {outcome.steps()}: {outcome.why()}" for bot, outcome in zip(bots, ours) if not outcome.is_whole]
    assert not bad, "\n".join(bad)
    other = [name[bot] for bot, one, two in zip(bots[::COMPARED], ours[::COMPARED], theirs) if one != two]
    assert not other, f"Pipecat's runner has another outcome: {other}"
    assert len(bots) >= 40, f"{len(bots)} bots"
    return f"{len(bots)} of {len(bots)}, {len(theirs)} compared; {len(made) - len(bots)} more are no Python"


def is_python(file):
    """The generator of Pipecat 1.14 makes a file for one service that no Python compiles."""
    try:
        compile(file.read_bytes(), file, "exec")
    except SyntaxError:
        return False
    return True


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


async def evaluation(binary, _):
    """`pipecat eval` in text mode passes what it passes on Pipecat's runner, and the file of --runner-body reaches the bot"""
    bot = HERE / "evaluated_bot.py"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        body = folder / "body.yaml"
        body.write_text("greeting: Say hello.\n")
        given = ["--runner-body", str(body)]
        runner = Runner(binary, "--python", sys.executable, str(bot), *given, variables=environment())
        try:
            port = int(runner.url.rpartition(":")[2])
            # The runner stays for the next scenario.
            ours = [await evaluate(port, folder) for _ in range(2)]
            await runner.wait_for_sessions(0, 20)
            log = runner.log_text()
        finally:
            runner.stop()
        port, = free_ports(1)
        async with running(bot, port, *given):
            theirs = await evaluate(port, folder)
    assert theirs["passed"], theirs
    for result in ours:
        assert passed(result) == passed(theirs), f"{result}\n{log}"
    whole = "the bot returns, a session of eval, body {'greeting': 'Say hello.'}"
    assert log.count(whole) == 2, log
    return "2 of 2"


async def suite(binary, _):
    """`pipecat eval suite` starts this runner by its template, with the body of the run, and passes"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        manifest = {
            "bots_dir": str(HERE), "scenarios_dir": str(HERE), "runs_dir": str(folder), "record": False,
            "spawn": f"{binary} --python {{python}} --rtc-port 0 --port {{port}} {{bot}}",
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


async def examples(binary, folder):
    """Pipecat's published examples: each comes as far as it can without video"""
    if folder is None:
        return ("SKIPPED, AND NOT PROVED HERE: Pipecat's examples, which no package has: git clone https://github.com/pipecat-ai/pipecat, "
                "and give --examples pipecat/examples")
    files = [file for file in sorted(folder.rglob("*.py")) if "pipecat.runner.run import main" in file.read_text()]
    said = sentence()
    outcomes = dict(zip(files, await side_by_side([on_edge_runner(binary, file, said) for file in files])))
    for file, outcome in outcomes.items():
        print(f"{file.relative_to(folder)}: {outcome.steps()}" + ("" if outcome.is_whole else f": {outcome.why()}"))
    counted = {field.name: sum(getattr(outcome, field.name) for outcome in outcomes.values())
               for field in dataclasses.fields(next(iter(outcomes.values()))) if field.compare}
    return f"{len(files)} files: " + ", ".join(f"{number} {name}" for name, number in counted.items())


CHECKS = {check.__name__: check for check in [init_bots, evaluation, suite, examples]}


async def main(binary, folder, names):
    with Report() as report:
        checks = chosen(CHECKS, names)
        for name in left(checks):
            with report.check(checks[name], name) as result:
                result.said = await checks[name](binary, folder)
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--examples", type=pathlib.Path)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.binary.resolve(), given.examples and given.examples.resolve(), given.checks)))
