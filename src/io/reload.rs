//! Reads the settings again on SIGHUP, and changes them for the settings page.
//!
//! In: SIGHUP, and requests of the page, which `settings` answers. Out: the settings that can
//! change live, in the parts of the runner that read them, and log lines. `proto::reload` decides
//! what is applied.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::lock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::bot::Shutdown;
use crate::config::Config;
use crate::io::http::live_access::LiveAccess;
use crate::io::settings::{PageSource, SettingsRequests};
use crate::io::tasks;
use crate::logging;
use crate::proto::reload::Reload;

/// The settings as a start would have them now.
pub trait SettingsSource: PageSource + Send + Sync {
    /// Returns them and their new warnings.
    ///
    /// # Errors
    /// Why a start would fail.
    fn read(&self) -> Result<(Config, Vec<String>), String>;
}

/// The settings that change while the runner runs.
pub struct SettingsWatcher {
    hangups: Signal,
    pub(super) source: Arc<dyn SettingsSource>,
    pub(super) running: Config,
    drain: Arc<Mutex<Duration>>,
    pub(super) restart: Arc<Notify>,
}

impl SettingsWatcher {
    /// Starts to listen for SIGHUP.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn listen(running: &Config, source: Arc<dyn SettingsSource>) -> io::Result<SettingsWatcher> {
        Ok(SettingsWatcher {
            hangups: signal(SignalKind::hangup())?,
            source,
            running: running.clone(),
            drain: Arc::new(Mutex::new(running.drain)),
            restart: Arc::default(),
        })
    }

    /// Returns the time that live sessions have to end.
    pub fn drain(&self) -> Arc<Mutex<Duration>> {
        self.drain.clone()
    }

    /// Returns what is notified when the runner is to restart.
    pub fn restart(&self) -> Arc<Notify> {
        self.restart.clone()
    }

    /// Reads the settings again at each SIGHUP, and answers requests of the page, until shutdown.
    pub async fn run(mut self, access: Arc<LiveAccess>, mut page: SettingsRequests, mut shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.wait() => return,
                received = self.hangups.recv() => {
                    if received.is_none() {
                        return;
                    }
                    self.reload(&access).await;
                }
                request = page.next() => self.answer(request, &access).await,
            }
        }
    }

    async fn reload(&mut self, access: &LiveAccess) {
        let source = self.source.clone();
        let (next, warnings) = match tasks::blocking(move || source.read()).await {
            Ok(Ok(next)) => next,
            Ok(Err(error)) => return log::error!("SIGHUP: the settings stay as they were: {error}"),
            Err(panic) => return log::error!("reading the settings: {panic}"),
        };
        for warning in warnings {
            log::warn!("SIGHUP: {warning}");
        }
        self.apply(&next, access, "SIGHUP");
    }

    /// Applies what can change live, and returns the settings that wait for a restart.
    pub(super) fn apply(&mut self, next: &Config, access: &LiveAccess, cause: &str) -> Vec<String> {
        let reload = Reload::new(&self.running, next, logging::can_set_verbosity());
        access.set(&reload.running);
        *lock(&self.drain) = reload.running.drain;
        logging::set_verbosity(reload.running.verbosity);
        let lines = reload.lines();
        if lines.is_empty() {
            log::info!("{cause}: no setting has changed");
        }
        for line in lines {
            log::info!("{cause}: settings {line}");
        }
        self.running = reload.running;
        reload.waiting
    }
}
