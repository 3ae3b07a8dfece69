//! The state behind every request, and what the handlers of several modules need.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::access::values;
use super::custom_routes::CustomRoutes;
use super::error::HttpError;
use super::live_access::LiveAccess;
use crate::bot::SessionId;
use crate::config::{Config, ListenAddresses};
use crate::features::{Feature, MissingFeature};
use crate::io::admission::SessionPermit;
use crate::io::bots::SessionBot;
use crate::io::running::{RunningModule, RunningModules};
use crate::io::sessions::Sessions;
use crate::io::tasks::request_time;
use crate::io::tls::ServerTls;
use crate::limits::PROCESS_BODY_BYTES_MAX;
use crate::proto::bots::{BotChoice, UnknownBot};
use crate::proto::http::registry;
use crate::proto::http::started::{CreateError, StartedSessions};
use crate::proto::http::status::StatusReplies;
use crate::proto::http::token::{Issuer, SocketKind, SocketTokens};
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::{PendingKind, Requester};
use crate::proto::server::forwarded::TrustedProxies;
use crate::proto::server::log_limit::LogLimit;
use edge_runner_http::common::{ConnLimits, PeerInfo, Reply, lock, random};

/// The state behind every request: the sessions of one runner, the transports, and access control.
pub struct RunnerApp {
    pub config: Arc<Config>,
    pub sessions: Sessions,
    /// What the modules keep while this runner runs.
    pub modules: RunningModules,
    pub access: Arc<LiveAccess>,
    pub status: StatusReplies,
    pub table: Arc<Mutex<StartedSessions>>,
    /// Tokens of WebSockets and of Media over QUIC.
    pub tokens: Arc<Mutex<SocketTokens>>,
    /// The log lines caused by clients.
    pub log_limit: Arc<Mutex<LogLimit>>,
    pub proxies: TrustedProxies,
    pub conn_limits: ConnLimits,
    /// `None` when TLS is off.
    pub tls: Option<Arc<ServerTls>>,
    /// Routes of the embedding program.
    pub routes: CustomRoutes,
}

impl RunnerApp {
    /// Creates the service for the runner of these sessions.
    pub fn new(sessions: Sessions, tls: Option<Arc<ServerTls>>, routes: CustomRoutes) -> Self {
        let config = sessions.config().clone();
        let key = config.cluster.as_ref().map(|cluster| &cluster.key);
        let tokens = match (key, sessions.replica()) {
            (Some(key), Some(replica)) => SocketTokens::of_replica(key, replica.process()),
            _ => SocketTokens::new(random(), Instant::now()),
        };
        RunnerApp {
            access: LiveAccess::new(&config),
            status: StatusReplies::new(&config, sessions.replica()),
            table: Arc::new(Mutex::new(StartedSessions::new(key))),
            tokens: Arc::new(Mutex::new(tokens)),
            log_limit: Arc::default(),
            conn_limits: ConnLimits::default(),
            proxies: TrustedProxies::new(&config.trusted_proxies, config.proxy.is_some()),
            tls,
            routes,
            sessions,
            modules: RunningModules::default(),
            config,
        }
    }

    /// Serves the URL that phones can open, too.
    pub fn with_addresses(mut self, listening: &ListenAddresses) -> Self {
        self.status.set_addresses(&self.config, listening);
        self
    }

    /// Returns the counters of the log lines that clients cause.
    pub fn log_limit(&self) -> Arc<Mutex<LogLimit>> {
        self.log_limit.clone()
    }

    /// Returns the running module of this type.
    ///
    /// # Errors
    /// [`HttpError::MissingFeature`] if it does not run.
    pub fn module<M: RunningModule>(&self, feature: Feature) -> Result<&M, HttpError> {
        let missing = HttpError::MissingFeature(MissingFeature(feature));
        self.modules.get().ok_or(missing)
    }

    /// Rejects a new session while the runner drains or stops.
    pub fn check_open(&self) -> Result<(), HttpError> {
        match self.sessions.is_closed() {
            true => Err(HttpError::Offer(SessionRefusal::Stopping)),
            false => Ok(()),
        }
    }

    /// Admits a session.
    pub fn permit(&self, requester: Requester, kind: PendingKind) -> Result<SessionPermit, HttpError> {
        self.check_open()?;
        let permit = self
            .sessions
            .admission()
            .newcomer(|admission| admission.session(requester, kind));
        permit.map_err(HttpError::Offer)
    }

    /// Returns the bot that a choice names.
    ///
    /// # Errors
    /// [`HttpError::UnknownBot`], with all names for those with the key.
    pub fn choose(&self, choice: BotChoice<'_>, peer: PeerInfo) -> Result<SessionBot, HttpError> {
        let chosen = self.sessions.bots().choose(choice);
        chosen.map_err(|UnknownBot| self.unknown_bot(peer))
    }

    /// Returns the error about the name of a bot.
    pub fn unknown_bot(&self, peer: PeerInfo) -> HttpError {
        let names = || self.config.bots.names().collect::<Vec<_>>().join(", ");
        HttpError::UnknownBot(peer.is_authorised.then(names))
    }

    /// Returns the address of a client, behind any trusted proxies.
    pub fn client(&self, headers: &HeaderMap, peer: PeerInfo) -> IpAddr {
        let x_forwarded_for = values(headers, HeaderName::from_static("x-forwarded-for"));
        self.proxies
            .client_address(peer.ip(), x_forwarded_for, values(headers, header::FORWARDED))
    }
}

/// Rejects a body that is too large for a program's arguments, before anything is started.
pub fn check_program_body(bot: &SessionBot, body: &Value) -> Result<(), HttpError> {
    let fits = bot.row().config.command.is_none() || body.to_string().len() <= PROCESS_BODY_BYTES_MAX;
    fits.then_some(()).ok_or(HttpError::BodyTooLargeForProgram)
}

/// Registers a body for a later connection to the bot of this name or the default, and returns the
/// session id for the client.
pub fn register(app: &RunnerApp, bot: Option<&str>, body: &Value, peer: PeerInfo) -> Result<Arc<str>, HttpError> {
    let created = lock(&app.table).create(random(), (bot, body), peer.requester(), request_time());
    created.map_err(|refused| match refused {
        CreateError::Full(full) => HttpError::Full(full),
        CreateError::TooLong(too_long) => HttpError::BodyTooLargeForId(too_long),
    })
}

/// Makes a WebSocket token, if one is required.
pub fn mint_token(app: &RunnerApp, family: SocketKind, session: Option<&str>, is_authorised: bool) -> Option<String> {
    let is_required = app.config.ws_tokens;
    is_required.then(|| issue_token(app, family, session, is_authorised))
}

/// Makes a WebSocket token. That of a registered session contains its id.
pub fn issue_token(app: &RunnerApp, family: SocketKind, session: Option<&str>, is_authorised: bool) -> String {
    let id = session.map_or_else(new_session_id, SessionId::from);
    let issuer = if is_authorised { Issuer::ApiKey } else { Issuer::Anyone };
    lock(&app.tokens).mint(family, &id, issuer, request_time())
}

pub fn new_session_id() -> SessionId {
    registry::session_id(random())
}

/// Answers OPTIONS with the methods of a path.
pub fn methods(allowed: &'static str) -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allowed));
    reply
}
