//! Errors of Daily's REST API, in words that a client's user and the operator can act on.
//!
//! In: status and body of an answer, and the key, so that an echo of it is removed. Out: the JSON
//! of a success, or a [`DailyError`]. It repeats Daily's own `error` and `info`, without anything
//! that could be a number, an id or a key. Source: `docs/spec/daily.md` 1.3.

use std::fmt;

use serde_json::Value;

use crate::aliases::{self, Area};
use crate::limits::ROOM_WITHIN;
use crate::secret::Secret;
use crate::server::rest::redact_reason;

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiStep {
    Room,
    Token,
    /// Connecting a held call to its room.
    Connect,
}

impl fmt::Display for ApiStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ApiStep::Room => "making a video room",
            ApiStep::Token => "making a token for the video room",
            ApiStep::Connect => "connecting the call to its room",
        })
    }
}

/// Why there is no room or no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DailyError {
    NoKey,
    /// The configured room URL is invalid.
    RoomUrl,
    /// Daily refused the request.
    Refused {
        step: ApiStep,
        status: u16,
        /// Daily's stable word for the error.
        kind: Option<String>,
        /// Daily's sentence about it.
        info: Option<String>,
    },
    /// The answer is a success without usable content.
    Unreadable {
        step: ApiStep,
        what: &'static str,
    },
    /// No complete answer arrived.
    Unanswered {
        step: ApiStep,
        why: String,
    },
    /// All steps together took too long.
    TooSlow,
}

impl fmt::Display for DailyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DailyError::NoKey => {
                f.write_str("VIDEOROOM_API_KEY")?;
                for alias in aliases::aliases(Area::Variable, "VIDEOROOM_API_KEY") {
                    write!(f, " (or {alias})")?;
                }
                f.write_str(" is not set, and no video room or token is made without it")
            }
            DailyError::RoomUrl => f.write_str(
                "the room of VIDEOROOM_ROOM_URL or VIDEOROOM_SAMPLE_ROOM_URL is none: it has to be an http or https URL with the \
                 room's name as its path",
            ),
            DailyError::Refused {
                step,
                status,
                kind,
                info,
            } => {
                write!(f, "{step}: the provider answered {status}")?;
                match (kind, info) {
                    (Some(kind), Some(info)) => write!(f, " ({kind}: {info})")?,
                    (Some(words), None) | (None, Some(words)) => write!(f, " ({words})")?,
                    (None, None) => {}
                }
                match hint(*step, *status, kind.as_deref()) {
                    "" => Ok(()),
                    hint => write!(f, "; {hint}"),
                }
            }
            DailyError::Unreadable { step, what } => {
                write!(
                    f,
                    "{step}: the provider's answer cannot be used, {what}; is VIDEOROOM_API_URL right?"
                )
            }
            DailyError::Unanswered { step, why } => write!(f, "{step}: {why}"),
            DailyError::TooSlow => write!(
                f,
                "making a video room and its token took longer than {} s",
                ROOM_WITHIN.as_secs()
            ),
        }
    }
}

impl std::error::Error for DailyError {}

/// Returns what to do about an error; empty if there is no advice.
fn hint(step: ApiStep, status: u16, kind: Option<&str>) -> &'static str {
    match (status, step) {
        (300..=399, _) => "a redirect, which is not followed; is VIDEOROOM_API_URL right?",
        (400, _) if kind == Some("authorization-header-error") => {
            "VIDEOROOM_API_KEY is not one that it can read; is it whole?"
        }
        (400, ApiStep::Room | ApiStep::Token) => "it does not take what was asked of the room or the token",
        (401, _) => "it does not take VIDEOROOM_API_KEY",
        (403, _) => "VIDEOROOM_API_KEY does not allow it",
        (404, ApiStep::Token) => "is VIDEOROOM_API_URL right, and the room there?",
        (404, ApiStep::Room) => "is VIDEOROOM_API_URL right?",
        (404, ApiStep::Connect) => "the call is over, or was never held",
        (429, _) => "there are too many requests of this account; try again later",
        (500..=599, _) => "it has trouble of its own; try again later",
        _ => "",
    }
}

/// Tells whether the same request may succeed a little later.
pub fn is_retryable(status: u16) -> bool {
    status == 429
}

/// Parses the JSON of an answer.
///
/// # Errors
/// [`DailyError::Refused`] if the status is not 2xx, [`DailyError::Unreadable`] if the body is not
/// a JSON object.
pub fn parse_answer(step: ApiStep, status: u16, body: &[u8], key: &Secret) -> Result<Value, DailyError> {
    let answer = serde_json::from_slice::<Value>(body);
    if !(200..=299).contains(&status) {
        let answer = answer.unwrap_or_default();
        return Err(DailyError::Refused {
            step,
            status,
            kind: answer["error"]
                .as_str()
                .filter(|kind| is_error_code(kind, key))
                .map(str::to_owned),
            info: answer["info"].as_str().and_then(|info| info_text(info, key)),
        });
    }
    match answer {
        Ok(answer) if answer.is_object() => Ok(answer),
        Ok(_) => Err(DailyError::Unreadable {
            step,
            what: "it is no JSON object",
        }),
        Err(_) => Err(DailyError::Unreadable {
            step,
            what: "it is no JSON",
        }),
    }
}

/// Tells whether a text looks like one of Daily's short error words, and does not contain the key.
fn is_error_code(text: &str, key: &Secret) -> bool {
    const LONGEST: usize = 40;
    !text.contains(key.expose())
        && (1..=LONGEST).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
}

fn info_text(info: &str, key: &Secret) -> Option<String> {
    let info = match key.expose() {
        "" => info.to_owned(),
        key => info.replace(key, "***"),
    };
    Some(redact_reason(&info)).filter(|info| !info.is_empty())
}
