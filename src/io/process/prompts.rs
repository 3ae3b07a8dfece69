//! The voice of the runner for the prompts of a program.
//!
//! In: texts. Out: speech. The program does not get the key of the voice.

use std::sync::Arc;

use super::service_rows::{SpeakPrompt, VoiceOf};
use crate::kit::PromptVoice;

/// Returns the voice of a session, if the runner has one.
pub(super) const fn row() -> Option<VoiceOf> {
    Some(|args| {
        let voice = PromptVoice::of(args)?;
        let speak: SpeakPrompt = Arc::new(move |text| {
            let voice = voice.clone();
            Box::pin(async move { voice.speak(&text).await.map_err(|error| error.to_string()) })
        });
        Some(speak)
    })
}
