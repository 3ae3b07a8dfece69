"""The published worker of LiveKit with a bot that joins and says nothing. Its packages are a folder of their own.

Its own load is that of the machine, which checks keep busy, so it reports a constant one.
"""

from livekit.agents import AgentServer, JobContext, cli

server = AgentServer(load_fnc=lambda *_: 0.25)


@server.rtc_session(agent_name="bot")
async def entrypoint(ctx: JobContext):
    await ctx.connect()


if __name__ == "__main__":
    cli.run_app(server)
