//! Tests of real processes: shell scripts as bots, their groups, exit statuses and signals.
//!
//! The test itself connects to `media_url` in the script's place. Tests wait for conditions, such
//! as a file or the end of a process; timeouts only end a test that would hang.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::Duration;

use edge_runner_http::common::random;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;
use crate::bot::media::{Event, LeaveReason, TransportSide, pair};
use crate::bot::{Kind, ShutdownTrigger, WebRtcArguments, WebRtcConnection};
use crate::config::{Config, PythonBot};
use crate::limits::{AUDIO_IN_FRAMES_MAX, PROCESS_ARGUMENTS_BYTES_MAX};
use crate::proto::sockets::frames;

const PATIENCE: Duration = Duration::from_secs(60);

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it happens in time")
}

/// A temporary directory, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let name = format!("edge-runner-{:016x}", u64::from_be_bytes(random()));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Waits until a script has written a whole line to the file, and returns it.
    pub async fn line(&self, name: &str) -> String {
        within(async {
            loop {
                match fs::read_to_string(self.path(name)) {
                    Ok(text) if text.ends_with('\n') => return text.trim_end().to_owned(),
                    _ => sleep(Duration::from_millis(5)).await,
                }
            }
        })
        .await
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One session with a script as its bot.
pub struct Rig {
    pub working_dir: Folder,
    pub transport_side: TransportSide,
    pub stop: ShutdownTrigger,
    pub bot: JoinHandle<Result<(), BotError>>,
}

impl Rig {
    /// Runs a script with its own directory in `$0`.
    pub fn new(script: &str) -> Rig {
        Rig::with(script, json!({}), BotAudio::Protobuf)
    }

    fn with_body(script: &str, body: Value) -> Rig {
        Rig::with(script, body, BotAudio::Protobuf)
    }

    pub fn with(script: &str, body: Value, audio: BotAudio) -> Rig {
        let working_dir = Folder::new();
        let command = [
            "/bin/sh".into(),
            "-c".into(),
            script.into(),
            working_dir.0.clone().into(),
        ];
        let spec = ProgramSpec {
            audio,
            ..spec(&command)
        };
        Rig::start(working_dir, spec, body)
    }

    fn start(working_dir: Folder, spec: ProgramSpec, body: Value) -> Rig {
        let (transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
        let connection = WebRtcConnection::new("pc-1".into(), false, true);
        let kind = Kind::WebRtc(WebRtcArguments::new(connection, slot));
        let mut args = RunnerArguments::new("test".into(), body, Arc::new(Config::default()), kind);
        let (stop, shutdown) = Shutdown::channel();
        args.shutdown = shutdown;
        let bot = tokio::spawn(bot(spec, None, None).0(args));
        Rig {
            working_dir,
            transport_side,
            stop,
            bot,
        }
    }

    /// Waits until the script has written its arguments to `$0/arguments`.
    async fn arguments(&self) -> Value {
        serde_json::from_str(&self.working_dir.line("arguments").await).expect("JSON")
    }

    async fn connect(&self) -> WebSocketStream<TcpStream> {
        let arguments = self.arguments().await;
        let url = arguments["media_url"].as_str().expect("a URL");
        let address = url.trim_start_matches("ws://").split('/').next().expect("an address");
        let stream = TcpStream::connect(address).await.expect("the listener is open");
        client_async(url, stream).await.expect("the right path").0
    }

    /// Waits for the end of the bot and returns its error as text.
    pub async fn end(&mut self) -> Result<(), String> {
        let result = within(&mut self.bot).await.expect("no panic");
        result.map_err(|error| error.to_string())
    }
}

fn spec(command: &[OsString]) -> ProgramSpec {
    ProgramSpec {
        command: command.to_vec(),
        withheld: Vec::new(),
        audio: BotAudio::Protobuf,
        input: None,
        working_dir: None,
        sandbox: None,
        memory_kib: None,
        environment: Vec::new(),
    }
}

/// Returns whether a process runs. A zombie does not.
fn is_running(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"));
    stat.is_ok_and(|stat| {
        !matches!(
            stat[stat.rfind(')').expect("a name") + 2..].chars().next(),
            Some('Z' | 'X')
        )
    })
}

/// Waits until a process is reaped.
async fn reaped(id: &str) {
    within(async {
        while PathBuf::from(format!("/proc/{id}")).exists() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn stopped(id: &str) {
    within(async {
        while is_running(id) {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

const TELL: &str = r#"printf '%s\n' "$RUNNER_ARGUMENTS" > $0/arguments; "#;

#[tokio::test]
async fn the_program_finds_its_arguments() {
    let script = format!("{TELL} echo $ENV > $0/env; cat > $0/stdin; echo done > $0/done");
    let mut rig = Rig::with_body(&script, json!({"a": "\u{e4}\n'\"$HOME"}));
    let arguments = rig.arguments().await;
    let url = arguments["media_url"].as_str().expect("a URL").to_owned();
    assert_eq!(
        arguments,
        json!({
            "kind": "webrtc", "session_id": "test", "body": {"a": "\u{e4}\n'\"$HOME"}, "handle_sigint": false,
            "handle_sigterm": true, "idle_timeout": 300, "webrtc_connection": {"pc_id": "pc-1"}, "media_url": url,
        })
    );
    assert_eq!(rig.working_dir.line("env").await, "local");
    assert_eq!(rig.working_dir.line("done").await, "done");
    assert_eq!(
        fs::read(rig.working_dir.path("stdin")).expect("written"),
        b"",
        "stdin is empty"
    );
    assert_eq!(rig.end().await, Ok(()));
}

/// Without media, a program runs without a `media_url` until it exits.
#[tokio::test]
async fn a_session_without_media_lasts_as_long_as_its_program() {
    let working_dir = Folder::new();
    let script = "case $RUNNER_ARGUMENTS in *media_url*) exit 9;; esac; exit 4";
    let command = [
        "/bin/sh".into(),
        "-c".into(),
        script.into(),
        working_dir.0.clone().into(),
    ];
    let args = RunnerArguments::new("test".into(), json!({}), Arc::new(Config::default()), Kind::Base);
    let failed = within(bot(spec(&command), None, None).0(args))
        .await
        .expect_err("it exits with 4");
    assert_eq!(failed.to_string(), "exit status: 4");
}

/// Returns a result without the reason that follows the exit status.
fn exit_of(ended: Result<(), String>) -> Result<(), String> {
    ended.map_err(|reported| {
        reported
            .split(", before it opened media_url")
            .next()
            .unwrap_or_default()
            .to_owned()
    })
}

/// D-33: the exit status of a program is the result of its session.
#[tokio::test]
async fn the_exit_status_is_the_result_of_the_session() {
    for (script, reported) in [
        ("exit 0", Ok(())),
        ("exit 3", Err("exit status: 3")),
        ("exit 143", Err("exit status: 143")),
        ("kill -9 $$", Err("signal: 9 (SIGKILL)")),
        ("kill -TERM $$", Err("signal: 15 (SIGTERM)")),
    ] {
        let mut rig = Rig::new(script);
        assert_eq!(exit_of(rig.end().await), reported.map_err(str::to_owned), "{script}");
    }
}

const PYTHON_BOT: &str = r#"
import asyncio, json, os, sys
from edge_runner.media import Media

async def main():
    media = await Media.connect(json.loads(os.environ["RUNNER_ARGUMENTS"])["media_url"], 8000)
    reading = asyncio.create_task(anext(media.receive(), None))
    await media.send_message({"arguments": sys.argv[1:]})
    await media.close()
    await reading

asyncio.run(main())
"#;

/// The package of bots in Python comes from the runner, and the file has its own arguments.
#[tokio::test]
async fn a_bot_in_python_is_run_by_its_file() {
    for (file, reported) in [
        (PYTHON_BOT, Ok(())),
        ("raise SystemExit(3)", Err("exit status: 3".to_owned())),
    ] {
        let working_dir = Folder::new();
        fs::write(working_dir.path("bot.py"), file).expect("a file");
        let config = crate::proto::config! {
            python_bot: Some(PythonBot::default()),
            ..Config::default()
        };
        let command = python::command(&config, &["bot.py".into(), "--name".into()], Some(&working_dir.0));
        let spec = ProgramSpec {
            input: python::package(&config),
            working_dir: Some(working_dir.0.clone()),
            ..spec(&command)
        };
        let mut rig = Rig::start(working_dir, spec, json!({}));
        assert_eq!(exit_of(rig.end().await), reported);
        let message = rig.transport_side.take_message();
        assert_eq!(
            message.as_deref(),
            reported.is_ok().then_some(r#"{"arguments": ["--name"]}"#)
        );
    }
}

/// A program that fails before it connects is told apart from one that fails in a call.
#[tokio::test]
async fn a_failure_before_the_media_says_so() {
    let reported = Rig::new("exit 3").end().await.expect_err("it failed");
    assert!(
        reported.contains("before it opened media_url") && !reported.contains("Pipecat"),
        "{reported}"
    );
    for (command, may_have_runner) in [(["python3", "bot.py"], true), (["node", "bot.js"], false)] {
        assert_eq!(names_python(&command.map(OsString::from)), may_have_runner);
    }
    let reported = Rig::new("echo first >&2; echo 'ImportError: no pipecatt; key sk-aB3dE6gH9jK2mN5pQ' >&2; exit 1")
        .end()
        .await
        .expect_err("it failed");
    assert!(
        reported.contains("media_url (its last lines: ImportError: no pipecatt; key (left out))"),
        "{reported}"
    );
}

/// What a program writes in a call may quote what was said, so its end shows no line of it.
#[test]
fn only_a_failure_before_the_media_shows_a_line() {
    let status = || ExitStatus::from_raw(256);
    let shown = |error: ProgramError| {
        let error: BotError = error.with_last_line(Some("the caller said: yes".into())).into();
        (last_line_of(&error).map(str::to_owned), error.to_string())
    };
    let (line, reported) = shown(ProgramError::Exit(status()));
    assert!(line.is_none() && !reported.contains("caller"), "{reported}");
    let (line, reported) = shown(ProgramError::ExitWithoutMedia {
        may_have_runner: true,
        status: status(),
        said: None,
    });
    assert_eq!(line.as_deref(), Some("the caller said: yes"));
    assert!(reported.contains("the caller said: yes"), "{reported}");
    assert!(reported.contains("`edge-runner bot.py`"), "{reported}");
}

#[tokio::test]
async fn the_error_names_a_program_that_cannot_be_started() {
    let (_transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
    let kind = Kind::WebRtc(WebRtcArguments::new(
        WebRtcConnection::new("pc".into(), false, true),
        slot,
    ));
    let args = RunnerArguments::new("test".into(), json!({}), Arc::new(Config::default()), kind);
    let failed = bot(spec(&["/nonexistent/bot".into()]), None, None).0(args)
        .await
        .expect_err("there is no such file");
    assert!(
        failed
            .to_string()
            .starts_with("the bot `/nonexistent/bot` cannot be run: No such file"),
        "{failed}"
    );
}

/// A body above the cap of the environment is reported as an error about `body`.
#[tokio::test]
async fn a_body_above_the_cap_fails_before_the_start() {
    let mut rig = Rig::with_body("exit 5", "x".repeat(PROCESS_ARGUMENTS_BYTES_MAX).into());
    let failed = rig.end().await.expect_err("it is too long");
    assert!(failed.contains("`body`"), "{failed}");
    // A body at the cap starts the program.
    let short = Rig::with_body(TELL, "".into()).arguments().await;
    let room = PROCESS_ARGUMENTS_BYTES_MAX - short.to_string().len() - 16;
    let mut rig = Rig::with_body(TELL, "x".repeat(room).into());
    assert_eq!(rig.arguments().await["body"].as_str().map(str::len), Some(room));
    assert_eq!(rig.end().await, Ok(()));
}

/// The end of a session sends SIGTERM. Any exit after it is a success, with or without a handler.
#[tokio::test]
async fn the_end_of_the_session_terminates_the_program() {
    for (script, word) in [
        ("echo up > $0/up; exec sleep 1000", None),
        (
            "trap 'echo bye > $0/bye; exit 0' TERM; echo up > $0/up; while :; do sleep 0.01; done",
            Some("bye"),
        ),
        (
            "trap 'echo bye > $0/bye; exit 1' TERM; echo up > $0/up; while :; do sleep 0.01; done",
            Some("bye"),
        ),
    ] {
        let mut rig = Rig::new(script);
        rig.working_dir.line("up").await;
        rig.transport_side.push(Event::Left(LeaveReason::Left));
        assert_eq!(rig.end().await, Ok(()), "{script}");
        if let Some(word) = word {
            assert_eq!(rig.working_dir.line("bye").await, word);
        }
    }
}

/// The same when the runner stops, which comes before the end of the session.
#[tokio::test]
async fn the_stop_of_the_runner_terminates_the_program() {
    let mut rig = Rig::new("echo up > $0/up; exec sleep 1000");
    rig.working_dir.line("up").await;
    rig.stop.set();
    assert_eq!(rig.end().await, Ok(()));
}

/// A crash after SIGTERM is a failure.
#[tokio::test]
async fn a_crash_after_sigterm_is_a_failure() {
    let mut rig = Rig::new("trap 'kill -SEGV $$' TERM; echo up > $0/up; while :; do sleep 0.01; done");
    rig.working_dir.line("up").await;
    drop(std::mem::replace(&mut rig.transport_side, pair(1).0));
    let failed = rig.end().await.expect_err("it crashed");
    assert!(failed.starts_with("signal: 11 (SIGSEGV)"), "{failed}");
}

/// A program that ignores SIGTERM is killed with its children before the runner's own deadline.
#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed() {
    let mut rig = Rig::new(
        "trap '' TERM; (trap '' TERM; while :; do sleep 0.01; done) & echo $! > $0/child; echo $$ > $0/up; \
         while :; do sleep 0.01; done",
    );
    let (own, child) = (rig.working_dir.line("up").await, rig.working_dir.line("child").await);
    rig.stop.set();
    let ended = timeout(BOT_GRACE_AT_SHUTDOWN, &mut rig.bot).await;
    // A busy machine may exceed the deadline; the test requires only the kill.
    let result = match ended {
        Ok(result) => result.expect("no panic").map_err(|error| error.to_string()),
        Err(_) => rig.end().await,
    };
    assert_eq!(result, Err("it did not end in time on SIGTERM and was killed".into()));
    reaped(&own).await;
    stopped(&child).await;
}

/// Signals go to the whole group, and a child gets its grace period even if the script exits at
/// once.
#[tokio::test]
async fn children_get_the_grace_period() {
    let mut rig = Rig::new(
        "(trap 'sleep 0.3; echo saved > $0/saved; exit 0' TERM; echo up > $0/up; while :; do sleep 0.01; done) & wait",
    );
    rig.working_dir.line("up").await;
    rig.transport_side.push(Event::Left(LeaveReason::Left));
    assert_eq!(rig.end().await, Ok(()));
    assert_eq!(
        fs::read_to_string(rig.working_dir.path("saved")).expect("it was there first"),
        "saved\n"
    );
}

/// No process of the group outlives the session, for any exit status.
#[tokio::test]
async fn children_end_with_the_session() {
    for (exit, reported) in [("exit 0", Ok(())), ("exit 3", Err("exit status: 3"))] {
        let mut rig = Rig::new(&format!("sleep 1000 & echo $! > $0/child; {exit}"));
        assert_eq!(exit_of(rig.end().await), reported.map_err(str::to_owned));
        let child = rig.working_dir.line("child").await;
        stopped(&child).await;
    }
}

/// An aborted task kills the whole group and leaves no zombie.
#[tokio::test]
async fn an_aborted_bot_leaves_no_process() {
    let rig = Rig::new("trap '' TERM; sleep 1000 & echo $! > $0/child; echo $$ > $0/up; wait; sleep 1000");
    let (own, child) = (rig.working_dir.line("up").await, rig.working_dir.line("child").await);
    assert!(is_running(&own) && is_running(&child));
    rig.bot.abort();
    reaped(&own).await;
    stopped(&child).await;
}

/// Endless output does not delay the exit.
#[tokio::test]
async fn a_flood_of_output_does_not_delay_the_exit() {
    let mut rig = Rig::new("yes 'all work and no play' | head -c 5000000; yes no >&2 & sleep 0.2; exit 6");
    assert!(
        rig.end()
            .await
            .is_err_and(|reported| reported.starts_with("exit status: 6, before it opened media_url"))
    );
}

/// All speech from before an exit with 0 is played, and the bot ends only after that.
#[tokio::test]
async fn speech_before_the_exit_is_played() {
    let mut rig = Rig::new(&format!(
        "{TELL} while [ ! -e $0/go ]; do sleep 0.01; done; echo $$ > $0/gone"
    ));
    let mut program = rig.connect().await;
    let speech: Vec<i16> = (0..72_000).map(|at| at as i16).collect();
    for part in speech.chunks(4_800) {
        let frame = frames::audio(part, 24_000);
        program.send(Message::Binary(frame.into())).await.expect("open");
    }
    program.close(None).await.expect("open");
    while let Some(Ok(_)) = program.next().await {}
    fs::write(rig.working_dir.path("go"), "").expect("a file");
    let own = rig.working_dir.line("gone").await;
    reaped(&own).await;
    assert!(!rig.bot.is_finished(), "most of the speech is still queued");
    let mut received = Vec::new();
    within(async {
        while received.len() < speech.len() {
            rig.transport_side.audio();
            rig.transport_side.take_audio(&mut received, 4_800);
            if received.len() < speech.len() && !rig.transport_side.has_audio() {
                rig.transport_side.notified().await;
            }
        }
    })
    .await;
    assert_eq!(received, speech);
    assert_eq!(rig.end().await, Ok(()));
}

/// A program that closes its media has hung up. It gets a grace period to exit, then SIGTERM.
#[tokio::test]
async fn a_program_that_closes_its_media_has_hung_up() {
    for (script, reported) in [
        ("while [ ! -e $0/go ]; do sleep 0.01; done; exit 0", Ok(())),
        (
            "while [ ! -e $0/go ]; do sleep 0.01; done; exit 7",
            Err("exit status: 7".to_owned()),
        ),
        ("exec sleep 1000", Ok(())),
    ] {
        let mut rig = Rig::new(&format!("{TELL} {script}"));
        let mut program = rig.connect().await;
        program.close(None).await.expect("open");
        while let Some(Ok(_)) = program.next().await {}
        fs::write(rig.working_dir.path("go"), "").expect("a file");
        assert_eq!(rig.end().await, reported, "{script}");
    }
}

/// A program that violates the protocol is ended, and its session's error names the violation.
#[tokio::test]
async fn a_protocol_error_ends_the_program() {
    let mut rig = Rig::new(&format!("{TELL} echo $$ > $0/up; exec sleep 1000"));
    let mut program = rig.connect().await;
    // The fault ends the program, which writes this line after its address.
    let own = rig.working_dir.line("up").await;
    program.send(Message::text("hello")).await.expect("open");
    while let Some(Ok(_)) = program.next().await {}
    let failed = rig.end().await.expect_err("a fault");
    assert!(failed.contains("a text message"), "{failed}");
    reaped(&own).await;
}

/// An interpreter can be run, but not without its script.
#[test]
fn a_script_that_is_missing_is_named_at_the_start() {
    let working_dir = Folder::new();
    fs::write(working_dir.path("bot.sh"), "").expect("a file");
    let checked = |script: &str| {
        let command = ["/bin/sh".into(), script.into(), "secret.sh".into()];
        check_bot(&command, Some(&working_dir.0)).map_err(|error| error.to_string())
    };
    assert_eq!(checked("bot.sh"), Ok(()));
    let refused = checked("bott.sh").expect_err("there is no such file");
    assert!(
        refused.contains("`bott.sh` does not exist in") && !refused.contains("secret"),
        "{refused}"
    );
    assert_eq!(checked("-c"), Ok(()), "no script");
}

/// Writes an executable file.
fn executable(path: &Path, content: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;

    fs::write(path, content).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

/// D-33: the system's error for a script whose interpreter is missing names the script, so the
/// check names the interpreter. Lines of Windows editors are told apart.
#[test]
fn a_script_without_its_interpreter_is_named_at_the_start() {
    let working_dir = Folder::new();
    let script = working_dir.path("bot.py");
    let checked = |content: &[u8]| {
        executable(&script, content);
        let command = ["./bot.py".into(), "--option".into()];
        check_bot(&command, Some(&working_dir.0)).map_err(|error| error.to_string())
    };
    for content in [
        &b"#!/bin/sh\n"[..],
        b"#!/usr/bin/env sh\n",
        b"#!./interpreter -x\n",
        b"no script",
        b"#!/usr/bin/env -i sh\n",
    ] {
        executable(&working_dir.path("interpreter"), b"");
        assert_eq!(checked(content), Ok(()), "{content:?}");
    }
    for (content, words) in [
        (
            &b"#!/usr/bin/pyton\nx"[..],
            "interpreter `/usr/bin/pyton`, which does not exist",
        ),
        (b"#!none\n", "interpreter `none`, which does not exist"),
        (b"#!/etc/passwd\n", "interpreter `/etc/passwd`, which is not executable"),
        (b"#!/usr\n", "interpreter `/usr`, which is not executable"),
        (
            b"#!/usr/bin/env no-such-program-4f1c\n",
            "interpreter `no-such-program-4f1c`, which is not in PATH",
        ),
        (b"#!/bin/sh\r\n", "carriage return"),
        (b"\xef\xbb\xbf#!/bin/sh\n", "byte order mark"),
    ] {
        let refused = checked(content).expect_err("it cannot be run");
        assert!(refused.contains("`./bot.py`") && refused.contains(words), "{refused}");
    }
    executable(&working_dir.path("interpreter"), b"");
    fs::remove_file(working_dir.path("interpreter")).expect("ours");
    assert!(checked(b"#!./interpreter -x\n").is_err());
}

/// What the check cannot know is explained when the first session starts the program, and so is
/// what has changed since.
#[tokio::test]
async fn a_program_that_cannot_be_started_is_explained() {
    let working_dir = Folder::new();
    let program = working_dir.path("bot");
    let started = async |content: Vec<u8>| {
        executable(&program, &content);
        let command = [program.clone().into_os_string()];
        let (_transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
        let kind = Kind::WebRtc(WebRtcArguments::new(
            WebRtcConnection::new("pc-1".into(), false, true),
            slot,
        ));
        let args = RunnerArguments::new("test".into(), json!({}), Arc::new(Config::default()), kind);
        let failed = within(bot(spec(&command), None, None).0(args))
            .await
            .expect_err("it cannot be started");
        failed.to_string()
    };
    let text = started(b"no script".to_vec()).await;
    assert!(text.ends_with("nor a script that begins with `#!`"), "{text}");
    let text = started(b"#!/nonexistent/interpreter\n".to_vec()).await;
    assert!(
        text.contains("`/nonexistent/interpreter`, which does not exist"),
        "{text}"
    );
    let mut foreign = fs::read("/bin/sh").expect("a shell");
    let loader = foreign.windows(4).position(|bytes| bytes == b"/ld-");
    let Some(loader) = loader else {
        return; // It is linked statically.
    };
    foreign[loader + 1..loader + 3].copy_from_slice(b"no");
    let text = started(foreign).await;
    assert!(text.contains("not its dynamic loader"), "{text}");
}

/// D-33: an error names a command that cannot be run, before the first session.
#[test]
fn a_command_is_checked_at_the_start() {
    use std::os::unix::fs::PermissionsExt as _;

    let working_dir = Folder::new();
    let script = working_dir.path("bot.sh");
    fs::write(&script, "#!/bin/sh\n").expect("a file");
    let checked = |command: &std::ffi::OsStr| check(&[command.to_owned(), "--option".into()], None);
    let refused = |command: &std::ffi::OsStr| {
        let words = checked(command).expect_err("it cannot be run").to_string();
        assert!(words.contains(&*command.to_string_lossy()), "{words} names it");
        words
    };
    assert!(refused(script.as_os_str()).contains("chmod +x"));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    assert!(checked(script.as_os_str()).is_ok());
    assert!(refused(working_dir.0.as_os_str()).contains("folder"));
    assert!(refused(working_dir.path("none").as_os_str()).contains("No such file"));
    assert!(checked("sh".as_ref()).is_ok());
    assert!(refused("no-such-program-4f1c".as_ref()).contains("PATH"));
    assert!(refused("Cargo.toml".as_ref()).contains("./Cargo.toml"));
    assert!(check(&[], None).is_err() && check(&["".into()], None).is_err());
}
