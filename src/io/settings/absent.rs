//! Replaces the settings page in a build without it: nothing is asked.

use std::future::pending;

use crate::io::running::RunningModules;

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
