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
/// most likely to reach. `path` holds the local and remote address in use, if known.
pub fn fragment(answer: &str, path: Option<(SocketAddr, SocketAddr)>) -> String {
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

/// Ranks a candidate by its distance from the path in use.
fn candidate_distance(candidate: &str, path: Option<(SocketAddr, SocketAddr)>) -> u8 {
    let Some((local, peer)) = path else {
        return 0;
    };
    let words: Vec<&str> = candidate.split(' ').collect();
    let address = |at: usize| words.get(at).and_then(|word| word.parse::<IpAddr>().ok());
    let base = words
        .iter()
        .position(|word| *word == "raddr")
        .and_then(|at| address(at + 1));
    let (is_local, is_base) = (address(4) == Some(local.ip()), base == Some(local.ip()));
    // A caller on the Internet reaches a private address through its public counterpart.
    match (is_local, is_base, is_public(peer.ip())) {
        (_, true, true) | (true, _, false) => 0,
        (true, _, true) | (_, true, false) => 1,
        _ if address(4).is_some_and(|address| address.is_ipv4() == local.is_ipv4()) => 2,
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

    /// Behind a NAT, a caller on the same network gets the private candidate, one on the Internet
    /// the public one.
    #[test]
    fn a_restart_offers_the_candidate_in_use() {
        let answer = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=ice-ufrag:u\r\na=ice-pwd:p\r\na=mid:a\r\n\
                      a=candidate:1 1 tcp 100 192.168.1.9 9 typ host tcptype passive\r\n\
                      a=candidate:2 1 udp 99 2001:db8::9 7860 typ host\r\n\
                      a=candidate:3 1 udp 98 192.168.1.9 7860 typ host\r\n\
                      a=candidate:4 1 udp 97 198.51.100.7 7860 typ srflx raddr 192.168.1.9 rport 7860\r\n";
        let local = SocketAddr::from(([192, 168, 1, 9], 7860));
        for (peer, wanted) in [
            ([192, 168, 1, 20], "a=candidate:3 "),
            ([203, 0, 113, 5], "a=candidate:4 "),
        ] {
            let text = fragment(answer, Some((local, SocketAddr::from((peer, 5000)))));
            let found: Vec<&str> = text.lines().filter(|line| line.starts_with("a=candidate:")).collect();
            assert!(found.len() == 1 && found[0].starts_with(wanted), "{text}");
        }
        let text = fragment(answer, None);
        assert!(text.starts_with(
            "a=ice-ufrag:u\r\na=ice-pwd:p\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:a\r\na=candidate:2 "
        ));
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
