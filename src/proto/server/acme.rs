//! When a certificate of `--tls acme` is ordered, and what a failed order means.
//!
//! In: the stored certificate, failures as the directory or the network reports them, the clock in
//! seconds since 1970, and random bytes for jitter. Out: the time of the next order
//! ([`OrderClock`]) and text for the log ([`OrderFailure`]). `io` performs the orders. Source: RFC
//! 8555 sections 6.6 (`Retry-After`) and 6.7 (errors); RFC 8737 (the challenge `tls-alpn-01`);
//! "Rate Limits" of Let's Encrypt: 5 failed validations per name and hour, 5 certificates for the
//! same names in a week.

pub mod doctor;

use std::fmt;
use std::time::Duration;

use super::tls::parsed::Certificate;
use super::tls::{CertificateName, Validity};
use crate::limits::{
    ACME_FAILURE_CHARS_MAX, ACME_REFUSED_PAUSE_MAX, ACME_RETRY_AFTER_MAX, ACME_UNREACHABLE_PAUSE_FIRST,
};

/// Pause after the first failed order of `--tls acme` that counts towards limits of the directory;
/// it doubles. Let's Encrypt allows 5 failed validations per name and hour, and these make 3.
const ACME_REFUSED_PAUSE_FIRST: Duration = Duration::from_secs(15 * 60);
/// The longest of these pauses.
const ACME_UNREACHABLE_PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Characters of an error of the directory in the log.
const ACME_DETAIL_CHARS_MAX: usize = 400;

/// The port at which directories validate names (RFC 8737 section 3).
pub const VALIDATION_PORT: u16 = 443;
/// Prefix of the error types of RFC 8555.
const ERRORS: &str = "urn:ietf:params:acme:error:";
/// Characters of a name in a description: the longest name of DNS.
const NAME_CHARS_MAX: usize = 253;
/// Characters of the type of an error in a description.
const KIND_CHARS_MAX: usize = 60;

/// What kind of failure ended an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The order did not reach the directory, or the directory failed. It counts towards no limit.
    Unreachable,
    /// The directory refused the order or could not validate a name, which counts towards limits.
    Refused,
}

impl FailureKind {
    /// Returns the pause after a failure that follows `count` others of its kind, without jitter.
    fn pause(self, count: u32) -> Duration {
        let (first, most) = match self {
            FailureKind::Unreachable => (ACME_UNREACHABLE_PAUSE_FIRST, ACME_UNREACHABLE_PAUSE_MAX),
            FailureKind::Refused => (ACME_REFUSED_PAUSE_FIRST, ACME_REFUSED_PAUSE_MAX),
        };
        first.saturating_mul(1 << count.min(16)).min(most)
    }
}

/// A failed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFailure {
    pub kind: FailureKind,
    /// What was wrong, and what to do about it.
    pub text: String,
    /// The pause that the directory asks for.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for OrderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An error of the directory (RFC 8555 section 6.7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem<'a> {
    /// The type, with or without the prefix of RFC 8555.
    pub kind: &'a str,
    pub detail: &'a str,
    pub status: u16,
    /// The name it is about, if it is about one.
    pub name: Option<&'a str>,
}

impl OrderFailure {
    /// Describes a failure of the network or of the runner itself.
    pub fn unreachable(text: impl Into<String>) -> OrderFailure {
        OrderFailure {
            kind: FailureKind::Unreachable,
            text: one_line(&text.into(), ACME_FAILURE_CHARS_MAX),
            retry_after: None,
        }
    }

    /// Describes a failure that may have counted towards a limit.
    pub fn refused(text: String) -> OrderFailure {
        OrderFailure {
            kind: FailureKind::Refused,
            text: one_line(&text, ACME_FAILURE_CHARS_MAX),
            retry_after: None,
        }
    }

    /// Describes an error of the directory. `port` is that of HTTPS.
    pub fn of_problem(problem: &Problem<'_>, port: u16) -> OrderFailure {
        let kind = problem.kind.strip_prefix(ERRORS).unwrap_or(problem.kind);
        let named = problem.name.map(|name| one_line(name, NAME_CHARS_MAX));
        let name = named.as_deref().unwrap_or("the name");
        let expected = format!(
            "the directory must reach {name} at TCP port {VALIDATION_PORT} from the internet: forward that port of the \
             router to port {port} of this machine, and let no proxy end TLS before it"
        );
        let advice = match kind {
            "connection" | "tls" | "unauthorized" | "incorrectResponse" => expected,
            "dns" => format!(
                "{name} must resolve to the public address of this machine: check its A and AAAA records, and remove an AAAA \
                 record whose address does not answer"
            ),
            "caa" => format!("a CAA record of {name} forbids this directory: allow it there, or remove the record"),
            "rateLimited" => "a rate limit of the directory is reached; --acme-staging has limits for experiments".into(),
            "rejectedIdentifier" => format!("the directory issues no certificate for {name}: give a public name that is yours"),
            "accountDoesNotExist" => "the directory does not know the stored account; the next attempt makes another".into(),
            "unsupportedContact" | "invalidContact" => "give another address with --acme-email, or none".into(),
            "externalAccountRequired" => {
                "the directory takes accounts only with an external binding, which the runner does not have: choose another \
                 with --acme-directory"
                    .into()
            }
            "userActionRequired" => "the directory wants its new terms of service to be accepted at the address it names".into(),
            "badNonce" | "serverInternal" => "this is a matter of the directory and may pass".into(),
            _ => "see the documents of the directory".into(),
        };
        let own_fault = matches!(kind, "badNonce" | "serverInternal" | "accountDoesNotExist") || problem.status >= 500;
        let about = named.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        let (detail, kind) = (
            one_line(problem.detail, ACME_DETAIL_CHARS_MAX),
            one_line(kind, KIND_CHARS_MAX),
        );
        OrderFailure {
            kind: if own_fault {
                FailureKind::Unreachable
            } else {
                FailureKind::Refused
            },
            text: one_line(&format!("{about}{detail} ({kind}); {advice}"), ACME_FAILURE_CHARS_MAX),
            retry_after: None,
        }
    }
}

/// Returns text of a peer for one line of the log, with at most so many characters.
fn one_line(text: &str, chars_max: usize) -> String {
    let shown: String = text
        .chars()
        .map(|each| if each.is_control() { ' ' } else { each })
        .take(chars_max)
        .collect();
    shown.trim().to_owned()
}

/// The failures since the last certificate. It is stored, so that restarts do not order more often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Refused orders.
    pub refused: u32,
    /// Orders since the last refusal that did not reach the directory. An outage of the network
    /// does not lengthen the pause after a refusal.
    pub unreachable: u32,
    /// The earliest time of the next order.
    pub not_before_s: u64,
    /// Whether the directory named that time.
    pub asked_by_directory: bool,
}

impl Failures {
    /// Returns the longest pause that the last of these failures can have caused.
    fn pause_max(&self) -> Duration {
        let doubled = match (self.asked_by_directory, self.unreachable) {
            (true, _) => return ACME_RETRY_AFTER_MAX,
            (false, 0) => FailureKind::Refused.pause(self.refused.saturating_sub(1)),
            (false, count) => FailureKind::Unreachable.pause(count - 1),
        };
        // Jitter adds up to a quarter.
        doubled + doubled / 4
    }
}

/// The time of the next order.
#[derive(Clone, Debug)]
pub struct OrderClock {
    /// Random bytes of this run, so that runners do not order at the same time.
    jitter: u16,
    failures: Failures,
}

impl OrderClock {
    pub fn new(jitter: u16, failures: Failures) -> OrderClock {
        OrderClock { jitter, failures }
    }

    /// Returns the failures, to be stored.
    pub fn failures(&self) -> Failures {
        self.failures
    }

    /// Returns the time of the next order.
    pub fn poll_timeout(&self, kept: Option<&Certificate>, names: &[String], now_s: u64) -> u64 {
        let due_s = match kept {
            Some(kept) if covers(kept, names) => self.renewal_s(kept.validity),
            _ => 0,
        };
        // A time further ahead than the pause was long: the clock was ahead, and has been set back.
        let not_before_s = self.failures.not_before_s;
        match not_before_s > now_s.saturating_add(self.failures.pause_max().as_secs()) {
            true => due_s,
            false => due_s.max(not_before_s),
        }
    }

    /// Returns the time to renew: after two thirds of the validity, less up to a thirtieth.
    pub fn renewal_s(&self, validity: Validity) -> u64 {
        let whole_s = validity.until_s.saturating_sub(validity.from_s);
        let early_s = whole_s / 30 * u64::from(self.jitter) / u64::from(u16::MAX);
        validity.from_s + whole_s / 3 * 2 - early_s
    }

    /// Notes a failure at this time, and returns the pause until the next order.
    pub fn handle_failure(&mut self, failure: &OrderFailure, now_s: u64) -> Duration {
        let Failures {
            refused, unreachable, ..
        } = self.failures;
        let doubled = match failure.kind {
            FailureKind::Unreachable => failure.kind.pause(unreachable),
            FailureKind::Refused => failure.kind.pause(refused),
        };
        let (refused, unreachable) = match failure.kind {
            FailureKind::Unreachable => (refused, unreachable.saturating_add(1)),
            FailureKind::Refused => (refused.saturating_add(1), 0),
        };
        // Up to a quarter more.
        let own = doubled + doubled / 4 * u32::from(self.jitter) / u32::from(u16::MAX);
        let asked = failure.retry_after.map(|asked| asked.min(ACME_RETRY_AFTER_MAX));
        let pause = asked.map_or(own, |asked| asked.max(own));
        self.failures = Failures {
            refused,
            unreachable,
            not_before_s: now_s + pause.as_secs(),
            asked_by_directory: asked.is_some_and(|asked| asked >= own),
        };
        pause
    }

    /// Notes a new certificate. Where it is due for renewal already, since the clock is wrong or
    /// the validity began long ago, it counts as a refusal, so that no order follows at once:
    /// returns the pause until the next one.
    pub fn handle_success(&mut self, validity: Validity, now_s: u64) -> Option<Duration> {
        if self.renewal_s(validity) > now_s {
            self.failures = Failures::default();
            return None;
        }
        Some(self.handle_failure(&OrderFailure::refused("due for renewal".into()), now_s))
    }

    /// Ends the pause at the wish of the operator, unless the directory asked for it. Returns the
    /// end of a pause that remains.
    pub fn handle_retry(&mut self, now_s: u64) -> Option<u64> {
        let Failures {
            not_before_s,
            asked_by_directory,
            ..
        } = self.failures;
        if asked_by_directory && not_before_s > now_s {
            return Some(not_before_s);
        }
        self.failures.not_before_s = 0;
        None
    }
}

/// Returns whether a certificate is for all these names.
pub fn covers(certificate: &Certificate, names: &[String]) -> bool {
    names.iter().all(|name| is_for(certificate, name))
}

/// Returns whether a certificate names a host.
pub fn is_for(certificate: &Certificate, name: &str) -> bool {
    let is_named = |named: &CertificateName| matches!(named, CertificateName::Dns(named) if named == name);
    certificate.names.iter().any(is_named)
}

#[cfg(test)]
mod tests;
