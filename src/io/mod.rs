//! The drivers: sockets, tasks, the clock and signals. They read the clock, move bytes, and perform
//! what `proto` decides; protocol decisions belong there.
//!
//! [`run`] builds the parts, waits for a signal, and shuts down: no new sessions, every live one
//! told, and everything ended within [`SHUTDOWN_GRACE`]. With `--drain` it first waits for live
//! sessions.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub use edge_runner_http::{children, group, memory, server, services, signal, store, stream, tasks, tls, watch};

pub mod addresses;
pub mod admission;
pub mod bots;
#[cfg(feature = "call")]
pub mod call;
#[cfg_attr(not(feature = "calls"), path = "absent.rs")]
pub mod calls;
#[cfg_attr(not(feature = "videoroom"), path = "absent.rs")]
pub mod daily;
pub mod doctor;
pub mod drain;
pub mod http;
pub mod inbox_queue;
#[cfg_attr(not(feature = "mediaroom"), path = "absent.rs")]
pub mod livekit;
pub mod local;
pub mod metrics;
pub mod module;
pub mod modules;
#[cfg_attr(not(feature = "moq"), path = "absent.rs")]
pub mod moq;
pub mod observer;
#[cfg(feature = "telephony")]
pub mod phone;
pub mod port_owner;
pub mod process;
pub mod reload;
#[cfg_attr(not(feature = "_rest"), path = "rest/absent.rs")]
pub mod rest;
pub mod room;
pub mod running;
pub mod serving;
pub mod session;
pub mod sessions;
#[cfg_attr(not(feature = "setup"), path = "settings/absent.rs")]
pub mod settings;
#[cfg(feature = "setup")]
pub mod setup;
pub mod trace;
#[cfg_attr(not(feature = "update"), path = "absent.rs")]
pub mod update;
pub mod websocket;
#[cfg(any(feature = "mediaroom", feature = "assistants", feature = "call"))]
pub mod websocket_client;
#[cfg_attr(not(feature = "messaging"), path = "absent.rs")]
pub mod whatsapp;
pub mod written_folder;

cfg_if::cfg_if! {
    if #[cfg(feature = "webrtc")] {
        pub mod seeding;
        pub mod udp_family;
        pub mod webrtc;
    } else {
        #[path = "absent.rs"]
        pub mod webrtc;
    }
}

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::lock;

use crate::bot::Bot;
use crate::config::{Config, ListenAddresses};
#[cfg(feature = "call")]
use crate::features::Feature;
#[cfg(feature = "call")]
use crate::io::call::CallRow;
use crate::io::http::custom_routes::CustomRoutes;
use crate::io::module::Module;
use crate::io::process::python;
use crate::io::process::sandbox::{Sandbox, SandboxError};
use crate::io::reload::{SettingsSource, SettingsWatcher};
use crate::io::running::RunningModule;
use crate::io::server::BindError;
use crate::io::services::{LostService, Services};
use crate::io::serving::RunnerInstance;
use crate::io::settings::SettingsRequests;
use crate::io::signal::Signals;
use crate::io::tls::{CertificateWatcher, ServerTls, TlsError};
use crate::limits::{RELAY_END, RUNTIME_END, SHUTDOWN_GRACE};
use crate::proto::counts::SessionCount;

/// The modules of this folder, one row each. A module finds those of earlier rows running. Without
/// its feature, `absent` takes its place, which has no row.
static MODULES: [Option<&Module>; 13] = [
    doctor::certificate::MODULE,
    http::page::MODULE,
    calls::MODULE,
    settings::MODULE,
    update::MODULE,
    webrtc::MODULE,
    websocket::telephony::MODULE,
    websocket::routes::CLIENTS,
    livekit::MODULE,
    daily::MODULE,
    moq::MODULE,
    whatsapp::MODULE,
    local::MODULE,
];

/// How `edge-runner call` calls by the transports of a feature. The last row serves all that have
/// none: telephones.
#[cfg(feature = "call")]
static CALLS: [CallRow; 4] = [
    CallRow {
        what: "over WebRTC",
        feature: Feature::WebRtc,
        run: webrtc::call::row(),
    },
    CallRow {
        what: "into a LiveKit room",
        feature: Feature::Mediaroom,
        run: livekit::call::row(),
    },
    CallRow {
        what: "over QUIC",
        feature: Feature::Moq,
        run: moq::call::row(),
    },
    CallRow {
        what: "over a WebSocket",
        feature: Feature::WebSocket,
        run: websocket::call::row(),
    },
];

/// Why a runner could not serve.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration is invalid.
    #[error("{0}")]
    Misuse(String),
    /// The program that acts as the bot cannot be run.
    #[error(transparent)]
    Command(process::CommandError),
    /// One of several bots cannot be run.
    #[error("[bots.{name}]: {error}")]
    OfBot { name: Arc<str>, error: Box<RunError> },
    /// Programs cannot run in a sandbox.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The functions of `--tools` cannot be used.
    #[error("functions of `{name}` (--tools): {why}")]
    Tools { name: String, why: String },
    /// A folder whose files are served cannot be read.
    #[error("{option} {}: {source}; it takes a folder that the runner may read", path.display())]
    Folder {
        option: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// What is kept of calls, or their files, cannot be written where it is to be.
    #[error("{option} {}: {source}; it takes a folder that the runner may make, or write to", path.display())]
    WrittenFolder {
        option: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Bind(BindError),
    /// A UDP port could not be bound.
    #[error("binding UDP {address} for {protocol}: {source}; {advice}")]
    BindUdp {
        /// The port, or the address with it.
        address: String,
        protocol: &'static str,
        advice: &'static str,
        source: io::Error,
    },
    /// A certificate of a module cannot be used.
    #[error("the certificate of {protocol}: {why}")]
    ModuleCertificate { protocol: &'static str, why: String },
    /// The DTLS certificate could not be made.
    #[error("making the DTLS certificate: {0}")]
    Certificate(String),
    #[error("listening for signals: {0}")]
    Signals(#[source] io::Error),
    /// The watchdog thread could not be started.
    #[error("starting the thread that watches the runtime: {0}")]
    Watch(#[source] io::Error),
    #[error(transparent)]
    Tls(TlsError),
    /// There is no room for the bot of `--direct`.
    #[error("{0}")]
    NoRoom(String),
    /// The bot of `--direct` failed.
    #[error("the bot failed: {0}")]
    Bot(String),
    /// An essential service was lost; the sessions were ended in good order.
    #[error("{0}")]
    Service(LostService),
    /// A further signal came while sessions were still ending.
    #[error("stopped at once by a further signal")]
    Forced,
}

/// What follows when a runner has ended in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterServing {
    Exit,
    /// The settings page changed what only a start reads.
    Restart,
}

/// Serves until a signal, then shuts down in good order. The configured program, if there is one,
/// replaces `bot`. `announce` is called once, when all sockets listen.
///
/// # Errors
/// Returns a `RunError` that names the part which failed, with advice.
pub async fn run(config: Arc<Config>, bot: Bot, announce: impl FnOnce(&ListenAddresses)) -> Result<(), RunError> {
    run_with(config, bot, announce, Services::default()).await
}

/// Like [`run`], and applies at SIGHUP and by the settings page what `settings` returns, as far as
/// it can change live.
///
/// # Errors
/// As [`run`].
pub async fn run_reloading(
    config: Arc<Config>,
    bot: Bot,
    announce: impl FnOnce(&ListenAddresses),
    settings: Arc<dyn SettingsSource>,
) -> Result<AfterServing, RunError> {
    run_until_signal(config, bot, announce, Services::default(), Some(settings)).await
}

/// Like [`run`], with additional services: it ends when one of them is lost.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    config: Arc<Config>,
    bot: Bot,
    announce: impl FnOnce(&ListenAddresses),
    services: Services,
) -> Result<(), RunError> {
    run_until_signal(config, bot, announce, services, None)
        .await
        .map(|_| ())
}

async fn run_until_signal(
    config: Arc<Config>,
    bot: Bot,
    announce: impl FnOnce(&ListenAddresses),
    services: Services,
    settings: Option<Arc<dyn SettingsSource>>,
) -> Result<AfterServing, RunError> {
    let mut signals = Signals::listen().map_err(RunError::Signals)?;
    let watcher = CertificateWatcher::listen().map_err(RunError::Signals)?;
    let tls = ServerTls::open(&config.tls_settings()).map_err(RunError::Tls)?;
    let settings = settings
        .map(|settings| SettingsWatcher::listen(&config, settings))
        .transpose();
    let settings = settings.map_err(RunError::Signals)?;
    let drain = settings
        .as_ref()
        .map_or_else(|| Arc::new(Mutex::new(config.drain)), SettingsWatcher::drain);
    let restart = settings.as_ref().map(SettingsWatcher::restart).unwrap_or_default();
    let serving = RunnerInstance::start(config, bot, tls.clone(), CustomRoutes::default(), &services).await?;
    let (live, sessions) = (serving.live.clone(), serving.sessions.clone());
    let tidy = services.spawn("the tidying of memory", memory::trim_when_idle(live.clone()));
    let reaper = tasks::spawn(children::reap_orphans());
    let watch = sessions.watchdog().start(Some(live.clone()), &services);
    watch.map_err(RunError::Watch)?;
    services.spawn(
        "the certificate watcher",
        watcher.run(tls.clone(), serving.module_certificate(), sessions.shutdown().clone()),
    );
    if let Some(settings) = settings {
        let page = SettingsRequests::of(serving.modules());
        let reading = settings.run(serving.access.clone(), page, sessions.shutdown().clone());
        services.spawn("the reading of settings", reading);
    }
    announce(&serving.listening);
    if let Some(tls) = &tls {
        tls.log_authority();
    }
    sessions.watchdog().ready();
    // The first caller must not wait for this; the server already runs in its own tasks.
    serving.warm_up();

    let (mut after, live_count) = (AfterServing::Exit, || SessionCount(live.count()));
    let lost = tokio::select! {
        name = signals.next() => {
            log::info!("{name}: stopping, {} live", live_count());
            None
        }
        () = restart.notified() => {
            log::info!("settings page: restarting, {} live", live_count());
            after = AfterServing::Restart;
            None
        }
        lost = services.lost() => {
            log::error!("{lost}: stopping, {} live", live_count());
            Some(lost)
        }
    };
    // A runner that has lost a service can serve neither its sessions nor new ones.
    let drain = if lost.is_some() { Duration::ZERO } else { *lock(&drain) };
    sessions.close();
    let within = drain + SHUTDOWN_GRACE + RELAY_END + RUNTIME_END;
    // For the supervisor, a runner that restarts goes on.
    let stopping = (after == AfterServing::Exit).then(|| sessions.watchdog().stopping(within));
    let notified = async {
        if let Some(stopping) = stopping {
            stopping.await;
        }
    };
    let outcome = serving.end(drain, Some(&mut signals), notified).await;
    tidy.abort();
    reaper.abort();
    if signals.received() > 0 {
        // Who stops the runner while it restarts wants it to end.
        after = AfterServing::Exit;
    }
    outcome.and(lost.map_or(Ok(after), |lost| Err(RunError::Service(lost))))
}

/// Checks before the first session that programs can run in the sandbox, if they are to.
fn check_sandbox(config: &Config) -> Result<(), RunError> {
    match config.of_bots().find_map(Sandbox::new) {
        Some(sandbox) => Ok(sandbox.check(config.settings_page.as_deref())?),
        None => Ok(()),
    }
}

/// Returns the bot of every session: the configured program, if there is one, with its processes
/// that start before the calls. `name` is that of one of several bots.
fn bot_of(config: &Config, bot: Bot, name: Option<&str>) -> Result<(Bot, Option<Arc<dyn RunningModule>>), RunError> {
    match &config.command {
        Some(command) => {
            let sandbox = Sandbox::new(config);
            let folder = sandbox.as_ref().map(Sandbox::working_dir);
            let folder = folder.or(config.bot_folder.as_deref());
            let words = python::command(config, command, folder);
            match config.python_bot {
                Some(_) => python::check_file(&command[0], &words, folder),
                None => process::check_bot(&words, folder),
            }
            .map_err(RunError::Command)?;
            if let Some(file) = python::pipecat_file(command, folder) {
                let file = file.display();
                log::warn!(
                    "{file} is for Pipecat's own runner and starts a web server in each call: run `edge-runner [OPTIONS] {file}`, \
                     without `--` and `python`"
                );
            }
            let warm = (config.warm > 0).then(|| process::WarmSpec {
                command: python::warm_command(config, command, folder),
                package: python::package(config),
                waiting_max: config.warm,
                file: config.python_bot.as_ref().map(|_| {
                    let file = folder.unwrap_or(Path::new("")).join(&command[0]);
                    // As the process names it.
                    std::fs::canonicalize(&file).unwrap_or(file)
                }),
            });
            let spec = process::ProgramSpec {
                command: words,
                withheld: config.withheld.clone(),
                audio: config.bot_audio,
                input: python::package(config),
                working_dir: config.bot_folder.clone(),
                sandbox,
                memory_kib: config.bot_memory_mib.map(|mib| mib * 1024),
                environment: python::environment(config),
            };
            Ok(process::bot(spec, warm, name))
        }
        None => Ok((bot, None)),
    }
}
