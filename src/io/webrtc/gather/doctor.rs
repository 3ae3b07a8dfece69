//! Checks the STUN and TURN servers of the configuration.
//!
//! In: the configuration. Out: findings. Each server is asked once, as the runner would ask it.

use futures_util::future::join_all;

use crate::config::Config;
use crate::io::webrtc::gather::probe::probe;
use crate::proto::doctor::Finding;
use crate::proto::webrtc::gather::server::{ServerUse, parse_servers};

/// Asks every STUN and TURN server once.
pub async fn examine(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "ice servers";
    let servers = parse_servers(&config.ice_servers);
    if servers.is_empty() {
        return vec![Finding::ok(
            WHAT,
            "none: callers on other networks need a forwarded UDP port, or a TURN server in --ice-servers",
        )];
    }
    let checks = servers.iter().map(|server| async move {
        let url = &server.url;
        match (&server.usage, probe(server).await) {
            (ServerUse::Unusable(why), _) => Finding::ok(WHAT, format!("{url} is used by clients only: {why}")),
            (_, Ok(text)) => Finding::ok(WHAT, format!("{url} {text}")),
            // A caller may depend on a relay; a public address is often known without STUN.
            (ServerUse::Turn { .. }, Err(why)) => Finding::error(WHAT, format!("{url}: {why}")),
            (ServerUse::Stun, Err(why)) => Finding::warning(WHAT, format!("{url}: {why}")),
        }
    });
    join_all(checks).await
}
