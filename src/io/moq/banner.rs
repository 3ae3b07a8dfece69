//! What the text on stdout says about Media over QUIC.

use crate::config::{Config, ListenAddresses, MoqMode, Transport};
use crate::io::module::BannerRow;
use crate::proto::http::page_address::page_authority;
use crate::proto::moq::start::caller_url;

/// Returns the port and the URL that `/start` returns, or the relay.
pub fn rows(config: &Config, listening: &ListenAddresses) -> Vec<BannerRow> {
    if config.transport != Some(Transport::Moq) {
        return Vec::new();
    }
    let mut rows = vec![match &config.moq.mode {
        MoqMode::Dial { url, .. } => ("Relay", url.to_string()),
        MoqMode::Serve { .. } => {
            let port = listening.moq_port;
            let url = caller_url(config, &page_authority(config, listening), port, None);
            ("QUIC", format!("UDP port {}, {url}", port.number))
        }
    }];
    if config.ws_tokens {
        rows.push(("Tokens", "one per QUIC connection, from /start".into()));
    }
    rows
}
