//! `/start` for WebSockets: the URL that a client connects to, and the response.

use serde_json::json;

use crate::config::Config;
use crate::http::start::RequestBase;
use crate::http::token::SocketKind;

/// Returns the URL of a WebSocket: that of `--proxy`, else the one at which the client reached the
/// server. That of a call names its bot; a plain client has a session id, which does.
pub fn socket_url(config: &Config, asked: RequestBase<'_>, family: SocketKind, bot: Option<&str>) -> String {
    let path = family.path();
    let query = match bot {
        Some(bot) if family == SocketKind::Call => format!("?bot={bot}"),
        _ => String::new(),
    };
    match &config.proxy {
        Some(proxy) => format!("wss://{proxy}{path}{query}"),
        None => {
            let scheme = if asked.secure { "wss" } else { "ws" };
            format!("{scheme}://{}{path}{query}", asked.host)
        }
    }
}

/// Returns the JSON of the response. Absent values are omitted, since clients reject `null`.
pub fn reply(url: &str, session_id: Option<&str>, token: Option<&str>) -> Vec<u8> {
    let mut reply = json!({"wsUrl": url});
    if let Some(id) = session_id {
        reply["sessionId"] = json!(id);
    }
    if let Some(token) = token {
        reply["token"] = json!(token);
    }
    reply.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// the URL is the public one, or the one that the client used; absent values are
    /// omitted.
    #[test]
    fn returns_the_url_of_the_websocket() {
        let mut config = Config::default();
        let asked = |secure| RequestBase {
            host: "board.local:7860",
            secure,
        };
        let url = |config: &Config, secure, family| socket_url(config, asked(secure), family, None);
        assert_eq!(
            url(&config, false, SocketKind::Client),
            "ws://board.local:7860/ws-client"
        );
        assert_eq!(
            url(&config, true, SocketKind::Client),
            "wss://board.local:7860/ws-client"
        );
        assert_eq!(url(&config, false, SocketKind::Call), "ws://board.local:7860/ws");
        config.proxy = Some("bots.example.net".into());
        assert_eq!(url(&config, false, SocketKind::Call), "wss://bots.example.net/ws");
        let reply = |id, token| -> Value {
            serde_json::from_slice(&reply("ws://h/ws-client", id, token)).expect("a reply is JSON")
        };
        assert_eq!(reply(None, None), json!({"wsUrl": "ws://h/ws-client"}));
        assert_eq!(
            reply(Some("S"), Some("T")),
            json!({"wsUrl": "ws://h/ws-client", "sessionId": "S", "token": "T"})
        );
    }
}
