//! The validated options of Media over QUIC, in every build.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::limits::MOQ_NAMESPACE_BYTES_MAX;
use super::relay_url::RelayUrl;

/// Bytes of the id of a participant of Media over QUIC.
const MOQ_PARTICIPANT_BYTES_MAX: usize = 64;

/// The default of `--moq-bind` in serve mode. Where IPv6 is absent, `0.0.0.0` replaces it.
pub const BIND_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 4080);
/// The default of `--moq-bot-id`.
pub const BOT_ID_DEFAULT: &str = "response";
/// The default of `--moq-client-id`.
pub const CLIENT_ID_DEFAULT: &str = "request";
/// What [`is_namespace`] accepts, for messages.
pub const NAMESPACE_RULE: &str = "1 to 128 visible ASCII characters, in parts between single slashes";
/// What [`is_participant`] accepts, for messages.
pub const PARTICIPANT_RULE: &str = "1 to 64 visible ASCII characters without slashes";

/// The `--moq-*` options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoqConfig {
    /// Who opens the connection, and from where.
    pub mode: MoqMode,
    /// The namespace of every session. Without one, each session has a random namespace.
    pub namespace: Option<String>,
    /// The last segment of the path of the bot's broadcast.
    pub bot_id: String,
    /// The last segment of the path of the caller's broadcast.
    pub client_id: String,
}

impl Default for MoqConfig {
    /// Returns the configuration without options.
    fn default() -> Self {
        MoqConfig {
            mode: MoqMode::Serve {
                bind: BIND_DEFAULT,
                certificate: MoqCertificate::SelfSigned { host: None },
            },
            namespace: None,
            bot_id: BOT_ID_DEFAULT.into(),
            client_id: CLIENT_ID_DEFAULT.into(),
        }
    }
}

impl MoqConfig {
    /// Returns whether callers connect to the runner.
    pub fn is_serving(&self) -> bool {
        matches!(self.mode, MoqMode::Serve { .. })
    }
}

/// The bound UDP port of Media over QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoqUdpPort {
    /// The port; 0 selects a free one.
    pub number: u16,
    /// Whether callers on this machine reach it by IPv6.
    pub has_ipv6: bool,
}

/// Who opens the QUIC connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoqMode {
    /// Callers connect to the runner.
    Serve {
        /// The UDP address; port 0 selects a free one.
        bind: SocketAddr,
        /// The certificate that callers are shown.
        certificate: MoqCertificate,
    },
    /// The runner connects to a relay.
    Dial {
        /// The relay.
        url: RelayUrl,
        /// The local address; by default any, with a free port.
        bind: Option<SocketAddr>,
        /// The self-signed certificate of the relay, whose hash browsers receive.
        certificate: Option<PathBuf>,
        /// Accept any certificate of the relay.
        is_insecure: bool,
    },
}

/// The source of the certificate in serve mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoqCertificate {
    /// Self-signed, valid 13 days and renewed, with its hash in `/start`.
    SelfSigned {
        /// The name of `--moq-tls-generate`; by default `localhost` and the names of this machine.
        host: Option<String>,
    },
    /// PEM files of `--moq-tls-cert` and `--moq-tls-key`, read again on SIGHUP.
    Files {
        /// Path of the certificate and its chain.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
    /// PEM files of `--tls`, read again on SIGHUP, if browsers accept them for QUIC: a public
    /// authority issued the certificate. Otherwise self-signed.
    FilesOfTls {
        /// Path of the certificate and its chain.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
}

/// Returns whether a text can be a namespace: [`NAMESPACE_RULE`].
pub fn is_namespace(text: &str) -> bool {
    text.len() <= MOQ_NAMESPACE_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && text.split('/').all(|part| !part.is_empty())
}

/// Returns whether a text can be the id of a participant: [`PARTICIPANT_RULE`].
pub fn is_participant(text: &str) -> bool {
    (1..=MOQ_PARTICIPANT_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_visible_ascii_in_parts() {
        for good in ["pipecat", "rooms/one", "pipecat-0123456789abcdef", "a.b~c!"] {
            assert!(is_namespace(good), "{good}");
        }
        for bad in ["", "/", "/a", "a/", "a//b", "a b", "a\n", "é"] {
            assert!(!is_namespace(bad), "{bad:?}");
        }
        for (good, bad) in [("response", ""), ("a.b", "a/b"), ("1", "a b")] {
            assert!(is_participant(good) && !is_participant(bad), "{good} {bad:?}");
        }
        for (longest, accepts) in [
            (MOQ_NAMESPACE_BYTES_MAX, is_namespace as fn(&str) -> bool),
            (MOQ_PARTICIPANT_BYTES_MAX, is_participant),
        ] {
            assert!(accepts(&"a".repeat(longest)) && !accepts(&"a".repeat(longest + 1)));
        }
        assert!(NAMESPACE_RULE.contains(&format!("1 to {MOQ_NAMESPACE_BYTES_MAX} ")));
        assert!(PARTICIPANT_RULE.contains(&format!("1 to {MOQ_PARTICIPANT_BYTES_MAX} ")));
    }
}
