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
            lines(Level::Warn).len()
        })
        .collect();
    assert_eq!(logged, [1, 1, 0, 1, 0]);
    assert_eq!(call.malformed, 5);
}

/// What was wrong with a skipped message is a warning, which quotes nothing of it.
#[test]
fn a_flaw_is_a_warning_that_says_what_was_wrong() {
    start_log();
    let warned = |message: &str| {
        let _ = script_call(TWILIO).read(message, &mut Vec::new());
        lines(Level::Warn)
    };
    for (message, reason) in [
        ("+15550001111", "it is no JSON object"),
        (r#"{"event":"media","event":"x"}"#, "a member is repeated"),
        (r#"{"event":null}"#, "its `event`"),
        (r#"{"event":"media","media":{"payload":"*"}}"#, "its `media.payload`"),
        (r#"{"event":"dtmf","dtmf":{}}"#, "its `dtmf.digit`"),
        (r#"{"event":"mark","mark":{}}"#, "the name of its mark"),
    ] {
        let said = warned(message);
        assert_eq!(said.len(), 1, "{message}");
        let start = format!("a message of the provider was skipped, 1 so far: {reason}");
        assert!(said[0].starts_with(&start), "{message}: {said:?}");
    }
    let mut odd = b_call("L16", 8_000);
    let half = r#"{"event":"media","media":{"payload":"AAAA"}}"#;
    assert_eq!(odd.read(half, &mut Vec::new()), Ok(ProviderInput::Audio));
    assert!(lines(Level::Warn)[0].ends_with("its audio ends within a sample"));
    let mut call = script_call(TWILIO);
    call.skip_binary();
    assert_eq!(call.malformed, 1);
    assert!(lines(Level::Warn)[0].contains("it is binary"));
}

/// Audio of another track was asked for by the configuration of the stream: it is no warning, and
/// leaves the count of flaws alone.
#[test]
fn audio_of_another_track_is_no_warning() {
    start_log();
    let mut call = script_call(TWILIO);
    let outbound = r#"{"event":"media","media":{"track":"outbound","payload":"AAAA"}}"#;
    let logged: Vec<usize> = (0..5)
        .map(|_| {
            assert_eq!(call.read(outbound, &mut Vec::new()), Ok(ProviderInput::Nothing));
            assert_eq!(lines(Level::Warn), [""; 0]);
            call.read(outbound, &mut Vec::new()).expect("an object");
            lines(Level::Debug).len()
        })
        .collect();
    // The calls number 2, 4, 6, 8 and 10; `lines` drops those of other levels.
    assert_eq!((logged, call.malformed), (vec![1, 1, 0, 1, 0], 10));
    call.read("{}", &mut Vec::new()).expect("an object");
    assert!(lines(Level::Warn)[0].contains("1 so far"));
}
