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

/// Returns whether an option, by the name of its variable, changes which relays are trusted.
pub fn changes_trust(variable: &str, is_set: impl Fn(&str) -> bool) -> bool {
    match variable {
        "RUNNER_MOQ_TLS_INSECURE" => true,
        // With a relay, it is the certificate that the relay may have.
        "RUNNER_MOQ_TLS_CERT" => is_set("RUNNER_MOQ_CONNECT"),
        _ => false,
    }
}

/// Returns the UDP port on which the runner serves callers itself, if it does; 0 is any free one.
pub fn served_port(config: &MoqConfig, transport: Option<Transport>) -> Option<u16> {
    match config.mode {
        MoqMode::Serve { bind, .. } if transport == Some(Transport::Moq) => Some(bind.port()),
        _ => None,
    }
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
mod tests;
