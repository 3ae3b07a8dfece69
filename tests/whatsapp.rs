//! R-020: WhatsApp calls, against a simulated provider that checks each request and each packet.
//! Sections are those of `docs/spec/whatsapp.md`.

use std::sync::Mutex;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::support::http;
use crate::support::program::{BotProcess, SLEEPING_COMMAND};
use crate::support::rest::ScriptedAnswer;
use crate::support::runner::TestRunner;
use crate::support::whatsapp::{
    APP_SECRET, FROM, Graph, NAME, NUMBER_ID, Phone, TOKEN, WORD, connect, done, failed, post, runner, signature,
    terminate, variables, webhook,
};

const CALL: &str = "wacid.HBgLMTU1NTAwMDExMTEVAgASGCA1RjQ";

/// A phone whose call is live.
fn live(graph: &Graph, runner: &TestRunner, call_id: &str) -> Phone {
    let mut phone = Phone::call(runner, call_id);
    phone.hear(graph, 1);
    phone
}

/// No log line contains a secret, a name, a number or a session description.
fn assert_no_secrets_logged(runner: &TestRunner) {
    let log = runner.log();
    for secret in [TOKEN, APP_SECRET, WORD, FROM, NAME, "a=ice-pwd"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} is in the log");
    }
}

/// 6.1 and 2: the challenge requires the verify token, under both paths. Without the option there
/// is no path.
#[test]
fn answers_the_verification_challenge() {
    let graph = Graph::kind();
    let runner = runner(
        &graph,
        &[
            "--api-key",
            "0123456789abcdef",
            "--allowed-origins",
            "https://a.example",
        ],
    );
    let query = format!("hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token={WORD}");
    for path in ["/messaging", "/whatsapp"] {
        let reply = http::get(runner.addr, &format!("{path}?{query}"));
        assert_eq!((reply.status, reply.text().as_str()), (200, "1158201444"), "{path}");
        assert!(
            reply
                .header("content-type")
                .is_some_and(|kind| kind.starts_with("text/plain"))
        );
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    for part in ["hub.mode=subscribe&", "hub.challenge=1158201444&", WORD, "1158201444"] {
        let reply = http::get(runner.addr, &format!("/messaging?{}", query.replace(part, "")));
        assert_eq!(
            (reply.status, reply.json()),
            (403, json!({"detail": "Verification failed"})),
            "{part}"
        );
    }
    let delete = http::request(runner.addr, "DELETE", "/messaging", &[], b"").expect("an answer");
    assert_eq!(
        (delete.status, delete.header("allow")),
        (405, Some("GET, HEAD, POST, OPTIONS"))
    );
    assert_no_secrets_logged(&runner);

    let without = TestRunner::start(&[]);
    for (method, path) in [("GET", "/messaging"), ("POST", "/whatsapp")] {
        let reply = http::request(without.addr, method, &format!("{path}?{query}"), &[], b"{}").expect("an answer");
        assert_eq!(reply.status, 404, "{method} {path}");
    }
    assert!(!http::get(without.addr, "/status").text().contains("messaging"));
    let status = http::request(runner.addr, "GET", "/status", &["Origin: https://a.example"], b"").expect("an answer");
    assert_eq!(status.json()["messaging"], true);
}

/// 6.2, rules 1 and 2: unsigned bodies are rejected before parsing; signed ones are accepted,
/// understood or not.
#[test]
fn rejects_unsigned_webhooks() {
    let graph = Graph::kind();
    let runner = runner(&graph, &[]);
    let body = webhook(&[connect(CALL, &Phone::new(CALL).offer, 0)]);
    let spaced = [&body[..], b" "].concat();
    let ask = |headers: &[&str], body: &[u8]| {
        http::request(runner.addr, "POST", "/whatsapp", headers, body)
            .expect("an answer")
            .status
    };
    let good = signature(APP_SECRET, &body);
    assert_eq!(ask(&[], &body), 401);
    assert_eq!(ask(&[&signature("another", &body)], &body), 401);
    assert_eq!(ask(&[&good], &spaced), 401);
    assert_eq!(ask(&[&good, &good], &body), 401);
    assert_eq!(ask(&["X-Hub-Signature-256: sha256=abc"], b"no JSON"), 401);
    assert_eq!(
        ask(&["X-Hub-Signature-256: sha256=abc"], &vec![b' '; 256 * 1024 + 1]),
        413
    );
    assert_eq!(ask(&["Origin: https://a.example", &good], &body), 403);
    assert_eq!(runner.sessions(), 0);
    assert_eq!(graph.asked(CALL), [""; 0]);
    assert_eq!(post(&runner, b"[]").status, 400);
    assert_eq!(post(&runner, br#"{"object":"page","entry":[]}"#).status, 400);
    for sample in [
        "statuses",
        "messages",
        "event-unknown",
        "connect-foreign",
        "connect-business",
    ] {
        let path = format!("{}/tests/data/whatsapp/{sample}.json", env!("CARGO_MANIFEST_DIR"));
        let body = std::fs::read(path).expect("a sample");
        assert_eq!(post(&runner, &body).status, 200, "{sample}");
    }
    assert_eq!(runner.sessions(), 0);
    let hex = good.rsplit('=').next().expect("hex").to_ascii_uppercase();
    assert_eq!(ask(&[&format!("x-hub-signature-256: sha256={hex}")], &body), 200);
    graph.wait_for(CALL, &["pre_accept", "accept"]);
    assert_no_secrets_logged(&runner);
}

/// 6.3: a complete call. While the accept is delayed, no media is sent, although the bot speaks.
/// The answer has the documented lines and no others.
#[test]
fn connects_a_call_before_accepting_it() {
    let (release, held) = mpsc::channel();
    let held = Mutex::new(held);
    let graph = Graph::playing(move |action, _| {
        if action == "accept" {
            let _ = held.lock().expect("no holder panics").recv();
        }
        done()
    });
    let runner = runner(&graph, &["--bot", "echo"]);
    let mut phone = Phone::call(&runner, CALL);
    phone.until(&graph, "the handshake", |phone| phone.is_secured);
    graph.wait_for(CALL, &["pre_accept", "accept"]);
    for _ in 0..25 {
        phone.live(&graph);
    }
    assert_eq!(phone.received, 0, "audio waits for the accept");
    release.send(()).expect("it is waited for");
    phone.hear(&graph, 50);
    assert!(phone.checks > 0);
    runner.wait_for_log("connected");

    let answer = graph.answer(CALL).expect("an answer");
    assert!(answer.ends_with("\r\n") && !answer.replace("\r\n", "").contains(['\r', '\n']));
    let names: Vec<&str> = answer
        .lines()
        .map(|line| line.split([':', ' ']).next().unwrap_or_default())
        .map(|name| if name.starts_with("a=") { name } else { &name[..2] })
        .collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    let allowed = [
        "a=candidate",
        "a=fingerprint",
        "a=fmtp",
        "a=group",
        "a=ice-pwd",
        "a=ice-ufrag",
        "a=mid",
        "a=rtcp-mux",
        "a=rtpmap",
        "a=sendrecv",
        "a=setup",
        "a=ssrc",
        "c=",
        "m=",
        "o=",
        "s=",
        "t=",
        "v=",
    ];
    let other: Vec<_> = unique.iter().filter(|name| !allowed.contains(name)).collect();
    assert_eq!(other, [&""; 0], "{answer}");
    for line in [
        "a=setup:active",
        "a=mid:audio",
        "a=group:BUNDLE audio",
        "a=sendrecv",
        "a=rtcp-mux",
    ] {
        assert!(answer.lines().any(|other| other == line), "{line} in {answer}");
    }
    let media: Vec<&str> = answer.lines().filter(|line| line.starts_with("m=")).collect();
    assert!(
        media.len() == 1 && media[0].ends_with(" UDP/TLS/RTP/SAVPF 111 126"),
        "{answer}"
    );
    let candidates: Vec<&str> = answer.lines().filter(|line| line.starts_with("a=candidate:")).collect();
    assert!(
        candidates.len() == 1 && candidates[0].contains(" udp ") && candidates[0].contains(" 127.0.0.1 "),
        "{answer}"
    );

    assert_eq!(phone.hang_up(&runner).status, 200);
    runner.wait_for_sessions(0);
    assert_eq!(
        graph.asked(CALL),
        ["pre_accept", "accept"],
        "the user hung up: nothing to ask for"
    );
    assert_eq!(phone.hang_up(&runner).status, 200, "an end that is told again");
    assert_no_secrets_logged(&runner);
}

/// 6.4: the arguments of a program, and each DTMF key once.
#[test]
fn a_program_gets_caller_metadata_and_dtmf() {
    let graph = Graph::kind();
    let runner = runner(&graph, &["--", "/bin/sh", "-c", SLEEPING_COMMAND]);
    let mut phone = Phone::call(&runner, CALL);
    phone.until(&graph, "the handshake", |phone| phone.is_secured);
    let started = BotProcess::of(&runner, |arguments| arguments["body"]["id"] == CALL);
    let arguments = started.arguments.clone();
    assert_eq!(
        (&arguments["kind"], &arguments["call_data"]),
        (
            &json!("webrtc"),
            &json!({"via": "messaging", "provider": "whatsapp", "from": FROM, "to": "15550002222"})
        )
    );
    // The address is that of the provider, and not of the caller.
    let call = http::last_call(runner.addr, &[]);
    let facts = ["transport", "provider", "caller", "callee", "address"].map(|name| &call[name]);
    let wanted = ["webrtc", "whatsapp", FROM, "15550002222"].map(|text| json!(text));
    assert_eq!(facts, [&wanted[0], &wanted[1], &wanted[2], &wanted[3], &Value::Null]);
    let mut body = arguments["body"].clone();
    assert!(body["timestamp"].take().is_string());
    let expected = json!({
        "id": CALL, "from": FROM, "from_": FROM, "to": "15550002222", "event": "connect", "timestamp": null,
        "direction": "USER_INITIATED", "name": NAME, "phone_number_id": NUMBER_ID,
    });
    assert_eq!(body, expected);
    let pc_id = arguments["webrtc_connection"]["pc_id"]
        .as_str()
        .expect("a pc_id")
        .to_owned();
    let patch = json!({"pc_id": pc_id, "candidates": []}).to_string();
    let reply = http::request(runner.addr, "PATCH", "/api/offer", &[], patch.as_bytes()).expect("an answer");
    assert_eq!(reply.status, 404, "no other client reaches the session");

    let mut program = started.connect_media();
    phone.hear(&graph, 5);
    for event in [5, 5, 11] {
        phone.press(event);
        phone.hear(&graph, 5);
    }
    let is_key = |message: &Value| message["type"] == "dtmf";
    program.hear_until("three keys", |program| {
        program.messages.iter().filter(|message| is_key(message)).count() >= 3
    });
    let keys: Vec<&Value> = program.messages.iter().filter(|message| is_key(message)).collect();
    assert_eq!(
        keys.iter().map(|key| &key["digit"]).collect::<Vec<_>>(),
        ["5", "5", "#"]
    );
    assert_no_secrets_logged(&runner);
}

/// 6.2, rules 3 to 5: duplicates, two calls in one webhook, ends that come first, and old offers.
#[test]
fn duplicate_and_reordered_webhooks_start_one_bot() {
    let graph = Graph::kind();
    let runner = runner(&graph, &["--bot", "echo"]);
    let mut phone = live(&graph, &runner, CALL);
    assert_eq!(phone.connect(&runner).status, 200, "a twin");
    let (second, third) = (Phone::new("wacid.SECOND"), Phone::new("wacid.THIRD"));
    let two = [
        connect(&second.call_id, &second.offer, 0),
        connect(&third.call_id, &third.offer, 59),
    ];
    assert_eq!(post(&runner, &webhook(&two)).status, 200);
    graph.wait_for("wacid.SECOND", &["pre_accept", "accept"]);
    graph.wait_for("wacid.THIRD", &["pre_accept", "accept"]);
    assert_eq!(runner.sessions(), 3);

    let late = Phone::new("wacid.LATE");
    assert_eq!(late.hang_up(&runner).status, 200);
    assert_eq!(late.connect(&runner).status, 200);
    let old = Phone::new("wacid.OLD");
    assert_eq!(
        post(&runner, &webhook(&[connect("wacid.OLD", &old.offer, 3_600)])).status,
        200
    );
    runner.wait_for_log("wacid.OLD from");
    phone.hear(&graph, 5);
    assert_eq!(graph.asked(CALL), ["pre_accept", "accept"]);
    assert_eq!((graph.asked("wacid.LATE"), graph.asked("wacid.OLD")), (vec![], vec![]));
    assert_eq!(runner.sessions(), 3);
    assert_no_secrets_logged(&runner);
}

/// 6.2, rules 5 and 6: calls that cannot be answered are rejected at once.
#[test]
fn rejects_calls_it_cannot_answer() {
    let graph = Graph::kind();
    let runner = runner(&graph, &["--bot", "echo", "--max-sessions", "1"]);
    let good = Phone::new("wacid.KEYS").offer;
    let keys: String = good
        .lines()
        .filter(|line| !line.starts_with("a=fingerprint"))
        .flat_map(|line| [line, "\r\n"])
        .collect();
    for (call_id, offer) in [("wacid.BAD", "v=1"), ("wacid.KEYS", keys.as_str())] {
        assert_eq!(post(&runner, &webhook(&[connect(call_id, offer, 0)])).status, 200);
        graph.wait_for(call_id, &["reject"]);
    }
    let no_sdp = json!({"id": "wacid.NONE", "event": "connect"});
    assert_eq!(post(&runner, &webhook(&[no_sdp])).status, 200);
    graph.wait_for("wacid.NONE", &["reject"]);
    assert_eq!(post(&runner, &webhook(&[connect("wacid.OLD", &good, 600)])).status, 200);
    runner.wait_for_log("call wacid.OLD");
    // What the provider sends wrong, or late, is recorded as its failure.
    let calls = http::calls_of(runner.addr, "provider_failed");
    let of_number = calls.iter().filter(|call| call["caller"] == FROM);
    assert_eq!((calls.len(), of_number.count()), (4, 3), "{calls:?}");
    let late = http::last_call(runner.addr, &[])["provider_error"].clone();
    assert!(
        late.as_str().is_some_and(|why| why.starts_with("its webhook came ")),
        "{late}"
    );
    let _phone = live(&graph, &runner, CALL);
    let second = Phone::call(&runner, "wacid.SECOND");
    graph.wait_for(&second.call_id, &["reject"]);
    runner.wait_for_log("every session of this runner is taken");
    assert_no_secrets_logged(&runner);
}

/// A call that the bot does not take is rejected, and leaves one record, however often it is
/// reported.
#[test]
fn a_refused_call_is_recorded() {
    let graph = Graph::kind();
    let variables = variables(&graph);
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let settings = "[bots.vip]\nbot = 'echo'\ncallers = ['+43*']\n";
    let runner = TestRunner::start_among(
        &[("a.toml", settings)],
        &["--messaging", "--config", "a.toml"],
        &variables,
    );
    let phone = Phone::new(CALL);
    for _ in 0..2 {
        assert_eq!(phone.connect(&runner).status, 200);
    }
    graph.wait_for(CALL, &["reject"]);
    let calls = http::refused_calls(runner.addr);
    assert_eq!(calls.len(), 1, "{calls:?}");
    let facts = ["transport", "bot", "caller", "callee", "endedBy"].map(|name| &calls[0][name]);
    let wanted = ["webrtc", "vip", FROM, "15550002222", "runner"];
    assert_eq!(facts, wanted.map(|text| json!(text)).each_ref());
    assert_eq!(runner.sessions(), 0);
}

/// 6.3, rule 1: without a pre-accept there is no bot. An early terminate leaves nothing behind.
#[test]
fn a_failed_pre_accept_starts_no_bot() {
    let (release, held) = mpsc::channel();
    let held = Mutex::new(held);
    let graph = Graph::playing(move |_, nth| match nth {
        0 => failed(400, 100),
        1 => failed(400, 138_003),
        2 => ScriptedAnswer::Json(200, r#"{"success":false}"#.to_owned()),
        3 => ScriptedAnswer::Json(200, "OK".to_owned()),
        _ => {
            let _ = held.lock().expect("no holder panics").recv();
            done()
        }
    });
    let runner = runner(&graph, &["--", "/bin/sh", "-c", SLEEPING_COMMAND]);
    for call_id in ["wacid.A", "wacid.B", "wacid.C", "wacid.D"] {
        Phone::call(&runner, call_id);
        runner.wait_for_log(&format!("call {call_id} is over"));
        assert_eq!(graph.asked(call_id), ["pre_accept"]);
    }
    let phone = Phone::call(&runner, CALL);
    graph.wait_for(CALL, &["pre_accept"]);
    assert_eq!(phone.hang_up(&runner).status, 200);
    runner.wait_for_log(&format!("call {CALL} is over"));
    release.send(()).expect("it is waited for");
    assert_eq!(runner.sessions(), 0);
    // What the provider does not take has failed there, unless another app answers. A caller that
    // leaves has ended the call.
    let call = http::last_call(runner.addr, &[]);
    assert_eq!(
        (&call["outcome"], &call["endedBy"], &call["caller"], &call["provider"]),
        (
            &json!("never_connected"),
            &json!("caller"),
            &json!(FROM),
            &json!("whatsapp")
        )
    );
    let failed = http::calls_of(runner.addr, "provider_failed");
    assert_eq!(failed.len(), 3, "{failed:?}");
    let path = format!("/calls/{}", failed[2]["id"].as_str().expect("an id"));
    let why = http::get(runner.addr, &path).json()["provider_error"].clone();
    assert!(why.as_str().is_some_and(|why| why.contains("code 100")), "{why}");
    assert_eq!(graph.asked(CALL), ["pre_accept"]);
    assert!(BotProcess::all(&runner).is_empty());
    assert_no_secrets_logged(&runner);
}

/// An accept that is refused, or has an unclear answer, ends the session and the call.
#[test]
fn a_failed_accept_ends_the_call() {
    let graph = Graph::playing(|action, nth| match (action, nth) {
        ("accept", 0) => failed(400, 100),
        ("accept", _) => ScriptedAnswer::Json(500, String::new()),
        _ => done(),
    });
    let runner = runner(&graph, &["--bot", "echo"]);
    for (call_id, end) in [("wacid.A", "reject"), ("wacid.B", "terminate")] {
        let mut phone = Phone::call(&runner, call_id);
        phone.until(&graph, "the handshake", |phone| phone.is_secured);
        graph.wait_for(call_id, &["pre_accept", "accept", end]);
        runner.wait_for_sessions(0);
        runner.wait_for_log(&format!("call {call_id} is over"));
        assert_eq!(phone.received, 0);
    }
    assert_no_secrets_logged(&runner);
}

/// 6.3, rule 4: a bot that ends before the accept rejects the call; one that ends later terminates
/// it, once, and again only if the outcome is unknown.
#[test]
fn a_finished_bot_ends_the_call_once() {
    let graph = Graph::playing(|action, nth| match (action, nth) {
        ("terminate", 0) => ScriptedAnswer::Json(500, String::new()),
        ("terminate", 1) => failed(400, 138_005),
        _ => done(),
    });
    let ends = runner(&graph, &["--", "/bin/sh", "-c", "exit 0"]);
    // A silent phone: the accept waits for the handshake, and the bot ends before.
    let _silent = Phone::call(&ends, "wacid.BEFORE");
    graph.wait_for("wacid.BEFORE", &["pre_accept", "reject"]);
    ends.wait_for_sessions(0);
    let cannot = runner(&graph, &["--", "/bin/sh", "-c", "exit 3"]);
    let _silent = Phone::call(&cannot, "wacid.CANNOT");
    graph.wait_for("wacid.CANNOT", &["pre_accept", "reject"]);

    let runner = runner(&graph, &["--", "/bin/sh", "-c", SLEEPING_COMMAND]);
    let mut phone = Phone::call(&runner, CALL);
    phone.until(&graph, "the handshake", |phone| phone.is_secured);
    let program = BotProcess::of(&runner, |arguments| arguments["body"]["id"] == CALL).connect_media();
    phone.hear(&graph, 5);
    drop(program);
    graph.wait_for(CALL, &["pre_accept", "accept", "terminate", "terminate", "terminate"]);
    runner.wait_for_log(&format!("call {CALL} is over"));
    assert_eq!(graph.asked(CALL).len(), 5);
    assert_no_secrets_logged(&runner);
}

/// A stopping runner ends all calls in parallel: no request waits for the answer to another.
#[test]
fn a_stopping_runner_terminates_every_call() {
    let graph = Graph::playing(|action, _| match action {
        "terminate" => ScriptedAnswer::Silence,
        _ => done(),
    });
    let mut runner = runner(&graph, &["--bot", "echo"]);
    let calls = ["wacid.A", "wacid.B", "wacid.C"];
    let _phones: Vec<Phone> = calls.iter().map(|call_id| live(&graph, &runner, call_id)).collect();
    runner.signal("TERM");
    for call_id in calls {
        graph.wait_for(call_id, &["pre_accept", "accept", "terminate"]);
    }
    assert!(runner.wait().success());
    assert_no_secrets_logged(&runner);
}

/// 6.1: misuse exits with 2 and names what is missing. The banner contains the address of the
/// webhook.
#[test]
fn reports_misuse_and_prints_the_webhook_address() {
    let ended = TestRunner::run(&["--messaging"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for name in [
        "MESSAGING_TOKEN",
        "WHATSAPP_APP_SECRET",
        "MESSAGING_WEBHOOK_VERIFICATION_TOKEN",
    ] {
        assert!(ended.stderr.contains(name), "{}", ended.stderr);
    }
    let graph = Graph::kind();
    let all = variables(&graph);
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ended = TestRunner::run_with(&["--whatsapp", "-t", "websocket"], &all);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("-t websocket"), "{}", ended.stderr);
    let mut runner = TestRunner::start_with(&["--whatsapp", "--proxy", "bots.example.net"], &all);
    runner.signal("TERM");
    assert!(runner.wait().success());
    let (said, _) = runner.last_words();
    assert!(said.contains("WhatsApp   https://bots.example.net/messaging"), "{said}");
    assert!(graph.asked("").is_empty(), "nothing is asked at the start");
}

/// A terminate during the handshake ends the bot.
#[test]
fn a_terminate_during_the_handshake_ends_the_bot() {
    let graph = Graph::kind();
    let runner = runner(&graph, &["--", "/bin/sh", "-c", SLEEPING_COMMAND]);
    let phone = Phone::call(&runner, CALL);
    let _started = BotProcess::of(&runner, |arguments| arguments["body"]["id"] == CALL);
    assert_eq!(post(&runner, &webhook(&[terminate(CALL)])).status, 200);
    runner.wait_for_log(&format!("call {CALL} is over"));
    runner.wait_for_sessions(0);
    assert!(!graph.asked(CALL).contains(&"reject".to_owned()) && !graph.asked(CALL).contains(&"terminate".to_owned()));
    drop(phone);
}
