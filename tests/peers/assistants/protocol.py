"""Messages of the Realtime protocol, checked with the types of the published `openai` package.

The package's own classes accept unknown keys, which the original service refuses. So a message of a client must, besides being
valid in strict mode, consist of declared fields only, at every depth.
"""

import typing

import pydantic
from openai.types.realtime import (
    RealtimeClientEvent, RealtimeServerEvent, RealtimeSessionCreateResponse, RealtimeTranscriptionSessionCreateRequest,
)


def by_type(union):
    """The classes of a union of events by the value of their field `type`."""
    events = typing.get_args(typing.get_args(union)[0])
    return {typing.get_args(event.model_fields["type"].annotation)[0]: event for event in events}


SERVER_EVENTS = by_type(RealtimeServerEvent)
CLIENT_EVENTS = by_type(RealtimeClientEvent)
# For audio over WebRTC and telephone lines of the service itself.
NOT_ON_A_SOCKET = {"output_audio_buffer.clear"}


class Refused(Exception):
    """What is wrong with a message of a client, in the form of the service's error."""

    def __init__(self, code, message, param=None, kind="invalid_request_error"):
        super().__init__(f"{code}: {message}")
        self.error = {"type": kind, "code": code, "message": message, "param": param}


def undeclared(value, path=""):
    """The paths of all keys that no class declares."""
    if isinstance(value, pydantic.BaseModel):
        yield from (f"{path}.{key}".strip(".") for key in value.model_extra or {})
        for name, field in type(value).model_fields.items():
            yield from undeclared(getattr(value, name), f"{path}.{field.alias or name}".strip("."))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from undeclared(each, f"{path}[{number}]")


def check_valid(message):
    """The event; an error when a service sent something that the package's types do not accept."""
    return SERVER_EVENTS[message["type"]].model_validate(message, strict=True)


def check_sent(message):
    """Raises an error when our service would send something that the package's types do not describe."""
    event = check_valid(message)
    unknown = list(undeclared(event))
    if "session" in message:
        # The events declare what a client may set; the service adds fields that the answer to a REST request declares.
        unknown = list(undeclared(RealtimeSessionCreateResponse.model_validate(message["session"], strict=True)))
    if unknown:
        raise AssertionError(f"{message['type']} has no {unknown}")


def check_received(message):
    """Raises `Refused` for a message that the original service would refuse for its form."""
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise Refused("invalid_json", "a message is an object with a `type`")
    kind = message["type"]
    if kind not in CLIENT_EVENTS or kind in NOT_ON_A_SOCKET:
        raise Refused("unknown_event", f"no event {kind}", "type")
    try:
        event = CLIENT_EVENTS[kind].model_validate(message, strict=True)
    except pydantic.ValidationError as error:
        found = error.errors(include_input=False, include_url=False)[0]
        raise Refused("invalid_value", found["msg"], ".".join(map(str, found["loc"]))) from None
    if unknown := list(undeclared(event)):
        raise Refused("unknown_parameter", f"Unknown parameter: {unknown[0]}", unknown[0])
    if kind == "session.update" and isinstance(event.session, RealtimeTranscriptionSessionCreateRequest):
        raise Refused("invalid_value", "not a session of this model", "session.type")
    if len(message.get("event_id") or "") > 512:
        raise Refused("invalid_value", "the event id is too long", "event_id")
