//! Replaces `io::local::wake` in a build without `assistants`, which has no client of Wyoming.

use std::convert::Infallible;
use std::time::Duration;

use crate::config::{Config, WakeConfig};
use crate::proto::doctor::Finding;

/// Does not exist.
pub struct WakeListener(Infallible);

impl WakeListener {
    /// Is not called: the options reject a wake word.
    pub fn start(_config: &WakeConfig, _rate_hz: u32) -> WakeListener {
        unreachable!("`--local-start wake` is not in this build")
    }

    pub fn send(&self, _pcm: &[i16], _end: Duration) {
        match self.0 {}
    }

    pub fn pause(&self) {
        match self.0 {}
    }
}

pub async fn next_word(_wake: Option<&mut WakeListener>) -> Duration {
    std::future::pending().await
}

pub async fn examine(_config: &Config) -> Vec<Finding> {
    Vec::new()
}
