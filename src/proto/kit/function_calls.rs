//! Calls of functions by a model: exactly one output for each call, never silence.
//!
//! In: calls, results, the ends of the model's messages, and the time. Out: outputs for the model,
//! and whether it should go on: once a message is done and all its calls are answered. Invalid
//! arguments, late results and results that are too long become errors as outputs.

use std::time::Instant;

use serde_json::{Value, json};

use crate::limits::{FUNCTION_CALLS_MAX, FUNCTION_OUTPUT_BYTES_MAX};

/// Calls that are known at a time, answered or not, until their message is done: of more, those
/// that were answered first are forgotten.
const KNOWN_MAX: usize = 4 * FUNCTION_CALLS_MAX;

/// The calls of a conversation. `T` is a note of the bot's own on each call.
///
/// ```
/// use std::time::{Duration, Instant};
/// use serde_json::json;
/// # use edge_runner_proto::kit::FunctionCalls;
///
/// # let now = Instant::now();
/// let mut calls = FunctionCalls::new();
/// let until = now + Duration::from_secs(10);
/// // The model calls a function in its message `m1`, and ends the message.
/// let arguments = calls.start("m1", "c1", "weather", r#"{"city": "Linz"}"#, (), until);
/// assert_eq!(arguments, Some(Ok(json!({"city": "Linz"}))));
/// assert!(!calls.message_done("m1").wants_answer);
/// // What runs the function has a result: the model gets it, and goes on.
/// let given = calls.finish("c1", &json!({"degrees": 21}));
/// assert_eq!(given.outputs[0].output, r#"{"degrees":21}"#);
/// assert!(given.wants_answer);
/// ```
pub struct FunctionCalls<T = ()> {
    calls: Vec<WaitingCall<T>>,
    /// Messages that are done while calls of theirs wait.
    done: Vec<String>,
}

struct WaitingCall<T> {
    call_id: String,
    message_id: String,
    name: String,
    note: T,
    /// `None` once it is answered.
    until: Option<Instant>,
}

/// The output of one call, for the model.
#[derive(Clone, PartialEq, Eq)]
pub struct FunctionOutput<T = ()> {
    /// The model's id of the call.
    pub call_id: String,
    /// The name of the function.
    pub name: String,
    /// The result as text: a string as it is, anything else as JSON.
    pub output: String,
    /// Whether it is an error in the place of a result.
    pub is_error: bool,
    /// The note that came with the call.
    pub note: T,
}

impl<T> std::fmt::Debug for FunctionOutput<T> {
    /// Omits the output, which can hold what a caller said.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionOutput")
            .field("name", &self.name)
            .field("is_error", &self.is_error)
            .finish_non_exhaustive()
    }
}

/// What follows from an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionOutputs<T = ()> {
    /// The outputs, in the order in which they are sent to the model.
    pub outputs: Vec<FunctionOutput<T>>,
    /// Whether the model should go on: a message and all its calls are complete.
    pub wants_answer: bool,
}

impl<T> Default for FunctionOutputs<T> {
    fn default() -> Self {
        FunctionOutputs {
            outputs: Vec::new(),
            wants_answer: false,
        }
    }
}

impl<T> Default for FunctionCalls<T> {
    fn default() -> Self {
        FunctionCalls {
            calls: Vec::new(),
            done: Vec::new(),
        }
    }
}

impl<T: Copy> FunctionCalls<T> {
    /// Creates a conversation without calls.
    pub fn new() -> Self {
        FunctionCalls::default()
    }

    /// Forgets all calls.
    pub fn clear(&mut self) {
        self.calls.clear();
        self.done.clear();
    }

    /// Returns whether a call is known, answered or not.
    pub fn contains(&self, call_id: &str) -> bool {
        self.calls.iter().any(|call| call.call_id == call_id)
    }

    /// Begins a call in the model's message `message_id`. Returns the arguments, a JSON object, for
    /// what runs the function until `until`; or the output that tells the model why it is not run;
    /// or `None` for a call that is known already.
    ///
    /// Empty arguments are an empty object. At most 16 calls wait at once.
    pub fn start(
        &mut self,
        message_id: &str,
        call_id: &str,
        name: &str,
        arguments: &str,
        note: T,
        until: Instant,
    ) -> Option<Result<Value, FunctionOutput<T>>> {
        if self.contains(call_id) {
            return None;
        }
        let parsed = match arguments.trim() {
            "" => Some(json!({})),
            text => serde_json::from_str(text).ok().filter(Value::is_object),
        };
        let error = match &parsed {
            None => "the arguments are no JSON object",
            Some(_) if self.calls.len() >= FUNCTION_CALLS_MAX => "too many functions at once",
            Some(_) => "",
        };
        if !error.is_empty() {
            return Some(Err(self.refuse(message_id, call_id, name, note, error)));
        }
        self.push(message_id, call_id, name, note, Some(until));
        parsed.map(Ok)
    }

    /// Records a call that is not run, and returns the output that tells the model why.
    pub fn refuse(&mut self, message_id: &str, call_id: &str, name: &str, note: T, error: &str) -> FunctionOutput<T> {
        self.push(message_id, call_id, name, note, None);
        FunctionOutput {
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            output: json!({"error": error}).to_string(),
            is_error: true,
            note,
        }
    }

    fn push(&mut self, message_id: &str, call_id: &str, name: &str, note: T, until: Option<Instant>) {
        // At most `FUNCTION_CALLS_MAX` wait, so an answered one is there.
        if self.calls.len() == KNOWN_MAX
            && let Some(at) = self.calls.iter().position(|call| call.until.is_none())
        {
            self.calls.remove(at);
        }
        self.calls.push(WaitingCall {
            call_id: call_id.to_owned(),
            message_id: message_id.to_owned(),
            name: name.to_owned(),
            note,
            until,
        });
    }

    /// The result of a call that waits. Results of other calls are ignored.
    pub fn finish(&mut self, call_id: &str, result: &Value) -> FunctionOutputs<T> {
        self.finish_if(call_id, result, |_| true)
    }

    /// The same, if the note of the call allows it.
    pub fn finish_if(&mut self, call_id: &str, result: &Value, allows: impl Fn(T) -> bool) -> FunctionOutputs<T> {
        let output = match result {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_error = output.len() > FUNCTION_OUTPUT_BYTES_MAX;
        let output = match is_error {
            true => json!({"error": "the result is too long"}).to_string(),
            false => output,
        };
        let mut waiting = self.calls.iter_mut().filter(|call| call.until.is_some());
        let Some(call) = waiting.find(|call| call.call_id == call_id && allows(call.note)) else {
            return FunctionOutputs::default();
        };
        call.until = None;
        let given = FunctionOutput {
            call_id: call.call_id.clone(),
            name: call.name.clone(),
            output,
            is_error,
            note: call.note,
        };
        self.answered(vec![given])
    }

    /// Answers those of the waiting calls with an error whose notes are chosen.
    pub fn fail(&mut self, error: &str, chosen: impl Fn(T) -> bool) -> FunctionOutputs<T> {
        let outputs = self.give_up(error, |call| chosen(call.note));
        self.answered(outputs)
    }

    /// A message of the model is done: no further call of it follows.
    pub fn message_done(&mut self, message_id: &str) -> FunctionOutputs<T> {
        let is_known = self.done.iter().any(|done| done == message_id);
        if !is_known && self.calls.iter().any(|call| call.message_id == message_id) {
            self.done.push(message_id.to_owned());
        }
        self.answered(Vec::new())
    }

    /// Returns whether a call waits whose note is chosen.
    pub fn is_waiting(&self, chosen: impl Fn(T) -> bool) -> bool {
        self.calls.iter().any(|call| call.until.is_some() && chosen(call.note))
    }

    /// Returns when to call [`FunctionCalls::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.calls.iter().filter_map(|call| call.until).min()
    }

    /// Answers calls that have waited too long with an error.
    pub fn handle_timeout(&mut self, now: Instant) -> FunctionOutputs<T> {
        let is_late = |call: &WaitingCall<T>| call.until.is_some_and(|until| now >= until);
        let outputs = self.give_up("no result in time", is_late);
        match outputs.is_empty() {
            true => FunctionOutputs::default(),
            false => self.answered(outputs),
        }
    }

    fn give_up(&mut self, error: &str, which: impl Fn(&WaitingCall<T>) -> bool) -> Vec<FunctionOutput<T>> {
        let waiting = self.calls.iter_mut().filter(|call| call.until.is_some());
        waiting
            .filter(|call| which(call))
            .map(|call| {
                call.until = None;
                FunctionOutput {
                    call_id: call.call_id.clone(),
                    name: call.name.clone(),
                    output: json!({"error": error}).to_string(),
                    is_error: true,
                    note: call.note,
                }
            })
            .collect()
    }

    /// Returns the outputs, and whether a message is complete with them.
    fn answered(&mut self, outputs: Vec<FunctionOutput<T>>) -> FunctionOutputs<T> {
        let calls = &mut self.calls;
        let mut wants_answer = false;
        self.done.retain(|message_id| {
            let mut of_message = calls.iter().filter(|call| call.message_id == *message_id);
            let waits = of_message.any(|call| call.until.is_some());
            if !waits {
                calls.retain(|call| call.message_id != *message_id);
                wants_answer = true;
            }
            waits
        });
        FunctionOutputs { outputs, wants_answer }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    #[allow(clippy::disallowed_methods, reason = "a base for the times of a test")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn the_model_goes_on_when_a_message_and_its_calls_are_complete() {
        let (mut calls, until) = (FunctionCalls::new(), now() + WITHIN);
        for call_id in ["a", "b"] {
            let started = calls.start("m", call_id, "f", r#"{"x":1}"#, (), until);
            assert_eq!(started, Some(Ok(json!({"x": 1}))));
        }
        assert_eq!(calls.start("m", "a", "f", "", (), until), None, "it is known");
        let first = calls.finish("a", &json!({"ok": 1}));
        assert_eq!(
            (first.outputs[0].output.as_str(), first.wants_answer),
            (r#"{"ok":1}"#, false)
        );
        assert!(!calls.message_done("m").wants_answer && calls.is_waiting(|()| true));
        let second = calls.finish("b", &json!("text"));
        assert_eq!((second.outputs[0].output.as_str(), second.wants_answer), ("text", true));
        assert_eq!(calls.finish("b", &json!("again")), FunctionOutputs::default());
        assert!(!calls.contains("b") && calls.poll_timeout().is_none());
        assert!(!calls.message_done("without calls").wants_answer);
    }

    #[test]
    fn every_call_gets_an_output() {
        let (mut calls, start) = (FunctionCalls::new(), now());
        let refused = |started: Option<Result<Value, FunctionOutput<u8>>>| {
            let output = started.expect("new").expect_err("refused");
            assert!(output.is_error);
            output.output
        };
        for (call_id, arguments) in [("a", "{"), ("b", "[]")] {
            let started = calls.start("m", call_id, "f", arguments, 0, start + WITHIN);
            assert!(refused(started).contains("no JSON object"));
        }
        assert_eq!(calls.start("m", "c", "f", " ", 1, start + WITHIN), Some(Ok(json!({}))));
        assert_eq!(calls.poll_timeout(), Some(start + WITHIN));
        assert_eq!(calls.handle_timeout(start), FunctionOutputs::default());
        let late = calls.handle_timeout(start + WITHIN);
        assert!(late.outputs[0].call_id == "c" && late.outputs[0].output.contains("in time"));
        calls.start("m", "d", "f", "", 2, start + WITHIN);
        let long = json!("x".repeat(FUNCTION_OUTPUT_BYTES_MAX + 1));
        let forged = calls.finish_if("d", &json!(1), |note| note != 2);
        assert_eq!(forged, FunctionOutputs::default());
        assert!(calls.finish("d", &long).outputs[0].output.contains("too long"));
        calls.start("m", "e", "f", "", 3, start + WITHIN);
        calls.start("m", "g", "f", "", 4, start + WITHIN);
        let gone = calls.fail("gone", |note| note == 4);
        assert_eq!((gone.outputs.len(), gone.outputs[0].note), (1, 4));
        calls.finish("e", &json!(null));
        assert!(calls.message_done("m").wants_answer);
        for number in 0..FUNCTION_CALLS_MAX {
            let started = calls.start("n", &number.to_string(), "f", "", 0, start);
            assert!(started.is_some_and(|started| started.is_ok()));
        }
        assert!(refused(calls.start("n", "one more", "f", "", 0, start)).contains("too many"));
        calls.clear();
        assert!(!calls.contains("0"));
    }

    /// A model that ends no message, or one message again and again, makes nothing grow.
    #[test]
    fn what_is_kept_of_calls_is_bounded() {
        let (mut calls, until) = (FunctionCalls::new(), now() + WITHIN);
        calls.start("m", "first", "f", "", (), until);
        for number in 0..10 * KNOWN_MAX {
            assert!(calls.refuse("m", &number.to_string(), "f", (), "no").is_error);
            calls.message_done("m");
            assert!(calls.calls.len() <= KNOWN_MAX && calls.done.len() == 1);
        }
        assert!(calls.contains("first"), "one that waits is kept");
        assert!(calls.finish("first", &json!(1)).wants_answer);
        assert!(calls.calls.is_empty() && calls.done.is_empty());
    }

    #[test]
    fn outputs_are_not_in_debug_output() {
        let output = FunctionCalls::new().refuse("m", "c", "f", (), "hunter2");
        assert!(!format!("{output:?}").contains("hunter2"));
    }
}
