"""Holds the files for operators of several machines against the program: docs/cloud and the systemd units of replicas.

    deployment.py --store PATH [--binary PATH] [CHECK...]      exits with 1 when a check failed

Each command of a file runs as it stands, with PostgreSQL and the store of the test, which is that of run.py, until it serves or has ended; a
build goes through the balancer of the compose file. No container engine and no cluster is needed or tried. Needs PyYAML, `haproxy`, PostgreSQL.
"""

import base64
import os
import pathlib
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import yaml

from checks import Report, chosen, free_ports, options, wait_until
from engines import Registry
from shared import Servers, program

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS, UNITS = ROOT / "docs/cloud", ROOT / "boards/common"
KEY = "sk_deployment_0123456789abcdef"
PATIENCE_S = 60
# What a service of the compose file may have. Compose refuses what it does not know, and so does this.
SERVICE = {
    "build", "cap_drop", "command", "depends_on", "environment", "healthcheck", "image", "ports", "read_only", "restart", "security_opt",
    "stop_grace_period", "tmpfs", "volumes",
}
CONDITIONS = {"service_healthy", "service_completed_successfully"}
# Stands in for `builder-kubernetes`, since there is no cluster.
PACK = ["sh", "-c", 'tar -cf "$BUILD_OUT/image.tar" .']
servers = None


def clean(variables):
    """An environment with these variables, and without settings of the user."""
    ours = ("CLOUD_", "BUILD_", "RUNNER_", "RUST_LOG", "AWS_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(ours)}, **variables}


class Process:
    """A replica, or a server, with a folder of its own."""

    def __init__(self, words, variables):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-deployment-"))
        self.log = open(self.folder / "log", "a+")
        self.process = subprocess.Popen(
            list(map(str, words)), stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, cwd=self.folder, env=clean(variables))

    def log_text(self):
        return (self.folder / "log").read_text(errors="replace")

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def get(port, path, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


class Machines:
    """What stands in for the machines of a file: a database and a bucket, free ports, folders."""

    def __init__(self, binary, result):
        self.binary, self.result = binary, result
        self.place = servers.place(binary)
        self.variables = {**self.place.variables, "CLOUD_PRIVATE_KEYS": KEY}

    def ended(self, words, variables):
        """Runs a command of the program that ends, such as a migration."""
        ran = subprocess.run(
            [self.binary, *words], env=clean({**self.variables, **variables}), capture_output=True, text=True, timeout=PATIENCE_S)
        assert ran.returncode == 0, (words, ran.stderr)
        return ran.stdout

    def replica(self, words, variables):
        """Starts a replica, and returns its port once it serves."""
        assert words[:2] == ["cloud", "serve"], words
        (port,) = free_ports(1)
        folder = tempfile.mkdtemp(prefix="edge-runner-deployment-")
        # Where files have addresses and folders of their own machines.
        here = {"CLOUD_HOST": "127.0.0.1", "CLOUD_PORT": str(port), "CLOUD_DATA_DIR": folder}
        process = self.result.keep(Process([self.binary, *words], {**self.variables, **variables, **here}))
        wait_until(lambda: get(port, "/readyz")[0] == 200 or process.process.poll() is not None, f"{words} serves")
        assert process.process.poll() is None, (words, process.log_text())
        return port

    def build(self, url):
        """Has a folder built, and returns what the client prints."""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "Dockerfile").write_text("FROM scratch\n")
            ran = subprocess.run(
                [self.binary, "cloud", "build", folder, "--wait", "--poll", "0.2"], capture_output=True, text=True, timeout=PATIENCE_S,
                env=clean({"CLOUD_API_URL": url, "CLOUD_API_KEY": KEY}))
        assert ran.returncode == 0, ran.stderr
        assert re.search(r"^build \S+ success$", ran.stdout, re.MULTILINE), ran.stdout
        return ran.stdout


def filled(value, known):
    """Fills `${NAME}` of compose in, and undoes `$$`. A name that is not `known` fails."""
    def name(match):
        return "$" if match[0] == "$$" else known[match[1]]

    return re.sub(r"\$\$|\$\{([A-Z_]+)(?::\?)?\}", name, value)


def compose(binary, result):
    """the compose file: members, references, and its commands behind its balancer"""
    file = yaml.safe_load((DOCS / "compose.yaml").read_text())
    assert set(file) <= {"name", "services", "volumes", "x-replica", "x-api"}, set(file)
    services = file["services"]
    machines = Machines(binary, result)
    known = {**machines.variables, "POSTGRES_PASSWORD": "a-password"}
    environments = {}
    for name, service in services.items():
        assert set(service) <= SERVICE, (name, set(service) - SERVICE)
        assert {"image", "restart"} <= set(service), name
        for other, how in service.get("depends_on", {}).items():
            assert other in services and how["condition"] in CONDITIONS, (name, other)
            assert how["condition"] != "service_healthy" or "healthcheck" in services[other], other
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in file["volumes"] or (DOCS / source).is_file(), (name, volume)
        environments[name] = {key: filled(str(value), known) for key, value in service.get("environment", {}).items()}
    build = services["api-a"]["build"]
    assert (DOCS / build["context"] / build["dockerfile"]).resolve() == DOCS / "Dockerfile", build
    database = environments["migrate"].pop("CLOUD_DATABASE")
    assert database == "postgres://cloud:a-password@postgres/cloud?sslmode=disable", database
    assert environments["postgres"]["POSTGRES_PASSWORD"] == "a-password"
    assert "has version" in machines.ended(services["migrate"]["command"], environments["migrate"])
    ports = {}
    for name in ("api-a", "api-b", "worker"):
        words = [filled(word, known) for word in services[name]["command"]]
        ports[name] = machines.replica(words, {**environments[name], "CLOUD_DATABASE": machines.variables["CLOUD_DATABASE"]})
        # As the file says, they are for those with a key.
        assert get(ports[name], "/metrics")[0] == 401
        assert f'role="{"worker" if name == "worker" else "api"}"' in get(ports[name], "/metrics", KEY)[1]
    (port,) = free_ports(1)
    addresses = {
        **environments["balancer"], "BALANCER_BIND": f"127.0.0.1:{port}", "REPLICA_A": f"127.0.0.1:{ports['api-a']}",
        "REPLICA_B": f"127.0.0.1:{ports['api-b']}",
    }
    assert set(addresses) == set(environments["balancer"])
    balancer = result.keep(Process(["haproxy", "-db", "-f", DOCS / "haproxy.cfg"], addresses))
    wait_until(lambda: get(port, "/readyz")[0] == 200, "the balancer serves")
    assert balancer.process.poll() is None
    machines.build(f"http://127.0.0.1:{port}")
    assert get(port, "/metrics", KEY)[0] == 404, "those of one replica are not behind the balancer"
    return f"{len(services)} services"


def manifests(name):
    return list(yaml.safe_load_all((DOCS / name).read_text()))


def kubernetes(binary, result):
    """the manifests of the service: selectors, secrets, rights of the workers, and their commands"""
    found = manifests("kubernetes.yaml") + manifests("kubernetes-builds.yaml")
    machines = Machines(binary, result)
    labels, ports = [], {}
    for manifest in found:
        kind, name, spec = manifest["kind"], manifest["metadata"]["name"], manifest.get("spec", {})
        if kind in ("Service", "PodDisruptionBudget"):
            selector = spec["selector"] if kind == "Service" else spec["selector"]["matchLabels"]
            assert any(selector.items() <= pod.items() for pod in labels), (kind, selector)
        if kind not in ("Job", "Deployment"):
            continue
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "edge-runner-cloud"}}]
        variables = {entry["name"]: entry["value"] for entry in container.get("env", [])}
        words = container["args"]
        # Only what starts Jobs has a token.
        assert ("serviceAccountName" in pod) == ("--" in words), name
        assert "serviceAccountName" in pod or pod["automountServiceAccountToken"] is False, name
        if kind == "Job":
            machines.ended(words, variables)
            continue
        labels.append(spec["template"]["metadata"]["labels"])
        assert spec["selector"]["matchLabels"].items() <= labels[-1].items()
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        if "--" in words:
            command = words[words.index("--") + 1:]
            assert [pathlib.Path(word).name for word in command] == ["builder-kubernetes"] and (ROOT / "cross/builder-kubernetes").is_file()
            words = words[:words.index("--") + 1] + PACK
        ports[name] = machines.replica(words, variables)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container.get(probe, {}).get("httpGet", {}).get("path")
            assert path is None or get(ports[name], path)[0] == 200, (probe, path)
    assert set(ports) == {"edge-runner-cloud-api", "edge-runner-cloud-worker"}
    machines.build(f"http://127.0.0.1:{ports['edge-runner-cloud-api']}")
    rights = {manifest["kind"]: manifest for manifest in found if manifest["kind"] in ("ServiceAccount", "Role", "RoleBinding")}
    binding = rights["RoleBinding"]
    assert binding["roleRef"]["name"] == rights["Role"]["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [rights["ServiceAccount"]["metadata"]["name"]] == [pod["serviceAccountName"]]
    spaces = {manifest["metadata"].get("namespace") for manifest in (rights["Role"], binding)}
    assert spaces == {manifest["metadata"]["name"] for manifest in found if manifest["kind"] == "Namespace"}
    return f"{len(found)} manifests"


def registry(binary, result):
    """the manifest of the registry: its configuration, by TLS and with passwords only; its probe; its files are where they are mounted"""
    if missing := [name for name in ("docker-registry", "openssl") if not shutil.which(name)]:
        return f"SKIPPED: apt-get install {' '.join(missing)}"
    found = {manifest["kind"]: manifest for manifest in manifests("kubernetes-registry.yaml")}
    config = found["ConfigMap"]["data"]["config.yml"]
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert container["args"] == ["serve", "/etc/registry/config.yml"] and container["args"][1] in mounted, mounted
    (port,) = free_ports(1)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-registry-"))
    for path in re.findall(r"/(?:etc|var)/[^ ,}]+", config):
        assert any(path.startswith(mount) for mount in mounted), path
        config = config.replace(path, f"{folder}{path}")
        (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    assert container["ports"] == [{"name": "https", "containerPort": 5000}] and config.count(":5000") == 1
    (folder / "config.yml").write_text(config.replace(":5000", f"127.0.0.1:{port}"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=registry",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "etc/registry/tls/tls.key", "-out", folder / "etc/registry/tls/tls.crt"],
        check=True, capture_output=True)
    (folder / "etc/registry/passwords/htpasswd").write_text(Registry.hashed + "\n")
    process = result.keep(Process(["docker-registry", "serve", folder / "config.yml"], {}))
    trust = ssl.create_default_context(cafile=folder / "etc/registry/tls/tls.crt")

    def ask(path, login=None, method="GET"):
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", method=method)
        if login:
            request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=trust) as reply:
                return reply.status, dict(reply.headers)
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers)
        except OSError:
            return 0, {}

    probes = [container[name]["httpGet"] for name in ("readinessProbe", "livenessProbe")]
    assert all(probe == {"path": "/", "port": "https", "scheme": "HTTPS"} for probe in probes)
    wait_until(lambda: ask("/")[0] == 200, "the registry serves", PATIENCE_S, process.log_text)
    status, headers = ask("/v2/")
    assert status == 401 and headers["Www-Authenticate"] == 'Basic realm="edge-runner"', headers
    assert ask("/v2/", "builds:another")[0] == 401
    assert ask("/v2/", Registry.login)[0] == 200
    assert ask("/v2/team/bot/blobs/uploads/", method="POST")[0] == 401
    assert ask("/v2/team/bot/blobs/uploads/", Registry.login, method="POST")[0] == 202
    # To HTTP it says only that it speaks another protocol.
    assert get(port, "/v2/")[0] == 400
    shutil.rmtree(folder)
    return "Debian's registry"


def settings(unit):
    """The settings of a unit: its lines without comments, in order."""
    lines = (UNITS / unit).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def units(binary, result):
    """the units of replicas: what systemd says of them, the same limits as on one machine, and their commands"""
    own = {"Description", "StateDirectory", "Environment", "EnvironmentFile", "ExecStart"}
    limits = {
        unit: [line for line in settings(unit) if line.split("=")[0] not in own]
        for unit in ("edge-runner-cloud.service", "edge-runner-cloud@.service")
    }
    assert limits["edge-runner-cloud.service"] == limits["edge-runner-cloud@.service"], "both have the same limits"
    machines = Machines(binary, result)
    commands = {}
    for unit in ("edge-runner-cloud@.service", "edge-runner-cloud-migrate.service"):
        (command,) = [line.removeprefix("ExecStart=") for line in settings(unit) if line.startswith("ExecStart=")]
        words = shlex.split(command)
        assert words[0] == "/usr/bin/edge-runner", command
        commands[unit] = words[1:]
    assert "has version" in machines.ended(commands["edge-runner-cloud-migrate.service"], {})
    ports = {}
    for role, rest in (("api", []), ("worker", ["--", "sh", "-c", 'tar -cf "$BUILD_OUT/image.tar" .'])):
        words = [role if word == "%i" else word for word in commands["edge-runner-cloud@.service"]]
        ports[role] = machines.replica([*words, *rest], {})
    machines.build(f"http://127.0.0.1:{ports['api']}")
    if not shutil.which("systemd-analyze"):
        return "without systemd-analyze: apt-get install systemd"
    with tempfile.TemporaryDirectory() as folder:
        for unit, instance in (("edge-runner-cloud@.service", "edge-runner-cloud@api.service"), ("edge-runner-cloud-migrate.service",) * 2):
            # A program that is not on this machine.
            text = (UNITS / unit).read_text().replace("/usr/bin/edge-runner ", "/bin/true ")
            pathlib.Path(folder, unit).write_text(text)
            ran = subprocess.run(
                ["systemd-analyze", "verify", f"{folder}/{instance}"], capture_output=True, text=True, timeout=PATIENCE_S,
                env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"})
            said = [line for line in ran.stderr.splitlines() if "edge-runner-cloud" in line]
            # Those of systemd 254, which the head of the unit names.
            said = [line for line in said if "RestartSteps" not in line and "RestartMaxDelaySec" not in line]
            assert ran.returncode == 0 and not said, (unit, ran.stderr)
    return "with systemd-analyze"


CHECKS = (compose, kubernetes, registry, units)


def main(given):
    global servers
    if not shutil.which("haproxy"):
        sys.exit("haproxy is missing: apt-get install haproxy")
    program("psql")
    binary = given.binary.resolve()
    servers = Servers(given.store.resolve())
    try:
        with Report() as report:
            for check in chosen(CHECKS, given.checks).values():
                with report.check(check) as result:
                    result.said = check(binary, result)
    finally:
        servers.stop()
    return report.code


if __name__ == "__main__":
    parser = options(__doc__, CHECKS)
    parser.add_argument("--store", type=pathlib.Path, required=True)
    sys.exit(main(parser.parse_args()))
