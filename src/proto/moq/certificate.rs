//! The validity and renewal of the self-signed certificate in serve mode.
//!
//! In: the clock in seconds since 1970, the validity of the served certificate, and the number of
//! sessions that wait for their caller. Out: the validity of a new certificate, and whether it is
//! due; a certificate of somebody else, and why browsers refuse it by its hash. Browsers accept a
//! certificate by its hash only if its key is on P-256, and if it is valid now and for at most 14
//! days in all. A caller who waits with the hash of the served certificate cannot connect to
//! another one, so a renewal before the end takes place while no session waits. Source: W3C
//! WebTransport, "serverCertificateHashes"; R-014.

use std::fmt;
use std::time::Duration;

use crate::server::tls::parsed::Certificate;
use crate::server::tls::{Validity, plausible_now};

/// Longest validity of a certificate that browsers accept by its hash, in days.
pub const PINNED_DAYS_MAX: u64 = 14;
const DAY_S: u64 = 86_400;

/// Validity of the certificate: a day below the browsers' limit.
pub const VALID: Duration = Duration::from_secs(13 * 86_400);
/// Time before its creation at which it becomes valid: clocks of callers may be slow, and some
/// boards keep local time.
pub const BACKDATED: Duration = Duration::from_secs(86_400);
/// Remaining validity below which a new certificate is due.
const RENEWED_BEFORE: Duration = Duration::from_secs(4 * 86_400);
/// Remaining validity below which a renewal no longer waits for a moment without waiting sessions.
const FORCED_BEFORE: Duration = Duration::from_secs(86_400);

/// Returns the validity of a new certificate.
pub fn validity(clock_s: u64) -> Validity {
    let from_s = plausible_now(clock_s, None) - BACKDATED.as_secs();
    Validity {
        from_s,
        until_s: from_s + VALID.as_secs(),
    }
}

/// Returns whether a new certificate is to replace the served one. `waiting` sessions have told
/// their callers its hash.
pub fn is_renewal_due(served: Validity, clock_s: u64, waiting: usize) -> bool {
    let now_s = plausible_now(clock_s, None);
    let left_s = served.until_s.saturating_sub(now_s);
    let is_ahead = served.from_s > now_s;
    is_ahead || left_s < FORCED_BEFORE.as_secs() || (left_s < RENEWED_BEFORE.as_secs() && waiting == 0)
}

/// Why browsers refuse a certificate by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashRefusal {
    /// The key is not on P-256.
    Key,
    /// It is valid for this many days in all.
    Days(u64),
    /// Its validity has not begun.
    NotYetValid,
    /// Its validity is over.
    Expired,
}

impl fmt::Display for HashRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashRefusal::Key => f.write_str("its key is not on P-256"),
            HashRefusal::Days(days) => write!(f, "it is valid for {days} days, and {PINNED_DAYS_MAX} are allowed"),
            HashRefusal::NotYetValid => f.write_str("it is not valid yet"),
            HashRefusal::Expired => f.write_str("it has expired"),
        }
    }
}

/// Returns why browsers refuse this certificate by its hash; `None` if they accept it.
pub fn refusal_by_hash(certificate: &Certificate, now_s: u64) -> Option<HashRefusal> {
    let Validity { from_s, until_s } = certificate.validity;
    // A malformed certificate may end before it begins.
    let days = until_s.saturating_sub(from_s).div_ceil(DAY_S);
    if !certificate.is_p256 {
        Some(HashRefusal::Key)
    } else if days > PINNED_DAYS_MAX {
        Some(HashRefusal::Days(days))
    } else if now_s < from_s {
        Some(HashRefusal::NotYetValid)
    } else if now_s > until_s {
        Some(HashRefusal::Expired)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RELEASED_S;

    const DAY: u64 = DAY_S;

    /// W3C WebTransport, "serverCertificateHashes": each rule, at its limit and past it.
    #[test]
    fn browsers_have_rules_for_hashes() {
        let now_s = RELEASED_S + 100 * DAY;
        for (is_p256, from_s, until_s, refusal) in [
            (true, now_s - DAY, now_s + 13 * DAY, None),
            (true, now_s, now_s, None),
            (false, now_s - DAY, now_s + 13 * DAY, Some(HashRefusal::Key)),
            (true, now_s - DAY, now_s + 13 * DAY + 1, Some(HashRefusal::Days(15))),
            (true, now_s - DAY, now_s + 364 * DAY, Some(HashRefusal::Days(365))),
            (true, now_s + 1, now_s + DAY, Some(HashRefusal::NotYetValid)),
            (true, now_s - DAY, now_s - 1, Some(HashRefusal::Expired)),
            (true, now_s, now_s - 1, Some(HashRefusal::Expired)),
            (true, now_s + DAY, now_s + 1, Some(HashRefusal::NotYetValid)),
        ] {
            let certificate = Certificate {
                subject: "a".into(),
                issuer: "a".into(),
                names: Vec::new(),
                validity: Validity { from_s, until_s },
                is_authority: false,
                permitted: None,
                is_p256,
            };
            assert_eq!(refusal_by_hash(&certificate, now_s), refusal, "{from_s} to {until_s}");
        }
        let made = validity(now_s);
        assert!(made.until_s - made.from_s <= PINNED_DAYS_MAX * DAY);
    }

    #[test]
    fn browsers_accept_the_validity() {
        let now_s = RELEASED_S + 100 * DAY;
        let Validity { from_s, until_s } = validity(now_s);
        assert!(from_s < now_s && until_s - from_s <= 14 * DAY);
        assert_eq!(until_s - now_s, 12 * DAY);
    }

    #[test]
    fn a_renewal_waits_for_sessions_until_the_last_day() {
        let made_s = RELEASED_S + 100 * DAY;
        let served = validity(made_s);
        for (day, waiting, is_due) in [
            (0, 0, false),
            (7, 0, false),
            (9, 0, true),
            (9, 1, false),
            (12, 1, true),
            (30, 1, true),
        ] {
            assert_eq!(
                is_renewal_due(served, made_s + day * DAY, waiting),
                is_due,
                "day {day}, {waiting} waiting"
            );
        }
    }

    /// A board starts in 1970 and finds its time server later; then its clock is fast and is
    /// corrected.
    #[test]
    fn a_clock_that_jumps_renews_the_certificate() {
        let at_boot = validity(0);
        assert!(!is_renewal_due(at_boot, 20, 1));
        assert!(!is_renewal_due(at_boot, RELEASED_S + DAY, 1));
        assert!(is_renewal_due(at_boot, RELEASED_S + 60 * DAY, 1));
        let ahead = validity(RELEASED_S + 300 * DAY);
        assert!(is_renewal_due(ahead, RELEASED_S + 10 * DAY, 1));
    }
}
