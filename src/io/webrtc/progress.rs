//! The progress of a call's session, for the task that talks to the call's provider.

use tokio::sync::mpsc;

use crate::io::sessions::Sessions;
use crate::io::tasks::Slot;
use crate::proto::webrtc::session as webrtc_session;

/// An event of a call's session.
pub enum CallEvent {
    /// ICE and DTLS are connected.
    Secured,
    /// The caller's first audio has arrived.
    Audible,
    /// The session has ended. The slot delays shutdown until the event is dropped.
    Ended(Option<Slot>),
}

/// The channel for a session's progress.
pub struct ProgressSender(pub mpsc::Sender<CallEvent>);

impl ProgressSender {
    pub fn handle_progress(&self, progress: webrtc_session::CallProgress, sessions: &Sessions) {
        let _ = self.0.try_send(match progress {
            webrtc_session::CallProgress::Secured => CallEvent::Secured,
            webrtc_session::CallProgress::Audible => CallEvent::Audible,
            // The call is ended at the provider after the session, and shutdown waits for that.
            webrtc_session::CallProgress::Ended => CallEvent::Ended(sessions.hang_ups().try_acquire()),
        });
    }
}
