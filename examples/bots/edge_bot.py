"""The protobuf connection of a bot, and a kit of parts for it: one file to copy beside your own.
Only the connection has a dependency, `pip install websockets`.

    with edge_bot.connect() as bot:
        for kind, value in bot:
            if kind == "audio":          # 16-bit mono PCM at 16000 Hz
                bot.say(value, 16000)
            elif keys := edge_bot.key(value):
                bot.show(f"You pressed {keys}.")  # or: bot.transfer("+15550001111"), bot.hang_up("done")
            else:                        # any other message, a dictionary
                bot.answer_rtvi(value, on_text=lambda text: f"You wrote: {text}")

Audio and messages pass over the WebSocket at `media_url` of RUNNER_ARGUMENTS, one protobuf frame
per binary message:

    Frame { TextFrame text = 1; AudioRawFrame audio = 2; TranscriptionFrame transcription = 3;
            MessageFrame message = 4; InterruptionFrame interruption = 5; }
    AudioRawFrame { bytes audio = 3; uint32 sample_rate = 4; uint32 num_channels = 5; }
    MessageFrame { string data = 1; }

The kit has no dependencies and no clock of its own. PCM is 16-bit little-endian mono, as bytes.

    TurnDetector        where the caller's speech begins and ends, barge-in
    SentenceSplitter    whole sentences of streamed text
    Transcript          the last texts of both sides
    FunctionCalls       functions that a model calls: one output for each call
    DigitCollector      "three keys or #, within 5 s"
    Resampler           PCM at another rate, as a stream
    Recorder            caller and bot in one recording
    read_wav, write_wav WAV files of 16-bit PCM
    tones, dtmf_tones   notes, two frequencies at once, the tones of telephone keys
"""

import array
import json
import math
import operator
import os
import signal
import struct
import sys
from collections import deque

try:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync import client
except ImportError:  # Only `connect` needs it.
    client, ConnectionClosed = None, OSError

AUDIO, MESSAGE, INTERRUPTION = 2, 4, 5
IN_RATE_HZ = 16000


def connect():
    """Connects to the media of the session. SIGTERM ends the `with` block."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    arguments = json.loads(os.environ.get("RUNNER_ARGUMENTS", "null"))
    if arguments is None:
        sys.exit("no RUNNER_ARGUMENTS: the runner starts a bot: `edge-runner -- python3 bot.py`")
    if "media_url" not in arguments:
        sys.exit("no media_url: start the runner without `--bot-audio pcm`")
    if client is None:
        sys.exit("no module websockets: pip install websockets")
    # No pings: the runner does not read their answers while more than 40 s of speech wait.
    socket = client.connect(arguments["media_url"], compression=None, proxy=None, ping_interval=None)
    return Bot(arguments, socket)


class Bot:
    """A session. Iterating over it yields `("audio", bytes)` and `("message", dict)` until the
    session is over."""

    def __init__(self, arguments, socket):
        self.arguments = arguments
        self.socket = socket

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def __iter__(self):
        try:
            for data in self.socket:
                frame = read_fields(data)
                if AUDIO in frame:
                    yield "audio", read_fields(frame[AUDIO]).get(3, b"")
                elif MESSAGE in frame:
                    message = parse(read_fields(frame[MESSAGE]).get(1, b""))
                    if message is not None:
                        yield "message", message
        except ConnectionClosed:
            pass

    def say(self, pcm, rate_hz=IN_RATE_HZ):
        """Queues speech: 16-bit mono PCM at 8000 to 48000 Hz."""
        self._send(AUDIO, field(3, pcm) + field(4, rate_hz) + field(5, 1))

    def speak(self, text):
        """Lets the runner speak a text of up to 1000 bytes behind the speech so far, by the voice of its
        CASCADE_TTS_URL. `{"type": "speak", "done": .., "error": ..}` comes back. What is sent after it
        waits until the speech is there; the runner keeps it, so that a text is spoken once for all calls."""
        self.send({"type": "speak", "text": text})

    def send(self, message):
        """Sends a message to the caller, ahead of queued speech."""
        self._send(MESSAGE, field(1, json.dumps(message).encode()))

    def interrupt(self):
        """Drops the speech that has not been played."""
        self._send(INTERRUPTION, b"")

    def mark(self, name):
        """Sets a mark: `{"type": "mark", "name": .., "played": ..}` comes back once all speech before
        it was played."""
        self.send({"type": "mark", "name": name})

    def hang_up(self, reason=""):
        """Ends the session once all speech was played; the reason is for the log of the runner."""
        self.send({"type": "hang-up", "reason": reason})

    def transfer(self, to, after_speech=True):
        """Transfers a telephone call to a number such as "+15550001111", a sip: address, or the URL of
        the provider's markup, by the provider's API. `{"type": "transfer", "done": .., "error": ..}`
        comes back. When it is done, leave the `with` block: the call is the provider's then.

        The provider is asked once all speech was played; with `after_speech=False` at once, and the
        speech that was not played is dropped."""
        message = {"type": "transfer", "to": to}
        self.send(message if after_speech else {**message, "after_speech": False})

    def send_keys(self, keys):
        """Sends keys to the caller's end by the provider's API, where it has one for that (Telnyx and
        Plivo); `{"type": "keys", "done": .., "error": ..}` comes back. On every other line, play
        their tones: `bot.say(dtmf_tones(keys), 16000)`."""
        self.send({"type": "keys", "keys": keys})

    def show(self, text):
        """Shows a text on the caller's screen. For a telephone, the runner drops it."""
        data = {"text": text, "will_be_spoken": False}
        self.send({"label": "rtvi-ai", "type": "bot-output", "data": data})

    def answer_rtvi(self, message, on_message=lambda data: data, on_text=None):
        """Answers an RTVI message. Ignores keys and messages that are not RTVI.

        The handshake gets `bot-ready`. A message of the application gets the result of
        `on_message(data)`. For typed text, what `on_text(content)` returns is shown, unless it is
        empty. `disconnect-bot` ends the program. Everything else gets `error-response`.
        """
        if message.get("label") != "rtvi-ai" or key(message):
            return
        kind, data = message.get("type"), message.get("data")
        if kind == "client-ready":
            self._reply(message, "bot-ready", {"version": "2.1.0", "about": {"library": "edge_bot.py"}})
        elif kind == "client-message":
            self._reply(message, "server-response", on_message(data))
        elif kind == "send-text" and on_text is not None:
            shown = on_text(data.get("content", "") if isinstance(data, dict) else "")
            if shown:
                self.show(shown)
        elif kind == "disconnect-bot":
            sys.exit()
        else:
            self._reply(message, "error-response", {"error": f"Unsupported type {kind}"})

    def _reply(self, message, kind, data):
        self.send({"label": "rtvi-ai", "type": kind, "id": message.get("id"), "data": data})

    def _send(self, number, content):
        try:
            self.socket.send(field(number, content))
        except ConnectionClosed:
            pass  # The iteration ends with the session.


def key(message):
    """Returns the telephone keys in a message, mostly one, as in "5"; "" in any other message.

    A telephone call sends `{"type": "dtmf", "digit": "5"}`; a page with a keypad sends RTVI's
    `{"label": "rtvi-ai", "type": "dtmf", "data": {"buttons": ["5"]}}`.
    """
    if message.get("type") != "dtmf":
        return ""
    if message.get("label") != "rtvi-ai":
        return str(message.get("digit", ""))
    data = message.get("data")
    buttons = data.get("buttons") if isinstance(data, dict) else None
    return "".join(map(str, buttons)) if isinstance(buttons, list) else ""


def parse(text):
    """Returns the JSON object of a message, or `None` for anything else that a client sends."""
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def read_fields(data):
    """Returns the fields of a protobuf message by number, as integers and bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        elif key & 7 != 0:
            raise ValueError(f"a field of type {key & 7}")
        fields[key >> 3] = value
    return fields


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def field(number, value):
    """Returns one field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ---- the kit


class EnergyDetector:
    """Detects speech by its energy: at least 7 dB above the background, which is the quietest 40 ms
    of the last 3 s, and above an absolute minimum. Digital silence is a muted microphone and leaves
    the background unchanged. About 2 % of a core of a PC at 16000 Hz."""

    MIN_RATIO, MIN_ENERGY, RUMBLE_HZ = 5.0, 2500.0, 380.0

    def __init__(self, rate_hz=IN_RATE_HZ):
        self.block_samples = rate_hz // 100
        self.pole = 1 - 2 * math.pi * self.RUMBLE_HZ / rate_hz
        self.last_in = self.last_out = 0.0
        self.energy, self.filled, self.is_silent = 0.0, 0, True
        self.recent = deque([math.inf] * 4, 4)
        self.windows = deque([math.inf] * 6, 6)
        self.quietest, self.blocks = math.inf, 0

    def hears_speech(self, pcm):
        """Returns whether a block of 10 ms that this PCM completes is speech."""
        speech, last_in, last_out, pole = False, self.last_in, self.last_out, self.pole
        for sample in samples_of(pcm):
            last_out = sample - last_in + pole * last_out
            last_in = sample
            self.energy += last_out * last_out
            self.filled += 1
            if not -1 <= sample <= 1:
                self.is_silent = False
            if self.filled == self.block_samples:
                energy, is_silent = self.energy / self.filled, self.is_silent
                self.energy, self.filled, self.is_silent = 0.0, 0, True
                speech |= not is_silent and self._is_loud(energy)
        self.last_in, self.last_out = last_in, last_out
        return speech

    def _is_loud(self, energy):
        self.recent.append(energy)
        self.quietest = min(self.quietest, sum(self.recent) / 4)
        background = min(self.quietest, *self.windows)
        self.blocks += 1
        if self.blocks == 50:
            self.windows.append(self.quietest)
            self.quietest, self.blocks = math.inf, 0
        return energy > max(self.MIN_ENERGY, background * self.MIN_RATIO)


class TurnDetector:
    """Finds the turns of a caller. Times are counted in audio, so late audio changes nothing.

        turns = edge_bot.TurnDetector()
        for kind, value in bot:
            if kind == "audio":
                event = turns.handle_audio(value)
                if event == "started":
                    bot.interrupt()              # barge-in
                elif event in ("ended", "cut"):
                    bot.say(bytes(turns.audio))  # the turn, with 300 ms before its onset
    """

    def __init__(self, rate_hz=IN_RATE_HZ, onset_ms=100, barge_in_ms=300, lead_ms=300, pause_ms=700, longest_s=30):
        size = lambda ms: rate_hz * ms // 1000 * 2
        self.detector = EnergyDetector(rate_hz)
        self.onset_bytes, self.barge_in_bytes = size(onset_ms), size(barge_in_ms)
        self.lead_bytes, self.pause_bytes = size(lead_ms), size(pause_ms)
        self.longest_bytes = size(longest_s * 1000)
        self.is_in_turn = self.is_skipping = False
        self.before, self.audio = bytearray(), bytearray()
        self.onset = self.silence = 0

    def handle_audio(self, pcm, bot_is_heard=False):
        """Returns "started" when a turn begins, "ended" after a pause, "cut" at the longest length,
        else `None`. Afterwards `audio` is the turn so far. While the bot is heard, a turn begins
        after `barge_in_ms` instead of `onset_ms` of speech."""
        is_speech = self.detector.hears_speech(pcm)
        if self.is_in_turn:
            self.audio += pcm
            self.silence = 0 if is_speech else self.silence + len(pcm)
            is_cut = len(self.audio) >= self.longest_bytes
            if not is_cut and self.silence < self.pause_bytes:
                return None
            self.is_in_turn, self.is_skipping = False, is_cut and is_speech
            return "cut" if is_cut else "ended"
        self.before += pcm
        self.onset = self.onset + len(pcm) if is_speech else 0
        self.is_skipping = self.is_skipping and is_speech
        kept = self.lead_bytes + self.onset
        del self.before[: max(0, len(self.before) - kept)]
        wanted = self.barge_in_bytes if bot_is_heard else self.onset_bytes
        if self.is_skipping or self.onset == 0 or self.onset < wanted:
            # A voice over the bot may stay below the barge-in for ever: keep no more than it needs.
            self.onset = min(self.onset, max(self.barge_in_bytes, self.onset_bytes))
            return None
        self.audio, self.before = self.before, bytearray()
        self.is_in_turn, self.onset, self.silence = True, 0, 0
        return "started"


class SentenceSplitter:
    """Splits text that still arrives into sentences, for a voice that speaks one at a time."""

    BYTES_MAX = 600
    ABBREVIATIONS = set("bzw ca co dr e.g etc fig fr hr i.e inc jr mr mrs ms nr prof sr st vs z.b".split())

    def __init__(self):
        self.text = ""

    def push(self, text):
        """Adds text, and returns the list of sentences that are whole now."""
        self.text += text
        sentences = []
        while end := self._end() or self._break():
            sentence, self.text = self.text[:end].strip(), self.text[end:]
            if sentence:
                sentences.append(sentence)
        return sentences

    def finish(self):
        """Returns the rest, which can be empty."""
        rest, self.text = self.text.strip(), ""
        return rest

    def _end(self):
        """Returns the end of the first whole sentence, or 0."""
        text, at = self.text, 0
        while at < len(text):
            mark, at = text[at], at + 1
            if mark in "\n。！？।؟":
                return at
            if mark in ".!?:…":
                word = text[: at - 1].replace("(", " ").rpartition(" ")[2].rpartition("\n")[2]
                while at < len(text) and text[at] in "\"')]”’»":
                    at += 1
                is_before_space = at < len(text) and text[at].isspace()
                if is_before_space and not (mark == "." and self._is_abbreviated(word)):
                    return at
        return 0

    def _is_abbreviated(self, word):
        is_ordinal = word.isascii() and word.isdigit() and len(word) <= 2
        return is_ordinal or (len(word) == 1 and word.isupper()) or word.lower() in self.ABBREVIATIONS

    def _break(self):
        """Returns where a text that is too long for one sentence is split, or 0."""
        data = self.text.encode()
        if len(data) < self.BYTES_MAX:
            return 0
        head = data[: self.BYTES_MAX].decode(errors="ignore")
        return 1 + max(head.rfind(","), head.rfind(";")) or 1 + head.rfind(" ") or len(head)


class Transcript:
    """The last texts of a conversation, and what the caller has said so far in this turn."""

    BYTES_MAX, TURN_BYTES_MAX = 4096, 32768

    def __init__(self, texts_max=20):
        self.texts = deque(maxlen=texts_max)
        self._turn, self._text = None, ""

    def add(self, speaker, text):
        """Adds a text of a speaker, such as "caller" or "bot"; of a long one the beginning."""
        text = text.strip().encode()[: self.BYTES_MAX].decode(errors="ignore")
        if text:
            self.texts.append((speaker, text))

    def push_piece(self, turn, piece):
        """Adds a piece of what the caller says in a turn; returns the text of the turn so far."""
        if turn != self._turn:
            self._turn, self._text = turn, ""
        if len((self._text + piece).encode()) <= self.TURN_BYTES_MAX:
            self._text += piece
        return self._text

    def complete(self, turn, text):
        """The whole text of a turn, which replaces its pieces."""
        self._turn, self._text = turn, text.strip()
        self.add("caller", text)

    def __str__(self):
        return "".join(f"{speaker}: {text}\n" for speaker, text in self.texts)


class FunctionCalls:
    """Functions that a model calls: exactly one output for each call, also when it is late, too long
    or its arguments are no JSON object. `now` is any clock in seconds.

        calls = edge_bot.FunctionCalls(within_s=10)
        arguments = calls.start("call 1", "weather", '{"city": "Linz"}', time.monotonic())
        if arguments is not None:                  # run the function
            calls.finish("call 1", {"degrees": 21})
        if calls.all_answered():                   # for the model: then ask it to go on
            for call_id, name, output in calls.take(): ...
    """

    CALLS_MAX, OUTPUT_BYTES_MAX = 16, 16384

    def __init__(self, within_s=10):
        self.within_s = within_s
        self._waiting, self._outputs = {}, []

    def start(self, call_id, name, arguments, now):
        """Begins a call. Returns its arguments, or `None` if it must not be run: it is known already,
        or has its output, an error."""
        if call_id in self._waiting or any(call_id == known for known, _, _ in self._outputs):
            return None
        try:
            parsed = json.loads(arguments.strip() or "{}")
        except ValueError:
            parsed = None
        full = len(self._waiting) + len(self._outputs) >= self.CALLS_MAX
        if full or not isinstance(parsed, dict):
            why = "too many functions at once" if full else "the arguments are no JSON object"
            self._outputs.append((call_id, name, json.dumps({"error": why})))
            return None
        self._waiting[call_id] = (name, now + self.within_s)
        return parsed

    def finish(self, call_id, result):
        """The result of a call: a string as it is, anything else as JSON. Other calls are ignored."""
        if call_id in self._waiting:
            output = result if isinstance(result, str) else json.dumps(result)
            if len(output.encode()) > self.OUTPUT_BYTES_MAX:
                output = json.dumps({"error": "the result is too long"})
            self._outputs.append((call_id, self._waiting.pop(call_id)[0], output))

    def deadline(self):
        """Returns when to call `handle_timeout`, or `None`."""
        return min((until for _, until in self._waiting.values()), default=None)

    def handle_timeout(self, now):
        """Gives up calls that are late."""
        for call_id in [known for known, (_, until) in self._waiting.items() if now >= until]:
            self.finish(call_id, {"error": "no result in time"})

    def all_answered(self):
        """Returns whether there are outputs and no call waits."""
        return bool(self._outputs) and not self._waiting

    def take(self):
        """Returns the outputs, and forgets them: a list of (call_id, name, output)."""
        outputs, self._outputs = self._outputs, []
        return outputs


class DigitCollector:
    """Collects the keys of a telephone until `count_max`, the key `terminator`, or `within_s`
    without a further key. `now` is any clock in seconds, such as `time.monotonic()`."""

    def __init__(self, count_max, within_s, now, terminator="#"):
        self.count_max, self.within_s, self.terminator = count_max, within_s, terminator
        self.keys, self.deadline = "", now + within_s

    def handle_key(self, key, now):
        """Returns the keys once they are complete, else `None`. Keys after the end are ignored."""
        if self.deadline is None:
            return None
        if key != self.terminator:
            self.keys += key
            if len(self.keys) < self.count_max:
                self.deadline = now + self.within_s
                return None
        return self._end()

    def handle_timeout(self, now):
        """Returns the keys if the next one is late, else `None`. Call it at `deadline`."""
        return self._end() if self.deadline is not None and now >= self.deadline else None

    def _end(self):
        self.deadline = None
        return self.keys


class Resampler:
    """Converts a stream of PCM to another rate, in pieces of any length, 2 ms late at 16000 Hz. A windowed
    sinc: about 10 % of a core of a PC from 24000 to 16000 Hz."""

    SPAN = 16  # Half the length of the filter, in periods of the lower rate.

    def __init__(self, from_hz, to_hz):
        common = math.gcd(from_hz, to_hz)
        self.step, self.phases = from_hz // common, to_hz // common
        narrower = max(1.0, from_hz / to_hz)
        self.half = math.ceil(self.SPAN * narrower)
        self.rows = [self._row(phase / self.phases, narrower) for phase in range(self.phases)]
        self.input, self.at, self.phase = [0] * (2 * self.half - 1), 0, 0

    def _row(self, offset, narrower):
        row = []
        for tap in range(2 * self.half):
            t = tap - (self.half - 1) - offset
            x = math.pi * t * 0.92 / narrower
            window = 0.5 + 0.5 * math.cos(math.pi * t / self.half) if abs(t) < self.half else 0.0
            row.append(window * (math.sin(x) / x if x else 1.0))
        whole = sum(row)
        return [share / whole for share in row]

    def convert(self, pcm):
        """Returns the next samples at the other rate. Give it whole samples."""
        if self.step == self.phases:
            return bytes(pcm)
        self.input += samples_of(pcm)
        out, length = [], 2 * self.half
        while self.at + length <= len(self.input):
            window = self.input[self.at : self.at + length]
            out.append(round(sum(map(operator.mul, window, self.rows[self.phase]))))
            self.phase += self.step
            self.at += self.phase // self.phases
            self.phase %= self.phases
        used = min(self.at, len(self.input))
        del self.input[:used]
        self.at -= used
        return pcm_of(out)


class Recorder:
    """Records both sides of a call into one track at `rate_hz`, up to `longest_s`. The caller's audio is
    the clock: the bot's speech is mixed into it as it is played.

        recorder = edge_bot.Recorder()
        ...  recorder.handle_caller(value)          # each "audio"
        ...  recorder.handle_bot_speech(pcm, 24000)  # with each bot.say(pcm, 24000)
        ...  recorder.handle_interruption()          # with each bot.interrupt()
        open("call.wav", "wb").write(recorder.to_wav())
    """

    def __init__(self, rate_hz=IN_RATE_HZ, longest_s=600):
        self.rate_hz, self.bytes_max = rate_hz, longest_s * rate_hz * 2
        self.track, self.speech = bytearray(), bytearray()
        self.resamplers = {}

    def handle_caller(self, pcm):
        """Records audio of the caller. Returns `False` once the recording is full."""
        heard = samples_of(pcm[: self.bytes_max - len(self.track)])
        spoken = samples_of(self.speech[: 2 * len(heard)])
        del self.speech[: 2 * len(spoken)]
        spoken.extend([0] * (len(heard) - len(spoken)))
        self.track += pcm_of(map(operator.add, heard, spoken))
        return len(self.track) < self.bytes_max

    def handle_bot_speech(self, pcm, rate_hz=IN_RATE_HZ):
        """Takes speech that the bot sends; beyond the length of the recording it is dropped."""
        if rate_hz not in self.resamplers:
            self.resamplers = {rate_hz: Resampler(rate_hz, self.rate_hz)}
        room = self.bytes_max - len(self.track) - len(self.speech)
        self.speech += self.resamplers[rate_hz].convert(pcm)[: max(0, room)]

    def handle_interruption(self):
        """Drops the bot's speech that was not played."""
        self.speech.clear()

    def to_wav(self):
        """Returns the recording as a WAV file."""
        return write_wav(bytes(self.track), self.rate_hz)


def samples_of(pcm):
    """Returns PCM as an array of numbers; half a sample at the end is ignored."""
    samples = array.array("h", bytes(pcm[: len(pcm) // 2 * 2]))
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def pcm_of(samples):
    """Returns numbers as PCM, within the range of 16 bits."""
    pcm = array.array("h", (max(-32768, min(32767, int(sample))) for sample in samples))
    if sys.byteorder == "big":
        pcm.byteswap()
    return pcm.tobytes()


def read_wav(data):
    """Returns the PCM and the rate of a WAV file of 16-bit PCM; several channels are averaged.

    Raises `ValueError` for anything else. The length in the header may be wrong, as in a file that
    was written to a pipe.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("not a WAV file")
    at, form = 12, None
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        body = data[at + 8 :] if name == b"data" and size == 0 else data[at + 8 : at + 8 + size]
        if name == b"fmt " and len(body) >= 16:
            form = struct.unpack_from("<HHIIHH", body)
        elif name == b"data" and form:
            kind, channels, rate_hz, _, _, bits = form
            if kind not in (1, 0xFFFE) or bits != 16 or not 1 <= channels <= 8:
                raise ValueError("the WAV file is not 16-bit PCM")
            if channels == 1:
                return bytes(body[: len(body) // 2 * 2]), rate_hz
            samples = samples_of(body[: len(body) // (2 * channels) * 2 * channels])
            tracks = [samples[track::channels] for track in range(channels)]
            return pcm_of(sum(frame) // channels for frame in zip(*tracks)), rate_hz
        at += 8 + size + size % 2
    raise ValueError("the WAV file has no format or no data")


def write_wav(pcm, rate_hz=IN_RATE_HZ):
    """Returns a WAV file of mono PCM."""
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(pcm), b"WAVE", b"fmt ", 16, 1, 1, rate_hz,
                       rate_hz * 2, 2, 16, b"data", len(pcm))
    return head + pcm


def tones(sounds, rate_hz=IN_RATE_HZ):
    """Returns the PCM of sounds that follow each other, each a tuple of seconds and up to two
    frequencies in hertz; without a frequency it is silence. They begin and end without a click."""
    samples = []
    for seconds, *hertz in sounds:
        count, fade = int(seconds * rate_hz), max(1, rate_hz // 200)
        for at in range(count):
            level = 8000 / max(1, len(hertz)) * min(1, at / fade, (count - at) / fade)
            samples.append(level * sum(math.sin(2 * math.pi * hz * at / rate_hz) for hz in hertz))
    return pcm_of(samples)


def dtmf_tones(keys, rate_hz=IN_RATE_HZ):
    """Returns the PCM of telephone keys, 100 ms each with pauses of 100 ms; other characters are
    skipped."""
    sounds = []
    for at in ("123A456B789C*0#D".find(key) for key in keys):
        if at >= 0:
            sounds += [(0.1, (697, 770, 852, 941)[at // 4], (1209, 1336, 1477, 1633)[at % 4]), (0.1,)]
    return tones(sounds, rate_hz)
