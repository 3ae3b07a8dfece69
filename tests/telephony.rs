//! Telephone calls of four providers, played against the real binary: what it takes, what it says
//! back, how calls end, and who is told of it. The providers are those of `support::provider`,
//! which know no mercy with what they are sent.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http;
use crate::support::provider::{ALL, Caller, Codec, Line, Provider, each_at_once};
use crate::support::runner::{PATIENCE, TestRunner};
use crate::support::socket::{ConnectOptions, Socket, bare};
use crate::support::sound::{FRAME, RATE_HZ, Speech};
use crate::support::sweep::Sweep;
use edge_runner_proto::limits::{HANDSHAKE_MESSAGES_MAX, MESSAGE_BYTES_MAX, TELEPHONY_UNREADABLE_MAX};

const UNRECOGNISED: &str = "unrecognised telephony handshake";

fn echo() -> TestRunner {
    TestRunner::start(&["--bot", "echo"])
}

/// What two codings with G.711 leave of a voice, with 3 dB to spare; and filters alone.
fn clear_db(provider: Provider, line: Line) -> f64 {
    match (line.codec, provider.back(line).codec) {
        (Codec::L16, Codec::L16) => 50.0,
        _ => 30.0,
    }
}

/// Says a sweep in one go, and fails unless it comes back whole and clear.
fn assert_echo(caller: &mut Caller, ms: u32) {
    let (sweep, before) = (Sweep { ms }, caller.received.len());
    caller.say(&sweep.pcm(caller.line.rate_hz));
    assert_received(caller, sweep, before);
}

/// Waits for a sweep behind so many samples, and fails unless it is whole and clear.
fn assert_received(caller: &mut Caller, sweep: Sweep, before: usize) {
    let rate_hz = caller.back().rate_hz;
    let samples = (sweep.received_ms() * rate_hz / 1_000) as usize;
    caller.hear_until("the echo", |caller| caller.received.len() - before >= samples);
    let clear_db = clear_db(caller.provider, caller.line);
    sweep.assert_received(caller.received_from(before), rate_hz, clear_db);
}

/// The share of the energy that lies at `hz`.
fn share(pcm: &[i16], hz: f64, rate_hz: u32) -> f64 {
    let turn = std::f64::consts::TAU * hz / f64::from(rate_hz);
    let part = |wave: fn(f64) -> f64| -> f64 {
        let sum = pcm
            .iter()
            .enumerate()
            .map(|(n, s)| f64::from(*s) * wave(turn * n as f64));
        sum.sum::<f64>().powi(2)
    };
    let energy: f64 = pcm.iter().map(|s| f64::from(*s).powi(2)).sum();
    2.0 * (part(f64::sin) + part(f64::cos)) / (energy * pcm.len() as f64)
}

/// R-049 and the scripts: each recorded call, with all its oddities, is its own provider's, is
/// echoed, and ends at `stop`.
#[test]
fn a_recorded_call_of_each_provider_is_served_as_its_own() {
    let runner = echo();
    for provider in ALL {
        let mut caller = Caller::scripted(runner.addr, provider);
        let (stop, call): (Vec<_>, Vec<_>) = provider.script().partition(|line| line.contains(r#""event":"stop""#));
        for line in call {
            caller.socket.text(line);
        }
        caller.hear_ms(if provider == Provider::Exotel { 200 } else { 80 });
        // Behind that, one of them has a gap.
        let received = share(&caller.received[80..480], 437.0, caller.back().rate_hz);
        assert!(
            received > 0.95,
            "{provider:?}: the caller's tone has {received} of the energy"
        );
        runner.wait_for_log(&format!("session started: {}", provider.name()));
        for line in stop {
            caller.socket.text(line);
        }
        assert_eq!(caller.end(), Some((1000, String::new())), "{provider:?}");
        runner.wait_for_sessions(0);
    }
    runner.wait_for_logs("session ended: caller left", ALL.len());
    let log = runner.log();
    assert_eq!(log.matches("session started: ").count(), ALL.len(), "{log}");
}

/// Every codec and rate that a provider brings: two seconds said at once come back whole, no faster
/// than they are played.
#[test]
fn echoes_audio_in_the_chunks_and_pace_of_each_provider() {
    let runner = &echo();
    thread::scope(|scope| {
        for provider in ALL {
            for line in provider.lines() {
                scope.spawn(move || {
                    println!("{provider:?} {line:?}");
                    let mut caller = Caller::dial_on(runner.addr, provider, *line);
                    assert_echo(&mut caller, 2_000);
                    caller.assert_cut();
                    caller.assert_paced(0.2);
                });
            }
        }
    });
}

/// For any first messages of a provider, the caller's first words are heard.
#[test]
fn no_audio_is_lost_at_the_start_of_a_call() {
    let runner = echo();
    let strange = [
        r#"{"event":"connected"}"#,
        "no JSON",
        r#"["event","start"]"#,
        r#"{"event":"start","start":{}}"#,
    ];
    assert_eq!(strange.len() as u32, HANDSHAKE_MESSAGES_MAX - 1);
    each_at_once(|provider| {
        let line = provider.lines()[0];
        let mut start_first = Caller::connect(runner.addr, "/ws", provider, line);
        start_first.start();
        let mut late = Caller::connect(runner.addr, "/ws", provider, line);
        for message in strange {
            late.socket.text(message);
        }
        late.start();
        let mut turned = Caller::connect(runner.addr, "/ws", provider, line);
        turned.numbers_turned = true;
        turned.greet();
        turned.start();
        for mut caller in [start_first, late, turned] {
            assert_echo(&mut caller, 400);
        }
    });
}

/// R-049: five messages without a handshake close the socket.
#[test]
fn a_socket_without_a_start_is_closed() {
    let runner = echo();
    let unrecognised = [
        ["no JSON"; 5],
        ["{}"; 5],
        [r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#; 5],
        [r#"{"event":"media","media":{"payload":"////"}}"#; 5],
    ];
    for messages in unrecognised {
        let mut socket = Socket::connect(runner.addr, "/ws");
        messages.into_iter().for_each(|message| socket.text(message));
        assert_eq!(socket.end(), Some((1008, UNRECOGNISED.into())));
    }
    let mut socket = Socket::connect(runner.addr, "/ws");
    for _ in 0..HANDSHAKE_MESSAGES_MAX {
        socket.binary(vec![0; 16]);
    }
    assert_eq!(socket.end(), Some((1008, UNRECOGNISED.into())));
    runner.wait_for_sessions(0);
    assert!(!runner.log().contains("session started"), "{}", runner.log());
}

/// Nothing that a provider may add, leave out or garble costs more than itself.
#[test]
fn skips_invalid_messages_during_a_call() {
    let runner = echo();
    let odd: [Value; 12] = [
        json!({}),
        json!({"event": null}),
        json!({"event": 7}),
        json!({"event": "from-the-future", "media": {"payload": "////"}}),
        json!({"event": "media"}),
        json!({"event": "media", "media": null}),
        json!({"event": "media", "media": {"payload": null, "chunk": null}}),
        json!({"event": "media", "media": {"payload": 12}}),
        json!({"event": "dtmf", "dtmf": {"digit": null}}),
        json!({"event": "dtmf"}),
        json!({"event": "mark", "mark": {"name": 1}}),
        json!({"event": "connected", "start": {"streamSid": "x", "callSid": "y"}}),
    ];
    each_at_once(|provider| {
        let mut caller = Caller::dial(runner.addr, provider);
        let sweep = Sweep { ms: 600 };
        let samples = (caller.line.rate_hz * provider.frame_ms() / 1_000) as usize;
        let mut odd = odd.iter().cycle();
        for (n, frame) in sweep.pcm(caller.line.rate_hz).chunks(samples).enumerate() {
            caller.say(frame);
            caller.send(odd.next().expect("they are many"));
            match n % 5 {
                0 => caller.say_payload("no base64!"),
                1 => caller.press("5"),
                2 => caller.press("A"),
                3 => caller.return_mark("an unknown mark"),
                _ => caller.say_payload(""),
            }
        }
        assert_received(&mut caller, sweep, 0);
        caller.assert_cut();
    });
}

/// Silence is sent back as silence, and is no reason to end a call.
#[test]
fn silence_is_echoed_as_silence() {
    let runner = echo();
    for provider in ALL {
        let mut caller = Caller::dial(runner.addr, provider);
        caller.say(&vec![0; caller.line.rate_hz as usize / 2]);
        caller.hear_ms(400);
        // The smallest step of G.711 is 8.
        assert!(
            caller.received.iter().all(|sample| sample.abs() <= 8),
            "{provider:?} hears noise"
        );
        caller.stop();
        assert_eq!(caller.end(), Some((1000, String::new())));
    }
}

/// Carriers that copy a provider's protocol encode audio in other forms of base64: with line breaks
/// as MIME has them, without padding, or in the URL-safe alphabet. All of them are heard.
#[test]
fn audio_in_other_forms_of_base64_is_heard() {
    let runner = echo();
    let lines = |payload: String| {
        let lines = payload.as_bytes().chunks(76).map(String::from_utf8_lossy);
        lines.map(|line| format!("{line}\r\n")).collect()
    };
    let url_safe = |payload: String| payload.replace('+', "-").replace('/', "_").replace('=', "");
    let forms: [&(dyn Fn(String) -> String + Sync); 2] = [&lines, &url_safe];
    each_at_once(|provider| {
        let mut caller = Caller::dial(runner.addr, provider);
        for form in forms {
            let (sweep, before) = (Sweep { ms: 600 }, caller.received.len());
            caller.say_as(&sweep.pcm(caller.line.rate_hz), form);
            assert_received(&mut caller, sweep, before);
        }
    });
    assert!(!runner.log().contains(" WARN "), "{}", runner.log());
}

/// A message that cannot be read costs itself alone; the caller is heard as before.
#[test]
fn a_message_that_cannot_be_read_costs_itself_alone() {
    let runner = echo();
    let messages = [
        "",
        "hello",
        "[1, 2]",
        r#"{"event":"media""#,
        "{}",
        r#"{"event":5}"#,
        r#"{"event":"media","media":{}}"#,
        r#"{"event":"media","media":{"payload":"*** no base64"}}"#,
    ];
    each_at_once(|provider| {
        let mut caller = Caller::dial(runner.addr, provider);
        for message in messages {
            caller.socket.text(message);
        }
        caller.socket.binary(vec![1, 2, 3]);
        assert_echo(&mut caller, 600);
        caller.stop();
        assert_eq!(caller.end(), Some((1000, String::new())), "{provider:?}");
    });
    let warnings = runner.wait_for_logs("a message of the provider was skipped, 1 so far", ALL.len());
    assert!(
        warnings
            .iter()
            .all(|line| line.contains(" WARN ") && line.ends_with("it is no JSON object")),
        "{warnings:#?}"
    );
}

/// A client of another protocol gets a close code, even behind a huge message.
#[test]
fn a_caller_who_breaks_the_protocol_is_closed_with_its_code() {
    let runner = echo();
    let unaffected = &mut Caller::dial(runner.addr, Provider::Plivo);
    let giant = json!({"event": "x", "padding": "x".repeat(MESSAGE_BYTES_MAX)}).to_string();
    type Offence<'a> = (&'a str, &'a (dyn Fn(&Caller) + Sync), u16);
    let offences: [Offence<'_>; 5] = [
        ("binary", &|caller| caller.send_garbage(), 1003),
        (
            "no JSON",
            &|caller| (0..TELEPHONY_UNREADABLE_MAX).for_each(|_| caller.socket.text("hello")),
            1003,
        ),
        ("giant", &|caller| caller.socket.text(giant.clone()), 1009),
        (
            "giant binary",
            &|caller| caller.socket.binary(vec![0; 4 * MESSAGE_BYTES_MAX]),
            1009,
        ),
        (
            "giant start",
            &|caller| caller.socket.text(json!({"event": "start", "x": giant}).to_string()),
            1009,
        ),
    ];
    each_at_once(|provider| {
        for (what, offend, code) in &offences {
            let mut caller = Caller::dial(runner.addr, provider);
            offend(&caller);
            let close = caller.end();
            assert_eq!(close.map(|(code, _)| code), Some(*code), "{provider:?}: {what}");
        }
    });
    let mut unknown = Socket::connect(runner.addr, "/ws");
    unknown.text(giant.clone());
    assert_eq!(unknown.end().map(|(code, _)| code), Some(1009), "before the handshake");
    assert_echo(unaffected, 600);
    unaffected.socket.close(1000);
    runner.wait_for_sessions(0);
}

/// The longest message that is legal is taken.
#[test]
fn accepts_a_message_at_the_size_limit() {
    let runner = echo();
    let mut caller = Caller::dial(runner.addr, Provider::Twilio);
    let frame = json!({"event": "x", "padding": ""}).to_string();
    let full = json!({"event": "x", "padding": "x".repeat(MESSAGE_BYTES_MAX - frame.len())}).to_string();
    assert_eq!(full.len(), MESSAGE_BYTES_MAX);
    caller.socket.text(full);
    assert_echo(&mut caller, 400);
}

/// Frames that no WebSocket client sends: not masked, with reserved bits, with text that is no
/// UTF-8.
#[test]
fn malformed_frames_close_the_call_with_their_code() {
    let runner = echo();
    let frames: [(&[u8], u16); 4] = [
        (b"\x81\x02{}", 1002),
        (b"\xf1\x82\0\0\0\0{}", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\x81\x82\0\0\0\0\xff\xff", 1007),
    ];
    for (frame, code) in frames {
        let mut stream = bare(runner.addr, "/ws");
        stream.write_all(frame).expect("the runner reads");
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .expect("the runner closes in good order");
        assert_eq!(answer.get(..2).map(|head| head[0]), Some(0x88), "{frame:?}: {answer:?}");
        assert_eq!(
            answer.get(2..4),
            Some(&u16::to_be_bytes(code)[..]),
            "{frame:?}: {answer:?}"
        );
    }
    runner.wait_for_sessions(0);
}

/// What cannot be decoded is refused with a word on it, since noise would be played otherwise.
#[test]
fn rejects_an_unsupported_encoding() {
    let runner = echo();
    let starts = [
        json!({"event": "start", "stream_id": "s", "start": {"call_control_id": "c",
            "media_format": {"encoding": "G722", "sample_rate": 8000}}}),
        json!({"event": "start", "stream_id": "s", "start": {"call_control_id": "c",
            "media_format": {"encoding": "OPUS", "sample_rate": "48000"}}}),
        json!({"event": "start", "start": {"streamSid": "s", "callSid": "c",
            "mediaFormat": {"encoding": "audio/opus", "sampleRate": 8000}}}),
        json!({"event": "start", "start": {"streamId": "s", "callId": "c",
            "mediaFormat": {"encoding": "audio/x-l16", "sampleRate": 44100}}}),
        json!({"event": "start", "start": {"stream_sid": "s", "call_sid": "c", "account_sid": "a",
            "media_format": {"encoding": "audio/x-raw", "sample_rate": "11025"}}}),
    ];
    for start in starts {
        let mut socket = Socket::connect(runner.addr, "/ws");
        socket.text(start.to_string());
        assert_eq!(
            socket.end(),
            Some((1003, "unsupported audio encoding".into())),
            "{start}"
        );
    }
    runner.wait_for_log("`g722 at 8000 Hz`");
    runner.wait_for_logs("no session on /ws: unsupported audio encoding", 5);
    assert!(!runner.log().contains("session started"), "{}", runner.log());
}

/// `-t` selects the transport of `/start` and does not restrict callers.
#[test]
fn a_call_of_another_provider_than_the_chosen_one_is_served_with_a_warning() {
    let runner = TestRunner::start(&["--bot", "echo", "-t", "telephony_b", "--proxy", "bots.example.net"]);
    assert_echo(&mut Caller::dial(runner.addr, Provider::Twilio), 400);
    let warning = runner.wait_for_log("-t telnyx");
    assert!(warning.contains("WARN") && warning.contains("twilio"), "{warning}");
    assert_echo(&mut Caller::dial(runner.addr, Provider::Telnyx), 400);
    let log = runner.log();
    // Besides, the start warns of a public runner without an API key.
    let warnings = log.lines().filter(|line| line.contains("WARN"));
    assert_eq!(
        warnings.filter(|line| !line.contains("--api-key-file")).count(),
        1,
        "{log}"
    );
}

/// The parrot's voice is at the provider already when the caller speaks into it: the provider is
/// told to drop it.
#[test]
fn an_interruption_clears_what_the_provider_has_not_played() {
    let runner = TestRunner::start(&["--bot", "parrot"]);
    each_at_once(|provider| {
        let mut caller = Caller::dial(runner.addr, provider);
        caller.hear_until("the greeting", |caller| !caller.chunks.is_empty());
        // Eight seconds, which it repeats. On a slow machine the parrot takes a second without
        // input for the end and repeats less: then retry once.
        let patience = Instant::now() + PATIENCE;
        let spoken = |caller: &Caller| -> usize {
            let since = caller.clears.last().copied().unwrap_or_default();
            caller.chunks[since..].iter().map(|chunk| chunk.samples).sum()
        };
        let enough = caller.back().rate_hz as usize * 3 / 2;
        while spoken(&caller) < enough {
            caller.say(&voice(caller.line, 8_000));
            caller.say(&vec![0; caller.line.rate_hz as usize * 3 / 2]);
            while spoken(&caller) < enough && caller.hear_within(Duration::from_secs(3), "the parrot").is_some() {}
            assert!(Instant::now() < patience, "{provider:?}: the parrot says too little");
        }
        let (clears, chunks) = (caller.clears.len(), caller.chunks.len());
        let spoke = Instant::now();
        caller.say(&voice(caller.line, 1_000));
        caller.hear_until("a clear", |caller| caller.clears.len() > clears);
        assert!(caller.clears[clears] >= chunks, "{provider:?}");
        caller.stop();
        caller.end();
        // Before a second is over, it cannot take the caller to have finished.
        if spoke.elapsed() < Duration::from_secs(1) {
            let after = caller.chunks.len() - caller.clears[clears];
            assert_eq!(after, 0, "{provider:?}: messages of the old speech behind the clear");
        }
    });
}

/// Something like a voice, at the rate of this line.
fn voice(line: Line, ms: u32) -> Vec<i16> {
    let speech = Speech::Voice { from_ms: 0, to_ms: ms };
    let frames = (0..ms / 20).flat_map(|n| speech.frame(n as usize * FRAME));
    frames.step_by((RATE_HZ / line.rate_hz) as usize).collect()
}

/// A webhook's answer names a socket, and with tokens each answer is good for one call.
#[test]
fn the_webhook_names_a_socket_that_opens_once() {
    let options = [
        "--bot",
        "echo",
        "-t",
        "telephony_a",
        "--proxy",
        "bots.example.net",
        "--ws-auth",
        "token",
    ];
    let runner = TestRunner::start(&options);
    let form = b"CallSid=CA01&From=%2B15550001111&To=%2B15550002222";
    let kind = ["Content-Type: application/x-www-form-urlencoded"];
    let reply = http::request(runner.addr, "POST", "/", &kind, form).expect("an answer");
    assert_eq!(reply.status, 200);
    let xml = reply.text();
    let url = xml
        .split_once("wss://bots.example.net")
        .and_then(|(_, rest)| rest.split_once('"'));
    let (target, _) = url.unwrap_or_else(|| panic!("no URL in {xml}"));
    let mut caller = Caller::connect(runner.addr, target, Provider::Twilio, Provider::Twilio.lines()[0]);
    caller.greet();
    caller.start();
    assert_echo(&mut caller, 400);
    for refused in [target, "/ws", "/ws/no-token", "/ws?token=no-token"] {
        let again = Socket::try_connect(runner.addr, refused, ConnectOptions::default());
        assert_eq!(again.err().map(|refused| refused.status), Some(403), "{refused}");
    }
}
