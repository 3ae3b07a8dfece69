"""What replicas of the cloud service share, for its tests: PostgreSQL and an object store on ports of loopback. Both end with this process.

    shared.py --store PATH --binary PATH COMMAND [ARGS...]      runs a command with their addresses in its environment

The store is versitygw, or a program that takes its arguments and variables. Needs PostgreSQL, as Debian installs it, and `setpriv`.
PostgreSQL does not run as root, so root gives it another user.
"""

import argparse
import datetime
import hashlib
import hmac
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from checks import free_ports, wait_until

KEY = {"AWS_ACCESS_KEY_ID": "AKIATESTS", "AWS_SECRET_ACCESS_KEY": "secret-of-the-store-of-tests"}
OTHER_USER = 65534


def program(name):
    """A program of PostgreSQL, whose servers Debian keeps out of PATH."""
    folders = [os.environ["PATH"], *map(str, pathlib.Path("/usr/lib/postgresql").glob("*/bin"))]
    return shutil.which(name, path=os.pathsep.join(folders)) or exit(f"{name} is missing: apt-get install postgresql")


class Bucket:
    """A bucket, by requests that are signed as Amazon S3 has it ("Authenticating Requests: Using the Authorization Header")."""

    def __init__(self, port, name):
        self.host, self.name = f"127.0.0.1:{port}", name

    def keys(self):
        listed = xml.etree.ElementTree.fromstring(self.send("GET", "", {"list-type": "2"}))
        return [key.text for key in listed.iter() if key.tag.endswith("}Key") or key.tag == "Key"]

    def read(self, key):
        return self.send("GET", key)

    def send(self, method, key, query=None):
        """Sends a request, which has to succeed, and returns the body of the answer. The empty key is that of the bucket."""
        path = urllib.parse.quote("/" + "/".join(filter(None, [self.name, key])))
        query = urllib.parse.urlencode(query or {})
        time = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{time[:8]}/us-east-1/s3/aws4_request"
        headers = {"host": self.host, "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(), "x-amz-date": time}
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = "\n".join([method, path, query, lines, names, headers["x-amz-content-sha256"]])
        text = "\n".join(["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(request.encode()).hexdigest()])
        signature = ("AWS4" + KEY["AWS_SECRET_ACCESS_KEY"]).encode()
        for word in [*scope.split("/"), text]:
            signature = hmac.digest(signature, word.encode(), "sha256")
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={KEY['AWS_ACCESS_KEY_ID']}/{scope}, SignedHeaders={names}, Signature={signature.hex()}")
        url = f"http://{self.host}{path}{'?' if query else ''}{query}"
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method=method), timeout=30) as reply:
            return reply.read()


class Place:
    """A database with the schema, and a bucket."""

    def __init__(self, variables, bucket):
        self.variables, self.bucket = variables, bucket


class Servers:
    """PostgreSQL and an object store, which is the program `store`."""

    def __init__(self, store, fsync="off"):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="edge-runner-shared-"))
        self.ports = free_ports(2)
        self.numbers = itertools.count()
        self.processes = []
        database, objects = self.folder / "database", self.folder / "objects"
        database.mkdir()
        objects.mkdir()
        as_user = ["setpriv", "--pdeathsig", "KILL"]
        plain = list(as_user)
        if os.getuid() == 0:
            os.chmod(self.folder, 0o755)
            os.chown(database, OTHER_USER, OTHER_USER)
            as_user += ["--reuid", str(OTHER_USER), "--regid", str(OTHER_USER), "--clear-groups"]
        data = database / "data"
        subprocess.run(
            [*as_user, program("initdb"), "-A", "trust", "-U", "cloud", "-N", "--locale=C", "-E", "UTF8", "-D", data], check=True,
            stdout=subprocess.DEVNULL, cwd="/")
        self.run([*as_user, program("postgres"), "-D", data, "-p", str(self.ports[0]), "-c", "listen_addresses=127.0.0.1",
                  "-c", "unix_socket_directories=", "-c", f"fsync={fsync}"])
        self.run([*plain, store, "--port", f"127.0.0.1:{self.ports[1]}", "posix", objects],
                 ROOT_ACCESS_KEY=KEY["AWS_ACCESS_KEY_ID"], ROOT_SECRET_KEY=KEY["AWS_SECRET_ACCESS_KEY"])
        wait_until(lambda: self.sql("postgres", "SELECT 1").returncode == 0, "PostgreSQL is ready")
        wait_until(self.store_is_ready, "the store is ready", 60)

    def store_is_ready(self):
        """Tells whether it lists the buckets. Some listen before their parts have found each other."""
        try:
            return bool(Bucket(self.ports[1], "").send("GET", ""))
        except OSError:
            return False

    def run(self, words, **variables):
        self.processes.append(subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            env={**os.environ, **variables}))

    def sql(self, database, statement):
        return subprocess.run(
            [program("psql"), "-X", "-At", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.ports[0]), "-U", "cloud",
             "-d", database, "-c", statement], capture_output=True, text=True)

    def place(self, binary):
        """A new database and a new bucket."""
        name = f"cloud{next(self.numbers)}"
        self.sql("postgres", f"CREATE DATABASE {name}").check_returncode()
        # The store may have buckets of an earlier process.
        bucket = Bucket(self.ports[1], f"{name}-{os.getpid()}")
        bucket.send("PUT", "")
        variables = {
            **KEY, "CLOUD_DATABASE": f"postgres://cloud@127.0.0.1:{self.ports[0]}/{name}",
            "CLOUD_STORE": f"s3://{bucket.name}?endpoint=http://127.0.0.1:{self.ports[1]}",
        }
        subprocess.run([binary, "cloud", "migrate"], check=True, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)
        return Place(variables, bucket)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=pathlib.Path, required=True)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    # A disk that a database in earnest has.
    servers = Servers(given.store.resolve(), fsync="on")
    try:
        place = servers.place(given.binary.resolve())
        return subprocess.run(given.command, env={**os.environ, **place.variables}).returncode
    finally:
        servers.stop()


if __name__ == "__main__":
    sys.exit(main())
