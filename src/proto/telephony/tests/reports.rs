//! Error reports of a provider: what reaches the log, and how often.

use std::cell::RefCell;
use std::sync::Once;

use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::json;

use super::super::named::TWILIO;
use super::{b_call, script_call};
use crate::limits::{TELEPHONY_LOGGED_CHARS_MAX, TELEPHONY_WORD_CHARS_MAX};
use crate::telephony::{ProviderInput, TelephonyCall};

thread_local! {
    /// The lines of this thread's test, once it asked for them.
    static LINES: RefCell<Option<Vec<(Level, String)>>> = const { RefCell::new(None) };
}

/// Keeps the lines of each test by itself.
struct LinesOfThread;

impl Log for LinesOfThread {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        LINES.with_borrow(Option::is_some)
    }

    fn log(&self, record: &Record<'_>) {
        LINES.with_borrow_mut(|lines| {
            if let Some(lines) = lines {
                lines.push((record.level(), record.args().to_string()));
            }
        });
    }

    fn flush(&self) {}
}

fn start_log() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        log::set_logger(&LinesOfThread).expect("the only logger of these tests");
        log::set_max_level(LevelFilter::Debug);
    });
    LINES.set(Some(Vec::new()));
}

/// Returns the lines of a level since the last call.
fn lines(level: Level) -> Vec<String> {
    let all = LINES.replace(Some(Vec::new())).expect("the log was started");
    let of_level = all.into_iter().filter(|(logged, _)| *logged == level);
    of_level.map(|(_, line)| line).collect()
}

fn report(call: &mut TelephonyCall, code: &str, title: &str) {
    let text = json!({"event": "error", "stream_id": "s", "payload": {"code": code, "title": title}}).to_string();
    assert_eq!(call.read(&text, &mut Vec::new()), Ok(ProviderInput::Nothing));
}

/// A report is a warning with code and title. Titles may contain telephone numbers, and a long code
/// could be one.
#[test]
fn telnyx_reports_are_warnings_without_numbers() {
    start_log();
    let warned = |code: &str, title: &str| {
        report(&mut b_call("PCMU", 8_000), code, title);
        lines(Level::Warn)
    };
    let line = |rest: &str| vec![format!("the provider of stream s reports error {rest}")];
    assert_eq!(warned("100003", "malformed_frame"), line("100003, malformed_frame"));
    assert_eq!(warned("1000037", "from 15550001111"), line("?, from ###########"));
    let long = "w".repeat(TELEPHONY_WORD_CHARS_MAX);
    assert_eq!(warned("1", &format!("{long}w")), line(&format!("1, {long}")));
    let mut call = b_call("PCMU", 8_000);
    report(&mut call, "1", &"x".repeat(2 * TELEPHONY_LOGGED_CHARS_MAX));
    let whole = lines(Level::Debug);
    assert!(
        whole
            .iter()
            .all(|line| line.chars().count() <= TELEPHONY_LOGGED_CHARS_MAX + 20)
    );
    assert!(
        whole.iter().any(|line| line.contains(r#""event":"error""#)),
        "{whole:?}"
    );
}

/// A peer can send any number of reports: the first, second, fourth and eighth are logged.
#[test]
fn repeated_reports_are_logged_ever_more_rarely() {
    start_log();
    let mut call = b_call("PCMU", 8_000);
    let logged: Vec<usize> = (0..10)
        .map(|_| {
            report(&mut call, "1", "title");
            lines(Level::Warn).len()
        })
        .collect();
    assert_eq!(logged, [1, 1, 0, 1, 0, 0, 0, 1, 0, 0]);
}

/// The same holds for messages that are skipped.
#[test]
fn repeated_flaws_are_logged_ever_more_rarely() {
    start_log();
    let mut call = script_call(TWILIO);
    let logged: Vec<usize> = (0..5)
        .map(|_| {
            call.read("{}", &mut Vec::new()).expect("an object");
            lines(Level::Debug).len()
        })
        .collect();
    assert_eq!(logged, [1, 1, 0, 1, 0]);
    assert_eq!(call.malformed, 5);
}
