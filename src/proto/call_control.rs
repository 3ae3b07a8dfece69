//! What the APIs of telephony providers and LiveKit servers have in common: the target of a
//! transfer, errors, and the outcome of a request.

use std::fmt;

use crate::limits::KEYS_SENT_MAX;
use crate::options::values::all_names;

/// Bytes of the target of a transfer: a long URL.
const TRANSFER_TARGET_BYTES_MAX: usize = 512;

/// Where a call goes.
#[derive(Clone, PartialEq, Eq)]
pub enum TransferTarget {
    /// A telephone number: an optional `+` and 3 to 15 digits.
    Number(String),
    /// A SIP address, from `sip:` or `sips:` on.
    Sip(String),
    /// The URL of markup that the provider fetches and executes.
    Markup(String),
}

impl TransferTarget {
    /// Reads a number, a SIP address, or an `http` or `https` URL.
    ///
    /// # Errors
    /// [`CallControlError::Target`] for anything else.
    pub fn parse(text: &str) -> Result<Self, CallControlError> {
        let is_plain = text.len() <= TRANSFER_TARGET_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
        let follows = |scheme: &str| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty());
        if !is_plain {
            return Err(CallControlError::Target);
        }
        if follows("sip:") || follows("sips:") {
            return Ok(TransferTarget::Sip(text.to_owned()));
        }
        if follows("https://") || follows("http://") {
            return Ok(TransferTarget::Markup(text.to_owned()));
        }
        let digits = text.strip_prefix('+').unwrap_or(text);
        match (3..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => Ok(TransferTarget::Number(text.to_owned())),
            false => Err(CallControlError::Target),
        }
    }
}

impl TransferTarget {
    /// Returns the target for the record of the call: of a URL the scheme and the host alone, since
    /// the rest may hold a key.
    pub fn shown(&self) -> String {
        match self {
            TransferTarget::Number(text) | TransferTarget::Sip(text) => text.clone(),
            TransferTarget::Markup(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or_default();
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
                format!("{scheme}://{host}")
            }
        }
    }
}

impl fmt::Debug for TransferTarget {
    /// Omits the address, which can be a telephone number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransferTarget::Number(_) => "Number",
            TransferTarget::Sip(_) => "Sip",
            TransferTarget::Markup(_) => "Markup",
        })
    }
}

/// Why a call cannot be transferred, or why no keys are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallControlError {
    /// The session is not a telephone call.
    NoCall,
    /// The target is no number, SIP address or URL.
    Target,
    /// The keys are none, too many, or not `0`-`9`, `*`, `#`, `A`-`D`.
    Keys,
    /// The provider has no API for it.
    NotOffered {
        /// The name of the provider.
        provider: &'static str,
        /// What is possible instead.
        instead: &'static str,
    },
    /// Variables with credentials of the provider are not set.
    Credentials(&'static [&'static str]),
    /// The call has no valid id.
    CallId,
    /// The provider refused, or did not answer.
    Failed(String),
}

impl fmt::Display for CallControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallControlError::NoCall => f.write_str("the session is not a telephone call"),
            CallControlError::Target => {
                f.write_str("a call goes to a number such as +15550001111, a sip: address or an https URL")
            }
            CallControlError::Keys => {
                write!(f, "keys are 1 to {KEYS_SENT_MAX} of 0-9, *, # and A-D")
            }
            CallControlError::NotOffered { provider, instead } => {
                write!(f, "{provider} has no API for this; {instead}")
            }
            CallControlError::Credentials(names) => {
                let names: Vec<String> = names.iter().map(|name| all_names(name)).collect();
                write!(f, "it needs {}", names.join(" and "))
            }
            CallControlError::CallId => f.write_str("the call has no valid id"),
            CallControlError::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for CallControlError {}

/// The meaning of a response. The texts are for the log: without credentials, ids and telephone
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HangUpOutcome {
    /// The provider has done it.
    Done,
    /// The call has ended, or the provider does not know it.
    AlreadyOver,
    /// A retry would have the same result.
    Refused(String),
    /// The provider failed temporarily; a retry may succeed.
    Retry(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_has_no_key_of_a_url() {
        for (target, shown) in [
            ("+15550003333", "+15550003333"),
            ("sip:desk@pbx.example.net", "sip:desk@pbx.example.net"),
            (
                "https://user:key@bot.example.net:8443/next?key=1",
                "https://bot.example.net:8443",
            ),
            ("http://bot.example.net?key=a@b", "http://bot.example.net"),
        ] {
            assert_eq!(TransferTarget::parse(target).expect(target).shown(), shown);
        }
    }

    #[test]
    fn targets_are_numbers_sip_addresses_and_urls() {
        let longest = format!("sip:{}", "x".repeat(TRANSFER_TARGET_BYTES_MAX - 4));
        for good in [
            "+15550003333",
            "110",
            "123456789012345",
            "sip:desk@pbx.example.net;transport=tls",
            "sips:a",
            "https://bot.example.net/next?a=1&b=2",
            "http://x",
            &longest,
        ] {
            assert!(TransferTarget::parse(good).is_ok(), "{good}");
        }
        let longer = format!("{longest}x");
        for bad in [
            "",
            "+",
            "12",
            "+1234567890123456",
            "+1 555 000",
            "1-2-3",
            "sip:",
            "https://",
            "ftp://x",
            "tel:+1555",
            "sip:a b",
            "sip:a\r\nb",
            "\u{661}\u{662}\u{663}",
            &longer,
        ] {
            assert_eq!(TransferTarget::parse(bad), Err(CallControlError::Target), "{bad}");
        }
        let number = TransferTarget::parse("+15550003333").expect("a target");
        assert_eq!(format!("{number:?}"), "Number");
    }
}
