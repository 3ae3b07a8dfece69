//! Checks the certificates of Media over QUIC, that of the runner and that of a relay, and the
//! relay itself.
//!
//! In: a certificate and the clock; the outcome of a connection. Out: findings. Browsers accept a
//! certificate for QUIC in two ways: a public authority issued it, or `/start` gives its hash. By
//! its hash it has to be on P-256, valid now, and valid for at most 14 days in all. Source: W3C
//! WebTransport, "serverCertificateHashes".

use crate::doctor::Finding;
use crate::limits::CERTIFICATE_LEFT_MIN;
use crate::moq::certificate::refusal_by_hash;
use crate::moq::link::LinkClosed;
use crate::moq::relay_url::RelayUrl;
use crate::server::tls::parsed::Certificate;

/// Name of the check of the certificate.
pub const WHAT: &str = "quic tls";

/// Returns the finding about a certificate that the runner makes.
pub fn made() -> Finding {
    Finding::ok(
        WHAT,
        "the runner makes a certificate for 13 days and renews it; /start gives its hash, so browsers accept it",
    )
}

/// Checks the certificate of `--moq-tls-cert`, or of `--tls` if `is_shared`. `is_trusted` says that
/// this system trusts its authority, by the rule of the runner.
pub fn of_files(certificate: &Certificate, is_shared: bool, is_trusted: bool, now_s: u64) -> Finding {
    if is_shared && !is_trusted {
        return Finding::ok(
            WHAT,
            "the runner makes a certificate for 13 days and renews it, since this system does not trust that of --tls; \
             /start gives its hash, so browsers accept it",
        );
    }
    if let Some(finding) = out_of_time(certificate, now_s, "replace its file and send SIGHUP") {
        return finding;
    }
    let days = certificate.validity.days_left(now_s);
    if certificate.is_self_issued() {
        return match refusal_by_hash(certificate, now_s) {
            Some(refused) => Finding::warning(
                WHAT,
                format!(
                    "browsers refuse the self-signed certificate by its hash: {refused}; without --moq-tls-cert the runner \
                     makes one that they accept"
                ),
            ),
            None => Finding::ok(
                WHAT,
                format!(
                    "the self-signed certificate expires in {days} days; /start gives its hash, so browsers accept it"
                ),
            ),
        };
    }
    if !is_trusted {
        return Finding::warning(
            WHAT,
            format!(
                "browsers refuse the certificate: this system does not trust its authority, {}; without --moq-tls-cert \
                 the runner makes one that they accept by its hash",
                certificate.issuer
            ),
        );
    }
    let names: Vec<String> = certificate.names.iter().map(ToString::to_string).collect();
    let left_s = certificate.validity.until_s.saturating_sub(now_s);
    if left_s < CERTIFICATE_LEFT_MIN.as_secs() {
        let text = format!("the certificate expires in {days} days: replace its file and send SIGHUP");
        return Finding::warning(WHAT, text);
    }
    Finding::ok(
        WHAT,
        format!(
            "the certificate is for {}, and expires in {days} days; browsers accept it if its authority, {}, is a public one",
            names.join(", "),
            certificate.issuer
        ),
    )
}

/// Checks the relay's certificate of `--moq-tls-cert`, whose hash browsers receive.
pub fn of_relay(certificate: &Certificate, now_s: u64) -> Finding {
    if let Some(finding) = out_of_time(certificate, now_s, "name the file that the relay serves now") {
        return finding;
    }
    match refusal_by_hash(certificate, now_s) {
        Some(refused) => Finding::error(
            WHAT,
            format!(
                "browsers refuse the relay's certificate by its hash: {refused}; replace it, or leave out --moq-tls-cert"
            ),
        ),
        None => {
            let days = certificate.validity.days_left(now_s);
            Finding::ok(
                WHAT,
                format!("the relay's certificate expires in {days} days; /start gives its hash to browsers"),
            )
        }
    }
}

/// Judges a connection to the relay. `closed` is why it was not established, `None` if it was.
pub fn relay(url: &RelayUrl, closed: Option<&LinkClosed>, is_insecure: bool) -> Finding {
    const WHAT: &str = "relay";
    let why = match closed {
        None if is_insecure => {
            let text = format!("{url} accepts connections; its certificate is not verified (--moq-tls-insecure)");
            return Finding::warning(WHAT, text);
        }
        None if url.is_plain_http() => {
            let text = format!(
                "{url} accepts connections; the hash of its certificate comes over plain HTTP, where others on the way can \
                 replace it: use https://"
            );
            return Finding::warning(WHAT, text);
        }
        None => {
            return Finding::ok(
                WHAT,
                format!("{url} accepts connections, and its certificate is trusted"),
            );
        }
        Some(LinkClosed::TimedOut) => "no answer; the relay is down, or a firewall blocks UDP on the way".to_owned(),
        Some(LinkClosed::Rejected(status)) => {
            format!("it answers with HTTP status {status}; check the path, and the token if it needs one")
        }
        Some(LinkClosed::Failed(why)) if why.contains("invalid peer certificate") && url.is_plain_http() => {
            "its certificate is not the one whose hash it has at /certificate.sha256; another program may be at one of the \
             two ports, TCP and UDP"
                .to_owned()
        }
        // The words of the TLS library about what this end refused.
        Some(LinkClosed::Failed(why)) if why.contains("invalid peer certificate") => {
            "its certificate is not trusted; install the certificate of its authority on this machine, or set \
             --moq-tls-insecure in a network of your own"
                .to_owned()
        }
        Some(LinkClosed::ByPeer { .. } | LinkClosed::Locally | LinkClosed::Failed(_)) => {
            "something answers, but no relay that speaks moq-lite-04".to_owned()
        }
    };
    Finding::error(WHAT, format!("{url}: {why}"))
}

fn out_of_time(certificate: &Certificate, now_s: u64, remedy: &str) -> Option<Finding> {
    let validity = certificate.validity;
    let text = if now_s < validity.from_s {
        "the certificate is not valid yet, or the clock of this machine is wrong".to_owned()
    } else if now_s > validity.until_s {
        format!("the certificate has expired, or the clock of this machine is wrong: {remedy}")
    } else {
        return None;
    };
    Some(Finding::error(WHAT, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;
    use crate::server::tls::{CertificateName, RELEASED_S, Validity};

    const NOW_S: u64 = RELEASED_S + 1_000_000;
    const DAY_S: u64 = 86_400;

    fn certificate(issuer: &str, days: u64, is_p256: bool) -> Certificate {
        Certificate {
            subject: "bot.example.net".into(),
            issuer: issuer.into(),
            names: vec![CertificateName::Dns("bot.example.net".into())],
            validity: Validity {
                from_s: NOW_S - DAY_S,
                until_s: NOW_S - DAY_S + days * DAY_S,
            },
            is_authority: false,
            permitted: None,
            is_p256,
        }
    }

    /// A self-signed one is judged by the browsers' rules for hashes.
    #[test]
    fn a_self_signed_certificate_is_accepted_by_its_hash() {
        for (days, is_p256, level, words) in [
            (14, true, FindingLevel::Ok, "expires in 13 days; /start gives its hash"),
            (365, true, FindingLevel::Warning, "valid for 365 days"),
            (14, false, FindingLevel::Warning, "not on P-256"),
        ] {
            let finding = of_files(&certificate("bot.example.net", days, is_p256), false, false, NOW_S);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.text.contains(words), "{finding:?}");
        }
    }

    #[test]
    fn a_certificate_from_files_needs_an_authority() {
        let theirs = of_files(&certificate("Authority", 90, false), false, true, NOW_S);
        assert_eq!(theirs.level, FindingLevel::Ok);
        assert!(
            theirs.text.contains("bot.example.net, and expires in 89 days"),
            "{theirs:?}"
        );
        let foreign = of_files(&certificate("Authority", 90, false), false, false, NOW_S);
        assert_eq!(foreign.level, FindingLevel::Warning);
        assert!(
            foreign.text.contains("does not trust its authority, Authority"),
            "{foreign:?}"
        );
        let ending = of_files(&certificate("Authority", 3, false), true, true, NOW_S);
        assert_eq!(ending.level, FindingLevel::Warning);
        for at in [0, NOW_S + 100 * DAY_S] {
            let finding = of_files(&certificate("Authority", 90, false), false, false, at);
            assert_eq!(finding.level, FindingLevel::Error);
        }
    }

    /// The runner makes a certificate if this system does not trust that of `--tls`, for whatever
    /// reason; an expired one is no fault of QUIC.
    #[test]
    fn an_untrusted_certificate_of_https_is_replaced() {
        for (issuer, at) in [
            ("bot.example.net", NOW_S),
            ("Private", NOW_S),
            ("Authority", NOW_S + 100 * DAY_S),
        ] {
            let finding = of_files(&certificate(issuer, 90, true), true, false, at);
            assert_eq!(finding.level, FindingLevel::Ok, "{finding:?}");
            assert!(
                finding.text.starts_with("the runner makes a certificate"),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn a_relay_that_refuses_gets_advice() {
        let url = RelayUrl::parse("https://relay/moq?jwt=hunter2").expect("a URL");
        assert_eq!(relay(&url, None, false).level, FindingLevel::Ok);
        assert_eq!(relay(&url, None, true).level, FindingLevel::Warning);
        let plain = RelayUrl::parse("http://relay/moq").expect("a URL");
        let over_http = relay(&plain, None, false);
        assert_eq!(over_http.level, FindingLevel::Warning);
        assert!(over_http.text.contains("plain HTTP"), "{over_http:?}");
        let untrusted = "the cryptographic handshake failed: error 48: invalid peer certificate: UnknownIssuer";
        for (closed, words) in [
            (LinkClosed::TimedOut, "firewall"),
            (LinkClosed::Rejected(401), "HTTP status 401"),
            (LinkClosed::Failed(untrusted.into()), "not trusted"),
            (LinkClosed::Failed("a text of the peer".into()), "no relay that speaks"),
        ] {
            let finding = relay(&url, Some(&closed), false);
            assert_eq!(finding.level, FindingLevel::Error);
            assert!(finding.text.contains(words), "{finding:?}");
            assert!(!finding.text.contains("hunter2") && !finding.text.contains("of the peer"));
        }
        let other = relay(&plain, Some(&LinkClosed::Failed(untrusted.into())), false);
        assert!(other.text.contains("/certificate.sha256"), "{other:?}");
    }

    #[test]
    fn a_pinned_certificate_of_a_relay_is_on_p256_for_14_days() {
        assert_eq!(of_relay(&certificate("x", 14, true), NOW_S).level, FindingLevel::Ok);
        for (days, is_p256, at, words) in [
            (15, true, NOW_S, "valid for 15 days"),
            (14, false, NOW_S, "P-256"),
            (14, true, NOW_S + 14 * DAY_S, "expired"),
            (14, true, 0, "not valid yet"),
        ] {
            let finding = of_relay(&certificate("x", days, is_p256), at);
            assert_eq!(finding.level, FindingLevel::Error);
            assert!(finding.text.contains(words), "{finding:?}");
        }
    }
}
