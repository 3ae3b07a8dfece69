//! An answer of the bot, sentence by sentence, from the model's text to what was heard.
//!
//! In: text of the model, what became of the speech of each sentence, and its playout. Out: the
//! sentence to synthesise next, and, after an interruption, the text that was heard. Only
//! [`AHEAD_MAX`] sentences are synthesised before they are heard, since most answers that are
//! interrupted are long ones.

use std::collections::VecDeque;

use crate::kit::{SentenceSplitter, whole_words};

/// Sentences with speech at once: the one that is heard, and the next.
const AHEAD_MAX: usize = 2;

/// How far the speech of a sentence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeechState {
    Waiting,
    Synthesizing,
    Complete,
}

/// A sentence that was not heard to its end.
#[derive(Debug)]
pub struct AnswerSentence {
    pub number: u32,
    /// The message of the history that it belongs to.
    pub message: u64,
    pub text: String,
    pub speech: SpeechState,
    /// Whether the voice gave less than the whole of it, or nothing.
    pub is_cut: bool,
    /// Whether its audio has begun to arrive, and to leave.
    pub has_audio: bool,
    pub is_leaving: bool,
    /// Bytes of the text that were heard.
    pub played_bytes: usize,
}

/// One answer, which may take several messages with calls of functions between them.
#[derive(Debug)]
pub struct Answer {
    /// The chat in progress.
    pub chat: Option<u64>,
    /// The message that the model writes.
    pub message: u64,
    pub is_text_only: bool,
    /// Whether the caller interrupts it, and it is unknown whether with words.
    pub is_suspended: bool,
    /// Whether any of it has begun to leave.
    pub is_audible: bool,
    /// Whether the model has written anything.
    pub has_text: bool,
    /// Whether the model has to go on with the outputs of functions.
    pub is_due: bool,
    /// Messages with calls of functions.
    pub rounds: usize,
    /// Whether not all that the model wrote was played, though nothing interrupted it.
    pub has_gaps: bool,
    splitter: SentenceSplitter,
    sentences: VecDeque<AnswerSentence>,
    /// Heard texts by message.
    played: Vec<(u64, String)>,
}

impl Answer {
    pub fn new(message: u64, is_text_only: bool) -> Self {
        Answer {
            chat: None,
            message,
            is_text_only,
            is_suspended: false,
            is_audible: false,
            has_text: false,
            is_due: false,
            rounds: 0,
            has_gaps: false,
            splitter: SentenceSplitter::default(),
            sentences: VecDeque::new(),
            played: vec![(message, String::new())],
        }
    }

    /// Begins the next message.
    pub fn begin_message(&mut self, message: u64) {
        self.message = message;
        self.played.push((message, String::new()));
    }

    /// Adds text of the model.
    pub fn push_text(&mut self, text: &str, numbers: &mut u32) {
        self.has_text |= !text.trim().is_empty();
        if self.is_text_only {
            return;
        }
        self.splitter.push(text);
        while let Some(sentence) = self.splitter.next_sentence() {
            self.add(sentence, numbers);
        }
    }

    /// Ends a message of the model: the words behind the last sentence are one as well.
    pub fn finish_text(&mut self, numbers: &mut u32) {
        if let Some(rest) = self.splitter.finish() {
            self.add(rest, numbers);
        }
    }

    fn add(&mut self, text: String, numbers: &mut u32) {
        if !text.chars().any(char::is_alphanumeric) {
            return;
        }
        *numbers = numbers.wrapping_add(1);
        self.sentences.push_back(AnswerSentence {
            number: *numbers,
            message: self.message,
            text,
            speech: SpeechState::Waiting,
            is_cut: false,
            has_audio: false,
            is_leaving: false,
            played_bytes: 0,
        });
    }

    /// Returns the sentence to synthesise next, unless enough are ahead. Services synthesise one at
    /// a time.
    pub fn next_to_synthesize(&mut self) -> Option<&mut AnswerSentence> {
        let at = self
            .sentences
            .iter()
            .position(|sentence| sentence.speech != SpeechState::Complete)?;
        let is_free = at < AHEAD_MAX && self.sentences[at].speech == SpeechState::Waiting;
        (is_free && !self.is_suspended).then(|| &mut self.sentences[at])
    }

    pub fn sentence(&mut self, number: u32) -> Option<&mut AnswerSentence> {
        self.sentences.iter_mut().find(|sentence| sentence.number == number)
    }

    /// Returns whether it is heard: also in a pause between two sentences.
    pub fn is_sounding(&self) -> bool {
        let is_between = self.is_audible && !self.is_suspended && !self.sentences.is_empty();
        is_between || self.sentences.iter().any(|sentence| sentence.has_audio)
    }

    /// Returns whether all sentences were heard.
    pub fn is_spoken(&self) -> bool {
        self.sentences.is_empty()
    }

    /// Drops the leading sentences that are over, and returns their numbers and how many bytes of
    /// each were played. A sentence that the voice refused has none, and is left out.
    pub fn take_played(&mut self, is_played: impl Fn(u32) -> bool) -> Vec<(u32, usize)> {
        let mut taken = Vec::new();
        while let Some(sentence) = self.sentences.front() {
            if sentence.speech != SpeechState::Complete || !is_played(sentence.number) {
                break;
            }
            let sentence = self.sentences.pop_front().expect("it is the front");
            let played = match sentence.is_cut {
                true => whole_words(&sentence.text, sentence.played_bytes),
                false => sentence.text.as_str(),
            };
            self.has_gaps |= played.len() < sentence.text.len();
            self.record(sentence.message, played);
            if !played.is_empty() {
                taken.push((sentence.number, played.len()));
            }
        }
        taken
    }

    /// Stops speaking. The sentence that was cut is not repeated; the others can be spoken later.
    pub fn suspend(&mut self) {
        self.is_suspended = true;
        self.record_cut();
        for sentence in &mut self.sentences {
            sentence.speech = SpeechState::Waiting;
            sentence.is_cut = false;
            sentence.has_audio = false;
            sentence.is_leaving = false;
        }
    }

    /// Returns what was heard of each message.
    pub fn into_played(mut self) -> Vec<(u64, String)> {
        self.record_cut();
        self.played
    }

    fn record_cut(&mut self) {
        while let Some(sentence) = self.sentences.front().filter(|sentence| sentence.played_bytes > 0) {
            // A word that was cut was not understood.
            let text = whole_words(&sentence.text, sentence.played_bytes).to_owned();
            let message = sentence.message;
            self.sentences.pop_front();
            self.record(message, &text);
        }
    }

    fn record(&mut self, message: u64, text: &str) {
        if let Some((_, played)) = self.played.iter_mut().find(|(known, _)| *known == message) {
            if !played.is_empty() && !text.is_empty() {
                played.push(' ');
            }
            played.push_str(text.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        let (mut answer, mut numbers) = (Answer::new(1, false), 0);
        answer.push_text(text, &mut numbers);
        answer.finish_text(&mut numbers);
        answer
    }

    #[test]
    fn one_sentence_is_synthesised_at_a_time_and_one_ahead() {
        let mut answer = answer("One is here. Two is here. Three is here. ...");
        let mut numbers = Vec::new();
        while let Some(sentence) = answer.next_to_synthesize() {
            numbers.push(sentence.number);
            sentence.speech = SpeechState::Synthesizing;
            assert!(answer.next_to_synthesize().is_none(), "one at a time");
            let number = *numbers.last().expect("one");
            answer.sentence(number).expect("known").speech = SpeechState::Complete;
        }
        assert_eq!(numbers, [1, 2]);
        assert_eq!(answer.take_played(|number| number == 1), [(1, "One is here.".len())]);
        assert_eq!(answer.next_to_synthesize().map(|sentence| sentence.number), Some(3));
        assert_eq!(answer.into_played(), [(1, "One is here.".to_owned())]);
    }

    #[test]
    fn an_interruption_keeps_whole_words_and_the_sentences_behind() {
        let mut answer = answer("One is here. Two is here. Three is here.");
        for number in [1, 2] {
            let sentence = answer.sentence(number).expect("known");
            (sentence.speech, sentence.has_audio) = (SpeechState::Complete, true);
        }
        answer.sentence(1).expect("known").played_bytes = 8;
        answer.suspend();
        assert!(!answer.is_sounding());
        assert!(
            answer.next_to_synthesize().is_none(),
            "it waits for what the caller says"
        );
        answer.is_suspended = false;
        assert_eq!(answer.next_to_synthesize().map(|sentence| sentence.number), Some(2));
        assert_eq!(answer.into_played(), [(1, "One is".to_owned())]);
    }
}
