//! What the engine of an assistant asks its driver to do, tells the client, and counts.

use std::time::Duration;

use super::answer_stopwatch::MeasuredAnswer;
#[cfg(test)]
use crate::audio::g711::Law;
use crate::audio::g711::LineLaws;
use crate::secret::Secret;

/// The caller of a session.
#[derive(Clone, Copy, Debug)]
pub struct CallProfile {
    pub line: Line,
    /// Whether the client can run functions and show texts.
    pub has_page: bool,
    pub is_telephone: bool,
    /// Whether the model may end the call: callers without a page cannot see that it is over.
    pub can_hang_up: bool,
    /// Whether to greet when the client is ready, not when it joins.
    pub greet_on_ready: bool,
}

/// The audio of a session, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// 16-bit PCM at 24 kHz.
    Pcm24k,
    /// G.711 at 8 kHz.
    G711(LineLaws),
}

impl CallProfile {
    /// A caller in a browser, for tests.
    #[cfg(test)]
    pub const BROWSER: CallProfile = CallProfile {
        line: Line::Pcm24k,
        has_page: true,
        is_telephone: false,
        can_hang_up: false,
        greet_on_ready: false,
    };
    /// A caller on a telephone, for tests.
    #[cfg(test)]
    pub const TELEPHONE: CallProfile = CallProfile {
        line: Line::G711(LineLaws {
            inbound: Law::Mu,
            outbound: Law::Mu,
        }),
        has_page: false,
        is_telephone: true,
        can_hang_up: true,
        greet_on_ready: false,
    };
}

impl Line {
    /// Returns the rate of the PCM that the engine takes and gives.
    pub fn rate_hz(self) -> u32 {
        match self {
            Line::Pcm24k => 24_000,
            Line::G711(_) => 8_000,
        }
    }
}

/// A connection to open. An older one is dropped.
#[derive(Clone, Debug)]
pub struct ServiceConnect {
    pub url: String,
    /// Names in lower case.
    pub headers: Vec<(&'static str, Secret)>,
}

/// Why a connection was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The service answered with this status, and with the code in its body.
    Refused {
        status: u16,
        code: Option<String>,
    },
    Unreachable(String),
    TimedOut,
}

/// The end of a piece of speech, for the mark behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechMark(pub String);

/// A function that the model calls.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCall {
    pub call_id: String,
    pub name: String,
    /// A JSON object.
    pub arguments: serde_json::Value,
}

/// An output of the engine.
#[derive(Clone, Debug)]
pub enum RealtimeOutput {
    Connect(ServiceConnect),
    /// Close the connection.
    Disconnect {
        code: u16,
    },
    /// Send a text frame.
    Send(String),
    /// Drop the queued speech, and the piece that waits to be queued.
    Interrupt,
    Report(ClientReport),
    /// Run a function of the operator, and give its result to the engine.
    RunFunction(FunctionCall),
    Count(AssistantCount),
    Log(ServiceLog),
    /// The session is over once the remaining speech has been played.
    End(EndReason),
}

/// A line of the log. It holds no text of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceLog {
    Connected,
    /// A failure after which the session goes on.
    Failed(String),
}

/// Why a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// In good order.
    Done(&'static str),
    /// The service cannot be used, for this reason.
    Failed(String),
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientReport {
    UserStartedSpeaking,
    UserStoppedSpeaking,
    Transcript {
        text: String,
        is_final: bool,
    },
    UserLlmText(String),
    LlmStarted,
    LlmText(String),
    LlmStopped,
    /// A sentence that will be spoken.
    SentenceBegins {
        id: u32,
        text: String,
    },
    /// How many bytes of a sentence have been spoken.
    SentenceSpoken {
        id: u32,
        bytes: usize,
    },
    /// Text that is not spoken.
    Shown(String),
    /// The answer begins to play.
    FirstSound(MeasuredAnswer),
    Tokens(TokenUsage),
    FunctionStarted(FunctionCall),
    FunctionStopped {
        call_id: String,
        name: String,
        is_cancelled: bool,
    },
    /// An answer failed; the session goes on.
    Error {
        text: &'static str,
    },
}

/// Tokens of one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    pub input: u64,
    pub output: u64,
    pub cached: u64,
    pub total: u64,
}

/// Something to count in the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssistantCount {
    Connection(ConnectionOutcome),
    Reconnect,
    Response(ResponseStatus),
    BargeIn,
    Error(ErrorClass),
    /// Audio sent to the service.
    AudioSent(Duration),
    /// Audio received from the service.
    AudioReceived(Duration),
    Tokens(TokenUsage),
    FirstSound(Duration),
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionOutcome {
    Ok,
    Refused,
    Unreachable,
    Auth,
    Quota,
    Expired,
    Lost,
}

impl ConnectionOutcome {
    /// Labels, in order.
    pub const LABELS: [&str; 7] = ["ok", "refused", "unreachable", "auth", "quota", "expired", "lost"];
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseStatus {
    Completed,
    Cancelled,
    Incomplete,
    Failed,
}

impl ResponseStatus {
    /// Labels, in order.
    pub const LABELS: [&str; 4] = ["completed", "cancelled", "incomplete", "failed"];

    /// Parses the status of a response; unknown ones count as failed.
    pub fn parse(text: &str) -> Self {
        match text {
            "completed" => ResponseStatus::Completed,
            "cancelled" => ResponseStatus::Cancelled,
            "incomplete" => ResponseStatus::Incomplete,
            _ => ResponseStatus::Failed,
        }
    }
}

/// The class of an error of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// It changes nothing.
    Harmless,
    /// The key is invalid.
    Auth,
    /// The account cannot pay.
    Quota,
    /// The session of the service has reached its age limit.
    Expired,
    /// The service does not understand this client.
    Protocol,
    /// The next response may succeed.
    Transient,
}

impl ErrorClass {
    /// Labels, in order.
    pub const LABELS: [&str; 6] = ["harmless", "auth", "quota", "expired", "protocol", "transient"];

    /// Returns the words for the log and the doctor.
    pub fn words(self) -> &'static str {
        match self {
            ErrorClass::Harmless => "it reports a harmless error",
            ErrorClass::Auth => "it does not accept the key",
            ErrorClass::Quota => "the account has no credit or has reached its limit",
            ErrorClass::Expired => "its session has expired",
            ErrorClass::Protocol => "it does not accept the settings: check model, voice and REALTIME_DIALECT",
            ErrorClass::Transient => "it has a temporary fault",
        }
    }

    /// Returns whether a new connection would fail as well.
    pub fn is_final(self) -> bool {
        matches!(self, ErrorClass::Auth | ErrorClass::Quota | ErrorClass::Protocol)
    }
}
