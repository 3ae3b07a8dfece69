//! The sound card as a caller of the real binary: `--local` with commands of the tests in place of
//! a card. A microphone is a shell that writes files; the runner reads it at the speed of sound.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cascade::{ServiceConnection, ServiceServer};
use crate::support::http;
use crate::support::program::{descriptors, wait_for_descriptors, wait_for_no_children};
use crate::support::runner::{PATIENCE, TestRunner, folder, wait_for_file};
use crate::support::sound::{RATE_HZ, Speech, tone_share};

/// Writes sound to a file, and returns its path.
fn sound(name: &str, seconds: f64, sample: impl Fn(usize) -> i16) -> PathBuf {
    let path = folder().join(name);
    let samples = (seconds * f64::from(RATE_HZ)) as usize;
    let bytes: Vec<u8> = (0..samples).flat_map(|at| sample(at).to_le_bytes()).collect();
    std::fs::write(&path, bytes).expect("a file of the test");
    path
}

fn tone(name: &str) -> PathBuf {
    let frame = |at: usize| Speech::Tone { hz: 440.0 }.sample(at);
    sound(name, 1.0, frame)
}

/// The noise of a quiet room.
fn noise(name: &str, seconds: f64) -> PathBuf {
    sound(name, seconds, |at| ((at * 7_919 % 61) as i16) - 30)
}

/// A microphone that writes these files, and the last one for ever.
fn microphone(before: &str, files: &[&Path]) -> String {
    let (last, first) = files.split_last().expect("a file");
    let first: String = first.iter().map(|file| format!("cat {}; ", file.display())).collect();
    format!("sh -c '{before}{first}while cat {}; do :; done'", last.display())
}

/// A loudspeaker that keeps what it gets.
fn loudspeaker(file: &Path) -> String {
    format!("sh -c 'exec cat > {}'", file.display())
}

/// Returns what a loudspeaker got.
fn played(file: &Path) -> Vec<i16> {
    let bytes = std::fs::read(file).unwrap_or_default();
    bytes
        .chunks_exact(2)
        .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
        .collect()
}

/// The built-in bot that repeats what it receives.
const ECHO: [&str; 2] = ["--bot", "echo"];

/// A program that gets PCM.
fn pcm_bot(script: &str) -> [&str; 6] {
    ["--bot-audio", "pcm", "--", "sh", "-c", script]
}

/// Starts a runner whose caller has this sound card, with more options and a bot.
fn start(microphone: &str, loudspeaker: &str, options: &[&str], bot: &[&str]) -> TestRunner {
    let card = ["--local", "--local-in", microphone, "--local-out", loudspeaker];
    TestRunner::start(&[&card[..], options, bot].concat())
}

fn transports(runner: &TestRunner, path: &str, list: &str) -> Vec<serde_json::Value> {
    let reply = http::get(runner.addr, path).json();
    let entries = reply[list].as_array().unwrap_or_else(|| panic!("a list in {reply}"));
    entries.iter().map(|entry| entry["transport"].clone()).collect()
}

/// What is said at the microphone comes back from the loudspeaker, and the call is one like others:
/// in the list of sessions, in the records and in the metrics.
#[test]
fn a_call_of_the_sound_card_hears_its_bot() {
    let (tone, received) = (tone("tone.raw"), folder().join("heard.raw"));
    let (mic, out) = (microphone("", &[&tone]), loudspeaker(&received));
    let runner = start(&mic, &out, &["--local-start", "always", "--local-echo", "off"], &ECHO);
    runner.wait_for_log("session started: local");
    let second = RATE_HZ as usize;
    let start = Instant::now();
    let pcm = loop {
        let pcm = played(&received);
        let loud = pcm.iter().position(|sample| sample.unsigned_abs() > 1_000);
        if loud.is_some_and(|loud| pcm.len() > loud + 2 * second) {
            break pcm;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "no two seconds of sound; log:\n{}",
            runner.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(tone_share(&pcm[pcm.len() - second..], 440.0) > 0.9);
    assert_eq!(transports(&runner, "/sessions", "sessions"), [json!("local")]);
    assert_eq!(transports(&runner, "/calls?transport=local", "calls"), [json!("local")]);
    assert_eq!(http::get(runner.addr, "/status").json()["local"], json!(true));
    let metrics = http::get(runner.addr, "/metrics").text();
    for line in [
        "edge_runner_sessions{transport=\"local\"} 1",
        "edge_runner_local_xruns_total{direction=\"out\"} 0",
        "edge_runner_local_echoes_total 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let started = http::request(runner.addr, "POST", "/start", &[], br#"{"transport":"local"}"#).expect("an answer");
    assert_eq!(
        started.status,
        400,
        "it cannot be started from outside: {}",
        started.text()
    );
}

/// A card that is opened without a command is tried again until it is there; other callers do not
/// notice.
#[test]
#[cfg(target_os = "linux")]
fn a_card_without_a_command_that_is_missing_is_tried_again() {
    let missing = "kernel:CARD=NoSuchCard";
    let (noise, received) = (noise("noise.raw", 1.0), folder().join("never.raw"));
    let (mic, out) = (microphone("", &[&noise]), loudspeaker(&received));
    for (name, input, output) in [("microphone", missing, &*out), ("loudspeaker", &*mic, missing)] {
        let runner = start(input, output, &["--local-start", "always"], &ECHO);
        runner.wait_for_log(&format!(
            "no {name}: `{missing},DEV=0`: No such file or directory (there is no such card: `--local-list` lists them); \
             next attempt in 1 s"
        ));
        assert_eq!(http::get(runner.addr, "/status").json()["local"], json!(true));
    }
}

/// Nothing happens in a quiet room. Speech begins a session, the bot learns its kind, and silence
/// ends it.
#[test]
fn speech_begins_a_session_and_silence_ends_it() {
    let quiet = noise("quiet.raw", 2.0);
    let voice = Speech::Voice {
        from_ms: 0,
        to_ms: 60_000,
    };
    let voice = sound("voice.raw", 1.5, |at| voice.sample(at));
    let mic = microphone("", &[&quiet, &voice, &quiet]);
    let bot = r#"echo "kind $RUNNER_ARGUMENTS" >&2; cat > heard.raw"#;
    let runner = start(
        &mic,
        "sh -c 'exec cat >/dev/null'",
        &["--local-start", "speech", "--local-end", "1"],
        &pcm_bot(bot),
    );
    let arguments = runner.wait_for_log("kind {");
    assert!(arguments.contains(r#""kind":"local""#), "{arguments}");
    let ended = runner.wait_for_log("session ended:");
    assert!(ended.contains("caller left") && ended.contains("0 gaps"), "{ended}");
    assert!(
        runner.log().contains("neither side has spoken for 1 s"),
        "{}",
        runner.log()
    );
    let received = played(&runner.path("heard.raw"));
    let first = received
        .iter()
        .position(|sample| sample.unsigned_abs() > 1_000)
        .expect("speech");
    assert!(
        first > RATE_HZ as usize / 4,
        "the session has what came before, {first}"
    );
    let loud = &received[first..];
    let spoken = loud.len()
        - loud
            .iter()
            .rev()
            .position(|sample| sample.unsigned_abs() > 1_000)
            .expect("speech");
    assert!(
        spoken > RATE_HZ as usize * 5 / 4,
        "no word is cut: {spoken} samples of 1.5 s"
    );
}

/// Answers `describe` as a service for wake words, and waits until it is asked for one.
fn offer_wake_words(connection: &mut ServiceConnection, program: serde_json::Value) -> serde_json::Value {
    connection.expect("describe");
    connection.send("info", &json!({"asr": [], "wake": [program]}), &[]);
    let asked = connection.expect("detect");
    let format = connection.expect("audio-start");
    assert_eq!(format.data, json!({"rate": 16_000, "width": 2, "channels": 1}));
    asked.data["names"].clone()
}

/// Reads a chunk of the microphone, and returns its timestamp and whether it is loud.
fn chunk(connection: &mut ServiceConnection) -> (u64, bool) {
    let chunk = connection.expect("audio-chunk");
    let loud = chunk
        .payload
        .chunks_exact(2)
        .any(|pair| i16::from_le_bytes([pair[0], pair[1]]).unsigned_abs() > 1_000);
    (chunk.data["timestamp"].as_u64().expect("a position"), loud)
}

/// A wake word begins a session, and what is said right after it is not cut, even if the service is
/// late. No audio goes to the service while the session runs; afterwards it listens again.
#[test]
fn a_wake_word_begins_a_session() {
    let service = ServiceServer::start();
    let quiet = noise("quiet.raw", 0.2);
    let voice = Speech::Voice {
        from_ms: 0,
        to_ms: 60_000,
    };
    let voice = sound("voice.raw", 1.5, |at| voice.sample(at));
    let (speak, states, toned) = (
        folder().join("speak"),
        folder().join("states"),
        folder().join("toned.raw"),
    );
    let mic = format!(
        "sh -c 'while ! test -e {speak}; do cat {quiet}; done; cat {voice}; while cat {quiet}; do :; done'",
        speak = speak.display(),
        quiet = quiet.display(),
        voice = voice.display()
    );
    let runner = start(
        &mic,
        &loudspeaker(&toned),
        &[
            "--local-start",
            "wake",
            "--local-wake",
            &service.wyoming_url(),
            "--local-wake-words",
            "okay nabu",
            "--local-end",
            "1",
            "--local-hook",
            &format!("sh -c 'echo $0 >> {}'", states.display()),
        ],
        &pcm_bot("cat > heard.raw"),
    );
    let micro = || json!({"name": "micro", "version": "2.5.0", "models": [{"name": "alexa"}, {"name": "okay_nabu"}]});
    let mut first = service.accept();
    assert_eq!(offer_wake_words(&mut first, micro()), json!(["okay_nabu"]));
    runner.wait_for_log("listening for the wake word at");
    assert!(!runner.log().contains("WARN"), "{}", runner.log());
    let (mut before_voice, is_loud) = chunk(&mut first);
    assert!(!is_loud);
    std::fs::write(&speak, "").expect("a file of the test");
    loop {
        let (position, is_loud) = chunk(&mut first);
        if is_loud {
            break;
        }
        before_voice = position;
    }
    // 320 ms later.
    let newest = (0..5).map(|_| chunk(&mut first).0).last().expect("five chunks");
    assert!(newest >= before_voice + 300, "{before_voice} to {newest}");
    let detection = json!({"name": "okay_nabu", "timestamp": before_voice});
    for _ in 0..3 {
        first.send("detection", &detection, &[]);
    }
    runner.wait_for_log("session started: local");
    first.read_to_end();
    assert!(!runner.log().contains("session ended"), "{}", runner.log());
    let ended = runner.wait_for_log("session ended:");
    assert!(ended.contains("caller left"), "{ended}");
    let received = played(&runner.path("heard.raw"));
    let is_loud = |sample: &i16| sample.unsigned_abs() > 1_000;
    let begin = received.iter().position(is_loud).expect("speech");
    let end = received.iter().rposition(is_loud).expect("speech");
    let ms = |samples: usize| samples * 1_000 / RATE_HZ as usize;
    assert!(
        ms(end - begin) > 1_250,
        "no word is cut: {} ms of 1,500",
        ms(end - begin)
    );
    assert!(
        ms(begin) < 500,
        "the session does not have what came before the word: {} ms",
        ms(begin)
    );
    let tones = played(&toned);
    assert!(
        tones.iter().any(|sample| sample.unsigned_abs() > 1_000),
        "the tones of start and end"
    );
    // One detection is one session.
    let mut second = service.accept();
    assert_eq!(offer_wake_words(&mut second, micro()), json!(["okay_nabu"]));
    chunk(&mut second);
    let sessions = runner.log().matches("session started: local").count();
    assert_eq!(sessions, 1, "{}", runner.log());
    // A state that passes while the hook runs is left out.
    let start = Instant::now();
    loop {
        let states = std::fs::read_to_string(&states).unwrap_or_default();
        let states: Vec<&str> = states.lines().filter(|state| *state != "wake").collect();
        if states == ["listening", "call", "listening"] {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{states:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A microphone that fails in a session is an error of the hook until it works again, and counts.
#[test]
fn a_microphone_that_fails_in_a_session_is_shown_and_counted() {
    let (quiet, states, once) = (noise("quiet.raw", 1.0), folder().join("states"), folder().join("once"));
    let fails_once = format!("mkdir {} && {{ cat {}; exit 1; }}; ", once.display(), quiet.display());
    let mic = microphone(&fails_once, &[&quiet]);
    let hook = format!("sh -c 'echo $0 >> {}'", states.display());
    let options = ["--local-start", "always", "--local-hook", hook.as_str()];
    let runner = start(&mic, "sh -c 'exec cat >/dev/null'", &options, &ECHO);
    runner.wait_for_log("the microphone works again");
    let start = Instant::now();
    loop {
        let states = std::fs::read_to_string(&states).unwrap_or_default();
        if states.ends_with("error\ncall\n") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{states:?}; log:\n{}", runner.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        runner.log().matches("session started: local").count(),
        1,
        "{}",
        runner.log()
    );
    let metrics = http::get(runner.addr, "/metrics").text();
    let none = "edge_runner_local_xruns_total{direction=\"in\"} 0";
    assert!(!metrics.contains(none), "{metrics}");
}

/// A service of another kind, an old one, and one that is gone are each named once.
#[test]
fn a_wrong_wake_service_is_named() {
    let service = ServiceServer::start();
    let mic = microphone("", &[&noise("quiet.raw", 1.0)]);
    let runner = start(
        &mic,
        "sh -c 'exec cat >/dev/null'",
        &["--local-start", "wake", "--local-wake", &service.wyoming_url()],
        &ECHO,
    );
    for _ in 0..2 {
        let mut connection = service.accept();
        connection.expect("describe");
        connection.send("info", &json!({"asr": [{"name": "faster-whisper"}]}), &[]);
        connection.read_to_end();
    }
    let other = format!(
        "no wake word: {}: it is a Wyoming server of another kind; check the port",
        service.addr
    );
    runner.wait_for_log(&other);
    let mut connection = service.accept();
    let asked = offer_wake_words(
        &mut connection,
        json!({"name": "openwakeword", "models": [{"name": "ok_nabu_v0.1"}]}),
    );
    assert_eq!(asked, json!([]));
    let old = runner.wait_for_log("with numpy 2 answers and never detects a word");
    assert!(old.contains("WARN") && old.contains("--local-wake-words"), "{old}");
    drop(connection);
    runner.wait_for_log("its answer ended early; next attempt in 5 s");
    assert_eq!(runner.log().matches(&other).count(), 1, "{}", runner.log());
    runner.wait_for_sessions(0);
}

/// Each failure is explained once, the command is started again, and all others are served.
#[test]
fn commands_that_fail_are_explained_and_started_again() {
    let tone = tone("tone.raw");
    let once = folder().join("once");
    let busy = r#"echo "arecord: main:831: audio open error: Device or resource busy" >&2; exit 1"#;
    let before = format!("test -e {0} || {{ touch {0}; {busy}; }}; ", once.display());
    let before = before.replace('\'', "\"");
    let mic = microphone(&before, &[&tone]);
    let runner = start(&mic, "/nowhere/no-such-player -x", &["--local-start", "always"], &ECHO);
    let busy = runner.wait_for_log("no microphone: `sh` ended (exit status: 1)");
    assert!(
        busy.contains("Device or resource busy (another program has the card open); next attempt in 1 s"),
        "{busy}"
    );
    runner.wait_for_log("the microphone works again");
    let missing = runner.wait_for_log("no loudspeaker:");
    assert!(
        missing.contains("there is no program `/nowhere/no-such-player`, which --local-out names"),
        "{missing}"
    );
    runner.wait_for_sessions(1);
    assert_eq!(http::get(runner.addr, "/status").status, 200);
    assert_eq!(
        runner.log().matches("no loudspeaker:").count(),
        1,
        "once: {}",
        runner.log()
    );
}

/// Commands that take no notice of anything end with the runner, by their process groups.
#[test]
fn the_end_of_the_runner_leaves_no_command() {
    let (tone, mic_id, out_id) = (tone("tone.raw"), folder().join("mic.pid"), folder().join("out.pid"));
    let mic = microphone(
        &format!("trap \"\" TERM HUP; echo $$ > {}; ", mic_id.display()),
        &[&tone],
    );
    let out = format!(
        "sh -c 'trap \"\" TERM HUP PIPE; echo $$ > {}; cat >/dev/null; while :; do sleep 1; done'",
        out_id.display()
    );
    let mut runner = start(&mic, &out, &["--local-start", "always"], &ECHO);
    runner.wait_for_log("session started: local");
    let ids = [mic_id, out_id].map(|file| wait_for_file(&file).trim().to_owned());
    assert!(ids.iter().all(|id| Path::new("/proc").join(id).exists()), "{ids:?}");
    runner.signal("TERM");
    assert!(runner.wait().success(), "{}", runner.log());
    for id in ids {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
}

/// Types at a terminal when it shows a text, and copies all that it shows.
///
/// Its first argument is a list of these pairs of texts, in JSON.
const TERMINAL: &str = r#"
import json, os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
steps = json.loads(sys.argv[1])
seen = ""
while True:
    try:
        text = os.read(fd, 4096).decode()
    except OSError:
        break
    sys.stdout.write(text)
    sys.stdout.flush()
    seen += text
    if steps and steps[0][0] in seen:
        os.write(fd, steps.pop(0)[1].encode())
        seen = ""
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

/// Runs the runner at a terminal, where each text of `steps` is followed by what is typed, and
/// returns what the terminal shows until its end.
fn shown_by_terminal(steps: &Value, arguments: &[&str]) -> String {
    shown_by_terminal_of(steps, arguments, "dumb")
}

/// Does the same with a terminal of this type.
fn shown_by_terminal_of(steps: &Value, arguments: &[&str], kind: &str) -> String {
    let wrapper = ["python3", "-c", TERMINAL, &steps.to_string()];
    let mut runner = TestRunner::start_through(&wrapper, arguments, &[("TERM", kind)]);
    assert!(runner.wait().success());
    runner.last_words().0
}

/// A terminal is the console of the bot: Enter begins a session, what is said is shown, `q` and
/// Ctrl-D end it.
#[test]
fn a_terminal_begins_and_ends_sessions_and_shows_what_is_said() {
    let mic = microphone("", &[&noise("quiet.raw", 1.0)]);
    let steps = json!([
        ["listening on http", "\n"],
        ["bot: Say something", "m\n"],
        ["the microphone is muted", "q\n"],
        ["Enter begins another", "\n"],
        ["bot: Say something", "\u{4}"],
        ["Enter begins another", "\u{3}"],
    ]);
    let shown = shown_by_terminal(
        &steps,
        &[
            "--local",
            "--local-start",
            "key",
            "--local-in",
            &mic,
            "--local-out",
            "sh -c 'exec cat >/dev/null'",
            "--bot",
            "parrot",
        ],
    );
    assert!(shown.contains("Enter begins a session, and `q` ends it"), "{shown}");
    assert_eq!(shown.matches("bot: Say something, then pause").count(), 2, "{shown}");
    let ends = shown
        .lines()
        .filter(|line| line.contains("session ended: caller left") && line.contains("0 gaps"));
    assert_eq!(ends.count(), 2, "{shown}");
}

/// While a session runs, the last row of a terminal shows the levels of both sides and who speaks.
/// Every line erases it first, and so does the end of the session.
#[test]
fn a_terminal_shows_the_levels_of_both_sides() {
    let mic = microphone("", &[&tone("levels.raw")]);
    let steps = json!([["Say something", ""], ["] bot [##", "\u{3}"]]);
    let arguments = [
        "--local",
        "--local-in",
        &mic,
        "--local-out",
        "sh -c 'exec cat >/dev/null'",
        "--bot",
        "parrot",
    ];
    let shown = shown_by_terminal_of(&steps, &arguments, "xterm");
    let rows: Vec<&str> = shown.split('\r').filter(|row| row.starts_with("\x1b[Kyou [")).collect();
    assert!(rows.iter().any(|row| row.contains("you [##")), "the tone: {rows:?}");
    assert!(rows.iter().any(|row| row.contains("] bot [##")), "the bot: {rows:?}");
    // The terminal itself shows Ctrl-C.
    assert!(
        rows.iter()
            .all(|row| row.trim_end_matches("^C").len() == "\x1b[K".len() + 52),
        "{rows:?}"
    );
    assert!(shown.contains("bot: Say something"), "{shown}");
    for line in shown.lines() {
        let visible = line.rsplit("\x1b[K").next().unwrap_or_default();
        assert!(!visible.contains("] bot ["), "a line beside the levels: {line:?}");
    }
    let without = shown_by_terminal(&json!([["Say something", "\u{3}"]]), &arguments);
    assert!(!without.contains("you ["), "{without}");
}

/// Makes a device with keys: a pipe. Returns its path.
fn key_device() -> PathBuf {
    let keys = folder().join("event0");
    let made = std::process::Command::new("mkfifo").arg(&keys).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo of coreutils");
    keys
}

/// Opens both ends of a device with keys, so that neither side waits for the other.
fn plugged(keys: &Path) -> std::fs::File {
    let mut both = std::fs::File::options();
    both.read(true).write(true).open(keys).expect("a pipe")
}

/// Writes a key to a device: a press and its release, in the layout of this machine.
fn press(device: &mut std::fs::File, code: u16) {
    use std::io::Write as _;
    for value in [1_i32, 0] {
        let time = vec![0; 2 * size_of::<usize>()];
        let record = [
            &time[..],
            &1_u16.to_ne_bytes(),
            &code.to_ne_bytes(),
            &value.to_ne_bytes(),
        ]
        .concat();
        device.write_all(&record).expect("a device of the test");
    }
}

/// The keys of a device begin and end a session, mute the microphone for the bot, and change the
/// volume; one that is unplugged and plugged in again works.
#[test]
fn keys_begin_mute_and_end() {
    let (keys, states, tone) = (key_device(), folder().join("states"), tone("tone.raw"));
    let mut device = plugged(&keys);
    let missing = folder().join("nothing");
    let runner = start(
        &microphone("", &[&tone]),
        "sh -c 'exec cat >/dev/null'",
        &[
            "--local-start",
            "key",
            "--local-echo",
            "off",
            "--local-keys",
            &format!("{},{}", keys.display(), missing.display()),
            "--local-hook",
            &format!("sh -c 'echo $0 >> {}'", states.display()),
        ],
        &pcm_bot("cat > heard.raw"),
    );
    runner.wait_for_log("nothing: it does not exist; the names in /dev/input/by-id do not change");
    drop(device);
    runner.wait_for_log("event0: it was unplugged; next attempt in 1 s");
    device = plugged(&keys);
    press(&mut device, 164);
    runner.wait_for_log("event0 are there again");
    runner.wait_for_log("session started: local");
    let received = runner.path("heard.raw");
    let wait_for = |is_there: &dyn Fn(&[i16]) -> bool| {
        let start = Instant::now();
        loop {
            let pcm = played(&received);
            if is_there(&pcm) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{} samples; log:\n{}",
                pcm.len(),
                runner.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(&|pcm| pcm.iter().any(|sample| sample.unsigned_abs() > 1_000));
    press(&mut device, 248);
    runner.wait_for_log("the microphone is muted");
    let quiet = RATE_HZ as usize / 2;
    wait_for(&|pcm| pcm.len() > quiet && pcm[pcm.len() - quiet..].iter().all(|sample| *sample == 0));
    press(&mut device, 113);
    runner.wait_for_log("the microphone is on");
    wait_for(&|pcm| pcm.last().is_some_and(|sample| *sample != 0));
    press(&mut device, 114);
    runner.wait_for_log("the volume is 90 %");
    press(&mut device, 248);
    press(&mut device, 169);
    let ended = runner.wait_for_log("session ended:");
    assert!(ended.contains("caller left"), "{ended}");
    let start = Instant::now();
    while std::fs::read_to_string(&states).unwrap_or_default().lines().last() != Some("muted") {
        assert!(start.elapsed() < PATIENCE, "{:?}", std::fs::read_to_string(&states));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(std::fs::read_to_string(&states).is_ok_and(|states| states.contains("call\n")));
}

/// A board is switched on for years: call after call leaves neither commands nor descriptors.
#[test]
#[cfg(target_os = "linux")]
fn calls_leave_neither_commands_nor_descriptors() {
    let (keys, tone) = (key_device(), tone("tone.raw"));
    let mut device = plugged(&keys);
    let path = keys.display().to_string();
    let runner = start(
        &microphone("", &[&tone]),
        "sh -c 'exec cat >/dev/null'",
        &["--local-start", "key", "--local-keys", &path],
        &ECHO,
    );
    let mut call = |nth| {
        press(&mut device, 164);
        runner.wait_for_logs("session started: local", nth);
        press(&mut device, 164);
        runner.wait_for_logs("session ended:", nth);
        wait_for_no_children(runner.pid());
    };
    call(1);
    let before = descriptors(runner.pid());
    (2..=8).for_each(call);
    wait_for_descriptors(runner.pid(), before);
}

/// Typed lines are what the caller says. There are no commands of a card. A stop word ends the
/// session.
#[test]
fn a_caller_types_in_place_of_speaking() {
    let steps = json!([
        ["bot: Say something", "Good morning\n"],
        ["bot: Good morning", "q\n"],
        ["Enter begins another", "Second call\n"],
        ["bot: Second call", "GOOD bye!\n"],
        ["Enter begins another", "\u{3}"],
    ]);
    let shown = shown_by_terminal(
        &steps,
        &[
            "--local",
            "text",
            "--local-in",
            "/nowhere/mic -",
            "--local-out",
            "/nowhere/speaker -",
            "--bot",
            "parrot",
            "--local-stop-words",
            "stop,good bye",
        ],
    );
    assert!(shown.contains("type what you say, with Enter"), "{shown}");
    assert_eq!(shown.matches("by a word of --local-stop-words").count(), 1, "{shown}");
    let ends = shown.lines().filter(|line| line.contains("session ended: caller left"));
    assert_eq!(ends.count(), 2, "{shown}");
    assert!(!shown.contains("WARN") && !shown.contains("you: "), "{shown}");
    let refused = TestRunner::run(&["--local", "text"]);
    assert!(
        refused.stderr.contains("`--local text` needs a terminal"),
        "{}",
        refused.stderr
    );
}

/// The devices that ALSA's programs list are printed with the words to type, and what is missing is
/// an error. What the kernel of this machine has comes on top.
#[test]
fn the_devices_are_listed() {
    use std::os::unix::fs::PermissionsExt as _;
    let list = |path: &Path| {
        let path = path.to_string_lossy();
        let without = [
            ("PULSE_SERVER", ""),
            ("PIPEWIRE_REMOTE", ""),
            ("XDG_RUNTIME_DIR", "/nowhere"),
        ];
        let variables = [&[("PATH", &*path)][..], &without[..]].concat();
        TestRunner::run_with(&["--local-list"], &variables)
    };
    let programs = folder();
    let bare = list(&programs);
    assert_eq!(bare.code, Some(1), "{}", bare.stderr);
    for program in ["arecord", "aplay"] {
        let missing = format!("`{program}` is not installed; install the package alsa-utils");
        assert!(bare.stderr.contains(&missing), "{}", bare.stderr);
    }
    for program in ["arecord", "aplay"] {
        let file = programs.join(program);
        std::fs::write(&file, "#!/bin/sh\necho default\n").expect("a file of the test");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a file of the test");
    }
    let has_cards = Path::new("/proc/asound/card0").exists();
    let without = list(&programs);
    assert!(
        has_cards || without.stderr.contains("there is no loudspeaker: no sound server runs"),
        "{}",
        without.stderr
    );
    for (program, card) in [("arecord", "Webcam"), ("aplay", "Speakers")] {
        let listed = format!("null\n    Discard\nplughw:CARD={card},DEV=0\n    {card} by USB\n    Converts\n");
        let file = programs.join(program);
        std::fs::write(&file, format!("#!/bin/sh\ntest \"$*\" = -L && echo '{listed}'\n")).expect("a file of the test");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("a file of the test");
    }
    let all = list(&programs);
    assert_eq!(all.code, Some(i32::from(!all.stderr.is_empty())), "{}", all.stderr);
    assert!(
        !all.stderr.contains("alsa-utils") && !all.stderr.contains("there is no"),
        "{}",
        all.stderr
    );
    let (microphones, loudspeakers) = all.stdout.split_once("Loudspeakers:\n").expect("two lists");
    let device = "  --local-in plughw:CARD=Webcam,DEV=0      Webcam by USB\n";
    assert!(microphones.contains(device), "{}", all.stdout);
    let device = "  --local-out plughw:CARD=Speakers,DEV=0   Speakers by USB\n";
    assert!(loudspeakers.contains(device), "{}", all.stdout);
}

/// The options say what they need.
#[test]
fn a_start_by_key_needs_a_terminal() {
    let refused = TestRunner::run(&["--local", "--local-start", "key"]);
    assert!(
        refused.stderr.contains("`--local-start key` needs a terminal"),
        "{}",
        refused.stderr
    );
    let wrong = TestRunner::run(&["--local", "--local-start", "voice"]);
    assert!(
        wrong.stderr.contains("`always`, `speech`, `key` or `wake`"),
        "{}",
        wrong.stderr
    );
    assert_eq!(wrong.code, Some(2));
    let wrong = TestRunner::run(&["--local", "--local-wake", "nas"]);
    assert!(wrong.stderr.contains("tcp://HOST:10400"), "{}", wrong.stderr);
    assert_eq!(wrong.code, Some(2));
}
