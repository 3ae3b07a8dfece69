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
use super::provider::Provider;
use super::settings::Settings;
use crate::bots;
use crate::limits::HANG_UP_ID_BYTES_MAX;
use crate::server::rest::RestRequest;

/// Bytes of the `body` of a call, which waits until the call is answered.
pub const DIALLED_BODY_BYTES_MAX: usize = 16 * 1024;
/// Digits of a telephone number: those of ITU-T E.164, and of the shortest national numbers.
const NUMBER_DIGITS: std::ops::RangeInclusive<usize> = 7..=15;
/// The parameters of the webhook's URL.
pub const DIALLED: &str = "dialled";
pub const ANSWERED: &str = "answered";

/// Who answered a call that the runner dialled, as far as the provider detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnsweredBy {
    /// A person.
    Human,
    /// An answering machine.
    Machine,
    /// A fax.
    Fax,
    /// The provider cannot tell.
    Unknown,
}

impl AnsweredBy {
    /// Returns the name in messages and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            AnsweredBy::Human => "human",
            AnsweredBy::Machine => "machine",
            AnsweredBy::Fax => "fax",
            AnsweredBy::Unknown => "unknown",
        }
    }

    /// Reads the word of a provider, such as `human` and `machine_start`.
    pub fn of_word(word: &str) -> Self {
        match word {
            "human" => AnsweredBy::Human,
            "fax" => AnsweredBy::Fax,
            _ if word.starts_with("machine") => AnsweredBy::Machine,
            _ => AnsweredBy::Unknown,
        }
    }
}

/// Returns whether a text is a telephone number as ITU-T E.164 writes it.
pub fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or_default();
    NUMBER_DIGITS.contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0')
}

/// What a client of `POST /calls` asks for.
#[derive(Clone, PartialEq, Eq)]
pub struct DialRequest {
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

impl fmt::Debug for DialRequest {
    /// Omits the numbers and the body.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialRequest")
            .field("detects_machine", &self.detects_machine)
            .finish_non_exhaustive()
    }
}

/// Why a request cannot be dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialRequestError {
    /// The request is no JSON object with known members of their types.
    Json,
    /// The value of this member is no number.
    Number(&'static str),
    /// Caller and callee are the same.
    SameNumber,
    /// The `body` has too many bytes.
    Body,
}

impl fmt::Display for DialRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialRequestError::Json => f.write_str(
                "send a JSON object with `to`, and if wanted `from`, `bot`, `machine_detection` (true or false) and `body` (an object)",
            ),
            DialRequestError::Number(member) => {
                write!(f, "`{member}` has to be a number in the form of E.164, such as +15550001111")
            }
            DialRequestError::SameNumber => f.write_str("`to` and `from` are the same number"),
            DialRequestError::Body => write!(f, "`body` has more than {DIALLED_BODY_BYTES_MAX} bytes of JSON"),
        }
    }
}

impl std::error::Error for DialRequestError {}

impl DialRequest {
    /// Reads a request; calls come from the number `from` unless it names another one.
    ///
    /// # Errors
    /// [`DialRequestError`].
    pub fn parse(json: &[u8], from: &str) -> Result<Self, DialRequestError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Asked {
            to: String,
            from: Option<String>,
            #[serde(default)]
            machine_detection: bool,
            bot: Option<String>,
            body: Option<Map<String, Value>>,
        }
        let asked: Asked = serde_json::from_slice(json).map_err(|_| DialRequestError::Json)?;
        let from = asked.from.unwrap_or_else(|| from.to_owned());
        for (member, number) in [("to", &asked.to), ("from", &from)] {
            if !is_number(number) {
                return Err(DialRequestError::Number(member));
            }
        }
        if asked.to == from {
            return Err(DialRequestError::SameNumber);
        }
        let body = asked.body.map(Value::Object);
        if body
            .as_ref()
            .is_some_and(|body| body.to_string().len() > DIALLED_BODY_BYTES_MAX)
        {
            return Err(DialRequestError::Body);
        }
        Ok(DialRequest {
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

/// A call as its provider is asked for it.
pub struct OutgoingCall<'c> {
    pub to: &'c str,
    pub from: &'c str,
    /// The application of the account that the call belongs to, where there are any.
    pub application: Option<&'c str>,
    /// Where the provider fetches the markup of the call.
    pub answer_url: &'c str,
    /// Where it reports who answered; `None` if it need not detect that.
    pub report_url: Option<&'c str>,
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
    pub request: &'d DialRequest,
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
    /// The bot is known, so its name needs no encoding.
    pub fn request(&self, application: Option<&str>) -> Option<RestRequest> {
        let url = |name: &str| format!("https://{}/?{name}={}", self.host, self.id);
        let report_url = self.request.detects_machine.then(|| url(ANSWERED));
        let bot = self.request.bot.as_ref();
        let bot = bot.map_or_else(String::new, |name| format!("&{}={name}", bots::QUERY));
        let call = OutgoingCall {
            to: &self.request.to,
            from: &self.request.from,
            application,
            answer_url: &(url(DIALLED) + &bot),
            report_url: report_url.as_deref(),
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
    provider.protocol.answered_by(&crate::server::form::parse(form))
}

#[cfg(test)]
mod tests;
