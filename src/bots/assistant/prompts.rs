//! Speaks prompts by the voice of `CASCADE_TTS_URL`, for bots that are not assistants.
//!
//! In: a text. Out: its speech. A text that was spoken before is not asked for again, in any
//! session of this runner.

use std::sync::Arc;

use edge_runner_http::common::lock;

use super::clients::synthesizer::{SpeechSynthesizer, VoiceEvent};
use crate::bot::RunnerArguments;
use crate::config::{Config, PromptVoiceConfig};
use crate::proto::assistant::prompts::{PromptError, PromptSpeech, prompt_text};
use crate::proto::assistant::services::failure::ServiceFailure;
use crate::proto::assistant::services::speech::VoiceSettings;
use crate::proto::kit::Wav;

/// A voice for prompts: texts that a bot says word by word, such as the menu of a telephone.
///
/// It is the voice of `CASCADE_TTS_URL`, which `--bot cascade` speaks with.
///
/// ```no_run
/// use edge_runner::kit::{PromptVoice, play};
/// # use edge_runner::{Audio, BotError, RunnerArguments};
///
/// async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
///     let voice = PromptVoice::of(&args);
///     let media = args.media(Audio::at(8_000))?;
///     if let Some(voice) = voice {
///         let menu = voice.speak("Press 1 for a melody.").await?;
///         play(media.output(), &menu).await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct PromptVoice {
    synthesizer: SpeechSynthesizer,
    config: PromptVoiceConfig,
}

impl std::fmt::Debug for PromptVoice {
    /// Omits the prompts.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PromptVoice")
    }
}

impl PromptVoice {
    /// Returns the voice of the runner; `None` without `CASCADE_TTS_URL`.
    pub fn of(args: &RunnerArguments) -> Option<Self> {
        PromptVoice::of_config(&args.cli_args)
    }

    fn of_config(config: &Config) -> Option<Self> {
        let config = config.assistant.prompt_voice.clone()?;
        let settings = VoiceSettings {
            model: config.voice.model.clone(),
            voice: config.voice.voice.clone(),
            language: config.language.clone(),
            pcm_rate_hz: config.voice.rate_hz,
            ..VoiceSettings::default()
        };
        Some(PromptVoice {
            synthesizer: SpeechSynthesizer::new(config.voice.access.clone(), settings),
            config,
        })
    }

    /// Returns the speech of a text of up to 1,000 bytes. Speech is kept, up to 4 MiB over all
    /// sessions, so that the same text is spoken once.
    ///
    /// # Errors
    /// [`PromptError`] if the voice did not speak it.
    pub async fn speak(&self, text: &str) -> Result<Arc<Wav>, PromptError> {
        let text = prompt_text(text)?;
        if let Some(wav) = lock(&self.config.spoken).get(text) {
            return Ok(wav);
        }
        let mut session = self.synthesizer.start(text);
        let mut speech = PromptSpeech::default();
        let failed = |failure: ServiceFailure| PromptError::Service(failure.to_string());
        while let VoiceEvent::Audio { pcm, rate_hz } = session.recv().await.map_err(failed)? {
            speech.push(&pcm, rate_hz)?;
        }
        let wav = Arc::new(speech.finish()?);
        lock(&self.config.spoken).insert(text, wav.clone());
        Ok(wav)
    }
}
