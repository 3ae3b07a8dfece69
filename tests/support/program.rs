//! [`Program`]: the bot's side of `media_url`, for a test that is caller and bot in one.
//!
//! In: the name of the call that it serves; speech and messages. Out: the arguments of its session, and what the runner tells
//! it, each frame held against the contract: 16 kHz mono, whole samples, no text. The process of the session is a shell that
//! leaves its arguments in a file and stays; the test speaks for it.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use edge_runner_proto::sockets::frames::{self, ProtobufFrame};
use serde_json::{Value, json};

use super::runner::{PATIENCE, TestRunner};
use super::socket::{ConnectOptions, Socket, SocketEvent, TimedEvent};

/// What a bot hears, whatever the caller sends.
pub const BOT_RATE_HZ: u32 = 16_000;

/// Leaves the arguments in a file named for the process, and stays for as long as any test may take.
pub const SLEEPING_COMMAND: &str =
    r#"printf '%s\n' "$RUNNER_ARGUMENTS" > $$.new && mv $$.new $$.arguments && exec sleep 60"#;

/// The same, and takes a moment to end, so that its media is closed before it is gone.
pub const SLOW_EXIT_COMMAND: &str = r#"printf '%s\n' "$RUNNER_ARGUMENTS" > $$.new && mv $$.new $$.arguments
    trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done"#;

/// One process, as it was started.
#[derive(Debug)]
pub struct BotProcess {
    /// Its number, which is also its group's.
    pub process: u32,
    pub arguments: Value,
}

impl BotProcess {
    /// Waits for the process that has such arguments.
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

    /// Those whose arguments are there.
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

    /// Where its media is: an address and a path.
    pub fn media(&self) -> (SocketAddr, String) {
        let url = self.arguments["media_url"].as_str().expect("a kind with media");
        let rest = url.strip_prefix("ws://").expect("a WebSocket without TLS");
        let (address, path) = rest.split_once('/').expect("a path");
        let address: SocketAddr = address.parse().expect("an address, not a name");
        assert!(address.ip().is_loopback(), "{address}");
        (address, format!("/{path}"))
    }

    /// Opens its media.
    pub fn connect_media(self) -> Program {
        let (address, path) = self.media();
        let socket = Socket::try_connect(address, &path, ConnectOptions::default());
        Program {
            process: self.process,
            socket: socket.unwrap_or_else(|refused| panic!("{refused:?}")),
            heard: Vec::new(),
            messages: Vec::new(),
            close: None,
            gone: false,
        }
    }
}

pub struct Program {
    pub process: u32,
    pub socket: Socket,
    /// The caller's voice, frame by frame.
    pub heard: Vec<Vec<i16>>,
    pub messages: Vec<Value>,
    pub close: Option<(u16, String)>,
    pub gone: bool,
}

impl Program {
    /// Sends a message to the caller, or to the runner itself.
    pub fn tell(&self, message: &Value) {
        self.socket.message(&message.to_string());
    }

    pub fn mark(&self, name: &str) {
        self.tell(&json!({"type": "mark", "name": name}));
    }

    pub fn interrupt(&self) {
        self.socket.binary(frames::interruption());
    }

    /// Says PCM in frames of 40 ms, as pipelines do.
    pub fn say(&self, pcm: &[i16], rate_hz: u32) {
        for frame in pcm.chunks((rate_hz / 25) as usize) {
            self.socket.audio(frame, rate_hz);
        }
    }

    pub fn samples(&self) -> usize {
        self.heard.iter().map(Vec::len).sum()
    }

    /// Waits for a message, which may have come already.
    pub fn hear_message(&mut self, wanted: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        self.hear_until(wanted, |program| program.messages.iter().any(&is_it));
        let found = self.messages.iter().find(|message| is_it(message));
        found.cloned().expect("it was just there")
    }

    /// Waits until `done`, and files everything that comes until then.
    pub fn hear_until(&mut self, wanted: &str, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(!self.gone, "the media ended with {:?} before {wanted}", self.close);
            let arrived = self.socket.next(wanted);
            self.file(arrived);
        }
    }

    /// Waits for the end, and returns the runner's close.
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
                    self.heard.push(samples);
                }
                ProtobufFrame::Message(text) => {
                    let message = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
                    self.messages.push(message);
                }
                other => panic!("a bot is told nothing of that kind: {other:?}"),
            },
            SocketEvent::Close(code, reason) => self.close = Some((code, reason)),
            SocketEvent::Gone(_) => self.gone = true,
        }
    }
}

/// Tells whether a process runs; a zombie does not.
fn runs(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !matches!(state, Some('Z' | 'X'))
    })
}

/// Waits until a process is gone.
pub fn wait_for_end(process: u32) {
    let start = Instant::now();
    while runs(process) {
        assert!(start.elapsed() < PATIENCE, "process {process} still runs");
        thread::sleep(Duration::from_millis(10));
    }
}
