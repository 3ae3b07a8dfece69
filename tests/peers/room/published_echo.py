"""The published worker of LiveKit with a bot that echoes the first caller, as the built-in `echo` does.

Its own load is that of the machine, which the figures keep busy, so it reports a constant one.
"""

import asyncio

from livekit import rtc
from livekit.agents import AgentServer, AutoSubscribe, JobContext, cli

RATE = 48000

# On a busy machine a process takes longer than the default of 10 s to start.
server = AgentServer(load_fnc=lambda *_: 0.25, initialize_process_timeout=60)


@server.rtc_session(agent_name="bot")
async def entrypoint(ctx: JobContext):
    found = asyncio.Queue()
    ctx.room.on("track_subscribed", lambda track, *_: found.put_nowait(track))
    await ctx.connect(auto_subscribe=AutoSubscribe.AUDIO_ONLY)
    source = rtc.AudioSource(RATE, 1, queue_size_ms=200)
    track = rtc.LocalAudioTrack.create_audio_track("voice", source)
    await ctx.room.local_participant.publish_track(track, rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE))
    async for event in rtc.AudioStream(await found.get(), sample_rate=RATE, num_channels=1):
        await source.capture_frame(event.frame)


if __name__ == "__main__":
    cli.run_app(server)
