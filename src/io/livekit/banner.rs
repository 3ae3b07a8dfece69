//! What the text on stdout says about LiveKit rooms.

use crate::config::{Config, ListenAddresses, Transport};
use crate::io::module::BannerRow;
use crate::proto::livekit::{missing_variables, registrations};
use crate::proto::options::values::all_names;

/// Returns how a session starts, or which settings are missing.
pub fn rows(config: &Config, _: &ListenAddresses) -> Vec<BannerRow> {
    match config.transport {
        Some(Transport::Mediaroom) => vec![("Rooms", rooms(config))],
        _ => Vec::new(),
    }
}

fn rooms(config: &Config) -> String {
    let missing = missing_variables(&config.mediaroom);
    if !missing.is_empty() {
        let names: Vec<String> = missing.into_iter().map(all_names).collect();
        return format!("LiveKit needs {}", names.join(", "));
    }
    let url = config.mediaroom.url.as_deref().unwrap_or_default();
    let registrations = registrations(config).into_iter();
    let names: Vec<String> = registrations.map(|worker| format!("`{}`", worker.agent_name)).collect();
    match names.is_empty() {
        false => format!(
            "the server at {url} sends the bot into rooms that ask for {}",
            names.join(" or ")
        ),
        true => format!("call /start; it returns a room at {url} and a token"),
    }
}
