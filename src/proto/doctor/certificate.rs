//! Checks the certificate of `--tls` against the names of the configuration and the clock.
//!
//! In: a certificate, the configuration, the clock. Out: findings. Trust is not checked, since each
//! device has its own list of authorities.

use super::Finding;
use crate::config::Config;
use crate::http::host::AllowedHosts;
use crate::limits::CERTIFICATE_LEFT_MIN;
use crate::server::tls::parsed::Certificate;
use crate::server::tls::{CertificateName, RenewalReason, renewal_reason};

/// Name of the check.
pub const WHAT: &str = "https";

/// Names that one line lists.
const NAMES_MAX: usize = 6;

/// Checks a certificate from files.
pub fn of_files(certificate: &Certificate, config: &Config, now_s: u64) -> Finding {
    let validity = certificate.validity;
    if now_s < validity.from_s {
        return Finding::error(
            WHAT,
            "the certificate is not valid yet, or the clock of this machine is wrong",
        );
    }
    if now_s > validity.until_s {
        return Finding::error(
            WHAT,
            "the certificate has expired, or the clock of this machine is wrong: replace its file and send SIGHUP",
        );
    }
    let days = validity.days_left(now_s);
    let hosts = AllowedHosts::new(config);
    let (taken, foreign): (Vec<&CertificateName>, Vec<&CertificateName>) =
        certificate.names.iter().partition(|name| is_taken(name, &hosts));
    if let Some(CertificateName::Dns(name)) = foreign.first() {
        return Finding::warning(
            WHAT,
            format!(
                "the certificate is for {name}, but requests for that name are refused with 421: set --allowed-hosts {name}"
            ),
        );
    }
    if taken.is_empty() {
        return Finding::error(WHAT, "the certificate has no names, so no browser accepts it");
    }
    if validity.until_s - now_s < CERTIFICATE_LEFT_MIN.as_secs() {
        return Finding::warning(
            WHAT,
            format!("the certificate expires in {days} days: replace its file and send SIGHUP"),
        );
    }
    Finding::ok(
        WHAT,
        format!(
            "the certificate matches its key, is for {}, and expires in {days} days",
            list(&certificate.names)
        ),
    )
}

/// Checks the stored certificate of the runner; without one, the next start issues it.
pub fn of_runner(kept: Option<&Certificate>, wanted: &[CertificateName], now_s: u64) -> Finding {
    let Some(kept) = kept else {
        return Finding::ok(WHAT, "the runner creates a certificate at start-up");
    };
    match renewal_reason(kept, wanted, now_s) {
        Some(why) => {
            let text = match why {
                RenewalReason::Missing(name) => format!("{name} is missing"),
                RenewalReason::Ending => "it expires soon".to_owned(),
                RenewalReason::Ahead => "it was created while the clock was ahead".to_owned(),
            };
            Finding::ok(WHAT, format!("the runner replaces its certificate at start-up: {text}"))
        }
        None => Finding::ok(
            WHAT,
            format!(
                "the certificate of the runner for {} expires in {} days",
                list(&kept.names),
                kept.validity.days_left(now_s)
            ),
        ),
    }
}

/// Checks plain HTTP: on other machines, browsers do not grant access to the microphone.
pub fn none(config: &Config) -> Finding {
    if config.proxy.is_some() {
        return Finding::ok(WHAT, "plain HTTP; the proxy provides HTTPS");
    }
    Finding::ok(
        WHAT,
        "plain HTTP: browsers on other machines block the microphone; --tls auto serves HTTPS on the same port",
    )
}

/// Returns whether the server accepts a name of the certificate. Addresses are always accepted, as
/// is any name of a wildcard.
fn is_taken(name: &CertificateName, hosts: &AllowedHosts) -> bool {
    match name {
        CertificateName::Dns(name) => name.starts_with("*.") || hosts.accepts(name.as_bytes()),
        CertificateName::Address(_) => true,
    }
}

fn list(names: &[CertificateName]) -> String {
    let shown: Vec<String> = names.iter().take(NAMES_MAX).map(CertificateName::to_string).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;
    use crate::server::tls::{RELEASED_S, Validity};

    const NOW_S: u64 = RELEASED_S + 1_000_000;

    fn until(left_s: u64) -> Validity {
        Validity {
            from_s: NOW_S - 1_000,
            until_s: NOW_S + left_s,
        }
    }

    /// A certificate is valid at the minimum of remaining time, and a warning below it; both ends
    /// are reported differently.
    #[test]
    fn checks_the_validity_against_the_clock() {
        let left_s = CERTIFICATE_LEFT_MIN.as_secs();
        let config = Config::default();
        let verdict = |validity, now_s| of_files(&Certificate::example(&["localhost"], validity), &config, now_s).level;
        assert_eq!(verdict(until(left_s), NOW_S), FindingLevel::Ok);
        assert_eq!(verdict(until(left_s), NOW_S + 1), FindingLevel::Warning);
        assert_eq!(verdict(until(10), NOW_S + 10), FindingLevel::Warning);
        assert_eq!(verdict(until(10), NOW_S + 11), FindingLevel::Error);
        assert_eq!(verdict(until(10), NOW_S - 1_001), FindingLevel::Error);
    }

    /// A certificate for a name that the runner rejects is of no use until the name is allowed.
    #[test]
    fn checks_names_against_the_accepted_ones() {
        let whole = until(CERTIFICATE_LEFT_MIN.as_secs());
        let mut config = Config::default();
        let judge = |config: &Config, names: &[&str]| of_files(&Certificate::example(names, whole), config, NOW_S);
        let refused = judge(&config, &["localhost", "voice.example.org"]);
        assert_eq!(refused.level, FindingLevel::Warning);
        assert!(
            refused.text.contains("--allowed-hosts voice.example.org"),
            "{}",
            refused.text
        );
        config.host_names.push("voice.example.org".into());
        assert_eq!(
            judge(&config, &["voice.example.org", "*.example.org"]).level,
            FindingLevel::Ok
        );
        assert_eq!(judge(&config, &[]).level, FindingLevel::Error);
    }

    #[test]
    fn reports_the_runners_own_certificate_and_its_renewal() {
        let names = [CertificateName::Dns("board".into())];
        assert!(of_runner(None, &names, NOW_S).text.contains("creates a certificate"));
        let kept = Certificate::example(&["board"], Validity::of_certificate(NOW_S));
        let whole = of_runner(Some(&kept), &names, NOW_S);
        assert!(whole.text.contains("for board expires"), "{}", whole.text);
        let more = [
            CertificateName::Dns("board".into()),
            CertificateName::Dns("board.local".into()),
        ];
        let missing = of_runner(Some(&kept), &more, NOW_S);
        assert!(missing.text.contains("board.local is missing"), "{}", missing.text);
    }

    #[test]
    fn truncates_a_long_list_of_names() {
        let names: Vec<CertificateName> = (0..=NAMES_MAX)
            .map(|nth| CertificateName::Dns(format!("n{nth}")))
            .collect();
        assert!(list(&names).ends_with("n5 and 1 more"));
        assert!(!list(&names[..NAMES_MAX]).contains("more"));
    }
}
