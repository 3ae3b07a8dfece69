//! The expectations of one step of a scenario, and whether they hold.
//!
//! In: a [`CheckedStep`], what the bot says and sends since the step began, the turns of speech,
//! and `now`. Out: nothing while the step waits, then success or a sentence with what was expected
//! and what there was instead. Time counts from the end of what the caller does in the step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::turns::{SPEECH_MIN, SpeechTurns};
use super::words::{BOT_TEXTS, SaidTexts, WordPattern};

/// What the bot has to do in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedStep {
    pub name: String,
    /// The file and the line.
    pub place: String,
    /// How long the step waits.
    pub within: Duration,
    /// Texts of the bot, in any order.
    pub texts: Vec<WordPattern>,
    /// Texts that the bot must not say.
    pub absent_texts: Vec<WordPattern>,
    /// What the bot understands from the caller.
    pub caller_texts: Vec<WordPattern>,
    /// Messages of the bot: each has at least these members.
    pub events: Vec<Value>,
    /// The bot makes a sound, or none.
    pub speech: Option<bool>,
    /// The longest time from the end of the caller's sound to the answer.
    pub latency: Option<Duration>,
    /// How long the bot is quiet at the end of the step.
    pub silence: Option<Duration>,
    pub end: Option<ExpectedEnd>,
}

/// The bot ends the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedEnd {
    /// Words of its reason.
    pub reason: Option<WordPattern>,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    Passed,
    /// What was expected, and what there was.
    Failed(String),
    /// An earlier step failed.
    Skipped,
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepResult {
    pub outcome: StepOutcome,
    pub lasted: Duration,
}

/// What happens during one step.
#[derive(Debug)]
pub struct StepWatch {
    step: Option<Arc<CheckedStep>>,
    began: Instant,
    /// When the caller had done its part.
    waits_since: Option<Instant>,
    texts: SaidTexts,
    caller_texts: SaidTexts,
    /// For each expected message, whether it came.
    events: Vec<bool>,
    spoke_before: Duration,
    latencies_before: usize,
}

impl StepWatch {
    /// Begins a step.
    pub fn new(step: Option<Arc<CheckedStep>>, turns: &SpeechTurns, now: Instant) -> StepWatch {
        let events = step.as_ref().map_or(0, |step| step.events.len());
        StepWatch {
            step,
            began: now,
            waits_since: None,
            texts: SaidTexts::default(),
            caller_texts: SaidTexts::default(),
            events: vec![false; events],
            spoke_before: turns.bot_spoke(),
            latencies_before: turns.latencies().len(),
        }
    }

    /// Returns the step; `None` without one.
    pub fn step(&self) -> Option<&Arc<CheckedStep>> {
        self.step.as_ref()
    }

    pub fn began(&self) -> Instant {
        self.began
    }

    /// Handles a text that the bot has said or shown.
    pub fn handle_text(&mut self, text: &str) {
        if self.step.is_some() {
            self.texts.push(text);
        }
    }

    /// Handles a text that the bot has understood.
    pub fn handle_caller_text(&mut self, text: &str) {
        if self.step.is_some() {
            self.caller_texts.push(text);
        }
    }

    /// Handles a message of the bot.
    pub fn handle_message(&mut self, message: &str) {
        let Some(step) = self.step.as_ref().filter(|step| !step.events.is_empty()) else {
            return;
        };
        if let Ok(message) = serde_json::from_str::<Value>(message) {
            for (event, came) in step.events.iter().zip(&mut self.events) {
                *came |= has_members(&message, event);
            }
        }
    }

    /// Checks the step, whose caller has done its part. The bot was quiet since `quiet_since`.
    /// Returns `None` while it waits.
    pub fn check(
        &mut self,
        turns: &SpeechTurns,
        quiet_since: Option<Instant>,
        now: Instant,
    ) -> Option<Result<(), String>> {
        let step = self.step.clone()?;
        let waits_since = *self.waits_since.get_or_insert(now);
        if let Some(violation) = self.violation(&step, turns, now) {
            return Some(Err(violation));
        }
        let mut missing = self.missing(&step, turns);
        if let Some(silence) = step.silence
            && (turns.is_bot_speaking() || now < quiet_since.map_or(waits_since, |at| at.max(waits_since)) + silence)
        {
            missing.push(format!("the bot was not quiet for {} s", silence.as_secs_f64()));
        }
        if step.end.is_some() {
            missing.push("the bot did not hang up".into());
        }
        if missing.is_empty() {
            return Some(Ok(()));
        }
        let is_over = now >= waits_since + step.within;
        is_over.then(|| {
            Err(format!(
                "within {} s: {}",
                step.within.as_secs_f64(),
                missing.join("; ")
            ))
        })
    }

    /// Checks the step at the end of the call by the bot.
    ///
    /// # Errors
    /// What was expected.
    pub fn check_end(&self, reason: &str, turns: &SpeechTurns, now: Instant) -> Result<(), String> {
        let Some(step) = &self.step else {
            return Ok(());
        };
        let quoted = match reason {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let mut failures = Vec::from_iter(self.violation(step, turns, now));
        match &step.end {
            None => failures.push(format!("the bot hung up{quoted}")),
            Some(ExpectedEnd { reason: Some(words) }) if !words.matches(reason) => {
                failures.push(format!(
                    "no reason of the end matches `{words}`: the bot hung up{quoted}"
                ));
            }
            Some(_) => {}
        }
        failures.extend(self.missing(step, turns));
        match failures.is_empty() {
            true => Ok(()),
            false => Err(failures.join("; ")),
        }
    }

    /// Returns what the step still waits for, at an end that is not the bot's.
    pub fn unmet(&self, turns: &SpeechTurns) -> Vec<String> {
        self.step
            .as_ref()
            .map_or_else(Vec::new, |step| self.missing(step, turns))
    }

    /// Returns what must not happen, and did.
    fn violation(&self, step: &CheckedStep, turns: &SpeechTurns, now: Instant) -> Option<String> {
        let mut absent = step.absent_texts.iter();
        if let Some(words) = absent.find(|words| self.texts.contain(words)) {
            return Some(format!("a text matches `{words}`: {}", self.texts.quoted(BOT_TEXTS)));
        }
        let spoke = self.spoke(turns);
        if step.speech == Some(false) && !spoke.is_zero() {
            return Some("the bot spoke".into());
        }
        let longest = step.latency?;
        let longest_s = longest.as_secs_f64();
        match self.latency(turns) {
            Some(latency) if latency > longest => Some(format!(
                "the answer began {:.2} s after the caller's sound, which is more than {longest_s} s",
                latency.as_secs_f64()
            )),
            None if turns.unanswered_since().is_some_and(|ended| now > ended + longest) => {
                Some(format!("no answer within {longest_s} s after the caller's sound"))
            }
            _ => None,
        }
    }

    /// Returns what has not happened yet, but silence and the end.
    fn missing(&self, step: &CheckedStep, turns: &SpeechTurns) -> Vec<String> {
        let mut missing = Vec::new();
        for words in step.texts.iter().filter(|words| !self.texts.contain(words)) {
            missing.push(format!("no text matches `{words}`: {}", self.texts.quoted(BOT_TEXTS)));
        }
        let caller_texts = step.caller_texts.iter();
        for words in caller_texts.filter(|words| !self.caller_texts.contain(words)) {
            let understood = self.caller_texts.quoted("its texts of the caller");
            missing.push(format!(
                "the bot understood nothing that matches `{words}`: {understood}"
            ));
        }
        for (event, _) in step.events.iter().zip(&self.events).filter(|(_, came)| !**came) {
            missing.push(format!("no message has {event}"));
        }
        let spoke = self.spoke(turns);
        if step.speech == Some(true) && spoke < SPEECH_MIN {
            missing.push(format!(
                "no speech of the bot: {:.2} s of sound, of at least {:.1} s",
                spoke.as_secs_f64(),
                SPEECH_MIN.as_secs_f64()
            ));
        }
        if step.latency.is_some() && self.latency(turns).is_none() {
            missing.push("the caller's sound has no answer".into());
        }
        missing
    }

    fn spoke(&self, turns: &SpeechTurns) -> Duration {
        turns.bot_spoke().saturating_sub(self.spoke_before)
    }

    /// Returns the latency of the answer to the sound of this step.
    fn latency(&self, turns: &SpeechTurns) -> Option<Duration> {
        turns.latencies().get(self.latencies_before..)?.first().copied()
    }
}

/// Returns whether a message has at least these members.
fn has_members(message: &Value, expected: &Value) -> bool {
    match (message, expected) {
        (Value::Object(message), Value::Object(expected)) => expected.iter().all(|(name, expected)| {
            let member = message.get(name);
            member.is_some_and(|member| has_members(member, expected))
        }),
        // 2 and 2.0 are the same number.
        (Value::Number(message), Value::Number(expected)) => message.as_f64() == expected.as_f64(),
        _ => message == expected,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_may_have_more_than_the_expected_members() {
        let message = json!({"type": "server-message", "data": {"topic": "seats", "n": 2.0, "list": [1, 2]}});
        for (expected, holds) in [
            (json!({"type": "server-message"}), true),
            (json!({"data": {"topic": "seats", "n": 2}}), true),
            (json!({"data": {"list": [1, 2]}}), true),
            (json!({"data": {"list": [1]}}), false),
            (json!({"data": {"topic": "seat"}}), false),
            (json!({"data": {"other": 1}}), false),
            (json!({"data": "seats"}), false),
        ] {
            assert_eq!(has_members(&message, &expected), holds, "{expected}");
        }
    }
}
