//! The bot entry contract: what a bot is given, and what it can ask for.
//!
//! A bot is `async fn(RunnerArguments) -> Result<(), BotError>`. It owns its arguments, runs until the talk is over, and
//! returns why it failed. What every kind has are fields; what one kind has is behind [`Kind`] and behind one accessor per
//! field, which answers [`MissingField`] on another kind. Audio, messages and interruption go through one [`Media`] handle
//! that is the same on every kind. A bot never sees a socket.
//! Source: the field names are the specification's (`webrtc_connection`, `room_url`, `transport_type`, ...).

pub(crate) mod media;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::config::{Config, Secret, Transport};
pub use media::{Audio, AudioFrame, AudioMix, Event, Events, LeaveReason, Media, MediaError, Output, Participant};

/// Why a bot failed; it ends this bot's session with one WARN line and no other.
pub type BotError = Box<dyn std::error::Error + Send + Sync>;

pub use edge_runner_http::shutdown::{Shutdown, ShutdownTrigger};
pub use edge_runner_proto::SessionId;

/// What a bot is called with.
#[non_exhaustive]
pub struct RunnerArguments {
    pub session_id: SessionId,
    /// The `body` of `/start`, the data sent with the offer, or a webhook's data, as it came; `{}` when there was none.
    pub body: Value,
    /// Whether this bot is the one that acts on SIGINT; only a bot without a server is.
    pub handle_sigint: bool,
    /// Whether this bot is the one that acts on SIGTERM.
    pub handle_sigterm: bool,
    /// How long a talk may go without any activity before the bot should end it. The bot decides what activity is.
    pub idle_timeout: Duration,
    /// Set when the runner ends: when it is asked to, or when the time of `--drain` is over.
    pub shutdown: Shutdown,
    /// What the runner was started with.
    pub cli_args: Arc<Config>,
    pub kind: Kind,
}

impl RunnerArguments {
    /// Makes the arguments of one session. Runners call it; so do the tests of a bot.
    pub fn new(session_id: SessionId, body: Value, cli_args: Arc<Config>, kind: Kind) -> Self {
        RunnerArguments {
            session_id,
            body,
            handle_sigint: false,
            handle_sigterm: false,
            idle_timeout: crate::limits::BOT_IDLE,
            shutdown: Shutdown::default(),
            cli_args,
            kind,
        }
    }

    /// Takes the media handle, whatever the kind, with PCM at the rates that `audio` asks for.
    ///
    /// # Errors
    /// [`MissingField`] on a kind without media, and when the handle was taken before.
    pub fn media(&mut self, audio: Audio) -> Result<Media, MissingField> {
        let kind = self.kind.name();
        let slot = match &mut self.kind {
            Kind::WebRtc(webrtc) => webrtc.media.take(),
            Kind::WebSocket(socket) => socket.media.take(),
            Kind::Mediaroom(room) => room.media.take(),
            Kind::Videoroom(_) | Kind::Base => None,
        };
        slot.map(|media| media.open(audio))
            .ok_or(MissingField { kind, field: "media" })
    }

    /// Returns the WebRTC connection, which local WebRTC sessions have.
    ///
    /// # Errors
    /// [`MissingField`] on every other kind.
    pub fn webrtc_connection(&self) -> Result<&WebRtcConnection, MissingField> {
        match &self.kind {
            Kind::WebRtc(webrtc) => Ok(&webrtc.webrtc_connection),
            _ => self.missing("webrtc_connection"),
        }
    }

    /// Returns the WebSocket of the session.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but WebSocket.
    pub fn websocket(&self) -> Result<&WebSocketConnection, MissingField> {
        match &self.kind {
            Kind::WebSocket(socket) => Ok(&socket.websocket),
            _ => self.missing("websocket"),
        }
    }

    /// Returns the URL of the video room.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but videoroom.
    pub fn room_url(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::Videoroom(room) => Ok(&room.room_url),
            _ => self.missing("room_url"),
        }
    }

    /// Returns the name of the media room.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but mediaroom.
    pub fn room_name(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::Mediaroom(room) => Ok(&room.room_name),
            _ => self.missing("room_name"),
        }
    }

    /// Returns the URL of the media-room server.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but mediaroom.
    pub fn url(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::Mediaroom(room) => Ok(&room.url),
            _ => self.missing("url"),
        }
    }

    /// Returns the token with which the bot joins a room.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but videoroom and mediaroom, and in a video room that needs none.
    pub fn token(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::Videoroom(VideoroomArguments { token: Some(token), .. }) => Ok(token.expose()),
            Kind::Mediaroom(room) => Ok(room.token.expose()),
            _ => self.missing("token"),
        }
    }

    /// Returns `websocket`, or the telephony provider whose call this is.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but WebSocket.
    pub fn transport_type(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::WebSocket(socket) => Ok(socket.transport_type.name()),
            _ => self.missing("transport_type"),
        }
    }

    /// Returns the data of the call, when this session is one. On the telephone: an object with `stream_id`, `call_id`, `from`,
    /// `to` and `body`, and what the provider says beyond that. Over WebRTC: an object whose `via` names how the call came. By
    /// WHIP, WHEP or a call that is `whip`, `whep` or `calls`, with the `name` behind the endpoint and the client's `user_agent`.
    pub fn call_data(&self) -> Option<&Value> {
        match &self.kind {
            Kind::WebRtc(webrtc) => webrtc.call_data.as_ref(),
            Kind::WebSocket(socket) => socket.call_data.as_ref(),
            _ => None,
        }
    }

    /// Returns the rate of PCM on the caller's line, in Hz, where it is fixed: on the telephone. A bot that listens and
    /// speaks at this rate gets and gives every sample as it is.
    pub fn line_rate_hz(&self) -> Option<u32> {
        match &self.kind {
            Kind::WebSocket(socket) => socket.line_rate_hz,
            _ => None,
        }
    }

    fn missing<T>(&self, field: &'static str) -> Result<T, MissingField> {
        Err(MissingField {
            kind: self.kind.name(),
            field,
        })
    }
}

impl fmt::Debug for RunnerArguments {
    /// Neither the body nor anything that lets somebody into the session is part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerArguments")
            .field("session_id", &self.session_id)
            .field("kind", &self.kind)
            .field("idle_timeout", &self.idle_timeout)
            .field("is_stopping", &self.shutdown.is_set())
            .finish_non_exhaustive()
    }
}

/// What one kind of session has beyond the fields of every kind.
///
/// The base kind is for a bot that brings its own transport.
#[non_exhaustive]
pub enum Kind {
    Base,
    WebRtc(WebRtcArguments),
    /// A plain client or a telephone call; `transport_type` tells them apart.
    WebSocket(WebSocketArguments),
    /// A hosted video room, which the bot enters by itself: that provider's media protocol is closed.
    Videoroom(VideoroomArguments),
    /// A room of a media-room server. The runner joins it, under the bot's name, when the bot takes its media.
    Mediaroom(MediaroomArguments),
}

impl Kind {
    /// Returns the kind's name, as error messages and log lines say it.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Base => "base",
            Kind::WebRtc(_) => "webrtc",
            Kind::WebSocket(_) => "websocket",
            Kind::Videoroom(_) => "videoroom",
            Kind::Mediaroom(_) => "mediaroom",
        }
    }
}

impl fmt::Debug for Kind {
    /// The kind's name; tokens, addresses of rooms and data of calls are no part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a local WebRTC session has.
#[non_exhaustive]
pub struct WebRtcArguments {
    pub webrtc_connection: WebRtcConnection,
    /// See [`RunnerArguments::call_data`].
    pub call_data: Option<Value>,
    media: Option<media::MediaSlot>,
}

impl fmt::Debug for WebRtcArguments {
    /// Without the data of the call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebRtcArguments")
            .field("webrtc_connection", &self.webrtc_connection)
            .finish_non_exhaustive()
    }
}

impl WebRtcArguments {
    pub(crate) fn new(webrtc_connection: WebRtcConnection, slot: media::MediaSlot) -> Self {
        WebRtcArguments {
            webrtc_connection,
            call_data: None,
            media: Some(slot),
        }
    }

    /// Says how the call came.
    pub(crate) fn with_call_data(self, call_data: Option<Value>) -> Self {
        WebRtcArguments { call_data, ..self }
    }
}

/// The peer connection of a session, by the name that the client knows it under.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebRtcConnection {
    /// The `pc_id` of the first answer.
    pub pc_id: String,
    /// Whether the client is a microcontroller: it speaks without `client-ready`, and takes few and short messages.
    pub embedded: bool,
    /// Whether the client's offer has a data channel. Without one nobody says `client-ready`, and messages go nowhere: greet
    /// when the caller joins.
    pub messages: bool,
}

impl fmt::Debug for WebRtcConnection {
    /// Who knows the `pc_id` can speak for the client, so it is no part of this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebRtcConnection")
            .field("embedded", &self.embedded)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl WebRtcConnection {
    pub(crate) fn new(pc_id: String, embedded: bool, messages: bool) -> Self {
        WebRtcConnection {
            pc_id,
            embedded,
            messages,
        }
    }
}

/// What a session on a WebSocket has.
#[non_exhaustive]
pub struct WebSocketArguments {
    pub websocket: WebSocketConnection,
    /// [`Transport::WebSocket`] for a plain client, else the telephony provider that was detected.
    pub transport_type: Transport,
    /// See [`RunnerArguments::call_data`].
    pub call_data: Option<Value>,
    /// See [`RunnerArguments::line_rate_hz`].
    pub line_rate_hz: Option<u32>,
    media: Option<media::MediaSlot>,
}

impl fmt::Debug for WebSocketArguments {
    /// Without the data of the call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketArguments")
            .field("websocket", &self.websocket)
            .field("transport_type", &self.transport_type)
            .field("line_rate_hz", &self.line_rate_hz)
            .finish_non_exhaustive()
    }
}

impl WebSocketArguments {
    pub(crate) fn new(
        websocket: WebSocketConnection,
        transport_type: Transport,
        call_data: Option<Value>,
        line_rate_hz: Option<u32>,
        slot: media::MediaSlot,
    ) -> Self {
        WebSocketArguments {
            websocket,
            transport_type,
            call_data,
            line_rate_hz,
            media: Some(slot),
        }
    }
}

/// What a session in a hosted video room has.
#[non_exhaustive]
pub struct VideoroomArguments {
    /// As the provider gave it.
    pub room_url: String,
    /// An owner's meeting token; `None` in a room that needs none.
    pub token: Option<Secret>,
    /// Where a call is connected to, with its `sip:`; only in a room that was made for one, and only where the provider said
    /// so. See [`crate::dialin`].
    pub sip_uri: Option<String>,
}

impl fmt::Debug for VideoroomArguments {
    /// Who knows the address of a room may come in, so it is no part of this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VideoroomArguments").finish_non_exhaustive()
    }
}

/// What a session in a media room has.
#[non_exhaustive]
pub struct MediaroomArguments {
    pub room_name: String,
    /// The server's `ws` or `wss` URL.
    pub url: String,
    /// The access token with which the bot joins.
    pub token: Secret,
    media: Option<media::MediaSlot>,
}

impl fmt::Debug for MediaroomArguments {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaroomArguments")
            .field("room_name", &self.room_name)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl MediaroomArguments {
    pub(crate) fn new(room_name: String, url: String, token: Secret, slot: media::MediaSlot) -> Self {
        MediaroomArguments {
            room_name,
            url,
            token,
            media: Some(slot),
        }
    }

    /// Takes the media without opening it yet.
    pub(crate) fn slot(&mut self) -> Option<media::MediaSlot> {
        self.media.take()
    }
}

/// The WebSocket of a session. The runner reads and writes it; a bot talks through [`Media`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebSocketConnection {
    /// The path that the client opened, without a token.
    pub path: &'static str,
}

impl WebSocketConnection {
    pub(crate) fn new(path: &'static str) -> Self {
        WebSocketConnection { path }
    }
}

/// A field that the session's kind has not. A missing field is a bot on the wrong transport, so it is an error and not an
/// absence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingField {
    pub kind: &'static str,
    pub field: &'static str,
}

impl fmt::Display for MissingField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not part of {} arguments", self.field, self.kind)
    }
}

impl std::error::Error for MissingField {}

/// A bot, erased once: what the runner keeps and calls for every session.
pub type Bot = Arc<dyn Fn(RunnerArguments) -> Pin<Box<dyn Future<Output = Result<(), BotError>> + Send>> + Send + Sync>;

/// Erases the type of a bot function.
pub fn erase<F, Fut>(bot: F) -> Bot
where
    F: Fn(RunnerArguments) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), BotError>> + Send + 'static,
{
    Arc::new(move |args| Box::pin(bot(args)))
}
