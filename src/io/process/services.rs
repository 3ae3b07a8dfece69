//! What a program asks of its runner: requests about its telephone call, and prompts that the
//! runner speaks, one at a time each.
//!
//! In: requests. Out: results for the program. `call_control` does the first and `prompts` speaks
//! the others, each in a build with its feature.

use std::future::pending;
use std::sync::Arc;

use super::service_rows::{CallOf, PerformCall, PromptFuture, SpeakPrompt, VoiceOf};
use super::{call_control, prompts};
use crate::bot::RunnerArguments;
use crate::bot::media::Output;
use crate::kit::Wav;
use crate::proto::assistant::prompts::PromptError;
use crate::proto::call_control::CallControlError;
use crate::proto::process::CallRequest;

/// The call of a session; none in a build without telephone calls.
#[derive(Clone)]
pub struct CallControl(Option<PerformCall>);

impl CallControl {
    /// Takes the call from the arguments of a bot.
    pub fn of(args: &RunnerArguments) -> Self {
        let row: Option<CallOf> = call_control::row();
        CallControl(row.map(|of| of(args)))
    }

    /// Does what a program asks for. Returns why it was not done.
    pub async fn perform(self, request: CallRequest, output: Output) -> Result<(), String> {
        match self.0 {
            Some(perform) => perform(request, output).await,
            None => Err(CallControlError::NoCall.to_string()),
        }
    }
}

/// The prompts of one program.
pub struct Prompts {
    /// The voice, or why there is none.
    voice: Result<SpeakPrompt, String>,
    /// The prompt that is being spoken, with its text.
    running: Option<(String, PromptFuture)>,
}

/// A prompt as it was spoken.
pub struct SpokenPrompt {
    pub text: String,
    pub wav: Arc<Wav>,
}

impl Prompts {
    /// Takes the voice from the arguments of a bot.
    pub fn of(args: &RunnerArguments) -> Self {
        let row: Option<VoiceOf> = prompts::row();
        let voice = match row {
            Some(of) => of(args).ok_or_else(|| PromptError::NoVoice.to_string()),
            None => Err("this build has no voice (cargo feature `assistants`)".to_owned()),
        };
        Prompts { voice, running: None }
    }

    /// Begins a prompt. Until it is spoken, the program is not read, so there is one at a time.
    pub fn start(&mut self, text: String) {
        let speech = match &self.voice {
            Ok(speak) => speak(text.clone()),
            Err(why) => Box::pin(std::future::ready(Err(why.clone()))),
        };
        self.running = Some((text, speech));
    }

    /// Returns whether a prompt is being spoken.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Waits for the prompt; for ever without one.
    pub async fn spoken(&mut self) -> Result<SpokenPrompt, String> {
        let Some((text, speech)) = &mut self.running else {
            return pending().await;
        };
        let spoken = speech.await;
        let text = std::mem::take(text);
        self.running = None;
        spoken.map(|wav| SpokenPrompt { text, wav })
    }
}
