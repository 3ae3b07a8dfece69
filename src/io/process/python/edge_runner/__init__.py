"""Runs a bot file in Python for the runner: one process per call, its media over `media_url`.

`run` executes the file, `hooks` redirects what the file imports of Pipecat's runner and transports,
`transport` is the Pipecat transport, `media` the connection to the runner, `pacing` the clock of
speech, `warm` the start before a call. Nothing of Pipecat is imported before the file imports it.
"""


class Refused(Exception):
    """The bot asks for what the runner cannot do. The text is one sentence for its author."""
