//! The caller's audio on a socket, converted from the wire's rate to the bot's.
//!
//! In: PCM (`i16` mono) at the rate of the wire, which a client may change, and the rate that the
//! bot asks for. Out: frames of at most 20 ms at the bot's rate. Before the bot has set its rate,
//! speech is buffered; the oldest is dropped at the cap.

use std::time::Duration;

use crate::audio::resample::Resampler;
use crate::limits::{EARLY_AUDIO, RATE_CHANGES_MAX};

/// The hearing half of a socket's audio.
#[derive(Default)]
pub struct AudioInput {
    wire_hz: u32,
    /// What the bot asks for; nothing before it has.
    rate_hz: Option<u32>,
    resampler: Option<Resampler>,
    rate_changes: u32,
    /// Speech at the wire's rate that came before the bot's rate was known.
    early: Vec<i16>,
    /// Speech at the bot's rate, of which the first `taken` samples were handed out.
    pcm: Vec<i16>,
    taken: usize,
    heard: Duration,
}

impl AudioInput {
    /// Takes the rate that the bot asks for, in Hz.
    pub fn set_rate(&mut self, rate_hz: u32) {
        if self.rate_hz == Some(rate_hz) {
            return;
        }
        self.rate_hz = Some(rate_hz);
        self.resampler = resampler(self.wire_hz, rate_hz);
        let early = std::mem::take(&mut self.early);
        self.convert(&early);
    }

    /// Takes speech at the wire's rate; tells whether the wire may have that rate, after so many
    /// others.
    pub fn hear(&mut self, pcm: &[i16], wire_hz: u32) -> bool {
        if self.wire_hz != wire_hz {
            if self.wire_hz != 0 {
                self.rate_changes += 1;
                // What was kept at the old rate has no listener yet, and would be heard at the
                // wrong speed.
                self.early.clear();
            }
            if self.rate_changes > RATE_CHANGES_MAX {
                return false;
            }
            self.wire_hz = wire_hz;
            self.resampler = self.rate_hz.and_then(|rate_hz| resampler(wire_hz, rate_hz));
        }
        self.heard += Duration::from_secs(pcm.len() as u64) / wire_hz;
        if self.rate_hz.is_some() {
            self.convert(pcm);
        } else {
            let kept_max = EARLY_AUDIO.as_secs() as usize * wire_hz as usize;
            self.early.extend_from_slice(pcm);
            let surplus = self.early.len().saturating_sub(kept_max);
            self.early.drain(..surplus);
        }
        true
    }

    fn convert(&mut self, pcm: &[i16]) {
        match &mut self.resampler {
            Some(resampler) => resampler.process(pcm, &mut self.pcm),
            None => self.pcm.extend_from_slice(pcm),
        }
    }

    /// Makes the next frame ready, if there is one; [`AudioInput::take_frame`] hands it out.
    pub fn poll_frame(&mut self) -> bool {
        if self.taken == self.pcm.len() {
            self.pcm.clear();
            self.taken = 0;
        }
        self.taken < self.pcm.len()
    }

    /// Hands out the next frame, and its rate in Hz.
    pub fn take_frame(&mut self) -> (&[i16], u32) {
        let rate_hz = self.rate_hz.unwrap_or_default();
        let start = self.taken;
        self.taken = self.pcm.len().min(start + rate_hz as usize / 50);
        (&self.pcm[start..self.taken], rate_hz)
    }

    /// Returns how much the caller sent.
    pub fn heard(&self) -> Duration {
        self.heard
    }
}

/// Makes the filter between two rates; none where nothing has to change.
fn resampler(from_hz: u32, to_hz: u32) -> Option<Resampler> {
    (from_hz != 0 && from_hz != to_hz).then(|| Resampler::new(from_hz, to_hz))
}
