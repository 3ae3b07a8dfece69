//! `/start` for Media over QUIC.
//!
//! In: the configuration, the host that the request names, and what the session got. Out: the JSON
//! that clients pass to `connect()` unchanged. `relayUrl` is always `https` with an explicit port.
//! Source: R-014, R-015; `docs/spec/moq.md`; D-37.

use std::fmt;
use std::net::IpAddr;

use serde_json::json;

use super::config::{MoqCertificate, MoqConfig, MoqMode, MoqUdpPort, NAMESPACE_RULE, is_namespace};
use super::limits::{MOQ_NAMESPACE_BYTES_MAX, MOQ_READY};
use super::relay_url::PATH;
use crate::config::Config;
use crate::options::hosts;
use crate::server::body::ObjectReader;

/// The track of RTVI messages, in both directions.
pub const TRANSCRIPT_TRACK: &str = "transcript.json.z";

/// Why a session of Media over QUIC did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoqStartError {
    /// The session was not bound to its port, or connected to its relay, within [`MOQ_READY`].
    NotReady,
    /// The session ended before that; the reason.
    Ended(String),
    /// The file with the certificate of the relay cannot be used; the reason.
    Certificate(String),
}

impl fmt::Display for MoqStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The words of Pipecat's runner.
            MoqStartError::NotReady => write!(f, "Bot did not become ready within {}s", MOQ_READY.as_secs()),
            MoqStartError::Ended(why) => write!(f, "the session ended before it was ready: {why}"),
            MoqStartError::Certificate(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for MoqStartError {}

/// Takes the namespace that the request asks for.
pub fn take_namespace(fields: &mut ObjectReader) -> Option<String> {
    match fields.string("namespace", MOQ_NAMESPACE_BYTES_MAX) {
        Some(name) if !is_namespace(&name) => {
            let rule = format!("String should have {NAMESPACE_RULE}");
            fields.reject("namespace", rule, "string_pattern_mismatch")
        }
        namespace => namespace,
    }
}

/// What a caller needs to reach its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoqReply<'r> {
    pub session_id: &'r str,
    pub relay_url: &'r str,
    /// SHA-256 of the self-signed certificate in DER, in Base64; `None` if browsers verify it.
    pub cert_hash: Option<&'r str>,
    pub namespace: &'r str,
}

impl MoqReply<'_> {
    /// Returns the JSON of the response.
    pub fn to_json(self, config: &MoqConfig) -> Vec<u8> {
        let moq = json!({
            "relayUrl": self.relay_url,
            "certHash": self.cert_hash,
            "serve": matches!(config.mode, MoqMode::Serve { .. }),
            "namespace": self.namespace,
            "clientId": config.client_id,
            "botId": config.bot_id,
            "transcriptTrack": TRANSCRIPT_TRACK,
        });
        json!({"sessionId": self.session_id, "moq": moq})
            .to_string()
            .into_bytes()
    }
}

/// Returns the namespace of a session: that of the request, else that of the configuration, else an
/// unguessable one: `pipecat-` and 16 hexadecimal digits.
pub fn namespace(asked: Option<String>, config: &MoqConfig, random: u64) -> String {
    let namespace = asked.or_else(|| config.namespace.clone());
    namespace.unwrap_or_else(|| format!("pipecat-{random:016x}"))
}

/// Returns the URL that callers connect to. `request_host` is the accepted `Host` header; `port` is
/// that of serve mode; `token` is the one-time token, if one is required.
///
/// The host is, in serve mode, that of `--moq-tls-generate`, else that of `--proxy`. A self-signed
/// certificate is accepted by its hash for any host, so the bound address comes next if it is a
/// single one; else the host at which the caller reached HTTP, which it can resolve.
pub fn caller_url(config: &Config, request_host: &str, port: MoqUdpPort, token: Option<&str>) -> String {
    let (bind, certificate) = match &config.moq.mode {
        MoqMode::Dial { url, .. } => return url.for_callers(),
        MoqMode::Serve { bind, certificate } => (bind, certificate),
    };
    let named = |authority: &str| hosts::split_port(authority).map(|(host, _)| host.to_ascii_lowercase());
    let self_signed = matches!(certificate, MoqCertificate::SelfSigned { .. });
    let host = match (certificate, &config.proxy) {
        (MoqCertificate::SelfSigned { host: Some(host) }, _) => Some(host.clone()),
        (_, Some(proxy)) => named(proxy),
        _ if self_signed && !bind.ip().is_unspecified() => Some(in_url(bind.ip())),
        _ => named(request_host).filter(|host| hosts::is_host(host)),
    };
    let host = match host.as_deref() {
        // Browsers try only the IPv6 address of the name.
        Some("localhost") | None if self_signed && !port.has_ipv6 => "127.0.0.1",
        Some(host) => host,
        None => "localhost",
    };
    let token = token.map_or_else(String::new, |token| format!("/{token}"));
    format!("https://{host}:{}{PATH}{token}", port.number)
}

fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::moq::relay_url::RelayUrl;

    fn serving(bind: &str, certificate: MoqCertificate) -> Config {
        let mut config = Config::default();
        let bind = bind.parse().expect("an address");
        config.moq.mode = MoqMode::Serve { bind, certificate };
        config
    }

    fn own() -> MoqCertificate {
        MoqCertificate::SelfSigned { host: None }
    }

    fn files() -> MoqCertificate {
        let (certificate, key) = ("c".into(), "k".into());
        MoqCertificate::Files { certificate, key }
    }

    fn dialing(url: &str) -> Config {
        let mut config = Config::default();
        config.moq.mode = MoqMode::Dial {
            url: RelayUrl::parse(url).expect("a URL"),
            bind: None,
            certificate: None,
            is_insecure: false,
        };
        config
    }

    /// The reply has exactly the members of the notes, section 2.
    #[test]
    fn the_reply_has_every_member() {
        let reply = |config: &Config, cert_hash| -> Value {
            let reply = MoqReply {
                session_id: "S",
                relay_url: "https://localhost:4080/moq",
                cert_hash,
                namespace: "pipecat",
            };
            serde_json::from_slice(&reply.to_json(&config.moq)).expect("JSON")
        };
        let mut expected = json!({"sessionId": "S", "moq": {
            "relayUrl": "https://localhost:4080/moq", "certHash": "H", "serve": true, "namespace": "pipecat",
            "clientId": "request", "botId": "response", "transcriptTrack": "transcript.json.z",
        }});
        assert_eq!(reply(&Config::default(), Some("H")), expected);
        expected["moq"]["certHash"] = Value::Null;
        expected["moq"]["serve"] = json!(false);
        assert_eq!(reply(&dialing("https://r"), None), expected);
    }

    #[test]
    fn a_namespace_is_of_the_request_the_option_or_random() {
        let mut config = MoqConfig::default();
        assert_eq!(namespace(None, &config, 0xab), "pipecat-00000000000000ab");
        assert_eq!(namespace(None, &config, u64::MAX), "pipecat-ffffffffffffffff");
        config.namespace = Some("fixed".into());
        assert_eq!(namespace(None, &config, 0xab), "fixed");
        assert_eq!(namespace(Some("rooms/1".into()), &config, 0xab), "rooms/1");
    }

    fn port(number: u16) -> MoqUdpPort {
        MoqUdpPort { number, has_ipv6: true }
    }

    #[test]
    fn callers_get_a_host_that_they_can_reach() {
        let url = |config: &Config, host: &str| caller_url(config, host, port(4080), None);
        let any = serving("[::]:4080", own());
        assert_eq!(url(&any, "localhost:7860"), "https://localhost:4080/moq");
        assert_eq!(url(&any, "192.168.1.7:7860"), "https://192.168.1.7:4080/moq");
        assert_eq!(url(&any, "Board.local"), "https://board.local:4080/moq");
        assert_eq!(url(&any, "[::1]:7860"), "https://[::1]:4080/moq");
        assert_eq!(url(&any, ""), "https://localhost:4080/moq");
        let v4 = MoqUdpPort {
            has_ipv6: false,
            ..port(4080)
        };
        for (host, expected) in [
            ("localhost:7860", "127.0.0.1"),
            ("", "127.0.0.1"),
            ("board.local", "board.local"),
        ] {
            assert_eq!(caller_url(&any, host, v4, None), format!("https://{expected}:4080/moq"));
        }
        let one = serving("192.168.1.7:4080", own());
        assert_eq!(url(&one, "board.local"), "https://192.168.1.7:4080/moq");
        let one = serving("[2001:db8::1]:4080", own());
        assert_eq!(url(&one, "board.local"), "https://[2001:db8::1]:4080/moq");
        let host = Some("robot.lan".to_owned());
        let mut named = serving("192.168.1.7:4080", MoqCertificate::SelfSigned { host });
        named.proxy = Some("bot.example.net".into());
        assert_eq!(url(&named, "localhost"), "https://robot.lan:4080/moq");
    }

    /// A browser compares the names of a certificate from files with the host.
    #[test]
    fn a_certificate_from_files_needs_its_name() {
        let mut files = serving("192.168.1.7:4080", files());
        let url = caller_url(&files, "bot.example.net", port(1), None);
        assert_eq!(url, "https://bot.example.net:1/moq");
        files.proxy = Some("public.example.net:8443".into());
        let url = caller_url(&files, "localhost:7860", port(1), None);
        assert_eq!(url, "https://public.example.net:1/moq");
    }

    #[test]
    fn a_token_ends_the_path_and_a_relay_has_its_own() {
        let any = serving("[::]:4080", own());
        let url = caller_url(&any, "localhost", port(4080), Some("a.b"));
        assert_eq!(url, "https://localhost:4080/moq/a.b");
        let url = caller_url(&dialing("moqt://relay:4443"), "localhost", port(0), None);
        assert_eq!(url, "https://relay:4443/moq");
    }

    #[test]
    fn errors_are_sentences() {
        assert_eq!(
            MoqStartError::NotReady.to_string(),
            "Bot did not become ready within 15s"
        );
        assert!(MoqStartError::Ended("x".into()).to_string().ends_with(": x"));
    }
}
