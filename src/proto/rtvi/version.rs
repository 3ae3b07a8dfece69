//! The answer to the version that a client states in `client-ready`.
//!
//! In: the text of the version, if any. Out: the version for `bot-ready`, the error response before
//! it, and whether the client uses protocol 1. No version ends a session.

use super::{MAJOR, VERSION, clip};
use crate::limits::RTVI_ECHO_CHARS_MAX;

/// The result of `client-ready`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The version in `bot-ready`.
    pub version: String,
    /// The text of the `error-response` that is sent before `bot-ready`.
    pub complaint: Option<String>,
    /// Whether the client uses protocol 1, which has no segments in `bot-output`.
    pub legacy: bool,
}

impl Handshake {
    /// Evaluates the version of a client.
    pub fn new(version: Option<&str>) -> Self {
        let complaint = match version.map(|version| (version, numbers(version))) {
            Some((_, Some([MAJOR, _, _]))) => None,
            Some((_, Some([1, minor, patch]))) => {
                return Handshake {
                    version: format!("1.{minor}.{patch}"),
                    complaint: None,
                    legacy: true,
                };
            }
            Some((version, Some(_))) => Some(format!(
                "RTVI version {} is not compatible with server protocol {VERSION}.",
                clip(version, RTVI_ECHO_CHARS_MAX)
            )),
            Some((version, None)) => Some(format!(
                "Invalid client version format ({}).",
                clip(version, RTVI_ECHO_CHARS_MAX)
            )),
            None => Some("Client version unknown.".to_owned()),
        };
        Handshake {
            version: VERSION.to_owned(),
            complaint: complaint.map(|complaint| format!("{complaint} Compatibility issues may occur.")),
            legacy: false,
        }
    }
}

/// Parses three integers separated by dots.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.split('.').map(|part| {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| digits)
    });
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}
