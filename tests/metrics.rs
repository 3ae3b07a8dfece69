//! `/metrics` of the real binary: who may read it, and that its values match what happened.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::client::Client;
use crate::support::device::offer::Shape;
use crate::support::device::{Device, Options, offer_only};
use crate::support::http;
use crate::support::runner::{PATIENCE, TestRunner};
use crate::support::sound::Speech;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn read(runner: &TestRunner) -> String {
    let reply = http::get(runner.addr, "/metrics");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.text()
}

/// Returns the value of a series.
pub fn value(text: &str, series: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok())
}

/// Waits until each series has at least this value; live sessions report once a second.
fn wait_for(runner: &TestRunner, wanted: &[(&str, f64)]) -> String {
    let start = Instant::now();
    loop {
        let text = read(runner);
        let missing = wanted
            .iter()
            .find(|(series, least)| value(&text, series).is_none_or(|value| value < *least));
        let Some((series, least)) = missing else { return text };
        assert!(
            start.elapsed() < PATIENCE,
            "{series} never came to {least}:\n{text}\n{}",
            runner.log()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// By default this machine may read, but not through a proxy on it.
#[test]
fn only_this_machine_reads_the_metrics_by_default() {
    let forwarding = [
        "Forwarded: for=192.0.2.60",
        "X-Forwarded-For: 203.0.113.7",
        "X-Real-IP: 203.0.113.7",
        "Via: 1.1 proxy",
    ];
    let ask = |runner: &TestRunner, header: &[&str]| {
        http::request(runner.addr, "GET", "/metrics", header, b"").expect("an answer")
    };
    let local = TestRunner::start(&[]);
    let reply = ask(&local, &[]);
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    for header in forwarding {
        let reply = ask(&local, &[header]);
        assert_eq!(reply.status, 403, "{header}");
        let detail = reply.json()["detail"].as_str().expect("words").to_owned();
        assert!(detail.contains("--metrics any"), "{detail}");
    }
    assert_eq!(ask(&TestRunner::start(&["--metrics", "off"]), &[]).status, 404);
    let any = TestRunner::start(&["--metrics", "any"]);
    for header in forwarding {
        assert_eq!(ask(&any, &[header]).status, 200, "{header}");
    }
    let key = TestRunner::start(&["--metrics", "key", "--api-key", "0123456789abcdef"]);
    let without = ask(&key, &[]);
    assert_eq!(
        (without.status, without.header("www-authenticate")),
        (401, Some("Bearer"))
    );
    for header in forwarding {
        let with = ask(&key, &[header, "Authorization: Bearer 0123456789abcdef"]);
        assert_eq!(with.status, 200, "{header}");
    }
    let post = http::request(any.addr, "POST", "/metrics", &[], b"").expect("an answer");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
}

/// A foreign page in a browser on this machine may not read.
#[test]
fn a_foreign_page_cannot_read_the_metrics() {
    let runner = TestRunner::start(&[]);
    let origin = ["Origin: https://evil.example"];
    let reply = http::request(runner.addr, "GET", "/metrics", &origin, b"").expect("an answer");
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

/// A plain client is counted while it talks, and with its outcome after it left.
#[test]
fn a_websocket_session_is_counted_while_it_is_live() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.say(&[1_000; 16_000], 16_000);
    client.tell("client-ready", "r", &json!({"version": "2.1.0"}));
    client.hear_message("bot-ready", |message| message["type"] == "bot-ready");
    let text = wait_for(
        &runner,
        &[
            (r#"edge_runner_sessions{transport="websocket"}"#, 1.0),
            (
                r#"edge_runner_audio_frames_received_total{transport="websocket"}"#,
                40.0,
            ),
            (r#"edge_runner_audio_frames_sent_total{transport="websocket"}"#, 30.0),
            (r#"edge_runner_received_bytes_total{transport="websocket"}"#, 32_000.0),
            (r#"edge_runner_sent_bytes_total{transport="websocket"}"#, 32_000.0),
            (r#"edge_runner_packets_received_total{transport="websocket"}"#, 60.0),
            (r#"edge_runner_messages_received_total{transport="websocket"}"#, 1.0),
            (r#"edge_runner_messages_sent_total{transport="websocket"}"#, 1.0),
            (r#"edge_runner_http_responses_total{class="1xx"}"#, 1.0),
            ("edge_runner_timer_lateness_seconds_count", 1.0),
        ],
    );
    let ended = r#"edge_runner_sessions_ended_total{transport="websocket",outcome="left"}"#;
    assert_eq!(value(&text, ended), Some(0.0));
    client.socket.close(1000);
    wait_for(&runner, &[(ended, 1.0)]);
    // The end may fall between two lines of one reading.
    let text = read(&runner);
    assert_eq!(
        value(&text, r#"edge_runner_sessions{transport="websocket"}"#),
        Some(0.0)
    );
    assert_eq!(
        value(&text, r#"edge_runner_bot_queue_frames{transport="websocket"}"#),
        Some(0.0)
    );
}

/// A device over WebRTC: delays, packets and frames, and a stray datagram on the same port.
#[test]
fn a_connection_is_counted_with_its_delays() {
    let runner = TestRunner::start(&["--embedded", "--host", "127.0.0.1", "--bot", "echo"]);
    let device = Device::join(runner.addr, Options::new(Speech::Silence));
    device.wait("sound", |report| report.audio.len() >= 60);
    wait_for(
        &runner,
        &[
            (r#"edge_runner_sessions{transport="webrtc"}"#, 1.0),
            (r#"edge_runner_packets_received_total{transport="webrtc"}"#, 50.0),
            (r#"edge_runner_packets_sent_total{transport="webrtc"}"#, 50.0),
            (r#"edge_runner_audio_frames_received_total{transport="webrtc"}"#, 50.0),
            (r#"edge_runner_audio_frames_sent_total{transport="webrtc"}"#, 50.0),
            ("edge_runner_offer_to_answer_seconds_count", 1.0),
            ("edge_runner_answer_to_connected_seconds_count", 1.0),
            (r#"edge_runner_answer_to_connected_seconds_bucket{le="10"}"#, 1.0),
        ],
    );
    let (answer, _) = offer_only(runner.addr, Shape::FIRMWARE, HOST);
    let port: SocketAddr = answer.expect("an answer").remote;
    let stray = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    for _ in 0..3 {
        stray.send_to(b"junk", port).expect("it leaves");
    }
    wait_for(
        &runner,
        &[(r#"edge_runner_datagrams_dropped_total{reason="stranger"}"#, 3.0)],
    );
}

#[test]
fn refusals_are_counted() {
    let runner = TestRunner::start(&["--max-sessions", "1"]);
    let offer = |body: &str| {
        let json = ["Content-Type: application/json"];
        http::request(runner.addr, "POST", "/api/offer", &json, body.as_bytes())
            .expect("an answer")
            .status
    };
    assert_eq!(offer(r#"{"sdp":"nonsense","type":"offer"}"#), 400);
    assert_eq!(
        offer(r#"{"sdp":"nonsense","type":"offer","pc_id":"gone","restart_pc":true}"#),
        404
    );
    let _one = Client::connect(runner.addr, "/ws-client");
    runner.wait_for_sessions(1);
    assert_eq!(offer(r#"{"sdp":"nonsense","type":"offer"}"#), 503);
    let text = read(&runner);
    for (series, expected) in [
        (r#"edge_runner_offers_refused_total{reason="bad_sdp"}"#, 1.0),
        (r#"edge_runner_offers_refused_total{reason="unknown_connection"}"#, 1.0),
        (r#"edge_runner_offers_refused_total{reason="full"}"#, 1.0),
        (r#"edge_runner_http_responses_total{class="4xx"}"#, 2.0),
        (r#"edge_runner_http_responses_total{class="5xx"}"#, 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}");
    }
}

/// A caller who gets an answer and never connects: after 15 s one line says why, and the outcome is
/// counted.
#[test]
fn a_failed_connection_is_explained_once_and_counted() {
    let runner = TestRunner::start(&["--embedded", "--host", "127.0.0.1"]);
    let (answer, _) = offer_only(runner.addr, Shape::FIRMWARE, HOST);
    assert!(answer.is_some());
    let line = runner.wait_for_log("never connected: ");
    assert!(
        line.contains("WARN") && line.contains("1 candidate of the client"),
        "{line}"
    );
    assert!(line.contains("0 received"), "{line}");
    wait_for(
        &runner,
        &[(
            r#"edge_runner_sessions_ended_total{transport="webrtc",outcome="never_connected"}"#,
            1.0,
        )],
    );
    assert_eq!(runner.log().matches("never connected: ").count(), 1, "{}", runner.log());
}
