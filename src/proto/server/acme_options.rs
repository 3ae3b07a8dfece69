//! The options of `--tls acme`.
//!
//! In: the typed options. Out: an [`AcmeConfig`], or a usage error. A name must be a public DNS
//! name, since a directory validates it from the internet. Source: RFC 8555; RFC 6761 and RFC 6762
//! (names that are not public).

use super::tls_config::{AcmeConfig, Tls};
use crate::features::Feature;
use crate::limits::ACME_NAMES_MAX;
use crate::options::{Flag, FlagKind, SERVER, UsageError, flag, hosts, need, push, put};

/// The directory of Let's Encrypt.
pub const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// That for experiments, whose certificates no browser trusts.
const STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";
/// Ends of names for which no public directory issues certificates.
const PRIVATE: [&str; 9] = [
    "local",
    "localhost",
    "lan",
    "internal",
    "home.arpa",
    "home",
    "test",
    "invalid",
    "onion",
];

/// The typed `--acme-*` options.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AcmeOptions {
    pub names: Vec<String>,
    pub email: Option<String>,
    pub directory: Option<String>,
    pub staging: bool,
    pub root: Option<String>,
}

const fn acme<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, SERVER, help).needs(&[Feature::Acme])
}

impl<T: AsMut<AcmeOptions>> Flag<T> {
    /// The options of ACME.
    pub const ACME: &'static [Flag<T>] = &[
        acme(
            "--acme-name",
            FlagKind::List("NAME", |args: &mut T, text| push(&mut args.as_mut().names, text)),
            "Public host names for the certificate of `--tls acme`. They must resolve to this machine, and port 443 \
             of them must reach the HTTP port, for example by a port forwarded in the router. `--tls acme` accepts \
             the terms of service of the directory.",
        ),
        acme(
            "--acme-email",
            FlagKind::Value("ADDR", |args: &mut T, text| put(&mut args.as_mut().email, text)),
            "Contact address for the ACME account.",
        ),
        acme(
            "--acme-staging",
            FlagKind::Switch(|args: &mut T| args.as_mut().staging = true),
            "Use the staging directory of Let's Encrypt, to try things out: its limits are high, and browsers do not \
             trust its certificates.",
        ),
        acme(
            "--acme-directory",
            FlagKind::Value("URL", |args: &mut T, text| put(&mut args.as_mut().directory, text)),
            "Directory of another ACME authority. [default: Let's Encrypt]",
        ),
        acme(
            "--acme-root",
            FlagKind::Value("FILE", |args: &mut T, text| put(&mut args.as_mut().root, text)),
            "PEM file of the authorities to trust for the HTTPS of that directory, for one in your own network. \
             [default: those of the system]",
        ),
    ];
}

impl AcmeOptions {
    /// Validates the options, and adds ignored ones to `warnings`.
    ///
    /// # Errors
    /// [`UsageError`] for an invalid value, or a combination that cannot work.
    pub fn resolve(&self, tls: &Tls, warnings: &mut Vec<String>) -> Result<AcmeConfig, UsageError> {
        if *tls != Tls::Acme {
            return self.without(tls, warnings);
        }
        need("`--tls acme`", Feature::Acme)?;
        let mut names = Vec::new();
        for text in self.names.iter().flat_map(|text| text.split([',', ' '])) {
            match text.trim() {
                "" => {}
                text => {
                    let name = self.name(text)?;
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
            }
        }
        if names.is_empty() {
            return Err(UsageError::Combination(
                "`--tls acme` needs `--acme-name NAME`, the public host name of this machine".into(),
            ));
        }
        if names.len() > ACME_NAMES_MAX {
            return Err(UsageError::Combination(format!(
                "`--acme-name` takes at most {ACME_NAMES_MAX} names, not {}",
                names.len()
            )));
        }
        Ok(AcmeConfig {
            names,
            email: self.email()?,
            directory: self.directory()?,
            root: self.root.as_ref().map(Into::into),
        })
    }

    /// The certificate comes from elsewhere.
    fn without(&self, tls: &Tls, warnings: &mut Vec<String>) -> Result<AcmeConfig, UsageError> {
        if let (Tls::Files { .. }, [_, ..]) = (tls, self.names.as_slice()) {
            return Err(UsageError::Combination(
                "`--acme-name` and a certificate from files exclude each other: give `--tls acme` or `--tls CERT:KEY`"
                    .into(),
            ));
        }
        if *self != AcmeOptions::default() {
            warnings.push("the `--acme-` options are ignored: they need `--tls acme`".into());
        }
        Ok(AcmeConfig::default())
    }

    fn name(&self, text: &str) -> Result<String, UsageError> {
        let wrong = |wants: &str| Err(UsageError::value("--acme-name", text, wants));
        if text.starts_with("*.") {
            return wrong("whole host names: the runner cannot prove a wildcard, which needs DNS");
        }
        let bare = text.trim_matches(['[', ']']);
        if bare.parse::<std::net::IpAddr>().is_ok() {
            return wrong("DNS names: a certificate is not for an IP address; `--tls auto` covers addresses");
        }
        if !hosts::is_host(text) {
            return wrong("host names such as bot.example.net, without scheme and port");
        }
        let name = text.trim_end_matches('.').to_ascii_lowercase();
        let is_below = |end: &&str| {
            name.strip_suffix(*end)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        // A directory of one's own may issue for any name.
        let is_private = !name.contains('.') || PRIVATE.iter().any(is_below);
        if is_private && self.directory.is_none() {
            return wrong("public DNS names: this one is known in your network only; `--tls auto` covers it");
        }
        Ok(name)
    }

    fn email(&self) -> Result<Option<String>, UsageError> {
        let Some(email) = &self.email else {
            return Ok(None);
        };
        let is_address = email.split_once('@').is_some_and(|(user, host)| {
            let is_plain = |each: char| each.is_ascii_graphic() && !matches!(each, ',' | '?' | '<' | '>' | ':');
            !user.is_empty() && user.chars().all(is_plain) && hosts::is_host(host)
        });
        match is_address {
            true => Ok(Some(email.clone())),
            false => Err(UsageError::value("--acme-email", email, "one e-mail address")),
        }
    }

    fn directory(&self) -> Result<String, UsageError> {
        match (&self.directory, self.staging) {
            (Some(_), true) => Err(UsageError::Combination(
                "`--acme-staging` is the directory for experiments of Let's Encrypt, so it cannot be used with \
                 `--acme-directory`"
                    .into(),
            )),
            (None, true) => Ok(STAGING.into()),
            (None, false) => Ok(DIRECTORY.into()),
            (Some(url), false) => {
                let rest = url.strip_prefix("https://");
                let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
                match authority.and_then(hosts::split_port) {
                    Some((host, _)) if hosts::is_host(host) => Ok(url.clone()),
                    _ => Err(UsageError::value(
                        "--acme-directory",
                        url,
                        "the https:// URL of an ACME directory",
                    )),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> AcmeOptions {
        AcmeOptions {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..AcmeOptions::default()
        }
    }

    fn refused(options: &AcmeOptions) -> String {
        let refused = options.resolve(&Tls::Acme, &mut Vec::new());
        refused.expect_err("a usage error").to_string()
    }

    /// Names are taken from several options and from lists, in their order, in lower case, once
    /// each.
    #[test]
    fn names_are_collected() {
        let options = named(&["Bot.Example.net., b.example.net", "bot.example.net"]);
        let config = options.resolve(&Tls::Acme, &mut Vec::new()).expect("valid options");
        assert_eq!(config.names, ["bot.example.net", "b.example.net"]);
        assert_eq!((config.directory.as_str(), config.email), (DIRECTORY, None));
        let staging = AcmeOptions {
            staging: true,
            email: Some("me@example.net".into()),
            ..named(&["a.example.net"])
        };
        let config = staging.resolve(&Tls::Acme, &mut Vec::new()).expect("valid options");
        assert_eq!(
            (config.directory.as_str(), config.email.as_deref()),
            (STAGING, Some("me@example.net"))
        );
    }

    /// What no directory can certify is rejected with its reason.
    #[test]
    fn names_that_cannot_be_certified_are_rejected() {
        for (name, words) in [
            ("192.0.2.1", "IP address"),
            ("[2001:db8::1]", "IP address"),
            ("2001:db8::1", "IP address"),
            ("*.example.net", "wildcard"),
            ("https://a.example.net", "without scheme"),
            ("a.example.net:443", "without scheme"),
            ("board", "`--tls auto`"),
            ("board.local", "`--tls auto`"),
            ("a.home.arpa", "`--tls auto`"),
        ] {
            let said = refused(&named(&[name]));
            assert!(
                said.contains(words) && said.contains("--acme-name"),
                "{words} in {said}"
            );
        }
        assert!(refused(&named(&[])).contains("needs `--acme-name NAME`"));
        assert!(refused(&named(&[" , "])).contains("needs `--acme-name NAME`"));
        let many: Vec<String> = (0..=ACME_NAMES_MAX).map(|nth| format!("n{nth}.example.net")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(refused(&named(&many)).contains("at most 100 names, not 101"));
        assert!(named(&many[1..]).resolve(&Tls::Acme, &mut Vec::new()).is_ok());
    }

    /// A directory of one's own certifies private names; it excludes the staging directory.
    #[test]
    fn a_private_directory_certifies_private_names() {
        let own = AcmeOptions {
            directory: Some("https://ca.lan:9000/acme/directory".into()),
            ..named(&["board.lan"])
        };
        let config = own.resolve(&Tls::Acme, &mut Vec::new()).expect("valid options");
        assert_eq!(config.directory, "https://ca.lan:9000/acme/directory");
        assert!(refused(&AcmeOptions { staging: true, ..own }).contains("`--acme-staging`"));
        for bad in ["http://ca.lan/", "https://", "ca.lan", "https://a b/"] {
            let options = AcmeOptions {
                directory: Some(bad.into()),
                ..named(&["board.lan"])
            };
            assert!(refused(&options).contains("--acme-directory"), "{bad}");
        }
        for bad in [
            "me",
            "@example.net",
            "a@b@c",
            "a,b@example.net",
            "mailto:me@example.net",
        ] {
            let options = AcmeOptions {
                email: Some(bad.into()),
                ..named(&["a.example.net"])
            };
            assert!(refused(&options).contains("--acme-email"), "{bad}");
        }
    }

    /// With another source of the certificate the options are ignored, or contradict it.
    #[test]
    fn the_options_need_acme() {
        let mut warnings = Vec::new();
        let options = named(&["a.example.net"]);
        assert_eq!(options.resolve(&Tls::Auto, &mut warnings), Ok(AcmeConfig::default()));
        assert!(warnings[0].contains("`--tls acme`"));
        let files = Tls::Files {
            certificate: "c".into(),
            key: "k".into(),
        };
        let said = options
            .resolve(&files, &mut warnings)
            .expect_err("a usage error")
            .to_string();
        assert!(said.contains("exclude each other"), "{said}");
        warnings.clear();
        assert_eq!(
            AcmeOptions::default().resolve(&files, &mut warnings),
            Ok(AcmeConfig::default())
        );
        assert_eq!(warnings, [""; 0]);
    }
}
