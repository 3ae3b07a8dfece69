//! The client of a service for wake words: Wyoming's `wake`.
//!
//! In: events of the service, the microphone's PCM with its position, and `now`. Out: the bytes to
//! send, and where in the audio a wake word ended. First the service is asked what it offers, so
//! that a server of another kind, a wake word that it does not have, and a version that may never
//! detect one are named. Audio then goes to it in chunks of 64 ms, as the satellites of Home
//! Assistant send it. Source: the library `wyoming` 1.10.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::assistant::cascade::RECOGNIZER_RATE_HZ;
use crate::assistant::services::failure::ServiceFailure;
use crate::assistant::services::wyoming::{WyomingEvent, write_detect, write_event, write_timed_audio};
use crate::audio::rate_converter::RateConverter;

/// Samples of a chunk.
const CHUNK_SAMPLES: usize = 1_024;
/// Time that the service has to say what it offers.
const INFO_WITHIN: Duration = Duration::from_secs(5);
/// Bytes that the service has not taken: 2 s of audio.
const UNSENT_BYTES_MAX: usize = 64 * 1024;
/// Chunks whose position a detection can name: 8 s.
const POSITIONS_MAX: usize = 128;
/// Wake words of a service that the log names.
const NAMED_MAX: usize = 8;
/// Characters of a wake word.
const NAME_CHARS_MAX: usize = 40;

/// Why a service detects no wake word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeFailure {
    Service(ServiceFailure),
    /// It is a Wyoming server without wake words.
    OtherKind,
    /// It has none of the wake words that are asked for, but these.
    UnknownWords {
        asked: Vec<String>,
        offered: Vec<String>,
    },
    /// It does not read the audio.
    Stuck,
}

impl fmt::Display for WakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WakeFailure::Service(failure @ (ServiceFailure::NoRoute(_) | ServiceFailure::TimedOut(_))) => {
                write!(f, "{failure}; start the service, or correct --local-wake")
            }
            WakeFailure::Service(failure) => write!(f, "{failure}"),
            WakeFailure::OtherKind => f.write_str("it is a Wyoming server of another kind; check the port"),
            WakeFailure::UnknownWords { asked, offered } => {
                write!(f, "it has no {}, but {}", asked.join(" or "), words(offered))
            }
            WakeFailure::Stuck => f.write_str("it does not read the audio"),
        }
    }
}

/// Returns the names of wake words, for a sentence.
fn words(names: &[String]) -> String {
    match names {
        [] => "no wake word at all".to_owned(),
        names => names.join(", "),
    }
}

/// What an event of the service means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeEvent {
    /// The service listens.
    Listening {
        /// Its wake words, or those of them that are asked for.
        words: String,
        /// What may be wrong with it.
        warning: Option<String>,
    },
    /// A wake word ended at this position of the audio.
    Detected(Duration),
}

/// One connection to a service.
pub struct WakeClient {
    names: Vec<String>,
    converter: RateConverter,
    /// Samples of the next chunk.
    chunk: Vec<i16>,
    /// Positions at the ends of the chunks that were sent, in milliseconds, the newest last.
    positions: VecDeque<u64>,
    /// Until when the service is to say what it offers; `None` once it has.
    info_until: Option<Instant>,
}

impl WakeClient {
    /// Begins a connection: `unsent` gets its first bytes. `names` are the wake words to ask for;
    /// without one, those that the service has loaded. `rate_hz` is that of the microphone.
    pub fn begin(names: &[String], rate_hz: u32, unsent: &mut Vec<u8>, now: Instant) -> WakeClient {
        write_event(unsent, "describe", &Value::Object(serde_json::Map::new()), &[]);
        WakeClient {
            names: names.to_vec(),
            converter: RateConverter::new(rate_hz, RECOGNIZER_RATE_HZ),
            chunk: Vec::new(),
            positions: VecDeque::new(),
            info_until: Some(now + INFO_WITHIN),
        }
    }

    /// Returns when the service has not said in time what it offers.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.info_until
    }

    /// Handles audio of the microphone that ends at a position of its stream.
    ///
    /// # Errors
    /// [`WakeFailure::Stuck`] if too much is unsent.
    pub fn handle_audio(&mut self, pcm: &[i16], end: Duration, unsent: &mut Vec<u8>) -> Result<(), WakeFailure> {
        if self.info_until.is_some() {
            return Ok(());
        }
        if unsent.len() > UNSENT_BYTES_MAX {
            return Err(WakeFailure::Stuck);
        }
        self.chunk.extend_from_slice(self.converter.convert(pcm));
        // Zero counts as no timestamp.
        let position_ms = (end.as_millis() as u64).max(1);
        let whole = self.chunk.len() - self.chunk.len() % CHUNK_SAMPLES;
        for chunk in self.chunk[..whole].chunks_exact(CHUNK_SAMPLES) {
            write_timed_audio(unsent, chunk, position_ms);
            if self.positions.len() == POSITIONS_MAX {
                self.positions.pop_front();
            }
            self.positions.push_back(position_ms);
        }
        self.chunk.drain(..whole);
        Ok(())
    }

    /// Handles an event of the service.
    ///
    /// # Errors
    /// [`WakeFailure`] if it cannot detect what is asked for.
    pub fn handle_event(
        &mut self,
        event: &WyomingEvent,
        unsent: &mut Vec<u8>,
    ) -> Result<Option<WakeEvent>, WakeFailure> {
        match &*event.kind {
            "info" if self.info_until.is_some() => {
                let listening = self.listen(event)?;
                self.info_until = None;
                write_detect(unsent, &self.names);
                Ok(Some(listening))
            }
            // The time of a detection is that of its chunk where the service repeats it, else its
            // own.
            "detection" if self.info_until.is_none() => {
                let named = event
                    .number("timestamp")
                    .filter(|position| self.positions.contains(position));
                let position = named.or(self.positions.back().copied());
                Ok(position.map(|position| WakeEvent::Detected(Duration::from_millis(position))))
            }
            // It has stopped to listen.
            "not-detected" if self.info_until.is_none() => {
                write_detect(unsent, &self.names);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Judges what the service offers.
    fn listen(&mut self, info: &WyomingEvent) -> Result<WakeEvent, WakeFailure> {
        let programs = info.data.get("wake").and_then(Value::as_array);
        let programs = programs
            .filter(|programs| !programs.is_empty())
            .ok_or(WakeFailure::OtherKind)?;
        let models = programs
            .iter()
            .filter_map(|program| program.get("models")?.as_array())
            .flatten();
        let offered: Vec<&str> = models.filter_map(|model| model.get("name")?.as_str()).collect();
        let offer_of = |name: &String| offered.iter().find(|offered| is_same_word(offered, name)).copied();
        let unknown: Vec<String> = self
            .names
            .iter()
            .filter(|name| offer_of(name).is_none())
            .cloned()
            .collect();
        let known: Vec<&str> = match self.names.is_empty() {
            true => offered.clone(),
            false => self.names.iter().filter_map(offer_of).collect(),
        };
        if known.is_empty() && !self.names.is_empty() {
            return Err(WakeFailure::UnknownWords {
                asked: unknown,
                offered: shown(&offered),
            });
        }
        let mut warnings = Vec::new();
        if !unknown.is_empty() {
            warnings.push(format!(
                "it has no {}, but {}",
                unknown.join(" or "),
                words(&shown(&offered))
            ));
        }
        // Its successors say their version.
        let is_old = |program: &Value| {
            program.get("name").and_then(Value::as_str) == Some("openwakeword")
                && program.get("version").is_none_or(Value::is_null)
        };
        if programs.iter().any(is_old) {
            warnings.push(
                "it is openWakeWord before version 2, which with numpy 2 answers and never detects a word: give it \
                 `numpy<2`, or use microWakeWord"
                    .to_owned(),
            );
            if self.names.is_empty() {
                warnings.push("it may have loaded no word: name one with --local-wake-words".to_owned());
            }
        }
        let listening = WakeEvent::Listening {
            words: words(&shown(&known)),
            warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
        };
        // In its own spelling: another one, or a word that it does not have, can end the
        // connection.
        if !self.names.is_empty() {
            self.names = known.into_iter().map(str::to_owned).collect();
        }
        Ok(listening)
    }
}

/// Compares names of wake words. openWakeWord's have a version at the end, which may be left out.
fn is_same_word(offered: &str, asked: &str) -> bool {
    let plain = |name: &str| name.trim().to_lowercase().replace(['_', '-'], " ");
    let (offered, asked) = (plain(offered), plain(asked));
    let unversioned = offered
        .rsplit_once(" v")
        .filter(|(_, version)| !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    offered == asked || unversioned.is_some_and(|(name, _)| name == asked)
}

/// Returns names of a service as the log shows them.
fn shown(names: &[&str]) -> Vec<String> {
    let mut shown: Vec<String> = names
        .iter()
        .take(NAMED_MAX)
        .map(|name| {
            let letters = name.chars().filter(|letter| !letter.is_control());
            letters.take(NAME_CHARS_MAX).collect()
        })
        .collect();
    if names.len() > NAMED_MAX {
        shown.push(format!("{} more", names.len() - NAMED_MAX));
    }
    shown
}

#[cfg(test)]
mod tests;
