//! Why a connection to a room ended, in words for the operator.
//!
//! Source: `docs/spec/livekit.md` 2 and 3.2.

use std::fmt;

use crate::livekit::signal::LeaveAction;
use crate::livekit::wire::SignalTarget;

/// Why a connection failed or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DisconnectCause {
    /// The server did not answer, with the reason.
    Unreachable(String),
    /// The server answered with something else than a WebSocket.
    Refused {
        status: u16,
        /// The body of the answer, logged at DEBUG only.
        text: String,
    },
    /// The socket was closed or broke.
    SocketClosed,
    /// The server was silent for too long.
    PingTimeout,
    /// The server sent an invalid message.
    BadMessage(String),
    /// A session description of the server cannot be used.
    BadDescription(String),
    /// A peer connection did not come up in time, or broke; what was tried.
    NoMedia { target: SignalTarget, tried: String },
    /// A peer connection was closed by the server, or failed for good.
    MediaClosed(SignalTarget),
    /// The server does not resume the connection.
    NotResumed,
    /// The track was not published in time.
    NotPublished,
    /// The server does not let us publish.
    PublishRefused(String),
    /// The server ended the connection.
    Ended { reason: i32, action: LeaveAction },
}

impl fmt::Display for DisconnectCause {
    /// Explains the cause to the operator, without keys and names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DisconnectCause::Unreachable(words) => write!(f, "the LiveKit server cannot be reached: {words}; is MEDIAROOM_URL right?"),
            DisconnectCause::Refused { status: 401, .. } => f.write_str(
                "the LiveKit server refused the token (401): MEDIAROOM_API_KEY and MEDIAROOM_API_SECRET must be \
                 those of the server, and the clock of this machine must be right",
            ),
            DisconnectCause::Refused { status: 404, .. } => f.write_str(
                "there is no LiveKit server at MEDIAROOM_URL, or it does not create rooms and has none of this name (404)",
            ),
            DisconnectCause::Refused { status: 400, .. } => {
                f.write_str("the LiveKit server rejects the room or the name (400): is MEDIAROOM_ROOM_NAME too long?")
            }
            DisconnectCause::Refused { status: 101 | 200, .. } => {
                f.write_str("the server at MEDIAROOM_URL is not a LiveKit server: it does not open a WebSocket")
            }
            DisconnectCause::Refused { status: 429 | 500..=599, .. } => {
                write!(f, "the LiveKit server accepts no participants at the moment ({})", self.status())
            }
            DisconnectCause::Refused { status, .. } => write!(f, "the LiveKit server refused with {status}: is MEDIAROOM_URL right?"),
            DisconnectCause::SocketClosed => f.write_str("the LiveKit server closed the signalling connection"),
            DisconnectCause::PingTimeout => f.write_str("the LiveKit server fell silent"),
            DisconnectCause::BadMessage(words) => write!(f, "the LiveKit server sent an invalid message: {words}"),
            DisconnectCause::BadDescription(words) => {
                write!(f, "the LiveKit server sent a session description that cannot be used: {words}")
            }
            DisconnectCause::NoMedia { target, tried } => {
                let direction = match target {
                    SignalTarget::Publisher => "to",
                    SignalTarget::Subscriber => "from",
                };
                write!(
                    f,
                    "no media connection {direction} the LiveKit server: is UDP open from this machine to the server's ports? ({tried})"
                )
            }
            DisconnectCause::MediaClosed(_) => f.write_str("the LiveKit server closed a media connection"),
            DisconnectCause::NotResumed => f.write_str("the LiveKit server does not resume the session"),
            DisconnectCause::NotPublished => f.write_str("the LiveKit server did not publish the bot's track in time"),
            DisconnectCause::PublishRefused(words) => write!(f, "the LiveKit server does not let the bot publish: {words}"),
            DisconnectCause::Ended { reason, .. } => {
                write!(f, "the LiveKit server ended the connection: {}", reason_text(*reason))
            }
        }
    }
}

impl DisconnectCause {
    fn status(&self) -> u16 {
        match self {
            DisconnectCause::Refused { status, .. } => *status,
            _ => 0,
        }
    }
}

/// Describes a disconnect reason, `docs/spec/livekit.md` 3.2.
fn reason_text(reason: i32) -> String {
    let words = match reason {
        1 => "as the client asked",
        2 => "another participant joined with the same identity",
        3 => "it is shutting down",
        4 => "the participant was removed",
        5 => "the room was deleted",
        6 => "its state and ours do not match",
        7 => "the join failed",
        9 => "its signalling was closed",
        10 => "the room was closed",
        14 => "the connection timed out",
        15 => "the media failed",
        16 => "the agent failed",
        other => return format!("reason {other}"),
    };
    words.to_owned()
}
