//! The changes of the settings page: read, written and applied by the watcher of the settings.
//!
//! In: requests of the page, one after the other. Out: answers, and the changed file. A change that
//! a start would not take is not written.

use std::sync::Arc;

use edge_runner_http::common::random;

use super::file::SettingsStore;
use super::{SettingsRequest, TakenChange, open};
use crate::config::{Config, Secret};
use crate::io::http::live_access::LiveAccess;
use crate::io::reload::{SettingsSource, SettingsWatcher};
use crate::io::tasks;
use crate::proto::setup::change::{ChangeError, FieldState, FileChanges, SettingsChange};

/// The settings of a start, as the page needs them.
pub trait PageSource {
    /// Returns the settings that the page shows.
    ///
    /// # Errors
    /// Why a start would fail.
    fn fields(&self) -> Result<Vec<FieldState>, String>;

    /// Returns a text of the file of settings with changes.
    ///
    /// # Errors
    /// Why the text cannot be changed.
    fn edited(&self, text: &str, changes: &FileChanges) -> Result<String, String>;

    /// Returns the settings that a start would have with another text of the file.
    ///
    /// # Errors
    /// Why it would fail.
    fn check(&self, text: &str) -> Result<Config, String>;
}

impl SettingsWatcher {
    pub(in crate::io) async fn answer(&mut self, request: SettingsRequest, access: &LiveAccess) {
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
