//! Reads the settings again on SIGHUP.
//!
//! In: SIGHUP. Out: the settings that can change live, in the parts of the runner that read them,
//! and log lines. `proto::reload` decides what is applied.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::lock;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::bot::Shutdown;
use crate::config::Config;
use crate::io::http::live_access::LiveAccess;
use crate::io::tasks;
use crate::logging;
use crate::proto::reload::Reload;

/// The settings as a start would have them now, and their new warnings; or why a start would fail.
pub type ReadSettings = Arc<dyn Fn() -> Result<(Config, Vec<String>), String> + Send + Sync>;

/// The settings that change while the runner runs.
pub struct SettingsWatcher {
    hangups: Signal,
    read: ReadSettings,
    running: Config,
    drain: Arc<Mutex<Duration>>,
}

impl SettingsWatcher {
    /// Starts to listen for SIGHUP.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn listen(running: &Config, read: ReadSettings) -> io::Result<SettingsWatcher> {
        Ok(SettingsWatcher {
            hangups: signal(SignalKind::hangup())?,
            read,
            running: running.clone(),
            drain: Arc::new(Mutex::new(running.drain)),
        })
    }

    /// Returns the time that live sessions have to end.
    pub fn drain(&self) -> Arc<Mutex<Duration>> {
        self.drain.clone()
    }

    /// Reads the settings again at each SIGHUP, until shutdown.
    pub async fn run(mut self, access: Arc<LiveAccess>, mut shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.wait() => return,
                received = self.hangups.recv() => {
                    if received.is_none() {
                        return;
                    }
                    self.reload(&access).await;
                }
            }
        }
    }

    async fn reload(&mut self, access: &LiveAccess) {
        let read = self.read.clone();
        let (next, warnings) = match tasks::blocking(move || read()).await {
            Ok(Ok(next)) => next,
            Ok(Err(error)) => return log::error!("SIGHUP: the settings stay as they were: {error}"),
            Err(panic) => return log::error!("reading the settings: {panic}"),
        };
        for warning in warnings {
            log::warn!("SIGHUP: {warning}");
        }
        let reload = Reload::new(&self.running, &next, logging::can_set_verbosity());
        access.set(&reload.running);
        *lock(&self.drain) = reload.running.drain;
        logging::set_verbosity(reload.running.verbosity);
        for line in reload.lines() {
            log::info!("SIGHUP: settings {line}");
        }
        self.running = reload.running;
    }
}
