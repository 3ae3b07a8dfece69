//! The open-source media room, joined natively: access tokens, signalling, two peer connections, one life.
//!
//! [`connection_details`] is what a session begins with; [`token`] proves who may join; [`signal`] speaks with the server, in the messages
//! of [`wire`], and knows who is there ([`roster`]); [`receiver`] makes one sound, or
//! several, of the participants' voices; [`session`] is the whole life of a bot in a room. What stands here is what the rest
//! of the runner asks about a server: what is not configured, and where it is.
//! Source: the rooms fact sheet, part B.

pub mod connection_details;
#[cfg(feature = "mediaroom")]
pub mod receiver;
#[cfg(feature = "mediaroom")]
pub mod roster;
#[cfg(feature = "mediaroom")]
pub mod session;
#[cfg(feature = "mediaroom")]
pub mod signal;
pub mod token;
#[cfg(feature = "mediaroom")]
pub mod wire;

use crate::config::Mediaroom;

/// Returns the variables that a session needs and that are not set.
pub fn missing_variables(config: &Mediaroom) -> Vec<&'static str> {
    let needed = [
        ("MEDIAROOM_URL", config.url.is_some()),
        ("MEDIAROOM_API_KEY", config.key.is_some()),
        ("MEDIAROOM_API_SECRET", config.secret.is_some()),
    ];
    needed
        .into_iter()
        .filter(|(_, is_set)| !is_set)
        .map(|(name, _)| name)
        .collect()
}

/// Returns the URL of a server over HTTP, without a slash at its end. The schemes of sockets and of HTTP stand for each other.
pub fn http_base(url: &str) -> String {
    with_scheme(url.trim_end_matches('/'), "ws", "http")
}

/// Returns the URL that clients open a socket to.
fn socket_base(url: &str) -> String {
    with_scheme(url, "http", "ws")
}

/// Puts another scheme in place of one, and its secure form in place of the secure one.
fn with_scheme(url: &str, from: &str, to: &str) -> String {
    match url.strip_prefix(from) {
        Some(rest) if rest.starts_with("://") || rest.starts_with("s://") => format!("{to}{rest}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn names_each_missing_variable() {
        let none = Mediaroom::default();
        assert_eq!(
            missing_variables(&none),
            ["MEDIAROOM_URL", "MEDIAROOM_API_KEY", "MEDIAROOM_API_SECRET"]
        );
        let half = Mediaroom {
            url: Some("ws://localhost:7880".into()),
            secret: Some(Secret::new("secret")),
            ..none
        };
        assert_eq!(missing_variables(&half), ["MEDIAROOM_API_KEY"]);
        let whole = Mediaroom {
            key: Some("devkey".into()),
            ..half
        };
        assert!(missing_variables(&whole).is_empty());
    }
}
