//! The tap of a call: its sound, for the recording and for those that listen in.
//!
//! In: frames of both directions, interruptions and keys, where they pass the session. Each is
//! copied once for all that take it, and not at all if no one does. No consumer makes the session
//! wait.

use std::sync::Arc;

use super::listening::CallListeners;
use super::sound::CallRecording;
use crate::io::observer::SoundNotice;
use crate::io::tasks;
use crate::proto::calls::sound::TappedSound;
use crate::proto::session::CallerFrame;

/// What takes the sound of one call. Dropping it ends the recording and the
/// listeners.
pub struct CallTap {
    /// `None` for a call whose sound is not recorded.
    pub recording: Option<CallRecording>,
    /// `None` for a call that may not be listened to.
    pub listeners: Option<Arc<CallListeners>>,
}

impl CallTap {
    pub fn caller_sound(&self, frame: &CallerFrame<'_>) {
        self.pass(|| TappedSound::Caller {
            pcm: frame.pcm.into(),
            rate_hz: frame.rate_hz,
            identity: frame.identity.cloned(),
        });
    }

    pub fn bot_sound(&self, pcm: &[i16], rate_hz: u32) {
        self.pass(|| TappedSound::Bot {
            pcm: pcm.into(),
            rate_hz,
        });
    }

    pub fn interrupt(&self) {
        self.pass(|| TappedSound::Interruption);
    }

    pub fn press_key(&self) {
        self.pass(|| TappedSound::Key);
    }

    /// Ends the recording, and tells the listeners: the call is over.
    pub fn end(&self) {
        if let Some(recording) = &self.recording {
            recording.end();
        }
        if let Some(listeners) = &self.listeners {
            listeners.close();
        }
    }

    pub fn notice(&self) -> SoundNotice {
        SoundNotice {
            is_recorded: self.recording.is_some(),
            allows_listening: self.listeners.is_some(),
        }
    }

    fn pass(&self, make: impl FnOnce() -> TappedSound) {
        let recording = self.recording.as_ref().filter(|recording| !recording.is_over());
        let listeners = self.listeners.as_ref().filter(|listeners| !listeners.is_empty());
        if recording.is_none() && listeners.is_none() {
            return;
        }
        let (tapped, now) = (make(), tasks::now());
        if let Some(listeners) = listeners {
            listeners.send(&tapped, now);
        }
        if let Some(recording) = recording {
            recording.add(tapped, now);
        }
    }
}

impl Drop for CallTap {
    fn drop(&mut self) {
        self.end();
    }
}
