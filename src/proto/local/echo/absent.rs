//! Replaces `local::echo` in a build without `aec`, and for processors of 32 bits: no echo is
//! cancelled.

use std::convert::Infallible;

pub const CANCELLED_RATE_HZ: u32 = 16_000;

/// What the canceller knows of the room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EchoFigures {
    pub removed_db: f64,
    pub delay_ms: i32,
    pub sound_s: u64,
}

/// Does not exist.
pub struct EchoCanceller(Infallible);

impl EchoCanceller {
    /// Returns none.
    pub fn build(_in_rate_hz: u32, _out_rate_hz: u32) -> Option<Box<Self>> {
        None
    }

    pub fn handle_written(&mut self, _pcm: &[i16]) {
        match self.0 {}
    }

    pub fn handle_loss(&mut self) {
        match self.0 {}
    }

    pub fn has_learned(&self) -> bool {
        match self.0 {}
    }

    pub fn cancel(&mut self, _pcm: &[i16]) -> &[i16] {
        match self.0 {}
    }

    pub fn figures(&self) -> EchoFigures {
        match self.0 {}
    }
}
