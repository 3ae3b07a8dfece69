//! `/start`: requests become plans, and their outcomes become replies.
//!
//! In: the bytes of a body and the configuration. Out: a [`StartPlan`], whose session a module
//! begins. An empty body means `{}`; `null` counts as absent; unknown fields are ignored. Rejected:
//! a body that is not a JSON object or has a field of the wrong type (422); a transport that does
//! not exist, that `-t` excludes, that only an option selects, or that this build lacks (400).
//! Source.

use std::fmt;

use serde_json::{Value, json};

use crate::aliases::{self, Area};
use crate::bots::{self, BotChoice};
use crate::config::Config;
use crate::features::MissingFeature;
use crate::http::traceparent::Traceparent;
use crate::http::uploads::UploadScope;
use crate::modules::StartFields;
use crate::server::body::{self, ObjectReader, ValidationError};
use crate::transport::Transport;

/// Bytes of the name of a transport in `/start`; the longest name has eleven.
const TRANSPORT_BYTES_MAX: usize = 64;

/// The session that a request requires. The module of its transport begins it.
#[derive(Clone, Debug, PartialEq)]
pub struct StartPlan {
    pub transport: Transport,
    pub body: Value,
    /// What the request asks of the modules.
    pub fields: StartFields,
}

impl StartPlan {
    /// Lets the trace of the request reach the bot, in its body.
    pub fn put_trace(&mut self, trace: &Traceparent) {
        trace.put(&mut self.body);
    }

    /// Returns the transport of its call; `None` for a telephone call, whose provider connects
    /// later, and for a bot that starts without a room.
    pub fn call_transport(&self, config: &Config) -> Option<Transport> {
        self.fields
            .begins_call(self.transport, config)
            .then_some(self.transport)
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
pub fn plan<'c>(config: &'c Config, request: &[u8]) -> Result<(StartPlan, Option<&'c str>), StartRequestError> {
    let map = if request.trim_ascii().is_empty() {
        Default::default()
    } else {
        body::parse_object(request)?
    };
    let mut reader = ObjectReader::new(map, Vec::new());
    let asked = reader.string("transport", TRANSPORT_BYTES_MAX);
    // A runner with one bot ignores what it does not know.
    let named = match config.bots.is_empty() {
        true => None,
        false => reader.string("bot", bots::BYTES_MAX),
    };
    let fields = StartFields::take(&mut reader);
    let given_body = reader.take("body").map(|(_, body)| body);
    reader.finish()?;

    let choice = BotChoice {
        name: named.as_deref(),
        body: given_body.as_ref(),
        agent: fields.agent(),
        ..BotChoice::default()
    };
    let index = config.bots.choose(choice).map_err(|_| StartRequestError::UnknownBot)?;
    let bot = config.bots.get(index);
    let of_bot = bot.map_or(config, |bot| &bot.config);
    let transport = transport(config, of_bot, asked, &fields)?;
    let bot = bot.filter(|_| index > 0).map(|bot| &*bot.name);
    let body = fields.body(transport, given_body, of_bot)?;
    let body = match fields.record {
        Some(wish) => with_record(config, transport, wish, body)?,
        None => body,
    };
    let plan = StartPlan {
        transport,
        body,
        fields,
    };
    Ok((plan, bot))
}

/// Puts the wish to be recorded or not into the body, which reaches the session.
fn with_record(config: &Config, transport: Transport, wish: bool, mut body: Value) -> Result<Value, StartRequestError> {
    // No sound is tapped, as it is wished.
    if !config.calls.taps_sound() && !wish {
        return Ok(body);
    }
    let records_none =
        (config.calls.record.is_none() && wish).then_some("this runner records no calls; it does with `--record DIR`");
    if let Some(why) = records_none.or_else(|| transport.cannot_follow_record(wish)) {
        return Err(StartRequestError::CannotFollowRecord(why));
    }
    match body.as_object_mut() {
        Some(map) => map.insert("record".to_owned(), wish.into()),
        None => return Err(StartRequestError::CannotFollowRecord("the `body` is no object")),
    };
    Ok(body)
}

/// The server address as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBase<'r> {
    /// The `Host` header.
    pub host: &'r str,
    /// Whether the connection of the client is encrypted, by this server or by a proxy.
    pub secure: bool,
}

/// Returns where the client of a session uploads files for the bot; `None` if it cannot: the bot of
/// a telephone call has no id that its caller knows, and a job may go to another runner. With a
/// key, the id of a session is what its client has in its place.
pub fn upload_scope(plan: &StartPlan, config: &Config) -> Option<UploadScope> {
    config.uploads_dir.as_ref()?;
    match plan.transport {
        Transport::WebSocket if config.api_key.is_none() => Some(UploadScope::Anyone),
        transport if !transport.names_sessions() || config.dispatches_jobs(transport) => None,
        _ => Some(UploadScope::Session),
    }
}

/// Returns the transport of a request.
fn transport(
    config: &Config,
    of_bot: &Config,
    asked: Option<String>,
    fields: &StartFields,
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
        None => fields.transport().unwrap_or_else(|| config.default_transport()),
    };
    match config.transport {
        Some(only) if only != transport => Err(StartRequestError::Excluded { asked: transport, only }),
        _ if !transport.in_this_build() => Err(StartRequestError::NotInThisBuild(transport)),
        None if transport.needs_option() => Err(StartRequestError::ByOptionOnly(transport)),
        _ if !transport.has_media() && !of_bot.bot_enters_rooms => Err(StartRequestError::BotCannotJoin(transport)),
        _ => Ok(transport),
    }
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

/// Returns the body of a request for a session of this transport alone.
pub fn start_body(transport: Transport) -> Value {
    // Pipecat's runner knows rooms and members by their aliases alone.
    let name = match transport.has_rooms() {
        true => transport.common_name(),
        false => transport.name(),
    };
    let mut body = json!({"transport": name});
    for wish in StartFields::WISHES {
        let aliases = aliases::aliases(Area::JsonKey, wish);
        body[aliases.first().copied().unwrap_or(wish)] = false.into();
    }
    body
}

#[cfg(test)]
mod tests;
