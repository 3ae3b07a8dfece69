//! When a certificate of `--tls acme` is ordered, and what a failed order means.
//!
//! In: the stored certificate, failures as the directory or the network reports them, the clock in
//! seconds since 1970, and random bytes for jitter. Out: the time of the next order
//! ([`OrderClock`]) and text for the log ([`OrderFailure`]). `io` performs the orders. Source: RFC
//! 8555 sections 6.6 (`Retry-After`) and 6.7 (errors); RFC 8737 (the challenge `tls-alpn-01`);
//! "Rate Limits" of Let's Encrypt: 5 failed validations per name and hour, 5 certificates for the
//! same names in a week.

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
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;
    const NOW_S: u64 = 1_800_000_000;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn refused() -> OrderFailure {
        OrderFailure::refused("no".into())
    }

    /// A directory chooses every text of an error: none breaks a line of the log or is repeated at
    /// length.
    #[test]
    fn the_text_of_a_failure_is_one_bounded_line() {
        let long = "a\u{1b}[2J\n".repeat(20_000);
        for kind in ["dns", "tls", "caa", "rejectedIdentifier", "malformed", &*long] {
            let problem = Problem {
                kind,
                detail: &long,
                status: 400,
                name: Some(&long),
            };
            let failures = [
                OrderFailure::of_problem(&problem, 443),
                OrderFailure::unreachable(long.clone()),
                OrderFailure::refused(long.clone()),
            ];
            for OrderFailure { text, .. } in failures {
                assert!(text.chars().count() <= ACME_FAILURE_CHARS_MAX && !text.contains(char::is_control));
            }
        }
        // The advice has room behind the longest of everything else.
        let problem = Problem {
            kind: "dns",
            detail: &long,
            status: 400,
            name: Some(&long),
        };
        let text = OrderFailure::of_problem(&problem, 443).text;
        assert!(text.ends_with("whose address does not answer"), "{text}");
    }

    /// Without a certificate, or with one that lacks a name, an order is due at once; else after
    /// two thirds of its validity, and up to 3 of 90 days earlier.
    #[test]
    fn a_certificate_is_renewed_after_two_thirds() {
        let ninety = Validity {
            from_s: NOW_S,
            until_s: NOW_S + 90 * DAY_S,
        };
        let kept = Certificate::example(&["a.example.net", "b.example.net"], ninety);
        let both = names(&["a.example.net", "b.example.net"]);
        let on_time = OrderClock::new(0, Failures::default());
        assert_eq!(on_time.poll_timeout(None, &both, NOW_S), 0);
        assert_eq!(on_time.poll_timeout(Some(&kept), &both, NOW_S), NOW_S + 60 * DAY_S);
        let early = OrderClock::new(u16::MAX, Failures::default());
        assert_eq!(early.poll_timeout(Some(&kept), &both, NOW_S), NOW_S + 57 * DAY_S);
        let more = names(&["a.example.net", "c.example.net"]);
        assert_eq!(on_time.poll_timeout(Some(&kept), &more, NOW_S), 0);
        let fewer = names(&["b.example.net"]);
        assert_eq!(on_time.poll_timeout(Some(&kept), &fewer, NOW_S), NOW_S + 60 * DAY_S);
        // A minute, as test servers issue it.
        let minute = Validity {
            from_s: NOW_S,
            until_s: NOW_S + 60,
        };
        assert_eq!(early.renewal_s(minute), NOW_S + 38);
    }

    /// Refused orders: at most 4 in any hour, with all jitters, and the pause stops to grow.
    #[test]
    fn refused_orders_stay_within_the_rate_limits() {
        for jitter in [0, 1, u16::MAX / 2, u16::MAX] {
            let mut clock = OrderClock::new(jitter, Failures::default());
            let (mut now_s, mut orders_s) = (NOW_S, Vec::new());
            for _ in 0..40 {
                orders_s.push(now_s);
                let pause = clock.handle_failure(&refused(), now_s);
                assert!(pause <= ACME_REFUSED_PAUSE_MAX + ACME_REFUSED_PAUSE_MAX / 4);
                let next_s = clock.poll_timeout(None, &names(&["a"]), now_s);
                assert_eq!(next_s, now_s + pause.as_secs());
                now_s = next_s;
            }
            let most = orders_s.iter().map(|from_s| {
                orders_s
                    .iter()
                    .filter(|at_s| (*from_s..from_s + 3600).contains(at_s))
                    .count()
            });
            assert!(most.max().expect("orders") <= 4, "{orders_s:?}");
            assert_eq!(clock.failures().refused, 40);
        }
    }

    /// A directory that cannot be reached is tried again soon, and at least hourly.
    #[test]
    fn an_unreachable_directory_is_tried_hourly() {
        let mut clock = OrderClock::new(0, Failures::default());
        let lost = OrderFailure::unreachable("no network");
        let pauses: Vec<u64> = (0..12).map(|_| clock.handle_failure(&lost, NOW_S).as_secs()).collect();
        assert_eq!(pauses[..4], [10, 20, 40, 80]);
        assert_eq!(pauses[11], 3600);
        let ninety = Validity {
            from_s: NOW_S,
            until_s: NOW_S + 90 * DAY_S,
        };
        assert_eq!(clock.handle_success(ninety, NOW_S), None);
        assert_eq!(clock.failures(), Failures::default());
        assert_eq!(clock.handle_failure(&lost, NOW_S).as_secs(), 10);
    }

    /// With a clock far ahead each certificate is due for renewal when it comes.
    #[test]
    fn a_certificate_that_is_due_already_is_not_ordered_again_at_once() {
        let mut clock = OrderClock::new(0, Failures::default());
        let validity = Validity {
            from_s: NOW_S - 70 * DAY_S,
            until_s: NOW_S + 20 * DAY_S,
        };
        let kept = Certificate::example(&["a.example.net"], validity);
        let mut now_s = NOW_S;
        for expected in [1, 2, 4].map(|times| ACME_REFUSED_PAUSE_FIRST * times) {
            assert_eq!(clock.handle_success(validity, now_s), Some(expected));
            let next_s = clock.poll_timeout(Some(&kept), &names(&["a.example.net"]), now_s);
            assert_eq!(next_s, now_s + expected.as_secs());
            now_s = next_s;
        }
    }

    /// An outage of the network and refused orders have pauses of their own.
    #[test]
    fn an_outage_does_not_lengthen_the_pause_of_a_refusal() {
        let mut clock = OrderClock::new(0, Failures::default());
        let lost = OrderFailure::unreachable("no network");
        for _ in 0..12 {
            clock.handle_failure(&lost, NOW_S);
        }
        assert_eq!(clock.handle_failure(&refused(), NOW_S), ACME_REFUSED_PAUSE_FIRST);
        assert_eq!(clock.handle_failure(&lost, NOW_S), ACME_UNREACHABLE_PAUSE_FIRST);
        assert_eq!(clock.handle_failure(&refused(), NOW_S), 2 * ACME_REFUSED_PAUSE_FIRST);
    }

    /// `Retry-After` wins over a shorter pause and over the operator, up to its cap.
    #[test]
    fn the_directory_decides_how_long_to_wait() {
        let mut clock = OrderClock::new(0, Failures::default());
        let asks = |seconds| OrderFailure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..refused()
        };
        assert_eq!(clock.handle_failure(&asks(7200), NOW_S).as_secs(), 7200);
        assert_eq!(clock.handle_retry(NOW_S + 1), Some(NOW_S + 7200));
        assert_eq!(clock.handle_retry(NOW_S + 7200), None);
        let mut clock = OrderClock::new(0, Failures::default());
        assert_eq!(clock.handle_failure(&asks(u64::MAX), NOW_S), ACME_RETRY_AFTER_MAX);
        let mut clock = OrderClock::new(0, Failures::default());
        assert_eq!(clock.handle_failure(&asks(1), NOW_S), ACME_REFUSED_PAUSE_FIRST);
        assert_eq!(clock.handle_retry(NOW_S + 1), None);
        assert_eq!(clock.poll_timeout(None, &[], NOW_S + 1), 0);
    }

    /// A stored pause holds after a restart, unless the clock was ahead when it was stored.
    #[test]
    fn a_stored_pause_holds_after_a_restart() {
        let stored = |not_before_s| Failures {
            refused: 2,
            unreachable: 0,
            not_before_s,
            asked_by_directory: false,
        };
        let due = |failures| OrderClock::new(0, failures).poll_timeout(None, &names(&["a"]), NOW_S);
        assert_eq!(due(stored(NOW_S + 1800)), NOW_S + 1800);
        assert_eq!(due(stored(NOW_S + 365 * DAY_S)), 0);
    }

    /// A clock that was ahead when an order failed, and is set back, does not lengthen the pause:
    /// whatever the jitter and the kind of failure. A pause that the directory asked for has a cap.
    #[test]
    fn a_clock_that_is_set_back_does_not_lengthen_a_pause() {
        let lost = OrderFailure::unreachable("no network");
        let asked = OrderFailure {
            retry_after: Some(ACME_RETRY_AFTER_MAX),
            ..refused()
        };
        let kinds = [
            (vec![lost.clone()], ACME_UNREACHABLE_PAUSE_FIRST),
            (vec![lost.clone(); 12], ACME_UNREACHABLE_PAUSE_MAX),
            (vec![refused()], ACME_REFUSED_PAUSE_FIRST),
            (vec![refused(), refused(), lost], ACME_UNREACHABLE_PAUSE_FIRST),
            (vec![refused(); 20], ACME_REFUSED_PAUSE_MAX),
            (vec![asked], ACME_RETRY_AFTER_MAX),
        ];
        for (failures, least) in &kinds {
            for jitter in [0, u16::MAX] {
                let mut clock = OrderClock::new(jitter, Failures::default());
                let mut pause = Duration::ZERO;
                for failure in failures {
                    pause = clock.handle_failure(failure, NOW_S);
                }
                assert!(pause >= *least);
                // The restarted runner has another jitter.
                let due = |now_s| OrderClock::new(0, clock.failures()).poll_timeout(None, &names(&["a"]), now_s);
                assert_eq!(due(NOW_S), NOW_S + pause.as_secs(), "{failures:?}");
                for behind_s in [least.as_secs() / 4 + 2, DAY_S.max(least.as_secs()), 365 * DAY_S] {
                    let next_s = due(NOW_S - behind_s);
                    assert!(
                        next_s <= NOW_S - behind_s + least.as_secs() * 5 / 4,
                        "{failures:?} {behind_s}"
                    );
                }
            }
        }
    }

    /// Each error of the directory names what to do; text of the directory stays on one line.
    #[test]
    fn failures_say_what_to_do() {
        let text = |kind: &str, status| {
            let problem = Problem {
                kind: &format!("{ERRORS}{kind}"),
                detail: "a\nb",
                status,
                name: Some("bot.example.net"),
            };
            OrderFailure::of_problem(&problem, 7860)
        };
        let port = text("connection", 400);
        assert_eq!(port.kind, FailureKind::Refused);
        for words in ["bot.example.net: a b (connection)", "port 443", "port 7860"] {
            assert!(port.text.contains(words), "{words} in {}", port.text);
        }
        for (kind, words) in [
            ("dns", "A and AAAA"),
            ("caa", "CAA"),
            ("rateLimited", "--acme-staging"),
            ("invalidContact", "--acme-email"),
            ("externalAccountRequired", "--acme-directory"),
            ("somethingNew", "documents"),
        ] {
            let failure = text(kind, 403);
            assert!(failure.text.contains(words), "{words} in {failure}");
            assert_eq!(failure.kind, FailureKind::Refused);
        }
        for (kind, status) in [("badNonce", 400), ("serverInternal", 500), ("unavailable", 503)] {
            assert_eq!(text(kind, status).kind, FailureKind::Unreachable, "{kind}");
        }
        let long = "x".repeat(100_000);
        let problem = Problem {
            detail: &long,
            ..Problem::default()
        };
        assert!(OrderFailure::of_problem(&problem, 1).text.len() < 1000);
    }
}
