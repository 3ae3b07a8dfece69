//! ICE server lists: parses `--ice-servers` and its variable, and writes the list for clients.
//!
//! In: texts, each with one URL, several separated by commas, one or several JSON objects (`urls`,
//! `username`, `credential`), or a JSON array of both. Out: [`IceServer`] values and their JSON.
//! Commas inside JSON do not separate. Rejected: entries on which a browser's `RTCPeerConnection`
//! throws, because one of them prevents every client from connecting. Errors never contain a
//! credential. Sources: RFC 7064 (`stun:`), RFC 7065 (`turn:`), W3C WebRTC section 4.2
//! (`RTCIceServer`).

use std::fmt;
use std::net::Ipv6Addr;

use serde_json::{Map, Value, json};

use crate::limits::{ICE_SERVERS_MAX, ICE_URLS_MAX};

/// One STUN or TURN server entry, as clients receive it in `iceConfig`.
#[derive(Clone, PartialEq, Eq)]
pub struct IceServer {
    /// `stun:`, `stuns:`, `turn:` or `turns:` URLs.
    pub urls: Vec<String>,
    /// User name, which TURN servers require.
    pub username: Option<String>,
    /// Password of the user name.
    pub credential: Option<String>,
}

impl fmt::Debug for IceServer {
    /// Omits user name and credential, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IceServer")
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

/// Why a list of ICE servers is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IceError {
    /// Malformed JSON, with the position of the error.
    NotJson { line: usize, column: usize },
    /// A JSON value that is neither a URL nor an object.
    NotAServer,
    /// A key that ICE servers do not have.
    UnknownKey(String),
    /// A `username` or `credential` that is not a string.
    NotText(&'static str),
    /// An object without a URL.
    NoUrls,
    /// A scheme other than stun, stuns, turn and turns.
    Scheme(String),
    /// `stun://host`; these URLs have no slashes.
    Slashes(String),
    /// A host that is neither a name nor an address.
    Host(String),
    /// A port outside 1 to 65535.
    Port(String),
    /// A query other than `?transport=udp` and `?transport=tcp`, or one on a STUN URL.
    Query(String),
    /// A TURN server without `username` and `credential`.
    NoCredential(String),
    /// Too many servers, or too many URLs of one server.
    TooMany { what: &'static str, max: usize },
}

impl fmt::Display for IceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IceError::NotJson { line, column } => write!(f, "this is not JSON at line {line}, column {column}"),
            IceError::NotAServer => f.write_str("a server is a URL or an object with `urls`"),
            IceError::UnknownKey(key) => write!(f, "a server has `urls`, `username` and `credential`, and no `{key}`"),
            IceError::NotText(key) => write!(f, "`{key}` of a server is text"),
            IceError::NoUrls => f.write_str("`urls` of a server is one URL or a list of them"),
            IceError::Scheme(url) => write!(f, "`{url}` begins with none of stun:, stuns:, turn:, turns:"),
            IceError::Slashes(url) => write!(f, "`{url}` has slashes; write stun:HOST:PORT"),
            IceError::Host(url) => write!(f, "`{url}` has no valid host; write stun:HOST:PORT"),
            IceError::Port(url) => write!(f, "`{url}` has a port that is not 1 to 65535"),
            IceError::Query(url) => write!(
                f,
                "`{url}` has a query, and only turn: URLs have one: ?transport=udp or ?transport=tcp"
            ),
            IceError::NoCredential(url) => write!(
                f,
                "`{url}` needs credentials: {{\"urls\": \"{url}\", \"username\": \"NAME\", \"credential\": \"SECRET\"}}"
            ),
            IceError::TooMany { what, max } => write!(f, "there are more than {max} {what}"),
        }
    }
}

impl std::error::Error for IceError {}

/// Parses the texts of an option or variable, in order, into one list.
///
/// # Errors
/// [`IceError`] for the first entry that a browser would reject.
pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Vec<IceServer>, IceError> {
    let mut servers = Vec::new();
    for text in texts {
        parse_one(text.trim(), &mut servers)?;
        if servers.len() > ICE_SERVERS_MAX {
            return Err(IceError::TooMany {
                what: "servers",
                max: ICE_SERVERS_MAX,
            });
        }
    }
    Ok(servers)
}

/// Returns the list as `iceConfig.iceServers`. Absent members are omitted, since clients read
/// `null` as text.
pub fn to_json(servers: &[IceServer]) -> Value {
    let object = |server: &IceServer| {
        let mut object = json!({ "urls": server.urls });
        if let Some(username) = &server.username {
            object["username"] = json!(username);
        }
        if let Some(credential) = &server.credential {
            object["credential"] = json!(credential);
        }
        object
    };
    servers.iter().map(object).collect()
}

fn parse_one(text: &str, servers: &mut Vec<IceServer>) -> Result<(), IceError> {
    match text.bytes().next() {
        Some(b'[') => parse_array(text, servers),
        // Several objects separated by commas form the content of an array.
        Some(b'{') => parse_array(&format!("[{text}]"), servers),
        _ => {
            for url in text.split(',').map(str::trim).filter(|url| !url.is_empty()) {
                servers.push(parse_server(vec![url.to_owned()], None, None)?);
            }
            Ok(())
        }
    }
}

fn parse_array(text: &str, servers: &mut Vec<IceServer>) -> Result<(), IceError> {
    let entries: Vec<Value> = serde_json::from_str(text).map_err(|error| IceError::NotJson {
        line: error.line(),
        column: error.column(),
    })?;
    for entry in entries {
        servers.push(match entry {
            Value::String(url) => parse_server(vec![url], None, None)?,
            Value::Object(object) => parse_object(object)?,
            _ => return Err(IceError::NotAServer),
        });
    }
    Ok(())
}

fn parse_object(object: Map<String, Value>) -> Result<IceServer, IceError> {
    let (mut urls, mut username, mut credential) = (Vec::new(), None, None);
    for (key, value) in object {
        match (key.as_str(), value) {
            ("urls" | "username" | "credential", Value::Null) => {}
            ("urls", Value::String(url)) => urls.push(url),
            ("urls", Value::Array(list)) => {
                for url in list {
                    let Value::String(url) = url else {
                        return Err(IceError::NoUrls);
                    };
                    urls.push(url);
                }
            }
            ("urls", _) => return Err(IceError::NoUrls),
            ("username", Value::String(text)) => username = Some(text),
            ("credential", Value::String(text)) => credential = Some(text),
            ("username", _) => return Err(IceError::NotText("username")),
            ("credential", _) => return Err(IceError::NotText("credential")),
            _ => return Err(IceError::UnknownKey(key)),
        }
    }
    parse_server(urls, username, credential)
}

fn parse_server(
    urls: Vec<String>,
    username: Option<String>,
    credential: Option<String>,
) -> Result<IceServer, IceError> {
    if urls.is_empty() {
        return Err(IceError::NoUrls);
    }
    if urls.len() > ICE_URLS_MAX {
        return Err(IceError::TooMany {
            what: "URLs of one server",
            max: ICE_URLS_MAX,
        });
    }
    let mut checked = Vec::with_capacity(urls.len());
    for url in urls {
        let url = url.trim();
        let scheme = check_url(url)?;
        if scheme.starts_with("turn") && (username.is_none() || credential.is_none()) {
            return Err(IceError::NoCredential(excerpt(url)));
        }
        // Browsers ignore the case of the scheme; older clients may not.
        checked.push(format!("{scheme}{}", &url[scheme.len()..]));
    }
    Ok(IceServer {
        urls: checked,
        username,
        credential,
    })
}

/// Checks one URL and returns its scheme in lower case.
fn check_url(url: &str) -> Result<&'static str, IceError> {
    let (scheme, rest) = url.split_once(':').ok_or_else(|| IceError::Scheme(excerpt(url)))?;
    let scheme = ["stun", "stuns", "turn", "turns"]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(scheme))
        .ok_or_else(|| IceError::Scheme(excerpt(url)))?;
    if rest.starts_with('/') {
        return Err(IceError::Slashes(excerpt(url)));
    }
    let (authority, query) = match rest.split_once('?') {
        Some((authority, query)) => (authority, Some(query)),
        None => (rest, None),
    };
    let query_fits = match query {
        None => true,
        Some(query) => scheme.starts_with("turn") && matches!(query, "transport=udp" | "transport=tcp"),
    };
    if !query_fits {
        return Err(IceError::Query(excerpt(url)));
    }
    check_authority(authority, url)?;
    Ok(scheme)
}

fn check_authority(authority: &str, url: &str) -> Result<(), IceError> {
    let (host_fits, port) = if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, after) = bracketed.split_once(']').ok_or_else(|| IceError::Host(excerpt(url)))?;
        let port = match after {
            "" => None,
            _ => Some(after.strip_prefix(':').ok_or_else(|| IceError::Host(excerpt(url)))?),
        };
        (host.parse::<Ipv6Addr>().is_ok(), port)
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        (!host.is_empty() && host.chars().all(known), port)
    };
    if !host_fits {
        return Err(IceError::Host(excerpt(url)));
    }
    match port.map(str::parse::<u16>) {
        None | Some(Ok(1..)) => Ok(()),
        Some(_) => Err(IceError::Port(excerpt(url))),
    }
}

/// Returns a URL for an error message, without user information before the host.
fn excerpt(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("...@{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Vec<IceServer>, IceError> {
        parse([text])
    }

    fn urls(text: &str) -> Vec<String> {
        one(text)
            .expect("a valid list")
            .into_iter()
            .flat_map(|server| server.urls)
            .collect()
    }

    /// R-080: URLs of all four schemes, names and addresses, with and without ports.
    #[test]
    fn urls_of_every_scheme_are_taken() {
        assert_eq!(urls("stun:stun.example.net"), ["stun:stun.example.net"]);
        assert_eq!(urls("STUNS:192.0.2.1:5349"), ["stuns:192.0.2.1:5349"]);
        assert_eq!(urls("stun:[2001:db8::1]:3478"), ["stun:[2001:db8::1]:3478"]);
        assert_eq!(urls("stun:a, stun:b ,"), ["stun:a", "stun:b"]);
        assert_eq!(urls(""), Vec::<String>::new());
    }

    /// R-080: JSON in every form that is documented; a comma inside JSON splits nothing.
    #[test]
    fn json_is_taken_as_object_as_several_and_as_array() {
        let turn = r#"{"urls": ["turn:t.example.net", "turns:t.example.net:443?transport=tcp"], "username": "u,1", "credential": "c"}"#;
        let servers = one(turn).expect("valid");
        assert_eq!(servers.len(), 1);
        assert_eq!(servers[0].urls.len(), 2);
        assert_eq!(servers[0].username.as_deref(), Some("u,1"));
        assert_eq!(one(&format!("{turn},{turn}")).expect("valid").len(), 2);
        assert_eq!(
            one(&format!(
                r#"["stun:a", {turn}, {{"urls": "stun:b", "username": null}}]"#
            ))
            .expect("valid")
            .len(),
            3
        );
        let mixed = parse(["stun:a,stun:b", turn]).expect("valid");
        assert_eq!(mixed.len(), 3);
    }

    #[test]
    fn each_mistake_has_its_error() {
        let text = |s: &str| s.to_owned();
        let cases = [
            ("stun.example.net", IceError::Scheme(text("stun.example.net"))),
            ("http:a", IceError::Scheme(text("http:a"))),
            ("stun://a", IceError::Slashes(text("stun://a"))),
            ("stun:", IceError::Host(text("stun:"))),
            ("stun:a b", IceError::Host(text("stun:a b"))),
            ("stun:[::1", IceError::Host(text("stun:[::1"))),
            ("stun:[::1]3478", IceError::Host(text("stun:[::1]3478"))),
            ("stun:a:0", IceError::Port(text("stun:a:0"))),
            ("stun:a:65536", IceError::Port(text("stun:a:65536"))),
            ("stun:a:", IceError::Port(text("stun:a:"))),
            ("stun:a?transport=udp", IceError::Query(text("stun:a?transport=udp"))),
            ("turn:a?x=1", IceError::Query(text("turn:a?x=1"))),
            ("turn:a", IceError::NoCredential(text("turn:a"))),
            (
                r#"{"urls":"turn:a","username":"u"}"#,
                IceError::NoCredential(text("turn:a")),
            ),
            (r#"{"username":"u"}"#, IceError::NoUrls),
            (r#"{"urls":[]}"#, IceError::NoUrls),
            (r#"{"urls":[1]}"#, IceError::NoUrls),
            (r#"{"urls":7}"#, IceError::NoUrls),
            (r#"{"urls":"stun:a","username":1}"#, IceError::NotText("username")),
            (r#"{"url":"stun:a"}"#, IceError::UnknownKey(text("url"))),
            ("[7]", IceError::NotAServer),
            (r#"["stun:a""#, IceError::NotJson { line: 1, column: 9 }),
        ];
        for (input, error) in cases {
            assert_eq!(one(input), Err(error), "{input}");
        }
    }

    /// A misplaced secret must not reach the terminal or the log.
    #[test]
    fn errors_and_debug_forms_never_carry_a_secret() {
        for input in [
            "turn:user:hunter2@host",
            r#"{"urls":"turn:a","credential":"hunter2"}"#,
            r#"{"urls":"http:a","username":"u","credential":"hunter2"}"#,
            r#"{"urls":"turn:a","username":"u","credential":"hunter2""#,
        ] {
            let error = one(input).expect_err("refused");
            assert!(!error.to_string().contains("hunter2"), "{error}");
            assert!(!format!("{error:?}").contains("hunter2"));
        }
    }

    #[test]
    fn lists_are_capped() {
        let list = |n: usize| vec!["stun:a"; n].join(",");
        assert_eq!(urls(&list(ICE_SERVERS_MAX)).len(), ICE_SERVERS_MAX);
        assert!(matches!(one(&list(ICE_SERVERS_MAX + 1)), Err(IceError::TooMany { .. })));
        let object = |n: usize| json!({ "urls": vec!["stun:a"; n] }).to_string();
        assert!(one(&object(ICE_URLS_MAX)).is_ok());
        assert!(matches!(one(&object(ICE_URLS_MAX + 1)), Err(IceError::TooMany { .. })));
    }

    /// R-081: the JSON has no `null`, which clients would read as text.
    #[test]
    fn json_for_clients_leaves_absent_members_out() {
        let servers = parse(["stun:a", r#"{"urls":"turn:b","username":"u","credential":"c"}"#]).expect("valid");
        assert_eq!(
            to_json(&servers),
            json!([{"urls": ["stun:a"]}, {"urls": ["turn:b"], "username": "u", "credential": "c"}])
        );
    }

    #[test]
    fn the_debug_form_omits_credentials() {
        let server = IceServer {
            urls: vec!["turn:a".into()],
            username: Some("ann".into()),
            credential: Some("hunter2".into()),
        };
        let shown = format!("{server:?}");
        assert!(shown.contains("turn:a") && !shown.contains("hunter2") && !shown.contains("ann"));
    }
}
