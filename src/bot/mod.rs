//! What a bot is given and what it can ask for.
//!
//! A bot is an `async fn(RunnerArguments) -> Result<(), BotError>`. It owns its arguments, runs
//! until the session is over, and returns an error if it failed. [`RunnerArguments`] has what every
//! kind of session has as fields; what one kind has is in [`Kind`], and behind accessors that
//! return [`MissingField`] on another kind. Audio, messages and interruptions go through one
//! [`Media`] handle on every kind. Source.

mod daily;
mod livekit;
pub(crate) mod media;
mod moq;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::{Config, Transport};
use crate::limits::{EVAL_MESSAGE_BYTES_MAX, MESSAGES_IN_BYTES_MAX};
use crate::proto::job::Job;
use crate::proto::metrics::RunnerMetrics;
use crate::proto::process::KindArguments;
pub use daily::VideoroomArguments;
pub use livekit::MediaroomArguments;
pub(crate) use livekit::RoomCall;
pub use media::{Audio, AudioFrame, AudioMix, Event, Events, LeaveReason, Media, MediaError, Output, Participant};
pub(crate) use moq::MoqAddress;
pub use moq::MoqArguments;

/// The error of a bot. It ends the bot's own session, with one WARN line.
pub type BotError = Box<dyn std::error::Error + Send + Sync>;

pub use edge_runner_http::shutdown::{Shutdown, ShutdownTrigger};
pub use edge_runner_proto::SessionId;
pub use edge_runner_proto::answered_by::AnsweredBy;
pub use edge_runner_proto::audio::g711::{Law, LineLaws};

/// The arguments of a bot: one session.
#[non_exhaustive]
pub struct RunnerArguments {
    /// The name of the session, which begins its log lines.
    pub session_id: SessionId,
    /// The `body` of `/start`, the data sent with the offer, or a webhook's data; `{}` without any.
    pub body: Value,
    /// Whether this bot handles SIGINT. Only a bot without a server does.
    pub handle_sigint: bool,
    /// Whether this bot handles SIGTERM.
    pub handle_sigterm: bool,
    /// How long a session may be idle before the bot should end it. The bot decides what activity
    /// is.
    pub idle_timeout: Duration,
    /// Whether the sound of the session is recorded (`--record`).
    pub is_recorded: bool,
    /// Whether operators may listen to the session (`--listen-in`).
    pub allows_listening: bool,
    /// Set when the runner stops, or when the time of `--drain` is over.
    pub shutdown: Shutdown,
    /// The configuration of the runner.
    pub cli_args: Arc<Config>,
    /// The transport of the session, with what only that transport has.
    pub kind: Kind,
    /// The metrics of the runner, for its built-in bots.
    pub(crate) metrics: Arc<RunnerMetrics>,
    /// Set when the session has ended before its bot. Media that are not open do not show that.
    pub(crate) session_over: Shutdown,
}

impl RunnerArguments {
    /// Creates the arguments of one session, for a runner or a test.
    pub fn new(session_id: SessionId, body: Value, cli_args: Arc<Config>, kind: Kind) -> Self {
        RunnerArguments {
            session_id,
            body,
            handle_sigint: false,
            handle_sigterm: false,
            idle_timeout: crate::limits::BOT_IDLE,
            is_recorded: false,
            allows_listening: false,
            shutdown: Shutdown::default(),
            cli_args,
            kind,
            metrics: Arc::default(),
            session_over: Shutdown::default(),
        }
    }

    /// Takes the media handle of any kind, with PCM at the rates of `audio`.
    ///
    /// # Errors
    /// [`MissingField`] on a kind without media, and after the first call.
    pub fn media(&mut self, audio: Audio) -> Result<Media, MissingField> {
        let kind = self.kind.name();
        let slot = self.kind.take_media();
        slot.map(|media| media.open(audio))
            .ok_or(MissingField { kind, field: "media" })
    }

    /// Returns the WebRTC connection of the session.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but WebRTC.
    pub fn webrtc_connection(&self) -> Result<&WebRtcConnection, MissingField> {
        match &self.kind {
            Kind::WebRtc(webrtc) => Ok(&webrtc.webrtc_connection),
            _ => self.missing("webrtc_connection"),
        }
    }

    /// Returns whether the client is a microcontroller, which takes only few and short messages.
    pub(crate) fn is_embedded(&self) -> bool {
        matches!(&self.kind, Kind::WebRtc(webrtc) if webrtc.webrtc_connection.embedded)
    }

    /// Returns whether the client has a channel for messages; `None` on a transport that does not
    /// say so.
    pub(crate) fn message_channel(&self) -> Option<bool> {
        match &self.kind {
            Kind::WebRtc(webrtc) => Some(webrtc.webrtc_connection.messages),
            _ => None,
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
    /// [`MissingField`] on every kind but videoroom and mediaroom, and in a video room without a
    /// token.
    pub fn token(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::Videoroom(VideoroomArguments { token: Some(token), .. }) => Ok(token.expose()),
            Kind::Mediaroom(room) => Ok(room.token.expose()),
            _ => self.missing("token"),
        }
    }

    /// Returns the job for which a LiveKit server has sent the bot into the room.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but mediaroom, and in a room that the bot entered without a
    /// job. A runner with `--register` has jobs alone.
    pub fn job(&self) -> Result<&Job, MissingField> {
        match &self.kind {
            Kind::Mediaroom(MediaroomArguments { job: Some(job), .. }) => Ok(job),
            _ => self.missing("job"),
        }
    }

    /// Returns the URL of Media over QUIC: that of the runner, or of the relay.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but moq.
    pub fn relay_url(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::Moq(moq) => Ok(&moq.relay_url),
            _ => self.missing("relay_url"),
        }
    }

    /// Returns the namespace of Media over QUIC: the first part of both broadcasts' paths.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but moq.
    pub fn namespace(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::Moq(moq) => Ok(&moq.namespace),
            _ => self.missing("namespace"),
        }
    }

    /// Returns `websocket`, or the name of the call's telephony provider.
    ///
    /// # Errors
    /// [`MissingField`] on every kind but WebSocket.
    pub fn transport_type(&self) -> Result<&str, MissingField> {
        match &self.kind {
            Kind::WebSocket(socket) => Ok(socket.transport_type.name()),
            _ => self.missing("transport_type"),
        }
    }

    /// Returns the data of a call.
    ///
    /// On the telephone it is an object with `stream_id`, `call_id`, `from`, `to`, `body` and what
    /// else the provider sent. In a LiveKit room it is that of the first telephone, from its
    /// [`Event::ParticipantJoined`] on; [`Participant::call_data`] has that of each. Over WebRTC it
    /// is an object whose `via` names the signalling: `whip`, `whep` and `calls` come with the
    /// `name` in the endpoint's path and the client's `user_agent`.
    pub fn call_data(&self) -> Option<&Value> {
        self.kind.call_data()
    }

    /// Returns the fixed sample rate of a telephone line, in Hz. A bot that opens its media at this
    /// rate avoids resampling.
    pub fn line_rate_hz(&self) -> Option<u32> {
        match &self.kind {
            Kind::WebSocket(socket) => socket.line_rate_hz,
            _ => None,
        }
    }

    /// Returns the laws of G.711 with which the provider of a telephone call sends and receives
    /// audio at [`RunnerArguments::line_rate_hz`]. G.711 that is decoded with the outbound law and
    /// sent as PCM reaches the provider unchanged; the caller's PCM that is encoded with the
    /// inbound law is what the provider sent.
    pub fn line_laws(&self) -> Option<LineLaws> {
        match &self.kind {
            Kind::WebSocket(socket) => socket.line_laws,
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
    /// Omits the body and all credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerArguments")
            .field("session_id", &self.session_id)
            .field("kind", &self.kind)
            .field("idle_timeout", &self.idle_timeout)
            .field("is_stopping", &self.shutdown.is_set())
            .finish_non_exhaustive()
    }
}

/// The transport of a session, with what only that transport has.
#[non_exhaustive]
pub enum Kind {
    /// No transport of the runner: the bot brings its own.
    Base,
    /// A WebRTC session with this runner.
    WebRtc(WebRtcArguments),
    /// A plain client or a telephone call; `transport_type` tells them apart.
    WebSocket(WebSocketArguments),
    /// A Daily room, which the bot joins with Daily's own library.
    #[doc(alias = "Daily")]
    Videoroom(VideoroomArguments),
    /// A LiveKit room. The runner joins it under the bot's name when the bot takes its media.
    #[doc(alias = "LiveKit")]
    Mediaroom(MediaroomArguments),
    /// A caller over Media over QUIC.
    Moq(MoqArguments),
    /// The sound card of this machine.
    Local(LocalArguments),
}

impl Kind {
    pub(crate) fn call_data(&self) -> Option<&Value> {
        match self {
            Kind::WebRtc(webrtc) => webrtc.call_data.as_ref(),
            Kind::WebSocket(socket) => socket.call_data.as_ref(),
            Kind::Mediaroom(room) => room.call.data(),
            _ => None,
        }
    }

    /// Returns the transport of the session; `None` without one of the runner.
    pub(crate) fn transport(&self) -> Option<Transport> {
        match self {
            Kind::Base => None,
            Kind::WebRtc(_) => Some(Transport::WebRtc),
            Kind::WebSocket(socket) => Some(socket.transport_type),
            Kind::Videoroom(_) => Some(Transport::Videoroom),
            Kind::Mediaroom(_) => Some(Transport::Mediaroom),
            Kind::Moq(_) => Some(Transport::Moq),
            Kind::Local(_) => Some(Transport::Local),
        }
    }

    /// Takes the media without opening it yet; `None` for a kind without media.
    pub(crate) fn take_media(&mut self) -> Option<media::MediaSlot> {
        match self {
            Kind::WebRtc(webrtc) => webrtc.media.take(),
            Kind::WebSocket(socket) => socket.media.take(),
            Kind::Mediaroom(room) => room.media.take(),
            Kind::Moq(moq) => moq.media.take(),
            Kind::Local(local) => local.media.take(),
            Kind::Videoroom(_) | Kind::Base => None,
        }
    }

    /// Returns the bytes of messages that may wait for the bot.
    pub(crate) fn messages_in_bytes_max(&self) -> usize {
        match self {
            Kind::WebSocket(socket) if socket.has_long_messages => MESSAGES_IN_BYTES_MAX + EVAL_MESSAGE_BYTES_MAX,
            _ => MESSAGES_IN_BYTES_MAX,
        }
    }

    /// Returns the rooms that a bot joins by itself, for a sentence, if this is one.
    pub(crate) fn rooms_of_bot(&self) -> Option<&'static str> {
        matches!(self, Kind::Videoroom(_)).then_some("Daily rooms")
    }

    /// Returns whether the runner joins the room under the bot's name when the media is opened.
    pub(crate) fn joins_with_media(&self) -> bool {
        matches!(self, Kind::Mediaroom(_))
    }

    /// Returns the call of a telephone in the room, if this is a room that the runner joins.
    pub(crate) fn room_call(&self) -> Option<RoomCall> {
        match self {
            Kind::Mediaroom(room) => Some(room.call.clone()),
            _ => None,
        }
    }

    /// Returns what the kind adds to the arguments of a program.
    pub(crate) fn for_program(&self) -> KindArguments {
        let text = |text: &str| Some(Value::from(text));
        let fields = match self {
            Kind::Base | Kind::Local(_) => Vec::new(),
            Kind::WebRtc(webrtc) => vec![
                (
                    "webrtc_connection",
                    Some(json!({"pc_id": webrtc.webrtc_connection.pc_id})),
                ),
                ("call_data", webrtc.call_data.clone()),
            ],
            Kind::WebSocket(socket) => {
                let eval = socket.eval.as_ref();
                let of_eval = eval.map(|flags| json!({"body": flags}));
                vec![
                    ("websocket", Some(json!({"path": socket.websocket.path}))),
                    (
                        "transport_type",
                        text(eval.map_or(socket.transport_type.name(), |_| "eval")),
                    ),
                    ("call_data", of_eval.or_else(|| socket.call_data.clone())),
                ]
            }
            Kind::Videoroom(room) => vec![
                ("room_url", text(&room.room_url)),
                ("token", room.token.as_ref().and_then(|token| text(token.expose()))),
                ("sip_uri", room.sip_uri.as_deref().and_then(text)),
            ],
            Kind::Mediaroom(room) => vec![
                ("room_name", text(&room.room_name)),
                ("url", text(&room.url)),
                ("token", text(room.token.expose())),
                ("job", room.job.as_ref().map(|job| job.to_json())),
            ],
            Kind::Moq(moq) => vec![
                ("relay_url", text(&moq.relay_url)),
                ("namespace", text(&moq.namespace)),
                ("bot_id", text(&moq.bot_id)),
                ("client_id", text(&moq.client_id)),
                ("serve", Some(moq.serve.into())),
            ],
        };
        KindArguments {
            name: self.name(),
            fields,
        }
    }

    /// Returns the kind's name in errors and log lines.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Base => "base",
            Kind::WebRtc(_) => "webrtc",
            Kind::WebSocket(_) => "websocket",
            Kind::Videoroom(_) => "videoroom",
            Kind::Mediaroom(_) => "mediaroom",
            Kind::Moq(_) => "moq",
            Kind::Local(_) => "local",
        }
    }
}

impl fmt::Debug for Kind {
    /// The kind's name, without tokens, room URLs and call data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a WebRTC session has.
#[non_exhaustive]
pub struct WebRtcArguments {
    /// The peer connection.
    pub webrtc_connection: WebRtcConnection,
    /// See [`RunnerArguments::call_data`].
    pub call_data: Option<Value>,
    media: Option<media::MediaSlot>,
}

impl fmt::Debug for WebRtcArguments {
    /// Omits the call data.
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

    /// Returns the arguments with call data.
    pub(crate) fn with_call_data(self, call_data: Option<Value>) -> Self {
        WebRtcArguments { call_data, ..self }
    }
}

/// The peer connection of a session.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebRtcConnection {
    /// The `pc_id` of the first answer.
    pub pc_id: String,
    /// Whether the client is a microcontroller, which sends no `client-ready` and takes only few
    /// and short messages.
    pub embedded: bool,
    /// Whether the client's first offer has a data channel. Without one there is no `client-ready`:
    /// greet at [`Event::Joined`]. A later offer may add a channel, which the first
    /// [`Event::Message`] shows.
    pub messages: bool,
}

impl fmt::Debug for WebRtcConnection {
    /// Omits the `pc_id`, with which anyone can act for the client.
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
    /// The connection.
    pub websocket: WebSocketConnection,
    /// [`Transport::WebSocket`] for a plain client, else the detected telephony provider.
    pub transport_type: Transport,
    /// See [`RunnerArguments::call_data`].
    pub call_data: Option<Value>,
    /// See [`RunnerArguments::line_rate_hz`].
    pub line_rate_hz: Option<u32>,
    /// See [`RunnerArguments::line_laws`].
    pub line_laws: Option<LineLaws>,
    /// Whether the caller is the simulated telephone of the built-in page.
    pub is_simulated: bool,
    /// The flags of an evaluation by `pipecat eval`, an object. It sends and expects texts alone.
    pub eval: Option<Value>,
    /// Whether its messages may be longer than those of other callers.
    has_long_messages: bool,
    media: Option<media::MediaSlot>,
}

impl fmt::Debug for WebSocketArguments {
    /// Without the data of the call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketArguments")
            .field("websocket", &self.websocket)
            .field("transport_type", &self.transport_type)
            .field("line_rate_hz", &self.line_rate_hz)
            .field("line_laws", &self.line_laws)
            .finish_non_exhaustive()
    }
}

impl WebSocketArguments {
    pub(crate) fn new(
        websocket: WebSocketConnection,
        transport_type: Transport,
        call_data: Option<Value>,
        slot: media::MediaSlot,
    ) -> Self {
        WebSocketArguments {
            websocket,
            transport_type,
            call_data,
            line_rate_hz: None,
            line_laws: None,
            is_simulated: false,
            eval: None,
            has_long_messages: false,
            media: Some(slot),
        }
    }

    /// Returns the arguments of a call that is simulated, or not.
    pub(crate) fn simulated(self, is_simulated: bool) -> Self {
        WebSocketArguments { is_simulated, ..self }
    }

    /// Returns the arguments of an evaluation, or of none.
    pub(crate) fn of_eval(self, eval: Option<Value>) -> Self {
        WebSocketArguments { eval, ..self }
    }

    /// Returns the arguments of a caller who may send long messages, or not.
    pub(crate) fn with_long_messages(self, has_long_messages: bool) -> Self {
        WebSocketArguments {
            has_long_messages,
            ..self
        }
    }

    /// Returns the arguments of a telephone call on this line.
    pub(crate) fn on_line(self, line_rate_hz: Option<u32>, line_laws: Option<LineLaws>) -> Self {
        WebSocketArguments {
            line_rate_hz,
            line_laws,
            ..self
        }
    }
}

/// What a session of the sound card has.
#[non_exhaustive]
pub struct LocalArguments {
    media: Option<media::MediaSlot>,
}

impl fmt::Debug for LocalArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalArguments").finish_non_exhaustive()
    }
}

impl LocalArguments {
    pub(crate) fn new(slot: media::MediaSlot) -> Self {
        LocalArguments { media: Some(slot) }
    }
}

/// The WebSocket of a session. The runner reads and writes it; a bot uses [`Media`].
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

/// The error of asking for a field that the session's kind does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingField {
    /// The kind of the session.
    pub kind: &'static str,
    /// The field that it does not have.
    pub field: &'static str,
}

impl fmt::Display for MissingField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not part of {} arguments", self.field, self.kind)
    }
}

impl std::error::Error for MissingField {}

/// A bot with its type erased, which the runner calls for every session.
#[doc(hidden)]
pub type Bot = Arc<dyn Fn(RunnerArguments) -> Pin<Box<dyn Future<Output = Result<(), BotError>> + Send>> + Send + Sync>;

/// Returns the crate of a bot function; `None` for a type of the standard library, such as `Box`.
#[doc(hidden)]
pub fn crate_of<F>() -> Option<&'static str> {
    let name = std::any::type_name::<F>().split("::").next()?;
    let is_crate = !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
    (is_crate && !["alloc", "core", "std"].contains(&name)).then_some(name)
}

/// Erases the type of a bot function.
#[doc(hidden)]
pub fn erase<F, Fut>(bot: F) -> Bot
where
    F: Fn(RunnerArguments) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), BotError>> + Send + 'static,
{
    Arc::new(move |args| Box::pin(bot(args)))
}

#[cfg(test)]
mod tests;
