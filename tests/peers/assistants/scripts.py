"""What the scripted service does, by the name that a client gives as its model."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Script:
    # Status and code with which the service refuses the upgrade.
    refusal: tuple[int, str] | None = None
    # Code of the first event, which is an error, and of the close that follows; without an error the close follows at once.
    opening: tuple[str | None, int] | None = None
    # Never sends `session.created`.
    hangs: bool = False
    # Never answers a turn.
    silent: bool = False
    # Length of an answer, and how many times faster than it plays it is sent.
    answer_s: float = 2.0
    speed: float = 15.0
    # Messages of one answer, each of the length above.
    items: int = 1
    # The function calls of the first answer to each turn of the caller.
    calls: int = 0
    arguments: str = '{"city": "Bremen"}'
    # The built-in function to call, in place of the first that the client declares.
    function: str | None = None
    # The outcome of an answer, and the reason or the error code of it.
    outcome: tuple[str, str] = ("completed", "")
    # The share of an answer after which `then` happens, once per service.
    after: float = 1.0
    # "close" with the code and reason, "abort" without one, "expire", "stall", "flood", "huge", "oversize", "foreign".
    then: str | None = None
    code: tuple[int, str] = (1000, "")
    # The event behind which the connection is dropped, once per service.
    drops_behind: str | None = None
    # Sends each message in frames of one character.
    fragments: bool = False
    # Refuses each truncation as longer than the audio.
    refuses_truncation: bool = False
    # Refusals that this script provokes.
    expected_errors: frozenset[str] = frozenset()
    # The transcription comes after the answer.
    late_transcription: bool = False
    transcription_fails: bool = False


EXPIRED = (1001, "Your session hit the maximum duration of 60 minutes.")
SCRIPTS = {
    "plain": Script(),
    # The answer is still being made while the caller interrupts it.
    "slow": Script(answer_s=20, speed=1.3),
    "fast": Script(answer_s=20, speed=100),
    "long": Script(answer_s=300, speed=60),
    "items": Script(items=3, answer_s=1),
    "function": Script(calls=1),
    "functions": Script(calls=2),
    "broken-arguments": Script(calls=1, arguments='{"city": '),
    "end-call": Script(calls=1, arguments="{}", function="end_call"),
    "unauthorised": Script(refusal=(401, "invalid_api_key")),
    "forbidden": Script(refusal=(403, "unsupported_country_region_territory")),
    "missing": Script(refusal=(404, "model_not_found")),
    "retired": Script(opening=("beta_api_shape_disabled", 4000)),
    "unpaid": Script(opening=("insufficient_quota", 1000)),
    "full": Script(opening=(None, 1008)),
    "hangs": Script(hangs=True),
    "silent": Script(silent=True),
    "failed": Script(answer_s=0, outcome=("failed", "server_error")),
    "limited": Script(answer_s=0, outcome=("failed", "rate_limit_exceeded")),
    "incomplete": Script(outcome=("incomplete", "max_output_tokens")),
    "filtered": Script(outcome=("incomplete", "content_filter")),
    "expires": Script(answer_s=10, after=0.5, speed=2, then="expire", code=EXPIRED),
    "restarts": Script(answer_s=10, after=0.5, speed=2, then="close", code=(1012, "service restart")),
    "lost": Script(answer_s=10, after=0.5, speed=2, then="abort"),
    "stalls": Script(answer_s=10, after=0.5, then="stall"),
    "ends": Script(then="close", code=(1000, "")),
    "floods": Script(answer_s=10, after=0.2, speed=2, then="flood"),
    "huge": Script(answer_s=10, after=0.2, speed=2, then="huge"),
    "oversize": Script(answer_s=10, after=0.2, speed=2, then="oversize"),
    "foreign": Script(answer_s=10, after=0.2, speed=2, then="foreign", expected_errors=frozenset(
        {"invalid_tool_call_id", "conversation_already_has_active_response"})),
    "fragments": Script(answer_s=0.5, fragments=True),
    "short": Script(answer_s=20, speed=100, refuses_truncation=True, expected_errors=frozenset({"truncation_too_long"})),
    "late-transcription": Script(late_transcription=True),
    "no-transcription": Script(transcription_fails=True),
}

# A service that vanishes behind each step of a session and of a turn.
STEPS = (
    "session.created", "session.updated", "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
    "response.created", "response.output_item.added", "response.output_audio.delta", "response.done",
)
SCRIPTS |= {f"drops-{step}": Script(drops_behind=step) for step in STEPS}
