//! Calls that the runner dials: the real binary, with the providers' APIs scripted, and webhooks
//! signed as the providers sign them.

use std::net::Ipv4Addr;
use std::sync::{Mutex, mpsc};
use std::thread;

use serde_json::{Value, json};

use crate::support::follower::Follower;
use crate::support::http::{self, KeepAlive, Reply};
use crate::support::program::{BotProcess, SLEEPING_COMMAND, wait_until};
use crate::support::provider::{Caller, Provider};
use crate::support::rest::{Rest, SILENCE, ScriptedAnswer};
use crate::support::runner::{PATIENCE, TestRunner};
use crate::support::signed::{self, API_KEY, HOST, TOKEN};
use crate::support::socket::Socket;

const DIALS: [Provider; 3] = [Provider::Twilio, Provider::Telnyx, Provider::Plivo];
const FROM: &str = "+15550002222";
const TO: &str = "+15550001111";
const ACCOUNT: &str = "AC0000000000000000000000000000cafe";

/// A runner that dials by this API.
fn runner_with(provider: Provider, api: &Rest, verifies: bool) -> TestRunner {
    runner_by(provider, &api.url(), verifies, &[])
}

/// The variables of a runner that dials by the API at this URL, with the key that verifies the
/// webhooks of Telnyx.
fn variables<'v>(url: &'v str, key: Option<&'v str>) -> Vec<(&'static str, &'v str)> {
    let mut variables = vec![
        ("TELCO_A_API_URL", url),
        ("TELCO_B_API_URL", url),
        ("TELCO_C_API_URL", url),
        ("RUNNER_EVENTS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("TELCO_A_ACCOUNT_SID", ACCOUNT),
        ("TELCO_A_AUTH_TOKEN", TOKEN),
        ("TELCO_B_API_KEY", TOKEN),
        ("TELCO_C_AUTH_ID", "MAFEFEFEFEFEFEFEFEFE"),
        ("TELCO_C_AUTH_TOKEN", TOKEN),
        ("RUNNER_API_KEY", API_KEY),
    ];
    variables.extend(key.map(|key| ("TELCO_B_PUBLIC_KEY", key)));
    variables
}

/// A runner that dials by the API at this URL, with more options.
fn runner_by(provider: Provider, url: &str, verifies: bool, more: &[&str]) -> TestRunner {
    let key = signed::public_key();
    let variables = variables(url, verifies.then_some(key.as_str()));
    let options = [
        "-t",
        provider.transport(),
        "--proxy",
        HOST,
        "--dial-out",
        FROM,
        "--metrics",
        "any",
    ];
    let command = ["--", "/bin/sh", "-c", SLEEPING_COMMAND];
    TestRunner::start_with(&[&options[..], more, &command[..]].concat(), &variables)
}

/// The bot that the request names answers, although the markup does not name it: Twilio drops a
/// query, and an upgrade is signed without it.
#[test]
fn a_dialled_call_reaches_the_bot_of_its_request() {
    let command = r#"command = ["/bin/sh", "-c", "echo \"this is $WHO\" >&2; exec sleep 60"]"#;
    let settings = format!(
        "[bots.desk]\n{command}\nenv = {{ WHO = 'the desk' }}\n\n[bots.sales]\n{command}\nenv = {{ WHO = 'sales' }}\n"
    );
    for provider in DIALS {
        let call_id = "CAdialled";
        let answers = answers(provider, call_id);
        let (api, requests) = (api(&answers), answers.len());
        let (url, key) = (api.url(), signed::public_key());
        let options = [
            "--config",
            "edge-runner.toml",
            "-t",
            provider.transport(),
            "-x",
            HOST,
            "--dial-out",
            FROM,
        ];
        let files = [("edge-runner.toml", settings.as_str())];
        let runner = TestRunner::start_among(&files, &options, &variables(&url, Some(&key)));
        let request = json!({"to": TO, "machine_detection": true, "bot": "sales"});
        assert_eq!(dial(&runner, &[], &request).status, 201);
        let [answer, ..] = urls(provider, &api.asked()[requests - 1].body);
        let markup = signed::webhook_at(&answer, provider, &signed::form(provider, call_id), "1").send(&runner);
        let target = signed::target(&markup);
        assert!(!target.contains('?'), "{target}");
        let mut caller = Caller::connect(runner.addr, &target, provider, provider.lines()[0]);
        caller.call_id = call_id.to_owned();
        caller.greet();
        caller.start();
        runner.wait_for_log("this is sales");
    }
}

fn dial(runner: &TestRunner, headers: &[&str], body: &Value) -> Reply {
    let authorization = format!("Authorization: Bearer {API_KEY}");
    let own = ["Content-Type: application/json", authorization.as_str()];
    let headers = [&own[..], headers].concat();
    http::request(runner.addr, "POST", "/calls", &headers, body.to_string().as_bytes()).expect("an answer")
}

/// What each provider answers: to the look-up of a number, then to the request that dials.
fn answers(provider: Provider, call_id: &str) -> Vec<(u16, String)> {
    match provider {
        Provider::Twilio => vec![(201, json!({"sid": call_id, "status": "queued"}).to_string())],
        Provider::Telnyx => vec![
            (
                200,
                json!({"data": [{"id": "9", "phone_number": FROM, "connection_id": "177"}]}).to_string(),
            ),
            (200, json!({"call_sid": call_id, "status": "queued"}).to_string()),
        ],
        _ => vec![(
            201,
            json!({"message": "call fired", "request_uuid": call_id}).to_string(),
        )],
    }
}

fn api(answers: &[(u16, String)]) -> Rest {
    let answers: Vec<(u16, &str)> = answers.iter().map(|(status, body)| (*status, body.as_str())).collect();
    Rest::start(&answers)
}

/// Returns the paths of the URLs that the provider was given: of the markup, of the report of who
/// answered, and of that of the end.
fn urls(provider: Provider, body: &str) -> [String; 3] {
    let names = match provider {
        Provider::Plivo => ["answer_url", "machine_detection_url", "hangup_url"],
        _ => ["Url", "AsyncAmdStatusCallback", "StatusCallback"],
    };
    let value = |name: &str| match provider {
        Provider::Twilio => {
            let pair = body.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
            pair.expect(body)
                .replace("%2F", "/")
                .replace("%3F", "?")
                .replace("%3D", "=")
        }
        _ => {
            let body: Value = serde_json::from_str(body).expect("JSON");
            body[name].as_str().expect(name).to_owned()
        }
    };
    let base = format!("https://{HOST}");
    let target = |url: String| url.strip_prefix(&base).expect("the public host").to_owned();
    names.map(value).map(target)
}

/// From the request to the bot: the call has the id of the reply, the body of the request, its
/// numbers, and the report of who answered.
#[test]
fn a_dialled_call_reaches_its_bot() {
    for provider in DIALS {
        let call_id = "CAdialled";
        let answers = answers(provider, call_id);
        let (api, requests) = (api(&answers), answers.len());
        let runner = runner_with(provider, &api, true);
        let request = json!({"to": TO, "machine_detection": true, "body": {"customer": 42}});
        let reply = dial(&runner, &[], &request);
        assert_eq!(reply.status, 201, "{}", reply.text());
        let reply = reply.json();
        assert_eq!(
            (&reply["call_id"], &reply["provider"]),
            (&json!(call_id), &json!(provider.name()))
        );
        let asked = api.asked();
        assert_eq!(asked.len(), requests);
        let [answer, report, end] = urls(provider, &asked[requests - 1].body);
        // The telephone is answered: the provider fetches the markup, and connects.
        let form = signed::form(provider, call_id);
        let markup = signed::webhook_at(&answer, provider, &form, "1").send(&runner);
        let mut caller = Caller::connect(runner.addr, &signed::target(&markup), provider, provider.lines()[0]);
        caller.call_id = call_id.to_owned();
        caller.greet();
        caller.start();
        let started = BotProcess::of(&runner, |_| true);
        assert_eq!(started.arguments["session_id"], reply["id"]);
        assert_eq!(started.arguments["body"], json!({"customer": 42}));
        let data = &started.arguments["call_data"];
        assert_eq!((&data["from"], &data["to"]), (&json!(FROM), &json!(TO)));
        assert_eq!(
            (&data["direction"], data.get("answered_by")),
            (&json!("outbound"), None)
        );
        let mut program = started.connect_media();
        let mut form = signed::form(provider, call_id);
        match provider {
            Provider::Plivo => form.insert(2, ("Machine", "true".to_owned())),
            _ => form.insert(0, ("AnsweredBy", "machine_start".to_owned())),
        }
        let reported = signed::webhook_at(&report, provider, &form, "2").send(&runner);
        assert_eq!((reported.status, reported.text()), (200, String::new()));
        let report = program.hear_message("who answered", |message| message["type"] == "answered-by");
        assert_eq!(report, json!({"type": "answered-by", "by": "machine"}));
        caller.stop();
        caller.end();
        runner.wait_for_sessions(0);
        let call = http::last_call(runner.addr, &[&format!("Authorization: Bearer {API_KEY}")]);
        assert_eq!(
            (&call["id"], &call["callee"], &call["direction"], &call["answered_by"]),
            (&reply["id"], &json!(TO), &json!("outbound"), &json!("machine"))
        );
        // The end of a call that had a session is that of the session.
        let form = end_form(provider, call_id, "completed");
        assert_eq!(signed::webhook_at(&end, provider, &form, "3").send(&runner).status, 200);
        assert_eq!(record(&runner, &reply["id"]).json()["outcome"], call["outcome"]);
        let log = runner.log();
        for secret in [TO, FROM, "5550001111", TOKEN, API_KEY] {
            assert!(!log.contains(secret), "{log}");
        }
        let metrics = http::get(runner.addr, "/metrics").text();
        assert!(
            metrics.contains("edge_runner_dials_total{outcome=\"placed\"} 1"),
            "{metrics}"
        );
        assert!(metrics.contains("edge_runner_dials_answered_total 1"), "{metrics}");
    }
}

/// What is recorded of the call with this id.
fn record(runner: &TestRunner, id: &Value) -> Reply {
    let path = format!("/calls/{}", id.as_str().expect("an id"));
    let authorization = format!("Authorization: Bearer {API_KEY}");
    http::request(runner.addr, "GET", &path, &[&authorization], b"").expect("an answer")
}

/// The form in which a provider reports the end of a call.
fn end_form(provider: Provider, call_id: &str, status: &str) -> Vec<(&'static str, String)> {
    let mut form = signed::form(provider, call_id);
    form.push(("CallStatus", status.to_owned()));
    form.sort_unstable();
    form
}

/// A call that no telephone takes has a record, which says how it ended and who ended it; a report
/// that comes twice adds none, and one that is not signed counts for nothing.
#[test]
fn a_call_without_an_answer_is_recorded() {
    for (provider, canceled) in DIALS.into_iter().zip(["canceled", "canceled", "cancel"]) {
        let answers = answers(provider, "CAdialled");
        let all: Vec<(u16, String)> = (0..5).flat_map(|_| answers.clone()).collect();
        let api = api(&all);
        let runner = runner_with(provider, &api, true);
        for (nth, (status, outcome, by)) in [
            ("busy", "busy", "caller"),
            ("no-answer", "no_answer", "caller"),
            ("failed", "unreachable", "transport"),
            (canceled, "canceled", "operator"),
            ("completed", "never_connected", "caller"),
        ]
        .into_iter()
        .enumerate()
        {
            let id = dial(&runner, &[], &json!({"to": TO, "machine_detection": true})).json()["id"].clone();
            let asked = api.asked();
            assert_eq!(asked.len(), (nth + 1) * answers.len());
            let [_, _, end] = urls(provider, &asked.last().expect("a request").body);
            let form = end_form(provider, "CAdialled", status);
            let unsigned = ["Content-Type: application/x-www-form-urlencoded"];
            let forged = http::request(runner.addr, "POST", &end, &unsigned, b"CallStatus=busy").expect("an answer");
            assert_eq!(forged.status, 403, "{}", forged.text());
            let signed = signed::webhook_at(&end, provider, &form, "1");
            let ringing = end_form(provider, "CAdialled", "ringing");
            assert_eq!(
                signed::webhook_at(&end, provider, &ringing, "0").send(&runner).status,
                200
            );
            assert_eq!(record(&runner, &id).status, 404, "the call goes on");
            for _ in 0..2 {
                assert_eq!(signed.send(&runner).status, 200);
            }
            let call = record(&runner, &id).json();
            assert_eq!(
                (&call["outcome"], &call["endedBy"], &call["state"]),
                (&json!(outcome), &json!(by), &json!("ended")),
                "{provider:?}"
            );
            assert_eq!(
                (&call["caller"], &call["callee"], &call["direction"]),
                (&json!(FROM), &json!(TO), &json!("outbound"))
            );
            assert_eq!(call["transport"], provider.transport());
        }
        assert!(!runner.log().contains(TO), "{}", runner.log());
    }
}

/// What a provider refuses at once has a record, which says so and why, an event for the receiver
/// and one for those that follow. A retry with the same key neither asks again nor adds a record.
#[test]
fn a_call_that_is_not_dialled_is_recorded() {
    let refusal = || {
        vec![(
            400,
            r#"{"code":21211,"message":"Invalid 'To' +15550001111"}"#.to_owned(),
        )]
    };
    let gone = api(&refusal()).url();
    for provider in DIALS {
        let looked_up = answers(provider, "").len() - 1;
        let refused = |after: usize| [&answers(provider, "")[..after], &refusal()].concat();
        // At the last request; at the first, where a number is looked up before; by the network.
        for answers in [Some(refused(looked_up)), Some(refused(0)), None] {
            let api = answers.as_deref().map(api);
            let url = api.as_ref().map_or_else(|| gone.clone(), Rest::url);
            let receiver = Rest::start(&[(200, "{}")]);
            let runner = runner_by(provider, &url, true, &["--events", &receiver.url()]);
            let authorization = format!("Authorization: Bearer {API_KEY}");
            let mut follower = Follower::connect(runner.addr, &[&authorization]);
            assert_eq!(follower.line("HTTP/1.").as_deref(), Some("0 200 OK"));
            let key = ["Idempotency-Key: order-42"];
            let [first, again] = [(); 2].map(|()| dial(&runner, &key, &json!({"to": TO})));
            assert_eq!((first.status, again.status), (502, 502), "{}", first.text());
            assert_eq!(first.body, again.body);
            assert_eq!(again.header("idempotency-replayed"), Some("true"));
            assert_eq!(
                api.map_or(0, |api| api.asked().len()),
                answers.map_or(0, |all| all.len())
            );
            let call = record(&runner, &first.json()["id"]).json();
            assert_eq!(
                (&call["outcome"], &call["endedBy"], &call["state"]),
                (&json!("not_dialled"), &json!("transport"), &json!("ended"))
            );
            assert_eq!(call["reason"], "the provider did not dial");
            assert_eq!(
                (&call["caller"], &call["callee"], &call["direction"]),
                (&json!(FROM), &json!(TO), &json!("outbound"))
            );
            let why = call["provider_error"].as_str().expect("why");
            assert!(first.text().contains(why) && !why.contains("1555"), "{why}");
            let (name, ended) = follower.event();
            assert_eq!((&*name, &ended), ("ended", &call));
            wait_until(|| !receiver.asked().is_empty(), || "no event was posted".to_owned());
            let listed = http::request(runner.addr, "GET", "/calls", &[&authorization], b"").expect("an answer");
            assert_eq!(listed.json()["calls"].as_array().map(Vec::len), Some(1));
            let events: Vec<Value> = receiver
                .asked()
                .iter()
                .map(|event| serde_json::from_str(&event.body).expect("JSON"))
                .collect();
            let metrics = http::get(runner.addr, "/metrics").text();
            let name = provider.name();
            let line = format!("edge_runner_dials_unanswered_total{{provider=\"{name}\",outcome=\"not_dialled\"}} 1\n");
            assert!(metrics.contains(&line), "{metrics}");
            assert_eq!(events.len(), 1, "{events:?}");
            assert_eq!((&events[0]["type"], &events[0]["data"]), (&json!("call.failed"), &call));
        }
    }
}

/// A call that rings when the runner stops is recorded, with the runner as the side that ended it.
/// While live sessions go on, ends are still reported.
#[test]
fn a_call_that_rings_ends_with_the_runner() {
    let api = Rest::start(&[(201, r#"{"sid":"CA01"}"#)]);
    let runner = runner_by(Provider::Twilio, &api.url(), true, &["--drain", "60"]);
    let mut caller = Caller::connect(
        runner.addr,
        &socket_of_a_call(&runner, &api),
        Provider::Twilio,
        Provider::Twilio.lines()[0],
    );
    caller.call_id = "CA01".to_owned();
    caller.greet();
    caller.start();
    runner.wait_for_sessions(1);
    let id = dial(&runner, &[], &json!({"to": TO, "machine_detection": true})).json()["id"].clone();
    let [_, _, end] = urls(Provider::Twilio, &api.asked()[1].body);
    runner.signal("TERM");
    wait_until(|| record(&runner, &id).status == 200, || "no record".to_owned());
    let call = record(&runner, &id).json();
    assert_eq!(
        (&call["outcome"], &call["endedBy"]),
        (&json!("shutdown"), &json!("runner"))
    );
    let form = end_form(Provider::Twilio, "CA02", "no-answer");
    assert_eq!(
        signed::webhook_at(&end, Provider::Twilio, &form, "1")
            .send(&runner)
            .status,
        200
    );
    assert_eq!(record(&runner, &id).json(), call);
}

/// The method and the path with which a provider ends a call that rings.
fn cancel_of(provider: Provider, call_id: &str) -> (String, String) {
    let (method, path) = match provider {
        Provider::Twilio => ("POST", format!("/2010-04-01/Accounts/{ACCOUNT}/Calls/{call_id}.json")),
        Provider::Telnyx => ("POST", format!("/v2/calls/{call_id}/actions/hangup")),
        _ => ("DELETE", format!("/v1/Account/MAFEFEFEFEFEFEFEFEFE/Request/{call_id}/")),
    };
    (method.to_owned(), path)
}

/// The last request to the provider.
fn last_asked(api: &Rest) -> (String, String) {
    let asked = api.asked();
    let last = asked.last().expect("a request");
    (last.method.clone(), last.target.clone())
}

/// Calls that ring are hung up at their provider when the runner stops, which waits for that.
#[test]
fn calls_that_ring_are_hung_up_by_a_runner_that_stops() {
    for provider in DIALS {
        let answers = [answers(provider, "CAdialled"), vec![(200, "{}".to_owned())]].concat();
        let api = api(&answers);
        let mut runner = runner_with(provider, &api, true);
        assert_eq!(dial(&runner, &[], &json!({"to": TO})).status, 201);
        runner.signal("TERM");
        assert_eq!(runner.wait().code(), Some(0));
        assert_eq!(api.asked().len(), answers.len(), "{provider:?}");
        assert_eq!(last_asked(&api), cancel_of(provider, "CAdialled"));
        runner.wait_for_log(": the call was hung up");
        let log = runner.log();
        assert!(!log.contains("not hung up") && !log.contains("did not end"), "{log}");
    }
}

/// A provider that does not answer delays the stop, but only for a while, which the log names.
#[test]
fn a_stop_waits_for_hang_ups_in_vain_for_a_while() {
    let api = Rest::start(&[(201, r#"{"sid":"CA01"}"#), SILENCE]);
    let mut runner = runner_with(Provider::Twilio, &api, true);
    assert_eq!(dial(&runner, &[], &json!({"to": TO})).status, 201);
    runner.signal("TERM");
    assert_eq!(runner.wait().code(), Some(0));
    runner.wait_for_log("a dialled call was perhaps not hung up");
}

/// The operator ends a call that rings: its provider hangs up, and the telephone that is picked up
/// at this moment gets no bot.
#[test]
fn the_operator_ends_a_call_that_rings() {
    for provider in DIALS {
        let answers = [answers(provider, "CAdialled"), vec![(200, "{}".to_owned())]].concat();
        let api = api(&answers);
        let runner = runner_with(provider, &api, true);
        let id = dial(&runner, &[], &json!({"to": TO, "machine_detection": true})).json()["id"].clone();
        let [answer, _, end] = urls(provider, &api.asked()[answers.len() - 2].body);
        let authorization = format!("Authorization: Bearer {API_KEY}");
        let path = format!("/calls/{}", id.as_str().expect("an id"));
        let delete = |headers: &[&str]| http::request(runner.addr, "DELETE", &path, headers, b"").expect("an answer");
        assert_eq!(delete(&[]).status, 401);
        assert_eq!(api.asked().len(), answers.len() - 1);
        let ended = delete(&[&authorization]);
        assert_eq!((ended.status, ended.json()), (202, json!({"ended": id})));
        runner.wait_for_log(": the call was hung up");
        assert_eq!(last_asked(&api), cancel_of(provider, "CAdialled"));
        let call = record(&runner, &id).json();
        assert_eq!(
            (&call["outcome"], &call["endedBy"], &call["state"]),
            (&json!("canceled"), &json!("operator"), &json!("ended"))
        );
        assert_eq!(delete(&[&authorization]).status, 404, "once");
        let form = signed::form(provider, "CAdialled");
        let markup = signed::webhook_at(&answer, provider, &form, "1").send(&runner);
        assert_eq!(markup.status, 200);
        assert!(markup.text().contains("<Hangup/>"), "{}", markup.text());
        let form = end_form(provider, "CAdialled", "canceled");
        assert_eq!(signed::webhook_at(&end, provider, &form, "2").send(&runner).status, 200);
        assert_eq!(record(&runner, &id).json(), call);
        assert_eq!(api.asked().len(), answers.len());
    }
}

/// A provider that is still asked to dial when the runner stops has to end the call as soon as it
/// names it.
#[test]
fn a_call_that_is_being_dialled_is_hung_up_by_a_runner_that_stops() {
    let (asked, is_asked) = mpsc::channel();
    let (release, is_released) = mpsc::channel();
    let is_released = Mutex::new(is_released);
    let api = Rest::playing(move |nth, _| {
        if nth == 0 {
            asked.send(()).expect("the test waits");
            let released = is_released.lock().expect("no panic").recv_timeout(PATIENCE);
            released.expect("the test goes on");
        }
        ScriptedAnswer::Json(201, r#"{"sid":"CA01"}"#.to_owned())
    });
    let mut runner = runner_by(Provider::Twilio, &api.url(), true, &["--drain", "60"]);
    thread::scope(|scope| {
        let runner = &runner;
        let dialling = scope.spawn(move || dial(runner, &[], &json!({"to": TO})).status);
        is_asked.recv_timeout(PATIENCE).expect("the provider is asked");
        runner.signal("TERM");
        let authorization = format!("Authorization: Bearer {API_KEY}");
        let list = || http::request(runner.addr, "GET", "/calls", &[&authorization], b"").expect("an answer");
        wait_until(
            || list().json()["calls"][0]["outcome"] == "shutdown",
            || format!("no record: {}", runner.log()),
        );
        release.send(()).expect("the provider waits");
        assert_eq!(dialling.join().expect("no panic"), 201);
    });
    assert_eq!(runner.wait().code(), Some(0));
    assert_eq!(last_asked(&api), cancel_of(Provider::Twilio, "CA01"));
}

/// A media socket that ends before its call began leaves a record of the call.
#[test]
fn a_call_without_audio_is_recorded() {
    let api = Rest::start(&[(201, r#"{"sid":"CA01"}"#)]);
    let runner = runner_with(Provider::Twilio, &api, true);
    drop(Socket::connect(runner.addr, &socket_of_a_call(&runner, &api)));
    let authorization = format!("Authorization: Bearer {API_KEY}");
    let list = || http::request(runner.addr, "GET", "/calls", &[&authorization], b"").expect("an answer");
    wait_until(
        || list().json()["calls"] != json!([]),
        || format!("no record: {}", runner.log()),
    );
    let call = http::last_call(runner.addr, &[&authorization]);
    assert_eq!(
        (&call["outcome"], &call["endedBy"], &call["callee"]),
        (&json!("never_connected"), &json!("caller"), &json!(TO))
    );
}

/// Dials by Twilio, and answers. Returns the path of the media socket.
fn socket_of_a_call(runner: &TestRunner, api: &Rest) -> String {
    assert_eq!(
        dial(runner, &[], &json!({"to": TO, "machine_detection": true})).status,
        201
    );
    let [answer, ..] = urls(Provider::Twilio, &api.asked()[0].body);
    let form = signed::form(Provider::Twilio, "CA01");
    signed::target(&signed::webhook_at(&answer, Provider::Twilio, &form, "1").send(runner))
}

/// Without a credential that verifies webhooks, the id in the URL connects request and call.
#[test]
fn a_dialled_call_needs_no_signature() {
    let answers = answers(Provider::Telnyx, "v3:dialled");
    let api = api(&answers);
    let runner = runner_with(Provider::Telnyx, &api, false);
    let reply = dial(&runner, &[], &json!({"to": TO, "machine_detection": true})).json();
    let [answer, report, _] = urls(Provider::Telnyx, &api.asked()[1].body);
    let send = |target: &str, form: &str| {
        let kind = ["Content-Type: application/x-www-form-urlencoded"];
        http::request(runner.addr, "POST", target, &kind, form.as_bytes()).expect("an answer")
    };
    // The report comes first, so it is in the data of the call.
    assert_eq!(send(&report, "CallSid=v3%3Adialled&AnsweredBy=human").status, 200);
    let markup = send(&answer, "CallSid=v3%3Adialled");
    let mut caller = Caller::connect(
        runner.addr,
        &signed::target(&markup),
        Provider::Telnyx,
        Provider::Telnyx.lines()[0],
    );
    caller.call_id = "v3:dialled".to_owned();
    caller.greet();
    caller.start();
    let started = BotProcess::of(&runner, |_| true);
    assert_eq!(started.arguments["session_id"], reply["id"]);
    assert_eq!(started.arguments["call_data"]["answered_by"], "human");
    // An id that no call has is that of a call that comes in.
    let stranger = signed::target(&send("/?dialled=1", "CallSid=v3%3Adialled"));
    assert_eq!(stranger, "/ws");
}

/// A retry with the same key never dials, also while the first request waits for its provider, and
/// when its client did not.
#[test]
fn a_retry_never_dials_twice() {
    let api = Rest::start(&[(201, r#"{"sid":"CA01"}"#)]);
    let runner = runner_with(Provider::Twilio, &api, true);
    let key = ["Idempotency-Key: order-42"];
    let request = json!({"to": TO});
    let first = dial(&runner, &key, &request);
    let again = dial(&runner, &key, &request);
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.body, again.body);
    assert_eq!(first.header("idempotency-replayed"), None);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(dial(&runner, &key, &json!({"to": "+15550003333"})).status, 422);
    assert_eq!(dial(&runner, &["Idempotency-Key: "], &request).status, 400);
    assert_eq!(api.asked().len(), 1);

    // The provider takes the request, and the client does not wait for the reply.
    let api = Rest::start(&[SILENCE]);
    let runner = runner_with(Provider::Twilio, &api, true);
    let body = request.to_string();
    let head = format!(
        "POST /calls HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {API_KEY}\r\nIdempotency-Key: a\r\nContent-Length: {}\r\n\r\n{body}",
        runner.addr,
        body.len()
    );
    let mut impatient = KeepAlive::from(Ipv4Addr::LOCALHOST, runner.addr).expect("a connection");
    impatient.write(head.as_bytes()).expect("it is sent");
    wait_until(|| !api.asked().is_empty(), || "the provider was not asked".to_owned());
    drop(impatient);
    let running = dial(&runner, &["Idempotency-Key: a"], &request);
    assert_eq!((running.status, running.header("retry-after")), (409, Some("1")));
    assert_eq!(api.asked().len(), 1);
}

/// What a provider refuses, and what may have been dialled, is one sentence without numbers.
/// Neither is asked again with the same key.
#[test]
fn failures_of_providers_are_one_sentence() {
    let api = Rest::playing(|nth, _| match nth {
        0 => ScriptedAnswer::Json(
            400,
            r#"{"code":21211,"message":"Invalid 'To' +15550001111"}"#.to_owned(),
        ),
        1 => ScriptedAnswer::Json(503, "{}".to_owned()),
        _ => ScriptedAnswer::Json(201, r#"{"sid":"CA01"}"#.to_owned()),
    });
    let runner = runner_with(Provider::Twilio, &api, true);
    let request = json!({"to": TO});
    for _ in 0..2 {
        let refused = dial(&runner, &["Idempotency-Key: a"], &request);
        let detail = "twilio does not dial: status 400, code 21211: Invalid 'To' +###########; use another \
                      Idempotency-Key to dial again";
        assert_eq!((refused.status, &refused.json()["detail"]), (502, &json!(detail)));
    }
    for _ in 0..2 {
        let unknown = dial(&runner, &["Idempotency-Key: b"], &request);
        assert_eq!(unknown.status, 504);
        let detail = unknown.json()["detail"].as_str().expect("a text").to_owned();
        assert!(
            detail.starts_with("it is not known whether twilio dials: status 503"),
            "{detail}"
        );
    }
    assert_eq!(api.asked().len(), 2);
    assert_eq!(dial(&runner, &["Idempotency-Key: c"], &request).status, 201);
    let warnings = runner.wait_for_logs("POST /calls: ", 2);
    assert!(
        warnings
            .iter()
            .all(|line| line.contains(" WARN ") && !line.contains("1555")),
        "{warnings:?}"
    );
}

#[test]
fn only_those_with_the_key_dial() {
    let api = Rest::start(&[(201, r#"{"sid":"CA01"}"#)]);
    let runner = runner_with(Provider::Twilio, &api, true);
    let body = json!({"to": TO}).to_string();
    let send = |headers: &[&str]| {
        let own = ["Content-Type: application/json"];
        let headers = [&own[..], headers].concat();
        http::request(runner.addr, "POST", "/calls", &headers, body.as_bytes()).expect("an answer")
    };
    assert_eq!(send(&[]).status, 401);
    assert_eq!(send(&["Authorization: Bearer wrong"]).status, 401);
    let authorization = format!("Authorization: Bearer {API_KEY}");
    let foreign = [
        "Origin: https://evil.example",
        "Sec-Fetch-Site: cross-site",
        &authorization,
    ];
    assert_eq!(send(&foreign).status, 403);
    for wrong in [json!({"to": "5550001111"}), json!({}), json!([])] {
        let refused = dial(&runner, &[], &wrong);
        assert_eq!(refused.status, 422, "{}", refused.text());
    }
    assert!(api.asked().is_empty());
    let other = http::request(runner.addr, "DELETE", "/calls", &[&authorization], b"").expect("an answer");
    assert_eq!(
        (other.status, other.header("allow")),
        (405, Some("GET, HEAD, POST, OPTIONS"))
    );
}

/// Dialling is off without the option, and needs what the option says.
#[test]
fn dialling_is_off_by_default() {
    let runner = TestRunner::start_with(&[], &[("RUNNER_API_KEY", API_KEY)]);
    let off = dial(&runner, &[], &json!({"to": TO}));
    assert_eq!(off.status, 404);
    assert!(off.text().contains("--dial-out"), "{}", off.text());
    let wrong = TestRunner::run(&["-t", "twilio", "--proxy", HOST, "--dial-out", "the shop"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("--dial-out"), "{}", wrong.stderr);
    let wrong = TestRunner::run(&["-t", "twilio", "--proxy", HOST, "--dial-out", FROM]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("TWILIO_ACCOUNT_SID"), "{}", wrong.stderr);
}

/// A telephone cannot be answered where there is no place for its call.
#[test]
fn a_full_runner_does_not_dial() {
    let api = Rest::start(&[(201, r#"{"sid":"CA01"}"#)]);
    let url = api.url();
    let runner = TestRunner::start_with(
        &[
            "-t",
            "twilio",
            "--proxy",
            HOST,
            "--dial-out",
            FROM,
            "--max-sessions",
            "1",
            "--unverified-calls",
        ],
        &[
            ("TELCO_A_API_URL", &url),
            ("TELCO_A_ACCOUNT_SID", ACCOUNT),
            ("TELCO_A_AUTH_TOKEN", TOKEN),
            ("RUNNER_API_KEY", API_KEY),
        ],
    );
    let caller = Caller::dial(runner.addr, Provider::Exotel);
    runner.wait_for_sessions(1);
    let full = dial(&runner, &[], &json!({"to": TO}));
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")));
    assert!(api.asked().is_empty());
    drop(caller);
}
