//! The validity and renewal of the self-signed certificate in serve mode.
//!
//! In: the clock in seconds since 1970, the validity of the served certificate, and the number of
//! sessions that wait for their caller. Out: the validity of a new certificate, and whether it is
//! due. Browsers accept a certificate by its hash only if it is valid now and for at most 14 days
//! in all. A caller who waits with the hash of the served certificate cannot connect to another
//! one, so a renewal before the end takes place while no session waits. Source: W3C WebTransport,
//! "serverCertificateHashes"; R-014.

use std::time::Duration;

use crate::server::tls::{Validity, plausible_now};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RELEASED_S;

    const DAY: u64 = 86_400;

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
