//! Gathering: the runner's public addresses from STUN servers, and relayed ones from TURN servers.
//!
//! [`server`] parses the URLs of `--ice-servers`, [`reflexive`] queries STUN servers, `relay`
//! maintains an allocation at a TURN server, and [`stun_request`] is one request with its
//! retransmissions. In: resolved addresses, datagrams, `now`. Out: datagrams, addresses to offer,
//! and a [`ServerState`] per server. Gathering runs in the background, and no answer waits for it.
//! Sources: RFC 8445 section 5.1.1, RFC 8489, RFC 8656.

pub mod server;

cfg_if::cfg_if! {
    if #[cfg(feature = "turn")] {
        pub mod reflexive;
        pub mod stun_request;
    }
}

use std::net::SocketAddr;
use std::time::Duration;

use crate::limits::{GATHER_PAUSE_FIRST, GATHER_PAUSE_MAX, GATHER_REASON_CHARS_MAX};

/// The state of a server, for the log, the metrics and the doctor. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// No result yet.
    Trying,
    Working,
    /// The reason, with advice for the operator.
    Failed(String),
    /// The runner does not use the server, for this reason.
    Unused(&'static str),
}

/// The status of one server in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The URL, which contains no credential.
    pub url: String,
    pub state: ServerState,
    /// Server-reflexive addresses, each with its local base.
    pub reflexive: Vec<(SocketAddr, SocketAddr)>,
    /// Relayed addresses, each with the local address used towards the server.
    pub relayed: Vec<(SocketAddr, SocketAddr)>,
}

/// Addresses to offer beside host candidates, each with its local address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatheredAddresses {
    pub reflexive: Vec<(SocketAddr, SocketAddr)>,
    pub relayed: Vec<(SocketAddr, SocketAddr)>,
}

/// No gathered addresses.
#[cfg(test)]
pub static NOTHING: GatheredAddresses = GatheredAddresses {
    reflexive: Vec::new(),
    relayed: Vec::new(),
};

/// Delays between attempts at a failing server: they double up to a cap.
#[derive(Debug)]
pub struct RetryDelays {
    next_delay: Duration,
}

impl RetryDelays {
    pub fn new() -> Self {
        RetryDelays {
            next_delay: GATHER_PAUSE_FIRST,
        }
    }

    /// Returns the delay after another failure.
    pub fn next_delay(&mut self) -> Duration {
        let pause = self.next_delay;
        self.next_delay = (pause * 2).min(GATHER_PAUSE_MAX);
        pause
    }

    /// Restarts the sequence after a success.
    pub fn reset(&mut self) {
        *self = RetryDelays::new();
    }
}

impl Default for RetryDelays {
    fn default() -> Self {
        RetryDelays::new()
    }
}

/// Describes a server's error code, with advice where its operator or user can act.
pub fn describe_error_code(code: u16, reason: &str) -> String {
    let known = match code {
        300 => "the server sends everybody to another one; name that one",
        401 => "wrong username or credential",
        403 => "the server forbids it to this user or address",
        437 | 441 => "the server mistakes this runner for another client",
        440 | 443 => "the server has no relay for this address family",
        442 => "the server relays no UDP",
        486 => "the user has as many allocations as the server grants",
        508 => "the server has no address left to relay from",
        _ => "",
    };
    if !known.is_empty() {
        return format!("{code}: {known}");
    }
    let shown = |each: char| if each.is_control() { ' ' } else { each };
    let reason: String = reason.chars().map(shown).take(GATHER_REASON_CHARS_MAX).collect();
    format!("{code}: the server says \"{reason}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dead server is queried ever more rarely, up to the cap. One that worked starts over.
    #[test]
    fn delays_double_up_to_the_cap() {
        let mut pauses = RetryDelays::new();
        let first: Vec<u64> = (0..11).map(|_| pauses.next_delay().as_secs()).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        pauses.reset();
        assert_eq!(pauses.next_delay(), GATHER_PAUSE_FIRST);
    }

    /// Known codes have advice; others show the start of the server's reason.
    #[test]
    fn errors_say_what_to_do() {
        assert_eq!(
            describe_error_code(401, "Unauthorized"),
            "401: wrong username or credential"
        );
        let long = "x".repeat(GATHER_REASON_CHARS_MAX + 1);
        let words = describe_error_code(599, &long);
        assert!(words.contains(&long[1..]) && !words.contains(&long), "{words}");
        assert_eq!(describe_error_code(599, "a\u{1b}b\n"), "599: the server says \"a b \"");
    }
}
