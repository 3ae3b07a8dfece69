//! Response headers, the fragment of an ICE restart, and the bot's call data.
//!
//! In: SDP answers, the configured ICE servers, request headers. Out: header values, text, JSON.
//! Sources: RFC 8288 (links), RFC 9725 section 4.6, RFC 7064 and 7065 (URIs), RFC 8840.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value, json};

use super::path::WhipEndpoint;
use crate::address_scope::AddressScope;
use crate::server::form;
use crate::webrtc::ice::IceServer;

/// Characters of a `User-Agent` that are passed to the bot: browsers send some 150.
const USER_AGENT_CHARS_MAX: usize = 256;

/// Returns the entity tag of a fragment, which consists of letters and digits.
pub fn etag(ufrag: &str) -> String {
    format!("\"{ufrag}\"")
}

/// Returns the ICE user name fragment of an answer.
pub fn ufrag(answer: &str) -> &str {
    lines_after(answer, "a=ice-ufrag:").next().unwrap_or_default()
}

/// Returns the `Link` headers, one per URL, since clients read one link per line.
pub fn links(servers: &[IceServer]) -> Vec<String> {
    let mut links = Vec::new();
    for server in servers {
        for url in &server.urls {
            let mut link = format!("<{url}>; rel=\"ice-server\"");
            if let (Some(name), Some(credential)) = (&server.username, &server.credential) {
                let credential = quoted(credential);
                link.push_str(&format!(
                    "; username={}; credential={credential}; credential-type=\"password\"",
                    quoted(name)
                ));
            }
            links.push(link);
        }
    }
    links
}

/// Writes a quoted string, RFC 9110 section 5.6.4.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the fragment for an ICE restart: the credentials, and the candidate that the caller is
/// most likely to reach. `used` holds the local and remote address in use, if known, and `source`
/// the address from which the caller requests the restart, which is in its current network.
pub fn fragment(answer: &str, used: Option<(SocketAddr, SocketAddr)>, source: Option<IpAddr>) -> String {
    let path = used.map(|(local, peer)| {
        // A request over the other family says nothing about this path, nor does one over
        // loopback: it comes through a tunnel, or from this machine.
        let source = source.map(|source| source.to_canonical());
        let current = source.filter(|source| source.is_ipv4() == local.is_ipv4() && !source.is_loopback());
        (local.ip(), current.unwrap_or(peer.ip()))
    });
    let mut text = String::new();
    let mut push = |prefix: &str, value: &str| {
        text.push_str(prefix);
        text.push_str(value);
        text.push_str("\r\n");
    };
    let first = |prefix: &'static str| lines_after(answer, prefix).next();
    push("a=ice-ufrag:", ufrag(answer));
    push("a=ice-pwd:", first("a=ice-pwd:").unwrap_or_default());
    let media = lines_after(answer, "m=").find(|media| media.split(' ').nth(1) != Some("0"));
    if let Some(media) = media {
        push("m=", media);
    }
    if let Some(mid) = first("a=mid:") {
        push("a=mid:", mid);
    }
    let candidates = lines_after(answer, "a=candidate:").filter(|line| is_udp(line));
    if let Some(best) = candidates.min_by_key(|line| candidate_distance(line, path)) {
        push("a=candidate:", best);
    }
    text
}

/// Ranks a candidate by its distance from the path between a local address and a peer.
fn candidate_distance(candidate: &str, path: Option<(IpAddr, IpAddr)>) -> u8 {
    let Some((local, peer)) = path else {
        return 0;
    };
    let words: Vec<&str> = candidate.split(' ').collect();
    let address = |at: usize| words.get(at).and_then(|word| word.parse::<IpAddr>().ok());
    let base = words
        .iter()
        .position(|word| *word == "raddr")
        .and_then(|at| address(at + 1));
    let own = address(4).filter(|own| own.is_ipv4() == local.is_ipv4());
    let is_local = own == Some(local);
    // The public address of the operator is a host candidate without a base.
    let is_host = words.windows(2).any(|pair| pair == ["typ", "host"]);
    let is_named = is_host && !is_public(local) && own.is_some_and(|own| AddressScope::of(own) == AddressScope::Public);
    // A caller on the Internet reaches a private address through its public counterpart.
    match (is_local, base == Some(local) || is_named, is_public(peer)) {
        (_, true, true) | (true, _, false) => 0,
        (true, _, true) | (_, true, false) => 1,
        _ if own.is_some() => 2,
        _ => 3,
    }
}

fn is_public(address: IpAddr) -> bool {
    matches!(AddressScope::of(address), AddressScope::Public | AddressScope::Shared)
}

fn is_udp(candidate: &str) -> bool {
    candidate
        .split(' ')
        .nth(2)
        .is_some_and(|word| word.eq_ignore_ascii_case("udp"))
}

fn lines_after<'t>(text: &'t str, prefix: &'static str) -> impl Iterator<Item = &'t str> {
    text.lines()
        .filter_map(move |line| line.strip_prefix(prefix))
        .map(str::trim_end)
}

/// Returns the call data for the bot. It contains no other header, because headers may hold
/// credentials.
pub fn call_data(via: WhipEndpoint, name: Option<&str>, user_agent: Option<&[u8]>) -> Value {
    let user_agent = user_agent
        .map(String::from_utf8_lossy)
        .map(|agent| agent.chars().take(USER_AGENT_CHARS_MAX).collect::<String>());
    json!({"via": via.name(), "name": name, "user_agent": user_agent})
}

/// The query parameter that may hold a key.
pub const TOKEN: &str = "token";

/// Returns the bot's body from a query: strings, the first of each name, without the key.
pub fn query_body(query: &str) -> Map<String, Value> {
    let mut body = Map::new();
    for (name, value) in form::parse(query.as_bytes()) {
        if name != TOKEN {
            body.entry(name).or_insert(Value::String(value));
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_a_link() {
        let servers = [
            IceServer {
                urls: vec!["stun:stun.example:3478".into()],
                username: None,
                credential: None,
            },
            IceServer {
                urls: vec!["turn:t.example?transport=udp".into(), "turns:t.example".into()],
                username: Some("na\"me".into()),
                credential: Some("c\\d".into()),
            },
        ];
        let credentials = r#"username="na\"me"; credential="c\\d"; credential-type="password""#;
        assert_eq!(
            links(&servers),
            [
                r#"<stun:stun.example:3478>; rel="ice-server""#.to_owned(),
                format!(r#"<turn:t.example?transport=udp>; rel="ice-server"; {credentials}"#),
                format!(r#"<turns:t.example>; rel="ice-server"; {credentials}"#),
            ]
        );
    }

    const ANSWER: &str = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=ice-ufrag:u\r\na=ice-pwd:p\r\na=mid:a\r\n\
                          a=candidate:1 1 tcp 100 192.168.1.9 9 typ host tcptype passive\r\n\
                          a=candidate:2 1 udp 99 2001:db8::9 7860 typ host\r\n\
                          a=candidate:3 1 udp 98 192.168.1.9 7860 typ host\r\n";
    /// The public address by STUN, and by the operator.
    const REFLEXIVE: &str = "a=candidate:4 1 udp 97 198.51.100.7 7860 typ srflx raddr 192.168.1.9 rport 7860\r\n";
    const NAMED: &str = "a=candidate:5 1 udp 100 198.51.100.8 7860 typ host\r\n";

    /// Asserts which candidate a restart offers to a peer, given the source of its request.
    fn assert_offered(answer: &str, peer: [u8; 4], source: Option<IpAddr>, wanted: u8) {
        let used = [([192, 168, 1, 9], 7860), (peer, 5000)].map(SocketAddr::from);
        let text = fragment(answer, Some((used[0], used[1])), source);
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("a=candidate:")).collect();
        let start = format!("a=candidate:{wanted} ");
        assert!(found.len() == 1 && found[0].starts_with(&start), "{wanted}: {text}");
    }

    const IN_LAN: [u8; 4] = [192, 168, 1, 20];
    const ON_INTERNET: [u8; 4] = [203, 0, 113, 5];

    /// Behind a NAT, a caller on the same network gets the private candidate, one on the Internet
    /// the public one.
    #[test]
    fn a_restart_offers_the_candidate_in_use() {
        for (public, number) in [(REFLEXIVE, 4), (NAMED, 5)] {
            let answer = format!("{ANSWER}{public}");
            assert_offered(&answer, IN_LAN, None, 3);
            assert_offered(&answer, ON_INTERNET, None, number);
            let first = format!("{public}{ANSWER}");
            assert_offered(&first, IN_LAN, None, 3);
        }
        let text = fragment(ANSWER, None, None);
        assert!(text.starts_with(
            "a=ice-ufrag:u\r\na=ice-pwd:p\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:a\r\na=candidate:2 "
        ));
    }

    /// A public address of the machine itself is reached as it is, whatever others it has.
    #[test]
    fn a_restart_keeps_a_public_address() {
        let answer = format!("{NAMED}a=candidate:6 1 udp 90 198.51.100.9 7860 typ host\r\n");
        let used = [([198, 51, 100, 9], 7860), (ON_INTERNET, 5000)].map(SocketAddr::from);
        let text = fragment(&answer, Some((used[0], used[1])), None);
        assert!(text.contains("a=candidate:6 "), "{text}");
    }

    /// A caller restarts ICE after a change of its network: the request comes from the new one.
    #[test]
    fn a_restart_offers_the_candidate_for_the_new_network() {
        let answer = format!("{ANSWER}{REFLEXIVE}");
        assert_offered(&answer, IN_LAN, Some(ON_INTERNET.into()), 4);
        assert_offered(&answer, ON_INTERNET, Some(IN_LAN.into()), 3);
        let mapped: IpAddr = "::ffff:203.0.113.5".parse().expect("an address");
        assert_offered(&answer, IN_LAN, Some(mapped), 4);
        // The request came over IPv6, and the path is one of IPv4.
        let other: IpAddr = "2001:db8::20".parse().expect("an address");
        assert_offered(&answer, IN_LAN, Some(other), 3);
        // It came through a tunnel, such as one that ends TLS and adds no header.
        assert_offered(&answer, ON_INTERNET, Some([127, 0, 0, 1].into()), 4);
    }

    #[test]
    fn call_data_contains_no_secret() {
        assert_eq!(
            call_data(WhipEndpoint::Whip, Some("door"), Some(b"OBS/30")),
            json!({"via": "whip", "name": "door", "user_agent": "OBS/30"})
        );
        assert_eq!(call_data(WhipEndpoint::Calls, None, None)["user_agent"], Value::Null);
        let long = call_data(WhipEndpoint::Whep, None, Some("ä".repeat(1_000).as_bytes()));
        let agent = long["user_agent"].as_str().expect("text");
        assert_eq!(agent.chars().count(), USER_AGENT_CHARS_MAX);
        assert_eq!(
            Value::Object(query_body("room=a+b&token=S&room=c&x=%41&flag")),
            json!({"room": "a b", "x": "A", "flag": ""})
        );
        assert!(query_body("").is_empty());
    }
}
