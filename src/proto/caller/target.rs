//! Where a caller calls: the URL of `edge-runner call`, and the transport.
//!
//! In: a URL, and the transport of `--transport`. Out: the [`CallTarget`], or what is expected in
//! place of the URL. The path of the URL selects the endpoint; a URL without a path is a runner,
//! which is asked by `POST /start`.

use serde_json::{Value, json};

use super::plan::{CallExpectations, StepSource};
use super::scenario::Scenario;
use crate::secret::Secret;
use crate::telephony::{PROVIDERS, Provider};
use crate::transport::Transport;

/// The path of plain clients.
const CLIENT_PATH: &str = "/ws-client";
/// The end of the path of JSON offers.
const OFFER_PATH: &str = "/api/offer";
/// The path of telephony providers.
const TELEPHONE_PATH: &str = "/ws";

/// Returns whether a path is one of WHIP, perhaps with the name of a bot.
fn is_whip(path: &str) -> bool {
    path.split('/').any(|segment| segment == "whip")
}

/// Where to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// What a runner returns from `/start` for this transport.
    Started { base: String, transport: Transport },
    /// The WebSocket of plain clients, at this URL.
    Socket { url: String },
    /// The media WebSocket of a telephony provider, at this URL.
    Telephone { url: String, provider: &'static Provider },
    /// The handshake of `pipecat eval`, on the WebSocket of telephony providers.
    Eval { url: String },
    /// WebRTC by a JSON offer to this URL.
    Offer { url: String },
    /// WHIP at this URL.
    Whip { url: String },
    /// A room of the server at this URL.
    Room { url: String, transport: Transport },
}

/// What lets a caller into a room that no runner names.
#[derive(Clone, Debug)]
pub enum RoomAccess {
    /// An access token, which names the room and the participant.
    Token(Secret),
    /// The API key of the server, with which a token is made for each call.
    Key { key: String, secret: Secret, room: String },
}

impl CallTarget {
    /// Finds the target.
    ///
    /// # Errors
    /// A sentence about what is wrong and what is expected.
    pub fn parse(url: &str, transport: Option<Transport>) -> Result<CallTarget, String> {
        let takes = "a URL such as http://localhost:7860, http://localhost:7860/whip or ws://localhost:7860/ws-client";
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(format!("`{url}` is not a URL: `call` takes {takes}"));
        };
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.is_empty() || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(format!("`{url}` has no host, or a space: `call` takes {takes}"));
        }
        let path_alone = path.split('?').next().unwrap_or_default();
        let callable = Transport::CALLABLE.map(|transport| format!("`{}`", transport.common_name()));
        match (scheme, path_alone, transport) {
            ("ws" | "wss", CLIENT_PATH, None | Some(Transport::WebSocket)) => {
                Ok(CallTarget::Socket { url: url.to_owned() })
            }
            ("ws" | "wss", _, Some(Transport::WebSocket)) => Ok(CallTarget::Socket { url: url.to_owned() }),
            ("ws" | "wss", _, Some(Transport::Telephony(provider))) => Ok(CallTarget::Telephone {
                url: url.to_owned(),
                provider,
            }),
            ("ws" | "wss", _, Some(transport)) if transport.has_rooms() && transport.is_callable() => {
                Ok(CallTarget::Room {
                    url: url.to_owned(),
                    transport,
                })
            }
            ("http" | "https", "" | "/", given) if given.is_none_or(Transport::is_callable) => {
                Ok(CallTarget::Started {
                    base: format!("{scheme}://{authority}"),
                    transport: given.unwrap_or(Transport::WebRtc),
                })
            }
            (_, _, Some(transport)) if transport.needs_option() => Err(format!(
                "`-t {}` takes the address of a runner, such as http://localhost:7860, and not `{url}`: the runner names \
                 the relay, the namespace and the certificate",
                transport.name()
            )),
            ("ws" | "wss", TELEPHONE_PATH, None) => Err(format!(
                "`{TELEPHONE_PATH}` is the path of telephony providers: say which one calls, such as `-t {}`",
                PROVIDERS[0].vendor()
            )),
            ("http" | "https", path, None | Some(Transport::WebRtc)) if path.ends_with(OFFER_PATH) => {
                Ok(CallTarget::Offer { url: url.to_owned() })
            }
            ("http" | "https", path, None | Some(Transport::WebRtc)) if is_whip(path) => {
                Ok(CallTarget::Whip { url: url.to_owned() })
            }
            ("ws" | "wss" | "http" | "https", _, Some(other)) if !other.is_callable() => Err(format!(
                "`call` cannot call by `{}`: it speaks {} and the telephones' protocols, at {takes}",
                other.common_name(),
                callable.join(", ")
            )),
            ("ws" | "wss" | "http" | "https", ..) => Err(format!(
                "`{url}` does not say how to call: use a URL without a path, or with one that `call` knows: `{CLIENT_PATH}`, \
                 `{OFFER_PATH}` or `/whip`"
            )),
            _ => Err(format!("`{scheme}` is not a scheme of a runner: `call` takes {takes}")),
        }
    }
}

impl CallTarget {
    /// Returns the transport of the call.
    pub fn transport(&self) -> Transport {
        match self {
            CallTarget::Started { transport, .. } | CallTarget::Room { transport, .. } => *transport,
            CallTarget::Socket { .. } | CallTarget::Eval { .. } => Transport::WebSocket,
            CallTarget::Telephone { provider, .. } => Transport::Telephony(provider),
            CallTarget::Offer { .. } | CallTarget::Whip { .. } => Transport::WebRtc,
        }
    }

    /// Finds the WebSocket of an evaluation.
    ///
    /// # Errors
    /// A sentence about what is expected.
    pub fn eval(url: &str) -> Result<CallTarget, String> {
        // The rules for telephones are those of their endpoint.
        match CallTarget::parse(url, Some(Transport::Telephony(PROVIDERS[0]))) {
            Ok(CallTarget::Telephone { url, .. }) => Ok(CallTarget::Eval { url }),
            Ok(CallTarget::Started { base, .. }) => Ok(CallTarget::Eval {
                url: default_telephone(&base),
            }),
            Err(why) => Err(why),
            Ok(_) => Err(format!(
                "`{url}` is no address of a runner, such as http://localhost:7860"
            )),
        }
    }

    /// Returns what the target does not carry, if these steps or expectations need it.
    fn lacks(&self, has_messages: bool, has_sound: bool) -> Option<&'static str> {
        match self {
            target if target.is_telephone() && has_messages => {
                Some("a telephone carries sound and keys alone: leave out texts and messages")
            }
            CallTarget::Eval { .. } if has_sound => {
                Some("an evaluation carries texts and keys alone: leave out sounds and what is expected of them")
            }
            _ => None,
        }
    }

    /// Checks whether steps can be played there.
    ///
    /// # Errors
    /// A sentence about what cannot.
    pub fn check(&self, steps: &[StepSource], expect: &CallExpectations) -> Result<(), String> {
        let has_messages = steps.iter().any(StepSource::is_message) || !expect.texts.is_empty();
        let has_sound = steps.iter().any(StepSource::is_sound) || expect.speech || expect.latency.is_some();
        self.lacks(has_messages, has_sound)
            .map_or(Ok(()), |why| Err(why.to_owned()))
    }

    /// Returns whether the target carries sound and keys alone.
    fn is_telephone(&self) -> bool {
        match self {
            CallTarget::Telephone { .. } => true,
            CallTarget::Started { transport, .. } => transport.provider().is_some(),
            _ => false,
        }
    }

    /// Checks whether a scenario can be played there.
    ///
    /// # Errors
    /// A sentence about the first step that cannot.
    pub fn check_scenario(&self, scenario: &Scenario) -> Result<(), String> {
        for step in &scenario.steps {
            if let Some(why) = self.lacks(step.needs_messages(), step.needs_sound()) {
                return Err(format!("{}: {why}", step.check.place));
            }
        }
        Ok(())
    }
}

/// Returns the URL of the WebSocket from the response of `/start`.
///
/// # Errors
/// A sentence about what is missing.
pub fn started_socket(base: &str, response: &[u8]) -> Result<String, String> {
    let value = started(response)?;
    let text = |name: &str| value[name].as_str().filter(|text| !text.is_empty());
    let Some(url) = text("wsUrl").or(text("ws_url")) else {
        return Err("its answer to /start has no `wsUrl`: it does not serve plain clients".into());
    };
    // A relative URL belongs to the base. Pipecat's runner names `wss` for itself without TLS.
    let authority = base.split_once("://").map_or(base, |(_, authority)| authority);
    let own = url.split_once("://").and_then(|(_, rest)| rest.strip_prefix(authority));
    let url = match own
        .filter(|path| path.starts_with('/'))
        .or(url.strip_prefix('/').map(|_| url))
    {
        Some(path) => format!("{}{path}", socket_base(base)),
        None => url.to_owned(),
    };
    let separator = if url.contains('?') { '&' } else { '?' };
    Ok(match text("token") {
        Some(token) if !url.contains("token=") => format!("{url}{separator}token={token}"),
        _ => url,
    })
}

/// Returns the URL for the offer from the response of `/start`.
///
/// # Errors
/// A sentence about what is missing.
pub fn started_offer(base: &str, response: &[u8]) -> Result<String, String> {
    let value = started(response)?;
    let session = value["sessionId"].as_str().filter(|id| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
        !id.is_empty() && id.chars().all(is_plain)
    });
    match session {
        Some(id) => Ok(format!("{base}/sessions/{id}{OFFER_PATH}")),
        None => Err("its answer to /start has no `sessionId`: does it serve `webrtc`?".into()),
    }
}

/// Returns the URL for offers at a runner without `/start`.
pub fn default_offer(base: &str) -> String {
    format!("{base}{OFFER_PATH}")
}

/// Returns the body with an offer.
pub fn offer_body(sdp: &str) -> Value {
    json!({"sdp": sdp, "type": "offer", "pc_id": null, "restart_pc": false, "request_data": {}})
}

/// Returns the SDP of the answer to a JSON offer.
///
/// # Errors
/// A sentence about what is missing.
pub fn answer(response: &[u8]) -> Result<String, String> {
    let value: Option<Value> = serde_json::from_slice(response).ok();
    let sdp = value.as_ref().and_then(|value| value["sdp"].as_str());
    sdp.map(str::to_owned)
        .ok_or_else(|| "its answer to the offer has no `sdp`: is this the address of a runner?".into())
}

/// Returns the response of `/start` as JSON.
///
/// # Errors
/// A sentence, if it is none.
pub fn started(response: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(response)
        .map_err(|_| "its answer to /start is not JSON: is this the address of a runner?".to_owned())
}

/// Returns the URL of a WHIP session from its `Location`; `None` if it is at another server.
pub fn resource_url(url: &str, location: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let base = format!("{scheme}://{authority}");
    if location.starts_with('/') && !location.starts_with("//") {
        return Some(format!("{base}{location}"));
    }
    let is_same = location.strip_prefix(&base).is_some_and(|path| path.starts_with('/'));
    is_same.then(|| location.to_owned())
}

/// Returns the URL of the socket for a telephone, with its token in the path, as in markup.
///
/// # Errors
/// As [`started_socket`].
pub fn started_telephone(base: &str, response: &[u8]) -> Result<String, String> {
    let url = started_socket(base, response)?;
    Ok(match url.split_once("?token=") {
        Some((path, token)) => format!("{path}/{token}"),
        None => url,
    })
}

/// Returns the URL of telephony providers at a runner without `/start`.
pub fn default_telephone(base: &str) -> String {
    format!("{}{TELEPHONE_PATH}", socket_base(base))
}

/// Returns the URL of plain clients at a runner without `/start`.
pub fn default_socket(base: &str) -> String {
    format!("{}{CLIENT_PATH}", socket_base(base))
}

/// Returns the base for WebSockets.
pub(super) fn socket_base(base: &str) -> String {
    match base.strip_prefix("https") {
        Some(rest) => format!("wss{rest}"),
        None => base.replacen("http", "ws", 1),
    }
}

#[cfg(test)]
mod tests;
