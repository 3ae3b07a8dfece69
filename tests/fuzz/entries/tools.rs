//! Properties of the operator's functions: what a program or an endpoint of `--tools` answers.
//!
//! In: lines as a program writes them, the first JSON object of which is the declaration; the rest
//! are answers to calls. A declaration that is accepted is accepted again as it is written, and
//! both kinds of assistants can declare its functions within their limits. A call gets one output,
//! which is bounded; an answer to no call changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runner_proto::assistant::body::BodyOptions;
use edge_runner_proto::assistant::cascade::{Cascade, CascadeOutput};
use edge_runner_proto::assistant::config::{AssistantConfig, ToolsConfig};
use edge_runner_proto::assistant::functions::FunctionHost;
use edge_runner_proto::assistant::realtime::Realtime;
use edge_runner_proto::assistant::report::{CallProfile, FunctionCall, Line, RealtimeOutput};
use edge_runner_proto::assistant::service_url::ServiceUrl;
use edge_runner_proto::assistant::services::chat::{ChatSettings, request_body};
use edge_runner_proto::assistant::tools::{BUILT_IN, answer, call_json, call_of_invalid, declaration, split_command};
use edge_runner_proto::limits;
use edge_runner_proto::process::output_lines::LineSplitter;
use serde_json::{Value, json};

use super::assistants::pieces;

/// Calls of an input: one more than may wait.
const CALLS_MAX: usize = limits::FUNCTION_CALLS_MAX + 1;
/// Outputs of an engine for one event.
const OUTPUTS_MAX: usize = 1_000;

const PROFILE: CallProfile = CallProfile {
    line: Line::Pcm24k,
    has_page: false,
    is_telephone: true,
    can_hang_up: true,
    greet_on_ready: false,
};

/// Returns the lines of a program, as it is read.
fn lines(pieces: &[&[u8]]) -> Vec<String> {
    let mut splitter = LineSplitter::new(limits::TOOLS_FUNCTIONS_BYTES_MAX, " (cut)", false);
    let mut lines = Vec::new();
    for piece in pieces {
        splitter.push(piece, |line| lines.push(line.to_owned()));
    }
    splitter.finish(|line| lines.push(line.to_owned()));
    lines
}

/// A program declares its functions and answers calls; an endpoint answers with the whole input.
pub fn tools(bytes: &[u8]) {
    let lines_whole = lines(&[bytes]);
    assert_eq!(lines(&pieces(bytes)), lines_whole);
    command(&String::from_utf8_lossy(bytes));
    check_declaration(bytes);
    let mut of_program = lines_whole
        .iter()
        .skip_while(|line| !line.trim_start().starts_with('{'));
    let functions = of_program.next().map(|line| check_declaration(line.as_bytes()));
    let answers: Vec<_> = of_program
        .filter_map(|line| check_answer(line))
        .take(CALLS_MAX)
        .collect();
    let functions = functions.unwrap_or_default();
    let mut config = AssistantConfig::default();
    config.realtime.url = ServiceUrl::parse("ws://127.0.0.1/v1").expect("a URL");
    config.tools = Some(ToolsConfig::Program(vec!["tools".to_owned()]));
    let config = Arc::new(config);
    realtime(&config, &functions, &answers);
    cascade(config, &functions);
}

/// Each word of a command can be quoted, and is read as it was.
fn command(text: &str) {
    let Some(words) = split_command(text) else {
        return;
    };
    assert!(words.iter().map(String::len).sum::<usize>() <= text.len() && !words[0].is_empty());
    let quoted: Vec<_> = words
        .iter()
        .map(|word| {
            word.split('\'')
                .map(|part| format!("'{part}'"))
                .collect::<Vec<_>>()
                .join("\"'\"")
        })
        .collect();
    assert_eq!(split_command(&quoted.join(" ")), Some(words));
}

fn check_declaration(text: &[u8]) -> Vec<Value> {
    match declaration(text) {
        Ok(functions) => {
            assert!(functions.len() <= limits::TOOLS_FUNCTIONS_MAX);
            let names: BTreeSet<_> = functions.iter().filter_map(|tool| tool["name"].as_str()).collect();
            assert_eq!(names.len(), functions.len());
            assert!(BUILT_IN.iter().all(|name| !names.contains(name)));
            let again = json!({ "functions": functions }).to_string();
            // Numbers may become longer.
            if again.len() <= limits::TOOLS_FUNCTIONS_BYTES_MAX {
                let read = declaration(again.as_bytes()).expect("it was accepted");
                // Floating-point numbers may change in their last digit.
                assert_eq!(read.len(), functions.len());
            }
            functions
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() <= 400 && !text.contains(char::is_control), "{text}");
            Vec::new()
        }
    }
}

fn check_answer(line: &str) -> Option<(String, Value)> {
    if let Some(call_id) = call_of_invalid(line) {
        assert!(line.contains(call_id) && !call_id.contains('"'));
    }
    let (call_id, output) = answer(line.as_bytes())?;
    let written = json!({"call_id": call_id, "output": output}).to_string();
    let (again, _) = answer(written.as_bytes()).expect("an answer");
    assert_eq!(again, call_id);
    call_id.map(|call_id| (call_id, output))
}

/// Returns the calls that an engine wants, the bytes that it sends, and whether it did anything.
fn drain(session: &mut Realtime) -> (Vec<FunctionCall>, usize, usize) {
    let (mut calls, mut sent, mut outputs) = (Vec::new(), 0, 0);
    while let Some(output) = session.poll_output() {
        outputs += 1;
        assert!(outputs < OUTPUTS_MAX, "the engine does not come to rest");
        match output {
            RealtimeOutput::RunFunction(call) => calls.push(call),
            RealtimeOutput::Send(text) => {
                let event: Value = serde_json::from_str(&text).expect("JSON");
                assert!(event["type"].is_string(), "{event}");
                sent += text.len();
            }
            _ => {}
        }
    }
    (calls, sent, outputs)
}

/// The model calls a function for each answer, and gets one output for each call.
fn realtime(config: &Arc<AssistantConfig>, functions: &[Value], answers: &[(String, Value)]) {
    let mut now = Instant::now();
    let body = BodyOptions::new(&Value::Null, config, "");
    let mut session = Realtime::new(Arc::clone(config), PROFILE, body, now);
    session.handle_joined(now);
    session.handle_connected(now);
    session.handle_message(r#"{"type": "session.created", "session": {}}"#, now);
    session.handle_functions(functions, now);
    let (_, sent, _) = drain(&mut session);
    assert!(sent <= limits::ASSISTANT_SEND_BYTES_MAX, "{sent} bytes for the service");
    let Some(name) = functions.first().map(|tool| &tool["name"]) else {
        return;
    };
    session.handle_message(r#"{"type": "response.created", "response": {"id": "r"}}"#, now);
    drain(&mut session);
    let mut seen = BTreeSet::new();
    for (call_id, output) in answers {
        now += Duration::from_millis(100);
        let event = json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "f",
            "call_id": call_id, "name": name, "arguments": "{}"});
        session.handle_message(&event.to_string(), now);
        let (calls, _, _) = drain(&mut session);
        let is_new = seen.insert(call_id.clone());
        let is_run = is_new && seen.len() <= limits::FUNCTION_CALLS_MAX;
        assert_eq!(calls.len(), usize::from(is_run), "{call_id:?}");
        for call in calls {
            assert_eq!((&call.call_id, &json!(call.name)), (call_id, name));
            let written = call_json(&call, None);
            assert_eq!((&written["call_id"], &written["name"]), (&json!(call_id), name));
        }
        session.handle_function_result(FunctionHost::Tools, call_id, output, now);
        let (_, sent, _) = drain(&mut session);
        // Escapes make the output longer, and the id is that of the service.
        assert!(
            sent <= 6 * (limits::FUNCTION_OUTPUT_BYTES_MAX + call_id.len()) + 1024,
            "{sent} bytes"
        );
        assert!(!is_run || sent > 0, "no output for {call_id:?}");
        // A second answer is none.
        session.handle_function_result(FunctionHost::Tools, call_id, output, now);
        assert_eq!(drain(&mut session).2, 0, "a second output for {call_id:?}");
    }
}

/// The first request to a model has the functions, and fits.
fn cascade(config: Arc<AssistantConfig>, functions: &[Value]) {
    let now = Instant::now();
    let body = BodyOptions::new(&Value::Null, &config, "");
    let mut session = Cascade::new(config, PROFILE, body, now);
    session.handle_functions(functions, now);
    session.handle_joined(now);
    while let Some(output) = session.poll_output() {
        if let CascadeOutput::StartChat { request, .. } = output {
            let body = request_body(&ChatSettings::default(), request);
            let declared = body["tools"].as_array().map_or(0, Vec::len);
            assert!(declared >= functions.len(), "{declared} functions");
            let bytes = body.to_string().len();
            assert!(bytes <= limits::ASSISTANT_SEND_BYTES_MAX, "{bytes} bytes for the model");
        }
    }
}
