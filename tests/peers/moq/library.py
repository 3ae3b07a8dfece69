"""A peer on PyPI's moq-rs, of version 0.4 or 0.5. argv[1] is a JSON object: url, hash (hex of the certificate's, or null), publish
and consume (paths of broadcasts), transcript (name of the track), hz.

It publishes a tone, listens, and passes records of RTVI on. With 0.5 the library connects again when the connection is lost.
"""

import asyncio
import json
import sys
from importlib.metadata import version

import moq

from wire import Recording, commands, frames, tell

RATE = 48_000
NEW = version("moq-rs") >= "0.5"
# Pipecat's `audio_in_max_latency_ms`.
LATE_MS = 500


def encoder(broadcast):
    if NEW:
        made = moq.AudioEncoderInput(format=moq.AudioSampleFormat.S16, sample_rate=RATE, channels=1)
        into = moq.AudioEncoderOutput(
            codec=moq.AudioCodec.opus(), sample_rate=RATE, channels=None, bitrate=None, frame_duration_us=20_000)
        return broadcast.encode_audio("microphone", made, into)
    made = moq.AudioEncoderInput(format=moq.AudioFormat.S16, sample_rate=RATE, channels=1)
    into = moq.AudioEncoderOutput(codec=moq.AudioCodec.OPUS, sample_rate=RATE, channels=None, bitrate=None, frame_duration_ms=20)
    return broadcast.publish_audio("microphone", made, into)


async def decoder(broadcast, name, track):
    if NEW:
        into = moq.AudioDecoderOutput(
            format=moq.AudioSampleFormat.S16, sample_rate=RATE, channels=1, max_age_us=LATE_MS * 1000)
        return await broadcast.decode_audio(name, track, into)
    into = moq.AudioDecoderOutput(format=moq.AudioFormat.S16, sample_rate=RATE, channels=1, latency_max_ms=LATE_MS)
    return await broadcast.subscribe_audio(name, track, into)


async def listen(broadcast, recording):
    async for catalog in await broadcast.subscribe_catalog():
        if catalog.audio:
            name, track = next(iter(catalog.audio.items()))
            tell("catalog", name=name, codec=track.codec, rate=track.sample_rate, channels=track.channel_count)
            async for frame in await decoder(broadcast, name, track):
                recording.take(frame.data)
            return


async def read(broadcast, transcript):
    async for record in await broadcast.subscribe_json_stream(transcript, compression=True):
        tell("record", record=record)


async def consume(origin, spec, recording):
    """Follows the bot's broadcast, again after each time it ended."""
    while True:
        broadcast = await origin.consume().announced_broadcast(spec["consume"]).available()
        tell("joined")
        ends = await asyncio.gather(
            listen(broadcast, recording), read(broadcast, spec["transcript"]), return_exceptions=True)
        tell("left", why=[repr(end) for end in ends if end])
        await asyncio.sleep(0.1)


async def speak(audio, hz):
    async for pcm, timestamp_us in frames(hz, RATE):
        audio.write(moq.AudioFrame(timestamp_us=timestamp_us, data=pcm))


async def closed(session):
    try:
        await session.closed()
        tell("closed", why="")
    except moq.Error as error:
        tell("closed", why=repr(error))


async def main(spec):
    published, consumed, recording = moq.OriginProducer(), moq.OriginProducer(), Recording(RATE)
    broadcast = published.create_broadcast(spec["publish"])
    log = broadcast.publish_json_stream(spec["transcript"], compression=True)
    audio = encoder(broadcast)
    if NEW:
        broadcast.announce()
    trust = {"tls_fingerprints": [spec["hash"]]} if spec["hash"] else {"tls_verify": False}
    try:
        async with moq.Client(spec["url"], publish=published, subscribe=consumed, **trust) as client:
            tell("connected")
            tasks = [asyncio.create_task(task) for task in (
                consume(consumed, spec, recording), speak(audio, spec["hz"]), closed(client.session))]
            async for command in commands():
                if "send" in command:
                    log.append(command["send"])
                elif "hear" in command:
                    tasks.append(asyncio.create_task(recording.hear(command["hear"])))
                else:
                    break
            # As Pipecat waits for its last record to be sent.
            await asyncio.sleep(0.25)
            for task in tasks:
                task.cancel()
            for track in (audio, log):
                track.finish()
            broadcast.close() if NEW else broadcast.finish()
            # The library sends nothing more once its session is shut down, and a process that ends sends nothing at all.
            await asyncio.sleep(0.25)
    except moq.Error as error:
        tell("refused", why=repr(error))


asyncio.run(main(json.loads(sys.argv[1])))
