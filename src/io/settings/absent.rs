//! Replaces the settings page in a build without it: nothing is asked.

use std::future::pending;

use crate::io::http::live_access::LiveAccess;
use crate::io::module::Module;
use crate::io::reload::SettingsWatcher;
use crate::io::running::RunningModules;

/// No row of `MODULES`.
pub const MODULE: Option<&Module> = None;

/// The settings of a start, as the page needs them: none.
pub trait PageSource {}

impl<Source> PageSource for Source {}

/// A request of the page: there is none.
pub enum SettingsRequest {}

/// The requests of the page.
pub struct SettingsRequests;

impl SettingsRequests {
    pub fn of(_: &RunningModules) -> SettingsRequests {
        SettingsRequests
    }

    /// Never ends.
    pub async fn next(&mut self) -> SettingsRequest {
        pending().await
    }
}

impl SettingsWatcher {
    /// Never called.
    pub(super) async fn answer(&mut self, request: SettingsRequest, _: &LiveAccess) {
        match request {}
    }
}
