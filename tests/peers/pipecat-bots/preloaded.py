"""Programs in an interpreter that has imported what most of them import: a child is forked for each, in place of a start.

    with Interpreter(folder, variables) as program:      # a file that runs as `python` does, for FILE and for -c CODE
        subprocess.run([program, "bot.py"])

A bot is still executed as a file of its own, and imports its services and all that edge-runner replaces. The command is a
process that hands its arguments, environment, folder, process group and standard streams over, and ends as the child does.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import pathlib
import runpy
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import types

MODULES = (
    # Of Pipecat what does not depend on the runner.
    "pipecat.audio.turn.smart_turn.local_smart_turn_v3", "pipecat.audio.vad.silero", "pipecat.pipeline.worker",
    "pipecat.processors.aggregators.llm_response_universal", "pipecat.processors.audio.audio_buffer_processor",
    "pipecat.serializers.protobuf", "pipecat.transports.base_input", "pipecat.transports.base_output", "pipecat.workers.runner",
    # Of the scripted services.
    "services",
    # Of services and of Pipecat's own runner.
    "aiohttp", "aiortc", "anthropic", "fastapi", "openai", "openai.resources", "openai.types.realtime", "openai.types.responses",
    "uvicorn", "websockets.asyncio.client", "yaml",
)
LENGTH = struct.Struct("!I")


class Interpreter:
    def __init__(self, folder, variables):
        self.folder, self.variables = pathlib.Path(folder), variables

    def __enter__(self):
        program, address = self.folder / "python", self.folder / "programs"
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", __file__, "run", str(address)])} "$@"\n')
        program.chmod(0o755)
        self.process = subprocess.Popen([sys.executable, __file__, "serve", str(address)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, env={**os.environ, **self.variables})
        if not self.process.stdout.readline():
            raise RuntimeError("an interpreter ended while it imported modules")
        return str(program)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def run(address, *arguments):
    """Has a program run by the server, and returns its exit code."""
    # The program decides what the signal to its group does.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    given = json.dumps({"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(), "group": os.getpgrp()}).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        streams = array.array("i", range(3))
        server.sendmsg([LENGTH.pack(len(given))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        server.sendall(given)
        # Their readers see the end of the program.
        for stream in streams:
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        return server.recv(1)[0]


def serve(address):
    """Forks for each program. Returns in the children alone, with what to run."""
    for name in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    print("ready", flush=True)
    # By the descriptor of the process, and by that of the connection.
    children, poll = {}, select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                caller, _ = listener.accept()
                streams, program = receive(caller)
                pid = os.fork()
                if pid == 0:
                    for each in [listener, caller, *{of for _, _, of in children.values()}]:
                        each.close()
                    for each in children:
                        with contextlib.suppress(OSError):
                            os.close(each)
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                        os.close(stream)
                    return program
                for stream in streams:
                    os.close(stream)
                process = os.pidfd_open(pid)
                children[process] = children[caller.fileno()] = (pid, process, caller)
                poll.register(process, select.POLLIN)
                poll.register(caller, select.POLLIN)
            elif descriptor in children:
                pid, process, caller = children.pop(descriptor)
                if descriptor != process:
                    # The caller was killed.
                    os.kill(pid, signal.SIGKILL)
                children = {key: child for key, child in children.items() if child[0] != pid}
                poll.unregister(process)
                poll.unregister(caller)
                _, status = os.waitpid(pid, 0)
                os.close(process)
                code = os.waitstatus_to_exitcode(status)
                with caller, contextlib.suppress(OSError):
                    caller.send(bytes([code if code >= 0 else 128 - code]))


def receive(caller):
    """Returns the streams of a program, and the rest of it."""
    head, streams, _, _ = socket.recv_fds(caller, LENGTH.size, 3, socket.MSG_WAITALL)
    with caller.makefile("rb") as stream:
        return streams, json.loads(stream.read(LENGTH.unpack(head)[0]))


def become(program):
    """Runs it as an interpreter does that was started for it."""
    os.setpgid(0, program["group"])
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    first, *rest = program["arguments"]
    if first != "-c":
        sys.argv, sys.path[0] = program["arguments"], str(pathlib.Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")
        return
    code, *rest = rest
    sys.argv, sys.path[0] = ["-c", *rest], ""
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), vars(module))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        sys.exit(run(*sys.argv[2:]))
    program, code = serve(sys.argv[2]), 0
    try:
        become(program)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    threading._shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Native libraries would wait for threads that the server alone has.
    os._exit(code)
