//! What the text on stdout says about Daily rooms.

use crate::config::{Config, ListenAddresses, Transport};
use crate::io::module::BannerRow;
use crate::proto::http::page_address::local_url;
use crate::proto::options::values::all_names;

/// Returns how a session starts, or which settings are missing, and the webhook of dial-in.
pub fn rows(config: &Config, listening: &ListenAddresses) -> Vec<BannerRow> {
    let videoroom = &config.videoroom;
    let mut rows = Vec::new();
    if config.transport == Some(Transport::Videoroom) {
        rows.push(("Rooms", rooms(config, listening)));
    }
    if let None | Some(Transport::Videoroom) = config.transport
        && config.api_key.is_some()
        && videoroom.key.is_some()
    {
        rows.push(("Key", "`Authorization: Bearer KEY` for /videoroom".into()));
    }
    if videoroom.dialin {
        let host = config.proxy.as_deref().unwrap_or("PUBLIC-HOST");
        let signatures = match videoroom.dialin_hmac {
            Some(_) => ", signed by the provider",
            None => ", signatures are not verified",
        };
        rows.push((
            "Dial-in",
            format!("https://{host}/videoroom-dialin-webhook{signatures}"),
        ));
    }
    rows
}

fn rooms(config: &Config, listening: &ListenAddresses) -> String {
    match (&config.videoroom.key, config.bot_enters_rooms, &config.api_key) {
        (None, ..) => format!("Daily needs {}", all_names("VIDEOROOM_API_KEY")),
        (_, false, _) => "none: the built-in bots cannot join rooms; name a bot that can after `--`".into(),
        // A browser that opens a URL sends no key.
        (_, true, Some(_)) => "call /start with the key; it returns a room and a token".into(),
        (_, true, None) => format!(
            "open {}/videoroom, or call /start; it returns a room and a token",
            local_url(config.host, listening.port)
        ),
    }
}
