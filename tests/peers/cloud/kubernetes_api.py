"""Stands in for a Kubernetes cluster that runs the Jobs of `cross/builder-kubernetes`; its clients are real ones.

It answers what `kubectl` asks of an API server for Jobs and their pods, refuses what the Role of docs/cloud/kubernetes-builds.yaml does not
allow, and does what a node does with the container of a Job: it starts a BuildKit daemon without root in namespaces of its own, with the
arguments of the manifest, judges it by the probes, runs commands in it, and kills it with the Job. It knows neither images nor
limits nor networks. The times of the manifest pass `HASTE` times as fast. Needs Debian's rootlesskit and uidmap.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse

import yaml

from rootless import AS_USER, ID, NAMESPACES, end, first, known_user, own_folder

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILDS = ROOT / "docs/cloud/kubernetes-builds.yaml"
NAMESPACE = "edge-runner-builds"
HASTE = 10
PROTOCOL = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255


def allowed():
    """The verbs of each resource of the Role for workers."""
    (role,) = (each for each in yaml.safe_load_all(BUILDS.read_text()) if each["kind"] == "Role")
    assert role["metadata"]["namespace"] == NAMESPACE
    return {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


class Pod:
    """The pod of a Job: a daemon, and what a node says of it."""

    def __init__(self, job, programs):
        self.job, self.programs = job, programs
        self.name = job["metadata"]["name"] + "-" + os.urandom(3).hex()
        self.container, = job["spec"]["template"]["spec"]["containers"]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-pod-"))
        self.phase, self.ready, self.reason = "Running", False, None
        self.began = time.monotonic()
        os.chmod(self.folder, 0o755)
        security = self.container["securityContext"]
        assert (security["runAsUser"], security["runAsGroup"]) == (ID, ID)
        # Those of the image.
        home, run, temporary = (own_folder(self.folder / name) for name in ("home", "run", "tmp"))
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "USER": "user", "XDG_RUNTIME_DIR": str(run),
            "TMPDIR": str(temporary), "BUILDKIT_HOST": f"unix://{run}/buildkit/buildkitd.sock",
        }
        self.log = open(self.folder / "log", "a+")
        self.process = subprocess.Popen(
            [*NAMESPACES, *known_user(self.folder), "rootlesskit", "buildkitd", *self.container["args"]],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/")
        threading.Thread(target=self.watch, daemon=True).start()

    def inside(self, words):
        """The words of a command in the container."""
        return ["nsenter", "--target", first(self.process), "--mount", "--pid", *AS_USER, *words]

    def probed(self, probe):
        try:
            ran = subprocess.run(
                self.inside(probe["exec"]["command"]), env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=probe["timeoutSeconds"])
            return ran.returncode == 0
        except (OSError, IndexError, subprocess.TimeoutExpired):
            return False

    def watch(self):
        """What a node does: judges the container, and ends it."""
        readiness, liveness = self.container["readinessProbe"], self.container["livenessProbe"]
        next_liveness, failures = self.began + liveness["initialDelaySeconds"] / HASTE, 0
        while self.process.poll() is None:
            if not self.ready:
                self.ready = self.probed(readiness)
            if time.monotonic() > next_liveness:
                next_liveness += liveness["periodSeconds"] / HASTE
                failures = 0 if self.probed(liveness) else failures + 1
                if failures >= liveness["failureThreshold"]:
                    self.kill()
            if time.monotonic() > self.began + self.job["spec"]["activeDeadlineSeconds"] / HASTE:
                self.kill()
            time.sleep(0.1)
        self.phase, self.ready, self.reason = "Failed", False, "Error"

    def kill(self):
        end(self.process)

    def remove(self):
        self.kill()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def object(self):
        state = {"running": {}} if self.phase == "Running" else {"terminated": {"reason": self.reason, "exitCode": 137}}
        return {
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "labels": {"job-name": self.job["metadata"]["name"]}},
            "spec": self.job["spec"]["template"]["spec"],
            "status": {
                "phase": self.phase,
                "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(self.ready)}],
                "containerStatuses": [{"name": self.container["name"], "ready": self.ready, "state": state}],
            },
        }


class Cluster:
    """The API server, and all pods. `asked` has each request as a resource and a verb."""

    def __init__(self, programs):
        self.programs, self.role = programs, allowed()
        self.lock, self.pods, self.asked, self.refused = threading.Lock(), {}, set(), []
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-cluster-"))
        handler = type("Handler", (Requests,), {"cluster": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.config = self.folder / "config"
        self.config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}], "users": [{"name": "test", "user": {}}],
        }))

    def may(self, resource, verb):
        self.asked.add((resource, verb))
        if (resource, verb) not in self.role:
            self.refused.append((resource, verb))
        return (resource, verb) in self.role

    def create(self, job):
        with self.lock:
            name = job["metadata"]["name"]
            if name in self.pods:
                return False
            self.pods[name] = Pod(job, self.programs)
            return True

    def delete(self, name):
        with self.lock:
            pod = self.pods.pop(name, None)
        if pod:
            pod.remove()
        return pod

    def jobs(self):
        """The names of all Jobs. One that has ended is deleted after its time."""
        for name, pod in list(self.pods.items()):
            if pod.phase == "Failed":
                self.delete(name)
        return list(self.pods)

    def pod(self, name):
        return next((pod for pod in self.pods.values() if pod.name == name), None)

    def stop(self):
        self.server.shutdown()
        for name in list(self.pods):
            self.delete(name)
        shutil.rmtree(self.folder)


class Requests(http.server.BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    cluster = None

    def log_message(self, *words):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, code, reason, message):
        self.answer(code, {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code})

    def permitted(self, resource, verb):
        if self.cluster.may(resource, verb):
            return True
        self.refuse(403, "Forbidden", f"{resource} is forbidden: the Role does not allow to {verb} it")
        return False

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        if url.path in DISCOVERY:
            return self.answer(200, DISCOVERY[url.path])
        match url.path.removeprefix(f"/api/v1/namespaces/{NAMESPACE}/").split("/"):
            case ["pods"] if self.permitted("pods", "list"):
                (label,) = query["labelSelector"]
                job = label.removeprefix("job-name=")
                pods = [pod.object() for name, pod in list(self.cluster.pods.items()) if name == job]
                self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
            case ["pods", name] if self.permitted("pods", "get"):
                pod = self.cluster.pod(name)
                self.answer(200, pod.object()) if pod else self.refuse(404, "NotFound", f'pods "{name}" not found')
            # Since version 1.35 a server asks for both.
            case ["pods", name, "exec"] if self.permitted("pods/exec", "get") and self.permitted("pods/exec", "create"):
                self.execute(self.cluster.pod(name), query)
            case ["pods", *_]:
                pass
            case _:
                self.refuse(404, "NotFound", "the server could not find the requested resource")

    def do_POST(self):
        # A `kubectl exec` that was refused is tried once more, by the older protocol, without a body.
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        url = urllib.parse.urlsplit(self.path)
        if url.path != f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs":
            return self.refuse(404, "NotFound", f"nothing is made at {url.path}")
        if not self.permitted("jobs", "create"):
            return None
        assert urllib.parse.parse_qs(url.query)["fieldValidation"] == ["Strict"], url.query
        if not self.cluster.create(body):
            return self.refuse(409, "AlreadyExists", f'jobs.batch "{body["metadata"]["name"]}" already exists')
        return self.answer(201, body)

    def do_DELETE(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        name = urllib.parse.urlsplit(self.path).path.removeprefix(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/")
        if not self.permitted("jobs", "delete"):
            return None
        # With another policy its pod would stay.
        assert body.get("propagationPolicy") == "Background", body
        if not self.cluster.delete(name):
            return self.refuse(404, "NotFound", f'jobs.batch "{name}" not found')
        return self.answer(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    def execute(self, pod, query):
        """Runs a command in a pod, with its streams as messages of a WebSocket."""
        try:
            words = pod.inside(query["command"]) if pod and query["container"] == [pod.container["name"]] else None
        except (OSError, IndexError):
            words = None
        if not words:
            return self.refuse(400, "BadRequest", "the container does not run")
        if PROTOCOL not in self.headers.get("Sec-WebSocket-Protocol", ""):
            return self.refuse(400, "BadRequest", f"this server speaks {PROTOCOL} alone: kubectl of 1.30 or later")
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        for name, value in (
            ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Protocol", PROTOCOL),
            ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        command = subprocess.Popen(
            words, env=pod.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        sending = threading.Lock()
        readers = [
            threading.Thread(target=self.forward, args=(pipe, channel, sending), daemon=True)
            for pipe, channel in ((command.stdout, STDOUT), (command.stderr, STDERR))]
        for reader in readers:
            reader.start()
        threading.Thread(target=self.feed, args=(command,), daemon=True).start()
        for reader in readers:
            reader.join()
        code = command.wait()
        status = {"metadata": {}, "status": "Success"} if code == 0 else {
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": f"the command ended with {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
        with contextlib.suppress(OSError):
            self.send(ERROR, json.dumps(status).encode(), sending)
            self.send_frame(0x8, (1000).to_bytes(2, "big"), sending)
        return None

    def forward(self, pipe, channel, sending):
        with contextlib.suppress(OSError):
            while piece := os.read(pipe.fileno(), 32_768):
                self.send(channel, piece, sending)

    def send(self, channel, piece, sending):
        self.send_frame(0x2, bytes([channel]) + piece, sending)

    def send_frame(self, opcode, payload, sending):
        length = len(payload)
        size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
        with sending:
            self.wfile.write(bytes([0x80 | opcode]) + size + payload)
            self.wfile.flush()

    def feed(self, command):
        """Gives the command what the client sends, until one of them ends. Of a client that is gone it learns by the end of its input."""
        try:
            while (message := self.message()) is not None:
                if message[:1] == bytes([CLOSE]):
                    command.stdin.close()
                elif message[:1] == bytes([STDIN]) and len(message) > 1:
                    command.stdin.write(message[1:])
                    command.stdin.flush()
        except (OSError, ValueError):
            pass
        with contextlib.suppress(OSError):
            command.stdin.close()

    def message(self):
        """The next binary message, or None at the end."""
        message = b""
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 0xF == 0x8:
                return None
            length = head[1] & 0x7F
            if length >= 126:
                length = int.from_bytes(self.rfile.read(2 if length == 126 else 8), "big")
            mask = self.rfile.read(4)
            data = self.rfile.read(length)
            # As numbers, since a loop over bytes takes seconds for an upload.
            whole = (mask * (length // 4 + 1))[:length]
            data = (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(length, "big")
            if head[0] & 0xF in (0x9, 0xA):
                continue
            message += data
            if head[0] & 0x80:
                return message


def resources(group, names):
    return {
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group,
        "resources": [
            {"name": name, "singularName": name.rstrip("s"), "namespaced": True, "kind": kind, "verbs": ["create", "delete", "get", "list"]}
            for name, kind in names.items()],
    }


BATCH = {"groupVersion": "batch/v1", "version": "v1"}
JOB = {"group": "batch", "version": "v1", "kind": "Job"}
DISCOVERY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "batch", "versions": [BATCH], "preferredVersion": BATCH}]},
    "/api/v1": resources("v1", {"pods": "Pod"}),
    "/apis/batch/v1": resources("batch/v1", {"jobs": "Job"}),
    # By which kubectl learns that the server refuses unknown fields.
    "/openapi/v3": {"paths": {"apis/batch/v1": {"serverRelativeURL": "/openapi/v3/apis/batch/v1"}}},
    "/openapi/v3/apis/batch/v1": {"openapi": "3.0.0", "info": {"title": "", "version": ""}, "paths": {
        "/apis/batch/v1/namespaces/{namespace}/jobs/{name}": {"patch": {
            "x-kubernetes-group-version-kind": JOB, "parameters": [{"name": "fieldValidation", "in": "query"}]}}}},
}
