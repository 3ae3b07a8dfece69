//! What the runner and a warm process of a bot tell each other, one JSON object a line.
//!
//! In: the lines of a process, which has loaded its bot before a call begins. Out:
//! [`WarmMessage`], the line that gives it a call, the [`Pings`] of one that waits, and the pause
//! before the next start of a process that failed. Names that are not known are ignored, so that
//! either side may add to its messages.
//! "Warm processes" in docs/bots.md is this contract for authors.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

/// Bytes of a line of a process, which may list hundreds of files.
pub const WARM_LINE_BYTES_MAX: usize = 64 * 1024;
/// Files whose changes are noticed.
pub const WARM_FILES_MAX: usize = 256;
/// How long a process that answers pings is silent before it gets one.
pub const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Pings in a row that a process may leave without an answer.
const PINGS_UNANSWERED_MAX: u32 = 2;
/// The longest pause between two starts of a process that fails.
const RESTART_MAX: Duration = Duration::from_secs(60);

/// How a process serves calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WarmMode {
    /// It forks a child for each call.
    Fork,
    /// It takes one call itself.
    Once,
    /// Its bot cannot be loaded before a call.
    None,
}

/// A line of a process.
#[derive(Debug, PartialEq, Eq)]
pub enum WarmMessage {
    /// It is ready.
    Hello {
        mode: WarmMode,
        files: Vec<PathBuf>,
        answers_pings: bool,
    },
    /// It answers a ping.
    Pong,
    /// Its bot could not be loaded.
    Failed(String),
    /// The child of a call runs.
    Started { call: u64, pid: u32 },
    /// The child of a call could not be started.
    Refused { call: u64, error: String },
    /// The child of a call has ended, with the wait status of the system.
    Ended { call: u64, status: i32 },
}

/// Why a line is none of these.
#[derive(Debug, PartialEq, Eq)]
pub struct NoMessage;

impl fmt::Display for NoMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its process sent a line that is no message of this interface (\"Warm processes\" in docs/bots.md)")
    }
}

impl std::error::Error for NoMessage {}

#[derive(Deserialize)]
struct WarmLine {
    hello: Option<u32>,
    mode: Option<WarmMode>,
    #[serde(default)]
    files: Vec<PathBuf>,
    #[serde(default)]
    pings: bool,
    pong: Option<u64>,
    call: Option<u64>,
    pid: Option<u32>,
    exit: Option<u8>,
    signal: Option<u8>,
    error: Option<String>,
}

/// Reads a line of a process.
///
/// # Errors
/// [`NoMessage`] for anything else.
pub fn parse(line: &[u8]) -> Result<WarmMessage, NoMessage> {
    let line: WarmLine = serde_json::from_slice(line).map_err(|_| NoMessage)?;
    let Some(call) = line.call else {
        return match (line.hello, line.mode, line.error) {
            (_, _, Some(error)) => Ok(WarmMessage::Failed(error)),
            (Some(1), Some(mode), None) => Ok(WarmMessage::Hello {
                mode,
                files: line.files.into_iter().take(WARM_FILES_MAX).collect(),
                answers_pings: line.pings,
            }),
            (None, None, None) if line.pong.is_some() => Ok(WarmMessage::Pong),
            _ => Err(NoMessage),
        };
    };
    match (line.pid, line.exit, line.signal, line.error) {
        // Process 1 is the system's, and a group must never be that of the runner.
        (Some(pid @ 2..=0x3FFF_FFFF), None, None, None) => Ok(WarmMessage::Started { call, pid }),
        (None, Some(code), None, None) => Ok(WarmMessage::Ended {
            call,
            status: i32::from(code) << 8,
        }),
        (None, None, Some(signal @ 1..=64), None) => Ok(WarmMessage::Ended {
            call,
            status: i32::from(signal),
        }),
        (None, None, None, Some(error)) => Ok(WarmMessage::Refused { call, error }),
        _ => Err(NoMessage),
    }
}

/// Returns the line that gives a process a call with these arguments, a JSON object.
pub fn call(call: u64, arguments: &str) -> String {
    format!("{{\"call\":{call},\"arguments\":{arguments}}}\n")
}

/// The pings of a process that waits for calls.
#[derive(Debug, Default)]
pub struct Pings {
    sent: u64,
    unanswered: u32,
}

impl Pings {
    /// Returns the next ping, after [`PING_INTERVAL`] without a message; `None` if it hangs.
    pub fn poll_ping(&mut self) -> Option<String> {
        if self.unanswered == PINGS_UNANSWERED_MAX {
            return None;
        }
        self.unanswered += 1;
        self.sent += 1;
        Some(format!("{{\"ping\":{}}}\n", self.sent))
    }

    /// Any message of the process shows that it runs.
    pub fn handle_message(&mut self) {
        self.unanswered = 0;
    }
}

/// Returns the pause before the next start, after this many processes in a row that failed.
pub fn restart_after(failures: u32) -> Duration {
    let seconds = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(seconds).min(RESTART_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_lines_of_a_process() {
        let hello = |mode, files: &[&str]| WarmMessage::Hello {
            mode,
            files: files.iter().map(PathBuf::from).collect(),
            answers_pings: false,
        };
        let pinged = WarmMessage::Hello {
            mode: WarmMode::Fork,
            files: Vec::new(),
            answers_pings: true,
        };
        for (line, expected) in [
            (
                r#"{"hello":1,"mode":"fork","files":["/b/bot.py"],"more":[]}"#,
                hello(WarmMode::Fork, &["/b/bot.py"]),
            ),
            (r#"{"hello":1,"mode":"once"}"#, hello(WarmMode::Once, &[])),
            (r#"{"hello":1,"mode":"none"}"#, hello(WarmMode::None, &[])),
            (r#"{"hello":1,"mode":"fork","pings":true}"#, pinged),
            (r#"{"pong":3}"#, WarmMessage::Pong),
            (r#"{"error":"no module"}"#, WarmMessage::Failed("no module".to_owned())),
            (r#"{"call":7,"pid":4711}"#, WarmMessage::Started { call: 7, pid: 4711 }),
            (
                r#"{"call":7,"exit":3}"#,
                WarmMessage::Ended {
                    call: 7,
                    status: 3 << 8,
                },
            ),
            (r#"{"call":7,"signal":9}"#, WarmMessage::Ended { call: 7, status: 9 }),
            (
                r#"{"call":7,"error":"no memory"}"#,
                WarmMessage::Refused {
                    call: 7,
                    error: "no memory".to_owned(),
                },
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(expected), "{line}");
        }
    }

    #[test]
    fn refuses_any_other_line() {
        for line in [
            "",
            "ready",
            "{}",
            r#"{"hello":2,"mode":"fork"}"#,
            r#"{"hello":1,"mode":"spoon"}"#,
            r#"{"call":7}"#,
            r#"{"pong":-1}"#,
            r#"{"pong":1,"mode":"fork"}"#,
            r#"{"call":7,"pid":1}"#,
            r#"{"call":7,"pid":0}"#,
            r#"{"call":7,"pid":-4}"#,
            r#"{"call":7,"pid":4294967295}"#,
            r#"{"call":7,"pid":9,"exit":0}"#,
            r#"{"call":7,"signal":0}"#,
            r#"{"call":7,"exit":256}"#,
        ] {
            assert_eq!(parse(line.as_bytes()), Err(NoMessage), "{line}");
        }
    }

    #[test]
    fn keeps_as_many_files_as_are_looked_at() {
        let files = vec!["a.py"; WARM_FILES_MAX + 1];
        let line = serde_json::json!({"hello": 1, "mode": "fork", "files": files}).to_string();
        let Ok(WarmMessage::Hello { files, .. }) = parse(line.as_bytes()) else {
            panic!("a hello");
        };
        assert_eq!(files.len(), WARM_FILES_MAX);
    }

    #[test]
    fn a_call_is_one_line() {
        assert_eq!(
            call(7, r#"{"kind":"base"}"#),
            "{\"call\":7,\"arguments\":{\"kind\":\"base\"}}\n"
        );
    }

    #[test]
    fn a_process_hangs_that_leaves_two_pings_without_an_answer() {
        let mut pings = Pings::default();
        assert_eq!(pings.poll_ping().as_deref(), Some("{\"ping\":1}\n"));
        pings.handle_message();
        assert_eq!(pings.poll_ping().as_deref(), Some("{\"ping\":2}\n"));
        assert_eq!(pings.poll_ping().as_deref(), Some("{\"ping\":3}\n"));
        assert_eq!(pings.poll_ping(), None);
    }

    #[test]
    fn the_pauses_between_starts_double_up_to_a_minute() {
        let pauses: Vec<u64> = [1, 2, 3, 6, 7, 100].map(|n| restart_after(n).as_secs()).into();
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60]);
    }
}
