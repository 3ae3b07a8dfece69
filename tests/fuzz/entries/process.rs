//! Properties of what a bot that is a program sends its runner: messages beside those for the
//! caller, lines of a process that waits for calls, its output, and the query of its media.
//!
//! In: one text, or lines. Whatever it is: lines of the log are bounded and come alike however the
//! output is split, what is shown of a failure is one short line, and no process of the system is
//! taken for one of the bot.

use edge_runner_proto::limits::PROCESS_LINE_BYTES_MAX;
use edge_runner_proto::process::first_line::interpreter;
use edge_runner_proto::process::last_line::shown;
use edge_runner_proto::process::media_query::MediaQuery;
use edge_runner_proto::process::output_lines::LineSplitter;
use edge_runner_proto::process::playout_queue::PlayoutQueue;
use edge_runner_proto::process::warm::{self, WarmMessage};
use edge_runner_proto::process::{CallRequest, ProgramRequest, parse_request};

/// Bytes of a line that is shown, with the character that says that it goes on.
const SHOWN_BYTES_MAX: usize = 240;
/// Bytes after a line that is cut.
const MARK_BYTES_MAX: usize = 16;
const RATE_HZ: u32 = 24_000;

pub fn messages(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut queue = PlayoutQueue::new(RATE_HZ);
    for line in text.lines() {
        request(line, &mut queue);
        warm_line(line.as_bytes());
        if let Some(line) = shown(line) {
            assert!(
                line.len() <= SHOWN_BYTES_MAX && !line.contains(char::is_control),
                "{line:?}"
            );
        }
    }
    request(&text, &mut queue);
    warm_line(bytes);
    let _ = MediaQuery::parse(&text);
    if let Ok(Some(found)) = interpreter(bytes) {
        assert!(!found.path.is_empty());
    }
    output(bytes);
}

fn request(text: &str, queue: &mut PlayoutQueue) {
    let Some(request) = parse_request(text) else { return };
    match request {
        ProgramRequest::Mark(name) => {
            let _ = queue.push_mark(name);
        }
        ProgramRequest::HangUp(reason) => queue.hang_up(reason),
        ProgramRequest::Speak(words) => assert!(words.len() <= text.len()),
        ProgramRequest::Call(call) => match &call {
            CallRequest::Transfer { to, .. } => assert!(to.len() <= text.len()),
            CallRequest::Keys(keys) => assert!(!call.cuts_speech() && keys.len() <= text.len()),
        },
    }
}

fn warm_line(line: &[u8]) {
    match warm::parse(line) {
        Ok(WarmMessage::Started { pid, .. }) => assert!(pid > 1, "the system's first process"),
        Ok(WarmMessage::Hello { files, .. }) => {
            assert!(files.iter().map(|file| file.as_os_str().len()).sum::<usize>() <= line.len());
        }
        Ok(_) | Err(_) => {}
    }
}

/// The same lines, whole or a byte at a time.
fn output(bytes: &[u8]) {
    let split = |size: usize| {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        for part in bytes.chunks(size) {
            splitter.push(part, |line| lines.push(line.to_owned()));
        }
        splitter.finish(|line| lines.push(line.to_owned()));
        lines
    };
    let lines = split(bytes.len().max(1));
    // Bytes that are no UTF-8 become a character of three bytes.
    assert!(
        lines
            .iter()
            .all(|line| line.len() <= 3 * PROCESS_LINE_BYTES_MAX + MARK_BYTES_MAX)
    );
    for size in [1, 7] {
        assert_eq!(split(size), lines, "in parts of {size} bytes");
    }
}
