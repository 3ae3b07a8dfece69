//! Calls that the runner dials by a provider's API.
//!
//! In: the JSON of `POST /calls`, and the responses of the provider. Out: the requests to the
//! provider, and what became of the call. The provider fetches markup from the runner's webhook
//! when the call is answered, as for a call that comes in; the query of that URL names the call,
//! and is known to the provider alone. Rejects numbers that are not E.164, unknown members, and
//! long bodies. [`ledger`] remembers calls and retries, and [`metrics`] counts them. Source:
//! `docs/spec/telephony.md` 13.

pub mod ledger;
pub mod metrics;

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::hangup;
pub use super::outgoing::OutgoingCall;
use super::provider::Provider;
use super::settings::Settings;
use crate::answered_by::AnsweredBy;
use crate::calls::CallOutcome;
use crate::limits::HANG_UP_ID_BYTES_MAX;
use crate::server::form;
use crate::server::rest::RestRequest;

/// Bytes of the `body` of a call, which waits until the call is answered.
pub const DIALLED_BODY_BYTES_MAX: usize = 16 * 1024;
/// Digits of a telephone number: those of ITU-T E.164, and of the shortest national numbers.
const NUMBER_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;
/// The parameters of the webhook's URL.
pub const DIALLED: &str = "dialled";
pub const ANSWERED: &str = "answered";
pub const ENDED: &str = "ended";
/// The member of all providers' reports that says how a call ended.
const STATUS: &str = "CallStatus";

/// Returns whether a text is a telephone number as ITU-T E.164 writes it.
pub fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or_default();
    NUMBER_DIGITS.contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0')
}

/// What a client of `POST /calls` asks for.
#[derive(Clone, PartialEq, Eq)]
pub struct OutboundRequest {
    /// The number to call.
    pub to: String,
    /// The number that the called person sees, one of the account.
    pub from: String,
    /// Whether the provider is to detect answering machines.
    pub detects_machine: bool,
    /// The name of the bot, of a runner with several.
    pub bot: Option<String>,
    /// The body of the session, if it has one.
    pub body: Option<Map<String, Value>>,
}

impl fmt::Debug for OutboundRequest {
    /// Omits the numbers and the body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundRequest")
            .field("detects_machine", &self.detects_machine)
            .finish_non_exhaustive()
    }
}

/// Why a request cannot be dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboundRequestError {
    /// The request is no JSON object with known members of their types.
    Json,
    /// The value of this member is no number.
    Number(&'static str),
    /// Caller and callee are the same.
    SameNumber,
    /// The `body` has too many bytes.
    Body,
}

impl fmt::Display for OutboundRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutboundRequestError::Json => f.write_str(
                "send a JSON object with `to`, and if wanted `from`, `bot`, `machine_detection` (true or false) and `body` (an object)",
            ),
            OutboundRequestError::Number(member) => {
                write!(f, "`{member}` has to be a number in the form of E.164, such as +15550001111")
            }
            OutboundRequestError::SameNumber => f.write_str("`to` and `from` are the same number"),
            OutboundRequestError::Body => write!(f, "`body` has more than {DIALLED_BODY_BYTES_MAX} bytes of JSON"),
        }
    }
}

impl std::error::Error for OutboundRequestError {}

impl OutboundRequest {
    /// Reads a request; calls come from the number `from` unless it names another one.
    ///
    /// # Errors
    /// [`OutboundRequestError`].
    pub fn parse(json: &[u8], from: &str) -> Result<Self, OutboundRequestError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct OutboundMembers {
            to: String,
            from: Option<String>,
            #[serde(default)]
            machine_detection: bool,
            bot: Option<String>,
            body: Option<Map<String, Value>>,
        }
        let asked: OutboundMembers = serde_json::from_slice(json).map_err(|_| OutboundRequestError::Json)?;
        let from = asked.from.unwrap_or_else(|| from.to_owned());
        for (member, number) in [("to", &asked.to), ("from", &from)] {
            if !is_number(number) {
                return Err(OutboundRequestError::Number(member));
            }
        }
        if asked.to == from {
            return Err(OutboundRequestError::SameNumber);
        }
        let body = asked.body.map(Value::Object);
        if body
            .as_ref()
            .is_some_and(|body| body.to_string().len() > DIALLED_BODY_BYTES_MAX)
        {
            return Err(OutboundRequestError::Body);
        }
        Ok(OutboundRequest {
            to: asked.to,
            from,
            detects_machine: asked.machine_detection,
            bot: asked.bot,
            body: body.and_then(|body| match body {
                Value::Object(body) => Some(body),
                _ => None,
            }),
        })
    }
}

/// What became of a request to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialOutcome {
    /// The provider dials; its id of the call.
    Placed(String),
    /// It does not, for this reason; the same request may be made again.
    Refused(String),
    /// It is not known whether it does.
    Unknown(String),
}

/// One request to dial, at one provider. The texts of outcomes contain no number.
pub struct Dialling<'d> {
    pub provider: &'d Provider,
    pub settings: &'d Settings,
    pub request: &'d OutboundRequest,
    /// The public host of the runner.
    pub host: &'d str,
    /// The session that the call will be.
    pub id: &'d str,
}

impl Dialling<'_> {
    /// Returns the request that finds the application of the caller's number, where one is needed.
    pub fn lookup(&self) -> Option<RestRequest> {
        self.provider.protocol.dial_lookup(&self.request.from, self.settings)
    }

    /// Returns the application of the caller's number from the response.
    ///
    /// # Errors
    /// Why there is none.
    pub fn application(&self, status: u16, body: &[u8]) -> Result<String, String> {
        if !(200..=299).contains(&status) {
            return Err(hangup::refusal(status, body));
        }
        let found = self.provider.protocol.dial_application(&self.request.from, body);
        found.ok_or_else(|| "the number in `from` is not one of the account with an application for calls".to_owned())
    }

    /// Returns the request that dials; `None` if the provider cannot, or a credential is missing.
    pub fn request(&self, application: Option<&str>) -> Option<RestRequest> {
        let url = |name: &str| format!("https://{}/?{name}={}", self.host, self.id);
        let report_url = self.request.detects_machine.then(|| url(ANSWERED));
        let call = OutgoingCall {
            to: &self.request.to,
            from: &self.request.from,
            application,
            answer_url: &url(DIALLED),
            report_url: report_url.as_deref(),
            end_url: &url(ENDED),
        };
        self.provider.protocol.dial(&call, self.settings)
    }

    /// Returns the meaning of the response to [`Dialling::request`]. A server that fails may have
    /// dialled.
    pub fn outcome(&self, status: u16, body: &[u8]) -> DialOutcome {
        match status {
            200..=299 => {
                let body: Value = serde_json::from_slice(body).unwrap_or_default();
                let id = self.provider.protocol.dialled_id(&body);
                DialOutcome::Placed(id.filter(|id| id.len() <= HANG_UP_ID_BYTES_MAX).unwrap_or_default())
            }
            408 | 500..=599 => DialOutcome::Unknown(hangup::refusal(status, body)),
            _ => DialOutcome::Refused(hangup::refusal(status, body)),
        }
    }
}

/// Returns who answered, from the form of a report.
pub fn answered_by(provider: &Provider, form: &[u8]) -> AnsweredBy {
    provider.protocol.answered_by(&form::parse(form))
}

/// Returns how a call ended that became no session, from the form of a report; `None` if it goes
/// on.
pub fn outcome_of(form: &[u8]) -> Option<CallOutcome> {
    let form = form::parse(form);
    CallOutcome::of_dialled(form::find(&form, STATUS).unwrap_or_default())
}

#[cfg(test)]
mod tests;
