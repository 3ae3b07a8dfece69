//! [`Program`]: the bot's end of `media_url`, for a test that is caller and bot at once.
//!
//! In: a condition on the arguments that selects the session; speech and messages. Out: the
//! arguments of the session, and what the runner sends. Each frame is checked against the contract:
//! 16 kHz mono, whole samples, no text messages. The process of the session is a shell that writes
//! its arguments to a file and sleeps; the test sends the media in its place.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_proto::sockets::frames::{self, ProtobufFrame};
use serde_json::{Value, json};

use super::runner::{PATIENCE, TestRunner};
use super::skip;
use super::socket::{ConnectOptions, Socket, SocketEvent, TimedEvent};

/// The rate of the audio that a bot receives, for any rate of the caller.
pub const BOT_RATE_HZ: u32 = 16_000;

/// Writes the arguments to a file named for the process, and sleeps longer than any test.
pub const SLEEPING_COMMAND: &str =
    r#"printf '%s\n' "$RUNNER_ARGUMENTS" > $$.new && mv $$.new $$.arguments && exec sleep 60"#;

/// Like [`SLEEPING_COMMAND`], but takes a second to end, so that its media closes before the
/// process ends.
pub const SLOW_EXIT_COMMAND: &str = r#"printf '%s\n' "$RUNNER_ARGUMENTS" > $$.new && mv $$.new $$.arguments
    trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"#;

/// A started process.
#[derive(Debug)]
pub struct BotProcess {
    /// Its process id, which is also its process group.
    pub process: u32,
    pub arguments: Value,
}

impl BotProcess {
    /// Waits for a process with matching arguments.
    pub fn of(runner: &TestRunner, is_it: impl Fn(&Value) -> bool) -> Self {
        let start = Instant::now();
        loop {
            let found = Self::all(runner).into_iter().find(|started| is_it(&started.arguments));
            if let Some(started) = found {
                return started;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no such process was started; log:\n{}",
                runner.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns all processes that wrote their arguments.
    pub fn all(runner: &TestRunner) -> Vec<Self> {
        let files = fs::read_dir(runner.path(".")).expect("the folder is the test's");
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        names
            .filter_map(|name| {
                let process = name.strip_suffix(".arguments")?.parse().ok()?;
                let text = fs::read_to_string(runner.path(&name)).ok()?;
                Some(Self {
                    process,
                    arguments: serde_json::from_str(&text).expect("arguments are JSON"),
                })
            })
            .collect()
    }

    /// Returns the address and the path of its media.
    pub fn media(&self) -> (SocketAddr, String) {
        let url = self.arguments["media_url"].as_str().expect("a kind with media");
        let rest = url.strip_prefix("ws://").expect("a WebSocket without TLS");
        let (address, path) = rest.split_once('/').expect("a path");
        let address: SocketAddr = address.parse().expect("an address, not a name");
        assert!(address.ip().is_loopback(), "{address}");
        (address, format!("/{path}"))
    }

    /// Connects to its media.
    pub fn connect_media(self) -> Program {
        let (address, path) = self.media();
        let socket = Socket::try_connect(address, &path, ConnectOptions::default());
        Program {
            process: self.process,
            socket: socket.unwrap_or_else(|refused| panic!("{refused:?}")),
            received: Vec::new(),
            messages: Vec::new(),
            close: None,
            gone: false,
        }
    }
}

pub struct Program {
    pub process: u32,
    pub socket: Socket,
    /// Received audio, frame by frame.
    pub received: Vec<Vec<i16>>,
    pub messages: Vec<Value>,
    pub close: Option<(u16, String)>,
    pub gone: bool,
}

impl Program {
    /// Sends a message to the caller or to the runner.
    pub fn tell(&self, message: &Value) {
        self.socket.message(&message.to_string());
    }

    pub fn mark(&self, name: &str) {
        self.tell(&json!({"type": "mark", "name": name}));
    }

    pub fn interrupt(&self) {
        self.socket.binary(frames::interruption());
    }

    /// Sends PCM in frames of 40 ms, like a pipeline.
    pub fn say(&self, pcm: &[i16], rate_hz: u32) {
        for frame in pcm.chunks((rate_hz / 25) as usize) {
            self.socket.audio(frame, rate_hz);
        }
    }

    pub fn samples(&self) -> usize {
        self.received.iter().map(Vec::len).sum()
    }

    /// Waits for a message, which may have arrived already.
    pub fn hear_message(&mut self, wanted: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        self.hear_until(wanted, |program| program.messages.iter().any(&is_it));
        let found = self.messages.iter().find(|message| is_it(message));
        found.cloned().expect("it was just there")
    }

    /// Waits until `done`, and records everything that arrives.
    pub fn hear_until(&mut self, wanted: &str, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(!self.gone, "the media ended with {:?} before {wanted}", self.close);
            let arrived = self.socket.next(wanted);
            self.file(arrived);
        }
    }

    /// Waits for the end, and returns the close of the runner.
    pub fn end(&mut self) -> Option<(u16, String)> {
        self.hear_until("the end of the media", |program| program.gone);
        self.close.clone()
    }

    fn file(&mut self, arrived: TimedEvent) {
        match arrived.event {
            SocketEvent::Text(text) => panic!("media is binary: {text}"),
            SocketEvent::Binary(bytes) => match frames::decode(bytes).expect("a frame") {
                ProtobufFrame::Audio { pcm, rate_hz, channels } => {
                    assert_eq!((rate_hz, channels), (BOT_RATE_HZ, 1));
                    let mut samples = Vec::new();
                    frames::samples(&pcm, channels, &mut samples).expect("whole samples");
                    self.received.push(samples);
                }
                ProtobufFrame::Message(text) => {
                    let message = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
                    self.messages.push(message);
                }
                other => panic!("unexpected frame: {other:?}"),
            },
            SocketEvent::Close(code, reason) => self.close = Some((code, reason)),
            SocketEvent::Gone(_) => self.gone = true,
        }
    }
}

/// Returns whether a process runs; a zombie does not.
fn runs(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !matches!(state, Some('Z' | 'X'))
    })
}

/// Waits until a process has ended.
pub fn wait_for_end(process: u32) {
    wait_until(|| !runs(process), || format!("process {process} still runs"));
}

/// The open descriptors of a process. Only root can count those of the runner, whose `/proc` is
/// closed to its own user.
pub fn descriptors(process: u32) -> Option<usize> {
    match fs::read_dir(format!("/proc/{process}/fd")) {
        Ok(open) => Some(open.count()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            skip::lacks_root("open descriptors", "only root can count those of the runner");
            None
        }
        Err(error) => panic!("process {process} does not run: {error}"),
    }
}

/// Waits until a process has at most this number of open descriptors. It may have fewer, as the
/// number may have been counted while an earlier call still closed.
pub fn wait_for_descriptors(process: u32, most: Option<usize>) {
    if most.is_some() {
        wait_until(
            || descriptors(process) <= most,
            || format!("{:?} descriptors, at most {most:?} wanted", descriptors(process)),
        );
    }
}

/// Waits until a process has no child, not even one that has ended and was not waited for.
pub fn wait_for_no_children(process: u32) {
    let children = || fs::read_to_string(format!("/proc/{process}/task/{process}/children")).expect("it runs");
    wait_until(
        || children().is_empty(),
        || format!("process {process} has children: {}", children()),
    );
}

/// Waits until this is so; `fault` says what is, when it never comes.
pub fn wait_until(done: impl Fn() -> bool, fault: impl Fn() -> String) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{}", fault());
        thread::sleep(Duration::from_millis(10));
    }
}
