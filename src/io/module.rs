//! What a module of the runner adds: routes, replies of `/start`, checks, and state. A row of
//! `MODULES` is a [`Module`].

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;

use crate::bot::Bot;
use crate::config::{Config, ListenAddresses};
use crate::features::Feature;
use crate::io::RunError;
use crate::io::bots::SessionBot;
use crate::io::http::app::RunnerApp;
use crate::io::http::error::HttpError;
use crate::io::http::requested_call::RequestedCall;
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::services::Services;
use crate::proto::bots::BotChoice;
use crate::proto::doctor::Finding;
use crate::proto::http::route::Route;
use crate::proto::http::start::{RequestBase, StartPlan};
use edge_runner_http::common::{PeerInfo, Reply, UpgradeSlot};
use edge_runner_http::server::ConnState;
use edge_runner_http::tasks;

type CheckFn = for<'a> fn(&'a Config) -> ModuleFuture<'a, Result<(), RunError>>;
type RunFn = fn(&ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError>;
type AnswerFn = for<'a> fn(RouteRequest<'a>) -> ModuleFuture<'a, Result<Reply, HttpError>>;
type StartFn = for<'a> fn(StartRequest<'a>) -> ModuleFuture<'a, Result<Vec<u8>, HttpError>>;
type RunAloneFn = fn(Arc<Config>, Bot, fn(&str)) -> ModuleFuture<'static, Result<(), RunError>>;
type HostsFn = fn(&Config) -> Vec<String>;
type ExamineFn = for<'a> fn(&'a Arc<Config>) -> ModuleFuture<'a, Vec<Finding>>;
type BannerFn = fn(&Config, &ListenAddresses) -> Vec<BannerRow>;
type AnswerPageFn = fn(&RunnerApp, &Parts) -> Result<Option<Reply>, HttpError>;

/// A row of the text on stdout when the server listens: its label, empty if it continues the row
/// above, and its text. It has no secret.
pub type BannerRow = (&'static str, String);

/// One module of the runner: what a cargo feature adds.
pub struct Module {
    /// The feature that the routes and plans of the module need.
    pub feature: Feature,
    /// Prepares a thread of the runtime.
    pub begin_thread: Option<fn()>,
    /// Checks the configuration, and what it names outside the runner, before anything is bound.
    pub check: Option<CheckFn>,
    /// Begins what the module keeps while the runner runs; modules of earlier rows run already.
    pub run: Option<RunFn>,
    /// Answers a request of one of its routes.
    pub answer: Option<AnswerFn>,
    /// Begins a session for `/start`, and returns the JSON of the reply.
    pub start: Option<StartFn>,
    /// Answers a request for the page that was meant for the module.
    pub answer_page: Option<AnswerPageFn>,
    /// Returns how its callers reach it, or which settings it lacks, for the text on stdout.
    pub banner: Option<BannerFn>,
    /// Runs one bot in one room without a web server, for `--direct`. The last parameter gets the
    /// URL of the room.
    pub run_alone: Option<RunAloneFn>,
    /// Returns the hosts that the module will look up, for `edge-runner doctor`.
    pub hosts: Option<HostsFn>,
    /// The checks of `edge-runner doctor`, set by [`Module::with_checks`].
    pub checks: &'static [DoctorCheck],
}

/// A check of `edge-runner doctor`.
pub struct DoctorCheck {
    /// The name of the finding that the check has no result in time.
    pub what: &'static str,
    pub examine: ExamineFn,
}

impl Module {
    /// Returns a module that adds nothing yet.
    pub const fn new(feature: Feature) -> Self {
        Module {
            feature,
            begin_thread: None,
            check: None,
            run: None,
            answer: None,
            start: None,
            answer_page: None,
            banner: None,
            run_alone: None,
            hosts: None,
            checks: &[],
        }
    }

    /// Adds the checks of the module, in a build with the doctor.
    pub const fn with_checks(mut self, checks: &'static [DoctorCheck]) -> Self {
        if Feature::Doctor.in_this_build() {
            self.checks = checks;
        }
        self
    }
}

/// A runner that starts.
pub struct ModuleStartup<'a> {
    pub app: &'a RunnerApp,
    /// The addresses of the HTTP server, and its port.
    pub addresses: &'a [SocketAddr],
    pub port: u16,
    pub services: &'a Services,
}

/// A request of a route, from a client that may use it.
pub struct RouteRequest<'a> {
    pub app: &'a RunnerApp,
    pub route: Route<'a>,
    pub head: &'a Parts,
    pub body: Incoming,
    pub peer: PeerInfo,
    /// What is reported of its call if that is turned away.
    pub call: &'a RequestedCall,
    pub conn_state: &'a Arc<ConnState>,
    pub upgrade_slot: &'a UpgradeSlot,
}

/// A request of `/start`, from a client that may start a session.
pub struct StartRequest<'a> {
    pub app: &'a RunnerApp,
    pub plan: StartPlan,
    /// The name of the bot, if it is not the default.
    pub bot: Option<&'a str>,
    pub base: RequestBase<'a>,
    pub peer: PeerInfo,
    /// What is reported of its call if that is turned away.
    pub call: &'a RequestedCall,
}

impl StartRequest<'_> {
    /// Returns the bot of the session.
    ///
    /// # Errors
    /// [`HttpError::UnknownBot`] if it is gone.
    pub fn choose_bot(&self) -> Result<SessionBot, HttpError> {
        self.app.choose(BotChoice::named(self.bot), self.peer)
    }
}

/// Runs a check that reads files in a thread: a network file system may not answer.
pub async fn blocking(config: &Arc<Config>, look: fn(&Config) -> Vec<Finding>) -> Vec<Finding> {
    let config = config.clone();
    let looked = tasks::blocking(move || look(&config)).await;
    looked.unwrap_or_else(|panic| vec![Finding::warning("doctor", format!("a check failed: {panic}"))])
}
