"""A bot in a Daily room, which it joins with Daily's own library. It plays back what it hears.

    pip install -r requirements-videoroom.txt
    # One bot per session; POST /start {"createVideoroomRoom": true}, or open /videoroom:
    edge-runner -- python3 videoroom_bot.py
    # One bot in one room, whose URL is printed:
    edge-runner --direct -- python3 videoroom_bot.py

Daily's media protocol is closed, so the runner creates the room and the token, and the program
joins by itself, without a `media_url`. RUNNER_ARGUMENTS has `room_url`, `token` and `body`. For a
dial-in call (`--dialin`), `body` identifies the call, and this bot connects it. The API's URL and
key are taken from the environment, since any client may write a `body`; `--pass-env
VIDEOROOM_API_KEY` passes the key.

The repository's tests cover the calls of the library, the start, and the exit with status 1 and an
error if the room cannot be joined. They do not cover audio in a room, which needs Daily's servers.
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

from daily import CallClient, Daily, EventHandler

RATE_HZ = 16_000
# 20 ms.
CHUNK_SAMPLES = RATE_HZ // 50
JOIN_S = 30
# How long the bot waits alone, in seconds: for the first participant, and for another one later.
ALONE_FIRST_S, ALONE_S = 300, 3
LEAVE_S = 2


def variable(name):
    """Returns a variable of the runner, by either of its names."""
    return os.environ.get(f"VIDEOROOM_{name}") or os.environ.get(f"DAILY_{name}")


class Room(EventHandler):
    """The state of the room, from the events of the library."""

    def __new__(cls, _body):
        return super().__new__(cls)

    def __init__(self, body):
        super().__init__()
        self.body = body
        self.over = threading.Event()
        self.why = None
        self.others = set()
        self.alone_since, self.met = time.monotonic(), False

    def fail(self, why):
        self.why = self.why or why
        self.over.set()

    def on_participant_joined(self, participant):
        print("a participant joined")
        self.others.add(participant["id"])
        self.met = True

    def on_participant_left(self, participant, reason):
        print("a participant left:", reason)
        self.others.discard(participant["id"])
        self.alone_since = time.monotonic()

    def is_empty(self):
        limit = ALONE_S if self.met else ALONE_FIRST_S
        return not self.others and time.monotonic() - self.alone_since > limit

    def on_call_state_updated(self, state):
        # The room was closed, or the bot was removed from it.
        if state == "left":
            self.over.set()

    def on_error(self, message):
        self.fail(f"error of the library: {message}")

    def on_dialin_ready(self, sip_endpoint):
        # The library's own thread carries the audio and must not block.
        threading.Thread(target=self.connect_call, args=(sip_endpoint,), daemon=True).start()

    def connect_call(self, sip_endpoint):
        """Requests that Daily connects the waiting call to the room."""
        held = self.body.get("dialin_settings")
        if not held:
            return
        call = {"callId": held["call_id"], "callDomain": held["call_domain"], "sipUri": sip_endpoint}
        base = variable("API_URL") or "https://api.daily.co/v1"
        request = urllib.request.Request(
            f"{base.rstrip('/')}/dialin/pinlessCallUpdate",
            json.dumps(call).encode(),
            {"Authorization": f"Bearer {variable('API_KEY')}", "Content-Type": "application/json"},
        )
        try:
            urllib.request.urlopen(request, timeout=10).close()
            print("the call is connected")
        except (urllib.error.URLError, OSError) as error:
            self.fail(f"the call was not connected: {error}")


def echo(microphone, speaker, over):
    """Plays back what it hears. The library's clock paces both devices."""
    while not over.is_set():
        heard = speaker.read_frames(CHUNK_SAMPLES)
        if heard:
            microphone.write_frames(heard)
        else:
            time.sleep(0.02)


def talk(arguments, room):
    """Joins the room and stays until the session is over."""
    microphone = Daily.create_microphone_device("bot-microphone", sample_rate=RATE_HZ, channels=1)
    speaker = Daily.create_speaker_device("bot-speaker", sample_rate=RATE_HZ, channels=1)
    Daily.select_speaker_device("bot-speaker")
    client = CallClient(event_handler=room)
    # Dropping the client during a join would wait for the network, so it is kept until the exit.
    room.kept = (client, microphone, speaker)
    client.set_user_name("Bot")
    client.update_subscription_profiles({"base": {"camera": "unsubscribed", "microphone": "subscribed"}})
    settings = {
        "inputs": {
            "camera": False,
            "microphone": {"isEnabled": True, "settings": {"deviceId": "bot-microphone"}},
        }
    }
    joined = threading.Event()

    def completed(data, error):
        if error:
            room.fail(f"the room cannot be entered: {error}")
        elif data:
            room.others.update(key for key in data["participants"] if key != "local")
            room.met = bool(room.others)
        joined.set()

    client.join(arguments["room_url"], arguments.get("token"), client_settings=settings, completion=completed)
    deadline = time.monotonic() + JOIN_S
    while not joined.wait(0.1) and not room.over.is_set():
        if time.monotonic() > deadline:
            room.fail(f"the room cannot be entered: no answer within {JOIN_S} s")
    if not room.over.is_set():
        print("in the room")
        room.alone_since = time.monotonic()
        # A blocked read must not delay the end of the program.
        threading.Thread(target=echo, args=(microphone, speaker, room.over), daemon=True).start()
        while not room.over.wait(0.2) and not room.is_empty():
            pass
        room.over.set()
        left = threading.Event()
        client.leave(completion=lambda _error: left.set())
        left.wait(LEAVE_S)


def main():
    arguments = json.loads(os.environ["RUNNER_ARGUMENTS"])
    if arguments["kind"] != "videoroom":
        sys.exit(f"this bot is for video rooms, not for sessions of kind {arguments['kind']}")
    body = arguments["body"]
    room = Room(body if isinstance(body, dict) else {})
    # The runner sends SIGTERM at the end of the session and when it stops, also after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: room.over.set())
    Daily.init()
    talk(arguments, room)
    print("goodbye")
    sys.stdout.flush()
    if room.why:
        print(room.why, file=sys.stderr, flush=True)
    # `sys.exit` would wait for threads of the library that may still wait for the network.
    os._exit(1 if room.why else 0)


if __name__ == "__main__":
    main()
