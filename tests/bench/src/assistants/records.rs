//! When the scripted services got and sent what is measured. Services and callers share a clock.

use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What happened in a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The recogniser was opened for an utterance.
    Utterance,
    /// A marked part of the caller's audio arrived.
    Mark,
    /// The service told that the caller speaks.
    SpeechStarted,
    /// The recogniser told the text of an utterance.
    Transcript,
    /// The model was asked.
    ChatAsked,
    /// The model sent the end of its first sentence.
    Sentence,
    /// The voice was asked for the first sentence.
    VoiceAsked,
    /// The first audio of an answer was sent.
    FirstAudio,
}

/// A moment of one connection to the speech service, or of one utterance.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub stream: usize,
    pub moment: Moment,
    pub at: Instant,
}

/// Collects records of all services.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<Record>>>);

impl Recorder {
    /// Records a moment that is now.
    pub fn add(&self, stream: usize, moment: Moment) {
        let at = Instant::now();
        self.records().push(Record { stream, moment, at });
    }

    /// Returns the records so far, and forgets them.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut *self.records())
    }

    fn records(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.0.lock().expect("no thread fails while it adds a record")
    }
}
