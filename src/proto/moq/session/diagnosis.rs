//! How far a session came, for the line that says why it failed.

use super::{MoqSession, MoqSessionMode};
use crate::event::LeaveReason;
use crate::limits::CALL_DEAF_AFTER;

/// The steps of a session, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoqProgress {
    /// No connection.
    #[default]
    Nothing,
    /// The session with the relay is up.
    Connected,
    /// The caller has announced its broadcast.
    Announced,
    /// The caller's catalog was read.
    Catalog,
    /// The caller's audio arrives.
    Audio,
}

impl MoqProgress {
    /// Records a step, unless a later one was taken.
    pub fn advance(&mut self, step: MoqProgress) {
        *self = step.max(*self);
    }
}

impl MoqSession {
    /// Says once why nothing of the caller is heard, where its catalog has not come. One without
    /// audio is that of a caller who only listens.
    pub(super) fn report_deaf(&mut self) {
        self.deaf_at = None;
        if let Some(text) = self.diagnosis() {
            log::warn!("the bot is deaf: {text} in {} s", CALL_DEAF_AFTER.as_secs());
        }
    }

    /// Logs why the session did not come to be, or why its bot received nothing.
    pub(super) fn log_progress(&self, reason: LeaveReason) {
        let is_unexplained = matches!(
            reason,
            LeaveReason::NeverConnected | LeaveReason::Vanished | LeaveReason::Failed | LeaveReason::Left
        );
        if let Some(text) = self.diagnosis().filter(|_| is_unexplained) {
            log::warn!("{reason}: {text}");
        }
    }

    /// Returns how far the session came, unless audio has arrived. Namespaces are secret on a relay
    /// and are not named.
    pub(super) fn diagnosis(&self) -> Option<String> {
        let (error, client_id) = (self.redial.last_error(), &self.setup.client_id);
        Some(match (self.progress, self.setup.mode) {
            (MoqProgress::Nothing, MoqSessionMode::Serve) => match &self.last_attempt {
                Some(note) => format!("no caller has announced `{client_id}`; the last connection: {note}"),
                None => format!(
                    "no caller has announced `{client_id}`, and no connection arrived; is the UDP port reachable, and \
                     the certificate accepted?"
                ),
            },
            (MoqProgress::Nothing, MoqSessionMode::Dial) => match error {
                Some(error) => format!("the relay was not reached: {error}"),
                None => "the relay was not reached".to_owned(),
            },
            (MoqProgress::Connected, _) => match error {
                Some(error) => format!("no caller has announced `{client_id}`, and the relay was lost: {error}"),
                None => format!("the relay is connected, but no caller has announced `{client_id}` there"),
            },
            (MoqProgress::Announced, _) => "the caller was announced, but its catalog has not arrived".to_owned(),
            (MoqProgress::Catalog, _) => match &self.unsupported_audio() {
                Some(names) => format!("the caller's audio is not supported: {names}"),
                None => return None,
            },
            (MoqProgress::Audio, _) => return None,
        })
    }
}
