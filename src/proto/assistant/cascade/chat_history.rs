//! The conversation as messages of a chat model.
//!
//! In: what the caller says, what the bot writes and what of it was heard, function calls and their
//! outputs. Out: messages in the shape of OpenAI's chat completions. The oldest turns are dropped
//! beyond [`MESSAGES_MAX`] and [`BYTES_MAX`]; a call is never separated from its output. Adjacent
//! messages of the caller are one: many models expect the roles to alternate.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::assistant::beginning;

/// Messages that are kept, without the instructions.
const MESSAGES_MAX: usize = 60;
/// Bytes of their texts.
const BYTES_MAX: usize = 48 * 1024;
/// Bytes of one text.
const TEXT_BYTES_MAX: usize = 32 * 1024;

/// A call of a function, with its arguments as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatCall {
    pub call_id: String,
    pub name: String,
    pub arguments: String,
}

#[derive(Debug)]
enum ChatMessage {
    /// What the caller says, types or does.
    Caller(String),
    Bot {
        number: u64,
        text: String,
        calls: Vec<ChatCall>,
    },
    Output {
        call_id: String,
        output: String,
    },
}

/// The last messages of a conversation.
#[derive(Debug, Default)]
pub struct ChatHistory {
    messages: VecDeque<ChatMessage>,
    /// The number of the newest message of the bot.
    number: u64,
}

impl ChatHistory {
    /// Adds what the caller says.
    pub fn add_caller(&mut self, text: &str) {
        let text = beginning(text.trim(), TEXT_BYTES_MAX);
        match self.messages.back_mut() {
            Some(ChatMessage::Caller(before)) if before.len() + text.len() < TEXT_BYTES_MAX => {
                before.push(' ');
                before.push_str(text);
            }
            _ => self.messages.push_back(ChatMessage::Caller(text.to_owned())),
        }
        self.trim();
    }

    /// Begins a message of the bot, and returns its number.
    pub fn begin_bot(&mut self) -> u64 {
        self.number += 1;
        self.messages.push_back(ChatMessage::Bot {
            number: self.number,
            text: String::new(),
            calls: Vec::new(),
        });
        self.number
    }

    /// Adds text to a message of the bot. Returns false, and adds nothing, beyond the cap.
    pub fn push_bot(&mut self, number: u64, piece: &str) -> bool {
        match self.bot(number) {
            Some((text, _)) if text.len() + piece.len() <= TEXT_BYTES_MAX => {
                text.push_str(piece);
                true
            }
            _ => false,
        }
    }

    /// Adds a call to a message of the bot.
    pub fn add_call(&mut self, number: u64, call: ChatCall) {
        if let Some((_, calls)) = self.bot(number) {
            calls.push(call);
        }
    }

    /// Adds the output of a call.
    pub fn add_output(&mut self, call_id: &str, output: &str) {
        let is_called = self.messages.iter().any(|message| match message {
            ChatMessage::Bot { calls, .. } => calls.iter().any(|call| call.call_id == call_id),
            _ => false,
        });
        if is_called {
            self.messages.push_back(ChatMessage::Output {
                call_id: call_id.to_owned(),
                output: output.to_owned(),
            });
        }
    }

    /// Replaces the text of a message of the bot by what was heard of it.
    pub fn set_heard(&mut self, number: u64, heard: &str) {
        if let Some((text, _)) = self.bot(number) {
            heard.trim().clone_into(text);
        }
        self.finish_bot(number);
    }

    /// Ends a message of the bot. One without text and calls is removed.
    pub fn finish_bot(&mut self, number: u64) {
        self.messages.retain(|message| match message {
            ChatMessage::Bot { number: n, text, calls } => *n != number || !text.trim().is_empty() || !calls.is_empty(),
            _ => true,
        });
        self.trim();
    }

    /// Returns the text of a message of the bot.
    pub fn text(&mut self, number: u64) -> &str {
        self.bot(number).map_or("", |(text, _)| text)
    }

    /// Returns the number of calls in a message of the bot.
    pub fn calls(&mut self, number: u64) -> usize {
        self.bot(number).map_or(0, |(_, calls)| calls.len())
    }

    /// Returns the messages, behind the instructions.
    pub fn messages(&self, instructions: &str) -> Vec<Value> {
        let mut messages = vec![json!({"role": "system", "content": instructions})];
        for message in &self.messages {
            messages.push(match message {
                ChatMessage::Caller(text) => json!({"role": "user", "content": text}),
                ChatMessage::Bot { text, calls, .. } if calls.is_empty() => {
                    json!({"role": "assistant", "content": text.trim()})
                }
                ChatMessage::Bot { text, calls, .. } => {
                    let calls: Vec<Value> = calls
                        .iter()
                        .map(|call| {
                            json!({"id": call.call_id, "type": "function",
                                "function": {"name": call.name, "arguments": call.arguments}})
                        })
                        .collect();
                    json!({"role": "assistant", "content": text.trim(), "tool_calls": calls})
                }
                ChatMessage::Output { call_id, output } => {
                    json!({"role": "tool", "tool_call_id": call_id, "content": output})
                }
            });
        }
        messages
    }

    fn bot(&mut self, number: u64) -> Option<(&mut String, &mut Vec<ChatCall>)> {
        self.messages.iter_mut().rev().find_map(|message| match message {
            ChatMessage::Bot { number: n, text, calls } if *n == number => Some((text, calls)),
            _ => None,
        })
    }

    /// Drops the oldest turns, each up to the next message of the caller.
    fn trim(&mut self) {
        while self.messages.len() > MESSAGES_MAX
            || self.messages.iter().map(ChatMessage::bytes).sum::<usize>() > BYTES_MAX
        {
            let is_caller = |message: &ChatMessage| matches!(message, ChatMessage::Caller(_));
            // The last turn stays, whatever its length: its texts are bounded one by one.
            let Some(next) = self.messages.iter().skip(1).position(is_caller) else {
                return;
            };
            self.messages.drain(..=next);
        }
    }
}

impl ChatMessage {
    fn bytes(&self) -> usize {
        match self {
            ChatMessage::Caller(text) => text.len(),
            ChatMessage::Bot { text, calls, .. } => {
                let calls = calls.iter().map(|call| call.name.len() + call.arguments.len());
                text.len() + calls.sum::<usize>()
            }
            ChatMessage::Output { output, .. } => output.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(call_id: &str) -> ChatCall {
        ChatCall {
            call_id: call_id.to_owned(),
            name: "f".to_owned(),
            arguments: "{}".to_owned(),
        }
    }

    #[test]
    fn messages_have_the_shape_of_chat_completions() {
        let mut history = ChatHistory::default();
        history.add_caller(" What is");
        history.add_caller("it? ");
        let number = history.begin_bot();
        assert!(history.push_bot(number, "Let me see."));
        history.add_call(number, call("c"));
        history.add_output("c", "42");
        history.add_output("unknown", "1");
        let answer = history.begin_bot();
        history.push_bot(answer, "It is");
        history.push_bot(answer, " 42. Or more.");
        history.set_heard(answer, "It is 42. ");
        assert_eq!(
            history.messages("Be brief."),
            [
                json!({"role": "system", "content": "Be brief."}),
                json!({"role": "user", "content": "What is it?"}),
                json!({"role": "assistant", "content": "Let me see.", "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
                json!({"role": "tool", "tool_call_id": "c", "content": "42"}),
                json!({"role": "assistant", "content": "It is 42."}),
            ]
        );
    }

    #[test]
    fn an_answer_that_was_not_heard_is_removed() {
        let mut history = ChatHistory::default();
        history.add_caller("a");
        let number = history.begin_bot();
        history.push_bot(number, "never heard");
        history.set_heard(number, "");
        history.add_caller("b");
        assert_eq!(history.messages("")[1]["content"], "a b");
    }

    #[test]
    fn whole_turns_are_dropped_beyond_the_caps() {
        let mut history = ChatHistory::default();
        for turn in 0..100 {
            history.add_caller(&turn.to_string());
            let number = history.begin_bot();
            history.add_call(number, call(&turn.to_string()));
            history.add_output(&turn.to_string(), "o");
        }
        history.finish_bot(0);
        let messages = history.messages("");
        assert!(messages.len() <= 1 + MESSAGES_MAX, "{}", messages.len());
        assert_eq!(messages[1]["role"], "user", "no call without its question");
        assert_eq!(messages.last().expect("the newest")["tool_call_id"], "99");
        history.add_caller(&"x".repeat(2 * TEXT_BYTES_MAX));
        let long = history.begin_bot();
        assert!(history.push_bot(long, &"y".repeat(TEXT_BYTES_MAX)));
        assert!(!history.push_bot(long, "y"));
        history.finish_bot(long);
        assert_eq!(history.messages("").len(), 3, "the last turn stays");
    }
}
