"""coturn in a network namespace, with one user and a certificate of its own."""

import datetime
import ipaddress
import pathlib
import subprocess
import tempfile
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PORT, TLS_PORT = 3478, 5349
USER, SECRET = "caller", "only-for-checks"


class Turn:
    """A server at `address` of `host`; it can be killed and started again."""

    def __init__(self, host, address):
        self.host, self.address = host, address
        self.folder = tempfile.TemporaryDirectory()
        self.process = None
        # Who trusts this file trusts the server.
        self.certificate = pathlib.Path(self.folder.name, "certificate.pem")
        make_certificate(address, self.certificate, pathlib.Path(self.folder.name, "key.pem"))
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [*self.host.inside, "turnserver", "-n", "-v", "--no-cli", "--no-dtls", "--lt-cred-mech",
             "--listening-ip", self.address, "--relay-ip", self.address,
             "--listening-port", str(PORT), "--tls-listening-port", str(TLS_PORT),
             "--cert", self.certificate, "--pkey", f"{self.folder.name}/key.pem",
             "--min-port", "49160", "--max-port", "49260", "--realm", "check", "--user", f"{USER}:{SECRET}",
             "--log-file", "stdout", "--pidfile", f"{self.folder.name}/pid", "--userdb", f"{self.folder.name}/db"],
            stdin=subprocess.DEVNULL, stdout=open(f"{self.folder.name}/log", "a"), stderr=subprocess.STDOUT,
            cwd=self.folder.name)
        probe = f"import socket; socket.create_connection(('{self.address}', {PORT}), 1).close()"
        for _ in range(100):
            if subprocess.run([*self.host.inside, "python3", "-c", probe], stderr=subprocess.DEVNULL).returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError("coturn does not listen:\n" + self.log_text())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def log_text(self):
        return pathlib.Path(self.folder.name, "log").read_text(errors="replace")

    def server(self, scheme="turn", query="", secret=SECRET):
        """One entry of a list of ICE servers."""
        url = f"{scheme}:{self.address}:{TLS_PORT if scheme == 'turns' else PORT}{query}"
        return {"urls": url} if scheme == "stun" else {"urls": url, "username": USER, "credential": secret}

    def close(self):
        self.kill()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def make_certificate(address, certificate, key_file):
    """One that signs itself, for an address, good for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "relay of the checks")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
        .sign(key, hashes.SHA256()))
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
