//! Canaries of the bot `realtime`: the keys of its service and of its functions, their arguments,
//! and the words of all sides. Service and endpoint repeat what they got.

use serde_json::json;

use super::{ARGUMENT, FROM, SAID, Watched};
use crate::support::client::Client;
use crate::support::provider::{Caller, Provider};
use crate::support::realtime::{RealtimeServer, RealtimeSession};
use crate::support::rest::Rest;
use crate::support::runner::TestRunner;

const SERVICE_KEY: &str = "canary-key-of-a-service-2b7e";
const TOOLS_KEY: &str = "canary-key-of-functions-1a6d";

/// A program that repeats what it gets, and its arguments.
const PROGRAM: &str = r#"
echo '{"functions": [{"name": "note"}]}'
while read -r line; do
    echo "$1 $line" >&2
    echo "$1 $line"
    echo "{\"call_id\": \"c1\", \"output\": $line}"
done
"#;

/// Everything that a service can say, with the canaries in each place.
fn converse(service: &mut RealtimeSession) {
    service.open();
    service.begin_response("r", "i");
    service.write("r", "i", SAID);
    service.speak("r", "i", &[0; 960]);
    let error = json!({"type": SERVICE_KEY, "code": null, "message": SERVICE_KEY, "param": SERVICE_KEY});
    for event in [
        json!({"type": "conversation.item.input_audio_transcription.completed", "item_id": "u", "content_index": 0,
            "transcript": SAID}),
        json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "f", "call_id": "c1",
            "name": "note", "arguments": json!({"text": SAID, "number": FROM}).to_string()}),
        json!({"type": "response.function_call_arguments.done", "response_id": "r", "item_id": "g", "call_id": "c2",
            "name": "note", "arguments": SAID}),
        json!({"type": "error", "error": error}),
        json!({"type": SERVICE_KEY, "text": SAID}),
    ] {
        service.send(&event);
    }
    service.end_response("r", "i", SAID);
    while service.next("the outputs")["type"] != "response.create" {}
}

/// Calls with functions of a program and of an endpoint, and services that fail.
#[test]
fn no_canary_leaks_from_an_assistant() {
    let declared = json!({"functions": [{"name": "note"}]}).to_string();
    let echoed = json!({"output": {"key": TOOLS_KEY}}).to_string();
    let rest = Rest::start(&[
        (200, &declared),
        (200, &declared),
        (200, &declared),
        (500, TOOLS_KEY),
        (200, &echoed),
    ]);
    let program = format!("sh tools.sh {ARGUMENT}");
    let endpoint = format!("{}/{ARGUMENT}?key={ARGUMENT}", rest.url());
    for tools in [&program, &endpoint] {
        let server = RealtimeServer::start();
        let url = server.url();
        let variables = [
            ("REALTIME_URL", url.as_str()),
            ("REALTIME_MODEL", "m"),
            ("REALTIME_API_KEY", SERVICE_KEY),
            ("REALTIME_INSTRUCTIONS", SAID),
            ("RUNNER_BOT_GREETING", SAID),
            ("RUNNER_TOOLS", tools),
            ("TOOLS_API_KEY", TOOLS_KEY),
        ];
        let files = [("tools.sh", PROGRAM)];
        let runner = TestRunner::start_among(&files, &["--bot", "realtime", "-vv"], &variables);
        let mut watched = Watched {
            runner,
            secrets: super::secrets(),
            key: None,
        };
        watched.secrets.retain(|secret| secret != ARGUMENT || tools != &program);
        watched.secrets.extend([SERVICE_KEY, TOOLS_KEY].map(str::to_owned));
        let status = watched.ask("GET", "/status", &[], "", &[]);
        assert_eq!(status.json()["bot"], "realtime");
        let mut client = Client::connect(watched.addr(), "/ws-client");
        client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
        client.tell("send-text", "2", &json!({"content": SAID}));
        converse(&mut server.accept());
        let _caller = Caller::dial(watched.addr(), Provider::Twilio);
        converse(&mut server.accept());
        client.socket.close(1000);
        watched.end(&["functions of ", "connected to 127.0.0.1", "session started"]);
    }
    let body = json!({"error": {"code": SERVICE_KEY, "message": SERVICE_KEY}});
    let server = RealtimeServer::refusing(401, &body);
    let url = server.url();
    let variables = [
        ("REALTIME_URL", url.as_str()),
        ("REALTIME_MODEL", "m"),
        ("REALTIME_API_KEY", SERVICE_KEY),
    ];
    let watched = Watched {
        runner: TestRunner::start_with(&["--bot", "realtime", "-vvv"], &variables),
        secrets: vec![SERVICE_KEY.to_owned()],
        key: None,
    };
    Client::connect(watched.addr(), "/ws-client").end();
    watched.end(&["it does not accept the key"]);
}

/// Errors about these settings do not repeat possible secrets.
#[test]
fn misuse_of_an_assistant_is_reported_without_the_secret() {
    let far = format!("http://user:{SERVICE_KEY}@far.example.net/{SERVICE_KEY}");
    let local = [("REALTIME_URL", "ws://127.0.0.1:9/v1"), ("REALTIME_MODEL", "m")];
    for wrong in [
        &[("RUNNER_TOOLS", &*far)][..],
        &[("RUNNER_TOOLS", "sh 'canary-key-of-functions-1a6d")],
        &[
            ("RUNNER_TOOLS", "http://far.example.net/"),
            ("TOOLS_API_KEY", TOOLS_KEY),
        ],
        &[
            ("RUNNER_TOOLS", "http://127.0.0.1/"),
            ("TOOLS_API_KEY", "canary-key-of-functions-1a6d\u{e4}"),
        ],
        &[
            ("REALTIME_API_KEY", SERVICE_KEY),
            ("REALTIME_URL", "ws://far.example.net/v1"),
        ],
    ] {
        let ended = TestRunner::run_with(&["--bot", "realtime"], &[&local[..], wrong].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let text = format!("{}\n{}", ended.stdout, ended.stderr);
        super::assert_silent(&text, &[SERVICE_KEY, TOOLS_KEY].map(str::to_owned));
    }
}
