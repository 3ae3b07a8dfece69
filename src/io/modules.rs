//! What the runner asks its modules, by the rows of `MODULES`. A feature that is off has no row:
//! its routes and plans are rejected by its name.

use std::sync::Arc;

use hyper::http::request::Parts;

use crate::bot::Bot;
#[cfg(feature = "call")]
use crate::config::Transport;
use crate::config::{Config, ListenAddresses};
use crate::features::{Feature, MissingFeature};
#[cfg(feature = "call")]
use crate::io::CALLS;
#[cfg(feature = "call")]
use crate::io::call::CallRow;
use crate::io::http::app::RunnerApp;
use crate::io::http::error::HttpError;
use crate::io::module::{BannerRow, Module, ModuleStartup, RouteRequest, StartRequest};
use crate::io::server::Listeners;
use crate::io::services::Services;
use crate::io::{MODULES, RunError};
use crate::proto::http::route::RouteError;
use edge_runner_http::common::Reply;

/// Returns how `edge-runner call` calls by a transport.
#[cfg(feature = "call")]
pub fn call_row(transport: Transport) -> &'static CallRow {
    let [others @ .., last] = &CALLS;
    let mut rows = others.iter();
    rows.find(|row| row.feature == transport.feature()).unwrap_or(last)
}

/// Returns the modules of this build: those of this folder, and that of the built-in bots.
pub fn built() -> impl Iterator<Item = &'static Module> {
    let of_bots = crate::bots::assistant::MODULE;
    MODULES.iter().copied().chain([of_bots]).flatten()
}

/// Prepares a thread of the runtime.
pub fn begin_thread() {
    for begin in built().filter_map(|module| module.begin_thread) {
        begin();
    }
}

/// Checks the configuration, and what it names outside the runner, before anything is bound.
///
/// # Errors
/// Returns the [`RunError`] of the first module that cannot serve.
pub async fn check(config: &Config) -> Result<(), RunError> {
    for check in built().filter_map(|module| module.check) {
        check(config).await?;
    }
    Ok(())
}

/// Runs one bot in one room without a web server.
///
/// # Errors
/// Returns the [`RunError`] of the step that failed. The command line rejects `--direct` where no
/// module has rooms.
pub async fn run_alone(config: Arc<Config>, bot: Bot, announce: fn(&str)) -> Result<(), RunError> {
    match built().find_map(|module| module.run_alone) {
        Some(run) => run(config, bot, announce).await,
        None => Err(RunError::Misuse("this build has no rooms for one bot alone".to_owned())),
    }
}

/// Begins what the modules keep while the runner runs.
///
/// # Errors
/// Returns the [`RunError`] of the first module that cannot serve.
pub fn run(app: &mut RunnerApp, listeners: &Listeners, services: &Services) -> Result<(), RunError> {
    for run in built().filter_map(|module| module.run) {
        let startup = ModuleStartup {
            app,
            addresses: listeners.addresses(),
            port: listeners.port(),
            services,
        };
        if let Some(running) = run(&startup)? {
            app.modules.push(running);
        }
    }
    Ok(())
}

/// Returns what the modules tell people when the server listens.
pub fn banner_rows(config: &Config, listening: &ListenAddresses) -> Vec<BannerRow> {
    let rows = built().filter_map(|module| module.banner);
    rows.flat_map(|rows| rows(config, listening)).collect()
}

/// Answers a request for the page that was meant for a module; `None` if it was for the page.
pub fn answer_page(app: &RunnerApp, head: &Parts) -> Result<Option<Reply>, HttpError> {
    let answers = built().filter_map(|module| module.answer_page);
    answers
        .map(|answer| answer(app, head))
        .find_map(Result::transpose)
        .transpose()
}

/// Answers a request of a module's route.
pub async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    let module = request.route.feature().map(of).transpose()?;
    match module.and_then(|module| module.answer) {
        Some(answer) => answer(request).await,
        None => Err(HttpError::Route(RouteError::NotFound)),
    }
}

/// Begins a session of a module for `/start`, and returns the JSON of the reply.
pub async fn start(request: StartRequest<'_>) -> Result<Vec<u8>, HttpError> {
    match of(request.plan.transport.feature())?.start {
        Some(start) => start(request).await,
        None => Err(HttpError::Route(RouteError::NotFound)),
    }
}

fn of(feature: Feature) -> Result<&'static Module, HttpError> {
    built()
        .find(|module| module.feature == feature)
        .ok_or(HttpError::MissingFeature(MissingFeature(feature)))
}
