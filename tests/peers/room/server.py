"""The LiveKit test server as a process, and tokens for its rooms."""

import asyncio
import datetime
import json
import os
import pathlib
import subprocess
import tempfile
import time

from livekit import api

KEY, SECRET = "devkey", "a-secret-of-thirty-two-characters"


def token(identity, room, key=KEY, secret=SECRET, **grants):
    grants = api.VideoGrants(room_join=True, room=room, **grants)
    made = api.AccessToken(key, secret).with_identity(identity).with_name(identity).with_grants(grants)
    return made.with_ttl(datetime.timedelta(hours=1)).to_jwt()


class Server:
    # Whether `stats` tells about packets, levels, subscriptions and joins.
    detailed = True

    def __init__(self, binary, *args):
        self.binary, self.args = binary, args
        self.log = tempfile.NamedTemporaryFile("w+", prefix="media-room-")
        self.url = self.start()

    def start(self, *more):
        self.process = subprocess.Popen(
            [self.binary, "--key", f"{KEY}:{SECRET}", *self.args, *more], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.log, env={**os.environ, "RUST_LOG": os.environ.get("ROOM_LOG", "info")})
        line = self.process.stdout.readline()
        if "listening on " not in line:
            raise RuntimeError("the server ended at start: " + self.log_text())
        return line.split("listening on ")[1].strip()

    def restart(self, gone_s=0.5):
        """Kills it and starts it on the same port. Participants get no notice, and all rooms are empty."""
        self.stop()
        time.sleep(gone_s)
        assert self.start("--port", self.url.rsplit(":", 1)[1]) == self.url

    def log_text(self):
        return pathlib.Path(self.log.name).read_text()

    def tell(self, order, **more):
        self.process.stdin.write(json.dumps({"order": order, **more}) + "\n")
        self.process.stdin.flush()

    def stats(self):
        self.process.stdin.write("stats\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def people(self, room):
        """Returns the identities in a room."""
        return self.stats()["rooms"].get(room, {})

    def remove(self, room, identity):
        """Removes a participant."""
        self.tell("evict", identity=identity, reason=4)

    def delete(self, room):
        """Deletes a room."""
        for identity in self.people(room):
            self.tell("evict", identity=identity, reason=5)

    async def until(self, wanted, what, limit_s=30):
        """Waits for these statistics; returns the seconds."""
        start = time.monotonic()
        while not wanted(stats := self.stats()):
            if time.monotonic() - start > limit_s:
                raise AssertionError(f"not within {limit_s} s: {what}; it is {json.dumps(stats)}")
            await asyncio.sleep(0.02)
        return time.monotonic() - start

    def stop(self):
        self.process.kill()
        self.process.wait()
