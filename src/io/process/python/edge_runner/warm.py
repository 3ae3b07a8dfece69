"""Loads a bot before its calls: a process that forks a child for each, or one that waits for its only call.

In: the socket on stdin, one JSON object a line; a call of a process that forks has the stdout and stderr of the child
beside it. Out: the arguments of a call, in the process that has to run it. The interface is "Warm processes" in
docs/bots.md.
"""

import array
import ast
import atexit
import gc
import json
import math
import os
import pathlib
import select
import signal
import socket
import sys
import threading
import time
import traceback
import warnings

FILES_MAX = 256
"""Files whose changes are noticed."""
FILES_BYTES_MAX = 60_000
"""Bytes of their names in JSON: a line to the runner has at most 64 KiB."""
SPARE_AFTER_S = 0.5
"""Pause before a child is forked ahead of its call, so that it takes no time from the beginning of another one."""
SPARE_PAUSE_MAX_S = 60
"""The longest such pause, after children that died before their call, and after a fork that failed."""
SPARE_TAKES_S = 1
"""Time in which a child that waits takes its call."""


class Control:
    """The connection to the runner. `allowed` is `fork`, or `once` where the runner cannot see children of the process."""

    def __init__(self, allowed):
        self.allowed = allowed
        self.is_waiting = True
        self.is_child = False
        """This process was forked for its call."""
        self._socket = socket.socket(fileno=os.dup(0))
        self._received, self._descriptors = b"", []
        self._rehearse = None
        redirect(os.open(os.devnull, os.O_RDONLY), 0)

    def refuse(self):
        """The file has to be run anew for each call."""
        self._send({"hello": 1, "mode": "none"})

    def fail(self, error, file):
        """The file could not be loaded."""
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        words = traceback.format_exception_only(type(error), error)[-1].strip()[:1000]
        if isinstance(error, SystemExit):
            words = f"{file.name} has ended itself ({words})"
            if len(sys.argv) > 1 and isinstance(error.code, int):
                words += f"; options of edge-runner stand before {file.name}, those of the bot after it"
        elif lines:
            words += f" ({file.name}, line {lines[-1]})"
        if isinstance(error, ModuleNotFoundError):
            words += f", in {sys.executable}"
        self._send({"error": words})

    def wait(self, files, rehearse):
        """Says that the bot is loaded from these files, and returns the arguments of a call in the process that runs it. One that waits for its
        call has run `rehearse` before."""
        self._rehearse = rehearse
        forks = self.allowed == "fork" and can_fork(self._socket.fileno())
        if forks:
            # What is there now stays shared with the children.
            gc.collect()
            gc.freeze()
        self._send({"hello": 1, "mode": "fork" if forks else "once", "files": files, "pings": True})
        call = self._serve() if forks else self._next_call()
        self.is_waiting = False
        self._socket.close()
        os.environ["RUNNER_ARGUMENTS"] = json.dumps(call["arguments"])
        return call["arguments"]

    def _serve(self):
        """Forks a child for each call, ahead of it where there is time. Returns in the children alone."""
        children, poll, spare, clock = {}, select.poll(), None, SpareClock(time.monotonic())
        poll.register(self._socket, select.POLLIN)
        while True:
            ready = poll.poll(None if spare else clock.wait_ms(time.monotonic()))
            for descriptor, _ in ready:
                if descriptor in children:
                    poll.unregister(descriptor)
                    child = children.pop(descriptor)
                    os.close(descriptor)
                    self._report(child)
                    if child is spare:
                        if not spare.is_waiting():
                            # The next one is not to end so too.
                            self._rehearse = None
                        spare = None
                        clock.handle_death(time.monotonic())
            if not ready:
                try:
                    spare = self._fork_spare(children)
                except OSError:
                    clock.handle_refusal(time.monotonic())
                    continue
                if spare.pid == 0:
                    return self._wait_as_spare(spare.connection)
                poll.register(spare.descriptor, select.POLLIN)
                continue
            while self._is_readable():
                call = self._next()
                if "ping" in call:
                    self._send({"pong": call["ping"]})
                    continue
                streams, self._descriptors = self._descriptors[:2], self._descriptors[2:]
                if len(streams) < 2:
                    for descriptor in streams:
                        os.close(descriptor)
                    self._send({"call": call["call"], "error": "the system has no room for its stdout and stderr"})
                    continue
                child = spare if spare and spare.is_waiting() else None
                spare = None if child else spare
                clock.handle_call(time.monotonic())
                if child and child.give(call, streams):
                    clock.handle_use(time.monotonic())
                else:
                    if child:
                        clock.handle_death(time.monotonic())
                    try:
                        child = self._fork(children)
                    except OSError as error:
                        self._send({"call": call["call"], "error": str(error)})
                        child = None
                    if child and child.pid == 0:
                        redirect(streams[0], 1)
                        redirect(streams[1], 2)
                        return call
                    if child:
                        poll.register(child.descriptor, select.POLLIN)
                for descriptor in streams:
                    os.close(descriptor)
                if child:
                    child.call = call["call"]
                    self._send({"call": child.call, "pid": child.pid})

    def _fork_spare(self, children):
        """Forks a child ahead of its call, each with its end of a connection."""
        own, other = socket.socketpair()
        try:
            child = self._fork(children)
        except OSError:
            own.close()
            other.close()
            raise
        child.connection, unused = (own, other) if child.pid else (other, own)
        unused.close()
        return child

    def _fork(self, children):
        """Forks a child, which keeps nothing of its siblings. Its `pid` is 0 in the child itself."""
        child = Child(fork())
        if child.pid == 0:
            for descriptor in [*children, *self._descriptors]:
                os.close(descriptor)
            for sibling in children.values():
                if sibling.connection:
                    sibling.connection.close()
            self._descriptors = []
            reseed()
            self.is_child = True
        else:
            try:
                child.descriptor = os.pidfd_open(child.pid)
            except OSError:
                # Nothing would notice its end.
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                raise
            children[child.descriptor] = child
        return child

    def _wait_as_spare(self, connection):
        """Waits for the call of a child that was forked ahead of it. Ends with the parent."""
        self._socket.close()
        self._socket, self._received = connection, b""
        self._run_rehearsal()
        connection.sendall(b"+")
        call = self._next()
        connection.sendall(b"+")
        redirect(self._descriptors[0], 1)
        redirect(self._descriptors[1], 2)
        return call

    def _next_call(self):
        """Answers pings until its only call begins."""
        # A call that waits for this process comes at once.
        if not self._is_readable(SPARE_AFTER_S):
            self._run_rehearsal()
        while True:
            message = self._next()
            if "ping" not in message:
                return message
            self._send({"pong": message["ping"]})

    def _run_rehearsal(self):
        if self._rehearse:
            self._rehearse()

    def _is_readable(self, limit_s=0):
        return b"\n" in self._received or is_readable(self._socket, limit_s)

    def _report(self, child):
        _, status = os.waitpid(child.pid, 0)
        if child.call is not None:
            ended = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"exit": os.WEXITSTATUS(status)}
            self._send({"call": child.call, **ended})

    def _next(self):
        """Waits for a line of the runner. Ends the process with the runner."""
        while b"\n" not in self._received:
            # As `socket.recv_fds`, which Python has from 3.9 on.
            data, beside, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(2 * array.array("i").itemsize))
            for level, kind, content in beside:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self._descriptors += array.array("i", content)
            if not data:
                os._exit(0)
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        return json.loads(line)

    def _send(self, message):
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(0)


class SpareClock:
    """When the next child is forked ahead of its call. Times are seconds of any clock that is passed in."""

    def __init__(self, now):
        self._pause_s = SPARE_AFTER_S
        self.due_s = now + SPARE_AFTER_S

    def wait_ms(self, now):
        return max(0, math.ceil(1000 * (self.due_s - now)))

    def handle_call(self, now):
        """A call begins."""
        self.due_s = max(self.due_s, now + SPARE_AFTER_S)

    def handle_use(self, now):
        """A child has taken its call."""
        self._pause_s = SPARE_AFTER_S
        self.due_s = now + SPARE_AFTER_S

    def handle_death(self, now):
        """A child has ended before its call, and the next one may do so too."""
        self._pause_s = min(2 * self._pause_s, SPARE_PAUSE_MAX_S)
        self.due_s = now + self._pause_s

    def handle_refusal(self, now):
        """The system has no room for a child."""
        self.due_s = now + SPARE_PAUSE_MAX_S


class Child:
    """A child. One that has no call yet waits for it at the other end of `connection`."""

    def __init__(self, pid):
        self.pid, self.descriptor, self.connection, self.call = pid, None, None, None
        self._is_waiting = False

    def is_waiting(self):
        """Whether it has said that it waits for its call."""
        try:
            if not self._is_waiting and is_readable(self.connection):
                self._is_waiting = bool(self.connection.recv(1))
        except OSError:
            pass
        return self._is_waiting

    def give(self, call, streams):
        """Gives it its call. One that does not take it is killed."""
        text = json.dumps(call).encode() + b"\n"
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        with self.connection as connection:
            connection.settimeout(SPARE_TAKES_S)
            try:
                sent = connection.sendmsg([text], beside)
                if sent < len(text):
                    # Not an empty rest: one that has taken the call by now has closed its end.
                    connection.sendall(text[sent:])
                if connection.recv(1):
                    return True
            except OSError:
                pass
        os.kill(self.pid, signal.SIGKILL)
        return False


def control():
    """Returns the connection of a process that is started before its call."""
    allowed = os.environ.pop("EDGE_RUNNER_WARM", None)
    return Control(allowed) if allowed else None


def is_loadable(file):
    """Whether a file can be loaded before its call: it leaves the call to a function `bot`."""
    source = file.read_text(errors="replace")
    if "RUNNER_ARGUMENTS" in source:
        return False
    return "pipecat.runner.run" in source or has_bare_bot(source)


def has_bare_bot(source):
    """Whether a file is `async def bot(args)` and does not run it by itself."""
    if "__main__" in source or "asyncio.run(" in source:
        return False
    body = ast.parse(source).body
    return any(isinstance(part, ast.AsyncFunctionDef) and part.name == "bot" for part in body)


def is_readable(connection, limit_s=0):
    # `select.select` takes no descriptor above 1023.
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * limit_s))


def can_fork(control):
    """A child of `fork` has no other thread, shares every connection, and locks stay as they are."""
    if not hasattr(os, "pidfd_open") or threading.active_count() > 1:
        return False
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            is_socket = os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
        except OSError:
            continue
        if is_socket and int(descriptor) != control:
            return False
    return True


def fork():
    """Forks into a process group of the child."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Of Python 3.12: threads of native libraries, which wait for work and hold no lock of Python.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    try:
        os.setpgid(pid, pid or os.getpid())
    except OSError:
        # The child was faster.
        pass
    return pid


def exit_code(error):
    """Returns what a process ends with after this exception, and writes on stderr what Python writes."""
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def end_child(code):
    """Ends a child as Python ends, but for what native libraries do at the end: onnxruntime waits there for a thread that
    only the parent has, for ever or until it aborts."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)


def redirect(descriptor, to):
    os.dup2(descriptor, to)
    os.close(descriptor)


def reseed():
    """`random` does it by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random:
        numpy_random.seed()


def own_files(file, env_file):
    """Returns the file, `.env`, and what was loaded from the folder of the file, the nearest first: a virtual environment within
    it may have more modules than are watched."""
    folder = file.parent
    modules = set()
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        # The name of the file itself may be relative to a working directory that it has changed.
        path = pathlib.Path(name).resolve() if isinstance(name, str) and os.path.isabs(name) else None
        if path and folder in path.parents and "site-packages" not in path.parts:
            modules.add(path)
    nearest = sorted(modules, key=lambda path: (len(path.parts), path))
    files = [path for path in (file, env_file, folder / ".env", *nearest) if path]
    files = list(dict.fromkeys(map(str, files)))[:FILES_MAX]
    while len(json.dumps(files)) > FILES_BYTES_MAX:
        files.pop()
    return files
