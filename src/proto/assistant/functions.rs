//! Functions that the model calls: on the client's page, of the operator's program or endpoint, and
//! `end_call` and `press_keys`, which are built in.
//!
//! In: calls, results, the ends of responses, and the time. Out: what runs each call, and what
//! [`FunctionCalls`] makes of the results.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::press_keys;
use super::tools::{BUILT_IN, END_CALL, PRESS_KEYS};
use crate::assistant::report::{CallProfile, FunctionCall};
use crate::kit::{FunctionCalls, FunctionOutput, FunctionOutputs, ToneSegment};
use crate::limits::FUNCTION_WITHIN;

/// Time until the keys that a model presses were heard: a minute of speech before them, and pauses.
const KEYS_WITHIN: Duration = Duration::from_secs(120);

/// Returns the declared functions: those of the page in the configuration, of the operator's
/// program or endpoint, of the body, and the built-in ones. Of two with one name the first counts.
pub fn declared(of_page: &[Value], of_tools: &[Value], of_body: &[Value], profile: &CallProfile) -> Vec<Value> {
    let mut tools: Vec<Value> = Vec::new();
    for tool in of_page.iter().chain(of_tools).chain(of_body) {
        let name = tool["name"].as_str();
        let is_taken = |name| BUILT_IN.contains(&name) || tools.iter().any(|tool| tool["name"] == name);
        if !name.is_some_and(is_taken) {
            tools.push(tool.clone());
        }
    }
    if profile.can_hang_up {
        tools.push(json!({
            "type": "function",
            "name": END_CALL,
            "description": "Ends the call. Say goodbye first.",
            "parameters": {"type": "object", "properties": {}},
        }));
    }
    if profile.is_telephone {
        tools.push(press_keys::declaration());
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

/// The output of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionAnswer {
    pub call_id: String,
    pub name: String,
    pub output: String,
    /// Whether the client was told of the call.
    pub is_reported: bool,
    pub is_cancelled: bool,
}

/// What follows from an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionReplies {
    pub outputs: Vec<FunctionAnswer>,
    pub wants_response: bool,
}

/// What follows from a call.
#[derive(Debug, Default)]
pub struct CallEffects {
    /// The call, for what runs it.
    pub started: Option<(FunctionCall, FunctionHost)>,
    pub ends_call: bool,
    /// Keys to press. The call is answered once they were heard.
    pub presses: Option<KeyPresses>,
    pub answers: FunctionReplies,
}

/// Keys of the telephone to press.
#[derive(Debug, PartialEq)]
pub struct KeyPresses {
    pub call_id: String,
    pub tones: Vec<ToneSegment>,
}

/// The functions of a session and their calls.
#[derive(Default)]
pub struct Functions {
    names: Vec<(String, FunctionHost)>,
    calls: FunctionCalls<FunctionHost>,
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

    /// Handles a call; `None` if it is a repetition.
    pub fn handle_call(
        &mut self,
        response_id: &str,
        call_id: String,
        name: String,
        arguments: &str,
        has_page: bool,
        now: Instant,
    ) -> Option<CallEffects> {
        if self.calls.contains(&call_id) {
            return None;
        }
        let known = self.names.iter().find(|(known, _)| *known == name);
        let host = known.map_or(FunctionHost::BuiltIn, |(_, host)| *host);
        let error = match host {
            _ if known.is_none() => Some("there is no such function"),
            FunctionHost::Page if !has_page => Some("this caller cannot run functions"),
            _ => None,
        };
        if let Some(error) = error {
            let refused = self.calls.refuse(response_id, &call_id, &name, host, error);
            return Some(CallEffects::refused(refused));
        }
        let within = match host {
            FunctionHost::BuiltIn => KEYS_WITHIN,
            FunctionHost::Page | FunctionHost::Tools => FUNCTION_WITHIN,
        };
        let started = self
            .calls
            .start(response_id, &call_id, &name, arguments, host, now + within)?;
        let arguments = match started {
            Ok(arguments) => arguments,
            Err(refused) => return Some(CallEffects::refused(refused)),
        };
        Some(match host {
            FunctionHost::BuiltIn if name == PRESS_KEYS => self.press_keys(call_id, &arguments),
            FunctionHost::BuiltIn => CallEffects {
                ends_call: true,
                answers: FunctionReplies::of(self.calls.finish(&call_id, &json!({"ok": true}))),
                ..CallEffects::default()
            },
            host => CallEffects {
                started: Some((
                    FunctionCall {
                        call_id,
                        name,
                        arguments,
                    },
                    host,
                )),
                ..CallEffects::default()
            },
        })
    }

    fn press_keys(&mut self, call_id: String, arguments: &Value) -> CallEffects {
        match press_keys::tones_of(arguments) {
            Ok(tones) => CallEffects {
                presses: Some(KeyPresses { call_id, tones }),
                ..CallEffects::default()
            },
            Err(error) => CallEffects {
                answers: FunctionReplies::of(self.calls.finish(&call_id, &json!({"error": error}))),
                ..CallEffects::default()
            },
        }
    }

    /// Handles the result of what runs the function: an object or a string.
    pub fn handle_result(&mut self, host: FunctionHost, call_id: &str, result: &Value) -> FunctionReplies {
        FunctionReplies::of(self.calls.finish_if(call_id, result, |of| of == host))
    }

    /// The keys of a call were heard.
    pub fn handle_keys_pressed(&mut self, call_id: &str) -> FunctionReplies {
        self.handle_result(FunctionHost::BuiltIn, call_id, &json!({"ok": true}))
    }

    /// The keys that were to be pressed are dropped.
    pub fn handle_keys_dropped(&mut self) -> FunctionReplies {
        let is_key = |host| host == FunctionHost::BuiltIn;
        FunctionReplies::of(self.calls.fail("the keys were not all pressed", is_key))
    }

    /// A response is done.
    pub fn handle_response_done(&mut self, response_id: &str) -> FunctionReplies {
        FunctionReplies::of(self.calls.message_done(response_id))
    }

    /// Gives up all calls for this reason: the answer that they belong to is dropped, or what runs
    /// them is gone.
    pub fn abort(&mut self, error: &str) -> Vec<FunctionAnswer> {
        let given = FunctionReplies::of(self.calls.fail(error, |_| true));
        self.calls.clear();
        given.outputs
    }

    /// Returns whether a call of a page, or of what the operator configured, waits.
    pub fn is_running(&self) -> bool {
        self.calls.is_waiting(|host| host != FunctionHost::BuiltIn)
    }

    /// Returns whether a call waits.
    pub fn is_waiting(&self) -> bool {
        self.calls.is_waiting(|_| true)
    }

    /// Returns when a call has waited too long.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.calls.poll_timeout()
    }

    /// Gives up calls that have waited too long.
    pub fn handle_timeout(&mut self, now: Instant) -> FunctionReplies {
        FunctionReplies::of(self.calls.handle_timeout(now))
    }
}

impl FunctionReplies {
    /// Converts the outputs of calls that waited; clients were told of all but the built-in ones.
    fn of(given: FunctionOutputs<FunctionHost>) -> Self {
        let answer = |output: FunctionOutput<FunctionHost>| FunctionAnswer {
            is_reported: output.note != FunctionHost::BuiltIn,
            call_id: output.call_id,
            name: output.name,
            output: output.output,
            is_cancelled: output.is_error,
        };
        FunctionReplies {
            outputs: given.outputs.into_iter().map(answer).collect(),
            wants_response: given.wants_answer,
        }
    }
}

impl CallEffects {
    /// A call that is not run, of which no client was told.
    fn refused(output: FunctionOutput<FunctionHost>) -> Self {
        let answer = FunctionAnswer {
            call_id: output.call_id,
            name: output.name,
            output: output.output,
            is_reported: false,
            is_cancelled: false,
        };
        CallEffects {
            answers: FunctionReplies {
                outputs: vec![answer],
                wants_response: false,
            },
            ..CallEffects::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FUNCTION_OUTPUT_BYTES_MAX;

    fn functions() -> Functions {
        let of_tools = [json!({"type": "function", "name": "t"})];
        let of_body = [json!({"type": "function", "name": "f"})];
        Functions::new(&declared(&[], &of_tools, &of_body, &CallProfile::TELEPHONE), &of_tools)
    }

    fn call(functions: &mut Functions, call_id: &str, name: &str, arguments: &str, now: Instant) -> CallEffects {
        functions
            .handle_call("r", call_id.into(), name.into(), arguments, true, now)
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
        let repeated = functions.handle_call("r", "a".into(), "f".into(), "", true, now);
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
            FunctionReplies::default()
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
        let without_page = functions.handle_call("r", "d".into(), "f".into(), "", false, now);
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
        let called = functions.handle_call("r", "a".into(), "t".into(), "{}", false, now);
        let (_, host) = called.expect("new").started.expect("it runs");
        assert_eq!(host, FunctionHost::Tools);
        let of_client = functions.handle_result(FunctionHost::Page, "a", &json!("forged"));
        assert_eq!(of_client, FunctionReplies::default());
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
            &CallProfile::TELEPHONE,
        );
        assert_eq!(tools.len(), 5);
        assert!(tools.iter().all(|tool| tool.get("x").is_none()), "{tools:?}");
    }

    #[test]
    fn a_telephone_can_be_hung_up() {
        let (mut functions, now) = (functions(), Instant::now());
        let called = functions.handle_call("r", "a".into(), END_CALL.into(), "", false, now);
        assert!(called.expect("new").ends_call);
        let tools = declared(&[], &[], &[], &CallProfile::BROWSER);
        assert!(tools.is_empty(), "{tools:?}");
    }

    #[test]
    fn keys_are_answered_when_they_were_played_or_dropped() {
        let (mut functions, now) = (functions(), Instant::now());
        for call_id in ["a", "b"] {
            let called = call(&mut functions, call_id, PRESS_KEYS, r#"{"keys": "1"}"#, now);
            let presses = called.presses.expect("it presses");
            assert_eq!((presses.call_id.as_str(), presses.tones.len()), (call_id, 3));
            assert!(!called.ends_call && called.answers.outputs.is_empty());
        }
        let refused = call(&mut functions, "c", PRESS_KEYS, r#"{"keys": "x"}"#, now);
        assert!(refused.presses.is_none() && !refused.ends_call);
        assert!(refused.answers.outputs[0].output.contains("`keys` may have"));
        assert!(!functions.handle_response_done("r").wants_response);
        let pressed = functions.handle_keys_pressed("a");
        assert_eq!(
            (pressed.outputs[0].output.as_str(), pressed.outputs[0].is_reported),
            (r#"{"ok":true}"#, false)
        );
        let dropped = functions.handle_keys_dropped();
        assert_eq!(dropped.outputs[0].call_id, "b");
        assert!(dropped.outputs[0].output.contains("not all pressed") && dropped.wants_response);
    }
}
