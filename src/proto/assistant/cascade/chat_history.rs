//! The conversation as messages of a chat model.
//!
//! In: what the caller says, what the bot writes and what of it was heard, function calls and their
//! outputs. Out: messages in the shape of OpenAI's chat completions. The oldest turns are dropped
//! beyond [`MESSAGES_MAX`] and [`BYTES_MAX`]; a call is never separated from its output. Adjacent
//! messages of the caller are one, and between the output of a function and the caller stands a
//! message of the bot: many models expect the roles to alternate.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::text::beginning;

/// Messages that are kept, without the instructions.
const MESSAGES_MAX: usize = 60;
/// Bytes of their texts.
const BYTES_MAX: usize = 48 * 1024;
/// Bytes of one text.
const TEXT_BYTES_MAX: usize = 32 * 1024;

/// What the bot says between the output of a function and the next words of the caller, if it was
/// interrupted. A voice does not speak it.
const NOTHING_SAID: &str = "...";

/// A call of a function, with its arguments as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatCall {
    pub call_id: String,
    pub name: String,
    pub arguments: String,
    /// What the model wants back unchanged with the call, such as the signature of its thought;
    /// null for most.
    pub extra_content: Value,
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
    pub fn set_played(&mut self, number: u64, played: &str) {
        if let Some((text, _)) = self.bot(number) {
            played.trim().clone_into(text);
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

    /// Returns the number of turns, each of which begins with the caller.
    pub fn turns(&self) -> usize {
        self.messages.iter().filter(|message| message.is_caller()).count()
    }

    /// Drops the oldest turns, but never the last one.
    pub fn forget_oldest(&mut self, turns: usize) {
        let start = self.start_behind(turns);
        self.messages.drain(..start);
    }

    /// Drops the last turn.
    pub fn forget_last(&mut self) {
        let last = self.messages.iter().rposition(ChatMessage::is_caller);
        self.messages.truncate(last.unwrap_or_default());
    }

    /// Returns the place of the first message behind so many turns; at most that of the last turn.
    fn start_behind(&self, turns: usize) -> usize {
        let skipped = turns.min(self.turns().saturating_sub(1));
        let is_start = |(at, message): (usize, &ChatMessage)| message.is_caller().then_some(at);
        let mut starts = self.messages.iter().enumerate().filter_map(is_start);
        match skipped {
            0 => 0,
            skipped => starts.nth(skipped).unwrap_or_default(),
        }
    }

    /// Returns the messages behind the instructions, without the oldest `skipped` turns.
    pub fn messages(&self, instructions: &str, skipped: usize) -> Vec<Value> {
        let mut messages = vec![json!({"role": "system", "content": instructions})];
        let mut is_behind_output = false;
        for message in self.messages.range(self.start_behind(skipped)..) {
            if is_behind_output && message.is_caller() {
                messages.push(json!({"role": "assistant", "content": NOTHING_SAID}));
            }
            is_behind_output = matches!(message, ChatMessage::Output { .. });
            messages.push(match message {
                ChatMessage::Caller(text) => json!({"role": "user", "content": text}),
                ChatMessage::Bot { text, calls, .. } if calls.is_empty() => {
                    json!({"role": "assistant", "content": text.trim()})
                }
                ChatMessage::Bot { text, calls, .. } => {
                    let calls: Vec<Value> = calls
                        .iter()
                        .map(|call| {
                            let mut made = json!({"id": call.call_id, "type": "function",
                                "function": {"name": call.name, "arguments": call.arguments}});
                            // Some servers refuse fields that they did not send.
                            if !call.extra_content.is_null() {
                                made["extra_content"] = call.extra_content.clone();
                            }
                            made
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
            // The last turn stays, whatever its length: its texts are bounded one by one.
            let Some(next) = self.messages.iter().skip(1).position(ChatMessage::is_caller) else {
                return;
            };
            self.messages.drain(..=next);
        }
    }
}

impl ChatMessage {
    fn is_caller(&self) -> bool {
        matches!(self, ChatMessage::Caller(_))
    }

    fn bytes(&self) -> usize {
        match self {
            ChatMessage::Caller(text) => text.len(),
            ChatMessage::Bot { text, calls, .. } => {
                let extra = |call: &ChatCall| match &call.extra_content {
                    Value::Null => 0,
                    extra => extra.to_string().len(),
                };
                let calls = calls
                    .iter()
                    .map(|call| call.name.len() + call.arguments.len() + extra(call));
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
            extra_content: Value::Null,
        }
    }

    /// Gemini refuses a call without the signature that it came with.
    #[test]
    fn a_call_goes_back_with_what_came_beside_it() {
        let mut history = ChatHistory::default();
        history.add_caller("What is it?");
        let number = history.begin_bot();
        let extra_content = json!({"google": {"thought_signature": "c2ln"}});
        let before: usize = history.messages.iter().map(ChatMessage::bytes).sum();
        history.add_call(
            number,
            ChatCall {
                extra_content: extra_content.clone(),
                ..call("c")
            },
        );
        let messages = history.messages("", 0);
        let calls = messages.iter().find_map(|message| message.get("tool_calls"));
        assert_eq!(calls.expect("a call")[0]["extra_content"], extra_content);
        let after: usize = history.messages.iter().map(ChatMessage::bytes).sum();
        assert_eq!(after - before, "f{}".len() + extra_content.to_string().len());
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
        history.set_played(answer, "It is 42. ");
        assert_eq!(
            history.messages("Be brief.", 0),
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
    fn an_answer_that_was_not_played_is_removed() {
        let mut history = ChatHistory::default();
        history.add_caller("a");
        let number = history.begin_bot();
        history.push_bot(number, "never heard");
        history.set_played(number, "");
        history.add_caller("b");
        assert_eq!(history.messages("", 0)[1]["content"], "a b");
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
        let messages = history.messages("", 0);
        let kept = messages
            .iter()
            .filter(|message| message["content"] != NOTHING_SAID)
            .count();
        assert!(kept <= 1 + MESSAGES_MAX, "{kept}");
        assert_eq!(messages[1]["role"], "user", "no call without its question");
        assert_eq!(messages.last().expect("the newest")["tool_call_id"], "99");
        history.add_caller(&"x".repeat(2 * TEXT_BYTES_MAX));
        let long = history.begin_bot();
        assert!(history.push_bot(long, &"y".repeat(TEXT_BYTES_MAX)));
        assert!(!history.push_bot(long, "y"));
        history.finish_bot(long);
        assert_eq!(history.messages("", 0).len(), 3, "the last turn stays");
    }

    #[test]
    fn the_caller_never_follows_an_output_directly() {
        let mut history = ChatHistory::default();
        history.add_caller("a");
        let number = history.begin_bot();
        history.add_call(number, call("c"));
        history.add_output("c", "42");
        assert_eq!(
            history.messages("", 0).last().expect("it")["role"],
            "tool",
            "the model goes on"
        );
        history.add_caller("b");
        let roles: Vec<Value> = history
            .messages("", 0)
            .iter()
            .map(|message| message["role"].clone())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    }

    #[test]
    fn turns_can_be_skipped_and_forgotten_at_both_ends() {
        let mut history = ChatHistory::default();
        for turn in ["a", "b", "c"] {
            history.add_caller(turn);
            let number = history.begin_bot();
            history.push_bot(number, "answer");
        }
        let first = |history: &ChatHistory, skipped| history.messages("", skipped)[1]["content"].clone();
        assert_eq!((history.turns(), first(&history, 0)), (3, json!("a")));
        assert_eq!(
            [first(&history, 1), first(&history, 2), first(&history, 9)],
            ["b", "c", "c"]
        );
        history.forget_oldest(1);
        assert_eq!((history.turns(), first(&history, 0)), (2, json!("b")));
        history.forget_last();
        assert_eq!(history.messages("", 0).len(), 3);
        history.forget_oldest(9);
        assert_eq!(history.turns(), 1, "the last turn stays");
        history.forget_last();
        assert_eq!(history.messages("", 1).len(), 1);
        history.forget_last();
    }
}
