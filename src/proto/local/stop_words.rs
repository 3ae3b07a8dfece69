//! Words of the caller that end a session: `--local-stop-words`.
//!
//! In: their list, and what the caller has said. Out: whether that is one of them. Letters match in
//! either case, and whatever is between words counts as one space.

/// Words that are taken.
const STOP_WORDS_MAX: usize = 16;
/// Bytes of one of them, which may be several words.
const STOP_WORD_BYTES_MAX: usize = 64;

/// The words that end a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopWords(Vec<String>);

impl StopWords {
    /// Reads a list that is separated by commas.
    ///
    /// # Errors
    /// What the option takes.
    pub fn parse(text: &str) -> Result<StopWords, String> {
        let is_word = |word: &str| word.len() <= STOP_WORD_BYTES_MAX && !normalized(word).is_empty();
        let words: Vec<&str> = text.split(',').collect();
        match words.len() <= STOP_WORDS_MAX && words.iter().all(|word| is_word(word)) {
            true => Ok(StopWords(words.into_iter().map(normalized).collect())),
            false => Err(format!(
                "up to {STOP_WORDS_MAX} words or short sentences, separated by commas"
            )),
        }
    }

    /// Returns whether this is one of the words, and nothing else.
    pub fn contain(&self, said: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&normalized(said))
    }
}

/// Returns the words of a text in lower case, with one space between two of them.
fn normalized(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_sentence_is_compared_without_case_and_punctuation() {
        let words = StopWords::parse("stop, Auf Wiedersehen,that's all").expect("words");
        for said in [
            "Stop!",
            " STOP. ",
            "auf  wiedersehen",
            "Auf Wiedersehen.",
            "That\u{2019}s all.",
        ] {
            assert!(words.contain(said), "{said}");
        }
        for said in ["Don't stop", "stop it", "wiedersehen", "", "?!"] {
            assert!(!words.contain(said), "{said}");
        }
        assert!(!StopWords::default().contain(""));
    }

    #[test]
    fn a_list_has_words_and_an_end() {
        for wrong in ["", "stop,", "stop,!", &"a".repeat(65), &"a,".repeat(17)] {
            assert!(StopWords::parse(wrong).is_err(), "{wrong}");
        }
    }
}
