"""GStreamer's webrtcbin against the runner: RSA certificates, its own ICE, SCTP and Opus. Prints a line per check; exits with 1
when one failed.

    run.py [--binary PATH] [CHECK...]      with the system's Python: python3-gi and GStreamer are Debian packages
"""

import array
import functools
import json
import pathlib
import queue
import sys
import time
import urllib.request

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstSdp", "1.0")
gi.require_version("GstWebRTC", "1.0")
from gi.repository import GLib, Gst, GstSdp, GstWebRTC  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from checks import Report, chosen, options, wait_until  # noqa: E402
from reference import RETRANSMIT_S, SHARE_SPREAD, judge, judge_share, tone_share  # noqa: E402
from runner import Runner  # noqa: E402

RATE = 48_000
OPUS = "application/x-rtp,media=audio,encoding-name=OPUS,payload=111,clock-rate=48000"
TONE = f"audiotestsrc is-live=true wave=sine volume=0.4 freq={{hz}} ! audio/x-raw,rate={RATE},channels=1 ! opusenc ! rtpopuspay pt=111 ! {OPUS} ! rtc."
SINK = f"audioconvert ! audioresample ! audio/x-raw,format=S16LE,rate={RATE},channels=1 ! appsink name=heard sync=false emit-signals=true"
# In place of the public server that these elements would ask.
NO_STUN = "stun://127.0.0.1:9"
# How long a sink has a tone to send, its handshake included.
SPEAK_S = 5
# A time limit: an end that is said is noticed at once.
NOTICED_S = 20


class Client:
    """One webrtcbin with a tone for a microphone, as `gst-launch-1.0` would have it."""

    def __init__(self, runner, hz=440, channel=True, path=None):
        """`path` takes the bare offer, WHIP or WHEP; a listener has no `hz`."""
        self.runner, self.hz, self.path, self.resource = runner, hz, path, None
        self.received, self.messages, self.states = array.array("h"), [], queue.Queue()
        self.loop = GLib.MainContext.default()
        if hz:
            self.pipe = Gst.parse_launch(f"webrtcbin name=rtc bundle-policy=max-bundle {TONE.format(hz=hz)}")
            self.rtc = self.pipe.get_by_name("rtc")
        else:
            self.pipe, self.rtc = Gst.Pipeline.new(None), Gst.ElementFactory.make("webrtcbin")
            self.pipe.add(self.rtc)
            listens = GstWebRTC.WebRTCRTPTransceiverDirection.RECVONLY
            self.rtc.emit("add-transceiver", listens, Gst.Caps.from_string(OPUS))
        self.rtc.connect("pad-added", self.on_pad)
        self.channel = None
        self.wants_channel = channel

    def connect(self):
        """Offer and answer; returns the seconds until the connection is up."""
        start = time.monotonic()
        self.pipe.set_state(Gst.State.READY)
        if self.wants_channel:
            self.channel = self.rtc.emit("create-data-channel", "chat", None)
            self.channel.connect("on-message-string", lambda _, text: self.messages.append(text))
        self.pipe.set_state(Gst.State.PLAYING)
        # Caps of the microphone first, or the offer has no audio.
        self.until(lambda: not self.hz or self.has_caps(), "caps of the microphone")
        offer = self.ask("create-offer", None, "offer")
        self.rtc.emit("set-local-description", offer, None)
        gathered = GstWebRTC.WebRTCICEGatheringState.COMPLETE
        self.until(lambda: self.rtc.get_property("ice-gathering-state") == gathered, "candidates")
        self.offer = self.rtc.get_property("local-description").sdp.as_text()
        self.answer = self.post(self.offer)
        _, parsed = GstSdp.SDPMessage.new_from_text(self.answer)
        answer = GstWebRTC.WebRTCSessionDescription.new(GstWebRTC.WebRTCSDPType.ANSWER, parsed)
        self.rtc.emit("set-remote-description", answer, None)
        connected = GstWebRTC.WebRTCPeerConnectionState.CONNECTED
        # That of a listener stays `connecting` while it plays.
        self.until(lambda: not self.hz or self.rtc.get_property("connection-state") == connected, "connected")
        return time.monotonic() - start

    def post(self, offer):
        """The answer's SDP."""
        if self.path:
            request = urllib.request.Request(self.runner.url + self.path, offer.encode(), {"Content-Type": "application/sdp"})
            with urllib.request.urlopen(request, timeout=10) as reply:
                assert reply.status == 201, reply.status
                self.resource = reply.headers["Location"]
                return reply.read().decode()
        status, reply = self.runner.call("POST", "/start", {"transport": "webrtc"})
        assert status == 200, (status, reply)
        path = f"/sessions/{reply['sessionId']}/api/offer"
        status, reply = self.runner.call("POST", path, {"sdp": offer, "type": "offer"})
        assert status == 200, (status, reply)
        return reply["sdp"]

    def has_caps(self):
        pad = self.rtc.get_static_pad("sink_0")
        return pad is not None and pad.get_current_caps() is not None

    def ask(self, signal, options, name):
        promise = Gst.Promise.new()
        self.rtc.emit(signal, options, promise)
        assert promise.wait() == Gst.PromiseResult.REPLIED, signal
        # What the reply holds is freed with it.
        self.reply = promise.get_reply()
        return self.reply.get_value(name)

    def on_pad(self, _, pad):
        if pad.direction != Gst.PadDirection.SRC:
            return
        decoder = Gst.parse_bin_from_description(f"rtpopusdepay ! opusdec ! {SINK}", True)
        decoder.get_by_name("heard").connect("new-sample", self.on_sample)
        self.pipe.add(decoder)
        decoder.sync_state_with_parent()
        pad.link(decoder.get_static_pad("sink"))

    def on_sample(self, sink):
        buffer = sink.emit("pull-sample").get_buffer()
        self.received.frombytes(buffer.extract_dup(0, buffer.get_size()))
        return Gst.FlowReturn.OK

    def until(self, condition, what, limit_s=30):
        def met():
            while self.loop.iteration(False):
                pass
            return condition()

        return wait_until(met, what, limit_s)

    def listen_for(self, seconds):
        """What comes in the next seconds."""
        self.received = array.array("h")
        self.until(lambda: len(self.received) >= seconds * RATE, f"{seconds} s of audio", seconds * 4 + 20)
        return self.received

    def delete(self):
        request = urllib.request.Request(self.runner.url + self.resource, method="DELETE")
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status

    def close(self):
        self.pipe.set_state(Gst.State.NULL)


class Echo(Client):
    """A second webrtcbin in the place of the runner: it answers an offer, and gives the sound back."""

    def __init__(self):
        self.received, self.loop = array.array("h"), GLib.MainContext.default()
        self.pipe, self.rtc = Gst.Pipeline.new(None), Gst.ElementFactory.make("webrtcbin")
        self.rtc.set_property("bundle-policy", GstWebRTC.WebRTCBundlePolicy.MAX_BUNDLE)
        self.back = Gst.parse_bin_from_description(
            f"rtpopusdepay ! opusdec ! audioconvert ! audio/x-raw,rate={RATE},channels=1 ! opusenc ! rtpopuspay pt=111 ! capsfilter caps=\"{OPUS}\"", True)
        self.pipe.add(self.rtc)
        self.pipe.add(self.back)
        # The answer sends what has a pad by then.
        self.back.get_static_pad("src").link(self.rtc.request_pad_simple("sink_0"))
        self.rtc.connect("pad-added", self.on_pad)
        self.pipe.set_state(Gst.State.PLAYING)

    def on_pad(self, _, pad):
        if pad.direction == Gst.PadDirection.SRC:
            pad.link(self.back.get_static_pad("sink"))

    def answer_to(self, offer):
        """The answer's SDP, with its candidates."""
        _, parsed = GstSdp.SDPMessage.new_from_text(offer)
        promise = Gst.Promise.new()
        self.rtc.emit("set-remote-description", GstWebRTC.WebRTCSessionDescription.new(GstWebRTC.WebRTCSDPType.OFFER, parsed), promise)
        promise.wait()
        self.rtc.emit("set-local-description", self.ask("create-answer", None, "answer"), None)
        gathered = GstWebRTC.WebRTCICEGatheringState.COMPLETE
        self.until(lambda: self.rtc.get_property("ice-gathering-state") == gathered, "candidates of the control")
        return self.rtc.get_property("local-description").sdp.as_text()


class AtEcho(Client):
    """A caller without the runner."""

    def __init__(self, echo):
        super().__init__(None)
        self.echo = echo

    def post(self, offer):
        return self.echo.answer_to(offer)


@functools.cache
def control():
    """Seconds until such a caller is connected, its tone, and what it hears in two seconds."""
    echo = Echo()
    client = AtEcho(echo)
    try:
        return client.connect(), client.hz, client.listen_for(2)
    finally:
        client.close()
        echo.close()


def hears_itself(client, seconds):
    """Listens; the share of the caller's own tone against that without the runner."""
    share = tone_share(client.listen_for(seconds), client.hz, RATE)
    _, hz, received = control()
    return judge_share(share, tone_share(received, hz, RATE))


def tone(runner):
    """its RSA certificate is taken; 440 Hz in, 440 Hz back"""
    client = Client(runner)
    try:
        took = client.connect()
        share = hears_itself(client, 3)
    finally:
        client.close()
    return f"{judge('connected after', took, control()[0], RETRANSMIT_S, at_most=True)}, {share}"


def messages(runner):
    """the data channel opens, client-ready gets bot-ready with its id"""
    client = Client(runner)
    try:
        client.connect()
        opened = GstWebRTC.WebRTCDataChannelState.OPEN
        client.until(lambda: client.channel.get_property("ready-state") == opened, "the channel")
        about = {"library": "gstreamer check"}
        message = {"label": "rtvi-ai", "type": "client-ready", "id": "d2d923ea", "data": {"version": "2.1.0", "about": about}}
        client.channel.emit("send-string", json.dumps(message))

        def ready():
            found = [json.loads(text) for text in client.messages]
            return [each for each in found if each.get("type") == "bot-ready" and each.get("id") == "d2d923ea"]

        client.until(ready, "bot-ready")
        hears_itself(client, 1)
        return f"{len(client.messages)} messages"
    finally:
        client.close()


def bare(runner):
    """audio alone, without a data channel"""
    client = Client(runner, hz=620, channel=False)
    try:
        client.connect()
        assert "m=application" not in client.answer
        return hears_itself(client, 2)
    finally:
        client.close()


def four(runner):
    """four at once, each hears its own tone only"""
    clients = [Client(runner, hz=300 + 170 * n) for n in range(4)]
    try:
        for client in clients:
            client.connect()
        received = [client.listen_for(2) for client in clients]
        shares = [tone_share(pcm, client.hz, RATE) for client, pcm in zip(clients, received)]
        others = [tone_share(pcm, clients[n - 1].hz, RATE) for n, pcm in enumerate(received)]
        _, hz, alone = control()
        own = judge_share(min(shares), tone_share(alone, hz, RATE), what="lowest share of the own tone")
        other = judge("highest of another's", max(others), tone_share(alone, clients[0].hz, RATE), SHARE_SPREAD, at_most=True)
        return f"{own}; {other}"
    finally:
        for client in clients:
            client.close()


def whip(runner):
    """one POST to /whip is a call both ways, and DELETE is its end"""
    client = Client(runner, hz=700, path="/whip/door")
    try:
        client.connect()
        share = hears_itself(client, 2)
        assert client.delete() == 200
        client.until(lambda: sessions(runner) == 0, "the end of the session", NOTICED_S)
        return share
    finally:
        client.close()


def whep(runner):
    """a listener at /whep hears the bot's greeting"""
    client = Client(runner, hz=None, path="/whep")
    try:
        client.connect()
        loud = client.until(lambda: max(client.received, key=abs, default=0), "sound", 20)
        return f"loudest sample {abs(loud)}"
    finally:
        client.close()


def play(runner, pipeline, until, what):
    """Plays a pipeline until the condition holds; it may ask what the appsink `heard` heard."""
    client = Client.__new__(Client)
    client.loop, client.received = GLib.MainContext.default(), array.array("h")
    client.pipe = Gst.parse_launch(pipeline)
    if sink := client.pipe.get_by_name("heard"):
        sink.connect("new-sample", client.on_sample)
    try:
        client.pipe.set_state(Gst.State.PLAYING)
        return client.until(lambda: until(client), what, 30)
    finally:
        client.close()


def speak(runner, element):
    """How many frames of a tone of a few seconds reached the bot through this sink."""
    began = []

    def has_spoken(_):
        if not began and sessions(runner) == 1:
            began.append(time.monotonic())
        return began and time.monotonic() - began[0] > SPEAK_S

    play(runner, f"audiotestsrc is-live=true ! audio/x-raw,rate={RATE},channels=1 ! {element}", has_spoken, "a session")
    line = lines(runner, "session ended")[0]
    frames = int(line.split(" frames to the bot")[0].rsplit(" ", 1)[1])
    # All that a second has are 50 of 20 ms, and the handshake takes a part of them.
    assert frames > 50 * SPEAK_S / 2, line
    return f"{frames} frames to the bot"


def lines(runner, words, limit_s=40):
    return wait_until(lambda: [line for line in runner.log_text().splitlines() if words in line], words, limit_s)


def sessions(runner):
    return runner.call("GET", "/status")[1]["sessions"]


CHECKS = [tone, messages, bare, four, whip, whep]

def whipsink(runner):
    """whipsink sends a tone to a bot"""
    opus = f"opusenc ! rtpopuspay pt=111 ! {OPUS}"
    return speak(runner, f"{opus} ! whipsink whip-endpoint={runner.url}/whip")


def whepsrc(runner):
    """whepsrc plays the bot's greeting"""
    caps = OPUS.replace(",payload=111", ",payload=(int)111").replace("clock-rate=48000", "clock-rate=(int)48000")
    loud = play(runner, f'whepsrc whep-endpoint={runner.url}/whep audio-caps="{caps}" ! rtpopusdepay ! opusdec ! {SINK}',
                lambda client: max(client.received, key=abs, default=0), "sound")
    return f"loudest sample {abs(loud)}"


def whipclientsink(runner):
    """whipclientsink, the newer element, sends a tone to a bot"""
    return speak(runner, f"whipclientsink stun-server={NO_STUN} signaller::whip-endpoint={runner.url}/whip")


def whepclientsrc(runner):
    """whepclientsrc, the newer element, plays the bot's greeting"""
    loud = play(runner, f"whepclientsrc name=listener stun-server={NO_STUN} signaller::whep-endpoint={runner.url}/whep listener. ! {SINK}",
                lambda client: max(client.received, key=abs, default=0), "sound")
    return f"loudest sample {abs(loud)}"


# These have nothing to say that an echo could repeat.
LISTENERS = [whep, whepsrc, whepclientsrc]
# The elements of gst-plugins-rs, which Debian does not package.
PLUGINS = [whipsink, whepsrc, whipclientsink, whepclientsrc]


def main(binary, names):
    Gst.init(None)
    with Report() as report:
        for check in chosen([*CHECKS, *PLUGINS], names, unless=[check.__name__ for check in PLUGINS]).values():
            with report.check(check) as result:
                result.said = check(result.keep(Runner(binary, "--bot", "parrot" if check in LISTENERS else "echo")))
    return report.code


if __name__ == "__main__":
    given = options(__doc__, [*CHECKS, *PLUGINS]).parse_args()
    sys.exit(main(given.binary.resolve(), given.checks))
