//! Functions of the operator and of pages: a program of the session, an HTTP endpoint, and a file.

use serde_json::{Value, json};

use super::{KEY, Services, connect, ends_spoken, of_type, say, speech};
use crate::support::cascade::ServiceConnection;
use crate::support::program::wait_for_end;
use crate::support::provider::{Caller, Provider};
use crate::support::rest::Rest;
use crate::support::runner::{TestRunner, wait_for_file};

/// Declares a function, and answers each call with the line of the call. The file names the process
/// of a session.
const PROGRAM: &str = r#"
echo '{"functions": [{"name": "lamp", "description": "Switches a lamp.", "parameters": {"type": "object"}}]}'
sleep 1000 &
case "$RUNNER_ARGUMENTS" in
*'"check"'*) ;;
*) echo $! > process.part; mv process.part process ;;
esac
while read -r line; do
    id=$(printf %s "$line" | sed 's/.*"call_id":"\([^"]*\)".*/\1/')
    echo "{\"call_id\": \"$id\", \"output\": $line}"
done
"#;

/// A message of the model that calls functions.
fn call(model: &mut ServiceConnection, names: &[&str]) {
    model.begin("200 OK", "text/event-stream");
    let calls: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            json!({"index": index, "id": format!("c-{name}"), "type": "function",
                "function": {"name": name, "arguments": "{\"on\":true}"}})
        })
        .collect();
    model.send_delta(&json!({"content": null, "tool_calls": calls}));
    model.end_chat("tool_calls");
}

fn names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().expect("functions");
    tools
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect()
}

/// Returns the outputs of functions in a request, by the ids of their calls.
fn outputs(request: &Value) -> Vec<(&str, &str)> {
    let messages = request["messages"].as_array().expect("messages");
    let of_tools = messages.iter().filter(|message| message["role"] == "tool");
    of_tools
        .map(|message| {
            (
                message["tool_call_id"].as_str().expect("an id"),
                message["content"].as_str().expect("a text"),
            )
        })
        .collect()
}

/// Functions of the program and of the page are called in one message; the model goes on when both
/// have answered. The group of the process ends with the session.
#[test]
fn a_program_runs_functions_beside_the_page() {
    let services = Services::start();
    let of_page = json!({"functions": [{"name": "weather", "description": "The weather."}]}).to_string();
    let files = [("tools.sh", PROGRAM), ("functions.json", &*of_page)];
    let variables = [
        ("RUNNER_TOOLS", "sh tools.sh"),
        ("CASCADE_FUNCTIONS_FILE", "functions.json"),
    ];
    let runner = services.runner_among(&files, &variables);
    runner.wait_for_log("functions of sh: lamp");
    let mut client = connect(&runner);
    let child = wait_for_file(&runner.path("process"));
    say(&mut client);
    services.recognizer.recognize("Is it dark?");
    let (request, mut model) = services.model.accept_request();
    let asked: Value = serde_json::from_slice(&request.bytes).expect("JSON");
    assert_eq!(names(&asked), ["weather", "lamp"]);
    call(&mut model, &["lamp", "weather"]);
    drop(model);
    let reported = client.hear_message("the call of the page", |message| {
        message["data"]["tool_call_id"] == "c-weather" && message["type"] == "llm-function-call-in-progress"
    });
    assert_eq!(reported["data"]["arguments"], json!({"on": true}));
    let reported = client.hear_message("the call of the program", |message| {
        message["data"]["tool_call_id"] == "c-lamp" && message["type"] == "llm-function-call-in-progress"
    });
    assert_eq!(
        reported["data"],
        json!({"tool_call_id": "c-lamp", "function_name": "lamp"})
    );
    client.tell(
        "llm-function-call-result",
        "2",
        &json!({"function_name": "weather", "tool_call_id": "c-weather", "arguments": {}, "result": "fog"}),
    );
    let asked = services.model.answer_chat(&["It is foggy. "]);
    let mut given = outputs(&asked);
    given.sort_unstable();
    let [(lamp, echoed), weather] = given[..] else {
        panic!("two outputs, and not {given:?}");
    };
    let echoed: Value = serde_json::from_str(echoed).expect("JSON");
    assert_eq!(
        (lamp, echoed),
        (
            "c-lamp",
            json!({"call_id": "c-lamp", "name": "lamp", "arguments": {"on": true}})
        )
    );
    assert_eq!(weather, ("c-weather", "fog"));
    services.voice.speak(22_050, &speech(200));
    client.hear_message("the answer", ends_spoken("It is foggy."));
    client.hear_message("the end of a call", of_type("llm-function-call-stopped"));
    client.socket.close(1000);
    wait_for_end(child.trim().parse().expect("a process id"));
    assert!(!runner.log().contains("foggy"));
}

/// A telephone has no page, and gets the functions of the endpoint and the built-in ones. A failed
/// function becomes an output, and the key goes to the endpoint only.
#[test]
fn an_endpoint_runs_functions_for_a_telephone() {
    let services = Services::start();
    let declared = r#"{"functions": [{"name": "order"}]}"#;
    let rest = Rest::start(&[
        (200, declared),
        (200, declared),
        (200, r#"{"call_id": "c-order", "output": {"state": "sent"}}"#),
        (500, "{}"),
    ]);
    let url = format!("{}/functions", rest.url());
    let runner = services.runner_with(&[("RUNNER_TOOLS", &url), ("TOOLS_API_KEY", "hunter2-tools")]);
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    let every_second = |pcm: Vec<i16>| -> Vec<i16> { pcm.into_iter().step_by(2).collect() };
    caller.say(&every_second(super::question()));
    services.recognizer.recognize("Order it.");
    let (request, mut model) = services.model.accept_request();
    let asked: Value = serde_json::from_slice(&request.bytes).expect("JSON");
    assert_eq!(names(&asked), ["order", "end_call", "press_keys"]);
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    call(&mut model, &["order"]);
    drop(model);
    let (request, mut model) = services.model.accept_request();
    let asked: Value = serde_json::from_slice(&request.bytes).expect("JSON");
    assert_eq!(outputs(&asked), [("c-order", r#"{"state":"sent"}"#)]);
    model.begin("200 OK", "text/event-stream");
    model.send_delta(&json!({"tool_calls": [{"index": 0, "id": "c-again", "type": "function",
        "function": {"name": "order", "arguments": "{}"}}]}));
    model.end_chat("tool_calls");
    drop(model);
    let asked = services.model.answer_chat(&["It is sent. "]);
    assert_eq!(
        outputs(&asked)[1],
        ("c-again", r#"{"error":"the endpoint answered with status 500"}"#)
    );
    assert_eq!(services.voice.speak(22_050, &speech(200)), "It is sent.");
    let requests = rest.asked();
    let methods: Vec<&str> = requests.iter().map(|request| &*request.method).collect();
    assert_eq!(methods, ["GET", "GET", "POST", "POST"]);
    for request in &requests {
        assert_eq!(request.header("authorization"), Some("Bearer hunter2-tools"));
    }
    assert!(!runner.log().contains("hunter2-tools"));
}

/// The runner does not start with functions that collide, that cannot be declared, or whose file
/// cannot be read.
#[test]
fn functions_that_cannot_be_used_are_reported_at_the_start() {
    let local = [
        ("CASCADE_STT_URL", "tcp://127.0.0.1:1"),
        ("CASCADE_LLM_URL", "http://127.0.0.1:1/v1"),
        ("CASCADE_LLM_MODEL", "m"),
        ("CASCADE_TTS_URL", "tcp://127.0.0.1:1"),
    ];
    let colliding = json!({"functions": [{"name": "lamp"}]}).to_string();
    let files = [("tools.sh", PROGRAM), ("functions.json", &*colliding)];
    for (tools, functions, words) in [
        ("sh tools.sh", "functions.json", "two functions are called `lamp`"),
        ("sh absent.sh", "functions.json", "it ended"),
        ("sh tools.sh", "tools.sh", "CASCADE_FUNCTIONS_FILE"),
    ] {
        let own = [("RUNNER_TOOLS", tools), ("CASCADE_FUNCTIONS_FILE", functions)];
        let arguments = ["--bot", "cascade", "--port", "0"];
        let ran = TestRunner::run_among(&files, &arguments, &[&local[..], &own].concat());
        assert!(
            ran.code != Some(0) && ran.stderr.contains(words),
            "{tools}: {}",
            ran.stderr
        );
    }
}
