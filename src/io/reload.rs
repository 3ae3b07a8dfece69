//! Reads the settings again on SIGHUP, and changes them for the settings page.
//!
//! In: SIGHUP, and requests of the page. Out: the settings that can change live, in the parts of
//! the runner that read them, and log lines. `proto::reload` decides what is applied.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::lock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::bot::Shutdown;
use crate::config::Config;
use crate::io::http::live_access::LiveAccess;
use crate::io::settings::{SettingsRequest, SettingsRequests};
use crate::io::tasks;
use crate::logging;
use crate::proto::reload::Reload;
#[cfg(feature = "setup")]
use crate::proto::setup::change::{FieldState, FileChanges};

/// The settings as a start would have them now.
pub trait SettingsSource: Send + Sync {
    /// Returns them and their new warnings.
    ///
    /// # Errors
    /// Why a start would fail.
    fn read(&self) -> Result<(Config, Vec<String>), String>;

    /// Returns those of the settings page.
    ///
    /// # Errors
    /// Why a start would fail.
    #[cfg(feature = "setup")]
    fn fields(&self) -> Result<Vec<FieldState>, String>;

    /// Returns a text of the file of settings with changes.
    ///
    /// # Errors
    /// Why the text cannot be changed.
    #[cfg(feature = "setup")]
    fn edited(&self, text: &str, changes: &FileChanges) -> Result<String, String>;

    /// Returns the settings that a start would have with another text of the file.
    ///
    /// # Errors
    /// Why it would fail.
    #[cfg(feature = "setup")]
    fn check(&self, text: &str) -> Result<Config, String>;
}

/// The settings that change while the runner runs.
pub struct SettingsWatcher {
    hangups: Signal,
    source: Arc<dyn SettingsSource>,
    running: Config,
    drain: Arc<Mutex<Duration>>,
    restart: Arc<Notify>,
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
    fn apply(&mut self, next: &Config, access: &LiveAccess, cause: &str) -> Vec<String> {
        let reload = Reload::new(&self.running, next, logging::can_set_verbosity());
        access.set(&reload.running);
        *lock(&self.drain) = reload.running.drain;
        logging::set_verbosity(reload.running.verbosity);
        for line in reload.lines() {
            log::info!("{cause}: settings {line}");
        }
        self.running = reload.running;
        reload.waiting
    }
}

/// Answers the settings page.
#[cfg(feature = "setup")]
mod page {
    use edge_runner_http::common::random;

    use super::{Arc, Config, FieldState, LiveAccess, SettingsRequest, SettingsSource, SettingsWatcher, tasks};
    use crate::config::Secret;
    use crate::io::settings::file::SettingsStore;
    use crate::io::settings::{TakenChange, open};
    use crate::proto::setup::change::{ChangeError, SettingsChange};

    impl SettingsWatcher {
        pub(super) async fn answer(&mut self, request: SettingsRequest, access: &LiveAccess) {
            // A client that has left needs no answer.
            match request {
                SettingsRequest::Read(answer) => {
                    let _ = answer.send(self.fields().await);
                }
                SettingsRequest::Change(change, answer) => {
                    let taken = self.change(change, access).await;
                    let restarts = taken.as_ref().is_ok_and(|taken| taken.restarts);
                    let _ = answer.send(taken);
                    if restarts {
                        self.restart.notify_one();
                    }
                }
            }
        }

        async fn fields(&self) -> Result<Vec<FieldState>, String> {
            let source = self.source.clone();
            let read = tasks::blocking(move || source.fields()).await;
            read.unwrap_or_else(|panic| Err(panic.to_string()))
        }

        async fn change(&mut self, change: SettingsChange, access: &LiveAccess) -> Result<TakenChange, ChangeError> {
            let (source, file) = (self.source.clone(), self.running.settings_page.clone());
            let restart = change.restart;
            let work = move || {
                let store = open(&file.unwrap_or_default()).map_err(|error| ChangeError::File(error.to_string()))?;
                let (next, key) = write(&store, &source, &change)?;
                Ok((store, next, key))
            };
            let written = tasks::blocking(work).await;
            let written = written.unwrap_or_else(|panic| Err(ChangeError::File(panic.to_string())));
            let (store, next, key) = written.inspect_err(|error| {
                if let ChangeError::File(why) = error {
                    log::error!("settings page: {why}");
                }
            })?;
            let waiting = self.apply(&next, access, "settings page");
            if waiting.is_empty()
                && let Err(error) = store.apply()
            {
                log::warn!("settings page: {}: {error}", store.path().display());
            }
            Ok(TakenChange {
                key,
                restarts: restart && !waiting.is_empty(),
                waiting,
            })
        }
    }

    /// Writes a change to the file, if a start would take it. Blocks.
    fn write(
        store: &SettingsStore,
        source: &Arc<dyn SettingsSource>,
        change: &SettingsChange,
    ) -> Result<(Config, Option<Secret>), ChangeError> {
        let of_file = |error: std::io::Error| {
            let path = store.path().display();
            ChangeError::File(format!(
                "{path} cannot be written: {error}; the runner's user must be able to write it and to make files beside it"
            ))
        };
        let states = source
            .fields()
            .map_err(|text| ChangeError::Runner { key: None, text })?;
        let (changes, key) = change.resolve(&states, random())?;
        let text = store.read().map_err(of_file)?;
        let rejected = |text| ChangeError::of_start(text, &changes);
        let text = source.edited(&text, &changes).map_err(rejected)?;
        let next = source.check(&text).map_err(rejected)?;
        store.change(&text).map_err(of_file)?;
        Ok((next, key))
    }
}

#[cfg(not(feature = "setup"))]
impl SettingsWatcher {
    /// There is no page.
    async fn answer(&mut self, request: SettingsRequest, _: &LiveAccess) {
        match request {}
    }
}
