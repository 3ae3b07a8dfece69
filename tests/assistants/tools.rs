//! Functions of the operator: a program of the session, and an HTTP endpoint, beside the page.

use serde_json::{Value, json};

use super::{KEY, of_type, runner_with};
use crate::support::client::Client;
use crate::support::program::wait_for_end;
use crate::support::provider::{Caller, Provider};
use crate::support::realtime::{RealtimeServer, RealtimeSession};
use crate::support::rest::Rest;
use crate::support::runner::{TestRunner, wait_for_file};

/// Declares a function, and answers each call with the line of the call. Each line names its
/// process in a file.
const PROGRAM: &str = r#"
echo '{"functions": [{"name": "lamp", "description": "Switches a lamp.", "parameters": {"type": "object"}}]}'
sleep 1000 &
case "$RUNNER_ARGUMENTS" in
*'"check"'*) ;;
*) echo $! > "$1.part"; mv "$1.part" "$1" ;;
esac
echo "canary of stderr" >&2
while read -r line; do
    id=$(printf %s "$line" | sed 's/.*"call_id":"\([^"]*\)".*/\1/')
    echo "{\"call_id\": \"$id\", \"output\": $line}"
done
"#;

fn call(service: &RealtimeSession, call_id: &str, name: &str) {
    service.send(
        &json!({"type": "response.function_call_arguments.done", "response_id": "r", "call_id": call_id,
        "item_id": call_id, "name": name, "arguments": "{\"on\":true}"}),
    );
}

fn names(session: &Value) -> Vec<&str> {
    let tools = session["tools"].as_array().expect("functions");
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

/// Functions of the program, of the page and built-in ones are called in one response; the model
/// goes on when all have answered. The group of the process ends with the session.
#[test]
fn a_program_runs_functions_beside_the_page() {
    let server = RealtimeServer::start();
    let of_page = json!({"tools": [{"type": "function", "name": "weather"}]}).to_string();
    let files = [("tools.sh", PROGRAM), ("session.json", &of_page)];
    let variables = [
        ("RUNNER_TOOLS", "sh tools.sh 'process of the session'"),
        ("REALTIME_SESSION_FILE", "session.json"),
    ];
    let runner = runner_with(&server, &files, &variables);
    runner.wait_for_log("functions of sh: lamp");
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    let mut service = server.accept();
    assert_eq!(names(&service.open()), ["weather", "lamp"]);
    let child = wait_for_file(&runner.path("process of the session"));
    service.send(&json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}));
    call(&service, "c1", "lamp");
    call(&service, "c2", "weather");
    service.send(&json!({"type": "response.done", "response": {"id": "r", "status": "completed", "output": []}}));
    let output = service.expect("conversation.item.create");
    assert_eq!(output["item"]["call_id"], "c1");
    let echoed: Value = serde_json::from_str(output["item"]["output"].as_str().expect("a text")).expect("JSON");
    assert_eq!(
        echoed,
        json!({"call_id": "c1", "name": "lamp", "arguments": {"on": true}})
    );
    let reported = client.hear_message("the call", |message| message["data"]["tool_call_id"] == "c1");
    assert_eq!(reported["data"], json!({"tool_call_id": "c1", "function_name": "lamp"}));
    client.tell(
        "llm-function-call-result",
        "2",
        &json!({"function_name": "weather", "tool_call_id": "c2", "arguments": {}, "result": "sun"}),
    );
    assert_eq!(service.expect("conversation.item.create")["item"]["output"], "sun");
    service.expect("response.create");
    client.hear_message("its end", of_type("llm-function-call-stopped"));
    client.socket.close(1000);
    wait_for_end(child.trim().parse().expect("a process id"));
    let log = runner.log();
    assert!(
        log.lines()
            .any(|line| line.contains("canary of stderr") && line.contains(" DEBUG ")),
        "{log}"
    );
}

/// A telephone has no page, and gets the functions of the endpoint and the built-in one. The key
/// goes to the endpoint only.
#[test]
fn an_endpoint_runs_functions_for_a_telephone() {
    let server = RealtimeServer::start();
    let rest = Rest::start(&[
        (200, r#"{"functions": [{"name": "order"}]}"#),
        (200, r#"{"functions": [{"name": "order"}]}"#),
        (200, r#"{"call_id": "c1", "output": {"state": "sent"}}"#),
    ]);
    let url = format!("{}/functions?shop=1", rest.url());
    let variables = [("RUNNER_TOOLS", &*url), ("TOOLS_API_KEY", "hunter2-tools")];
    let runner = runner_with(&server, &[], &variables);
    let _caller = Caller::dial(runner.addr, Provider::Twilio);
    let mut service = server.accept();
    assert_eq!(names(&service.open()), ["order", "end_call", "press_keys"]);
    assert_eq!(service.request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    service.send(&json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}));
    call(&service, "c1", "order");
    service.send(&json!({"type": "response.done", "response": {"id": "r", "status": "completed", "output": []}}));
    assert_eq!(
        service.expect("conversation.item.create")["item"]["output"],
        r#"{"state":"sent"}"#
    );
    service.expect("response.create");
    let asked = rest.asked();
    let methods: Vec<&str> = asked.iter().map(|request| &*request.method).collect();
    assert_eq!(methods, ["GET", "GET", "POST"]);
    for request in &asked {
        assert_eq!(request.target, "/functions?shop=1");
        assert_eq!(request.header("authorization"), Some("Bearer hunter2-tools"));
    }
    let body: Value = serde_json::from_str(&asked[2].body).expect("JSON");
    assert_eq!(
        (&body["call_id"], &body["name"], &body["arguments"]),
        (&json!("c1"), &json!("order"), &json!({"on": true}))
    );
    assert!(!runner.log().contains("hunter2-tools"));
}

/// The runner does not start with functions that collide or a program that cannot be run.
#[test]
fn functions_that_cannot_be_used_are_reported_at_the_start() {
    let colliding = json!({"tools": [{"type": "function", "name": "lamp"}]}).to_string();
    let files = [("tools.sh", PROGRAM), ("session.json", &*colliding)];
    let local = [("REALTIME_URL", "ws://127.0.0.1:9/v1"), ("REALTIME_MODEL", "m")];
    for (tools, session, words) in [
        ("sh tools.sh p", "session.json", "two functions are called `lamp`"),
        ("sh absent.sh", "", "it ended"),
        ("./absent", "", "cannot be run"),
        ("sh 'tools.sh", "", "RUNNER_TOOLS"),
        ("http://user@h/", "", "RUNNER_TOOLS"),
    ] {
        let variables = [
            &local[..],
            &[("RUNNER_TOOLS", tools), ("REALTIME_SESSION_FILE", session)],
        ]
        .concat();
        let ran = TestRunner::run_among(&files, &["--bot", "realtime", "--port", "0"], &variables);
        assert!(
            ran.code != Some(0) && ran.stderr.contains(words),
            "{tools}: {}",
            ran.stderr
        );
    }
}
