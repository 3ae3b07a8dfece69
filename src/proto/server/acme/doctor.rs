//! Checks the certificate of `--tls acme` that is stored.

use super::covers;
use crate::config::AcmeConfig;
use crate::doctor::Finding;
use crate::doctor::certificate::WHAT;
use crate::server::tls::parsed::Certificate;

/// Checks the stored certificate of `--tls acme`; without one, the next start orders it.
pub fn of_directory(kept: Option<&Certificate>, acme: &AcmeConfig, now_s: u64) -> Finding {
    let names = acme.names.join(", ");
    let Some(kept) = kept else {
        let text = format!(
            "no certificate for {names} is stored: the runner orders one, which needs TCP port 443 of the name to reach it"
        );
        return Finding::warning(WHAT, text);
    };
    let days = kept.validity.days_left(now_s);
    if !covers(kept, &acme.names) {
        return Finding::warning(
            WHAT,
            format!("the stored certificate lacks one of {names}: the runner orders another"),
        );
    }
    if now_s > kept.validity.until_s {
        return Finding::error(
            WHAT,
            format!("the certificate of {names} has expired: the log of the runner says why it was not renewed"),
        );
    }
    // Renewal begins with a third of the time left.
    if kept.validity.until_s.saturating_sub(now_s) * 4 < kept.validity.until_s.saturating_sub(kept.validity.from_s) {
        let text = format!(
            "the certificate of {names} expires in {days} days and should have been renewed: the log of the runner says why \
             it was not"
        );
        return Finding::warning(WHAT, text);
    }
    Finding::ok(
        WHAT,
        format!("the certificate of {names} by ACME expires in {days} days"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;
    use crate::server::tls::{RELEASED_S, Validity};

    const NOW_S: u64 = RELEASED_S + 1_000_000;

    /// A certificate by ACME is a warning once its renewal is overdue, and an error once it has
    /// expired.
    #[test]
    fn reports_the_certificate_by_acme() {
        let acme = AcmeConfig {
            names: vec!["bot.example.net".into()],
            ..AcmeConfig::default()
        };
        let ninety = Validity {
            from_s: NOW_S,
            until_s: NOW_S + 90 * 86_400,
        };
        let kept = Certificate::example(&["bot.example.net"], ninety);
        let level = |day: u64| of_directory(Some(&kept), &acme, NOW_S + day * 86_400).level;
        assert_eq!((level(0), level(66)), (FindingLevel::Ok, FindingLevel::Ok));
        assert_eq!((level(68), level(90)), (FindingLevel::Warning, FindingLevel::Warning));
        assert_eq!(level(91), FindingLevel::Error);
        assert_eq!(of_directory(None, &acme, NOW_S).level, FindingLevel::Warning);
        let other = Certificate::example(&["other.example.net"], ninety);
        assert!(of_directory(Some(&other), &acme, NOW_S).text.contains("lacks"));
    }
}
