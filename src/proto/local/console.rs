//! The terminal of a local caller: lines that are typed, and lines of what was said.
//!
//! In: lines and ends of the standard input; RTVI messages of the bot. Out: what the user wants,
//! and the sentences of both sides. The bot's sentences are those of `bot-transcription`,
//! or of `bot-output` where the bot sends no others. Source: `docs/spec/rtvi.md` 4.

use crate::bot_message::{self, BotMessage};

/// Ends of the standard input in a row after which the terminal is gone. One is Ctrl-D.
const ENDS_MAX: u32 = 3;

/// What came from the standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsoleInput {
    Line(String),
    /// Ctrl-D, or the end of the terminal.
    End,
}

/// What the user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserWish {
    /// Begin a session.
    Begin,
    /// End the session.
    End,
    /// End the session that runs, or begin one.
    BeginOrEnd,
    /// Mute the microphone, or no longer.
    Mute,
    Louder,
    Quieter,
    /// Say this; it begins a session as well.
    Say(String),
}

/// Reads what was typed.
#[derive(Debug, Default)]
pub struct ConsoleReader {
    /// Whether lines are what the caller says.
    types: bool,
    ends: u32,
}

impl ConsoleReader {
    /// Reads the terminal of a caller who `types`, or of one who speaks.
    pub fn new(types: bool) -> Self {
        ConsoleReader { types, ends: 0 }
    }

    /// Handles what came from the standard input.
    pub fn handle(&mut self, input: &ConsoleInput) -> UserWish {
        match input {
            ConsoleInput::End => {
                self.ends += 1;
                UserWish::End
            }
            ConsoleInput::Line(line) => {
                self.ends = 0;
                match line.trim() {
                    "q" | "Q" => UserWish::End,
                    text if self.types && !text.is_empty() => UserWish::Say(text.to_owned()),
                    "m" | "M" => UserWish::Mute,
                    "+" => UserWish::Louder,
                    "-" => UserWish::Quieter,
                    _ => UserWish::Begin,
                }
            }
        }
    }

    /// Returns whether nothing more will come.
    pub fn is_over(&self) -> bool {
        self.ends >= ENDS_MAX
    }
}

/// A sentence of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleSentence {
    pub by_caller: bool,
    /// Without control characters: a terminal would obey them.
    pub text: String,
}

impl ConsoleSentence {
    /// Returns the line to show.
    pub fn line(&self) -> String {
        let by = if self.by_caller { "you" } else { "bot" };
        format!("{by}: {}", self.text)
    }
}

/// The sentences of one session, for a terminal.
#[derive(Debug, Default)]
pub struct ConsoleTranscript {
    has_sentences: bool,
    last: Option<ConsoleSentence>,
}

impl ConsoleTranscript {
    /// Handles a message of the bot, and returns the sentence that it has.
    pub fn handle_bot_message(&mut self, text: &str) -> Option<ConsoleSentence> {
        let (by_caller, said) = match bot_message::read(text) {
            BotMessage::UserTranscription {
                text, is_final: true, ..
            } => (true, text),
            BotMessage::BotTranscription(text) => {
                self.has_sentences = true;
                (false, text)
            }
            BotMessage::BotOutput(output) if !self.has_sentences => match output.spoken_status.as_deref() {
                None | Some("new") => (false, output.text),
                Some(_) => return None,
            },
            _ => return None,
        };
        let shown = said
            .trim()
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter });
        let text: String = shown.collect();
        let sentence = Some(ConsoleSentence { by_caller, text });
        if said.trim().is_empty() || sentence == self.last {
            return None;
        }
        self.last.clone_from(&sentence);
        sentence
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(kind: &str, data: serde_json::Value) -> String {
        json!({"label": "rtvi-ai", "type": kind, "id": "1", "data": data}).to_string()
    }

    #[test]
    fn shows_each_sentence_of_both_sides_once() {
        let mut transcript = ConsoleTranscript::default();
        let mut shown = |kind, data| {
            let sentence = transcript.handle_bot_message(&message(kind, data));
            sentence.map(|sentence| sentence.line())
        };
        let said = |text| json!({"text": text, "final": true, "user_id": "", "timestamp": ""});
        assert_eq!(shown("user-transcription", json!({"text": "he", "final": false})), None);
        assert_eq!(
            shown("user-transcription", said(" hello\x1b[2J\n")),
            Some("you: hello [2J".into())
        );
        let segment = |status| json!({"text": "Hi.", "segment_id": 1, "will_be_spoken": true, "spoken_status": status});
        assert_eq!(shown("bot-output", segment("new")), Some("bot: Hi.".into()));
        assert_eq!(shown("bot-output", segment("in-progress")), None);
        assert_eq!(shown("bot-transcription", json!({"text": "Hi."})), None, "known");
        assert_eq!(
            shown("bot-transcription", json!({"text": "How?"})),
            Some("bot: How?".into())
        );
        assert_eq!(shown("bot-output", segment("new")), None, "sentences come otherwise");
        assert_eq!(shown("bot-transcription", json!({"text": "  "})), None);
    }

    #[test]
    fn q_and_the_end_of_input_end_and_other_lines_begin() {
        let mut reader = ConsoleReader::default();
        let line = |text: &str| ConsoleInput::Line(text.to_owned());
        assert_eq!(reader.handle(&line("\n")), UserWish::Begin);
        assert_eq!(reader.handle(&line("q\n")), UserWish::End);
        for (typed, wish) in [
            ("m\n", UserWish::Mute),
            ("+\n", UserWish::Louder),
            ("-\n", UserWish::Quieter),
        ] {
            assert_eq!(reader.handle(&line(typed)), wish);
        }
        for _ in 0..2 {
            assert_eq!(reader.handle(&ConsoleInput::End), UserWish::End);
        }
        assert!(!reader.is_over(), "Ctrl-D does not close a terminal");
        reader.handle(&line(""));
        for _ in 0..3 {
            reader.handle(&ConsoleInput::End);
        }
        assert!(reader.is_over());
    }

    #[test]
    fn lines_of_a_caller_who_types_are_said() {
        let mut reader = ConsoleReader::new(true);
        let line = |text: &str| ConsoleInput::Line(text.to_owned());
        assert_eq!(
            reader.handle(&line(" quit smoking \n")),
            UserWish::Say("quit smoking".into())
        );
        assert_eq!(reader.handle(&line("m\n")), UserWish::Say("m".into()));
        assert_eq!(reader.handle(&line("\n")), UserWish::Begin);
        assert_eq!(reader.handle(&line("q\n")), UserWish::End);
        assert_eq!(reader.handle(&ConsoleInput::End), UserWish::End);
    }
}
