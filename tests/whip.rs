//! Sessions by one POST: WHIP, WHEP and the calls endpoint, with correct and incorrect clients.

use edge_runner_proto::limits::{OFFER_SDP_BYTES_MAX, PENDING_OFFERS_MAX};
use serde_json::{Value, json};
use str0m::media::Direction;

use crate::support::http::{Reply, get, last_call, request};
use crate::support::program::{BotProcess, SLEEPING_COMMAND};
use crate::support::runner::TestRunner;
use crate::support::whip::{Offers, Poster};

const KEY: &str = "whip-0123456789abcdef";
const SDP: &str = "Content-Type: application/sdp";
const BOTH: Offers = Offers::audio(Direction::SendRecv);

fn echo() -> TestRunner {
    TestRunner::start(&["--bot", "echo"])
}

fn ask(runner: &TestRunner, method: &str, target: &str, headers: &[&str], body: &str) -> Reply {
    request(runner.addr, method, target, headers, body.as_bytes()).expect("the runner answers")
}

/// Returns the direction of the audio in an answer.
fn direction(answer: &str) -> &str {
    let audio = answer.split("m=").nth(1).expect("a section");
    let known = ["a=sendrecv", "a=sendonly", "a=recvonly", "a=inactive"];
    audio.lines().find(|line| known.contains(line)).expect("a direction")
}

/// An offer without candidates gets everything that WHIP clients expect, and connects by its
/// checks.
#[test]
fn one_post_opens_a_session_with_a_resource() {
    let servers = r#"[{"urls": "stun:192.0.2.1:3478"}, {"urls": ["turn:192.0.2.1?transport=udp"], "username": "u", "credential": "c"}]"#;
    let runner = TestRunner::start(&["--bot", "echo", "--ice-servers", servers]);
    let mut poster = Poster::new(BOTH);
    assert!(!poster.bare_offer().contains("a=candidate"));
    let reply = poster.post(&runner, "/whip/door?room=7", &[]);
    assert_eq!(reply.header("content-type"), Some("application/sdp"));
    assert_eq!(
        reply.header("content-length"),
        Some(reply.body.len().to_string().as_str())
    );
    assert_eq!(reply.header("transfer-encoding"), None);
    let links: Vec<&str> = reply
        .headers
        .iter()
        .filter(|(name, _)| name == "link")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(
        links,
        [
            r#"<stun:192.0.2.1:3478>; rel="ice-server""#,
            r#"<turn:192.0.2.1?transport=udp>; rel="ice-server"; username="u"; credential="c"; credential-type="password""#
        ]
    );
    poster.take(&reply);
    let id = poster
        .location
        .strip_prefix("/whip/s/")
        .expect("an absolute path")
        .to_owned();
    assert!(id.len() == 32 && !id.contains('?'), "{id}");
    let ufrag = poster
        .answer
        .lines()
        .find_map(|line| line.strip_prefix("a=ice-ufrag:"))
        .expect("a ufrag");
    assert_eq!(poster.etag, format!("\"{ufrag}\""));
    assert_eq!(direction(&poster.answer), "a=sendrecv");
    poster.until("the connection", |poster| poster.connected);
    poster.hear(100);
    assert_eq!(get(runner.addr, &poster.location).status, 204);
    assert_eq!(poster.delete(&runner).status, 200);
    poster.until("the runner's goodbye", |poster| poster.gone);
    runner.wait_for_sessions(0);
    let call = last_call(runner.addr, &[]);
    for name in ["jitter_ms", "round_trip_ms"] {
        assert!(call["network"][name].is_u64(), "{call}");
    }
    assert_eq!(call["counts"]["packets_late"], 0);
    assert!(
        runner.wait_for_log("session ended").contains("left"),
        "{}",
        runner.log()
    );
    for (method, status) in [("DELETE", 404), ("PATCH", 404), ("GET", 404)] {
        let reply = ask(
            &runner,
            method,
            &poster.location,
            &["Content-Type: application/trickle-ice-sdpfrag"],
            "a=end-of-candidates",
        );
        assert_eq!(reply.status, status, "{method}");
    }
    // Session ids must not be logged.
    assert!(!runner.log().contains(&id), "{}", runner.log());
}

/// The answer mirrors the offer: senders are heard, listeners hear, and no bot waits for missing
/// audio.
#[test]
fn each_direction_is_mirrored() {
    let runner = TestRunner::start(&["--bot", "parrot"]);
    let mut listener = Poster::connect(&runner, "/whep", Offers::audio(Direction::RecvOnly));
    assert_eq!(direction(&listener.answer), "a=sendonly");
    // The greeting comes without a `client-ready`.
    listener.hear(10);
    assert_eq!((listener.sent, listener.delete(&runner).status), (0, 200));
    let line = runner.wait_for_log("session ended");
    assert!(line.contains(" 0 frames to the bot"), "{line}");

    let mut speaker = Poster::connect(
        &runner,
        "/whip",
        Offers {
            video: true,
            ..Offers::audio(Direction::SendOnly)
        },
    );
    assert_eq!(direction(&speaker.answer), "a=recvonly");
    let video = speaker.answer.split("m=video ").nth(1).expect("a section");
    assert!(video.starts_with("0 ") || video.contains("a=inactive"), "{video}");
    speaker.speak(60);
    assert_eq!((speaker.received, speaker.delete(&runner).status), (0, 200));
    let line = runner.wait_for_logs("session ended", 2).remove(1);
    assert!(frames_to_the_bot(&line) >= 30, "{line}");
}

/// WHEP accepts three directions; offers that no bot could use are rejected with the reason.
#[test]
fn rejects_offers_that_reach_no_bot() {
    let runner = echo();
    let whep = Poster::new(BOTH);
    assert_eq!(whep.post(&runner, "/whep", &[]).status, 201);
    let send = Poster::new(Offers::audio(Direction::SendOnly)).post(&runner, "/whep/door", &[]);
    assert_eq!((send.status, direction(&send.text())), (201, "a=recvonly"));
    let offer = whep.bare_offer();
    let audio = offer.split("m=audio").nth(1).expect("audio").to_owned();
    let without_audio = offer.replace("m=audio", "m=video");
    for (target, body, status, words) in [
        ("/whip", offer.replace("a=sendrecv", "a=recvonly"), 422, "/whep"),
        ("/whip", offer.replace("a=sendrecv", "a=inactive"), 422, "inactive"),
        ("/whep", offer.replace("a=sendrecv", "a=inactive"), 422, "inactive"),
        ("/whip", offer.replace("a=rtcp-mux\r\n", ""), 422, "rtcp-mux"),
        ("/whip", format!("{offer}m=audio{audio}"), 422, "two audio"),
        ("/whip", without_audio, 422, "no audio"),
        ("/whip", "v=0".to_owned(), 400, "m="),
        ("/whip", "{}".to_owned(), 400, "v=0"),
        ("/whip", String::new(), 400, "v=0"),
        ("/whip", "v".repeat(OFFER_SDP_BYTES_MAX), 400, "v=0"),
        ("/whip", "v".repeat(OFFER_SDP_BYTES_MAX + 1), 413, "65536"),
    ] {
        let reply = ask(&runner, "POST", target, &[SDP], &body);
        let detail = reply.json()["detail"].as_str().expect("words").to_owned();
        assert_eq!(reply.status, status, "{words}: {detail}");
        assert!(detail.contains(words), "{detail}");
        runner.wait_for_log(&format!("{status} POST {target}: {detail}"));
    }
    // Both kinds of line ends are accepted.
    assert_eq!(
        ask(&runner, "POST", "/whip", &[SDP], &offer.replace("\r\n", "\n")).status,
        201
    );
    for kind in [
        "Content-Type: text/plain",
        "Content-Type: application/json",
        "X-None: 1",
    ] {
        assert_eq!(ask(&runner, "POST", "/whip", &[kind], &offer).status, 415, "{kind}");
    }
    let calls = ask(
        &runner,
        "POST",
        "/v1/realtime/calls",
        &["Content-Type: text/plain"],
        &offer,
    );
    assert_eq!(
        (calls.status, &calls.json()["error"]["message"]),
        (415, &calls.json()["detail"])
    );
    for (method, target, allowed) in [
        ("PUT", "/whip", "GET, HEAD, POST, OPTIONS"),
        ("POST", "/whip/s/0123", "GET, HEAD, PATCH, DELETE, OPTIONS"),
        ("GET", "/v1/realtime/client_secrets", "POST, OPTIONS"),
    ] {
        let reply = ask(&runner, method, target, &[], "");
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, Some(allowed)),
            "{method} {target}"
        );
    }
}

/// Candidates in every known spelling, and all kinds of tags; unusable ones are ignored.
#[test]
fn accepts_candidates_in_every_form() {
    let runner = echo();
    let mut poster = Poster::connect(&runner, "/whip", BOTH);
    let fragment = poster.fragment();
    let component_0 = fragment.replace("candidate:1 1 ", "candidate:1 0 ");
    let tail = format!("a=group:BUNDLE 0\r\na=msid-semantic: esp-webrtc\r\n{fragment}");
    let unusable = "a=candidate:1 1 tcp 1 192.0.2.9 9 typ host\r\na=candidate:2 1 udp 1 x.local 9000 typ host\r\n";
    let etag = poster.etag.clone();
    for (if_match, body) in [
        (None, fragment.as_str()),
        (Some(etag.as_str()), &fragment),
        (Some("*"), &fragment),
        (Some("\"*\""), &fragment),
        (None, &component_0),
        (None, &tail),
        (None, unusable),
        (None, "a=end-of-candidates\r\n"),
    ] {
        let reply = poster.patch(&runner, if_match, body);
        assert_eq!(
            (reply.status, reply.body.len(), reply.header("etag")),
            (204, 0, None),
            "{if_match:?} {body}"
        );
    }
    assert_eq!(poster.patch(&runner, Some("\"another\""), &fragment).status, 412);
    assert_eq!(poster.patch(&runner, None, "nothing").status, 400);
    let patch = |kind: &str| ask(&runner, "PATCH", &poster.location, &[kind], &fragment).status;
    assert_eq!(patch("Content-Type: application/sdp"), 204);
    assert_eq!(patch("Content-Type: application/json"), 415);
    poster.hear(50);
}

/// A fragment restarts ICE during a call: audio continues both ways under a new tag, and the old
/// one is stale.
#[test]
fn restarts_ice_during_a_call() {
    let runner = echo();
    let mut poster = Poster::connect(&runner, "/whip", BOTH);
    poster.hear(50);
    let (before, answered) = (poster.etag.clone(), poster.answer.clone());
    let reply = poster.restart(&runner);
    assert_eq!(reply.header("content-type"), Some("application/trickle-ice-sdpfrag"));
    assert_ne!(poster.etag, before);
    assert_ne!(poster.answer, answered);
    poster.hear(100);
    assert_eq!(poster.patch(&runner, Some(&before), &poster.fragment()).status, 412);
    assert_eq!(
        poster.patch(&runner, Some(&poster.etag), &poster.fragment()).status,
        204
    );
    // An invalid restart is rejected and changes nothing.
    let broken = "a=ice-ufrag:only\r\n";
    assert_eq!(poster.patch(&runner, Some("*"), broken).status, 400);
    poster.restart(&runner);
    poster.hear(100);
    assert_eq!(runner.sessions(), 1);
    // Nothing was lost between the two ICE sessions.
    let sent = poster.sent;
    assert_eq!(poster.delete(&runner).status, 200);
    let line = runner.wait_for_log("session ended");
    assert!(frames_to_the_bot(&line) + IN_FLIGHT >= sent, "{sent} were sent: {line}");
}

/// Packets in transit when a session ended.
const IN_FLIGHT: usize = 3;

/// Parses the last line of a session.
fn frames_to_the_bot(line: &str) -> usize {
    let mut parts = line.split(", ");
    let frames = parts.find_map(|part| part.strip_suffix(" frames to the bot"));
    frames.and_then(|count| count.parse().ok()).expect("a count")
}

/// When the bot hangs up, the resource ends with the session.
#[test]
fn a_hang_up_deletes_the_resource() {
    let runner = TestRunner::start(&["--", "sh", "-c", SLEEPING_COMMAND]);
    let mut poster = Poster::connect(&runner, "/whip", BOTH);
    let program = BotProcess::of(&runner, |_| true).connect_media();
    drop(program);
    poster.until("the end", |poster| poster.gone);
    assert_eq!(poster.delete(&runner).status, 404);
    assert_eq!(poster.patch(&runner, None, &poster.fragment()).status, 404);
}

/// The bot's body is the query or the settings, and its call data has no key.
#[test]
fn the_bot_gets_the_endpoint_of_its_caller() {
    let runner = TestRunner::start(&["--", "sh", "-c", SLEEPING_COMMAND]);
    let agent = "User-Agent: OBS-Studio/30.2";
    let whip = Poster::new(BOTH).post(&runner, "/whip/front-door?room=7&token=secret&who=a+b", &[agent]);
    assert_eq!(whip.status, 201);
    let arguments = BotProcess::of(&runner, |arguments| arguments["call_data"]["via"] == "whip").arguments;
    assert_eq!(arguments["body"], json!({"room": "7", "who": "a b"}));
    assert_eq!(
        arguments["call_data"],
        json!({"via": "whip", "name": "front-door", "user_agent": "OBS-Studio/30.2"})
    );
    let id = whip
        .header("location")
        .and_then(|path| path.strip_prefix("/whip/s/"))
        .expect("an id");
    assert_eq!(arguments["webrtc_connection"]["pc_id"], id);
    assert_eq!(last_call(runner.addr, &[])["caller"], "front-door");

    let offer = Poster::new(BOTH).bare_offer();
    let form = format!(
        "--B\r\nContent-Disposition: form-data; name=\"sdp\"\r\nContent-Type: application/sdp\r\n\r\n{offer}\r\n\
         --B\r\nContent-Disposition: form-data; name=\"session\"\r\n\r\n{{\"model\":\"m\"}}\r\n--B--\r\n"
    );
    let call = ask(
        &runner,
        "POST",
        "/v1/realtime/calls",
        &["Content-Type: multipart/form-data; boundary=B"],
        &form,
    );
    assert_eq!(call.status, 201, "{}", call.text());
    let location = call.header("location").expect("a location");
    assert!(location.starts_with("/v1/realtime/calls/rtc_"), "{location}");
    let arguments = BotProcess::of(&runner, |arguments| arguments["call_data"]["via"] == "calls").arguments;
    assert_eq!(arguments["body"], json!({"session": {"model": "m"}}));
    assert_eq!(get(runner.addr, location).status, 204);
    let hang_up = |path: &str| ask(&runner, "POST", path, &[], "").status;
    assert_eq!(hang_up(&format!("/openai{location}/hangup")), 200);
    assert_eq!(hang_up(&format!("{location}/hangup")), 404);
}

fn secret(runner: &TestRunner, body: &str) -> Reply {
    let bearer = format!("Authorization: Bearer {KEY}");
    ask(
        runner,
        "POST",
        "/v1/realtime/client_secrets",
        &["Content-Type: application/json", &bearer],
        body,
    )
}

/// With an API key, a session requires it or a single-use key made with it. The session's id
/// requires no key.
#[test]
fn a_session_needs_a_key() {
    let runner = TestRunner::start(&["--api-key", KEY, "--", "sh", "-c", SLEEPING_COMMAND]);
    let open = |target: &str, headers: &[&str]| Poster::new(BOTH).post(&runner, target, headers);
    let refused = open("/whip", &[]);
    assert_eq!(
        (refused.status, refused.header("www-authenticate")),
        (401, Some("Bearer"))
    );
    let bearer = format!("Authorization: Bearer {KEY}");
    // `user:` and the key, and a truncated key.
    let basic = |password: &str| {
        format!(
            "Authorization: Basic {}",
            data_encoding::BASE64.encode(format!("user:{password}").as_bytes())
        )
    };
    assert_eq!(open("/whip", &[&bearer]).status, 201);
    assert_eq!(open("/whip", &[&basic(KEY)]).status, 201);
    for wrong in [
        basic("another"),
        "Authorization: Bearer another".to_owned(),
        "Authorization: Bearer ek_another".to_owned(),
    ] {
        assert_eq!(open("/whip", &[&wrong]).status, 401, "{wrong}");
    }
    for calls in ["/v1/realtime/calls", "/openai/v1/realtime/calls"] {
        assert_eq!(open(calls, &[&basic(KEY)]).status, 201, "{calls}");
        assert_eq!(open(calls, &[&basic("another")]).status, 401, "{calls}");
    }
    // Browsers add Basic credentials by themselves, so those do not authorize a form.
    let page = format!("Origin: http://127.0.0.1:{}", runner.addr.port());
    for of_browser in [page.as_str(), "Sec-Fetch-Site: same-origin"] {
        let call = open("/v1/realtime/calls", &[&basic(KEY), of_browser]);
        assert_eq!(call.status, 401, "{of_browser}");
    }
    let call = open("/v1/realtime/calls", &[]);
    assert_eq!(call.status, 401);
    assert!(
        call.json()["error"]["message"]
            .as_str()
            .is_some_and(|words| words.contains("key"))
    );

    assert_eq!(
        ask(
            &runner,
            "POST",
            "/v1/realtime/client_secrets",
            &["Content-Type: application/json"],
            "{}"
        )
        .status,
        401
    );
    let secret_with = |headers: &[&str]| {
        let headers = [&["Content-Type: application/json"], headers].concat();
        ask(&runner, "POST", "/v1/realtime/client_secrets", &headers, "{}")
    };
    assert_eq!(secret_with(&[&basic("another")]).status, 401);
    assert_eq!(secret_with(&[&basic(KEY), "Sec-Fetch-Site: same-origin"]).status, 401);
    let reply = secret_with(&[&basic(KEY)]);
    assert_eq!(reply.status, 200);
    let one_call = reply.json()["value"].as_str().expect("a key").to_owned();
    assert_eq!(open("/v1/realtime/calls", &[&basic(&one_call)]).status, 201);
    assert_eq!(open("/v1/realtime/calls", &[&basic(&one_call)]).status, 401);

    let reply = secret(
        &runner,
        r#"{"session":{"type":"realtime","audio":{"output":{"voice":"ash"}}}}"#,
    );
    assert_eq!((reply.status, reply.header("transfer-encoding")), (200, None));
    let made = reply.json();
    assert_eq!(made["client_secret"]["value"], made["value"]);
    assert!(made["expires_at"].as_u64().is_some_and(|at| at > 1_700_000_000));
    let ephemeral = format!("Authorization: Bearer {}", made["value"].as_str().expect("a key"));
    assert!(ephemeral.contains(" ek_"));
    let call = open("/v1/realtime/calls?ignored=1", &[&ephemeral]);
    assert_eq!(call.status, 201, "{}", call.text());
    let body = BotProcess::of(&runner, |arguments| {
        arguments["call_data"]["via"] == "calls" && arguments["body"]["session"].is_object()
    })
    .arguments["body"]
        .clone();
    assert_eq!(
        body,
        json!({"session": {"type": "realtime", "audio": {"output": {"voice": "ash"}}}})
    );
    let again = open("/v1/realtime/calls", &[&ephemeral]);
    assert_eq!(again.status, 401);
    assert!(
        again.json()["detail"]
            .as_str()
            .is_some_and(|words| words.contains("used")),
        "{}",
        again.text()
    );

    // A session of `/start` is accepted by its id, in a header or in the URL.
    let start = |body: &Value| {
        ask(
            &runner,
            "POST",
            "/start",
            &["Content-Type: application/json", &bearer],
            &json!({"body": body}).to_string(),
        )
    };
    for in_url in [false, true] {
        let id = start(&json!({"n": in_url})).json()["sessionId"]
            .as_str()
            .expect("a name")
            .to_owned();
        let opened = match in_url {
            true => open(&format!("/whip?token={id}"), &[]),
            false => open("/whip", &[&format!("Authorization: Bearer {id}")]),
        };
        assert_eq!(opened.status, 201, "{}", opened.text());
        let arguments = BotProcess::of(&runner, |arguments| arguments["body"] == json!({"n": in_url})).arguments;
        assert_eq!(arguments["session_id"], id.as_str());
        let location = opened.header("location").expect("a location");
        // The used key is sent again and ignored.
        let old = format!("Authorization: Bearer {id}");
        assert_eq!(ask(&runner, "DELETE", location, &[&old], "").status, 200);
    }
    let log = runner.log();
    assert!(!log.contains(KEY) && !log.contains("ek_"), "{log}");
}

/// A rejected offer does not use up its key.
#[test]
fn a_rejected_offer_does_not_redeem_its_key() {
    let runner = TestRunner::start(&["--api-key", KEY, "--bot", "echo"]);
    let value = secret(&runner, "{}").json()["value"]
        .as_str()
        .expect("a key")
        .to_owned();
    let bearer = format!("Authorization: Bearer {value}");
    let refused = ask(&runner, "POST", "/v1/realtime/calls", &[SDP, &bearer], "v=0");
    assert_eq!(refused.status, 400);
    assert_eq!(
        Poster::new(BOTH).post(&runner, "/v1/realtime/calls", &[&bearer]).status,
        201
    );
}

/// Without an API key, libraries that require a key may use any; single-use keys work once.
#[test]
fn without_an_api_key_any_token_but_a_used_one_is_accepted() {
    let runner = echo();
    let open = |token: &str| {
        Poster::new(BOTH)
            .post(
                &runner,
                "/v1/realtime/calls",
                &[&format!("Authorization: Bearer {token}")],
            )
            .status
    };
    assert_eq!(open("ek_anything"), 201);
    let value = secret(&runner, "").json()["value"].as_str().expect("a key").to_owned();
    assert_eq!((open(&value), open(&value)), (201, 401));
}

/// OpenAI's browser library waits for the answer to its settings; the bot receives every text.
#[test]
fn answers_the_data_channel_of_a_realtime_client() {
    let runner = echo();
    let offers = Offers {
        channel: Some("oai-events"),
        ..BOTH
    };
    let mut poster = Poster::connect(&runner, "/v1/realtime/calls", offers);
    poster.until("session.created", |poster| !poster.texts.is_empty());
    poster.tell(r#"{"type":"session.update","session":{"type":"realtime","voice":"ash"}}"#);
    poster.until("session.updated", |poster| poster.texts.len() >= 2);
    let types: Vec<Value> = poster
        .texts
        .iter()
        .map(|text| serde_json::from_str(text).expect("JSON"))
        .collect();
    assert_eq!(
        (&types[0]["type"], &types[1]["type"]),
        (&json!("session.created"), &json!("session.updated"))
    );
    assert_eq!(types[1]["session"], json!({"type": "realtime", "voice": "ash"}));
    // The runner stops, and sends nothing that this channel's clients do not know.
    runner.signal("TERM");
    poster.until("the end", |poster| poster.gone);
    assert!(
        !poster.texts.iter().any(|text| text.contains("peerLeft")),
        "{:?}",
        poster.texts
    );
}

/// Pages of other origins need a preflight and may read the session's headers; devices send no
/// origin.
#[test]
fn pages_read_the_headers_of_an_answer() {
    let runner = echo();
    let origin = "Origin: https://app.example";
    let preflight = ask(
        &runner,
        "OPTIONS",
        "/whip",
        &[
            origin,
            "Access-Control-Request-Method: POST",
            "Access-Control-Request-Headers: authorization,content-type,if-match,x-openai-agents-sdk",
        ],
        "",
    );
    assert_eq!(preflight.status, 200);
    let allowed = preflight.header("access-control-allow-headers").expect("headers");
    assert!(
        ["authorization", "content-type", "if-match", "x-openai-agents-sdk"]
            .iter()
            .all(|name| allowed.contains(name))
    );
    let poster = Poster::new(BOTH);
    let reply = poster.post(&runner, "/whip", &[origin]);
    let exposed = reply.header("access-control-expose-headers").expect("exposed headers");
    assert!(
        ["Location", "ETag", "Link", "Accept-Post"]
            .iter()
            .all(|name| exposed.contains(name)),
        "{exposed}"
    );
    for (headers, target) in [
        (&[][..], "/whip"),
        (&[origin], "/whep/door"),
        (&[], "/v1/realtime/calls"),
    ] {
        let options = ask(&runner, "OPTIONS", target, headers, "");
        assert_eq!(options.status, 200);
        assert!(
            options
                .header("accept-post")
                .is_some_and(|kinds| kinds.starts_with("application/sdp"))
        );
        assert!(
            options
                .header("access-control-allow-methods")
                .is_some_and(|methods| methods.contains("PATCH"))
        );
        assert_eq!(options.header("link"), None);
    }
    for (method, target, status) in [
        ("GET", "/whip", 204),
        ("GET", "/v1/realtime/calls", 204),
        ("HEAD", "/whip/door", 204),
    ] {
        assert_eq!(
            ask(&runner, method, target, &[], "").status,
            status,
            "{method} {target}"
        );
    }
    let head = ask(&runner, "HEAD", "/whep", &[], "");
    assert_eq!(
        (head.status, head.header("content-type")),
        (200, Some("application/sdp"))
    );

    let listed = TestRunner::start(&["--bot", "echo", "--allowed-origins", "https://app.example"]);
    assert_eq!(poster.post(&listed, "/whip", &[origin]).status, 201);
    for refused in [&[][..], &["Origin: https://evil.example"]] {
        assert_eq!(poster.post(&listed, "/whip", refused).status, 403);
    }
}

/// At the session limit, the reply says when to try again.
#[test]
fn a_full_runner_answers_with_retry_after() {
    let runner = TestRunner::start(&["--bot", "echo", "--max-sessions", "1"]);
    let poster = Poster::connect(&runner, "/whip", BOTH);
    let full = Poster::new(BOTH).post(&runner, "/whip", &[]);
    assert_eq!((full.status, full.header("retry-after").is_some()), (503, true));
    assert_eq!(poster.delete(&runner).status, 200);
    runner.wait_for_sessions(0);
    const { assert!(PENDING_OFFERS_MAX > 1) };
    assert_eq!(Poster::new(BOTH).post(&runner, "/whip", &[]).status, 201);
}

/// A device gets its answer unchanged, small enough for its buffer.
#[test]
fn a_device_gets_an_answer_that_fits() {
    let runner = TestRunner::start(&["--embedded", "--host", "127.0.0.1", "--bot", "echo"]);
    let offers = [
        include_str!("data/sdp/device.offer.sdp"),
        include_str!("data/sdp/device-variant.offer.sdp"),
    ];
    for offer in offers {
        let reply = ask(&runner, "POST", "/whip", &[SDP], offer);
        assert_eq!(reply.status, 201, "{}", reply.text());
        assert!(
            reply.text().starts_with("v=0\r\n") && reply.body.len() < 2_000,
            "{} bytes",
            reply.body.len()
        );
        assert_eq!(reply.text().matches("a=candidate:").count(), 1);
        assert_eq!(reply.header("transfer-encoding"), None);
    }
}
