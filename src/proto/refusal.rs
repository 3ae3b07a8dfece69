//! Why a caller gets no session, on any transport.

use std::fmt;

use crate::server::admission::AdmissionError;

/// Why a session, or a change of one, was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRefusal {
    /// The SDP cannot be answered, for this reason.
    BadSdp(String),
    /// No connection has this `pc_id`.
    UnknownConnection,
    /// Another replica, with this name, made the connection of this `pc_id`.
    OtherReplica(String),
    /// The session limit is reached.
    Full,
    /// The session limit of the bot with this name is reached.
    BotFull(String),
    /// The telephone may not call the bot with this name.
    CallerNotAllowed(String),
    /// The session limit of the source address is reached.
    SourceQuota,
    /// The runner is stopping.
    Stopping,
    /// No address can be offered to the device; the text names the required and the available ones.
    NoCandidate(String),
    /// The answer exceeds a microcontroller's buffers; the text says by how much.
    AnswerTooLong(String),
    /// This end failed to create an answer, for this reason.
    Internal(String),
}

impl SessionRefusal {
    /// Returns the name of the bot that takes no call; `None` for another reason.
    pub fn bot(&self) -> Option<&str> {
        match self {
            SessionRefusal::BotFull(name) | SessionRefusal::CallerNotAllowed(name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for SessionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionRefusal::BadSdp(why) => write!(f, "the offer's SDP cannot be answered: {why}"),
            SessionRefusal::UnknownConnection => f.write_str("Peer connection not found"),
            SessionRefusal::OtherReplica(name) => write!(
                f,
                "Peer connection not found: replica `{name}` made it; the balancer has to route by the first part of `pc_id`"
            ),
            SessionRefusal::Full => f.write_str("every session of this runner is taken; try again later"),
            SessionRefusal::BotFull(name) => {
                write!(f, "every session of the bot `{name}` is taken; try again later")
            }
            SessionRefusal::CallerNotAllowed(name) => {
                write!(f, "the number of the caller is none of `callers` of the bot `{name}`")
            }
            SessionRefusal::SourceQuota => f.write_str(
                "this address has its share of the sessions; try again later (a proxy that asks for many callers has to be \
                 trusted, see --trusted-proxies)",
            ),
            SessionRefusal::Stopping => f.write_str("this runner is stopping"),
            SessionRefusal::NoCandidate(why) => write!(f, "no address to offer: {why}"),
            SessionRefusal::AnswerTooLong(why) => write!(f, "the answer is too long for the client: {why}"),
            SessionRefusal::Internal(why) => write!(f, "no answer can be made: {why}"),
        }
    }
}

impl std::error::Error for SessionRefusal {}

impl From<AdmissionError> for SessionRefusal {
    fn from(refused: AdmissionError) -> Self {
        match refused {
            AdmissionError::Full => SessionRefusal::Full,
            AdmissionError::SourceShare => SessionRefusal::SourceQuota,
        }
    }
}
