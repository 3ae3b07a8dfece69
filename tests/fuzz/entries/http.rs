//! Properties of any request head: its path, `Host`, `Origin`, `Authorization` and `Range`.
//!
//! In: lines, in this order: method, target, `Host`, `Origin`, a second `Origin`, `Content-Type`,
//! `Authorization`, `Sec-Fetch-Site`, `Range`, `X-Forwarded-For`, `Forwarded`. A missing line is a
//! missing header. The same bytes are also parsed as the bytes of a connection. The rules of
//! `proto::http` and `proto::server` are compared with shorter, stricter copies. Source: RFC 9110,
//! RFC 9112 section 3.2, the Fetch standard.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use edge_runner::config::{Config, Secret};
use edge_runner_cloud::proto::log_query::LogQuery;
use edge_runner_cloud::proto::route as cloud;
use edge_runner_proto::http::host::{self, AllowedHosts};
use edge_runner_proto::http::origin::{AllowedOrigins, CorsDecision, PostHeaders};
use edge_runner_proto::http::route::{self, Query, Route};
use edge_runner_proto::server::form;
use edge_runner_proto::server::forwarded::{Network, TrustedProxies};
use edge_runner_proto::server::key::ApiKey;
use edge_runner_proto::server::range::{self, ByteRange};
use edge_runner_proto::server::request_framing::RequestFraming;
use edge_runner_proto::webrtc::stun;

const KEY: &str = "0123456789abcdef";
const LISTED: [&str; 2] = ["https://app.example", "http://localhost:3000"];

/// The rules agree with their strict copies, and no secret of the head reaches the log.
pub fn request(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let method = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let target = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let mut header = || lines.next().filter(|value| !value.is_empty());
    let (host, origin, second, kind) = (header(), header(), header(), header());
    let (authorization, site, range) = (header(), header(), header());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    paths(&method, path, query);
    hosts(host.unwrap_or_default());
    origins(&[origin, second], host, kind, authorization.is_some(), site);
    keys(authorization.unwrap_or_default());
    ranges(&String::from_utf8_lossy(range.unwrap_or_default()));
    clients(header().unwrap_or_default(), header().unwrap_or_default());
    connection(bytes);
    let _ = stun::receiver_ufrag(bytes);
}

/// An untrusted sender is the client, regardless of its headers. A trusted proxy yields an address
/// in its headers, or its own.
fn clients(x_forwarded_for: &[u8], forwarded: &[u8]) {
    let network: Network = "10.0.0.0/8".parse().expect("a network");
    let proxies = TrustedProxies::new(&[network], false);
    let client = |peer: [u8; 4]| {
        let peer = IpAddr::from(peer);
        proxies.client_address(peer, [x_forwarded_for].into_iter(), [forwarded].into_iter())
    };
    assert_eq!(client([192, 0, 2, 7]), IpAddr::from([192, 0, 2, 7]));
    let found = client([10, 0, 0, 1]);
    let both = [x_forwarded_for, forwarded].concat().to_ascii_lowercase();
    if x_forwarded_for.is_empty() && forwarded.is_empty() {
        assert_eq!(found, IpAddr::from([10, 0, 0, 1]));
    }
    if let IpAddr::V4(address) = found
        && address != Ipv4Addr::new(10, 0, 0, 1)
    {
        let last = address.octets()[3].to_string();
        let is_said = both.windows(last.len()).any(|part| part == last.as_bytes());
        assert!(is_said || both.contains(&b':'), "{address} is said nowhere");
    }
}

/// Request boundaries do not depend on the chunking of the network.
fn connection(bytes: &[u8]) {
    let refused = |size: usize| {
        let mut framing = RequestFraming::default();
        bytes.chunks(size).for_each(|piece| framing.handle(piece));
        framing.first_ambiguous()
    };
    let whole = refused(bytes.len().max(1));
    assert_eq!(refused(1), whole);
    assert_eq!(refused(7), whole);
}

fn paths(method: &str, path: &str, query: &str) {
    let found = route::route(method, path);
    let secret = match &found {
        Ok(Route::Socket(_, token)) => token.clone(),
        Ok(Route::Offer(id) | Route::Candidates(id)) => id.clone(),
        _ => None,
    };
    if let Some(secret) = secret {
        assert!(!secret.is_empty() && !secret.contains('/'));
        // Shorter ones occur in path names.
        assert!(secret.len() < 16 || !route::path_for_log(path).contains(&secret));
    }
    if let Ok(Route::Page(name)) = &found {
        assert!(!name.split(['/', '\\']).any(|segment| matches!(segment, "." | "..")));
    }
    match method {
        "GET" => assert!(matches!(found, Ok(Route::Socket(..))) || route::route("HEAD", path) == found),
        "POST" | "PATCH" => assert!(!route::is_navigation(method, path)),
        _ => {}
    }
    let cloud_path = cloud::RequestPath::new(path);
    let _ = cloud_path.route(method);
    for bytes_max in [0, 7, 256] {
        // At worst three dots and a slash per byte, plus the dots of the last redaction and of the
        // truncation.
        assert!(cloud::redact_path(path, bytes_max, |_| false).len() <= 4 * bytes_max + 6);
    }
    let _ = Query::new(query).value("token");
    assert!(form::parse(query.as_bytes()).len() <= edge_runner_proto::limits::FORM_PAIRS_MAX);
    let _ = LogQuery::parse(query);
}

fn names() -> AllowedHosts {
    let mut config = Config::default();
    config.proxy = Some("bots.example.net:8443".into());
    config.host_names = vec!["board".into()];
    AllowedHosts::new(&config)
}

fn hosts(value: &[u8]) {
    let names = names();
    let accepted = names.accepts(value);
    assert_eq!(accepted, names.accepts(&value.to_ascii_uppercase()));
    assert!(!names.is_local(value) || accepted);
    assert!(!host::is_loopback(value) || accepted);
    if accepted {
        assert!(is_ours(value), "{:?} is accepted", String::from_utf8_lossy(value));
        assert!(host::is_same_host(value, value));
    }
}

/// Returns whether an authority is one of the names or any address, by its text alone.
fn is_ours(authority: &[u8]) -> bool {
    let text = str::from_utf8(authority)
        .expect("an accepted name is ASCII")
        .to_ascii_lowercase();
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']').expect("an end");
        let address = address.split('%').next().unwrap_or_default();
        assert!(port.is_empty() || port[1..].parse::<u16>().is_ok());
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let (name, port) = text.split_once(':').unwrap_or((&text, "0"));
    assert!(port.parse::<u16>().is_ok());
    let name = name.strip_suffix('.').unwrap_or(name);
    let known = matches!(name, "localhost" | "board" | "bots.example.net");
    known || name.ends_with(".localhost") || name.ends_with(".local") || name.parse::<Ipv4Addr>().is_ok()
}

fn origins(
    sent: &[Option<&[u8]>; 2],
    host: Option<&[u8]>,
    content_type: Option<&[u8]>,
    authorized: bool,
    site: Option<&[u8]>,
) {
    let list = AllowedOrigins::new(&LISTED.map(str::to_owned));
    let all: Vec<&[u8]> = sent.iter().copied().flatten().collect();
    match list.check(all.iter().copied()) {
        CorsDecision::Allowed(origin) => {
            assert_eq!(all, [origin]);
            let is = |listed: &&str| listed.as_bytes().eq_ignore_ascii_case(origin);
            assert!(LISTED.iter().any(is));
        }
        CorsDecision::Refused => {}
        CorsDecision::NotCors => panic!("with a list every origin is decided"),
    }
    if let CorsDecision::Allowed(origin) = AllowedOrigins::default().check(all.iter().copied()) {
        // It is copied into a response header.
        assert!(origin.is_ascii());
    }
    let post = PostHeaders {
        origin: sent[0],
        site,
        host,
        content_type,
        authorized,
    };
    let names = names();
    let forged = post.is_csrf(&names);
    assert!(!(forged && authorized));
    if content_type == Some(b"application/json") {
        assert!(!forged);
    }
    if content_type.is_none() && !authorized && sent[0] == Some(b"https://evil.example") {
        assert!(
            forged
                || host == Some(b"evil.example")
                || host.is_some_and(|host| host::is_same_host(b"evil.example", host))
        );
    }
}

fn keys(authorization: &[u8]) {
    let key = ApiKey::new(&Secret::new(KEY), [7; 32]);
    let opens = key.matches_header([authorization].into_iter());
    let words: Vec<&[u8]> = authorization
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    if opens {
        assert!(matches!(&*words, [scheme, key] if scheme.eq_ignore_ascii_case(b"bearer") && *key == KEY.as_bytes()));
    }
    assert!(!key.matches_header([authorization, authorization].into_iter()));
}

fn ranges(header: &str) {
    for length in [0, 1, 1_000, u64::MAX] {
        if let ByteRange::Partial(bytes) = range::parse(Some(header), length) {
            assert!(bytes.start < bytes.end && bytes.end <= length);
            assert!(header.trim_start().to_ascii_lowercase().starts_with("bytes"));
        }
    }
}
