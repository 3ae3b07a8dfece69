//! Plain clients of `/ws-client`, against the real binary: calls, limits, tokens, and misbehaving
//! clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_proto::limits::{
    EVAL_LONG_MAX, EVAL_MESSAGE_BYTES_MAX, HANDSHAKE_WITHIN, MESSAGE_BYTES_MAX, RATE_CHANGES_MAX,
};
use edge_runner_proto::sockets::frames;
use serde_json::{Value, json};

use crate::support::client::{CLIENT_RATE_HZ, Client};
use crate::support::http::{self, Reply};
use crate::support::program::{BotProcess, SLEEPING_COMMAND};
use crate::support::runner::{PATIENCE, TestRunner};
use crate::support::socket::{ConnectOptions, HandshakeError, Socket, bare};
use crate::support::sweep::Sweep;

fn echo() -> TestRunner {
    TestRunner::start(&["--bot", "echo"])
}

/// Says a sweep at this rate in one go, and fails unless it comes back whole and clear.
fn assert_echo(client: &mut Client, ms: u32, rate_hz: u32) {
    let (sweep, before) = (Sweep { ms }, client.received.len());
    client.say(&sweep.pcm(rate_hz), rate_hz);
    let samples = (sweep.received_ms() * CLIENT_RATE_HZ / 1_000) as usize;
    client.hear_until("the echo", |client| client.received.len() - before >= samples);
    sweep.assert_received(client.received_from(before), CLIENT_RATE_HZ, 50.0);
}

fn post_start(runner: &TestRunner, body: &Value) -> Reply {
    let json = ["Content-Type: application/json"];
    http::request(runner.addr, "POST", "/start", &json, body.to_string().as_bytes()).expect("an answer")
}

fn status(refused: Result<Client, HandshakeError>) -> u16 {
    refused.err().map_or(101, |refused| refused.status)
}

#[test]
fn client_ready_is_answered_and_messages_are_carried() {
    let runner = echo();
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell(
        "client-ready",
        "first-7",
        &json!({"version": "2.1.0", "about": {"library": "test"}}),
    );
    let ready = client.hear_message("bot-ready", |message| message["type"] == "bot-ready");
    assert_eq!((&ready["label"], &ready["id"]), (&json!("rtvi-ai"), &json!("first-7")));
    let data = json!({"text": "caf\u{e9} \u{1f3b5}", "n": [1, null, -2.5]});
    assert_eq!(client.ask("m-1", &data)["data"], json!({"t": "echo", "d": data}));
    // A message as long as this side takes is long for the other one as well.
    let long = json!("x".repeat(200_000));
    assert_eq!(client.ask("m-2", &long)["data"]["d"], long);
    client.tell("bogus", "m-3", &json!({}));
    client.hear_message("an error", |message| {
        message["type"] == "error-response" && message["id"] == "m-3"
    });
    // Leaving, the stock client gives no code.
    client.socket.send(tokio_tungstenite::tungstenite::Message::Close(None));
    client.end();
    runner.wait_for_log("session ended: caller left");
    runner.wait_for_sessions(0);
}

/// For every microphone rate, the output is 24 kHz, complete, and paced at playing speed.
#[test]
fn speech_of_every_rate_comes_back_at_the_rate_that_a_client_plays() {
    let runner = &echo();
    thread::scope(|scope| {
        for rate_hz in [8_000, 16_000, 24_000, 48_000] {
            scope.spawn(move || {
                let mut client = Client::connect(runner.addr, "/ws-client");
                assert_echo(&mut client, 1_400, rate_hz);
                client.assert_paced(0.04);
            });
        }
    });
}

#[test]
fn limits_how_often_a_client_changes_its_rate() {
    let runner = echo();
    let mut client = Client::connect(runner.addr, "/ws-client");
    assert_echo(&mut client, 400, 16_000);
    for turn in 0..RATE_CHANGES_MAX {
        client.say(&[0; 160], if turn % 2 == 0 { 8_000 } else { 16_000 });
    }
    assert_eq!(client.ask("alive", &json!(1))["data"]["d"], 1);
    client.say(&[0; 160], 48_000);
    assert_eq!(client.end(), Some((1008, "the rate changed too often".into())));
}

/// Two channels become one; empty frames and unknown fields are skipped.
#[test]
fn skips_frames_without_content() {
    let runner = echo();
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.socket.binary(Vec::new());
    client.socket.binary(frames::interruption());
    client.socket.binary(vec![0x7a, 3, 1, 2, 3]);
    client.socket.message("no JSON");
    client.socket.message("[]");
    client.socket.audio(&[], 16_000);
    assert_echo(&mut client, 400, 16_000);
    let stereo: Vec<u8> = [1_000_i16, 3_000]
        .repeat(1_600)
        .iter()
        .flat_map(|s| s.to_le_bytes())
        .collect();
    client.socket.binary(audio_frame(&stereo, 16_000, 2));
    client.hear_until("the mean of both channels", |client| {
        client
            .received
            .chunks(480)
            .any(|piece| piece.iter().all(|sample| (1_990..2_010).contains(sample)))
    });
}

/// An audio frame as protobuf has it, written by hand, so that it may be wrong.
fn audio_frame(pcm: &[u8], rate_hz: u32, channels: u8) -> Vec<u8> {
    let varint = |mut n: usize| {
        let mut bytes = Vec::new();
        while n >= 0x80 {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    };
    let inner = [
        &[0x1a][..],
        &varint(pcm.len()),
        pcm,
        &[0x20],
        &varint(rate_hz as usize),
        &[0x28, channels],
    ]
    .concat();
    [&[0x12][..], &varint(inner.len()), &inner].concat()
}

/// A client of another protocol gets a close code, even behind a huge message.
#[test]
fn a_client_who_breaks_the_protocol_is_closed_with_its_code() {
    let runner = echo();
    let mut unaffected = Client::connect(runner.addr, "/ws-client");
    let offences: [(&str, Vec<u8>, u16); 9] = [
        ("garbage", vec![0xff; 64], 1003),
        ("JSON", br#"{"label":"rtvi-ai"}"#.to_vec(), 1003),
        ("half a sample", audio_frame(&[0; 321], 16_000, 1), 1003),
        ("half a pair", audio_frame(&[0; 322], 16_000, 2), 1003),
        ("three channels", audio_frame(&[0; 600], 16_000, 3), 1003),
        ("no rate", audio_frame(&[0; 320], 0, 1), 1003),
        ("a slow rate", audio_frame(&[0; 320], 7_999, 1), 1003),
        ("a fast rate", audio_frame(&[0; 320], 48_001, 1), 1003),
        ("too long", frames::message(&"x".repeat(MESSAGE_BYTES_MAX)), 1009),
    ];
    for (what, bytes, code) in offences {
        let mut client = Client::connect(runner.addr, "/ws-client");
        client.socket.binary(bytes);
        assert_eq!(client.end().map(|(code, _)| code), Some(code), "{what}");
    }
    let mut client = Client::connect(runner.addr, "/ws-client");
    client
        .socket
        .text(r#"{"label":"rtvi-ai","type":"client-ready","id":"1"}"#);
    assert_eq!(client.end().map(|(code, _)| code), Some(1003), "text");
    assert_echo(&mut unaffected, 400, 16_000);
    runner.wait_for_sessions(1);
}

/// Connects as `pipecat eval` does.
fn evaluate(runner: &TestRunner, target: &str) -> Socket {
    let socket = Socket::connect(runner.addr, target);
    let flags = json!({"t": "eval-connect", "d": {"skip_tts": true}});
    let connect = json!({"id": "eval-connect", "label": "rtvi-ai", "type": "client-message", "data": flags});
    socket.text(connect.to_string());
    socket
}

/// A picture reaches the program whole, and before what follows. Two evaluations at once may send
/// such, and those that a bot does not read cost what the limit says.
#[test]
fn an_evaluation_sends_long_messages() {
    let runner = TestRunner::start(&["--", "/bin/sh", "-c", SLEEPING_COMMAND]);
    let before = runner.peak_kib();
    let other = evaluate(&runner, "/ws?skip_tts=true");
    let mut program = BotProcess::of(&runner, |arguments| arguments["transport_type"] == "eval").connect_media();
    let picture = json!({"image": "x".repeat(EVAL_MESSAGE_BYTES_MAX - 100)});
    other.text(picture.to_string());
    other.text(json!({"after": "it"}).to_string());
    program.hear_message("what follows", |message| message["after"] == "it");
    let received = &program.messages[program.messages.len() - 2];
    assert!(*received == picture, "{} bytes", received.to_string().len());

    let mut unread = evaluate(&runner, "/ws?capture_bot_images=true");
    for target in ["/ws?skip_tts=true", "/ws"] {
        let mut third = evaluate(&runner, target);
        third.text("x".repeat(MESSAGE_BYTES_MAX + 1));
        let end = third.end();
        assert_eq!(end, Some((1009, "the message is too long".into())), "{target}");
    }
    for _ in 0..14 {
        unread.text(picture.to_string());
    }
    unread.close(1000);
    unread.end();
    let most = EVAL_LONG_MAX * 6 * EVAL_MESSAGE_BYTES_MAX / 1024;
    let cost = runner.peak_kib() - before;
    assert!(cost <= most as u64, "{cost} KiB, at most {most}");
}

#[test]
fn clients_get_a_close_when_the_runner_stops() {
    let mut runner = echo();
    let mut client = Client::connect(runner.addr, "/ws-client");
    assert_echo(&mut client, 400, 16_000);
    runner.signal("TERM");
    assert_eq!(client.end(), Some((1001, "the runner is stopping".into())));
    assert_eq!(runner.wait().code(), Some(0), "{}", runner.log());
}

/// `disconnect-bot` ends the bot, and that ends the session in good order.
#[test]
fn disconnect_bot_ends_the_session() {
    let runner = echo();
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
    client.tell("disconnect-bot", "2", &json!({}));
    assert_eq!(client.end(), Some((1000, String::new())));
    runner.wait_for_log("session ended: bot ended");
}

/// Beyond the cap a client is told to come back, and a place that is left is free.
#[test]
fn a_full_runner_rejects_the_upgrade() {
    let runner = TestRunner::start(&["--bot", "echo", "--max-sessions", "2"]);
    let mut first = Client::connect(runner.addr, "/ws-client");
    let _second = Client::connect(runner.addr, "/ws-client");
    assert_eq!(first.ask("1", &json!(1))["data"]["d"], 1);
    for target in ["/ws-client", "/ws"] {
        let refused = Socket::try_connect(runner.addr, target, ConnectOptions::default())
            .err()
            .expect("it is full");
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.body.contains(r#"{"detail":""#), "{refused:?}");
        let seconds = refused.headers.iter().find(|(name, _)| name == "retry-after");
        let seconds = seconds.unwrap_or_else(|| panic!("{refused:?}"));
        assert!(seconds.1.parse::<u32>().is_ok_and(|seconds| seconds > 0), "{refused:?}");
    }
    assert_eq!(post_start(&runner, &json!({"transport": "websocket"})).status, 200);
    first.socket.close(1000);
    first.end();
    runner.wait_for_sessions(1);
    let mut third = Client::connect(runner.addr, "/ws-client");
    assert_eq!(third.ask("1", &json!(1))["data"]["d"], 1);
}

/// The body of `/start` reaches the bot by the session's name, once; the parrot greets unless it
/// says not to.
#[test]
fn the_body_of_start_reaches_the_bot_of_the_client() {
    let runner = TestRunner::start(&["--bot", "parrot"]);
    let session = |body: &Value| {
        let reply = post_start(&runner, &json!({"transport": "websocket", "body": body})).json();
        let text = |key: &str| reply[key].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
        assert_eq!(text("wsUrl"), format!("ws://{}/ws-client", runner.addr));
        assert_eq!(reply.get("token"), None);
        text("sessionId")
    };
    let greets = |target: &str| {
        let mut client = Client::connect(runner.addr, target);
        client.tell("client-ready", "1", &json!({"version": "2.1.0"}));
        // A greeting is on its way before the answer to the second question, since it waits for
        // none.
        (0..3).for_each(|n| drop(client.ask(&format!("q{n}"), &json!(n))));
        client.socket.close(1000);
        client.end();
        !client.received.is_empty()
    };
    let silent = session(&json!({"greeting": false}));
    assert!(!greets(&format!("/ws-client?sessionId={silent}")));
    // The session has the name of its start.
    runner.wait_for_log(&format!("[{}]", &silent[..8]));
    assert!(greets(&format!(
        "/ws-client?sessionId={}",
        session(&json!({"greeting": true}))
    )));
    assert!(greets("/ws-client"));
    // A name that no start made is no session; one that was used may be used again after its end,
    // as for WebRTC.
    let unknown = Client::try_connect(runner.addr, "/ws-client?sessionId=unknown", ConnectOptions::default());
    assert_eq!(status(unknown), 404);
}

/// `--ws-auth token`: what `/start` hands out opens one connection, of its own kind, in each of the
/// three places.
#[test]
fn a_token_opens_one_socket() {
    let runner = TestRunner::start_with(&["--bot", "parrot"], &[("PIPECAT_WEBSOCKET_AUTH", "token")]);
    let token = |transport: &str, body: &Value| {
        let reply = post_start(&runner, &json!({"transport": transport, "body": body})).json();
        reply["token"]
            .as_str()
            .unwrap_or_else(|| panic!("no token in {reply}"))
            .to_owned()
    };
    let fresh = || token("websocket", &json!({"greeting": false}));
    let connect = |target: &str, bearer: Option<&str>| {
        let value = bearer.map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = value.iter().map(|value| ("authorization", value.as_str())).collect();
        let options = ConnectOptions {
            headers: &headers,
            ..ConnectOptions::default()
        };
        Client::try_connect(runner.addr, target, options)
    };
    let in_each_place = |token: &str| {
        [
            (format!("/ws-client/{token}"), None),
            (format!("/ws-client?token={token}"), None),
            ("/ws-client".to_owned(), Some(token.to_owned())),
        ]
    };
    for place in 0..3 {
        let token = fresh();
        let (target, bearer) = &in_each_place(&token)[place];
        let mut client = connect(target, bearer.as_deref()).unwrap_or_else(|refused| panic!("{target}: {refused:?}"));
        // The session is the one of `/start`, with its body.
        (0..3).for_each(|n| drop(client.ask(&format!("q{n}"), &json!(n))));
        assert!(client.received.is_empty(), "the body told the parrot not to greet");
        for (target, bearer) in in_each_place(&token) {
            assert_eq!(status(connect(&target, bearer.as_deref())), 403, "used twice: {target}");
        }
    }
    let good = fresh();
    let of_calls = token("telephony_a", &json!({}));
    let mut torn = good.clone();
    torn.pop();
    let flipped = format!(
        "{}{}",
        &good[..good.len() - 1],
        if good.ends_with('0') { '1' } else { '0' }
    );
    for bad in [
        of_calls.as_str(),
        &torn,
        &flipped,
        "",
        "x",
        "..",
        "e30.00",
        &"x".repeat(5_000),
    ] {
        for (target, bearer) in in_each_place(bad) {
            let refused = status(connect(&target, bearer.as_deref()));
            // A path that is a riddle is no path.
            assert!(matches!(refused, 403 | 404), "{target} {bearer:?}: {refused}");
        }
    }
    assert_eq!(status(connect("/ws-client", None)), 403);
    assert_eq!(status(connect(&format!("/ws/{good}"), None)), 403);
    // What was refused on the way was not used up by that.
    assert_eq!(status(connect(&format!("/ws-client/{good}"), None)), 101);
    assert_eq!(status(connect(&format!("/ws/{of_calls}"), None)), 101);
}

/// With a list of origins a page of another one cannot connect, nor one that names none.
#[test]
fn rejects_the_upgrade_from_an_unlisted_origin() {
    let runner = TestRunner::start(&["--bot", "echo", "--allowed-origins", "https://app.example.net"]);
    let connect = |headers: &[(&'static str, &str)]| {
        let options = ConnectOptions {
            headers,
            ..ConnectOptions::default()
        };
        status(Client::try_connect(runner.addr, "/ws-client", options))
    };
    assert_eq!(connect(&[("origin", "https://app.example.net")]), 101);
    assert_eq!(connect(&[("origin", "https://evil.example.net")]), 403);
    assert_eq!(connect(&[]), 403);
}

/// Neither a client that reads nothing nor a socket that says nothing is kept, or costs much until
/// then. Both times run at once: the test takes as long as the longer one.
#[test]
fn closes_connections_that_read_nothing_or_send_nothing() {
    let runner = &echo();
    thread::scope(|scope| {
        scope.spawn(move || {
            let began = Instant::now();
            let mut socket = Socket::connect(runner.addr, "/ws");
            assert_eq!(socket.end(), Some((1008, "unrecognised telephony handshake".into())));
            assert!(
                began.elapsed() >= HANDSHAKE_WITHIN,
                "a provider may take {HANDSHAKE_WITHIN:?}"
            );
        });
        let mut other = Client::connect(runner.addr, "/ws-client");
        assert_echo(&mut other, 400, 16_000);
        let before_kib = runner.peak_kib();
        let deaf = Client::try_connect(
            runner.addr,
            "/ws-client",
            ConnectOptions {
                reads_nothing: true,
                ..ConnectOptions::default()
            },
        );
        let mut deaf = deaf.unwrap_or_else(|refused| panic!("{refused:?}"));
        // More than the system and the session hold between them, and a voice that goes on.
        let long = json!("x".repeat(100_000));
        let began = Instant::now();
        let mut count = 0;
        while !runner.log().contains("session ended: caller stopped reading") {
            assert!(began.elapsed() < PATIENCE, "{}", runner.log());
            if count < 400 {
                deaf.tell("client-message", &format!("m{count}"), &json!({"t": "echo", "d": long}));
                count += 1;
            }
            deaf.say(&[1_000; 320], 16_000);
            thread::sleep(Duration::from_millis(20));
        }
        let grown_kib = runner.peak_kib() - before_kib;
        println!("grown by {grown_kib} KiB");
        assert!(grown_kib < 12 * 1024, "grown by {grown_kib} KiB");
        // Reading clients are served meanwhile.
        assert_echo(&mut other, 400, 16_000);
    });
}

/// Fifty connections that send rubbish, or half of something, do not disturb a talk.
#[test]
fn fifty_silent_connections_do_not_disturb_a_call() {
    let runner = &TestRunner::start(&["--bot", "echo", "--max-sessions", "64"]);
    let mut client = Client::connect(runner.addr, "/ws-client");
    assert_echo(&mut client, 400, 16_000);
    let mut strangers = Vec::new();
    for n in 0..50_usize {
        let noise: Vec<u8> = (0..2_000).map(|i| (i * 7919 + n * 104_729 + i * i) as u8).collect();
        let mut stream = match n % 5 {
            0 => TcpStream::connect(runner.addr).expect("the runner listens"),
            1 => {
                let mut stream = TcpStream::connect(runner.addr).expect("the runner listens");
                let _ = stream.write_all(b"GET /ws-client HTTP/1.1\r\nHost: localhost\r\nUpgrade: webso");
                stream
            }
            2 => bare(runner.addr, "/ws"),
            3 => bare(runner.addr, "/ws-client"),
            _ => {
                // A frame whose length is the largest there is.
                let mut stream = bare(runner.addr, "/ws-client");
                let _ = stream.write_all(b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0");
                stream
            }
        };
        // The runner may have closed in the middle of it.
        if n % 5 != 1 {
            let _ = stream.write_all(&noise);
        }
        strangers.push(stream);
    }
    assert_echo(&mut client, 1_000, 16_000);
    for mut stream in strangers {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
        let _ = stream.read(&mut [0; 256]);
    }
    assert_echo(&mut client, 400, 16_000);
    assert!(!runner.log().contains("panic"), "{}", runner.log());
    runner.wait_for_sessions(1);
}
