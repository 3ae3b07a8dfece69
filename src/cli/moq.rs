//! Validation of the options of Media over QUIC.
//!
//! In: the typed options. Out: a usage error or warnings. The options are validated for every `-t`,
//! because a mistake is to be reported at start-up and not at the first session. `--moq-connect`
//! selects dialing unless `--moq-serve` is given.

use super::UsageError;
use crate::proto::options::hosts;

/// The typed `--moq-*` options.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moq {
    pub serve: bool,
    pub connect: Option<String>,
    pub bind: Option<String>,
    pub namespace: Option<String>,
    pub bot_id: Option<String>,
    pub client_id: Option<String>,
    pub tls_cert: Option<String>,
    pub tls_key: Option<String>,
    pub tls_generate: Option<String>,
    pub tls_insecure: bool,
}

impl Moq {
    /// Validates the options, and adds ignored ones to `warnings`.
    ///
    /// # Errors
    /// [`UsageError`] for an invalid value, and for a certificate without its key or a key without
    /// its certificate.
    pub fn check(&self, warnings: &mut Vec<String>) -> Result<(), UsageError> {
        if let Some(bind) = &self.bind {
            check_bind(bind)?;
        }
        for (option, name) in [
            ("--moq-namespace", &self.namespace),
            ("--moq-bot-id", &self.bot_id),
            ("--moq-client-id", &self.client_id),
        ] {
            if let Some(name) = name
                && name.split('/').any(str::is_empty)
            {
                return Err(UsageError::value(option, name, "a name without slashes at its ends"));
            }
        }
        if let Some(host) = &self.tls_generate
            && !hosts::is_host(host)
        {
            return Err(UsageError::value("--moq-tls-generate", host, "a host name"));
        }
        match &self.connect {
            Some(url) if !self.serve => self.check_dialing(url),
            _ => self.check_serving(warnings),
        }
    }

    fn check_serving(&self, warnings: &mut Vec<String>) -> Result<(), UsageError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => return Err(UsageError::Combination("`--moq-tls-cert` needs `--moq-tls-key`".into())),
            (None, Some(_)) => return Err(UsageError::Combination("`--moq-tls-key` needs `--moq-tls-cert`".into())),
            (Some(_), Some(_)) if self.tls_generate.is_some() => {
                warnings.push("`--moq-tls-generate` is ignored: a certificate is given".into());
            }
            _ => {}
        }
        if self.connect.is_some() {
            warnings.push("`--moq-connect` is ignored: `--moq-serve` listens instead".into());
        }
        if self.tls_insecure {
            warnings.push("`--moq-tls-insecure` is ignored: it applies only to dialing a relay".into());
        }
        Ok(())
    }

    fn check_dialing(&self, relay: &str) -> Result<(), UsageError> {
        check_relay(relay)?;
        if self.tls_key.is_some() && self.tls_cert.is_none() {
            return Err(UsageError::Combination("`--moq-tls-key` needs `--moq-tls-cert`".into()));
        }
        Ok(())
    }
}

fn check_relay(url: &str) -> Result<(), UsageError> {
    let wrong = |wants| Err(UsageError::value("--moq-connect", url, wants));
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| !scheme.is_empty()) else {
        return wrong("a URL such as https://relay.example.net/moq");
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    match hosts::split_port(authority) {
        Some((host, _)) if !hosts::is_host(host) => wrong("a URL with a host"),
        None => wrong("a URL with a host and an optional port"),
        Some((_, None)) if !["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) => {
            wrong("a URL with a port, unless it is http or https")
        }
        Some(_) => Ok(()),
    }
}

fn check_bind(bind: &str) -> Result<(), UsageError> {
    match hosts::split_port(bind) {
        // `:4080` listens on every address.
        Some((host, Some(_))) if host.is_empty() || hosts::is_host(host) => Ok(()),
        _ => Err(UsageError::value("--moq-bind", bind, "ADDR:PORT with a numeric port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn warnings(moq: &Moq) -> usize {
        let mut warnings = Vec::new();
        moq.check(&mut warnings).expect("valid options");
        warnings.len()
    }

    fn error(moq: &Moq) -> String {
        moq.check(&mut Vec::new()).expect_err("a usage error").to_string()
    }

    #[test]
    fn a_relay_needs_a_host_and_a_known_port() {
        for good in [
            "https://r.example.net",
            "http://r/anon",
            "moqt://r:4443/x",
            "HTTPS://[::1]:4443/moq",
        ] {
            let moq = Moq {
                connect: some(good),
                ..Moq::default()
            };
            assert_eq!(warnings(&moq), 0, "{good}");
        }
        for bad in [
            "relay.example.net",
            "https://",
            "https:///moq",
            "moqt://r/x",
            "https://r:0/",
            "https://r:x/",
            "://r:1",
        ] {
            let moq = Moq {
                connect: some(bad),
                ..Moq::default()
            };
            assert!(error(&moq).contains("--moq-connect"), "{bad}");
        }
    }

    #[test]
    fn a_bind_address_needs_a_numeric_port() {
        for good in ["[::]:4080", "0.0.0.0:4080", ":4080"] {
            assert_eq!(
                warnings(&Moq {
                    bind: some(good),
                    ..Moq::default()
                }),
                0,
                "{good}"
            );
        }
        for bad in ["4080", "[::]", "0.0.0.0:moq", "::1:4080", "1.2.3.4:65536"] {
            let moq = Moq {
                bind: some(bad),
                ..Moq::default()
            };
            assert!(error(&moq).contains("--moq-bind"), "{bad}");
        }
    }

    #[test]
    fn serving_needs_both_files_and_dialing_only_the_certificate() {
        let certificate = Moq {
            tls_cert: some("c.pem"),
            ..Moq::default()
        };
        assert!(error(&certificate).contains("`--moq-tls-cert` needs `--moq-tls-key`"));
        let key = Moq {
            tls_key: some("k.pem"),
            ..Moq::default()
        };
        assert!(error(&key).contains("`--moq-tls-key` needs `--moq-tls-cert`"));
        let dialing = |moq| Moq {
            connect: some("https://r"),
            ..moq
        };
        assert_eq!(warnings(&dialing(certificate)), 0);
        assert!(error(&dialing(key)).contains("`--moq-tls-key` needs `--moq-tls-cert`"));
    }

    #[test]
    fn warns_of_ignored_options() {
        let moq = Moq {
            serve: true,
            connect: some("https://r"),
            tls_cert: some("c"),
            tls_key: some("k"),
            tls_generate: some("localhost"),
            tls_insecure: true,
            ..Moq::default()
        };
        assert_eq!(warnings(&moq), 3);
    }

    #[test]
    fn names_have_no_empty_parts() {
        for bad in ["", "/a", "a/", "a//b"] {
            assert!(
                error(&Moq {
                    namespace: some(bad),
                    ..Moq::default()
                })
                .contains("--moq-namespace")
            );
        }
        assert_eq!(
            warnings(&Moq {
                namespace: some("rooms/one"),
                ..Moq::default()
            }),
            0
        );
    }
}
