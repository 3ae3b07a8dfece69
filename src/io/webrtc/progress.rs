//! How far the session of a call has come, for the task that talks to the call's provider.

use tokio::sync::mpsc;

use crate::io::sessions::Sessions;
use crate::io::tasks::Slot;
use crate::proto::webrtc::session as webrtc_session;

/// What becomes of the session of a call.
pub enum CallEvent {
    /// ICE and DTLS are up.
    Secured,
    /// The caller's first audio has come.
    Heard,
    /// It is over, and holds the end of the runner back until what is received here is dropped.
    Ended(Option<Slot>),
}

/// Where a session tells its progress.
pub struct ProgressSender(pub mpsc::Sender<CallEvent>);

impl ProgressSender {
    pub fn handle_progress(&self, progress: webrtc_session::CallProgress, sessions: &Sessions) {
        let _ = self.0.try_send(match progress {
            webrtc_session::CallProgress::Secured => CallEvent::Secured,
            webrtc_session::CallProgress::Audible => CallEvent::Heard,
            // The end of the call is asked for when the session is gone, and the end of the runner
            // waits for it.
            webrtc_session::CallProgress::Ended => CallEvent::Ended(sessions.hang_ups().try_acquire()),
        });
    }
}
