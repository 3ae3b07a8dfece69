//! Replaces `io::process::prompts` in a build without `assistants`: there is no voice.

use std::future::pending;
use std::sync::Arc;

use crate::bot::RunnerArguments;
use crate::kit::Wav;

/// No voice.
pub struct Prompts(bool);

impl Prompts {
    /// Ignores the arguments.
    pub fn of(_args: &RunnerArguments) -> Self {
        Prompts(false)
    }

    /// Takes a prompt that is not spoken.
    pub fn start(&mut self, _text: String) {
        self.0 = true;
    }

    /// Returns whether a prompt waits for its answer.
    pub fn is_running(&self) -> bool {
        self.0
    }

    /// Tells that there is no voice; waits for ever without a prompt.
    pub async fn spoken(&mut self) -> Result<Arc<Wav>, String> {
        match std::mem::take(&mut self.0) {
            true => Err("this build has no voice (cargo feature `assistants`)".to_owned()),
            false => pending().await,
        }
    }
}
