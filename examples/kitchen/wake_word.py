"""A Wyoming service for wake words, around microWakeWord.

    python3 -m venv /opt/wake-word && /opt/wake-word/bin/pip install pymicro-wakeword
    /opt/wake-word/bin/python wake_word.py [HOST] [PORT]

The words are those of the package: okay_nabu (the default), hey_jarvis, hey_mycroft, alexa.
"""

import asyncio
import json
import sys

from pymicro_wakeword import MicroWakeWord, MicroWakeWordFeatures, Model

WORDS = {model.value: model for model in Model}
DEFAULT = "okay_nabu"
# Of a line, data or a payload.
BYTES_MAX = 64 * 1024


async def read_event(reader):
    """Returns type, data and payload of the next event, or None at the end."""
    line = await reader.readline()
    if not line:
        return None
    head = json.loads(line)
    lengths = [head.get(name) or 0 for name in ("data_length", "payload_length")]
    if any(not 0 <= length <= BYTES_MAX for length in lengths):
        raise ValueError("an event that is too long")
    data, payload = [await reader.readexactly(length) for length in lengths]
    return head["type"], {**(head.get("data") or {}), **(json.loads(data) if data else {})}, payload


def event(kind, data):
    body = json.dumps(data).encode()
    return json.dumps({"type": kind, "version": "1.10.2", "data_length": len(body)}).encode() + b"\n" + body


async def serve(reader, writer):
    """Listens for the words of one client."""
    models, features = {}, MicroWakeWordFeatures()
    try:
        while received := await read_event(reader):
            kind, data, payload = received
            if kind == "describe":
                words = [{"name": word, "installed": True, "languages": ["en"]} for word in WORDS]
                program = {"name": "microwakeword", "version": "2.5", "installed": True, "models": words}
                writer.write(event("info", {"wake": [program]}))
            elif kind == "detect":
                names = [word for word in data.get("names") or [DEFAULT] if word in WORDS]
                models = {word: MicroWakeWord.from_builtin(WORDS[word]) for word in names}
            elif kind == "audio-chunk":
                for window in features.process_streaming(payload):
                    found = [word for word, model in models.items() if model.process_streaming(window)]
                    for word in found:
                        writer.write(event("detection", {"name": word, "timestamp": data.get("timestamp")}))
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError, ValueError, KeyError) as error:
        print(f"a client: {error!r}", flush=True)
    finally:
        writer.close()


async def main():
    host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 10400
    server = await asyncio.start_server(serve, host, port, limit=BYTES_MAX)
    await server.serve_forever()


asyncio.run(main())
