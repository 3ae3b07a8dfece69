//! The utterances that are being recognised, oldest first.
//!
//! In: identifiers and final texts, in any order. Out: the texts in the order in which the caller
//! spoke. At most [`RECOGNITIONS_MAX`] wait.

use std::collections::VecDeque;

/// Utterances that wait at once.
const RECOGNITIONS_MAX: usize = 4;

/// The utterances.
#[derive(Debug, Default)]
pub struct Recognitions(VecDeque<(u64, Option<String>)>);

impl Recognitions {
    /// Adds an utterance. Returns the oldest one if it has to be given up.
    pub fn push(&mut self, id: u64) -> Option<u64> {
        let oldest = match self.0.len() {
            RECOGNITIONS_MAX => self.0.pop_front().map(|(id, _)| id),
            _ => None,
        };
        self.0.push_back((id, None));
        oldest
    }

    pub fn contains(&self, id: u64) -> bool {
        self.0.iter().any(|(known, text)| *known == id && text.is_none())
    }

    /// Records the text of an utterance.
    pub fn complete(&mut self, id: u64, text: &str) {
        if let Some((_, completed)) = self.0.iter_mut().find(|(known, _)| *known == id) {
            *completed = Some(text.to_owned());
        }
    }

    /// Takes the next text.
    pub fn next_text(&mut self) -> Option<String> {
        self.0.front()?.1.as_ref()?;
        self.0.pop_front()?.1
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all utterances, and returns them.
    pub fn take(&mut self) -> impl Iterator<Item = u64> {
        std::mem::take(&mut self.0).into_iter().map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_in_the_order_of_speech() {
        let mut recognitions = Recognitions::default();
        assert_eq!((recognitions.push(1), recognitions.push(2)), (None, None));
        recognitions.complete(2, "second");
        assert_eq!(recognitions.next_text(), None);
        assert!(recognitions.contains(1) && !recognitions.contains(2));
        recognitions.complete(1, "first");
        assert_eq!(recognitions.next_text().as_deref(), Some("first"));
        assert_eq!(recognitions.next_text().as_deref(), Some("second"));
        assert!(recognitions.is_empty());
    }

    #[test]
    fn the_oldest_utterance_is_given_up_beyond_the_cap() {
        let mut recognitions = Recognitions::default();
        let given_up: Vec<u64> = (1..=5).filter_map(|id| recognitions.push(id)).collect();
        assert_eq!(given_up, [1]);
        assert_eq!(recognitions.take().count(), 4);
    }
}
