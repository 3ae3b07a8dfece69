//! Daily rooms: the real binary and a simulated REST API. The tests check the requests, what
//! clients, browsers and bots receive, every failure of the provider, dial-in, and direct mode.
//!
//! The bot is a shell that writes its arguments to a file and waits, since media would need the
//! vendor's library.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::support::http::{self, Reply};
use crate::support::program::{BotProcess, SLEEPING_COMMAND, wait_for_end};
use crate::support::provider::{FROM, TO};
use crate::support::rest::{RecordedRequest, Rest, ScriptedAnswer};
use crate::support::runner::{PATIENCE, TestRunner};

const KEY: &str = "canary-key-of-the-rooms-4a1f";
const TOKEN: &str = "eyJcanary.meeting.token-77b2";
const JSON: &str = "Content-Type: application/json";
/// Base64 of the key of the vector in `docs/spec/daily.md` 6.2.
const HMAC: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const FOUR_HOURS_S: u64 = 4 * 3600;

fn json_of(asked: &RecordedRequest) -> Value {
    serde_json::from_str(&asked.body).unwrap_or(Value::Null)
}

/// A provider that works: every room is created as requested, under the runner's name for it.
fn working_provider(privacy: &'static str) -> impl Fn(usize, &RecordedRequest) -> ScriptedAnswer + Send + 'static {
    move |_, asked| {
        let body = json_of(asked);
        match (asked.method.as_str(), asked.target.as_str()) {
            ("POST", "/v1/rooms") => {
                let name = body["name"].as_str().expect("a name");
                let mut config = json!({"exp": body["properties"]["exp"]});
                if body["properties"]["sip"].is_object() {
                    config["sip_uri"] = json!({"endpoint": format!("{name}@sip.example.net")});
                }
                let room = json!({"id": "5e3cf703", "name": name, "api_created": true, "privacy": privacy,
                    "url": format!("https://example.net/{name}"), "config": config});
                ScriptedAnswer::Json(200, room.to_string())
            }
            ("POST", "/v1/meeting-tokens") => ScriptedAnswer::Json(200, json!({"token": TOKEN}).to_string()),
            ("DELETE", _) => ScriptedAnswer::Json(200, r#"{"deleted":true}"#.into()),
            other => panic!("an unexpected request {other:?}"),
        }
    }
}

/// A runner for this provider, with a bot that keeps running.
fn runner(provider: &Rest, options: &[&str], variables: &[(&str, &str)]) -> TestRunner {
    runner_with_bot(provider, options, variables, SLEEPING_COMMAND)
}

fn runner_with_bot(provider: &Rest, options: &[&str], variables: &[(&str, &str)], bot: &str) -> TestRunner {
    let url = format!("{}/v1", provider.url());
    let own = [("VIDEOROOM_API_KEY", KEY), ("VIDEOROOM_API_URL", url.as_str())];
    let options = [options, &["--", "/bin/sh", "-c", bot]].concat();
    TestRunner::start_with(&options, &[&own, variables].concat())
}

fn post(addr: SocketAddr, target: &str, body: &Value) -> Reply {
    http::request(addr, "POST", target, &[JSON], body.to_string().as_bytes()).expect("an answer")
}

fn start(runner: &TestRunner, body: &Value) -> Reply {
    post(runner.addr, "/start", body)
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is set").as_secs()
}

/// Checks that an expiry is in four hours, and replaces it by a constant.
fn check_expiry(properties: &mut Value, from_s: u64) {
    let end = properties["exp"].as_u64().expect("a whole number of seconds");
    let wanted = from_s + FOUR_HOURS_S..=now_s() + FOUR_HOURS_S;
    assert!(wanted.contains(&end), "{end} is not in {wanted:?}");
    properties["exp"] = json!("in four hours");
}

/// Checks a request against the API, and returns its body.
fn check_request(asked: &RecordedRequest, method: &str, target: &str) -> Value {
    assert_eq!((asked.method.as_str(), asked.target.as_str()), (method, target));
    assert_eq!(asked.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(asked.header("accept"), Some("application/json"));
    if method == "POST" {
        assert_eq!(asked.header("content-type"), Some("application/json"));
    }
    json_of(asked)
}

/// The arguments of the only session.
fn arguments(runner: &TestRunner) -> Value {
    BotProcess::of(runner, |_| true).arguments
}

/// Waits until the provider has received exactly this many requests.
fn all_requests(provider: &Rest, count: usize) -> Vec<RecordedRequest> {
    let start = Instant::now();
    while provider.asked().len() < count {
        assert!(start.elapsed() < PATIENCE, "{:#?}", provider.asked());
        thread::sleep(Duration::from_millis(10));
    }
    let asked = provider.asked();
    assert_eq!(asked.len(), count, "{asked:#?}");
    asked
}

/// The warnings of a runner that is open to pages or has no public name, as in these tests.
const KNOWN: [&str; 2] = ["any web page in a browser", "webhook requests to a public host name"];

/// Stops the runner, and fails if it printed the key or the token. Returns its log, without the
/// lines of [`KNOWN`].
fn end(mut runner: TestRunner) -> String {
    runner.signal("TERM");
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
    let (said, log) = runner.last_words();
    for secret in [KEY, TOKEN, HMAC] {
        assert!(
            !said.contains(secret) && !log.contains(secret),
            "{secret}: {said}\n{log}"
        );
    }
    let news = log
        .lines()
        .filter(|line| !KNOWN.iter().any(|words| line.contains(words)));
    news.map(|line| format!("{line}\n")).collect()
}

/// R-002, R-010, R-021, R-054, R-063: a new room and a token, byte for byte, and what the client
/// and the bot receive.
#[test]
fn start_makes_a_room_and_runs_a_bot_in_it() {
    let provider = Rest::playing(working_provider("public"));
    let runner = runner(&provider, &["-vv"], &[]);
    let from_s = now_s();
    let body = json!({"transport": "videoroom", "createVideoroomRoom": true, "body": {"lang": "en"}});
    let reply = start(&runner, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let asked = provider.asked();
    assert_eq!(asked.len(), 2, "{asked:#?}");
    let mut room = check_request(&asked[0], "POST", "/v1/rooms");
    check_expiry(&mut room["properties"], from_s);
    let name = room["name"].as_str().expect("a name").to_owned();
    let digits = name.strip_prefix("bot-").expect("a bot's room");
    assert!(
        digits.len() == 8 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')),
        "{name}"
    );
    let wanted = json!({"name": name, "privacy": "public", "properties": {
        "exp": "in four hours", "eject_at_room_exp": true, "enable_chat": false, "enable_prejoin_ui": false,
        "enable_emoji_reactions": false, "start_video_off": false}});
    assert_eq!(room, wanted);
    let mut token = check_request(&asked[1], "POST", "/v1/meeting-tokens");
    check_expiry(&mut token["properties"], from_s);
    let wanted = json!({"properties": {"room_name": name, "exp": "in four hours", "is_owner": true,
        "eject_at_token_exp": false}});
    assert_eq!(token, wanted);
    let url = format!("https://example.net/{name}");
    let reported = reply.json();
    let id = reported["sessionId"].as_str().expect("a name");
    assert_eq!(
        reported,
        json!({"videoroomRoom": url, "videoroomToken": TOKEN, "dailyRoom": url, "dailyToken": TOKEN, "sessionId": id})
    );
    assert_eq!(
        arguments(&runner),
        json!({"kind": "videoroom", "session_id": id, "body": {"lang": "en"}, "handle_sigint": false, "handle_sigterm": true,
            "idle_timeout": 300, "room_url": url, "token": TOKEN})
    );
    assert_eq!(runner.sessions(), 1);
    let log = end(runner);
    assert!(log.contains("session started: daily") && !log.contains(&url), "{log}");
}

/// The runner has no media in the room, and still tells the bot that the operator ends its session.
#[test]
fn the_operator_ends_the_bot_of_a_room() {
    let provider = Rest::playing(working_provider("public"));
    let runner = runner(&provider, &[], &[]);
    let reply = start(&runner, &json!({"transport": "videoroom", "createVideoroomRoom": true}));
    let process = BotProcess::of(&runner, |_| true).process;
    let target = format!("/sessions/{}", reply.json()["sessionId"].as_str().expect("an id"));
    let ended = http::request(runner.addr, "DELETE", &target, &[], b"").expect("an answer");
    assert_eq!(ended.status, 202, "{}", ended.text());
    wait_for_end(process);
    let line = runner.wait_for_log("session ended");
    assert!(
        line.contains("ended by the operator") && !line.contains("aborted"),
        "{line}"
    );
}

/// R-055, R-056: properties reach the provider, under the aliases too. Those of the wrong type are
/// dropped.
#[test]
fn passes_room_and_token_properties_to_the_provider() {
    let provider = Rest::playing(working_provider("public"));
    let runner = runner(&provider, &[], &[("RUNNER_START_NAMES", "alias")]);
    let body = json!({"createDailyRoom": true, "dailyRoomProperties": {"enable_chat": true, "exp": 2e9, "odd": null, "geo": 7},
        "dailyMeetingTokenProperties": {"user_name": "Caller", "is_owner": false, "room_name": "all", "exp": "never"}});
    let reply = start(&runner, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reported = reply.json();
    let members: Vec<&String> = reported.as_object().expect("an object").keys().collect();
    assert_eq!(members, ["dailyRoom", "dailyToken", "sessionId"]);
    let asked = provider.asked();
    let room = json_of(&asked[0]);
    let properties = &room["properties"];
    assert_eq!(
        (&properties["enable_chat"], &properties["exp"]),
        (&json!(true), &json!(2e9))
    );
    assert!(properties["odd"].is_null() && properties.get("odd").is_some() && properties.get("geo").is_none());
    let token = json_of(&asked[1])["properties"].clone();
    assert_eq!(
        (&token["user_name"], &token["is_owner"], &token["room_name"]),
        (&json!("Caller"), &json!(false), &room["name"])
    );
    assert!(token["exp"].is_u64());
    let log = end(runner);
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    assert_eq!(warnings.len(), 2, "{log}");
    assert!(
        warnings[0].contains("`videoroomRoomProperties.geo`") || warnings[1].contains("`videoroomRoomProperties.geo`")
    );
    assert!(!log.contains("never"), "{log}");
}

/// R-028, R-030: a configured room is used unchanged, without a flag. A sample room only replaces a
/// new one.
#[test]
fn uses_the_configured_room() {
    let provider = Rest::playing(working_provider("public"));
    let mine = "https://example.net/my-room";
    let asks_itself = runner(
        &provider,
        &[],
        &[
            ("DAILY_ROOM_URL", mine),
            ("VIDEOROOM_SAMPLE_ROOM_URL", "https://example.net/s"),
        ],
    );
    let reply = start(&asks_itself, &json!({"transport": "daily"}));
    assert_eq!(reply.json()["videoroomRoom"], mine, "{}", reply.text());
    let asked = provider.asked();
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert_eq!(
        check_request(&asked[0], "POST", "/v1/meeting-tokens")["properties"]["room_name"],
        "my-room"
    );
    assert_eq!(arguments(&asks_itself)["room_url"], mine);
    // It may be private; the token admits a browser in either case.
    let reply = http::get(asks_itself.addr, "/videoroom");
    assert_eq!(
        reply.header("location"),
        Some(format!("{mine}?t={TOKEN}").as_str()),
        "{}",
        reply.text()
    );
    end(asks_itself);

    let sample = runner(
        &provider,
        &["-t", "videoroom"],
        &[("VIDEOROOM_SAMPLE_ROOM_URL", "https://example.net/s")],
    );
    let reply = start(&sample, &json!({}));
    let reported = reply.json();
    assert_eq!(
        reported,
        json!({"sessionId": reported["sessionId"]}),
        "no room was asked for"
    );
    assert!(reported["sessionId"].is_string());
    let base = arguments(&sample);
    assert_eq!((&base["kind"], base.get("room_url")), (&json!("base"), None));
    assert_eq!(provider.asked().len(), 2);
    let reply = start(&sample, &json!({"createVideoroomRoom": true}));
    assert_eq!(reply.json()["videoroomRoom"], "https://example.net/s");
    assert_eq!(provider.asked().len(), 3);
    end(sample);
}

/// How the provider fails: a name, its answer, words of the error, and how often it is asked.
type Failure = (&'static str, ScriptedAnswer, &'static str, usize);

fn refusal(status: u16, kind: &str) -> ScriptedAnswer {
    let body = json!({"error": kind, "info": format!("no, {KEY} of {FROM}")}).to_string();
    ScriptedAnswer::Json(status, body)
}

fn saying(status: u16, body: &str) -> ScriptedAnswer {
    ScriptedAnswer::Json(status, body.to_owned())
}

/// Each failure gives an error reply and one log line, no bot, and a free session.
fn assert_reported_once(failures: Vec<Failure>) {
    thread::scope(|scope| {
        for (name, says, words, requests) in failures {
            scope.spawn(move || {
                // A room that may exist is deleted, and that request succeeds.
                let provider = Rest::playing(move |_, asked| match asked.method.as_str() {
                    "DELETE" => ScriptedAnswer::Json(200, r#"{"deleted":true}"#.into()),
                    _ => says.clone(),
                });
                let runner = runner(&provider, &["-vv", "--max-sessions", "1"], &[]);
                let reply = match name {
                    "silence" => start_slowly(runner.addr),
                    _ => start(&runner, &json!({"createVideoroomRoom": true})),
                };
                assert_eq!(reply.status, 500, "{name}: {}", reply.text());
                let reported = reply.json();
                let detail = reported["detail"].as_str().expect("a detail");
                assert_eq!(reported, json!({"detail": detail}));
                assert!(
                    detail.starts_with("making a video room: ") && detail.contains(words),
                    "{name}: {detail}"
                );
                assert!(
                    !detail.contains(KEY) && !detail.contains("5550001111"),
                    "{name}: {detail}"
                );
                let asked = all_requests(&provider, requests);
                let deletes = asked.iter().filter(|asked| asked.method == "DELETE").count();
                let may_be_there = requests == 2;
                assert_eq!(deletes, usize::from(may_be_there), "{name}: {asked:#?}");
                assert_eq!(runner.sessions(), 0, "the place is given back");
                assert!(BotProcess::all(&runner).is_empty(), "no bot was started");
                let log = end(runner);
                assert_eq!(provider.asked().len(), requests, "{name}: nothing came after");
                let lines: Vec<&str> = log
                    .lines()
                    .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "))
                    .collect();
                assert_eq!(lines.len(), 1, "{name}: {log}");
                assert!(
                    lines[0].contains("500 POST /start: making a video room: ") && lines[0].contains(words),
                    "{log}"
                );
            });
        }
    });
}

/// No room was made, so none is deleted. Only a rate limit is waited for.
#[test]
fn reports_each_refusal_of_the_provider_once() {
    assert_reported_once(vec![
        (
            "400",
            refusal(400, "authorization-header-error"),
            "400 (authorization-header-error: no, *** of",
            1,
        ),
        (
            "400",
            refusal(400, "invalid-request-error"),
            "400 (invalid-request-error: no",
            1,
        ),
        (
            "401",
            refusal(401, "authentication-error"),
            "401 (authentication-error: no",
            1,
        ),
        ("403", refusal(403, "forbidden-error"), "403 (forbidden-error: no", 1),
        (
            "404",
            saying(404, "<html>"),
            "answered 404; is VIDEOROOM_API_URL right?",
            1,
        ),
        ("429", refusal(429, "rate-limit-error"), "429 (rate-limit-error: no", 4),
        ("500", refusal(500, "server-error"), "500 (server-error: no", 1),
        ("503", saying(503, ""), "answered 503; it has trouble", 1),
        ("redirect", saying(301, ""), "301; a redirect, which is not followed", 1),
    ]);
}

/// A room may have been made, so it is deleted.
#[test]
fn reports_each_unclear_answer_of_the_provider_once() {
    let huge = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{}",
        "x".repeat(1_000_000)
    );
    assert_reported_once(vec![
        ("502", saying(502, ""), "answered 502; it has trouble", 2),
        ("504", saying(504, ""), "answered 504; it has trouble", 2),
        ("garbage", saying(200, "<html>"), "cannot be used, it is no JSON", 2),
        (
            "no url",
            saying(200, r#"{"name":"x"}"#),
            "cannot be used, its `url` is missing",
            2,
        ),
        (
            "not HTTP",
            ScriptedAnswer::Raw(b"SSH-2.0-OpenSSH\r\n".to_vec()),
            "sent no valid response",
            2,
        ),
        ("closed", ScriptedAnswer::Raw(Vec::new()), "sent no valid response", 2),
        (
            "cut",
            ScriptedAnswer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_vec()),
            "sent no valid response",
            2,
        ),
        (
            "huge",
            ScriptedAnswer::Raw(huge.into_bytes()),
            "is longer than 65536 bytes",
            2,
        ),
        ("silence", ScriptedAnswer::Silence, "did not answer within 10 s", 2),
    ]);
}

/// Asks for a room of a slow provider.
fn start_slowly(addr: SocketAddr) -> Reply {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(addr).expect("the runner listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let body = r#"{"createVideoroomRoom":true}"#;
    let length = body.len();
    write!(
        stream,
        "POST /start HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("the runner reads");
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw).expect("the runner answers");
    http::parse(&raw).expect("HTTP")
}

/// A provider that is busy or unreachable at first is asked again. A refused token deletes the
/// room.
#[test]
fn retries_room_requests_and_deletes_unused_rooms() {
    let busy = Rest::playing(|nth, asked| match nth {
        0 | 1 | 3 => ScriptedAnswer::Json(429, r#"{"error":"rate-limit-error"}"#.into()),
        _ => working_provider("public")(nth, asked),
    });
    let runner_of_busy = runner(&busy, &[], &[]);
    let reply = start(&runner_of_busy, &json!({"createVideoroomRoom": true}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let asked = busy.asked();
    let targets: Vec<&str> = asked.iter().map(|asked| asked.target.as_str()).collect();
    assert_eq!(
        targets,
        [
            "/v1/rooms",
            "/v1/rooms",
            "/v1/rooms",
            "/v1/meeting-tokens",
            "/v1/meeting-tokens"
        ]
    );
    assert!(asked[0].body == asked[2].body, "the same request again");
    let log = end(runner_of_busy);
    assert!(!log.contains(" WARN "), "{log}");

    let stingy = Rest::playing(|nth, asked| match asked.target.as_str() {
        "/v1/meeting-tokens" => ScriptedAnswer::Json(403, r#"{"error":"forbidden-error"}"#.into()),
        _ => working_provider("public")(nth, asked),
    });
    let runner_of_stingy = runner(&stingy, &[], &[]);
    let reply = start(&runner_of_stingy, &json!({"createVideoroomRoom": true}));
    assert_eq!(reply.status, 500);
    let detail = reply.json()["detail"].as_str().expect("a detail").to_owned();
    assert!(
        detail.starts_with("making a token for the video room: the provider answered 403"),
        "{detail}"
    );
    let asked = all_requests(&stingy, 3);
    let name = json_of(&asked[0])["name"].as_str().expect("a name").to_owned();
    assert_eq!(
        check_request(&asked[2], "DELETE", &format!("/v1/rooms/{name}")),
        Value::Null
    );
    assert!(BotProcess::all(&runner_of_stingy).is_empty());
    end(runner_of_stingy);
    assert_eq!(stingy.asked().len(), 3, "nothing came after");
}

/// R-027: without a key the error names the variable. R-010: a full runner does not ask the
/// provider.
#[test]
fn makes_no_room_without_a_key_or_a_free_session() {
    let keyless = TestRunner::start(&["--", "/bin/sh", "-c", SLEEPING_COMMAND]);
    let reply = start(&keyless, &json!({"createVideoroomRoom": true}));
    assert_eq!(reply.status, 500);
    assert!(
        reply.json()["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("VIDEOROOM_API_KEY"))
    );
    keyless.wait_for_log("VIDEOROOM_API_KEY (or DAILY_API_KEY) is not set");

    let provider = Rest::playing(working_provider("public"));
    let full = runner(&provider, &["--max-sessions", "1"], &[]);
    assert_eq!(start(&full, &json!({"createVideoroomRoom": true})).status, 200);
    let reply = start(&full, &json!({"createVideoroomRoom": true}));
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.header("retry-after").is_some());
    assert_eq!(http::get(full.addr, "/videoroom").status, 503);
    assert_eq!(provider.asked().len(), 2);
    end(full);
}

/// A built-in bot cannot join a room: `/start`, the redirect and `--direct` say so, and no room is
/// made.
#[test]
fn a_built_in_bot_is_refused_where_it_cannot_join() {
    let provider = Rest::playing(working_provider("public"));
    let url = format!("{}/v1", provider.url());
    let variables = [("VIDEOROOM_API_KEY", KEY), ("VIDEOROOM_API_URL", url.as_str())];
    let stock = TestRunner::start_with(&[], &variables);
    for body in [json!({"createVideoroomRoom": true}), json!({"transport": "daily"})] {
        let reply = start(&stock, &body);
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(
            reply.text().contains("the built-in bots cannot join its rooms"),
            "{}",
            reply.text()
        );
    }
    assert_eq!(http::get(stock.addr, "/videoroom").status, 400);
    stock.wait_for_sessions(0);
    let status = http::get(stock.addr, "/status").json();
    assert_eq!(status["without_bot"], json!(["videoroom"]));
    end(stock);
    let direct = TestRunner::run_with(&["--direct"], &variables);
    assert_eq!(direct.code, Some(2), "{direct:?}");
    assert!(direct.stderr.contains("a program after `--`"), "{direct:?}");
    assert_eq!(provider.asked().len(), 0, "no room is made");
}

/// A session lasts as long as its bot.
#[test]
fn a_session_ends_with_its_bot() {
    let provider = Rest::playing(working_provider("public"));
    for (bot, words, level) in [
        ("exit 0", "session ended: bot ended", " INFO "),
        ("exit 7", "the bot failed: exit status: 7", " WARN "),
    ] {
        let runner = runner_with_bot(&provider, &[], &[], bot);
        assert_eq!(start(&runner, &json!({"createVideoroomRoom": true})).status, 200);
        assert!(runner.wait_for_log(words).contains(level));
        runner.wait_for_sessions(0);
        end(runner);
    }
    let runner = runner(&provider, &[], &[]);
    start(&runner, &json!({"createVideoroomRoom": true}));
    let process = BotProcess::of(&runner, |_| true).process;
    let log = end(runner);
    assert!(log.contains("session ended: runner stopped"), "{log}");
    wait_for_end(process);
}

/// A runner that stops while a room is created deletes it, with and without a server.
#[test]
fn deletes_the_new_room_when_the_runner_stops() {
    let half = || {
        Rest::playing(|nth, asked| match asked.target.as_str() {
            "/v1/meeting-tokens" => ScriptedAnswer::Silence,
            _ => working_provider("public")(nth, asked),
        })
    };
    let taken_back = |provider: &Rest, mut runner: TestRunner| {
        all_requests(provider, 2);
        runner.signal("TERM");
        assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
        assert!(BotProcess::all(&runner).is_empty(), "no bot was started");
        let asked = provider.asked();
        let name = json_of(&asked[0])["name"].as_str().expect("a name").to_owned();
        assert_eq!(asked.len(), 3, "{asked:#?}");
        check_request(&asked[2], "DELETE", &format!("/v1/rooms/{name}"));
    };
    let provider = half();
    let serves = runner(&provider, &[], &[]);
    let addr = serves.addr;
    let client = thread::spawn(move || {
        http::request(addr, "POST", "/start", &[JSON], br#"{"createVideoroomRoom":true}"#).map(|_| ())
    });
    taken_back(&provider, serves);
    client
        .join()
        .expect("it does not panic")
        .expect_err("there is nothing to answer");

    let provider = half();
    let url = format!("{}/v1", provider.url());
    let variables = [("VIDEOROOM_API_KEY", KEY), ("VIDEOROOM_API_URL", url.as_str())];
    let direct = TestRunner::start_silent(&["--direct", "--", "/bin/sh", "-c", SLEEPING_COMMAND], &variables);
    taken_back(&provider, direct);
}

/// Rooms that are open to pages, and a webhook without a public name, are warned about once.
#[test]
fn warns_about_open_endpoints_at_startup() {
    let provider = Rest::playing(working_provider("public"));
    for (options, reported) in [
        (&["--dialin"][..], [true, true]),
        (&["--allowed-origins", "https://app.example"], [false, false]),
        (
            &["--api-key", "0123456789abcdef", "--dialin", "-x", "bots.example.net"],
            [false, false],
        ),
        (&["-t", "websocket"], [false, false]),
    ] {
        let mut runner = runner(&provider, options, &[]);
        runner.signal("TERM");
        runner.wait();
        let log = runner.last_words().1;
        assert_eq!(KNOWN.map(|words| log.contains(words)), reported, "{options:?}: {log}");
    }
}

/// R-042: a browser is redirected to a new room. The URL contains the token only if joining
/// requires it.
#[test]
fn redirects_a_browser_to_a_new_room() {
    for (privacy, path, query) in [
        ("public", "/videoroom", ""),
        ("private", "/daily", "?t=eyJcanary.meeting.token-77b2"),
    ] {
        let provider = Rest::playing(working_provider(privacy));
        let runner = runner(&provider, &[], &[]);
        let head = http::request(runner.addr, "HEAD", path, &[], b"").expect("an answer");
        assert_eq!((head.status, head.header("cache-control")), (200, Some("no-store")));
        let options = http::request(runner.addr, "OPTIONS", path, &[], b"").expect("an answer");
        assert_eq!(
            (options.status, options.header("allow")),
            (204, Some("GET, HEAD, OPTIONS"))
        );
        let wrong = http::request(runner.addr, "POST", path, &[JSON], b"{}").expect("an answer");
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
        assert_eq!((provider.asked().len(), runner.sessions()), (0, 0));
        let reply = http::get(runner.addr, path);
        assert_eq!((reply.status, reply.body.len()), (307, 0), "{}", reply.text());
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let arguments = arguments(&runner);
        let url = arguments["room_url"].as_str().expect("a room");
        assert_eq!(reply.header("location"), Some(format!("{url}{query}").as_str()));
        assert_eq!(
            (&arguments["kind"], &arguments["body"]),
            (&json!("videoroom"), &json!({}))
        );
        end(runner);
    }
}

const CHROME: &str = "User-Agent: Mozilla/5.0 (X11; Linux aarch64) AppleWebKit/537.36 Chrome/142.0.0.0 Safari/537.36";
const PAGE: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";

/// R-042, R-086: subresources and cross-site pages make no room; a typed address and a link do.
#[test]
fn a_cross_site_page_makes_no_room() {
    let provider = Rest::playing(working_provider("public"));
    let runner = runner(&provider, &[], &[]);
    let visit = |headers: &[&str]| {
        http::request(runner.addr, "GET", "/videoroom", headers, b"")
            .expect("an answer")
            .status
    };
    let navigation = ["Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"];
    let cross = "Sec-Fetch-Site: cross-site";
    for uninvited in [
        &[CHROME, cross, "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"][..],
        &[
            CHROME,
            PAGE,
            cross,
            "Sec-Fetch-Mode: navigate",
            "Sec-Fetch-Dest: iframe",
        ],
        &[CHROME, PAGE, cross, navigation[0], navigation[1]],
        &[
            CHROME,
            PAGE,
            "Sec-Fetch-Site: none",
            navigation[0],
            navigation[1],
            "Sec-Purpose: prefetch;prerender",
        ],
        &[CHROME, "Accept: image/avif,*/*;q=0.8"],
        &["Origin: https://evil.example", PAGE],
        &["Purpose: prefetch"],
        &["User-Agent: facebookexternalhit/1.1", "Accept: */*"],
        &["User-Agent: Slackbot-LinkExpanding 1.0"],
        &["User-Agent: WhatsApp/2.23"],
        &[
            "User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            PAGE,
        ],
    ] {
        assert_eq!(visit(uninvited), 403, "{uninvited:?}");
    }
    assert_eq!((provider.asked().len(), runner.sessions()), (0, 0));
    for meant in [
        &[
            CHROME,
            PAGE,
            "Sec-Fetch-Site: none",
            navigation[0],
            navigation[1],
            "Sec-Fetch-User: ?1",
        ][..],
        &[CHROME, PAGE, cross, navigation[0], navigation[1], "Sec-Fetch-User: ?1"],
        &[CHROME, PAGE],
        &["User-Agent: curl/8.0", "Accept: */*"],
    ] {
        assert_eq!(visit(meant), 307, "{meant:?}");
    }
    end(runner);
}

/// R-085: with a list of origins, only typed addresses have no origin. R-086: a key is required
/// here too.
#[test]
fn the_redirect_checks_origins_and_keys() {
    let provider = Rest::playing(working_provider("public"));
    let runner = runner(&provider, &["--allowed-origins", "https://app.example"], &[]);
    let visit = |headers: &[&str]| {
        http::request(runner.addr, "GET", "/videoroom", headers, b"")
            .expect("an answer")
            .status
    };
    assert_eq!(visit(&[CHROME, PAGE]), 403);
    assert_eq!(visit(&["Origin: https://evil.example"]), 403);
    assert_eq!(provider.asked().len(), 0);
    let typed = [
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
    ];
    assert_eq!(visit(&typed), 307);
    assert_eq!(visit(&["Origin: https://app.example"]), 307);
    end(runner);

    let secret = "a-key-of-this-runner-99";
    let keyed = self::runner(&provider, &[], &[("RUNNER_API_KEY", secret)]);
    assert_eq!(http::get(keyed.addr, "/videoroom").status, 401);
    let bearer = format!("Authorization: Bearer {secret}");
    let reply = http::request(keyed.addr, "GET", "/videoroom", &[&bearer], b"").expect("an answer");
    assert_eq!(reply.status, 307, "{}", reply.text());
    end(keyed);
}

/// `robots.txt` keeps crawlers away, with and without a list of origins.
#[test]
fn robots_txt_disallows_the_redirect() {
    let runner = TestRunner::start(&["--allowed-origins", "https://app.example"]);
    let reply = http::get(runner.addr, "/robots.txt");
    assert_eq!(
        (reply.status, reply.text()),
        (200, "User-agent: *\nDisallow: /\n".into())
    );
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
}

/// R-006, R-078: another `-t` disables the redirect, and is named in the error.
#[test]
fn another_transport_disables_the_redirect() {
    let provider = Rest::playing(working_provider("public"));
    let other = runner(&provider, &["-t", "websocket"], &[]);
    for method in ["GET", "HEAD"] {
        let reply = http::request(other.addr, method, "/daily", &[], b"").expect("an answer");
        assert_eq!(reply.status, 404);
    }
    let detail = http::get(other.addr, "/videoroom").json()["detail"].clone();
    assert_eq!(detail, "no video rooms here: this runner serves websocket alone");
    assert!(provider.asked().is_empty());
    end(other);
    let video = runner(&provider, &["-t", "videoroom"], &[]);
    assert_eq!(http::get(video.addr, "/videoroom").status, 307);
    end(video);
}

/// A body that is too large for a program is rejected before a room is created.
#[test]
fn rejects_a_body_too_large_for_a_program() {
    let provider = Rest::playing(working_provider("public"));
    let runner = runner(&provider, &["--dialin"], &[]);
    for room in [true, false] {
        let body = json!({"transport": "videoroom", "createVideoroomRoom": room, "body": "x".repeat(120 * 1024)});
        let reply = start(&runner, &body);
        assert_eq!(reply.status, 413, "{}", reply.text());
        assert!(
            reply.json()["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("program"))
        );
    }
    assert!(provider.asked().is_empty());
    // The caller is admitted all the same.
    let mut call = call();
    call["sipHeaders"] = json!({"X-Long": "x".repeat(17 * 1024)});
    assert_eq!(post(runner.addr, "/videoroom-dialin-webhook", &call).status, 200);
    let arguments = arguments(&runner);
    assert!(arguments["body"]["dialin_settings"].get("sip_headers").is_none());
    runner.wait_for_log("the SIP headers of a call are left out");
    end(runner);
}

/// A runner that stops while the provider is slow starts no bot and deletes the room.
#[test]
fn deletes_a_room_that_arrives_after_the_stop() {
    use std::sync::mpsc;
    let (reported, asked_for_token) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let provider = Rest::playing(move |nth, asked| {
        if asked.target == "/v1/meeting-tokens" {
            reported.send(()).expect("the test listens");
            let _ = released.recv_timeout(PATIENCE);
        }
        working_provider("public")(nth, asked)
    });
    let mut runner = runner(&provider, &["--drain", "60"], &[]);
    let addr = runner.addr;
    let client = thread::spawn(move || start_at(addr));
    asked_for_token.recv_timeout(PATIENCE).expect("a token is asked for");
    runner.signal("TERM");
    let since = Instant::now();
    while http::get(addr, "/status").json()["status"] != "draining" {
        assert!(since.elapsed() < PATIENCE, "{}", runner.log());
        thread::sleep(Duration::from_millis(10));
    }
    release.send(()).expect("the provider waits");
    let reply = client.join().expect("no panic");
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
    let asked = provider.asked();
    assert_eq!((asked.len(), asked[2].method.as_str()), (3, "DELETE"), "{asked:#?}");
    assert!(BotProcess::all(&runner).is_empty());
}

fn start_at(addr: SocketAddr) -> Reply {
    post(addr, "/start", &json!({"createVideoroomRoom": true}))
}

fn call() -> Value {
    json!({"To": TO, "From": FROM, "callId": "0b1c2d3e-0000-4000-8000-000000000001",
        "callDomain": "9f8e7d6c-0000-4000-8000-000000000002", "sipHeaders": {"X-Campaign": "spring"}})
}

/// R-045, R-076, R-078: without `--dialin` there is no webhook, by any method.
#[test]
fn the_dialin_webhook_is_absent_without_the_option() {
    let provider = Rest::playing(working_provider("public"));
    let runner = runner(&provider, &["--no-dialin"], &[]);
    for path in ["/videoroom-dialin-webhook", "/daily-dialin-webhook"] {
        for method in ["POST", "GET", "OPTIONS"] {
            let reply =
                http::request(runner.addr, method, path, &[JSON], call().to_string().as_bytes()).expect("an answer");
            assert_eq!(reply.status, 404, "{method} {path}");
        }
    }
    assert!(provider.asked().is_empty());
    end(runner);
}

/// R-090 to R-093: every branch in order, with any `-t`. The bot receives all that it needs for the
/// call.
#[test]
fn a_dialin_call_starts_a_bot() {
    let provider = Rest::playing(working_provider("public"));
    let options = [
        "-vv",
        "--dialin",
        "-t",
        "webrtc",
        "--allowed-origins",
        "https://app.example",
    ];
    // A configured room is not used for calls.
    let runner = runner(
        &provider,
        &options,
        &[("VIDEOROOM_ROOM_URL", "https://example.net/mine")],
    );
    let hook = "/videoroom-dialin-webhook";
    let wrong = |body: &str| http::request(runner.addr, "POST", hook, &[JSON], body.as_bytes()).expect("an answer");
    for body in ["", "x", "[1]", "{"] {
        let reply = wrong(body);
        assert_eq!(
            (reply.status, reply.json()),
            (400, json!({"detail": "Invalid JSON payload"})),
            "{body}"
        );
    }
    for body in [r#"{"Test":"test"}"#, r#"{"test":"test"}"#] {
        let reply = wrong(body);
        assert_eq!((reply.status, reply.json()), (200, json!({"status": "OK"})), "{body}");
    }
    let missing = json!({"detail": "Missing required fields: From, To, callId, callDomain"});
    for body in [
        json!({"To": TO}).to_string(),
        json!({}).to_string(),
        json!({"test": false}).to_string(),
    ] {
        let reply = wrong(&body);
        assert_eq!((reply.status, reply.json()), (400, missing.clone()), "{body}");
    }
    let reply = http::request(runner.addr, "GET", hook, &["Origin: https://app.example"], b"").expect("an answer");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST, OPTIONS")));
    let browser = http::request(
        runner.addr,
        "POST",
        hook,
        &[JSON, "Origin: https://evil.example"],
        b"{}",
    )
    .expect("an answer");
    assert_eq!(browser.status, 403);
    // A provider is not a page, so the list of origins does not apply.
    let page = [JSON, "Origin: https://app.example"];
    let page = http::request(runner.addr, "POST", hook, &page, call().to_string().as_bytes()).expect("an answer");
    assert_eq!(page.status, 403);
    let long = format!(r#"{{"From":"{}"}}"#, "x".repeat(300 * 1024));
    assert_eq!(wrong(&long).status, 413);
    assert!(provider.asked().is_empty() && BotProcess::all(&runner).is_empty());

    let from_s = now_s();
    let reply = post(runner.addr, "/daily-dialin-webhook", &call());
    assert_eq!(reply.status, 200, "{}", reply.text());
    let asked = provider.asked();
    assert_eq!(asked.len(), 2, "{asked:#?}");
    let mut room = check_request(&asked[0], "POST", "/v1/rooms");
    check_expiry(&mut room["properties"], from_s);
    let name = room["name"].as_str().expect("a name").to_owned();
    assert!(
        name.starts_with("bot-telephony-") && name.len() == "bot-telephony-".len() + 8,
        "{name}"
    );
    let wanted = json!({"name": name, "privacy": "public", "properties": {
        "exp": "in four hours", "eject_at_room_exp": true, "enable_chat": false, "enable_prejoin_ui": false,
        "enable_emoji_reactions": false, "start_video_off": true,
        "sip": {"display_name": FROM, "video": false, "sip_mode": "dial-in", "num_endpoints": 1}}});
    assert_eq!(room, wanted);
    let mut token = check_request(&asked[1], "POST", "/v1/meeting-tokens");
    check_expiry(&mut token["properties"], from_s);
    assert_eq!(token["properties"]["room_name"], name.as_str());
    let url = format!("https://example.net/{name}");
    let reported = reply.json();
    let id = reported["sessionId"].clone();
    assert_eq!(
        reported,
        json!({"videoroomRoom": url, "videoroomToken": TOKEN, "dailyRoom": url, "dailyToken": TOKEN, "sessionId": id})
    );
    let api = format!("{}/v1", provider.url());
    assert_eq!(
        arguments(&runner),
        json!({"kind": "videoroom", "session_id": id, "handle_sigint": false, "handle_sigterm": true, "idle_timeout": 300,
            "room_url": url, "token": TOKEN, "sip_uri": format!("sip:{name}@sip.example.net"),
            "body": {
                "dialin_settings": {"call_id": "0b1c2d3e-0000-4000-8000-000000000001",
                    "call_domain": "9f8e7d6c-0000-4000-8000-000000000002", "To": TO, "From": FROM,
                    "sip_headers": {"X-Campaign": "spring"}},
                "videoroom_api_key": KEY, "videoroom_api_url": api, "daily_api_key": KEY, "daily_api_url": api}})
    );
    let log = end(runner);
    assert!(!log.contains("5550001111") && !log.contains("5550002222"), "{log}");
}

/// A call that the bot does not take gets no room, and one record, however often it is reported.
#[test]
fn a_refused_dialin_call_is_recorded() {
    let provider = Rest::playing(working_provider("public"));
    let url = format!("{}/v1", provider.url());
    let settings = "[bots.vip]\ncommand = ['/bin/sh', '-c', 'sleep 60']\ncallers = ['+43*']\n";
    let runner = TestRunner::start_among(
        &[("a.toml", settings)],
        &["--config", "a.toml", "--dialin"],
        &[("VIDEOROOM_API_KEY", KEY), ("VIDEOROOM_API_URL", &url)],
    );
    for _ in 0..2 {
        let reply = post(runner.addr, "/daily-dialin-webhook", &call());
        assert_eq!(reply.status, 403, "{}", reply.text());
    }
    assert!(provider.asked().is_empty() && BotProcess::all(&runner).is_empty());
    let calls = http::refused_calls(runner.addr);
    assert_eq!(calls.len(), 1, "{calls:?}");
    let facts = ["transport", "bot", "caller", "callee", "endedBy"].map(|name| &calls[0][name]);
    assert_eq!(
        facts,
        [
            &json!("videoroom"),
            &json!("vip"),
            &json!(FROM),
            &json!(TO),
            &json!("runner")
        ]
    );
    // Another call is another record.
    let mut other = call();
    other["callId"] = json!("0b1c2d3e-0000-4000-8000-000000000009");
    assert_eq!(post(runner.addr, "/daily-dialin-webhook", &other).status, 403);
    assert_eq!(http::refused_calls(runner.addr).len(), 2);
}

/// A provider may repeat a webhook that gets no answer in its time: the call has no bot yet.
#[test]
fn a_webhook_that_is_given_up_may_be_repeated() {
    use std::io::Write as _;
    let (reported, asked_for_room) = std::sync::mpsc::channel();
    let provider = Rest::playing(move |nth, asked| match nth {
        0 => {
            reported.send(()).expect("the test listens");
            ScriptedAnswer::Silence
        }
        _ => working_provider("public")(nth, asked),
    });
    let runner = runner(&provider, &["--dialin"], &[]);
    let (addr, body) = (runner.addr, call().to_string());
    let mut given_up = std::net::TcpStream::connect(addr).expect("the runner listens");
    let head = format!("POST /videoroom-dialin-webhook HTTP/1.1\r\nHost: {addr}\r\n{JSON}\r\n");
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    given_up.write_all(request.as_bytes()).expect("the runner reads");
    asked_for_room.recv_timeout(PATIENCE).expect("a room is asked for");
    assert_eq!(post(addr, "/videoroom-dialin-webhook", &call()).status, 409);
    drop(given_up);
    let since = Instant::now();
    let reply = loop {
        let reply = post(addr, "/videoroom-dialin-webhook", &call());
        if reply.status != 409 {
            break reply;
        }
        assert!(since.elapsed() < PATIENCE, "{}", reply.text());
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(post(addr, "/videoroom-dialin-webhook", &call()).status, 409);
    end(runner);
}

/// A room that cannot be created is reported to the provider of the call.
#[test]
fn reports_a_failed_room_to_the_caller_s_provider() {
    let provider = Rest::start(&[(401, r#"{"error":"authentication-error","info":"no"}"#)]);
    let runner = runner(&provider, &["--dialin"], &[]);
    let reply = post(runner.addr, "/videoroom-dialin-webhook", &call());
    assert_eq!(reply.status, 500);
    let detail = reply.json()["detail"].as_str().expect("a detail").to_owned();
    assert!(
        detail.starts_with("Failed to create room: making a video room: the provider answered 401"),
        "{detail}"
    );
    assert_eq!(runner.sessions(), 0);
    // The call has no bot, so the provider may try again. That is the same call.
    assert_eq!(post(runner.addr, "/videoroom-dialin-webhook", &call()).status, 500);
    let calls = http::calls_of(runner.addr, "provider_failed");
    assert_eq!(calls.len(), 1, "{calls:?}");
    let facts = ["transport", "caller", "callee", "endedBy", "reason"].map(|name| &calls[0][name]);
    let wanted = ["videoroom", FROM, TO, "transport", "its provider did not connect it"];
    assert_eq!(facts, wanted.map(|text| json!(text)).each_ref());
    let call = http::last_call(runner.addr, &[]);
    let why = call["provider_error"].as_str().expect("why");
    assert!(detail.ends_with(why), "{why}");
    let metrics = http::get(runner.addr, "/metrics").text();
    assert!(
        metrics.contains("edge_runner_calls_refused_total{outcome=\"provider_failed\"} 1\n"),
        "{metrics}"
    );
    let log = end(runner);
    assert_eq!(log.matches(" WARN  500 POST ").count(), 2, "{log}");
    assert!(!log.contains("5550001111"), "{log}");
}

/// A `/start` whose room cannot be created has a record too, with its trace, and an event. Without
/// a key of the provider there is no call.
#[test]
fn a_start_without_a_room_is_recorded() {
    let provider = Rest::start(&[(403, r#"{"error":"forbidden-error","info":"no"}"#)]);
    let receiver = Rest::start(&[(200, "{}")]);
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let runner = runner(
        &provider,
        &["--events", &receiver.url()],
        &[("RUNNER_EVENTS_SECRET", secret)],
    );
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01");
    let wanted = json!({"createVideoroomRoom": true}).to_string();
    let reply = http::request(runner.addr, "POST", "/start", &[JSON, &traceparent], wanted.as_bytes());
    assert_eq!(reply.expect("an answer").status, 500);
    let call = http::last_call(runner.addr, &[]);
    assert_eq!(
        (&call["outcome"], &call["trace"], &call["transport"]),
        (&json!("provider_failed"), &json!(trace), &json!("videoroom"))
    );
    let event = json_of(&all_requests(&receiver, 1)[0]);
    assert_eq!((&event["type"], &event["data"]), (&json!("call.failed"), &call));
    let keyless = TestRunner::start(&["-t", "daily", "--", "/bin/sh", "-c", "exit 0"]);
    let reply = http::request(keyless.addr, "POST", "/start", &[JSON], wanted.as_bytes());
    assert_eq!(reply.expect("an answer").status, 500);
    assert_eq!(http::get(keyless.addr, "/calls").json()["calls"], json!([]));
    end(runner);
}

/// With a key, only a signed request starts a call. The test request needs no signature, since it
/// starts nothing.
#[test]
fn requires_signed_calls_when_a_key_is_set() {
    let provider = Rest::playing(working_provider("public"));
    let runner = runner(&provider, &["--dialin"], &[("PINLESS_HMAC_SECRET", HMAC)]);
    let body = call().to_string();
    let key = BASE64.decode(HMAC.as_bytes()).expect("base64");
    let signed = |timestamp: &str| {
        let mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length");
        let mac = mac.chain_update(timestamp).chain_update(".").chain_update(&body);
        BASE64.encode(&mac.finalize().into_bytes())
    };
    let ask = |timestamp: &str, signature: &str| {
        let headers = [
            JSON.to_owned(),
            format!("X-Pinless-Timestamp: {timestamp}"),
            format!("X-Pinless-Signature: {signature}"),
        ];
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        http::request(
            runner.addr,
            "POST",
            "/videoroom-dialin-webhook",
            &headers,
            body.as_bytes(),
        )
        .expect("an answer")
    };
    let ping = post(runner.addr, "/videoroom-dialin-webhook", &json!({"Test": "test"}));
    assert_eq!(ping.status, 200);
    let now = now_s();
    let (fresh, old) = (format!("{}123", now), format!("{}000", now - 1_000));
    for reply in [
        post(runner.addr, "/videoroom-dialin-webhook", &call()),
        ask(&fresh, &signed(&old)),
        ask(&old, &signed(&old)),
        ask(&fresh, "AAAA"),
    ] {
        assert_eq!(
            (reply.status, reply.json()),
            (403, json!({"detail": "invalid signature"}))
        );
    }
    assert!(provider.asked().is_empty());
    assert_eq!(ask(&fresh, &signed(&fresh)).status, 200);
    let in_seconds = now.to_string();
    // The same call does not get a second bot, even with a valid signature.
    for timestamp in [&fresh, &in_seconds] {
        let reply = ask(timestamp, &signed(timestamp));
        assert_eq!(
            (reply.status, reply.json()),
            (409, json!({"detail": "this call has a bot already"}))
        );
    }
    assert_eq!((provider.asked().len(), runner.sessions()), (2, 1));
    // The record has the numbers, though the bot joins the room itself.
    let call = http::last_call(runner.addr, &[]);
    let facts = ["state", "transport", "caller", "callee"].map(|name| &call[name]);
    assert_eq!(
        facts,
        ["live", "videoroom", FROM, TO].map(|text| json!(text)).each_ref()
    );
    let log = end(runner);
    assert_eq!(log.matches(" WARN  403 POST ").count(), 4, "{log}");
    assert!(!log.contains("5550001111"), "{log}");
}

/// R-093: the request of a bot whose room can be dialled. The provider's error is reported without
/// number and key.
#[test]
fn a_bot_connects_its_held_call() {
    use edge_runner::config::{Config, Secret};
    use edge_runner::dialin::DialinCall;
    use edge_runner::testing::Caller;
    let provider = Rest::start(&[
        (200, ""),
        (400, r#"{"error":"invalid-request-error","info":"not ready"}"#),
    ]);
    let mut config = Config::default();
    config.videoroom.key = Some(Secret::new(KEY));
    config.videoroom.url = format!("{}/v1", provider.url());
    // The body is untrusted: requests go only to the configured provider.
    let body = json!({"dialin_settings": {"call_id": "c1", "call_domain": "d1", "To": TO, "From": FROM},
        "videoroom_api_key": "of-another-account", "videoroom_api_url": "http://127.0.0.1:1"});
    let held_for = |caller: Caller, body: &Value| {
        let (_, args) = caller.body(body.clone()).config(config.clone()).arguments();
        DialinCall::from_args(&args)
    };
    let room = || Caller::video_room("https://example.net/r");
    assert!(held_for(room(), &json!({})).is_none());
    assert!(held_for(Caller::base(), &body).is_none());
    let call = held_for(room(), &body).expect("a call is held");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (first, second) = runtime.expect("a runtime").block_on(async {
        let uri = "bot-telephony-1a2b3c4d@sip.example.net";
        (call.connect(uri).await, call.connect(&format!("sip:{uri}")).await)
    });
    first.expect("it is connected");
    let refused = second.expect_err("it is not").to_string();
    assert_eq!(
        refused,
        "connecting the call to its room: the provider answered 400 (invalid-request-error: not ready)"
    );
    for asked in all_requests(&provider, 2) {
        let body = check_request(&asked, "POST", "/v1/dialin/pinlessCallUpdate");
        let uri = "sip:bot-telephony-1a2b3c4d@sip.example.net";
        assert_eq!(body, json!({"callId": "c1", "callDomain": "d1", "sipUri": uri}));
    }
}

/// R-075: no server, one room, one bot. The bot's end ends the runner.
#[test]
fn direct_runs_one_bot_in_one_room() {
    let direct = |answers: &dyn Fn() -> Rest, bot: &str| {
        let provider = answers();
        let url = format!("{}/v1", provider.url());
        let variables = [("DAILY_API_KEY", KEY), ("DAILY_API_URL", url.as_str())];
        let ended = TestRunner::run_with(&["--direct", "-vv", "--", "/bin/sh", "-c", bot], &variables);
        assert!(
            !ended.stderr.contains(KEY) && !ended.stderr.contains(TOKEN),
            "{ended:?}"
        );
        (ended, provider.asked())
    };
    let good = || Rest::playing(working_provider("public"));
    let (ended, asked) = direct(&good, "exit 0");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let name = json_of(&asked[0])["name"].as_str().expect("a name").to_owned();
    assert_eq!(ended.stdout, format!("https://example.net/{name}\n"));
    assert_eq!(asked.len(), 2, "{asked:#?}");
    assert!(!ended.stderr.contains("listening on"), "{ended:?}");

    // The bot's arguments, as seen by its actions.
    let reported = r#"case "$RUNNER_ARGUMENTS" in *'"body":{}'*'"handle_sigint":true'*'"kind":"videoroom"'*'"room_url":"https://example.net/bot-'*'"token":'*) exit 0;; *) exit 9;; esac"#;
    assert_eq!(direct(&good, reported).0.code, Some(0));

    let (failed, _) = direct(&good, "exit 3");
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("the bot failed: exit status: 3"), "{failed:?}");

    let (refused, _) = direct(&|| Rest::start(&[(401, "{}")]), "exit 0");
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("the provider answered 401"), "{refused:?}");
}

/// A supervisor may restart the runner again and again. No attempt leaves a room behind.
#[test]
fn direct_deletes_a_room_without_a_token() {
    let provider = Rest::playing(|nth, asked| match asked.target.as_str() {
        "/v1/meeting-tokens" => ScriptedAnswer::Json(403, r#"{"error":"forbidden-error"}"#.into()),
        _ => working_provider("public")(nth, asked),
    });
    let url = format!("{}/v1", provider.url());
    let variables = [("VIDEOROOM_API_KEY", KEY), ("VIDEOROOM_API_URL", url.as_str())];
    for workers in ["1", "2"] {
        let before = provider.asked().len();
        let options = ["--direct", "--workers", workers, "--", "/bin/sh", "-c", "exit 0"];
        let ended = TestRunner::run_with(&options, &variables);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
        assert!(ended.stderr.contains("answered 403"), "{ended:?}");
        let asked = provider.asked().split_off(before);
        let methods: Vec<&str> = asked.iter().map(|asked| asked.method.as_str()).collect();
        assert_eq!(methods, ["POST", "POST", "DELETE"], "{asked:#?}");
    }
}

/// R-075: a signal to the runner ends the bot and the runner.
#[test]
fn direct_stops_on_a_signal() {
    for signal in ["INT", "TERM"] {
        let provider = Rest::playing(working_provider("public"));
        let url = format!("{}/v1", provider.url());
        let variables = [("VIDEOROOM_API_KEY", KEY), ("VIDEOROOM_API_URL", url.as_str())];
        let mut runner = TestRunner::start_silent(&["--direct", "--", "/bin/sh", "-c", SLEEPING_COMMAND], &variables);
        let process = BotProcess::of(&runner, |_| true).process;
        runner.signal(signal);
        assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
        wait_for_end(process);
    }
}
