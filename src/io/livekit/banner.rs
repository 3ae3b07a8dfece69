//! What the text on stdout says about LiveKit rooms.

use crate::config::{Config, ListenAddresses, Transport};
use crate::io::module::BannerRow;
use crate::proto::livekit::missing_variables;
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
    match &config.mediaroom.worker {
        Some(worker) => {
            let agent_name = &worker.agent_name;
            format!("the server at {url} sends the bot into rooms that ask for `{agent_name}`")
        }
        None => format!("call /start; it returns a room at {url} and a token"),
    }
}
