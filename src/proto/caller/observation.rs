//! What happens in a call, for the terminal and as JSON lines.
//!
//! In: a [`CallObservation`] and its time since the caller dialled. Out: one line of text, or a
//! JSON object with `time` in seconds, `event`, and its members.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// One observation.
#[derive(Clone, Debug, PartialEq)]
pub enum CallObservation {
    /// Audio can flow.
    Connected,
    /// The bot is ready.
    Ready,
    /// The caller plays a sound.
    CallerStarted(String),
    /// The last sound of the caller's step is over.
    CallerStopped,
    /// The caller pressed a key.
    KeyPressed(char),
    /// The caller sent a text.
    TextSent(String),
    /// The caller sent a message of this type.
    MessageSent(String),
    BotStarted,
    BotStopped,
    /// The bot answers, this long after the caller's sound ended.
    Answered(Duration),
    /// The bot said or showed a text.
    BotText(String),
    /// The bot understood a text.
    CallerText(String),
    /// The bot stopped to speak, because the caller did.
    Interrupted,
    /// Any other message of the bot.
    Message(Value),
    /// The step of a scenario is over, and what it expects has happened.
    StepPassed(String),
    /// The call is over.
    Ended(String),
    /// An expectation is not met.
    Failed(String),
}

impl CallObservation {
    /// Returns the JSON object of the observation.
    pub fn json(&self, call: u64, time: Duration) -> Value {
        let seconds = (time.as_secs_f64() * 1_000.0).round() / 1_000.0;
        let (event, (member, value)) = match self {
            CallObservation::Connected => ("connected", ("", Value::Null)),
            CallObservation::Ready => ("ready", ("", Value::Null)),
            CallObservation::CallerStarted(sound) => ("caller-started", ("sound", json!(sound))),
            CallObservation::CallerStopped => ("caller-stopped", ("", Value::Null)),
            CallObservation::KeyPressed(key) => ("key", ("key", json!(key))),
            CallObservation::TextSent(text) => ("text-sent", ("text", json!(text))),
            CallObservation::MessageSent(kind) => ("message-sent", ("type", json!(kind))),
            CallObservation::BotStarted => ("bot-started", ("", Value::Null)),
            CallObservation::BotStopped => ("bot-stopped", ("", Value::Null)),
            CallObservation::Answered(after) => ("answered", ("after", json!(after.as_secs_f64()))),
            CallObservation::BotText(text) => ("bot-text", ("text", json!(text))),
            CallObservation::CallerText(text) => ("caller-text", ("text", json!(text))),
            CallObservation::Interrupted => ("interrupted", ("", Value::Null)),
            CallObservation::Message(message) => ("message", ("message", message.clone())),
            CallObservation::StepPassed(step) => ("step-passed", ("step", json!(step))),
            CallObservation::Ended(reason) => ("ended", ("reason", json!(reason))),
            CallObservation::Failed(why) => ("failed", ("reason", json!(why))),
        };
        let mut object = json!({"call": call, "time": seconds, "event": event});
        if !member.is_empty() {
            object[member] = value;
        }
        object
    }

    /// Returns whether the terminal shows it.
    pub fn is_shown(&self) -> bool {
        !matches!(self, CallObservation::Message(_) | CallObservation::CallerStopped)
    }
}

impl fmt::Display for CallObservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallObservation::Connected => f.write_str("connected"),
            CallObservation::Ready => f.write_str("the bot is ready"),
            CallObservation::CallerStarted(sound) => write!(f, "caller plays {sound}"),
            CallObservation::CallerStopped => f.write_str("caller is silent"),
            CallObservation::KeyPressed(key) => write!(f, "caller presses {key}"),
            CallObservation::TextSent(text) => write!(f, "caller: {}", one_line(text)),
            CallObservation::MessageSent(kind) => write!(f, "caller sends {}", one_line(kind)),
            CallObservation::BotStarted => f.write_str("bot speaks"),
            CallObservation::BotStopped => f.write_str("bot is silent"),
            CallObservation::Answered(after) => write!(f, "bot answers after {:.2} s", after.as_secs_f64()),
            CallObservation::BotText(text) => write!(f, "bot: {}", one_line(text)),
            CallObservation::CallerText(text) => write!(f, "bot understands: {}", one_line(text)),
            CallObservation::Interrupted => f.write_str("bot was interrupted"),
            CallObservation::Message(message) => write!(f, "message: {message}"),
            CallObservation::StepPassed(step) => write!(f, "passed: {}", one_line(step)),
            CallObservation::Ended(reason) => write!(f, "ended: {}", one_line(reason)),
            CallObservation::Failed(why) => write!(f, "FAILED: {}", one_line(why)),
        }
    }
}

/// Returns a text of the peer without control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_lines_and_objects() {
        let at = Duration::from_micros(1_234_567);
        let text = CallObservation::BotText("a\x1b[2J\nb".into());
        assert_eq!(text.to_string(), "bot: a [2J b");
        assert_eq!(
            text.json(3, at),
            json!({"call": 3, "time": 1.235, "event": "bot-text", "text": "a\x1b[2J\nb"})
        );
        assert_eq!(
            CallObservation::Connected.json(1, Duration::ZERO),
            json!({"call": 1, "time": 0.0, "event": "connected"})
        );
        let answered = CallObservation::Answered(Duration::from_millis(420));
        assert_eq!(answered.to_string(), "bot answers after 0.42 s");
        assert_eq!(answered.json(1, at)["after"], 0.42);
        assert!(text.is_shown() && !CallObservation::Message(json!({})).is_shown());
    }
}
