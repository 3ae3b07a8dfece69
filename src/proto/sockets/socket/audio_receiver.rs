//! The caller's audio on a WebSocket, converted from the rate of the wire to that of the bot.
//!
//! In: PCM (`i16` mono) at the rate of the wire, which a client may change, and the rate that the
//! bot requests. Out: frames of at most 20 ms at the bot's rate. Until the bot sets its rate,
//! speech is buffered; the oldest is dropped at the limit.

use std::time::Duration;

use crate::audio::resample::Resampler;
use crate::limits::{EARLY_AUDIO, RATE_CHANGES_MAX};

/// The receiving half of the audio.
#[derive(Default)]
pub struct SocketAudioReceiver {
    wire_hz: u32,
    /// The rate that the bot requested; `None` before.
    rate_hz: Option<u32>,
    resampler: Option<Resampler>,
    rate_changes: u32,
    /// Speech at the rate of the wire, before the bot's rate is known.
    early: Vec<i16>,
    /// Speech at the bot's rate; the first `taken` samples were returned.
    pcm: Vec<i16>,
    taken: usize,
    received: Duration,
}

impl SocketAudioReceiver {
    /// Sets the rate that the bot requests, in Hz.
    pub fn set_rate(&mut self, rate_hz: u32) {
        if self.rate_hz == Some(rate_hz) {
            return;
        }
        self.rate_hz = Some(rate_hz);
        self.resampler = resampler(self.wire_hz, rate_hz);
        let early = std::mem::take(&mut self.early);
        self.convert(&early);
    }

    /// Processes speech at the rate of the wire; returns false if the rate changed too often.
    pub fn push(&mut self, pcm: &[i16], wire_hz: u32) -> bool {
        if self.wire_hz != wire_hz {
            if self.wire_hz != 0 {
                self.rate_changes += 1;
                // Speech at the old rate was not yet heard, and would play at the wrong speed.
                self.early.clear();
            }
            if self.rate_changes > RATE_CHANGES_MAX {
                return false;
            }
            self.wire_hz = wire_hz;
            self.resampler = self.rate_hz.and_then(|rate_hz| resampler(wire_hz, rate_hz));
        }
        self.received += Duration::from_secs(pcm.len() as u64) / wire_hz;
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

    /// Prepares the next frame, if there is one; [`SocketAudioReceiver::take_frame`] returns it.
    pub fn poll_frame(&mut self) -> bool {
        if self.taken == self.pcm.len() {
            self.pcm.clear();
            self.taken = 0;
        }
        self.taken < self.pcm.len()
    }

    /// Returns the next frame, and its rate in Hz.
    pub fn take_frame(&mut self) -> (&[i16], u32) {
        let rate_hz = self.rate_hz.unwrap_or_default();
        let start = self.taken;
        self.taken = self.pcm.len().min(start + rate_hz as usize / 50);
        (&self.pcm[start..self.taken], rate_hz)
    }

    /// Returns the duration of the caller's audio.
    pub fn received(&self) -> Duration {
        self.received
    }
}

/// Returns the resampler between two rates; `None` if they are equal.
fn resampler(from_hz: u32, to_hz: u32) -> Option<Resampler> {
    (from_hz != 0 && from_hz != to_hz).then(|| Resampler::new(from_hz, to_hz))
}
