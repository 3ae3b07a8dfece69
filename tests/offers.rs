//! Rejected offers over HTTP: the log says what their senders are told.

use std::net::Ipv4Addr;

use edge_runner_proto::limits::{HTTP_BODY_BYTES_MAX, LINES_PER_CALLER_MAX};
use serde_json::{Value, json};

use crate::support::http::{KeepAlive, Reply, request};
use crate::support::runner::TestRunner;

const KEY: &str = "offers-0123456789abcdef";
const JSON: &str = "Content-Type: application/json";

fn post(runner: &TestRunner, headers: &[&str], body: &[u8]) -> Reply {
    request(runner.addr, "POST", "/api/offer", headers, body).expect("the runner answers")
}

/// Returns the reason of a rejection, as the log shows it.
fn words(reply: &Reply) -> String {
    match &reply.json()["detail"] {
        Value::String(detail) => detail.clone(),
        problems => problems[0]["msg"].as_str().expect("a problem has words").to_owned(),
    }
}

fn device_offer() -> Value {
    let sdp = include_str!("data/sdp/device.offer.sdp").replace('\n', "\r\n");
    json!({"sdp": sdp.replace("\r\r", "\r"), "type": "offer"})
}

/// Every rejection is one line at the default level with the text of the reply, without the key.
#[test]
fn every_rejected_offer_is_one_log_line() {
    let runner = TestRunner::start(&["--api-key", KEY, "--bot", "echo"]);
    let authorization = format!("Authorization: Bearer {KEY}");
    let keyed = [JSON, &authorization];
    let no_audio = json!({"sdp": "v=0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n", "type": "offer"});
    let no_audio = no_audio.to_string();
    let form = ["Content-Type: multipart/form-data; boundary=x", &authorization];
    let packed = [JSON, &authorization, "Content-Encoding: gzip"];
    let offer = device_offer().to_string();
    let long = vec![b' '; HTTP_BODY_BYTES_MAX + 1];
    let cases: [(u16, &[&str], &[u8]); 7] = [
        (401, &[JSON], b"{}"),
        (400, &keyed, no_audio.as_bytes()),
        (422, &keyed, br#"{"type":"offer"}"#),
        (422, &keyed, KEY.as_bytes()),
        (413, &keyed, &long),
        (415, &form, offer.as_bytes()),
        (415, &packed, offer.as_bytes()),
    ];
    let mut lines = 0;
    for (status, headers, body) in cases {
        let reply = post(&runner, headers, body);
        assert_eq!(reply.status, status, "{}", reply.text());
        let line = format!("{status} POST /api/offer: ");
        let said = runner.wait_for_log(&words(&reply));
        assert!(said.contains("WARN") && said.contains(&line), "{said}");
        lines += 1;
        assert_eq!(runner.log().matches(" POST /api/offer: ").count(), lines);
    }
    assert_eq!(post(&runner, &keyed, offer.as_bytes()).status, 200);
    assert!(!runner.log().contains(KEY));
}

/// Repeated requests do not fill the log: each caller has a limited number of lines.
#[test]
fn rejected_offers_count_towards_the_log_limit_of_their_caller() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    for _ in 0..LINES_PER_CALLER_MAX + 10 {
        assert_eq!(post(&runner, &[JSON], br#"{"sdp":"no SDP"}"#).status, 400);
    }
    // Another address has lines left, and its line follows all others.
    let mut other = KeepAlive::from(Ipv4Addr::new(127, 0, 0, 2), runner.addr).expect("the runner listens");
    let reply = other.post("/api/offer", &[], &json!({})).expect("the runner answers");
    assert_eq!(reply.status, 422);
    runner.wait_for_log("422 POST /api/offer: ");
    let lines = runner.log().matches("400 POST /api/offer: ").count();
    assert_eq!(lines, LINES_PER_CALLER_MAX as usize);
}
