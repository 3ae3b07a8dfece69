"""A recogniser and a voice with the HTTP routes of OpenAI, on a loopback port: tones in place of models.

    cascade_http.py [--port N]

Requests are checked with the types of the published SDK, unknown fields too. The voice answers as the model in the request says:
`pcm` headerless at 24 kHz in pieces of odd sizes, `wav` a file at 22.05 kHz whose lengths are unknown.
"""

import argparse
import asyncio
import email.parser
import email.policy
import io
import json
import re
import struct
import wave

import numpy
from audio import loudest_hz, tone
from openai.types.audio import Transcription
from openai.types.audio.speech_create_params import SpeechCreateParams
from openai.types.audio.transcription_create_params import TranscriptionCreateParamsNonStreaming
from pydantic import TypeAdapter

HOST = "127.0.0.1"
RECOGNISER_HZ, PCM_HZ, WAV_HZ = 16_000, 24_000, 22_050
# Of speech without a number; of the speech of one character.
PLAIN_HZ, CHARACTER_S = 300, 0.06
# Bytes of a piece: a sample is cut in half.
PIECE = 4001
SPEECH = TypeAdapter(SpeechCreateParams)


def fields_of(params):
    return {name for base in params.__mro__ for name in getattr(base, "__annotations__", {})} | set(params.__annotations__)


class SpeechServices:
    def __init__(self, port=0):
        self.port, self.violations, self.texts = port, [], []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.handle, HOST, self.port)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error):
        self.server.close()
        if not any(error):
            assert not self.violations, self.violations

    def url(self):
        return f"http://{HOST}:{self.port}/v1"

    async def handle(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, _, rest = head.partition("\r\n")
            headers = email.parser.HeaderParser(policy=email.policy.HTTP).parsestr(rest)
            body = await reader.readexactly(int(headers["content-length"]))
            if line == "POST /v1/audio/transcriptions HTTP/1.1":
                await self.transcribe(writer, headers["content-type"], body)
            elif line == "POST /v1/audio/speech HTTP/1.1":
                await self.speak(writer, json.loads(body))
            else:
                self.violations.append(line)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as error:
            self.violations.append(repr(error))
        finally:
            writer.close()

    async def transcribe(self, writer, content_type, body):
        message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
            f"Content-Type: {content_type}\r\n\r\n".encode() + body)
        parts = {part.get_param("name", header="content-disposition"): part for part in message.iter_parts()}
        if unknown := set(parts) - fields_of(TranscriptionCreateParamsNonStreaming):
            self.violations.append(f"unknown fields {unknown}")
        assert parts["model"].get_payload(decode=True).decode().strip() and parts["file"].get_filename().endswith(".wav")
        assert parts["file"].get_content_type() == "audio/wav"
        with wave.open(io.BytesIO(parts["file"].get_payload(decode=True))) as file:
            assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (RECOGNISER_HZ, 2, 1)
            samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2")
        hz = loudest_hz(samples, RECOGNISER_HZ)
        answer = Transcription(text=f"A tone of {hz} hertz." if hz else "").model_dump_json(exclude_none=True).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        await writer.drain()

    async def speak(self, writer, body):
        SPEECH.validate_python(body)
        if unknown := set(body) - fields_of(SpeechCreateParams):
            self.violations.append(f"unknown fields {unknown}")
        self.texts.append(body["input"])
        found = re.search(r"\d+", body["input"])
        is_pcm = body["response_format"] == "pcm"
        rate = PCM_HZ if is_pcm else WAV_HZ
        hz = 2 * int(found[0]) if found else PLAIN_HZ
        audio = tone(hz, rate, 0, round(len(body["input"]) * CHARACTER_S * rate)).tobytes()
        if not is_pcm:
            unknown = 0xFFFFFFFF
            audio = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", unknown, b"WAVEfmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", unknown) + audio
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: audio/{'pcm' if is_pcm else 'wav'}\r\nConnection: close\r\n\r\n".encode())
        for at in range(0, len(audio), PIECE):
            writer.write(audio[at:at + PIECE])
            await writer.drain()


async def main(port):
    async with SpeechServices(port) as server:
        print(f"listening on {server.url()}", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    try:
        asyncio.run(main(parser.parse_args().port))
    except KeyboardInterrupt:
        pass
