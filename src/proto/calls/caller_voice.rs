//! When the callers of a call last spoke, by the energy of their sound.
//!
//! In: frames of the callers, and whether the bot speaks. Out: when the last sound of speech of
//! any of them arrived, from which the latency of an answer counts where the bot does not measure
//! it itself.

use std::sync::Arc;
use std::time::Instant;

use crate::audio::last_speech::LastSpeech;
use crate::session::CallerFrame;

/// Participants of a room whose speech is detected, where each is received separately.
const VOICES_MAX: usize = 8;

/// The voices of a call.
#[derive(Default)]
pub struct CallerVoice {
    /// Each with the identity of its participant.
    voices: Vec<(Option<Arc<str>>, LastSpeech)>,
    is_bot_audible: bool,
}

impl CallerVoice {
    /// The bot begins to speak, or ends.
    pub fn set_bot_audible(&mut self, is_bot_audible: bool) {
        self.is_bot_audible = is_bot_audible;
    }

    /// Sound of a caller.
    pub fn handle_audio(&mut self, frame: &CallerFrame<'_>, now: Instant) {
        let known = self
            .voices
            .iter()
            .position(|(identity, _)| identity.as_ref() == frame.identity);
        let at = match known {
            Some(at) => at,
            None if self.voices.len() == VOICES_MAX => return,
            None => {
                let voice = LastSpeech::new(frame.rate_hz);
                self.voices.push((frame.identity.cloned(), voice));
                self.voices.len() - 1
            }
        };
        let voice = &mut self.voices[at].1;
        if voice.rate_hz() != frame.rate_hz {
            *voice = LastSpeech::new(frame.rate_hz);
        }
        voice.handle_audio(frame.pcm, self.is_bot_audible, now);
    }

    /// Returns when the last sound of speech arrived.
    pub fn spoken_until(&self) -> Option<Instant> {
        self.voices.iter().filter_map(|(_, voice)| voice.at()).max()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Each participant of a room has a detector, up to a limit; the last speech of any counts.
    #[test]
    fn the_last_speech_of_any_caller_counts() {
        let (mut voice, start) = (CallerVoice::default(), Instant::now());
        let names: Vec<Arc<str>> = (0..=VOICES_MAX).map(|nth| nth.to_string().into()).collect();
        let mut now = start;
        let mut hear = |voice: &mut CallerVoice, who: usize, loud: f64| {
            now += Duration::from_millis(200);
            let pcm: Vec<i16> = (0..3_200)
                .map(|at| (loud * (f64::from(at) * 0.7).sin()) as i16)
                .collect();
            let frame = CallerFrame {
                pcm: &pcm,
                rate_hz: 16_000,
                identity: Some(&names[who]),
            };
            voice.handle_audio(&frame, now);
            now
        };
        for who in 0..names.len() {
            hear(&mut voice, who, 30.0);
        }
        assert_eq!(voice.spoken_until(), None);
        let first = hear(&mut voice, 1, 8_000.0);
        assert_eq!(voice.spoken_until(), Some(first));
        hear(&mut voice, 2, 30.0);
        hear(&mut voice, VOICES_MAX, 8_000.0);
        assert_eq!(voice.spoken_until(), Some(first), "the room has too many");
        voice.set_bot_audible(true);
        hear(&mut voice, 3, 8_000.0);
        assert_eq!(voice.spoken_until(), Some(first), "it may be an echo");
        let last = hear(&mut voice, 3, 8_000.0);
        assert_eq!(voice.spoken_until(), Some(last));
    }
}
