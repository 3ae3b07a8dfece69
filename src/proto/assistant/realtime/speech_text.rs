//! The words of the model's speech, by sentence, and how many of them were spoken.
//!
//! In: pieces of the transcript of an item, and the played share of its audio. Out: reports of
//! sentences that begin and of their spoken bytes, in proportion to the audio; and the texts that
//! were heard. Text without speech is collected until its response is done.

use crate::assistant::report::ClientReport;
use crate::kit::{sentence_end, whole_words};

/// Items whose words are remembered.
const ITEMS_MAX: usize = 32;
/// Bytes of the words of one item, and of an answer without speech.
const TEXT_BYTES_MAX: usize = 32 * 1024;

#[derive(Debug)]
struct ItemText {
    id: String,
    text: String,
    /// Sentences that the client knows: number, start and end in the text, and bytes spoken.
    sentences: Vec<(u32, usize, usize, usize)>,
    spoken: usize,
    is_complete: bool,
}

/// The words of a session.
#[derive(Debug, Default)]
pub struct SpeechText {
    items: Vec<ItemText>,
    sentences: u32,
    written: String,
}

impl SpeechText {
    /// Begins an item, if it is new.
    pub fn begin(&mut self, item_id: &str) {
        if self.items.iter().all(|item| item.id != item_id) {
            if self.items.len() == ITEMS_MAX {
                self.items.remove(0);
            }
            self.items.push(ItemText {
                id: item_id.to_owned(),
                text: String::new(),
                sentences: Vec::new(),
                spoken: 0,
                is_complete: false,
            });
        }
    }

    /// Adds words of an item. Returns its sentences that are whole now.
    pub fn push(&mut self, item_id: &str, text: &str) -> Vec<ClientReport> {
        let Some(item) = self.items.iter_mut().find(|item| item.id == item_id) else {
            return Vec::new();
        };
        if item.text.len() + text.len() <= TEXT_BYTES_MAX {
            item.text.push_str(text);
        }
        item.announce(&mut self.sentences, false)
    }

    /// Records that an item has no further speech.
    pub fn complete(&mut self, item_id: &str) {
        if let Some(item) = self.items.iter_mut().find(|item| item.id == item_id) {
            item.is_complete = true;
        }
    }

    /// Handles the played share of an item, in samples.
    pub fn handle_progress(&mut self, item_id: &str, played: usize, received: usize) -> Vec<ClientReport> {
        let Some(item) = self.items.iter_mut().find(|item| item.id == item_id) else {
            return Vec::new();
        };
        let mut reports = item.announce(&mut self.sentences, item.is_complete);
        let spoken = item.text.len() as u64 * played as u64 / received.max(1) as u64;
        item.spoken = item.spoken.max(spoken as usize);
        for (id, start, end, reported) in &mut item.sentences {
            let bytes = item.spoken.clamp(*start, *end) - *start;
            if bytes > *reported {
                *reported = bytes;
                reports.push(ClientReport::SentenceSpoken { id: *id, bytes });
            }
        }
        reports
    }

    /// Takes the texts of items that were heard to their end.
    pub fn take_played(&mut self, is_played: impl Fn(&str) -> bool) -> Vec<String> {
        let mut played = Vec::new();
        self.items.retain_mut(|item| {
            let is_over = item.is_complete && is_played(&item.id);
            if is_over {
                played.push(std::mem::take(&mut item.text));
            }
            !is_over
        });
        played
    }

    /// Drops all items, and returns what was heard of each, in whole words.
    pub fn interrupt(&mut self) -> Vec<String> {
        let items = self.items.drain(..).map(|mut item| {
            item.text.truncate(whole_words(&item.text, item.spoken).len());
            item.text
        });
        items.filter(|text| !text.is_empty()).collect()
    }

    /// Adds text that is not spoken.
    pub fn write(&mut self, text: &str) {
        if self.written.len() + text.len() <= TEXT_BYTES_MAX {
            self.written.push_str(text);
        }
    }

    /// Takes the text that is not spoken.
    pub fn take_written(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.written)).filter(|text| !text.trim().is_empty())
    }
}

impl ItemText {
    /// Returns new sentences. `is_last` adds the words behind the last one.
    fn announce(&mut self, count: &mut u32, is_last: bool) -> Vec<ClientReport> {
        let mut reports = Vec::new();
        loop {
            let start = self.sentences.last().map_or(0, |(_, _, end, _)| *end);
            let rest = &self.text[start..];
            let length = match sentence_end(rest) {
                Some(length) => length,
                None if is_last && !rest.trim().is_empty() => rest.len(),
                None => return reports,
            };
            *count = count.wrapping_add(1);
            self.sentences.push((*count, start, start + length, 0));
            reports.push(ClientReport::SentenceBegins {
                id: *count,
                text: rest[..length].to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_begin_when_they_are_whole_and_are_spoken_with_the_audio() {
        let mut text = SpeechText::default();
        text.begin("i");
        assert_eq!(text.push("i", "Hello the"), []);
        let begins = |id, text: &str| ClientReport::SentenceBegins { id, text: text.into() };
        assert_eq!(text.push("i", "re. Bye"), [begins(1, "Hello there. ")]);
        text.complete("i");
        let spoken = |id, bytes| ClientReport::SentenceSpoken { id, bytes };
        assert_eq!(text.handle_progress("i", 50, 100), [begins(2, "Bye"), spoken(1, 8)]);
        assert_eq!(text.handle_progress("i", 100, 100), [spoken(1, 13), spoken(2, 3)]);
        assert_eq!(text.take_played(|_| true), ["Hello there. Bye"]);
    }

    #[test]
    fn an_interruption_keeps_what_was_spoken() {
        let mut text = SpeechText::default();
        text.begin("i");
        text.push("i", "Sch\u{f6}n. Gut. ");
        text.handle_progress("i", 4, 13);
        assert_eq!(text.interrupt(), [""; 0], "not half a word");
        text.begin("i");
        text.push("i", "Sch\u{f6}n. Gut. ");
        text.handle_progress("i", 10, 13);
        assert_eq!(text.interrupt(), ["Sch\u{f6}n."]);
        assert_eq!(text.interrupt(), [""; 0]);
    }
}
