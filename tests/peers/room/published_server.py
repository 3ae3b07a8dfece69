"""The published LiveKit server as a process, asked by its HTTP API."""

import asyncio
import json
import pathlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from livekit import api

from server import KEY, SECRET

PORT, TCP_PORT, UDP_PORT = 7880, 7881, 7882


class PublishedServer:
    # What the tests' own server knows beside these, this one does not tell.
    detailed = False

    def __init__(self, binary, address, *args, settings=None, inside=()):
        """`args` are those of the tests' own server, `settings` more of the configuration; `inside` begins a command that
        runs it elsewhere."""
        self.binary, self.inside = binary, inside
        rtc = {"udp_port": UDP_PORT, "tcp_port": TCP_PORT, "node_ip": address, "use_external_ip": False}
        if "--udp-ports-of-their-own" in args:
            del rtc["udp_port"]
            rtc.update(port_range_start=50000, port_range_end=50200)
        if "--ice-lite" in args:
            rtc["use_ice_lite"] = True
        if "--tcp" in args:
            rtc["force_tcp"] = True
        self.config = {"port": PORT, "bind_addresses": ["127.0.0.1", address], "keys": {KEY: SECRET}, "rtc": rtc,
                       "room": {"empty_timeout": 300, "departure_timeout": 20}, "logging": {"level": "info"}}
        for name, value in (settings or {}).items():
            self.config[name] = {**self.config.get(name, {}), **value}
        self.url = f"ws://{address if '--address' in args else '127.0.0.1'}:{PORT}"
        self.log = tempfile.NamedTemporaryFile("w+", prefix="livekit-server-")
        self.start()

    def start(self):
        # YAML contains JSON.
        self.process = subprocess.Popen([*self.inside, self.binary, "--config-body", json.dumps(self.config)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        limit = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(self.url.replace("ws", "http", 1), timeout=2):
                    return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(f"the server did not start: {error}: {self.log_text()[-2000:]}") from error
                time.sleep(0.05)

    def restart(self, gone_s=0.5):
        """Kills it and starts it again. Participants get no notice, and all rooms are empty."""
        self.stop()
        time.sleep(gone_s)
        self.start()

    def stop(self):
        self.process.kill()
        self.process.wait()

    def log_text(self):
        return pathlib.Path(self.log.name).read_text()[-6000:]

    def ask(self, method, about=None, **request):
        """Calls RoomService."""
        grants = api.VideoGrants(room_list=True, room_create=True, room_admin=True, room=about)
        bearer = api.AccessToken(KEY, SECRET).with_grants(grants).to_jwt()
        asked = urllib.request.Request(
            f"{self.url.replace('ws', 'http', 1)}/twirp/livekit.RoomService/{method}", json.dumps(request).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {bearer}"})
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return {}
            raise

    def people(self, room):
        """Returns the participants of a room by identity, with the number of their state and the ids of their tracks."""
        states = ("JOINING", "JOINED", "ACTIVE", "DISCONNECTED")
        return {one["identity"]: {"state": states.index(one.get("state", "JOINING")),
                                  "tracks": [track["sid"] for track in one.get("tracks", ())]}
                for one in self.ask("ListParticipants", room, room=room).get("participants", ())}

    def stats(self):
        rooms = [room["name"] for room in self.ask("ListRooms").get("rooms", ())]
        return {"rooms": {room: people for room in rooms if (people := self.people(room))}}

    async def until(self, wanted, what, limit_s=30):
        """Waits for these statistics; returns the seconds."""
        start = time.monotonic()
        while not wanted(stats := await asyncio.to_thread(self.stats)):
            if time.monotonic() - start > limit_s:
                raise AssertionError(f"not within {limit_s} s: {what}; it is {json.dumps(stats)}")
            await asyncio.sleep(0.05)
        return time.monotonic() - start

    def remove(self, room, identity):
        """Removes a participant."""
        self.ask("RemoveParticipant", room, room=room, identity=identity)

    def delete(self, room):
        """Deletes a room."""
        self.ask("DeleteRoom", room, room=room)
