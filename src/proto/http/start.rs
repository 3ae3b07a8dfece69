//! `/start`: requests become plans, and their outcomes become replies.
//!
//! In: the bytes of a body and the configuration. Out: a [`StartPlan`] for `io` to carry out, then
//! the JSON of the reply. An empty body means `{}`; `null` counts as absent; unknown fields are
//! ignored. Rejected: a body that is not a JSON object or has a field of the wrong type (422); a
//! transport that does not exist, that `-t` excludes, that only an option selects, or that this
//! build lacks (400). Source.

mod moq;
mod room_config;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Value, json};

use crate::bots::{self, BotChoice};
use crate::config::Config;
use crate::daily::RoomRequest;
use crate::features::Feature;
use crate::features::MissingFeature;
use crate::http::token::SocketKind;
use crate::http::traceparent::Traceparent;
use crate::http::uploads::UploadScope;
use crate::limits;
use crate::livekit;
use crate::moq::config::{NAMESPACE_RULE, is_namespace};
use crate::server::body::{self, ObjectReader, ValidationError};
use crate::transport::Transport;
use crate::webrtc::ice;
use crate::webrtc::ice::IceServer;
pub use moq::{MoqReply, MoqStartError, caller_url, random_namespace};

/// Bytes of the name of a transport in `/start`; the longest name has eleven.
const TRANSPORT_BYTES_MAX: usize = 64;

/// The public STUN server that `enableDefaultIceServers` adds, as in Pipecat.
const DEFAULT_STUN: &str = "stun:stun.l.google.com:19302";

/// The actions that a request requires.
#[derive(Clone, Debug, PartialEq)]
pub enum StartPlan<'c> {
    /// WebRTC: store the body under a session id. The bot starts with the offer.
    Register {
        body: Value,
        /// ICE servers for the client; if empty, `iceConfig` is omitted.
        ice_servers: Cow<'c, [IceServer]>,
    },
    /// A WebSocket: the client receives its URL. The bot starts when it connects.
    Socket { family: SocketKind, body: Value },
    /// A Daily room: it is created or selected, a token is created, and the bot starts. Without a
    /// room, only the bot starts.
    Videoroom { room: Option<RoomRequest>, body: Value },
    /// A media room: tokens are created, and the bot starts.
    Mediaroom { body: Value },
    /// Media over QUIC: the bot starts, and the client receives the URL of the runner or of the
    /// relay. Without a namespace, the session gets a random one.
    Moq { namespace: Option<String>, body: Value },
}

impl StartPlan<'_> {
    /// Lets the trace of the request reach the bot, in its body.
    pub fn put_trace(&mut self, trace: &Traceparent) {
        match self {
            StartPlan::Register { body, .. }
            | StartPlan::Socket { body, .. }
            | StartPlan::Videoroom { body, .. }
            | StartPlan::Mediaroom { body }
            | StartPlan::Moq { body, .. } => trace.put(body),
        }
    }

    /// Returns the transport of its call; `None` for a telephone call, whose provider the plan does
    /// not have, and for a bot that starts without a room.
    pub fn transport(&self) -> Option<Transport> {
        match self {
            StartPlan::Register { .. } => Some(Transport::WebRtc),
            StartPlan::Socket { family, .. } => (*family == SocketKind::Client).then_some(Transport::WebSocket),
            StartPlan::Videoroom { room, .. } => room.is_some().then_some(Transport::Videoroom),
            StartPlan::Mediaroom { .. } => Some(Transport::Mediaroom),
            StartPlan::Moq { .. } => Some(Transport::Moq),
        }
    }

    /// Returns the cargo feature of the module that follows the plan.
    pub fn feature(&self) -> Feature {
        match self {
            StartPlan::Register { .. } => Feature::WebRtc,
            StartPlan::Socket { family, .. } => family.feature(),
            StartPlan::Videoroom { .. } => Feature::Videoroom,
            StartPlan::Mediaroom { .. } => Feature::Mediaroom,
            StartPlan::Moq { .. } => Feature::Moq,
        }
    }
}

/// A rejected `/start` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartRequestError {
    /// The body has an invalid shape.
    Invalid(ValidationError),
    /// No transport has this name; these are allowed.
    Unknown { asked: String, allowed: Vec<Transport> },
    /// `-t` selects another transport.
    Excluded { asked: Transport, only: Transport },
    /// Only an option selects this transport.
    ByOptionOnly(Transport),
    /// The bot cannot join a room of this transport by itself.
    BotCannotJoin(Transport),
    /// This build does not have the transport.
    NotInThisBuild(Transport),
    /// The wish to be recorded or not cannot be followed; why.
    CannotFollowRecord(&'static str),
    /// No bot has the name.
    UnknownBot,
}

impl From<ValidationError> for StartRequestError {
    fn from(invalid: ValidationError) -> Self {
        StartRequestError::Invalid(invalid)
    }
}

impl fmt::Display for StartRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartRequestError::Invalid(invalid) => invalid.fmt(f),
            StartRequestError::Unknown { asked, allowed } => {
                let names: Vec<&str> = allowed.iter().map(|transport| transport.common_name()).collect();
                write!(f, "transport `{asked}` is unknown; allowed: {}", names.join(", "))
            }
            StartRequestError::Excluded { asked, only } => {
                let (asked, only) = (asked.common_name(), only.common_name());
                write!(
                    f,
                    "transport `{asked}` is not allowed: this runner serves `{only}` only (-t {only})"
                )
            }
            StartRequestError::ByOptionOnly(asked) => {
                let asked = asked.common_name();
                write!(
                    f,
                    "transport `{asked}` is served only by a runner started with -t {asked}"
                )
            }
            StartRequestError::BotCannotJoin(asked) => write!(
                f,
                "transport `{}` is not served: the built-in bots cannot join its rooms; start the runner with a bot that can, \
                 as in `edge-runner -- python3 bot.py`",
                asked.common_name()
            ),
            StartRequestError::UnknownBot => f.write_str("no bot has this name"),
            StartRequestError::CannotFollowRecord(why) => write!(f, "`record` cannot be followed: {why}"),
            StartRequestError::NotInThisBuild(asked) => {
                write!(
                    f,
                    "transport `{}` {}",
                    asked.common_name(),
                    MissingFeature(asked.feature())
                )
            }
        }
    }
}

impl std::error::Error for StartRequestError {}

/// Plans a `/start` request. Also returns the name of the bot, if it is not the default.
///
/// # Errors
/// Returns a [`StartRequestError`], which names the rejected and the allowed values.
pub fn plan<'c>(config: &'c Config, request: &[u8]) -> Result<(StartPlan<'c>, Option<&'c str>), StartRequestError> {
    let map = if request.trim_ascii().is_empty() {
        Default::default()
    } else {
        body::parse_object(request)?
    };
    let mut fields = ObjectReader::new(map, Vec::new());
    let asked = fields.string("transport", TRANSPORT_BYTES_MAX);
    // A runner with one bot ignores what it does not know.
    let named = match config.bots.is_empty() {
        true => None,
        false => fields.string("bot", bots::BYTES_MAX),
    };
    let create_room = fields.flag("createVideoroomRoom").unwrap_or(false);
    let record = fields.flag("record");
    let default_ice = fields.flag("enableDefaultIceServers").unwrap_or(false);
    let room = fields.object("videoroomRoomProperties");
    let token = fields.object("videoroomMeetingTokenProperties");
    let namespace = fields.string("namespace", limits::MOQ_NAMESPACE_BYTES_MAX);
    let namespace = match namespace {
        Some(name) if !is_namespace(&name) => {
            let rule = format!("String should have {NAMESPACE_RULE}");
            fields.reject("namespace", rule, "string_pattern_mismatch")
        }
        namespace => namespace,
    };
    let room_config = fields.take("room_config").map(|(_, value)| value);
    let given_body = fields.take("body").map(|(_, body)| body);
    fields.finish()?;

    let choice = BotChoice {
        name: named.as_deref(),
        body: given_body.as_ref(),
        agent: room_config.as_ref().and_then(room_config::agent),
        ..BotChoice::default()
    };
    let index = config.bots.choose(choice).map_err(|_| StartRequestError::UnknownBot)?;
    let bot = config.bots.get(index);
    let of_bot = bot.map_or(config, |bot| &bot.config);
    let transport = transport(config, of_bot, asked, create_room)?;
    let bot = bot.filter(|_| index > 0).map(|bot| &*bot.name);
    let body = match (transport, room_config) {
        (Transport::Mediaroom, Some(room_config)) => {
            room_config::body(&room_config, given_body, livekit::agent_name(&of_bot.mediaroom))?
        }
        _ => given_body.unwrap_or_else(|| json!({})),
    };
    let body = match record {
        Some(wish) => with_record(config, transport, wish, body)?,
        None => body,
    };
    let plan = match transport {
        Transport::WebRtc => StartPlan::Register {
            body,
            ice_servers: ice_servers(config, default_ice),
        },
        Transport::WebSocket => StartPlan::Socket {
            family: SocketKind::Client,
            body,
        },
        Transport::Telephony(_) => StartPlan::Socket {
            family: SocketKind::Call,
            body,
        },
        Transport::Videoroom => StartPlan::Videoroom {
            room: (create_room || config.videoroom.room_url.is_some()).then(|| RoomRequest {
                room: room.unwrap_or_default(),
                token: token.unwrap_or_default(),
            }),
            body,
        },
        Transport::Mediaroom => StartPlan::Mediaroom { body },
        Transport::Local => return Err(StartRequestError::ByOptionOnly(transport)),
        Transport::Moq => StartPlan::Moq {
            namespace: namespace.or_else(|| config.moq.namespace.clone()),
            body,
        },
    };
    Ok((plan, bot))
}

/// Puts the wish to be recorded or not into the body, which reaches the session.
fn with_record(config: &Config, transport: Transport, wish: bool, mut body: Value) -> Result<Value, StartRequestError> {
    let why = match &mut body {
        // No sound is tapped, as it is wished.
        _ if !config.calls.taps_sound() && !wish => return Ok(body),
        _ if config.calls.record.is_none() && wish => "this runner records no calls; it does with `--record DIR`",
        _ if !transport.has_media() && wish => "no sound of a Daily room passes this runner",
        _ if transport.is_telephony() => {
            "the body does not reach the call of a telephony provider; a parameter `record` of the call does"
        }
        Value::Object(map) => {
            map.insert("record".to_owned(), wish.into());
            return Ok(body);
        }
        _ => "the `body` is no object",
    };
    Err(StartRequestError::CannotFollowRecord(why))
}

/// The server address as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBase<'r> {
    /// The `Host` header.
    pub host: &'r str,
    /// Whether the connection of the client is encrypted, by this server or by a proxy.
    pub secure: bool,
}

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

/// Returns the JSON of the response for a WebSocket. Absent values are omitted, since clients
/// reject `null`.
pub fn socket_reply(url: &str, session_id: Option<&str>, token: Option<&str>) -> Vec<u8> {
    let mut reply = json!({"wsUrl": url});
    if let Some(id) = session_id {
        reply["sessionId"] = json!(id);
    }
    if let Some(token) = token {
        reply["token"] = json!(token);
    }
    reply.to_string().into_bytes()
}

/// Returns the JSON of the response for WebRTC.
pub fn webrtc_reply(session_id: &str, ice_servers: &[IceServer]) -> Vec<u8> {
    let mut reply = json!({"sessionId": session_id});
    if !ice_servers.is_empty() {
        reply["iceConfig"] = json!({"iceServers": ice::to_json(ice_servers)});
    }
    reply.to_string().into_bytes()
}

/// Returns where the client of a session uploads files for the bot; `None` if it cannot: the bot of
/// a telephone call has no id that its caller knows, and a job may go to another runner. With a
/// key, the id of a session is what its client has in its place.
pub fn upload_scope(plan: &StartPlan<'_>, config: &Config) -> Option<UploadScope> {
    config.uploads_dir.as_ref()?;
    match plan {
        StartPlan::Socket { family, .. } if *family != SocketKind::Client => None,
        StartPlan::Mediaroom { .. } if config.mediaroom.worker.is_some() => None,
        StartPlan::Socket { .. } if config.api_key.is_none() => Some(UploadScope::Anyone),
        _ => Some(UploadScope::Session),
    }
}

/// Returns the transport of a request.
fn transport(
    config: &Config,
    of_bot: &Config,
    asked: Option<String>,
    create_room: bool,
) -> Result<Transport, StartRequestError> {
    let transport = match asked {
        Some(name) => match Transport::from_name(&name) {
            Some(transport) => transport,
            None => {
                return Err(StartRequestError::Unknown {
                    asked: name,
                    allowed: startable_transports(config),
                });
            }
        },
        None if create_room => Transport::Videoroom,
        None => config.default_transport(),
    };
    match config.transport {
        Some(only) if only != transport => Err(StartRequestError::Excluded { asked: transport, only }),
        _ if !transport.in_this_build() => Err(StartRequestError::NotInThisBuild(transport)),
        None if transport.needs_option() => Err(StartRequestError::ByOptionOnly(transport)),
        _ if !transport.has_media() && !of_bot.bot_enters_rooms => Err(StartRequestError::BotCannotJoin(transport)),
        _ => Ok(transport),
    }
}

fn ice_servers(config: &Config, default_ice: bool) -> Cow<'_, [IceServer]> {
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

/// Returns the transports of `/start`: that of `-t`, else all that need no option.
pub(super) fn served_transports(config: &Config) -> impl Iterator<Item = Transport> {
    let only = config.transport;
    Transport::ALL.into_iter().filter(move |transport| match only {
        Some(only) => *transport == only,
        None => !transport.needs_option(),
    })
}

pub(super) fn startable_transports(config: &Config) -> Vec<Transport> {
    served_transports(config)
        .filter(|transport| transport.in_this_build())
        .collect()
}

#[cfg(test)]
mod tests;
