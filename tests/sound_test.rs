//! The test of the sound card, as the settings page and the setup page ask for it: scripts in place
//! of a card.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::{self, Reply};
use crate::support::runner::{PATIENCE, TestRunner, folder, wait_for_file};
use crate::support::sound::{RATE_HZ, Speech, tone_share};

const NAME: &str = "edge-runner.toml";
const KEY: &str = "the-first-key-of-all";
/// What the loudspeaker gets: the tone of 0.4 s, and the recording of 3 s.
const PLAYED_BYTES: usize = (RATE_HZ as usize * 2 / 5 + RATE_HZ as usize * 3) * 2;

/// Scripts for a card, and what they leave in their folder.
struct Card {
    folder: PathBuf,
}

impl Card {
    fn new() -> Self {
        let card = Card { folder: folder() };
        let write = |name: &str, sample: &dyn Fn(usize) -> i16| {
            let bytes: Vec<u8> = (0..RATE_HZ as usize).flat_map(|at| sample(at).to_le_bytes()).collect();
            std::fs::write(card.path(name), bytes).expect("the folder is the test's");
        };
        write("tone.raw", &|at| Speech::Tone { hz: 440.0 }.sample(at));
        write("noise.raw", &|at| (at * 7_919 % 61) as i16 - 30);
        let voice = Speech::Voice {
            from_ms: 0,
            to_ms: 60_000,
        };
        write("voice.raw", &|at| voice.sample(at));
        card
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a script, and returns its path. `cd` is the folder of the card.
    fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        let folder = self.folder.display();
        std::fs::write(&path, format!("#!/bin/sh\ncd {folder}\n{text}\n")).expect("the folder is the test's");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("the folder is the test's");
        path.display().to_string()
    }

    /// A microphone that records for a test, which has played the tone, with these commands; before
    /// that it hears the noise of a room.
    fn microphone(&self, tested: &str) -> String {
        self.script(
            "mic",
            &format!("if test -e played; then {tested}; fi; while cat noise.raw; do :; done"),
        )
    }

    /// A loudspeaker that keeps what it gets.
    fn loudspeaker(&self) -> String {
        self.script("speaker", "cat >> heard.raw; touch played")
    }

    fn received(&self) -> Vec<i16> {
        let bytes = std::fs::read(self.path("heard.raw")).unwrap_or_default();
        let pairs = bytes.chunks_exact(2);
        pairs.map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }
}

/// Starts a runner with a settings page, whose sound card is a caller.
fn start(input: &str, output: &str) -> TestRunner {
    let text = format!(
        "api-key = '{KEY}'\nlocal = true\nlocal-start = 'speech'\nlocal-in = '{input}'\nlocal-out = '{output}'\n\
         bot = 'echo'\n"
    );
    TestRunner::start_among(&[(NAME, &text)], &["--config", NAME, "--settings", "page"], &[])
}

/// The head of a request as the page of the runner sends it, or that of a board.
fn head(addr: SocketAddr) -> [String; 3] {
    [
        format!("Origin: http://{addr}"),
        format!("Authorization: Bearer {KEY}"),
        "Content-Type: application/json".to_owned(),
    ]
}

fn ask(addr: SocketAddr, path: &str) -> Reply {
    let head = head(addr);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    http::request(addr, "POST", path, &head, b"{}").expect("an answer")
}

/// Asks for a test, and does not wait for its answer.
fn begin(addr: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    let head = head(addr).join("\r\n");
    let request = format!("POST {path} HTTP/1.1\r\nHost: {addr}\r\n{head}\r\nContent-Length: 2\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

fn report(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    reply.json()
}

/// Waits until a file has a process id, and returns it.
fn process(file: &Path) -> String {
    let began = Instant::now();
    loop {
        let text = wait_for_file(file);
        if text.ends_with('\n') {
            return text.trim().to_owned();
        }
        assert!(began.elapsed() < PATIENCE, "no process in {}", file.display());
    }
}

fn lives(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn wait_for_end(id: &str) {
    let began = Instant::now();
    while lives(id) {
        assert!(began.elapsed() < PATIENCE, "process {id} lives on");
        thread::sleep(Duration::from_millis(10));
    }
}

const PATH: &str = "/settings/sound-test";

/// Between sessions the card is lent; in a session it is not.
#[test]
fn the_card_is_tested_between_calls() {
    let card = Card::new();
    let tested = "touch tested; while cat tone.raw; do :; done";
    let mic = card.microphone(&format!(
        "if test -e tested; then while cat noise.raw voice.raw; do :; done; fi; {tested}"
    ));
    let runner = start(&mic, &card.loudspeaker());
    let settings = http::request(runner.addr, "GET", "/settings", &[&head(runner.addr)[1]], b"").expect("an answer");
    assert_eq!(settings.json()["local"], true);
    let found = report(&ask(runner.addr, PATH));
    assert_eq!(
        (&found["state"], &found["peak_dbfs"]),
        (&json!("ok"), &json!(-12.2)),
        "{found}"
    );
    let text = found["text"].as_str().expect("a sentence");
    assert!(
        text.contains("The microphone works") && text.contains("-12.2 dBFS"),
        "{text}"
    );
    // What was recorded was played behind the tone, before a session could play anything.
    let received = card.received();
    let end = PLAYED_BYTES / 2;
    assert!(received.len() >= end, "{} samples", received.len());
    assert!(tone_share(&received[..RATE_HZ as usize / 4], 660.0) > 0.9);
    assert!(tone_share(&received[end - RATE_HZ as usize * 2..end], 440.0) > 0.9);
    // From now on the microphone hears speech, so a session begins.
    runner.wait_for_log("session started: local");
    let refused = ask(runner.addr, PATH);
    assert_eq!(refused.status, 409);
    assert!(
        refused.text().contains("the sound card is in a call: end the call"),
        "{}",
        refused.text()
    );
}

/// Silence and failures are found by a runner whose card never worked, too.
#[test]
fn what_does_not_work_is_said() {
    let card = Card::new();
    let busy = card.script(
        "busy",
        "echo 'arecord: main:831: audio open error: Device or resource busy' >&2; exit 1",
    );
    let missing = card.script(
        "missing",
        "echo 'aplay: main:831: audio open error: No such file or directory' >&2; exit 1",
    );
    let muted = card.script("muted", "exec cat /dev/zero");
    for (input, output, state, words) in [
        (&*muted, &*card.loudspeaker(), "silent", "The microphone sends silence"),
        (
            &busy,
            &card.loudspeaker(),
            "failed",
            "Another program uses the microphone",
        ),
        (&muted, &missing, "failed", "There is no such loudspeaker"),
        (
            "/nowhere/recorder",
            &card.loudspeaker(),
            "failed",
            "there is no program",
        ),
    ] {
        let runner = start(input, output);
        let found = report(&ask(runner.addr, PATH));
        assert_eq!(
            (&found["state"], &found["peak_dbfs"]),
            (&json!(state), &Value::Null),
            "{found}"
        );
        assert!(
            found["text"].as_str().is_some_and(|text| text.contains(words)),
            "{found}"
        );
    }
}

/// One at a time; the commands end when the page goes away, and with the runner.
#[test]
fn a_test_leaves_no_process_behind() {
    let card = Card::new();
    let mic = card.microphone("trap '' TERM HUP; echo $$ > mic.pid; while :; do sleep 1; done");
    let mut runner = start(&mic, &card.loudspeaker());
    let (pid, played) = (card.path("mic.pid"), card.path("played"));
    let page = begin(runner.addr, PATH);
    let first = process(&pid);
    let refused = ask(runner.addr, PATH);
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("runs already"), "{}", refused.text());
    // The microphone between sessions is none of a test.
    for file in [&pid, &played] {
        std::fs::remove_file(file).expect("the folder is the test's");
    }
    drop(page);
    wait_for_end(&first);
    let page = begin_once_free(runner.addr, &pid);
    let second = process(&pid);
    assert!(lives(&second) && first != second);
    runner.signal("TERM");
    assert!(runner.wait().success(), "{}", runner.log());
    wait_for_end(&second);
    drop(page);
}

/// Begins a test as soon as the last one has ended.
fn begin_once_free(addr: SocketAddr, pid: &Path) -> TcpStream {
    let began = Instant::now();
    loop {
        let page = begin(addr, PATH);
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(2) {
            if pid.exists() {
                return page;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(began.elapsed() < PATIENCE, "no test begins");
    }
}

/// The key, the page of the runner alone, and a sound card that is a caller.
#[test]
fn only_a_runner_with_a_sound_card_tests_one() {
    let text = format!("api-key = '{KEY}'\nbot = 'echo'\n");
    let runner = TestRunner::start_among(&[(NAME, &text)], &["--config", NAME, "--settings", "page"], &[]);
    let [own, key, json] = head(runner.addr);
    let status = |headers: &[&str]| {
        let reply = http::request(runner.addr, "POST", PATH, headers, b"{}");
        reply.expect("an answer").status
    };
    assert_eq!(status(&[&own, &json]), 401);
    assert_eq!(status(&["Origin: https://evil.example", &key, &json]), 403);
    let none = ask(runner.addr, PATH);
    assert_eq!(none.status, 404);
    assert!(none.text().contains("--local"), "{}", none.text());
}

/// A setup page whose programs of ALSA are scripts.
fn setup(card: &Card) -> TestRunner {
    let programs = format!(
        "{}:{}",
        card.folder.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let spool = folder();
    let spool = spool.to_str().expect("a plain path");
    let options = ["setup", "--host", "127.0.0.1", "--port", "0", "--spool", spool, "-v"];
    TestRunner::start_bare(&options, &[("PATH", &programs)])
}

/// A board that is set up uses the card that it finds, by ALSA's programs.
#[test]
fn the_setup_page_tests_the_card() {
    let card = Card::new();
    card.script(
        "arecord",
        "echo \"arecord $*\" >> used; exec cat tone.raw tone.raw tone.raw",
    );
    card.script("aplay", "echo \"aplay $*\" >> used; cat >> heard.raw");
    let runner = setup(&card);
    assert_eq!(http::get(runner.addr, "/state").json()["sound"], true);
    let page = http::get(runner.addr, "/").text();
    assert!(page.contains(r#"<section id="sound""#), "the page shows it");
    let found = report(&ask(runner.addr, "/sound-test"));
    assert_eq!(found["state"], "ok", "{found}");
    assert!(
        found["text"]
            .as_str()
            .is_some_and(|text| text.contains("Tested: microphone ")),
        "{found}"
    );
    assert_eq!(card.received().len() * 2, PLAYED_BYTES);
    let used = std::fs::read_to_string(card.path("used")).expect("they ran");
    let programs: Vec<&str> = used.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(programs, ["aplay", "arecord", "aplay"]);
    let foreign = ["Origin: http://evil.example", "Content-Type: application/json"];
    let refused = http::request(runner.addr, "POST", "/sound-test", &foreign, b"{}").expect("an answer");
    assert_eq!(refused.status, 403);
}

/// The command of a test ends with the setup page. On Linux a board without ALSA's programs has its
/// card tested too; without a card it says so.
#[test]
fn the_end_of_the_setup_page_leaves_no_command() {
    let card = Card::new();
    card.script(
        "arecord",
        "trap '' TERM HUP; echo $$ > mic.pid; while :; do sleep 1; done",
    );
    card.script("aplay", "cat > /dev/null");
    let mut runner = setup(&card);
    let page = begin(runner.addr, "/sound-test");
    let mic = process(&card.path("mic.pid"));
    assert_eq!(ask(runner.addr, "/sound-test").status, 409);
    runner.signal("TERM");
    assert!(runner.wait().success(), "{}", runner.log());
    wait_for_end(&mic);
    drop(page);

    let without = TestRunner::start_bare(
        &["setup", "--host", "127.0.0.1", "--port", "0", "--spool", "."],
        &[("PATH", "/nowhere")],
    );
    assert_eq!(
        http::get(without.addr, "/state").json()["sound"],
        cfg!(target_os = "linux")
    );
    // A card of the machine that runs this test would be played on.
    if cfg!(target_os = "linux") && !Path::new("/proc/asound/card0").exists() {
        let found = report(&ask(without.addr, "/sound-test"));
        assert_eq!(found["state"], "failed", "{found}");
        let text = found["text"].as_str().unwrap_or_default();
        assert!(text.starts_with("There is no such microphone"), "{found}");
    }
}
