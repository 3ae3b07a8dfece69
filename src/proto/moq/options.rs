//! The options of Media over QUIC.
//!
//! In: the typed options. Out: a [`MoqConfig`] and warnings, or a usage error. The options are
//! validated for every `-t`, because a mistake is to be reported at start-up and not at the first
//! session. `--moq-connect` selects dialing unless `--moq-serve` is given. Source: R-014;
//! `docs/spec/moq.md`.

use std::net::{Ipv6Addr, SocketAddr};

use super::config::{
    BIND_DEFAULT, BOT_ID_DEFAULT, CLIENT_ID_DEFAULT, MoqCertificate, MoqConfig, MoqMode, NAMESPACE_RULE,
    PARTICIPANT_RULE, is_namespace, is_participant,
};
use super::relay_url::RelayUrl;
use crate::features::Feature;
use crate::options::{Env, Flag, FlagKind, UsageError, flag, hosts, put};
use crate::server::tls_config::Tls;
use crate::transport::Transport;

/// The heading of the options in the help.
const MOQ: &str = "Media over QUIC (`-t moq`)";

/// The typed `--moq-*` options.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MoqOptions {
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

const fn moq<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, MOQ, help).needs(&[Feature::Moq])
}

impl<T: AsMut<MoqOptions>> Flag<T> {
    /// The options of Media over QUIC.
    pub const MOQ: &'static [Flag<T>] = &[
        moq(
            "--moq-serve",
            FlagKind::Switch(|args: &mut T| args.as_mut().serve = true),
            "Listen for callers, even with `--moq-connect`. This is the default.",
        ),
        moq(
            "--moq-connect",
            FlagKind::Value("URL", |args: &mut T, text| put(&mut args.as_mut().connect, text)),
            "Connect to this relay instead of listening: SCHEME://HOST[:PORT][/PATH]. With http, anyone on the way \
             can take its place. [default port: 443 for https, 80 for http; default path: /moq]",
        ),
        moq(
            "--moq-bind",
            FlagKind::Value("ADDR:PORT", |args: &mut T, text| put(&mut args.as_mut().bind, text)),
            "UDP address to listen on, or to connect to the relay from. Port 0 picks a free port. [default: \
             [::]:4080, or any port with --moq-connect]",
        ),
        moq(
            "--moq-namespace",
            FlagKind::Value("NAME", |args: &mut T, text| put(&mut args.as_mut().namespace, text)),
            "Namespace of the broadcasts of every session. [default: that of the `/start` request, else a random one \
             per session]",
        ),
        moq(
            "--moq-bot-id",
            FlagKind::Value("ID", |args: &mut T, text| put(&mut args.as_mut().bot_id, text)),
            "Name of the bot's broadcast in the namespace. [default: response]",
        ),
        moq(
            "--moq-client-id",
            FlagKind::Value("ID", |args: &mut T, text| put(&mut args.as_mut().client_id, text)),
            "Name of the caller's broadcast in the namespace. [default: request]",
        ),
        moq(
            "--moq-tls-cert",
            FlagKind::Value("FILE", |args: &mut T, text| put(&mut args.as_mut().tls_cert, text)),
            "Certificate of the UDP port, a PEM file, read again on SIGHUP. With --moq-connect: the relay's \
             self-signed certificate, which `/start` names to browsers. [default: that of --tls if this system trusts \
             it, else a self-signed one]",
        ),
        moq(
            "--moq-tls-key",
            FlagKind::Value("FILE", |args: &mut T, text| put(&mut args.as_mut().tls_key, text)),
            "Private key of that certificate, a PEM file.",
        ),
        moq(
            "--moq-tls-generate",
            FlagKind::Value("HOST", |args: &mut T, text| put(&mut args.as_mut().tls_generate, text)),
            "Name in the self-signed certificate, and host in the URL that callers receive. [default: the host at \
             which the caller reached the server]",
        ),
        moq(
            "--moq-tls-insecure",
            FlagKind::Switch(|args: &mut T| args.as_mut().tls_insecure = true),
            "Do not verify the relay's certificate.",
        ),
    ];
}

impl MoqOptions {
    /// Validates the options, and adds ignored and risky ones to `warnings`.
    ///
    /// # Errors
    /// [`UsageError`] for an invalid value, for a certificate without its key or a key without its
    /// certificate, and for participants with the same id.
    pub fn resolve(
        &self,
        transport: Option<Transport>,
        tls: &Tls,
        ws_tokens: bool,
        env: &Env<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<MoqConfig, UsageError> {
        let bind = self.bind.as_deref().map(|text| bind(text, env)).transpose()?;
        let namespace = name("--moq-namespace", &self.namespace, is_namespace, NAMESPACE_RULE)?;
        let bot_id = name("--moq-bot-id", &self.bot_id, is_participant, PARTICIPANT_RULE)?;
        let client_id = name("--moq-client-id", &self.client_id, is_participant, PARTICIPANT_RULE)?;
        let bot_id = bot_id.unwrap_or_else(|| BOT_ID_DEFAULT.into());
        let client_id = client_id.unwrap_or_else(|| CLIENT_ID_DEFAULT.into());
        if bot_id == client_id {
            return Err(UsageError::Combination(format!(
                "`--moq-bot-id` and `--moq-client-id` must differ: both are `{bot_id}`"
            )));
        }
        if let Some(host) = &self.tls_generate
            && !hosts::is_host(host)
        {
            return Err(UsageError::value("--moq-tls-generate", host, "a host name"));
        }
        let mode = match &self.connect {
            Some(url) if !self.serve => self.dial(url, bind, warnings)?,
            _ => self.serve(bind, tls, warnings)?,
        };
        let is_used = transport == Some(Transport::Moq);
        if !is_used && *self != MoqOptions::default() {
            warnings.push("the options `--moq-*` have no effect without `-t moq`".into());
        }
        if is_used && ws_tokens && matches!(mode, MoqMode::Dial { .. }) {
            warnings.push(
                "`--ws-auth token` does not protect the calls of `--moq-connect`: the relay decides who may connect"
                    .into(),
            );
        }
        if is_used
            && let Some(namespace) = &namespace
            && let Some(words) = shared_namespace(&mode, ws_tokens)
        {
            warnings.push(format!(
                "`--moq-namespace {namespace}`: anyone who {words} and knows the namespace can take the call of \
                 somebody else; without this option every session has a random one"
            ));
        }
        Ok(MoqConfig {
            mode,
            namespace,
            bot_id,
            client_id,
        })
    }

    fn serve(&self, bind: Option<SocketAddr>, tls: &Tls, warnings: &mut Vec<String>) -> Result<MoqMode, UsageError> {
        let certificate = match (&self.tls_cert, &self.tls_key, tls) {
            (Some(_), None, _) => {
                return Err(UsageError::Combination("`--moq-tls-cert` needs `--moq-tls-key`".into()));
            }
            (None, Some(_), _) => {
                return Err(UsageError::Combination("`--moq-tls-key` needs `--moq-tls-cert`".into()));
            }
            (Some(certificate), Some(key), _) => {
                if self.tls_generate.is_some() {
                    warnings.push("`--moq-tls-generate` is ignored: a certificate is given".into());
                }
                MoqCertificate::Files {
                    certificate: certificate.into(),
                    key: key.into(),
                }
            }
            (None, None, Tls::Files { certificate, key }) if self.tls_generate.is_none() => {
                MoqCertificate::FilesOfTls {
                    certificate: certificate.clone(),
                    key: key.clone(),
                }
            }
            (None, None, _) => MoqCertificate::SelfSigned {
                host: self.tls_generate.as_ref().map(|host| host.to_ascii_lowercase()),
            },
        };
        if self.connect.is_some() {
            warnings.push("`--moq-connect` is ignored: `--moq-serve` listens instead".into());
        }
        if self.tls_insecure {
            warnings.push("`--moq-tls-insecure` is ignored: it applies only to `--moq-connect`".into());
        }
        Ok(MoqMode::Serve {
            bind: bind.unwrap_or(BIND_DEFAULT),
            certificate,
        })
    }

    fn dial(&self, url: &str, bind: Option<SocketAddr>, warnings: &mut Vec<String>) -> Result<MoqMode, UsageError> {
        let url = RelayUrl::parse(url).map_err(|error| UsageError::value("--moq-connect", url, error.to_string()))?;
        match (&self.tls_cert, &self.tls_key) {
            (None, Some(_)) => {
                return Err(UsageError::Combination("`--moq-tls-key` needs `--moq-tls-cert`".into()));
            }
            (Some(_), Some(_)) => {
                warnings.push("`--moq-tls-key` is ignored: the relay has the key of its certificate".into());
            }
            _ => {}
        }
        if self.tls_generate.is_some() {
            warnings.push("`--moq-tls-generate` is ignored: the certificate is that of the relay".into());
        }
        if url.is_plain_http() && !self.tls_insecure {
            warnings.push(format!(
                "`--moq-connect {url}`: the hash of the relay's certificate comes over plain HTTP, so that others on the way \
                 can take the relay's place and listen to every call; use https://"
            ));
        }
        if self.tls_insecure {
            warnings.push(format!(
                "`--moq-tls-insecure`: the certificate of {url} is not verified, so that others can listen to every call"
            ));
        }
        Ok(MoqMode::Dial {
            url,
            bind,
            certificate: self.tls_cert.as_ref().map(Into::into),
            is_insecure: self.tls_insecure,
        })
    }
}

/// Returns who can use a namespace that is not random; `None` if only those whom `/start` answers.
fn shared_namespace(mode: &MoqMode, ws_tokens: bool) -> Option<&'static str> {
    match mode {
        MoqMode::Dial { .. } => Some("may use the relay"),
        MoqMode::Serve { bind, .. } if ws_tokens || bind.ip().is_loopback() => None,
        MoqMode::Serve { .. } => Some("reaches the UDP port"),
    }
}

/// Validates a name.
fn name(
    option: &str,
    given: &Option<String>,
    accepts: fn(&str) -> bool,
    rule: &'static str,
) -> Result<Option<String>, UsageError> {
    match given {
        Some(name) if !accepts(name) => Err(UsageError::value(option, name, rule)),
        given => Ok(given.clone()),
    }
}

/// Resolves `ADDR:PORT`. `:4080` listens on every address, and port 0 selects a free one.
fn bind(text: &str, env: &Env<'_>) -> Result<SocketAddr, UsageError> {
    let wrong = |wants| UsageError::value("--moq-bind", text, wants);
    let (host, port) = text
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)))
        .filter(|(host, _)| host.is_empty() || hosts::is_host(host))
        .ok_or_else(|| wrong("ADDR:PORT with a numeric port, such as [::]:4080"))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port));
    }
    if let Ok(address) = bare.parse() {
        return Ok(SocketAddr::new(address, port));
    }
    let found = (env.lookup_host)(host);
    let address = found.iter().find(|address| address.is_ipv4()).or(found.first());
    address
        .map(|address| SocketAddr::new(*address, port))
        .ok_or_else(|| wrong("ADDR:PORT with an IP address or a name that this machine can resolve"))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn resolve(moq: &MoqOptions, tls: &Tls) -> Result<(MoqConfig, Vec<String>), UsageError> {
        resolve_with(moq, tls, false)
    }

    fn resolve_with(moq: &MoqOptions, tls: &Tls, ws_tokens: bool) -> Result<(MoqConfig, Vec<String>), UsageError> {
        let env = Env {
            lookup_host: &|name| match name {
                "localhost" => vec![IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)],
                _ => Vec::new(),
            },
            ..Env::of_variables::<&str, &str>(&[])
        };
        let mut warnings = Vec::new();
        let config = moq.resolve(Some(Transport::Moq), tls, ws_tokens, &env, &mut warnings)?;
        Ok((config, warnings))
    }

    fn config(moq: &MoqOptions) -> MoqConfig {
        let (config, warnings) = resolve(moq, &Tls::Off).expect("valid options");
        assert_eq!(warnings, [""; 0]);
        config
    }

    fn warnings(moq: &MoqOptions) -> Vec<String> {
        resolve(moq, &Tls::Off).expect("valid options").1
    }

    fn error(moq: &MoqOptions) -> String {
        resolve(moq, &Tls::Off).expect_err("a usage error").to_string()
    }

    fn certificate(moq: &MoqOptions, tls: &Tls) -> MoqCertificate {
        match resolve(moq, tls).expect("valid options").0.mode {
            MoqMode::Serve { certificate, .. } => certificate,
            MoqMode::Dial { .. } => panic!("it serves"),
        }
    }

    #[test]
    fn serves_without_options() {
        assert_eq!(config(&MoqOptions::default()), MoqConfig::default());
        let forced = MoqOptions {
            serve: true,
            ..MoqOptions::default()
        };
        assert_eq!(config(&forced), MoqConfig::default());
    }

    #[test]
    fn a_relay_needs_a_host_and_a_known_port() {
        for good in ["https://r.example.net", "moqt://r:4443/x"] {
            let moq = MoqOptions {
                connect: some(good),
                ..MoqOptions::default()
            };
            let dial = MoqMode::Dial {
                url: RelayUrl::parse(good).expect("a URL"),
                bind: None,
                certificate: None,
                is_insecure: false,
            };
            assert_eq!(config(&moq).mode, dial);
        }
        for (bad, part) in [
            ("relay.example.net", "a URL such as"),
            ("https://", "with a host"),
            ("moqt://r/x", "with a port, unless"),
            ("https://r:0/", "from 1 to 65535"),
        ] {
            let moq = MoqOptions {
                connect: some(bad),
                ..MoqOptions::default()
            };
            let error = error(&moq);
            assert!(error.contains("--moq-connect") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_bind_address_needs_a_numeric_port() {
        for (good, address) in [
            ("[::]:4080", "[::]:4080"),
            ("0.0.0.0:4080", "0.0.0.0:4080"),
            (":4081", "[::]:4081"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("localhost:4080", "127.0.0.1:4080"),
        ] {
            let moq = MoqOptions {
                bind: some(good),
                ..MoqOptions::default()
            };
            let MoqMode::Serve { bind, .. } = config(&moq).mode else {
                panic!("it serves")
            };
            assert_eq!(bind.to_string(), address);
        }
        for bad in [
            "4080",
            "[::]",
            "0.0.0.0:moq",
            "::1:4080",
            "1.2.3.4:65536",
            "elsewhere:1",
            "",
        ] {
            let moq = MoqOptions {
                bind: some(bad),
                ..MoqOptions::default()
            };
            assert!(error(&moq).contains("--moq-bind"), "{bad}");
        }
    }

    #[test]
    fn serving_needs_both_files_and_dialing_only_the_certificate() {
        let cert = MoqOptions {
            tls_cert: some("c.pem"),
            ..MoqOptions::default()
        };
        assert!(error(&cert).contains("`--moq-tls-cert` needs `--moq-tls-key`"));
        let key = MoqOptions {
            tls_key: some("k.pem"),
            ..MoqOptions::default()
        };
        assert!(error(&key).contains("`--moq-tls-key` needs `--moq-tls-cert`"));
        let dialing = |moq| MoqOptions {
            connect: some("https://r"),
            ..moq
        };
        let MoqMode::Dial { certificate, .. } = config(&dialing(cert)).mode else {
            panic!("it dials")
        };
        assert_eq!(certificate, Some("c.pem".into()));
        assert!(error(&dialing(key)).contains("`--moq-tls-key` needs `--moq-tls-cert`"));
    }

    /// The certificate of `--tls` serves both ports, unless another source is named.
    #[test]
    fn takes_the_certificate_of_https() {
        let tls = Tls::Files {
            certificate: "c".into(),
            key: "k".into(),
        };
        let shared = MoqCertificate::FilesOfTls {
            certificate: "c".into(),
            key: "k".into(),
        };
        let plain = MoqOptions::default();
        assert_eq!(certificate(&plain, &tls), shared);
        assert_eq!(
            certificate(&plain, &Tls::Auto),
            MoqCertificate::SelfSigned { host: None }
        );
        let named = MoqOptions {
            tls_generate: some("Board.local"),
            ..MoqOptions::default()
        };
        let host = some("board.local");
        assert_eq!(certificate(&named, &tls), MoqCertificate::SelfSigned { host });
        let own = MoqOptions {
            tls_cert: some("c2"),
            tls_key: some("k2"),
            ..MoqOptions::default()
        };
        let files = MoqCertificate::Files {
            certificate: "c2".into(),
            key: "k2".into(),
        };
        assert_eq!(certificate(&own, &tls), files);
    }

    #[test]
    fn warns_of_ignored_and_risky_options() {
        let moq = MoqOptions {
            serve: true,
            connect: some("https://r"),
            tls_cert: some("c"),
            tls_key: some("k"),
            tls_generate: some("localhost"),
            tls_insecure: true,
            ..MoqOptions::default()
        };
        assert_eq!(warnings(&moq).len(), 3);
        let moq = MoqOptions { serve: false, ..moq };
        let warnings = warnings(&moq);
        assert_eq!(warnings.len(), 3);
        assert!(warnings[2].contains("the certificate of https://r:443/moq is not verified"));
    }

    /// The hash of the relay's certificate comes unprotected, unless the certificate is not
    /// verified at all, which has a warning of its own.
    #[test]
    fn warns_of_a_relay_over_plain_http() {
        for (url, tls_insecure, words) in [
            ("http://r/moq", false, Some("over plain HTTP")),
            ("http://r/moq", true, Some("is not verified")),
            ("https://r/moq", false, None),
            ("moqt://r:1/moq", false, None),
        ] {
            let warnings = warnings(&MoqOptions {
                connect: some(url),
                tls_insecure,
                ..MoqOptions::default()
            });
            assert_eq!(warnings.len(), usize::from(words.is_some()), "{warnings:?}");
            assert!(words.is_none_or(|words| warnings[0].contains(words)), "{warnings:?}");
        }
    }

    /// The tokens of `/start` are checked by the runner's own port only.
    #[test]
    fn warns_that_a_relay_checks_no_tokens() {
        for (connect, count) in [(None, 0), (some("https://r"), 1)] {
            let moq = MoqOptions {
                connect,
                ..MoqOptions::default()
            };
            let (_, warnings) = resolve_with(&moq, &Tls::Off, true).expect("valid options");
            assert_eq!(warnings.len(), count, "{warnings:?}");
            assert!(
                warnings.iter().all(|words| words.contains("`--ws-auth token`")),
                "{warnings:?}"
            );
        }
    }

    /// A namespace that is not random lets others in, unless a token or the address excludes them.
    #[test]
    fn warns_of_a_shared_namespace() {
        let shared = |bind, connect: Option<&str>| MoqOptions {
            namespace: some("rooms/one"),
            bind: Some(bind),
            connect: connect.map(str::to_owned),
            ..MoqOptions::default()
        };
        for (moq, words) in [
            (shared("[::]:4080".into(), None), Some("reaches the UDP port")),
            (shared("[::1]:4080".into(), None), None),
            (shared("[::1]:0".into(), Some("https://r")), Some("may use the relay")),
        ] {
            let warnings = warnings(&moq);
            assert_eq!(warnings.len(), usize::from(words.is_some()), "{warnings:?}");
            assert!(words.is_none_or(|words| warnings[0].contains(words)), "{warnings:?}");
        }
        let serve = MoqConfig::default().mode;
        assert_eq!(shared_namespace(&serve, true), None);
    }

    #[test]
    fn names_are_checked_and_differ() {
        for bad in ["", "/a", "a/", "a//b", "a b", "é"] {
            let namespace = MoqOptions {
                namespace: some(bad),
                ..MoqOptions::default()
            };
            assert!(error(&namespace).contains("--moq-namespace"), "{bad}");
            let bot = MoqOptions {
                bot_id: some(bad),
                ..MoqOptions::default()
            };
            assert!(error(&bot).contains("--moq-bot-id"), "{bad}");
        }
        let same = MoqOptions {
            client_id: some("response"),
            ..MoqOptions::default()
        };
        assert!(error(&same).contains("must differ"));
        let named = config(&MoqOptions {
            namespace: some("rooms/one"),
            bind: some("127.0.0.1:0"),
            bot_id: some("bot"),
            client_id: some("caller"),
            ..MoqOptions::default()
        });
        assert_eq!(named.namespace.as_deref(), Some("rooms/one"));
        assert_eq!((&*named.bot_id, &*named.client_id), ("bot", "caller"));
    }
}
