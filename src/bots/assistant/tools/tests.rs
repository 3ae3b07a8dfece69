//! Programs and endpoints that declare and run functions, and those that do not.

use serde_json::json;

use super::*;
use crate::config::{ServiceUrl, ToolsEndpoint};
use crate::limits::{FUNCTION_OUTPUT_BYTES_MAX, FUNCTION_WITHIN, TOOLS_FUNCTIONS_BYTES_MAX};
use edge_runner_http::testing::{FakeServer, answer};

fn script(text: &str) -> ToolsConfig {
    ToolsConfig::Program(["/bin/sh", "-c", text].map(str::to_owned).to_vec())
}

fn endpoint(server: &FakeServer) -> ToolsConfig {
    let url = ServiceUrl::exact(&server.url("/tools")).expect("a URL");
    ToolsConfig::Endpoint(ToolsEndpoint { url, key: None })
}

async fn examined(tools: &ToolsConfig) -> String {
    match examine(&Config::default(), tools).await {
        Ok(names) => names.join(", "),
        Err(error) => format!("{}: {error}", error.is_permanent()),
    }
}

fn session(tools: &ToolsConfig) -> SessionTools {
    SessionTools::with(&Config::default(), tools, "test".into(), Ok("{}".to_owned()))
}

fn call(call_id: &str) -> FunctionCall {
    FunctionCall {
        call_id: call_id.to_owned(),
        name: "f".to_owned(),
        arguments: json!({"x": 1}),
    }
}

const DECLARE: &str = r#"echo '{"functions": [{"name": "f"}]}';"#;

#[tokio::test]
async fn the_first_object_of_a_program_declares_its_functions() {
    let long = format!(
        "head -c {} /dev/zero | tr '\\0' '{{'; echo",
        TOOLS_FUNCTIONS_BYTES_MAX + 1
    );
    for (text, outcome) in [
        (DECLARE, "f"),
        ("exit 3", "true: it ended: exit status: 3"),
        ("echo '{}'; cat", "true: the declaration is no JSON such as"),
        (
            "echo '{\"functions\": [{\"name\": \"end_call\"}]}'; cat",
            "true: two functions are called `end_call`",
        ),
        (long.as_str(), "true: its declaration is longer than"),
    ] {
        let found = examined(&script(text)).await;
        assert!(found.starts_with(outcome), "{text}: {found}");
    }
    let absent = ToolsConfig::Program(vec!["no-such-program".to_owned()]);
    assert!(examined(&absent).await.contains("no program of that name is in PATH"));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_declares_nothing_is_given_up() {
    assert!(examined(&script("sleep 1000")).await.contains("within 30 s"));
}

/// Answers may come in any order, between lines that are none, and a program that has ended fails
/// the calls that follow.
#[tokio::test]
async fn a_program_answers_calls() {
    let text = format!(
        "{DECLARE} read a; read b; echo noise; echo '{{\"call_id\": \"2\", \"output\": '$b'}}'; \
         echo '{{\"call_id\": \"1\", \"output\": \"one\"}}'"
    );
    let mut tools = session(&script(&text));
    assert!(matches!(tools.recv().await, ToolsEvent::Declared(functions) if functions.len() == 1));
    tools.call(&call("1"));
    tools.call(&call("2"));
    let mut outputs = Vec::new();
    while let ToolsEvent::Output { call_id, output } = tools.recv().await {
        outputs.push((call_id, output));
    }
    let echoed = json!({"call_id": "2", "name": "f", "arguments": {"x": 1}});
    assert_eq!(outputs, [("2".to_owned(), echoed), ("1".to_owned(), json!("one"))]);
    tools.call(&call("3"));
    assert!(
        matches!(tools.recv().await, ToolsEvent::Output { call_id, output } if call_id == "3" && output["error"].is_string())
    );
}

/// A program that exits fails the calls that follow, even if a process that it left behind holds
/// its stdout open.
#[tokio::test]
async fn a_process_that_a_program_left_behind_answers_nothing() {
    let text = format!("{DECLARE} sleep 1000 & read a; echo '{{\"call_id\": \"1\", \"output\": 1}}'");
    let mut tools = session(&script(&text));
    assert!(matches!(tools.recv().await, ToolsEvent::Declared(_)));
    tools.call(&call("1"));
    let answer = tools.recv().await;
    assert!(matches!(answer, ToolsEvent::Output { call_id, output } if call_id == "1" && output == 1));
    let ended = tokio::time::timeout(FUNCTION_WITHIN, tools.recv()).await;
    let ended = ended.expect("sooner than the limit of a call");
    assert!(!matches!(ended, ToolsEvent::Output { .. }), "its end");
    tools.call(&call("2"));
    let answer = tools.recv().await;
    assert!(matches!(answer, ToolsEvent::Output { call_id, output } if call_id == "2" && output["error"].is_string()));
}

/// What is printed before the declaration is ignored, and an answer that is no JSON, or has no
/// output, is a failure at once.
#[tokio::test]
async fn a_program_may_print_text_and_cannot_fail_silently() {
    let text = format!(
        "echo Loading the model; {DECLARE} read a; echo '{{\"call_id\": \"1\", \"output\": NaN}}'; \
         read b; echo '{{\"call_id\": \"2\"}}'; read c; printf '{{\"call_id\": \"3\", \"output\": \"%070000d\"}}\\n' 1; read d"
    );
    let mut tools = session(&script(&text));
    assert!(matches!(tools.recv().await, ToolsEvent::Declared(functions) if functions.len() == 1));
    for (id, words) in [("1", "no JSON"), ("2", "no JSON"), ("3", "too long")] {
        tools.call(&call(id));
        let ToolsEvent::Output { call_id, output } = tools.recv().await else {
            panic!("no output");
        };
        let error = output["error"].as_str().unwrap_or_default();
        assert!(call_id == id && error.contains(words), "{call_id}: {error}");
    }
}

#[tokio::test]
async fn an_endpoint_declares_and_runs_functions() {
    let long = format!("{{\"output\": \"{}\"}}", "x".repeat(FUNCTION_OUTPUT_BYTES_MAX + 2048));
    let server = FakeServer::new(vec![
        answer("200 OK", r#"{"functions": [{"name": "f"}]}"#),
        answer("200 OK", r#"{"call_id": "1", "output": {"y": 2}}"#),
        answer("500 Internal Server Error", "{}"),
        answer("200 OK", "{}"),
        answer("200 OK", &long),
    ])
    .await;
    let mut tools = session(&endpoint(&server));
    assert!(matches!(tools.recv().await, ToolsEvent::Declared(functions) if functions.len() == 1));
    for expected in [
        json!({"y": 2}),
        json!({"error": "the endpoint answered with status 500"}),
        json!({"error": "the endpoint gave no output"}),
        json!({"error": "the result is too long"}),
    ] {
        tools.call(&call("1"));
        let ToolsEvent::Output { output, .. } = tools.recv().await else {
            panic!("no output");
        };
        assert_eq!(output, expected);
    }
    let requests = server.requests();
    assert!(requests[0].starts_with("GET /tools "), "{}", requests[0]);
    assert!(requests[1].starts_with("POST /tools ") && requests[1].contains("\"session_id\":\"test\""));
}

#[tokio::test]
async fn an_endpoint_that_declares_nothing_is_reported() {
    let server = FakeServer::new(vec![
        answer("401 Unauthorized", ""),
        answer("503 Service Unavailable", ""),
        answer("200 OK", "<html>"),
    ])
    .await;
    let tools = endpoint(&server);
    assert_eq!(
        examined(&tools).await,
        "false: it answers with status 401; check TOOLS_API_KEY"
    );
    assert_eq!(examined(&tools).await, "false: it answers with status 503");
    assert!(examined(&tools).await.starts_with("true: the declaration is no JSON"));
}
