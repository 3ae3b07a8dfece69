//! Removes the loudspeaker's sound from the microphone.
//!
//! In: what is written to the loudspeaker, and what the microphone records, each at its rate. Out:
//! the microphone at [`CANCELLED_RATE_HZ`] without that sound. The canceller is in `aec3`, and
//! `residual` notices where it does not work; a build without the feature `aec`, and one for a
//! processor of 32 bits, has neither.

#[cfg(all(feature = "aec", target_pointer_width = "64"))]
mod aec3;
#[cfg(all(feature = "aec", target_pointer_width = "64"))]
mod residual;

/// The rate of the result, in Hz.
pub const CANCELLED_RATE_HZ: u32 = 16_000;

/// What the canceller knows of the room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EchoFigures {
    /// How much of the echo is removed.
    pub removed_db: f64,
    /// Time from the writing of a sound to its echo, beyond what is ahead.
    pub delay_ms: i32,
    /// Sound of the loudspeaker so far.
    pub sound_s: u64,
}

/// Cancels the echo of one loudspeaker in one microphone.
pub trait EchoCanceller: Send {
    /// Handles sound that is written to the loudspeaker.
    fn handle_written(&mut self, pcm: &[i16]);

    /// Handles lost samples of either side.
    fn handle_loss(&mut self);

    /// Returns whether the canceller knows the room.
    fn has_learned(&self) -> bool;

    /// Returns the microphone without the loudspeaker, in whole blocks.
    fn cancel(&mut self, pcm: &[i16]) -> &[i16];

    /// Returns how much of the echo is removed, in dB, once that is too little: the bot's voice
    /// stays in the microphone.
    fn poll_failure(&mut self) -> Option<f64>;

    /// Returns what is known of the room.
    fn figures(&self) -> EchoFigures;
}

/// Returns a canceller for a microphone and a loudspeaker with these rates, if this build has one.
pub fn canceller(in_rate_hz: u32, out_rate_hz: u32) -> Option<Box<dyn EchoCanceller>> {
    cfg_if::cfg_if! {
        if #[cfg(all(feature = "aec", target_pointer_width = "64"))] {
            Some(Box::new(aec3::Aec3::new(in_rate_hz, out_rate_hz)))
        } else {
            let _ = (in_rate_hz, out_rate_hz);
            None
        }
    }
}
