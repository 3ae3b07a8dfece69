"""A bot in a hosted video room, which it enters by itself with the vendor's own library; it plays back what it hears.

    pip install -r requirements-videoroom.txt
    edge-runner -- python3 videoroom_bot.py              # POST /start {"createVideoroomRoom": true}, or open /videoroom
    edge-runner --direct -- python3 videoroom_bot.py     # one bot in one room, whose URL is printed

The media protocol of that provider is closed, so the runner makes room and token, and the program does the rest: there is no
`media_url` here. RUNNER_ARGUMENTS has `room_url`, `token` and `body`; for a call from a telephone (`--dialin`) `body` names it, and
this bot connects it. Provider and key are taken from the environment, since any client may write a `body`: the runner passes the key
on with `--pass-env VIDEOROOM_API_KEY`.

What is proven without the provider: that every call of the library below exists, that the bot starts, and that it ends with 1
and a sentence when the room cannot be entered. That it is heard in a room, only the provider's servers can show.
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
# How long the bot waits alone: for the first one to come, and for somebody to come back.
ALONE_FIRST_S, ALONE_S = 300, 3
LEAVE_S = 2


def variable(name):
    """Looks a variable of the runner up, by either of its names."""
    return os.environ.get(f"VIDEOROOM_{name}") or os.environ.get(f"DAILY_{name}")


class Room(EventHandler):
    """What happens in the room, as events that the bot waits for."""

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
        print("somebody came")
        self.others.add(participant["id"])
        self.met = True

    def on_participant_left(self, participant, reason):
        print("somebody left:", reason)
        self.others.discard(participant["id"])
        self.alone_since = time.monotonic()

    def is_deserted(self):
        patience = ALONE_S if self.met else ALONE_FIRST_S
        return not self.others and time.monotonic() - self.alone_since > patience

    def on_call_state_updated(self, state):
        # The room has ended, or the bot was sent out of it.
        if state == "left":
            self.over.set()

    def on_error(self, message):
        self.fail(f"the library says: {message}")

    def on_dialin_ready(self, sip_endpoint):
        # Not on the library's own thread, which carries the audio.
        threading.Thread(target=self.connect_call, args=(sip_endpoint,), daemon=True).start()

    def connect_call(self, sip_endpoint):
        """Asks the provider to connect the call that it holds."""
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
    """Plays what is heard. Both devices go by the library's clock, so this keeps its own pace."""
    while not over.is_set():
        heard = speaker.read_frames(CHUNK_SAMPLES)
        if heard:
            microphone.write_frames(heard)
        else:
            time.sleep(0.02)


def talk(arguments, room):
    """Enters the room, and stays until it is over."""
    microphone = Daily.create_microphone_device("bot-microphone", sample_rate=RATE_HZ, channels=1)
    speaker = Daily.create_speaker_device("bot-speaker", sample_rate=RATE_HZ, channels=1)
    Daily.select_speaker_device("bot-speaker")
    client = CallClient(event_handler=room)
    # Dropped while it still joins, it would wait for the network: the program ends before it is.
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
        # A read waits for the library, so the program must not wait for the read.
        threading.Thread(target=echo, args=(microphone, speaker, room.over), daemon=True).start()
        while not room.over.wait(0.2) and not room.is_deserted():
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
    # The session is over, or the runner stops; with --direct Ctrl-C comes this way too.
    signal.signal(signal.SIGTERM, lambda *_: room.over.set())
    Daily.init()
    talk(arguments, room)
    print("goodbye")
    sys.stdout.flush()
    if room.why:
        print(room.why, file=sys.stderr, flush=True)
    # Not by `sys.exit`: threads of the library may still wait for a network that is gone.
    os._exit(1 if room.why else 0)


if __name__ == "__main__":
    main()
