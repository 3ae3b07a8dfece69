//! Prompts that a program lets the runner speak, one at a time.
//!
//! In: texts. Out: speech for the queue of the program, or why there is none. The voice is that of
//! the runner, whose key the program does not get.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;

use crate::bot::RunnerArguments;
use crate::kit::{PromptError, PromptVoice, Wav};

type PromptFuture = Pin<Box<dyn Future<Output = Result<Arc<Wav>, PromptError>> + Send>>;

/// The prompts of one program.
pub struct Prompts {
    voice: Option<PromptVoice>,
    /// The prompt that is being spoken.
    running: Option<PromptFuture>,
}

impl Prompts {
    /// Takes the voice from the arguments of a bot.
    pub fn of(args: &RunnerArguments) -> Self {
        Prompts {
            voice: PromptVoice::of(args),
            running: None,
        }
    }

    /// Begins a prompt. Until it is spoken, the program is not read, so there is one at a time.
    pub fn start(&mut self, text: String) {
        let voice = self.voice.clone();
        self.running = Some(Box::pin(async move {
            let voice = voice.ok_or(PromptError::NoVoice)?;
            voice.speak(&text).await
        }));
    }

    /// Returns whether a prompt is being spoken.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Waits for the prompt; for ever without one.
    pub async fn spoken(&mut self) -> Result<Arc<Wav>, String> {
        let Some(running) = &mut self.running else {
            return pending().await;
        };
        let spoken = running.await;
        self.running = None;
        spoken.map_err(|error| error.to_string())
    }
}
