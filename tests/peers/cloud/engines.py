"""Builds images with real container engines through the service and the builder commands of `cross/`. Prints a line per check.

    engines.py [--binary PATH] [--buildkit FOLDER] [--engines NAMES] [CHECK...]      exits with 1 when a check failed

Each check runs with each engine that is there: buildah with both of its storage drivers, podman, Docker, BuildKit, whose programs
are in FOLDER, and BuildKit in the Jobs of a Kubernetes cluster, for which `kubernetes_api.py` stands in. Those whose names end in
`rootless` run as an ordinary user, by `rootless.py`. Needs root, busybox as one static program, and `docker-registry` for the checks
that push; BuildKit also runc, and the Jobs `kubectl`. The engines' storage and the registry are in folders of the test.
"""

import base64
import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from checks import Report, chosen, free_ports, options, wait_until
from rootless import ID, NAMESPACES, end, known_user, own_folder
from run import KEY, Cloud, clean, write

ROOT = pathlib.Path(__file__).resolve().parents[3]
OTHER = "sk_peer_other_0123456789"
PATIENCE_S = 120
BUSYBOX = pathlib.Path(shutil.which("busybox") or "/bin/busybox")
SHELL = 'SHELL ["/bin/busybox", "sh", "-c"]\n'
# Runs a daemon in namespaces for processes and mounts, as in a container: what it runs and mounts ends with it.
CONTAINED = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
# On nothing but a program.
FROM_SCRATCH = "FROM scratch\nCOPY busybox /bin/busybox\n" + SHELL


class Engine:
    """What the engines have in common. Its storage is in `folder`."""

    command = "builder-container"
    # Words before the command of the service.
    before = ()

    def __init__(self, buildkit):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-engine-"))

    def own(self, path):
        """A file or folder as the service can use it."""
        return path

    def home(self, registry):
        """A home with a login."""
        return registry.home

    def variables(self):
        return {}

    def revive(self):
        """Starts what `kill` has ended, if it does not start by itself."""

    def stop(self):
        for mount in reversed([line.split()[1] for line in mounts() if str(self.folder) in line]):
            subprocess.run(["umount", "--lazy", mount], check=True)
        shutil.rmtree(self.folder)

    def log_text(self):
        return ""


class Buildah(Engine):
    engine, driver = "buildah", "overlay"

    def __init__(self, buildkit):
        super().__init__(buildkit)
        (self.folder / "storage.conf").write_text(
            f'[storage]\ndriver = "{self.driver}"\ngraphroot = "{self.folder}/storage"\nrunroot = "{self.folder}/run"\n')

    def variables(self):
        # Registries of loopback speak plain HTTP here.
        (self.folder / "registries.conf").write_text(
            "".join(f'[[registry]]\nlocation = "{registry.host}"\ninsecure = true\n' for registry in Registry.all))
        return {
            "IMAGE_ENGINE": self.engine, "BUILDAH_ISOLATION": "chroot", "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf"),
        }

    def left(self):
        """Containers and mounts. The engine mounts its own folder for good."""
        containers = list((self.folder / "storage").glob("*-containers/*/userdata/buildah.json"))
        return [*map(str, containers), *(line for line in mounts() if str(self.folder) in line and "/merged " in line)]

    def kill(self, service):
        """Kills the engine itself."""
        # Without root it runs itself again, by another name.
        name = re.compile(f"{self.engine}[-a-z]*\0build\0")
        pids = [pid for pid, command in processes() if name.search(command) and str(service.data) in command]
        assert pids, "no engine runs"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


class BuildahOnVfs(Buildah):
    driver = "vfs"


class Podman(Buildah):
    engine = "podman"


class WithoutRoot:
    """The service and its engine as an ordinary user, with copies of their programs that this user may read."""

    def __init__(self, buildkit):
        super().__init__(buildkit)
        os.chmod(self.folder, 0o755)
        self.before = ["unshare", "--mount", *known_user(self.folder)]
        for name in "storage", "run", "runtime", "home":
            own_folder(self.folder / name)

    def variables(self):
        return {**super().variables(), "XDG_RUNTIME_DIR": str(self.folder / "runtime")}

    def own(self, path):
        copy = self.folder / path.name
        if path.is_file() and not copy.exists():
            shutil.copy(path, copy)
        elif path.is_dir():
            os.chmod(path, 0o755)
            os.chown(path, ID, ID)
            copy = path
        return copy

    def home(self, registry):
        # Where these engines also write.
        home = self.folder / "home"
        shutil.copytree(registry.home, home, dirs_exist_ok=True)
        return home


class BuildahWithoutRoot(WithoutRoot, Buildah):
    pass


class BuildahWithoutRootOnVfs(WithoutRoot, BuildahOnVfs):
    pass


class PodmanWithoutRoot(WithoutRoot, Podman):
    pass


class Docker(Engine):
    """Docker's daemon, without a network for its containers."""

    def __init__(self, buildkit):
        super().__init__(buildkit)
        self.host = f"unix://{self.folder}/socket"
        self.start()

    def start(self):
        for file in "pid", "run/containerd/containerd.pid":
            # Left where the daemon was killed.
            (self.folder / file).unlink(missing_ok=True)
        self.log = open(self.folder / "log", "a+")
        self.process = subprocess.Popen(
            [*CONTAINED, "dockerd", "--host", self.host, "--data-root", self.folder / "root", "--exec-root", self.folder / "run", "--pidfile",
             self.folder / "pid", "--bridge=none", "--iptables=false", "--ip6tables=false"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/")
        wait_until(lambda: self.ask("info").returncode == 0, "Docker answers", 60, self.log_text)

    def revive(self):
        """A daemon that was killed keeps the containers of its builds, which only its administrator can tell from others."""
        self.start()
        assert self.ask("container", "prune", "--force").returncode == 0

    def ask(self, *words):
        assert self.process.poll() is None, self.log_text()
        return subprocess.run(["docker", "--host", self.host, *words], capture_output=True, text=True)

    def variables(self):
        return {"IMAGE_ENGINE": "docker", "DOCKER_HOST": self.host}

    def left(self):
        return [*self.ask("ps", "--all", "--quiet").stdout.split(), *(line for line in mounts(child(self.process)) if f"{self.folder}/root/" in line)]

    def kill(self, service):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.kill()
        self.process.wait()
        super().stop()

    def log_text(self):
        return (self.folder / "log").read_text()


class BuildKit(Engine):
    command = "builder-buildkit"

    def __init__(self, buildkit):
        super().__init__(buildkit)
        self.programs, self.address = buildkit, f"unix://{self.folder}/socket"
        self.port, self.tls = free_ports(1)[0], self.folder / "tls"
        certificates(self.tls)
        self.start()

    def start(self):
        self.log = open(self.folder / "log", "a+")
        self.process = subprocess.Popen(
            [*CONTAINED, self.programs / "buildkitd", "--root", self.folder / "root", "--addr", self.address, "--addr", f"tcp://127.0.0.1:{self.port}", "--config", os.devnull,
             "--tlscacert", self.tls / "ca.pem", "--tlscert", self.tls / "cert.pem", "--tlskey", self.tls / "key.pem",
             "--containerd-worker=false", "--oci-worker-binary=runc"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/")
        wait_until(self.answers, "BuildKit answers", 60, self.log_text)

    def answers(self):
        assert self.process.poll() is None, self.log_text()
        asked = subprocess.run([self.programs / "buildctl", "--addr", self.address, "debug", "workers"], capture_output=True)
        return asked.returncode == 0

    def variables(self):
        return {"PATH": f"{self.programs}:{os.environ['PATH']}", "BUILDKIT_HOST": self.address}

    def left(self):
        return [line for line in mounts(child(self.process)) if str(self.folder) in line]

    def kill(self, service):
        self.process.kill()
        self.process.wait()

    def revive(self):
        self.start()

    def stop(self):
        self.process.kill()
        self.process.wait()
        super().stop()

    def log_text(self):
        return (self.folder / "log").read_text()


class BuildKitWithoutRoot(BuildKit):
    """The daemon as an ordinary user, by rootlesskit."""

    def start(self):
        os.chmod(self.folder, 0o755)
        for name in "home", "run":
            if not (self.folder / name).exists():
                own_folder(self.folder / name)
        for file in self.tls, *self.tls.iterdir():
            os.chown(file, ID, ID)
        home, run = self.folder / "home", self.folder / "run"
        self.address = f"unix://{run}/socket"
        self.log = open(self.folder / "log", "a+")
        self.process = subprocess.Popen(
            [*NAMESPACES, *known_user(self.folder), "rootlesskit", "buildkitd", "--root", home / "root", "--addr", self.address, "--addr",
             f"tcp://127.0.0.1:{self.port}", "--config", os.devnull, "--tlscacert", self.tls / "ca.pem", "--tlscert", self.tls / "cert.pem",
             "--tlskey", self.tls / "key.pem", "--containerd-worker=false", "--oci-worker-binary=runc"],
            env={"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(home), "USER": "user", "XDG_RUNTIME_DIR": str(run)},
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/")
        wait_until(self.answers, "BuildKit answers", 60, self.log_text)

    def left(self):
        inside = [pid for pid, command in processes() if command.startswith("buildkitd\0") and str(self.folder) in command]
        return [line for pid in inside for line in mounts(pid) if str(self.folder) in line]

    def kill(self, service):
        end(self.process)

    def stop(self):
        end(self.process)
        super().stop()


class KubernetesJobs(Engine):
    """A BuildKit daemon for each build, as the Job of a cluster that is not there: its API server and node are stand-ins, its clients real."""

    command = "builder-kubernetes"

    def __init__(self, buildkit):
        super().__init__(buildkit)
        # It reads manifests, for which the standard library has nothing.
        from kubernetes_api import Cluster

        self.cluster = Cluster(buildkit)

    def variables(self):
        programs = f"{self.cluster.programs}:{os.environ['PATH']}"
        return {"PATH": programs, "KUBECONFIG": str(self.cluster.config), "KUBERNETES_START": "60"}

    def left(self):
        folders = [pod.folder for pod in self.cluster.pods.values()]
        return [*self.cluster.jobs(), *(line for line in mounts() for folder in folders if str(folder) in line)]

    def kill(self, service):
        (pod,) = self.cluster.pods.values()
        pod.kill()

    def stop(self):
        refused, unused = self.cluster.refused, self.cluster.role - self.cluster.asked
        self.cluster.stop()
        super().stop()
        assert not refused, f"the Role lacks {refused}"
        assert not unused, f"the Role allows more than was asked for: {unused}"

    def log_text(self):
        return "\n".join((pod.folder / "log").read_text() for pod in self.cluster.pods.values())


class Registry:
    """Debian's `docker-registry`, for those with a password. `home` has a login."""

    all = []
    login = "builds:password-of-the-tests"
    # Of that password, by bcrypt.
    hashed = "builds:$2b$05$bpO76zl.sm9ZIinj3wcnfuD9J.CiJ9hUPkoVeYLog4f6ZjQEU94Xu"

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-registry-"))
        # For builders without root.
        os.chmod(self.folder, 0o755)
        self.host = f"127.0.0.1:{free_ports(1)[0]}"
        self.authorization = base64.b64encode(self.login.encode()).decode()
        self.home = self.folder / "home"
        write(self.home, ".docker/config.json", json.dumps({"auths": {self.host: {"auth": self.authorization}}}).encode())
        (self.folder / "htpasswd").write_text(self.hashed + "\n")
        (self.folder / "config.yml").write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {self.folder}/images}}}}\nhttp: {{addr: '{self.host}'}}\n"
            f"auth: {{htpasswd: {{realm: tests, path: {self.folder}/htpasswd}}}}\n")
        self.process = subprocess.Popen(
            ["docker-registry", "serve", self.folder / "config.yml"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd="/")
        wait_until(lambda: connects(self.host), "the registry answers")
        Registry.all.append(self)

    def get(self, path):
        accepted = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
        request = urllib.request.Request(f"http://{self.host}/v2/{path}", headers={"Accept": accepted, "Authorization": f"Basic {self.authorization}"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.read(), reply.headers

    def files(self, image):
        """The files of the layers of an image that was pushed, by name."""
        name = image.removeprefix(self.host + "/")
        name, reference = name.rsplit("@" if "@" in name else ":", 1)
        manifest, headers = self.get(f"{name}/manifests/{reference}")
        if "sha256:" in reference:
            assert hashlib.sha256(manifest).hexdigest() == reference.removeprefix("sha256:")
        layers = [self.get(f"{name}/blobs/{layer['digest']}")[0] for layer in json.loads(manifest)["layers"]]
        return files(layers)

    def stop(self):
        Registry.all.remove(self)
        self.process.terminate()
        self.process.wait(30)
        shutil.rmtree(self.folder)


def mounts(process="self"):
    return pathlib.Path(f"/proc/{process}/mounts").read_text().splitlines()


def child(process):
    return pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]


def certificates(folder):
    """An authority and a certificate of it, for client and server on this machine."""
    folder.mkdir()

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")
    openssl("req", *new_key, "-keyout", "key.pem", "-out", "request", "-subj", "/CN=machine")
    openssl("x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "cert.pem", "-days", "2",
            "-extfile", "names")


class Link:
    """Forwards connections to a port until it hangs, when it carries nothing and closes nothing."""

    def __init__(self, port):
        self.port, self.hangs, self.held = port, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            ends = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.port))
            self.held.extend(ends)
            for one, other in ends, reversed(ends):
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    def carry(self, one, other):
        try:
            while piece := one.recv(65_536):
                while self.hangs:
                    time.sleep(0.1)
                other.sendall(piece)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        """Closes all connections."""
        for end in self.held:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.hangs, self.held = False, []


def processes():
    """Process ids with their command lines."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            yield int(folder.name), (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            pass


def connects(host):
    name, port = host.rsplit(":", 1)
    try:
        socket.create_connection((name, int(port)), 1).close()
        return True
    except OSError:
        return False


def files(layers):
    found = {}
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            found |= {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    return found


def files_of_archive(archive):
    """The files of the image in an archive for `docker load`, by name."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        manifest = json.load(tar.extractfile("manifest.json"))
        return files(tar.extractfile(layer).read() for layer in manifest[0]["Layers"])


class Service:
    """The service with the builder command of an engine, on a data directory that stays over its restarts."""

    def __init__(self, binary, engine, *options, **variables):
        self.engine, self.binary, self.options = engine, binary, options
        self.variables = {**engine.variables(), **variables}
        # Names what this service runs, among all processes of this machine.
        self.mark = str(10_000_000 + secrets.randbelow(10_000_000))
        self.data = engine.own(pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-engines-")))
        self.cloud = None
        self.start()

    def start(self):
        names = [word for name in self.variables if name != "PATH" for word in ("--builder-env", name)]
        self.cloud = Cloud(
            self.engine.own(self.binary), "--build-grace", "10", *names, *self.options,
            command=[self.engine.own(ROOT / "cross" / self.engine.command)], data=self.data, before=self.engine.before,
            CLOUD_PRIVATE_KEYS=f"{KEY},other={OTHER}", **self.variables)

    def restart(self):
        """Kills the service, and starts it again."""
        self.cloud.process.kill()
        self.cloud.process.wait()
        self.cloud.stop()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *what):
        self.cloud.__exit__(kind, *what)
        shutil.rmtree(self.data)

    def submit(self, build_file, key=KEY, **contents):
        """Uploads a folder with a build file, and returns the id of its build."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.cloud.folder))
        write(folder, "Dockerfile", build_file.encode())
        # No build is answered from the cache of another.
        write(folder, "unique", secrets.token_bytes(8))
        shutil.copy(BUSYBOX, folder / "busybox")
        for name, content in contents.items():
            write(folder, name, content.encode())
        ran = subprocess.run(
            [self.binary, "cloud", "build", folder, "--json"], stdin=subprocess.DEVNULL, capture_output=True,
            env=clean(CLOUD_API_URL=self.cloud.url, CLOUD_API_KEY=key), timeout=PATIENCE_S)
        assert ran.returncode == 0, ran.stderr.decode(errors="replace")
        return json.loads(ran.stdout)["build"]["id"]

    def ask(self, path, key=KEY):
        request = urllib.request.Request(self.cloud.url + path, headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.read()

    def build(self, id_, key=KEY):
        return json.loads(self.ask(f"/v1/builds/{id_}", key))["build"]

    def log(self, id_, key=KEY):
        return "\n".join(json.loads(self.ask(f"/v1/builds/{id_}/logs?limit=10000", key))["logs"])

    def ended(self, id_, status, key=KEY):
        """Waits until the build has ended in that way."""
        build = wait_until(
            lambda: (found := self.build(id_, key))["status"] not in ("pending", "building") and found, f"build {id_} ends", PATIENCE_S)
        assert build["status"] == status, f"{build}\n{self.log(id_, key)}"
        return build

    def built(self, build_file, key=KEY, **contents):
        return self.ended(self.submit(build_file, key, **contents), "success", key)

    def files(self, build):
        """The files of the image of a build that was saved."""
        return files_of_archive(self.ask(build["imageUri"].removeprefix(self.cloud.url)))

    def hangs(self):
        """Begins a build that sleeps for months, and waits until it does. Returns its id."""
        id_ = self.submit(FROM_SCRATCH + f"RUN exec /bin/busybox sleep {self.mark}")
        self.sleeps(id_)
        return id_

    def sleeps(self, id_):
        """Waits until the build sleeps."""
        wait_until(
            lambda: self.sleeping() or self.build(id_)["status"] not in ("pending", "building"), "the build gets to its command", PATIENCE_S,
            lambda: self.log(id_))
        assert self.sleeping(), self.log(id_)

    def sleeping(self):
        return [(pid, command) for pid, command in processes() if f"sleep\0{self.mark}" in command]

    def nothing_is_left(self):
        """Waits until neither a process nor a folder, container or mount is left."""
        seen = None

        def left():
            nonlocal seen
            seen = [*self.sleeping(), *self.engine.left(), *(self.data / "scratch").iterdir()]
            seen += [(pid, command) for pid, command in processes() if f"{self.data}/scratch" in command]
            return not seen

        wait_until(left, "nothing is left", 60, lambda: repr(seen))


def copies_onto_nothing(binary, engine, registry):
    """A build file with COPY onto `scratch` becomes an archive that has the file; nothing else is left of the build."""
    with Service(binary, engine) as service:
        build = service.built("FROM scratch\nCOPY hello /greetings/hello\n", hello="good day")
        assert service.files(build) == {"greetings/hello": b"good day"}, build
        assert build["imageSizeBytes"] == len(service.ask(build["imageUri"].removeprefix(service.cloud.url))), build
        service.nothing_is_left()


def runs_commands(binary, engine, registry):
    """RUN executes in the image, and sees neither the environment of the build nor files of the machine."""
    with Service(binary, engine, SECRET_OF_THE_BUILDER="hidden") as service:
        build = service.built(FROM_SCRATCH + "RUN /bin/busybox env > /env; /bin/busybox ls / > /root; /bin/busybox id -u > /user\n")
        found = service.files(build)
        assert found["user"] == b"0\n" and b"PATH=" in found["env"], found
        assert b"BUILD_" not in found["env"] and b"hidden" not in found["env"], found["env"]
        assert not {b"home", b"work", b"root", b"usr"} & set(found["root"].split()) - {b"root"}, found["root"]
        service.nothing_is_left()


def pushes_and_pulls(binary, engine, registry):
    """An image is pushed to a registry by the login of the builder, and is the base of another build, by its name in `imageUri`."""
    if not registry:
        return "SKIPPED: docker-registry is not installed: apt-get install docker-registry"
    with Service(binary, engine, IMAGE_REGISTRY=f"{registry.host}/team") as service:
        error = service.ended(service.submit("FROM scratch\nCOPY hello /hello\n", hello="x"), "failed")["errorMessage"]
        assert re.search("authoriz|authent|credentials", error), error
        service.nothing_is_left()
    with Service(binary, engine, IMAGE_REGISTRY=f"{registry.host}/team", TOOLS_HOME=str(engine.home(registry))) as service:
        base = service.built(FROM_SCRATCH + "RUN echo base > /base\n")
        # No attempt has the name of another one: a late one would move it.
        name = re.escape(f"{registry.host}/team/default")
        assert re.fullmatch(f"{name}(:{base['id']}-1|@sha256:[0-9a-f]{{64}})", base["imageUri"]), base
        assert registry.files(base["imageUri"])["base"] == b"base\n"
        assert base["imageSizeBytes"] > BUSYBOX.stat().st_size / 4, base
        build = service.built(f"FROM {base['imageUri']}\nRUN /bin/busybox cat /base > /copy\n")
        assert registry.files(build["imageUri"])["copy"] == b"base\n"
        service.nothing_is_left()
    return base["imageUri"]


def two_at_once(binary, engine, registry):
    """Builds at the same time each have their own files, and do not remove what the other one uses."""
    with Service(binary, engine, "--max-builds", "3") as service:
        build_file = FROM_SCRATCH + "COPY name /name\nRUN /bin/busybox sleep 2; /bin/busybox cp /name /copy\n"
        ids = [service.submit(build_file, name=str(number)) for number in range(3)]
        found = [service.files(service.ended(id_, "success"))["copy"] for id_ in ids]
        assert found == [b"0", b"1", b"2"], found
        service.nothing_is_left()


def failures_say_why(binary, engine, registry):
    """A command that fails, and a base image that is nowhere, fail the build with the reason of the engine."""
    with Service(binary, engine) as service:
        id_ = service.submit(FROM_SCRATCH + "RUN echo this is why; exit 7\n")
        error = service.ended(id_, "failed")["errorMessage"]
        assert error.startswith("build: ") and "7" in error, error
        assert "this is why" in service.log(id_), service.log(id_)
        # A port of loopback where nothing listens.
        absent = f"127.0.0.1:{free_ports(1)[0]}/absent:1"
        error = service.ended(service.submit(f"FROM {absent}\n"), "failed")["errorMessage"]
        assert absent.split("/")[0] in error and "refused" in error, error
        service.nothing_is_left()
    return error.splitlines()[-1]


def a_time_limit_ends_it(binary, engine, registry):
    """A build that takes too long ends, with all that it has started."""
    with Service(binary, engine, "--build-timeout", "8") as service:
        error = service.ended(service.hangs(), "timeout")["errorMessage"]
        assert "--build-timeout" in error, error
        service.nothing_is_left()


def a_stop_ends_it(binary, engine, registry):
    """A service that is stopped in the middle of a build leaves nothing, and the next one builds it again."""
    with Service(binary, engine) as service:
        id_ = service.hangs()
        service.cloud.process.terminate()
        assert service.cloud.process.wait(30) == 0
        service.nothing_is_left()
        service.restart()
        service.sleeps(id_)
        assert "attempt 2" in service.log(id_), service.log(id_)


def a_kill_of_the_service(binary, engine, registry):
    """A service that is killed in the middle of a build leaves no process; the next build removes what was in the engine's storage."""
    with Service(binary, engine, "--max-attempts", "1") as service:
        id_ = service.hangs()
        service.restart()
        wait_until(lambda: not service.sleeping(), "no process is left", 60, lambda: repr(service.sleeping()))
        service.ended(id_, "failed")
        service.built("FROM scratch\nCOPY hello /hello\n", hello="x")
        service.nothing_is_left()


def a_killed_engine(binary, engine, registry):
    """An engine that is killed in the middle of a build fails the build; the next one works, and removes what was left."""
    with Service(binary, engine) as service:
        id_ = service.hangs()
        engine.kill(service)
        error = service.ended(id_, "failed")["errorMessage"]
        assert error.startswith("build: "), error
        engine.revive()
        service.built("FROM scratch\nCOPY hello /hello\n", hello="x")
        service.nothing_is_left()
    return error.splitlines()[-1]


def on_another_machine(binary, engine, registry):
    """BuildKit is reached by mutual TLS only. A link that is cut ends the build on both sides; where it hangs, the time limit does."""
    if not isinstance(engine, BuildKit):
        return "SKIPPED: of BuildKit alone"
    link = Link(engine.port)
    host = f"tcp://127.0.0.1:{link.listener.getsockname()[1]}"
    build_file = "FROM scratch\nCOPY hello /hello\n"
    with Service(binary, engine, BUILDKIT_HOST=host) as service:
        error = service.ended(service.submit(build_file, hello="x"), "failed")["errorMessage"]
        assert "no BuildKit daemon" in error, error
    with Service(binary, engine, BUILDKIT_HOST="tcp://192.0.2.1:1234") as service:
        error = service.ended(service.submit(build_file, hello="x"), "failed")["errorMessage"]
        assert "without BUILDKIT_TLS" in error, error
    tls = {"BUILDKIT_HOST": host, "BUILDKIT_TLS": str(engine.tls)}
    with Service(binary, engine, **tls) as service:
        service.built(build_file, hello="x")
        id_ = service.hangs()
        link.cut()
        error = service.ended(id_, "failed")["errorMessage"]
        service.nothing_is_left()
    with Service(binary, engine, "--build-timeout", "15", **tls) as service:
        id_ = service.hangs()
        link.hangs = True
        service.ended(id_, "timeout")
        # The daemon goes on until it learns that the connection is gone.
        link.cut()
        service.nothing_is_left()
    return error.splitlines()[-1]


def caches_are_apart(binary, engine, registry):
    """What a build of one organization puts into a cache mount is there for its next build, and not for another organization."""
    if not isinstance(engine, BuildKit):
        return "SKIPPED: of BuildKit alone"
    mount = "RUN --mount=type=cache,target=/cache "
    with Service(binary, engine) as service:
        service.built(FROM_SCRATCH + mount + "echo poison > /cache/file\n")
        look = FROM_SCRATCH + "COPY unique /unique\n" + mount + "/bin/busybox ls /cache > /found\n"
        assert service.files(service.built(look))["found"] == b"file\n"
        found = service.built(look, key=OTHER)
        assert files_of_archive(service.ask(found["imageUri"].removeprefix(service.cloud.url), OTHER))["found"] == b""


CHECKS = (
    copies_onto_nothing, runs_commands, pushes_and_pulls, two_at_once, failures_say_why, a_time_limit_ends_it, a_stop_ends_it,
    a_kill_of_the_service, a_killed_engine, on_another_machine, caches_are_apart,
)
ENGINES = {
    "buildah": Buildah, "buildah-vfs": BuildahOnVfs, "podman": Podman, "docker": Docker, "buildkit": BuildKit, "kubernetes": KubernetesJobs,
    "buildah-rootless": BuildahWithoutRoot, "buildah-vfs-rootless": BuildahWithoutRootOnVfs, "podman-rootless": PodmanWithoutRoot,
    "buildkit-rootless": BuildKitWithoutRoot,
}


def main(given):
    binary = given.binary.resolve()
    registry = Registry() if shutil.which("docker-registry") else None
    try:
        with Report() as report:
            for name in given.engines.split():
                engine = ENGINES[name](given.buildkit and given.buildkit.resolve())
                try:
                    for check in chosen(CHECKS, given.checks).values():
                        with report.check(check, f"{name}: {check.__name__}") as result:
                            result.show(engine.log_text)
                            result.said = check(binary, engine, registry)
                finally:
                    engine.stop()
    finally:
        if registry:
            registry.stop()
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--buildkit", type=pathlib.Path)
    parser.add_argument("--engines", default="buildah", help=" ".join(ENGINES))
    sys.exit(main(parser.parse_args()))
