//! Functions that the model calls: on the client's page, of the operator's program or endpoint, and
//! `end_call`, which is built in.
//!
//! In: calls, results, the ends of responses, and the time. Out: one output per call, never
//! silence, and whether the model should go on: once all calls of a response are answered and the
//! response is done. Results that are late or too long become errors.

use std::time::Instant;

use serde_json::{Value, json};

use super::tools::{BUILT_IN, END_CALL};
use crate::assistant::report::FunctionCall;
use crate::limits::{FUNCTION_CALLS_MAX, FUNCTION_OUTPUT_BYTES_MAX, FUNCTION_WITHIN};

/// Returns the declared functions: those of the page in the configuration, of the operator's
/// program or endpoint, of the body, and the built-in one. Of two with one name the first counts.
pub fn declared(of_page: &[Value], of_tools: &[Value], of_body: &[Value], can_hang_up: bool) -> Vec<Value> {
    let mut tools: Vec<Value> = Vec::new();
    for tool in of_page.iter().chain(of_tools).chain(of_body) {
        let name = tool["name"].as_str();
        let is_taken = |name| BUILT_IN.contains(&name) || tools.iter().any(|tool| tool["name"] == name);
        if !name.is_some_and(is_taken) {
            tools.push(tool.clone());
        }
    }
    if can_hang_up {
        tools.push(json!({
            "type": "function",
            "name": END_CALL,
            "description": "Ends the call. Say goodbye first.",
            "parameters": {"type": "object", "properties": {}},
        }));
    }
    tools
}

/// What runs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionHost {
    /// The client's page.
    Page,
    /// The program or endpoint of `--tools`.
    Tools,
    BuiltIn,
}

impl FunctionCall {
    /// Returns the call as a client may see it: what the operator's functions get is not for
    /// clients.
    pub fn for_client(&self, host: FunctionHost) -> FunctionCall {
        let mut call = self.clone();
        if host != FunctionHost::Page {
            call.arguments = Value::Null;
        }
        call
    }
}

/// A call of the model.
#[derive(Debug)]
struct PendingCall {
    call_id: String,
    response_id: String,
    name: String,
    host: FunctionHost,
    until: Instant,
    is_answered: bool,
}

/// The output of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionAnswer {
    pub call_id: String,
    pub name: String,
    pub output: String,
    /// Whether the client was told of the call.
    pub is_told: bool,
    pub is_cancelled: bool,
}

/// What follows from an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    pub outputs: Vec<FunctionAnswer>,
    pub wants_response: bool,
}

/// What follows from a call.
#[derive(Debug, Default)]
pub struct Called {
    /// The call, for what runs it.
    pub started: Option<(FunctionCall, FunctionHost)>,
    pub ends_call: bool,
    pub answers: Answers,
}

/// The calls of a session.
#[derive(Debug, Default)]
pub struct Functions {
    names: Vec<(String, FunctionHost)>,
    calls: Vec<PendingCall>,
    /// Responses that are done while calls of theirs wait.
    done: Vec<String>,
}

impl Functions {
    /// Creates the functions of [`declared`], some of which are the operator's.
    pub fn new(tools: &[Value], of_tools: &[Value]) -> Self {
        let names = tools.iter().filter_map(|tool| tool["name"].as_str());
        let with_host = |name: &str| {
            let host = if BUILT_IN.contains(&name) {
                FunctionHost::BuiltIn
            } else if of_tools.iter().any(|tool| tool["name"] == name) {
                FunctionHost::Tools
            } else {
                FunctionHost::Page
            };
            (name.to_owned(), host)
        };
        Functions {
            names: names.map(with_host).collect(),
            ..Functions::default()
        }
    }

    /// Forgets all calls, with their connection.
    pub fn clear(&mut self) {
        self.calls.clear();
        self.done.clear();
    }

    /// Handles a call; `None` if it is a repetition.
    pub fn handle_call(
        &mut self,
        response_id: String,
        call_id: String,
        name: String,
        arguments: &str,
        has_page: bool,
        now: Instant,
    ) -> Option<Called> {
        if self.calls.iter().any(|call| call.call_id == call_id) {
            return None;
        }
        let parsed = match arguments.trim() {
            "" => Some(json!({})),
            text => serde_json::from_str(text).ok().filter(Value::is_object),
        };
        let known = self.names.iter().find(|(known, _)| *known == name);
        let host = known.map_or(FunctionHost::BuiltIn, |(_, host)| *host);
        let error = if known.is_none() {
            Some("there is no such function")
        } else if parsed.is_none() {
            Some("the arguments are no JSON object")
        } else if host == FunctionHost::Page && !has_page {
            Some("this caller cannot run functions")
        } else if self.calls.len() >= FUNCTION_CALLS_MAX {
            Some("too many functions at once")
        } else {
            None
        };
        self.calls.push(PendingCall {
            call_id: call_id.clone(),
            response_id,
            name: name.clone(),
            host,
            until: now + FUNCTION_WITHIN,
            is_answered: error.is_some() || host == FunctionHost::BuiltIn,
        });
        let output = match (error, host) {
            (Some(error), _) => json!({"error": error}),
            (None, FunctionHost::BuiltIn) => json!({"ok": true}),
            (None, host) => {
                let call = FunctionCall {
                    call_id,
                    name,
                    arguments: parsed.unwrap_or_default(),
                };
                return Some(Called {
                    started: Some((call, host)),
                    ..Called::default()
                });
            }
        };
        let answer = FunctionAnswer {
            call_id,
            name,
            output: output.to_string(),
            is_told: false,
            is_cancelled: false,
        };
        Some(Called {
            started: None,
            ends_call: error.is_none(),
            answers: Answers {
                outputs: vec![answer],
                wants_response: false,
            },
        })
    }

    /// Handles the result of what runs the function: an object or a string.
    pub fn handle_result(&mut self, host: FunctionHost, call_id: &str, result: &Value) -> Answers {
        let output = match result {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let (output, is_cancelled) = match output.len() <= FUNCTION_OUTPUT_BYTES_MAX {
            true => (output, false),
            false => (json!({"error": "the result is too long"}).to_string(), true),
        };
        let call = self
            .calls
            .iter_mut()
            .find(|call| call.call_id == call_id && call.host == host && !call.is_answered);
        let Some(call) = call else { return Answers::default() };
        call.is_answered = true;
        let answer = FunctionAnswer {
            call_id: call.call_id.clone(),
            name: call.name.clone(),
            output,
            is_told: true,
            is_cancelled,
        };
        self.answers(vec![answer])
    }

    /// A response is done.
    pub fn handle_response_done(&mut self, response_id: &str) -> Answers {
        if self.calls.iter().any(|call| call.response_id == response_id) {
            self.done.push(response_id.to_owned());
        }
        self.answers(Vec::new())
    }

    /// Gives up all calls, since the answer that they belong to is dropped.
    pub fn abort(&mut self) -> Vec<FunctionAnswer> {
        self.done.clear();
        let calls = std::mem::take(&mut self.calls);
        let waiting = calls.into_iter().filter(|call| !call.is_answered);
        waiting
            .map(|call| FunctionAnswer {
                call_id: call.call_id,
                name: call.name,
                output: json!({"error": "the caller interrupted"}).to_string(),
                is_told: true,
                is_cancelled: true,
            })
            .collect()
    }

    /// Returns whether a call waits.
    pub fn is_waiting(&self) -> bool {
        self.calls.iter().any(|call| !call.is_answered)
    }

    /// Returns when a call has waited too long.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.calls.iter().filter(|call| !call.is_answered);
        waiting.map(|call| call.until).min()
    }

    /// Gives up calls that have waited too long.
    pub fn handle_timeout(&mut self, now: Instant) -> Answers {
        let late = self
            .calls
            .iter_mut()
            .filter(|call| !call.is_answered && now >= call.until);
        let outputs: Vec<FunctionAnswer> = late
            .map(|call| {
                call.is_answered = true;
                FunctionAnswer {
                    call_id: call.call_id.clone(),
                    name: call.name.clone(),
                    output: json!({"error": "no result in time"}).to_string(),
                    is_told: true,
                    is_cancelled: true,
                }
            })
            .collect();
        match outputs.is_empty() {
            true => Answers::default(),
            false => self.answers(outputs),
        }
    }

    /// Returns the outputs, and whether a response is complete with them.
    fn answers(&mut self, outputs: Vec<FunctionAnswer>) -> Answers {
        let calls = &mut self.calls;
        let mut wants_response = false;
        self.done.retain(|response_id| {
            let waits = calls
                .iter()
                .any(|call| call.response_id == *response_id && !call.is_answered);
            if !waits {
                calls.retain(|call| call.response_id != *response_id);
                wants_response = true;
            }
            waits
        });
        Answers {
            outputs,
            wants_response,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions() -> Functions {
        let of_tools = [json!({"type": "function", "name": "t"})];
        let of_body = [json!({"type": "function", "name": "f"})];
        Functions::new(&declared(&[], &of_tools, &of_body, true), &of_tools)
    }

    fn call(functions: &mut Functions, call_id: &str, name: &str, arguments: &str, now: Instant) -> Called {
        functions
            .handle_call("r".into(), call_id.into(), name.into(), arguments, true, now)
            .expect("it is new")
    }

    #[test]
    fn the_model_goes_on_when_all_calls_are_answered_and_the_response_is_done() {
        let (mut functions, now) = (functions(), Instant::now());
        for call_id in ["a", "b"] {
            let called = call(&mut functions, call_id, "f", r#"{"x":1}"#, now);
            let (call, host) = called.started.expect("it runs");
            assert_eq!((call.arguments, host), (json!({"x": 1}), FunctionHost::Page));
        }
        let repeated = functions.handle_call("r".into(), "a".into(), "f".into(), "", true, now);
        assert!(repeated.is_none(), "two events tell of the same call");
        let first = functions.handle_result(FunctionHost::Page, "a", &json!({"ok": 1}));
        assert_eq!(
            (first.outputs[0].output.as_str(), first.wants_response),
            (r#"{"ok":1}"#, false)
        );
        assert!(!functions.handle_response_done("r").wants_response);
        assert!(
            functions
                .handle_result(FunctionHost::Page, "b", &json!("text"))
                .wants_response
        );
        assert_eq!(
            functions.handle_result(FunctionHost::Page, "b", &json!("again")),
            Answers::default()
        );
    }

    #[test]
    fn every_call_gets_an_output() {
        let (mut functions, now) = (functions(), Instant::now());
        for (call_id, name, arguments, words) in [
            ("a", "g", "{}", "no such function"),
            ("b", "f", "{", "no JSON object"),
            ("c", "f", "[]", "no JSON object"),
        ] {
            let called = call(&mut functions, call_id, name, arguments, now);
            assert!(called.answers.outputs[0].output.contains(words));
        }
        let without_page = functions.handle_call("r".into(), "d".into(), "f".into(), "", false, now);
        assert!(
            without_page.expect("new").answers.outputs[0]
                .output
                .contains("cannot run")
        );
        call(&mut functions, "e", "f", "", now);
        assert_eq!(functions.poll_timeout(), Some(now + FUNCTION_WITHIN));
        let late = functions.handle_timeout(now + FUNCTION_WITHIN);
        assert!(late.outputs[0].is_cancelled && late.outputs[0].call_id == "e");
        let long = json!("x".repeat(FUNCTION_OUTPUT_BYTES_MAX + 1));
        call(&mut functions, "g", "f", "", now);
        assert!(
            functions.handle_result(FunctionHost::Page, "g", &long).outputs[0]
                .output
                .contains("too long")
        );
        assert!(functions.handle_response_done("r").wants_response);
    }

    #[test]
    fn functions_of_the_operator_run_without_a_page_and_only_there() {
        let (mut functions, now) = (functions(), Instant::now());
        let called = functions.handle_call("r".into(), "a".into(), "t".into(), "{}", false, now);
        let (_, host) = called.expect("new").started.expect("it runs");
        assert_eq!(host, FunctionHost::Tools);
        let of_client = functions.handle_result(FunctionHost::Page, "a", &json!("forged"));
        assert_eq!(of_client, Answers::default());
        let answers = functions.handle_result(FunctionHost::Tools, "a", &json!({"y": 1}));
        assert_eq!(answers.outputs[0].output, r#"{"y":1}"#);
        assert!(functions.handle_response_done("r").wants_response);
    }

    #[test]
    fn a_body_cannot_replace_functions() {
        let session = json!({"tools": [{"type": "function", "name": "a"}, {"type": "mcp", "server_label": "m"}]});
        let body = [
            json!({"name": "a", "x": 1}),
            json!({"name": "t", "x": 1}),
            json!({"name": END_CALL, "x": 1}),
        ];
        let tools = declared(
            session["tools"].as_array().expect("a list"),
            &[json!({"name": "t"})],
            &body,
            true,
        );
        assert_eq!(tools.len(), 4);
        assert!(tools.iter().all(|tool| tool.get("x").is_none()), "{tools:?}");
    }

    #[test]
    fn a_telephone_can_be_hung_up() {
        let (mut functions, now) = (functions(), Instant::now());
        let called = functions.handle_call("r".into(), "a".into(), END_CALL.into(), "", false, now);
        assert!(called.expect("new").ends_call);
    }
}
