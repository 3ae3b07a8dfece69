//! `edge-runner call` of the real binary, against runners with the built-in bots and against
//! servers that are none: exit codes, transcripts, recordings and events.

mod quic;
mod rooms;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_proto::kit::{Wav, write_wav};
use serde_json::{Value, json};

use crate::support::http;
use crate::support::ports::free_port;
use crate::support::runner::{PATIENCE, RunOutput, TestRunner, folder, wait_for_file};
use crate::support::signed::API_KEY;
use crate::support::sound::{RATE_HZ, Speech, tone_share};
use crate::support::sweep::Sweep;

const CANARY: &str = "canary-of-a-caller-4716";
/// The head of a recording, before its samples.
const WAV_HEAD_BYTES: usize = 44;

/// Calls and waits for the end; a failed test would wait for the time limit of a call.
fn call(url: &str, options: &[&str]) -> RunOutput {
    TestRunner::run(&[&["call", url, "--timeout", "50"], options].concat())
}

fn base(runner: &TestRunner) -> String {
    format!("http://{}", runner.addr)
}

fn socket(runner: &TestRunner) -> String {
    format!("ws://{}/ws-client", runner.addr)
}

/// Who talks is heard by the bot and hears it. Commands stand for the sound card; they end with the
/// call, which the bot ends here.
#[test]
fn a_caller_talks_through_a_sound_card() {
    let mut runner = TestRunner::start(&["--bot", "echo"]);
    let [tone, heard, record] = ["tone.raw", "heard.raw", "record.wav"].map(|name| runner.path(name));
    let second = RATE_HZ as usize;
    let samples = (0..second).map(|at| Speech::Tone { hz: 440.0 }.sample(at));
    let bytes: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
    fs::write(&tone, bytes).expect("a file");
    let microphone = format!("sh -c 'while cat {}; do :; done'", tone.display());
    let loudspeaker = format!(
        "sh -c 'cat > {}; echo ended >> {}'",
        heard.display(),
        runner.path("ended").display()
    );
    let (url, file) = (socket(&runner), record.to_str().expect("a text").to_owned());
    let calling = thread::spawn(move || {
        let card = ["--local", "--local-in", &microphone, "--local-out", &loudspeaker];
        call(&url, &[&card[..], &["--local-echo", "off", "--record", &file]].concat())
    });
    let played = || {
        let bytes = fs::read(&heard).unwrap_or_default();
        let pairs = bytes.chunks_exact(2);
        pairs
            .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
            .collect::<Vec<_>>()
    };
    let began = Instant::now();
    let sound = loop {
        let pcm = played();
        let loud = pcm.iter().position(|sample| sample.unsigned_abs() > 1_000);
        if let Some(loud) = loud
            && pcm.len() > loud + 2 * second
        {
            break pcm[loud + second..].to_vec();
        }
        assert!(
            began.elapsed() < PATIENCE,
            "no two seconds of sound; log:\n{}",
            runner.log()
        );
        thread::sleep(Duration::from_millis(20));
    };
    assert!(tone_share(&sound, 440.0) > 0.9);
    runner.signal("TERM");
    runner.wait();
    let ended = calling.join().expect("the call ends");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("ended: the bot hung up"), "{ended:?}");
    // Each side on its own: one tone at two delays may cancel itself where both are mixed.
    let recorded = fs::read(&record).expect("a recording");
    let samples = recorded[WAV_HEAD_BYTES..].chunks_exact(2);
    let samples: Vec<i16> = samples.map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
    for side in 0..2 {
        let pcm: Vec<i16> = samples.iter().skip(side).step_by(2).copied().collect();
        assert!(tone_share(&pcm, 440.0) > 0.9, "side {side}");
    }
    wait_for_file(&runner.path("ended"));
}

/// The events of a call with `--json`.
fn events(output: &RunOutput) -> Vec<Value> {
    let lines = output.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn event<'e>(events: &'e [Value], name: &str) -> &'e Value {
    let found = events.iter().find(|event| event["event"] == name);
    found.unwrap_or_else(|| panic!("no event {name} in {events:?}"))
}

/// Makes a call with texts and sound in both directions, and with all that a call keeps and
/// expects; then the caller hangs up. Returns its output.
fn make_full_call(runner: &TestRunner, transport: &str) -> RunOutput {
    let (said, record) = (runner.path("said.wav"), runner.path("record.wav"));
    fs::write(&said, write_wav(&Sweep { ms: 800 }.pcm(24_000), 24_000)).expect("a file");
    let options = [
        "-t",
        transport,
        "--text",
        "Good morning",
        "--expect-text",
        "good morning",
        "--wav",
        said.to_str().expect("a text"),
        "--expect-speech",
        "--expect-latency",
        "2",
        "--record",
        record.to_str().expect("a text"),
        "--json",
    ];
    let ended = call(&base(runner), &options);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let printed = events(&ended);
    for name in [
        "connected",
        "ready",
        "text-sent",
        "bot-text",
        "caller-started",
        "answered",
    ] {
        event(&printed, name);
    }
    assert_eq!(event(&printed, "ended")["reason"], "the caller hung up");
    assert!(
        fs::read(&record).is_ok_and(|wav| wav.len() > 2 * 2 * 16_000),
        "a second at least"
    );
    runner.wait_for_log("session ended: caller left");
    runner.wait_for_sessions(0);
    ended
}

/// Makes three calls at once.
fn make_three_calls(runner: &TestRunner, transport: &str) {
    let options = ["-t", transport, "--calls", "3", "--text", "hi", "--expect-text", "hi"];
    let ended = call(&base(runner), &options);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("calls: 3, answered: 3, failed: 0"), "{ended:?}");
    runner.wait_for_sessions(0);
}

/// Stops a runner during a call: its bot has hung up, before the call was through.
fn stop_during_call(mut runner: TestRunner, transport: &'static str) {
    let (url, log) = (base(&runner), runner.path("events.jsonl"));
    let file = log.to_str().expect("a text").to_owned();
    let calling = thread::spawn(move || call(&url, &["-t", transport, "--silence", "48", "--events", &file]));
    wait_for_event(&log, "connected");
    runner.signal("TERM");
    runner.wait();
    let ended = calling.join().expect("the call ends");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("ended: the bot hung up"), "{ended:?}");
    assert!(ended.stderr.contains("the call ended after 0 of 1 steps"), "{ended:?}");
}

/// The URL and the options of each endpoint of a runner that carries messages.
fn endpoints(runner: &TestRunner) -> [(String, &'static [&'static str]); 6] {
    let base = base(runner);
    [
        (socket(runner), &[]),
        (base.clone(), &["-t", "websocket"]),
        (format!("{base}/"), &[]),
        (base.clone(), &["-t", "webrtc"]),
        (format!("{base}/api/offer"), &[]),
        (format!("{base}/whip"), &[]),
    ]
}

#[test]
fn a_text_is_answered_at_each_endpoint() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    for (url, transport) in endpoints(&runner) {
        let options = [transport, &["--text", "Good morning", "--expect-text", "good morning"]].concat();
        let ended = call(&url, &options);
        assert_eq!(ended.code, Some(0), "{url}: {ended:?}");
        for line in [
            "  connected",
            "  the bot is ready",
            "  caller: Good morning",
            "  bot: Good morning",
        ] {
            assert!(ended.stdout.contains(line), "{url}: {line}: {ended:?}");
        }
    }
    runner.wait_for_sessions(0);
}

/// The recording has what was said on the left and its echo on the right, and the events have the
/// times of both.
#[test]
fn a_sound_and_its_echo_are_recorded() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let folder = folder();
    fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).to_str().expect("a text").to_owned();
    let (said, record, log) = (path("said.wav"), path("record.wav"), path("events.jsonl"));
    let sweep = Sweep { ms: 800 };
    fs::write(&said, write_wav(&sweep.pcm(24_000), 24_000)).expect("a file");
    for (url, transport) in endpoints(&runner) {
        let options = [
            "--wav",
            &said,
            "--expect-speech",
            "--expect-latency",
            "2",
            "--record",
            &record,
            "--events",
            &log,
        ];
        let ended = call(&url, &[&options[..], &["--json"], transport].concat());
        assert_eq!(ended.code, Some(0), "{url}: {ended:?}");

        let printed = events(&ended);
        let written = fs::read_to_string(&log).expect("a file");
        assert_eq!(written, ended.stdout);
        for name in [
            "connected",
            "ready",
            "caller-started",
            "caller-stopped",
            "bot-started",
            "answered",
            "bot-stopped",
        ] {
            event(&printed, name);
        }
        assert_eq!(event(&printed, "ended")["reason"], "the caller hung up");
        let times: Vec<f64> = printed.iter().filter_map(|event| event["time"].as_f64()).collect();
        assert_eq!(times.len(), printed.len());

        let file = fs::read(&record).expect("a file");
        let track = |side: usize| -> Vec<i16> {
            let frames = file[44..].as_chunks::<4>().0.iter();
            frames
                .map(|frame| i16::from_le_bytes([frame[2 * side], frame[2 * side + 1]]))
                .collect()
        };
        let wav = Wav::read(&file).expect("a WAV file");
        assert_eq!((file[22], wav.rate_hz), (2, 16_000));
        let caller = track(0);
        let begin = caller.iter().position(|sample| sample.unsigned_abs() > 300);
        let begin = begin.expect("a sound").saturating_sub(80);
        sweep.assert_received(caller[begin..].chunks(320), 16_000, 20.0);
        // A busy machine may delay parts of the echo, and loses none.
        let bot = track(1);
        let is_loud = |piece: &&[i16]| piece.iter().any(|sample| sample.unsigned_abs() > 300);
        let loud = bot.chunks(320).filter(is_loud).count();
        assert!((36..60).contains(&loud), "{url}: {loud} frames of {}", bot.len() / 320);
    }
    fs::remove_dir_all(&folder).expect("the folder is there");
}

/// The caller acts as each provider: the runner recognises the call and echoes its sound.
#[test]
fn a_telephone_calls_as_each_provider() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let wav = runner.path("said.wav");
    fs::write(&wav, write_wav(&Sweep { ms: 800 }.pcm(16_000), 16_000)).expect("a file");
    let wav = wav.to_str().expect("a text");
    for provider in ["twilio", "telnyx", "plivo", "exotel"] {
        for url in [format!("ws://{}/ws", runner.addr), format!("http://{}", runner.addr)] {
            let ended = call(&url, &["-t", provider, "--keys", "1", "--wav", wav, "--expect-speech"]);
            assert_eq!(ended.code, Some(0), "{provider}: {ended:?}");
            for line in ["caller presses 1", "bot speaks", "bot answers after"] {
                assert!(ended.stdout.contains(line), "{provider}: {line}: {ended:?}");
            }
        }
        runner.wait_for_logs(&format!("session started: {provider}"), 2);
    }
    runner.wait_for_sessions(0);
}

#[test]
fn a_command_speaks_texts_and_its_failure_is_named() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let folder = folder();
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("said.wav");
    fs::write(&file, write_wav(&Sweep { ms: 600 }.pcm(16_000), 16_000)).expect("a file");
    let command = format!("grep -q hello && cat '{}'", file.display());
    let ended = call(
        &socket(&runner),
        &["--say", "hello there", "--say-command", &command, "--expect-speech"],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("caller plays \"hello there\""), "{ended:?}");
    for (command, words) in [
        ("echo no such voice >&2; exit 3", "no such voice"),
        ("echo text", "WAV"),
        ("true", "WAV"),
    ] {
        let ended = call(&socket(&runner), &["--say", "hello", "--say-command", command]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains(words) && ended.stderr.contains("--say"),
            "{ended:?}"
        );
    }
    fs::remove_dir_all(&folder).expect("the folder is there");
}

#[test]
fn an_expectation_that_is_not_met_is_named_with_what_there_was() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let ended = TestRunner::run(&[
        "call",
        &socket(&runner),
        "--text",
        "Good morning",
        "--expect-text",
        "good evening",
        "--expect-speech",
        "--timeout",
        "8",
    ]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for words in [
        "no text matches `good evening`: the bot's texts are \"Good morning\"",
        "no speech of the bot: 0.00 s",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
        assert!(ended.stdout.contains(&format!("FAILED: {words}")), "{words}: {ended:?}");
    }
}

#[test]
fn several_calls_end_with_percentiles() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let options = ["--text", "hi", "--expect-text", "hi", "--calls", "4", "--ramp", "0.2"];
    let ended = call(&socket(&runner), &options);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended
            .stdout
            .contains("calls: 4, answered: 4, failed: 0\nconnected: p50 "),
        "{ended:?}"
    );
    let ended = call(&socket(&runner), &[&options[..], &["--json"]].concat());
    let events = events(&ended);
    let summary = event(&events, "summary");
    assert_eq!(
        (&summary["answered"], &summary["first_sound"]),
        (&4.into(), &Value::Null)
    );
    assert!(
        summary["connected"]["p90"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0),
        "{summary}"
    );
    let calls: Vec<u64> = events
        .iter()
        .filter(|event| event["event"] == "ended")
        .filter_map(|event| event["call"].as_u64())
        .collect();
    assert_eq!(calls.iter().sum::<u64>(), 10, "{calls:?}");
}

#[test]
fn a_key_is_sent_and_a_refusal_is_explained() {
    let runner = TestRunner::start(&["--bot", "echo", "--api-key", CANARY, "--ws-auth", "token"]);
    let base = format!("http://{}", runner.addr);
    let ended = call(
        &base,
        &[
            "-t",
            "websocket",
            "--api-key",
            CANARY,
            "--text",
            "hi",
            "--expect-text",
            "hi",
        ],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (url, options) in [
        (&base, &["-t", "websocket"][..]),
        (&base, &["-t", "websocket", "--api-key", "wrong"]),
        (&socket(&runner), &["--api-key", "wrong"]),
    ] {
        let ended = call(url, options);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("refused with status 40"), "{ended:?}");
        assert!(ended.stderr.contains("does it need `--api-key`?"), "{ended:?}");
    }
    let ended = call(&format!("ws://{}/elsewhere", runner.addr), &["-t", "websocket"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("right path"), "{ended:?}");
}

/// A server that answers each connection with these bytes and closes it.
fn server(answer: &'static str) -> (String, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let serving = thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a caller");
        let mut head = [0; 4096];
        let mut read = 0;
        while !head[..read].windows(4).any(|end| end == b"\r\n\r\n") {
            match peer.read(&mut head[read..]).expect("a request") {
                0 => break,
                more => read += more,
            }
        }
        peer.write_all(answer.as_bytes()).expect("the caller reads");
    });
    (address, serving)
}

#[test]
fn a_server_that_is_no_runner_and_a_closed_port_are_named() {
    let address = format!("127.0.0.1:{}", free_port());
    for (url, transport) in [
        (format!("ws://{address}/ws-client"), "websocket"),
        (format!("http://{address}"), "websocket"),
    ] {
        let ended = call(&url, &["-t", transport]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains("refused") && ended.stderr.contains("is a runner running there?"),
            "{ended:?}"
        );
    }
    for (answer, scheme, words) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
            "ws",
            "refused with status 200: hi",
        ),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "ws", "no valid response"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "http", "not JSON"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "http", "no `wsUrl`"),
    ] {
        let (address, serving) = server(answer);
        let url = match scheme {
            "ws" => format!("ws://{address}/ws-client"),
            _ => format!("http://{address}"),
        };
        let ended = call(&url, &["-t", "websocket"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
        serving.join().expect("the server answered");
    }
}

/// Waits until the file of `--events` has an event.
fn wait_for_event(file: &Path, name: &str) {
    let start = Instant::now();
    while !wait_for_file(file).contains(&format!("\"event\":\"{name}\"")) {
        assert!(start.elapsed() < PATIENCE, "no event {name}");
        thread::yield_now();
    }
}

#[test]
fn a_runner_that_dies_during_a_call_is_a_lost_connection() {
    for transport in ["websocket", "webrtc"] {
        let mut runner = TestRunner::start(&["--bot", "echo"]);
        let url = format!("http://{}", runner.addr);
        let events = runner.path("events.jsonl");
        let log = events.to_str().expect("a text").to_owned();
        let calling = thread::spawn(move || call(&url, &["-t", transport, "--silence", "48", "--events", &log]));
        wait_for_event(&events, "connected");
        runner.signal("KILL");
        runner.wait();
        let ended = calling.join().expect("the call ends");
        assert_eq!(ended.code, Some(1), "{transport}: {ended:?}");
        assert!(
            ended.stderr.contains("the connection was lost"),
            "{transport}: {ended:?}"
        );
    }
}

/// A stopped runner closes its calls in good order, which the caller takes for a bot that hung up.
#[test]
fn a_bot_that_hangs_up_early_leaves_steps_undone() {
    let mut runner = TestRunner::start(&["--bot", "echo"]);
    let url = socket(&runner);
    let calling = thread::spawn(move || call(&url, &["--silence", "40", "--text", "never"]));
    runner.wait_for_sessions(1);
    runner.signal("TERM");
    runner.wait();
    let ended = calling.join().expect("the call ends");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the call ended after 0 of 2 steps"), "{ended:?}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let url = "ws://localhost:9/ws-client";
    for (options, words) in [
        (&["--wav", "absent.wav"][..], "--wav absent.wav: No such file"),
        (&["--wav", "/proc/self/status"], "WAV"),
        (&["--events", "/absent/e.jsonl"], "--events /absent/e.jsonl"),
    ] {
        let ended = call(url, options);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
}

const SCENARIO: &str = r#"
[[step]]
name = "hello"
text = "Good morning"
expect-text = "good morning"
expect-silence = 0.2

[[step]]
wav = "said.wav"
expect-speech = true
expect-latency = 5

[[step]]
name = "goodbye"
text = "bye"
expect-text = "farewell"
within = 1

[[step]]
keys = "1"
"#;

/// Each step waits for what it expects; the first that fails ends the call, and the report has a
/// case for each.
#[test]
fn a_scenario_is_played_and_reported() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let path = |name: &str| runner.path(name).to_str().expect("a text").to_owned();
    let (scenario, report) = (path("hotel.toml"), path("report.xml"));
    fs::write(
        runner.path("said.wav"),
        write_wav(&Sweep { ms: 600 }.pcm(16_000), 16_000),
    )
    .expect("a file");
    for (url, transport) in endpoints(&runner) {
        let options = [&["--scenario", &scenario, "--junit", &report], transport].concat();
        fs::write(&scenario, SCENARIO).expect("a file");
        let ended = call(&url, &options);
        assert_eq!(ended.code, Some(1), "{url}: {ended:?}");
        let why = "within 1 s: no text matches `farewell`: the bot's texts are \"bye\"";
        let failure = format!("{scenario}:13: `goodbye`: {why}");
        assert!(ended.stderr.contains(&failure), "{url}: {ended:?}");
        for line in ["passed: hello", "passed: step 2", "ended: a step has failed"] {
            assert!(ended.stdout.contains(line), "{url}: {line}: {ended:?}");
        }
        let xml = fs::read_to_string(&report).expect("a file");
        for part in [
            r#"<testsuite name="hotel" file=""#,
            r#"tests="4" failures="1" errors="0" skipped="1" "#,
            r#"<testcase name="hello" classname="hotel" "#,
            r#"<testcase name="goodbye" classname="hotel" "#,
            "hotel.toml:13: within 1 s: no text matches `farewell`: the bot&apos;s texts are &quot;bye&quot;</failure>",
            "<skipped/>",
        ] {
            assert!(xml.contains(part), "{url}: {part}: {xml}");
        }

        fs::write(&scenario, SCENARIO.replace("farewell", "bye")).expect("a file");
        let ended = call(&url, &options);
        assert_eq!(ended.code, Some(0), "{url}: {ended:?}");
        let xml = fs::read_to_string(&report).expect("a file");
        assert!(xml.contains(r#"tests="4" failures="0" errors="0""#), "{url}: {xml}");
    }
    runner.wait_for_sessions(0);
}

#[test]
fn a_scenario_that_cannot_be_played_has_its_line() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let path = |name: &str| runner.path(name).to_str().expect("a text").to_owned();
    let (scenario, report) = (path("a.toml"), path("report.xml"));
    let base = format!("http://{}", runner.addr);
    for (text, transport, words) in [
        (
            "[[step]]\nexpect-txt = \"a\"",
            "webrtc",
            ":2: a step has no `expect-txt`; did you mean",
        ),
        ("[[step]]\nwav = \"absent.wav\"", "webrtc", ":1: wav "),
        (
            "\n[[step]]\ntext = \"a\"",
            "twilio",
            ":2: a telephone carries sound and keys alone",
        ),
    ] {
        fs::write(&scenario, text).expect("a file");
        let ended = call(&base, &["-t", transport, "--scenario", &scenario]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains(&format!("{scenario}{words}")),
            "{words}: {ended:?}"
        );
    }
    let ended = call(&base, &["--scenario", &path("absent.toml")]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("No such file"),
        "{ended:?}"
    );

    // A call that is not answered is in the report as well.
    fs::write(&scenario, "[[step]]").expect("a file");
    let ended = call(
        &format!("{base}/absent/api/offer"),
        &["--scenario", &scenario, "--junit", &report],
    );
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let xml = fs::read_to_string(&report).expect("a file");
    assert!(
        xml.contains(r#"failures="0" errors="1""#) && xml.contains("<error message="),
        "{xml}"
    );
}

/// The scenario of docs/call.md.
#[test]
fn the_scenario_of_the_documents_passes() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/call.md")).expect("a page");
    let (_, rest) = page.split_once("```toml\n").expect("a scenario");
    let (text, _) = rest.split_once("```").expect("its end");
    let scenario = runner.path("echo.toml");
    fs::write(&scenario, text).expect("a file");
    let ended = call(
        &socket(&runner),
        &["--scenario", scenario.to_str().expect("a text"), "--timeout", "30"],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// The caller is the provider from the webhook on: signed with the secret of the account, it is
/// taken by a runner that verifies calls; without, the refusal says what is missing.
#[test]
fn a_provider_calls_by_its_webhook() {
    const HOST: &str = "bots.example.net";
    const NUMBERS: [&str; 4] = ["--from", "+15550002222", "--to", "+15550001111"];
    for (provider, variables, missing) in [
        (
            "twilio",
            &[("TWILIO_ACCOUNT_SID", "AC1"), ("TWILIO_AUTH_TOKEN", CANARY)][..],
            "TWILIO_AUTH_TOKEN",
        ),
        (
            "plivo",
            &[("PLIVO_AUTH_ID", "MA1"), ("PLIVO_AUTH_TOKEN", CANARY)],
            "PLIVO_AUTH_TOKEN",
        ),
        (
            "telnyx",
            &[("TELNYX_PUBLIC_KEY", "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=")],
            "only Telnyx can sign",
        ),
        ("exotel", &[], ""),
    ] {
        let options = ["--bot", "echo", "-t", provider, "--proxy", HOST, "--api-key", API_KEY];
        let runner = TestRunner::start_with(&options, variables);
        let wav = runner.path("said.wav");
        fs::write(&wav, write_wav(&Sweep { ms: 600 }.pcm(16_000), 16_000)).expect("a file");
        let url = format!("http://{}", runner.addr);
        let options = [
            &["call", &url, "-t", provider, "--proxy", HOST, "--timeout", "50"],
            &NUMBERS[..],
            &["--wav", wav.to_str().expect("a text"), "--expect-speech"],
        ]
        .concat();
        let ended = TestRunner::run_with(&options, variables);
        match provider {
            "telnyx" => assert_eq!(ended.code, Some(2), "{provider}: {ended:?}"),
            _ => {
                assert_eq!(ended.code, Some(0), "{provider}: {ended:?}");
                runner.wait_for_logs(&format!("session started: {provider}"), 1);
                runner.wait_for_sessions(0);
                let record = http::last_call(runner.addr, &[&format!("Authorization: Bearer {API_KEY}")]);
                let numbers = (&record["caller"], &record["callee"]);
                assert_eq!(numbers, (&json!(NUMBERS[1]), &json!(NUMBERS[3])), "{provider}");
            }
        }
        let unsigned = TestRunner::run(&options);
        match provider {
            "exotel" => assert_eq!(unsigned.code, Some(0), "{provider}: {unsigned:?}"),
            _ => {
                assert_eq!(unsigned.code, Some(2), "{provider}: {unsigned:?}");
                assert!(unsigned.stderr.contains(missing), "{provider}: {unsigned:?}");
            }
        }
        runner.wait_for_sessions(0);
    }
}

/// The handshake of `pipecat eval`: texts in both ways, and no sound.
#[test]
fn an_evaluation_is_called() {
    let runner = TestRunner::start(&["--bot", "echo"]);
    for url in [
        format!("http://{}", runner.addr),
        format!("ws://{}/ws?skip_tts=true", runner.addr),
    ] {
        let ended = call(
            &url,
            &["-t", "eval", "--text", "Good morning", "--expect-text", "good morning"],
        );
        assert_eq!(ended.code, Some(0), "{url}: {ended:?}");
        assert!(ended.stdout.contains("the bot is ready"), "{url}: {ended:?}");
    }
    runner.wait_for_logs("(eval)", 2);
    runner.wait_for_sessions(0);
}
