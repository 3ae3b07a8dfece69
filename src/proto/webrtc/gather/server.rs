//! Parses the URLs of `--ice-servers` into servers that the runner can use.
//!
//! In: the list that `ice` validated. Out: one [`GatherServer`] per URL, in order, with the default
//! ports 3478 and 5349. Unusable servers have a reason: `stuns:` reports the address of a TCP
//! connection, which is useless for UDP candidates, and TURN over DTLS is not supported. Sources:
//! RFC 7064, RFC 7065, RFC 8656 section 3.

use std::net::Ipv6Addr;

use crate::limits::{RELAYS_MAX, STUN_SERVERS_MAX};
use crate::secret::Secret;
use crate::webrtc::ice::IceServer;

/// The transport to a TURN server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnTransport {
    Udp,
    Tcp,
    Tls,
}

/// What the runner requests from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerUse {
    /// A server-reflexive address, over UDP.
    Stun,
    /// A relayed address.
    Turn {
        transport: TurnTransport,
        username: String,
        credential: Secret,
    },
    /// Nothing, for this reason.
    Unusable(&'static str),
}

/// The server of one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherServer {
    /// The URL as configured; it contains no credential.
    pub url: String,
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
    pub usage: ServerUse,
}

impl GatherServer {
    /// Returns host and port for the log.
    pub fn authority(&self) -> String {
        if self.host.parse::<Ipv6Addr>().is_ok() {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns whether the server answers binding requests. TURN servers over UDP do as well.
    pub fn answers_binding(&self) -> bool {
        matches!(
            self.usage,
            ServerUse::Stun
                | ServerUse::Turn {
                    transport: TurnTransport::Udp,
                    ..
                }
        )
    }
}

/// Parses all URLs. Those beyond the caps are unusable.
pub fn parse_servers(list: &[IceServer]) -> Vec<GatherServer> {
    let (mut stun, mut turn) = (0, 0);
    let urls = list
        .iter()
        .flat_map(|entry| entry.urls.iter().map(move |url| (entry, url)));
    urls.map(|(entry, url)| {
        let mut server = parse_url(entry, url);
        let (count, max, why) = match server.usage {
            ServerUse::Stun => (&mut stun, STUN_SERVERS_MAX, "enough STUN servers stand before it"),
            ServerUse::Turn { .. } => (&mut turn, RELAYS_MAX, "enough TURN servers stand before it"),
            ServerUse::Unusable(_) => return server,
        };
        *count += 1;
        if *count > max {
            server.usage = ServerUse::Unusable(why);
        }
        server
    })
    .collect()
}

fn parse_url(entry: &IceServer, url: &str) -> GatherServer {
    let parts = split_url(url);
    let (host, port) = match &parts {
        Some(parts) => (parts.host.to_owned(), parts.port),
        None => (String::new(), 0),
    };
    let service = parts.map_or(ServerUse::Unusable("it is no URL of a STUN or TURN server"), |parts| {
        let transport = match (parts.scheme, parts.tcp) {
            ("stun", _) => return ServerUse::Stun,
            ("stuns", _) => return ServerUse::Unusable("STUN over TLS says nothing about UDP"),
            ("turn", None | Some(false)) => TurnTransport::Udp,
            ("turn", Some(true)) => TurnTransport::Tcp,
            ("turns", None | Some(true)) => TurnTransport::Tls,
            _ => return ServerUse::Unusable("TURN over DTLS is not spoken here; write ?transport=tcp"),
        };
        match (&entry.username, &entry.credential) {
            (Some(username), Some(credential)) => ServerUse::Turn {
                transport,
                username: username.clone(),
                credential: Secret::new(credential.clone()),
            },
            _ => ServerUse::Unusable("it has no username and credential"),
        }
    });
    GatherServer {
        url: url.to_owned(),
        host,
        port,
        usage: service,
    }
}

struct UrlParts<'u> {
    scheme: &'u str,
    host: &'u str,
    port: u16,
    /// The value of `?transport=`.
    tcp: Option<bool>,
}

fn split_url(url: &str) -> Option<UrlParts<'_>> {
    let (scheme, rest) = url.split_once(':')?;
    let default_port = match scheme {
        "stun" | "turn" => 3478,
        "stuns" | "turns" => 5349,
        _ => return None,
    };
    let (authority, tcp) = match rest.split_once('?') {
        None => (rest, None),
        Some((authority, "transport=tcp")) => (authority, Some(true)),
        Some((authority, "transport=udp")) => (authority, Some(false)),
        Some(_) => return None,
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().ok()?,
        None => default_port,
    };
    (!host.is_empty()).then_some(UrlParts {
        scheme,
        host,
        port,
        tcp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webrtc::ice;

    fn of(text: &str) -> Vec<GatherServer> {
        parse_servers(&ice::parse([text]).expect("a valid list"))
    }

    fn turn(url: &str) -> GatherServer {
        let text = format!(r#"{{"urls":"{url}","username":"u","credential":"canary"}}"#);
        of(&text).remove(0)
    }

    fn transport(url: &str) -> Option<TurnTransport> {
        match turn(url).usage {
            ServerUse::Turn { transport, .. } => Some(transport),
            _ => None,
        }
    }

    /// Host, port and transport of every URL form.
    #[test]
    fn urls_name_host_port_and_transport() {
        let place = |server: &GatherServer| (server.host.clone(), server.port);
        let stun = of("stun:stun.example").remove(0);
        assert_eq!(place(&stun), ("stun.example".into(), 3478));
        assert_eq!(stun.usage, ServerUse::Stun);
        assert_eq!(place(&of("stun:[2001:db8::1]:19302")[0]), ("2001:db8::1".into(), 19302));
        assert_eq!(of("stun:[2001:db8::1]")[0].authority(), "[2001:db8::1]:3478");
        assert_eq!(place(&turn("turns:t.example")), ("t.example".into(), 5349));
        assert_eq!(turn("turn:t.example:80").authority(), "t.example:80");
        assert_eq!(transport("turn:t.example"), Some(TurnTransport::Udp));
        assert_eq!(transport("turn:t.example?transport=udp"), Some(TurnTransport::Udp));
        assert_eq!(transport("turn:t.example?transport=tcp"), Some(TurnTransport::Tcp));
        assert_eq!(transport("turns:t.example?transport=tcp"), Some(TurnTransport::Tls));
        assert_eq!(transport("turns:t.example"), Some(TurnTransport::Tls));
    }

    /// Unusable servers have a reason, and `Debug` shows no credential.
    #[test]
    fn unusable_servers_have_a_reason() {
        assert!(matches!(of("stuns:s.example")[0].usage, ServerUse::Unusable(_)));
        assert!(matches!(
            turn("turns:t.example?transport=udp").usage,
            ServerUse::Unusable(_)
        ));
        let odd = IceServer {
            urls: vec!["http://x".into(), "turn:x".into()],
            username: None,
            credential: None,
        };
        assert!(
            parse_servers(&[odd])
                .iter()
                .all(|server| matches!(server.usage, ServerUse::Unusable(_)))
        );
        assert!(!format!("{:?}", turn("turn:t.example")).contains("canary"));
    }

    /// A TURN server over UDP answers binding requests too; one over TCP says nothing about UDP.
    #[test]
    fn binding_requests_go_to_servers_over_udp() {
        assert!(of("stun:s.example")[0].answers_binding());
        assert!(turn("turn:t.example").answers_binding());
        assert!(!turn("turn:t.example?transport=tcp").answers_binding());
        assert!(!of("stuns:s.example")[0].answers_binding());
    }

    /// At the cap every server is used; the next one is not.
    #[test]
    fn servers_are_capped() {
        let used = |list: &[IceServer]| {
            let servers = parse_servers(list);
            servers
                .iter()
                .filter(|server| !matches!(server.usage, ServerUse::Unusable(_)))
                .count()
        };
        let list = |n: usize| -> Vec<IceServer> {
            (0..n)
                .map(|n| IceServer {
                    urls: vec![format!("stun:s{n}.example"), format!("turn:t{n}.example")],
                    username: Some("u".into()),
                    credential: Some("c".into()),
                })
                .collect()
        };
        assert_eq!(used(&list(RELAYS_MAX)), 2 * RELAYS_MAX);
        assert_eq!(used(&list(RELAYS_MAX + 1)), 2 * RELAYS_MAX + 1);
        assert_eq!(used(&list(STUN_SERVERS_MAX)), STUN_SERVERS_MAX + RELAYS_MAX);
        assert_eq!(used(&list(STUN_SERVERS_MAX + 1)), STUN_SERVERS_MAX + RELAYS_MAX);
    }
}
