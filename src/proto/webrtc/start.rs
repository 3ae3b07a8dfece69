//! `/start` for WebRTC: which ICE servers a client gets, and the response.

use std::borrow::Cow;

use serde_json::json;

use super::ice::{self, IceServer};
use crate::config::Config;
use crate::server::body::ObjectReader;

/// The public STUN server that `enableDefaultIceServers` adds, as in Pipecat.
const DEFAULT_STUN: &str = "stun:stun.l.google.com:19302";

/// The member that asks for a public STUN server.
pub const DEFAULT_ICE: &str = "enableDefaultIceServers";

/// Takes whether the client asks for a public STUN server.
pub fn take_default_ice(fields: &mut ObjectReader) -> bool {
    fields.flag(DEFAULT_ICE).unwrap_or(false)
}

/// Returns the ICE servers for the client: the configured ones, else the public one if the client
/// asks for it. If empty, the response has no `iceConfig`.
pub fn ice_servers(config: &Config, default_ice: bool) -> Cow<'_, [IceServer]> {
    if config.ice_servers.is_empty() && default_ice {
        let urls = vec![DEFAULT_STUN.to_owned()];
        return Cow::Owned(vec![IceServer {
            urls,
            username: None,
            credential: None,
        }]);
    }
    Cow::Borrowed(&config.ice_servers)
}

/// Returns the JSON of the response.
pub fn reply(session_id: &str, ice_servers: &[IceServer]) -> Vec<u8> {
    let mut reply = json!({"sessionId": session_id});
    if !ice_servers.is_empty() {
        reply["iceConfig"] = json!({"iceServers": ice::to_json(ice_servers)});
    }
    reply.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// R-057, R-060, R-061, R-081: configured servers take precedence over the one that a client
    /// requests.
    #[test]
    fn ice_servers_come_from_the_configuration_first() {
        let reply = |config: &Config, default_ice| -> Value {
            let reply = reply("S", &ice_servers(config, default_ice));
            serde_json::from_slice(&reply).expect("a reply is JSON")
        };
        let mut config = Config::default();
        assert_eq!(reply(&config, false), json!({"sessionId": "S"}));
        assert_eq!(
            reply(&config, true),
            json!({"sessionId": "S", "iceConfig": {"iceServers": [{"urls": ["stun:stun.l.google.com:19302"]}]}})
        );
        config.ice_servers =
            ice::parse([r#"{"urls":"turn:t","username":"u","credential":"c"}"#, "stun:s"]).expect("a valid list");
        for default_ice in [false, true] {
            assert_eq!(
                reply(&config, default_ice),
                json!({"sessionId": "S", "iceConfig": {"iceServers": [
                    {"urls": ["turn:t"], "username": "u", "credential": "c"},
                    {"urls": ["stun:s"]},
                ]}})
            );
        }
    }
}
