//! The speech of prompts: texts that a bot says word by word, such as the menu of a telephone.
//!
//! In: a text, then its speech as PCM, `i16` mono at the rate of the voice. Out: the whole prompt,
//! and prompts that were spoken before, for all sessions of a runner. Rejects empty and long texts,
//! and speech that is empty, too long or changes its rate. The oldest prompts are dropped first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::kit::Wav;

/// Bytes of the text of a prompt: about a minute of speech.
pub const PROMPT_TEXT_BYTES_MAX: usize = 1_000;
/// Length of the speech of a prompt.
const PROMPT_MAX: Duration = Duration::from_secs(90);
/// Bytes of the prompts that are kept, over all sessions: more than a minute at 24 kHz.
const PROMPTS_KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why a text was not spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromptError {
    /// The text has no words, or too many bytes.
    Text,
    /// The runner has no voice.
    NoVoice,
    /// The voice did not speak it, for this reason.
    Service(String),
    /// The voice spoke nothing, for too long, or at several rates.
    Speech,
}

impl fmt::Display for PromptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PromptError::Text => write!(f, "a prompt is a text of 1 to {PROMPT_TEXT_BYTES_MAX} bytes"),
            PromptError::NoVoice => f.write_str("the runner has no voice: CASCADE_TTS_URL is not set"),
            PromptError::Service(why) => write!(f, "the voice: {why}"),
            PromptError::Speech => {
                let seconds = PROMPT_MAX.as_secs();
                write!(
                    f,
                    "the voice spoke nothing, at several rates, or for more than {seconds} s"
                )
            }
        }
    }
}

impl std::error::Error for PromptError {}

/// Returns the words of a prompt.
///
/// # Errors
/// [`PromptError::Text`].
pub fn prompt_text(text: &str) -> Result<&str, PromptError> {
    let text = text.trim();
    match (1..=PROMPT_TEXT_BYTES_MAX).contains(&text.len()) {
        true => Ok(text),
        false => Err(PromptError::Text),
    }
}

/// The speech of one prompt, while it is spoken.
#[derive(Debug, Default)]
pub struct PromptSpeech {
    pcm: Vec<i16>,
    rate_hz: u32,
}

impl PromptSpeech {
    /// Adds speech.
    ///
    /// # Errors
    /// [`PromptError::Speech`].
    pub fn push(&mut self, pcm: &[i16], rate_hz: u32) -> Result<(), PromptError> {
        let is_other = !self.pcm.is_empty() && self.rate_hz != rate_hz;
        let samples_max = PROMPT_MAX.as_secs() as usize * rate_hz as usize;
        if is_other || self.pcm.len() + pcm.len() > samples_max {
            return Err(PromptError::Speech);
        }
        self.rate_hz = rate_hz;
        self.pcm.extend_from_slice(pcm);
        Ok(())
    }

    /// Returns the whole prompt.
    ///
    /// # Errors
    /// [`PromptError::Speech`] if there is none.
    pub fn finish(self) -> Result<Wav, PromptError> {
        let PromptSpeech { pcm, rate_hz } = self;
        match pcm.is_empty() {
            true => Err(PromptError::Speech),
            false => Ok(Wav { rate_hz, pcm }),
        }
    }
}

/// Prompts that were spoken.
#[derive(Default)]
pub struct PromptCache {
    /// The last used one at the end.
    kept: VecDeque<(String, Arc<Wav>)>,
    bytes: usize,
}

impl fmt::Debug for PromptCache {
    /// Omits the texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromptCache({} prompts)", self.kept.len())
    }
}

impl PromptCache {
    /// Returns the speech of a text that was spoken before.
    pub fn get(&mut self, text: &str) -> Option<Arc<Wav>> {
        let at = self.kept.iter().position(|(known, _)| known == text)?;
        let found = self.kept.remove(at)?;
        let wav = found.1.clone();
        self.kept.push_back(found);
        Some(wav)
    }

    /// Keeps the speech of a text, in place of the oldest ones.
    pub fn insert(&mut self, text: &str, wav: Arc<Wav>) {
        let size = |text: &str, wav: &Wav| text.len() + 2 * wav.pcm.len();
        let bytes = size(text, &wav);
        if bytes > PROMPTS_KEPT_BYTES_MAX || self.get(text).is_some() {
            return;
        }
        self.bytes += bytes;
        self.kept.push_back((text.to_owned(), wav));
        while self.bytes > PROMPTS_KEPT_BYTES_MAX {
            let Some((text, wav)) = self.kept.pop_front() else {
                return;
            };
            self.bytes -= size(&text, &wav);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_words_and_an_end() {
        assert_eq!(prompt_text(" Press 1. \n"), Ok("Press 1."));
        let longest = "x".repeat(PROMPT_TEXT_BYTES_MAX);
        assert_eq!(prompt_text(&longest), Ok(longest.as_str()));
        for wrong in ["", " \n", &format!("{longest}x")] {
            assert_eq!(prompt_text(wrong), Err(PromptError::Text));
        }
    }

    #[test]
    fn speech_has_one_rate_and_an_end() {
        let mut speech = PromptSpeech::default();
        assert_eq!(PromptSpeech::default().finish(), Err(PromptError::Speech));
        assert_eq!(speech.push(&[1, 2], 8_000), Ok(()));
        assert_eq!(speech.push(&[3], 16_000), Err(PromptError::Speech));
        assert_eq!(speech.push(&[3], 8_000), Ok(()));
        let wav = speech.finish().expect("speech");
        assert_eq!((wav.rate_hz, &*wav.pcm), (8_000, &[1, 2, 3][..]));
        let mut speech = PromptSpeech::default();
        for _ in 0..PROMPT_MAX.as_secs() {
            assert_eq!(speech.push(&[0; 8_000], 8_000), Ok(()));
        }
        assert_eq!(speech.push(&[0], 8_000), Err(PromptError::Speech));
    }

    /// What was used last is kept; what exceeds the limit alone is not.
    #[test]
    fn prompts_are_kept_up_to_a_number_of_bytes() {
        let wav = |samples: usize| {
            Arc::new(Wav {
                rate_hz: 8_000,
                pcm: vec![0; samples],
            })
        };
        // A little more than a third.
        let third = PROMPTS_KEPT_BYTES_MAX / 6 + 1;
        let mut cache = PromptCache::default();
        for text in ["a", "b"] {
            cache.insert(text, wav(third));
        }
        assert!(cache.get("a").is_some());
        cache.insert("c", wav(third));
        assert!(cache.get("b").is_none(), "the oldest one was dropped");
        assert!(cache.get("a").is_some() && cache.get("c").is_some());
        cache.insert("a", wav(1));
        assert_eq!(cache.get("a").expect("kept").pcm.len(), third, "the first one stays");
        cache.insert("d", wav(PROMPTS_KEPT_BYTES_MAX));
        assert!(cache.get("d").is_none() && cache.get("a").is_some());
        assert!(cache.bytes <= PROMPTS_KEPT_BYTES_MAX);
    }
}
