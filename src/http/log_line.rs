//! The forms of a log line: text for people, and one JSON object per record for collectors.
//!
//! In: a record, and the id of the session that logs it. Out: one line without its line break.
//! Control characters of a message are escaped, so that no peer can write a line of its own, and a
//! message has a maximum length.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use log::{Level, Record};

use edge_runner_proto::SessionId;

/// Characters of one log message: the 5000 of a rejected body and its errors.
const LOG_MESSAGE_CHARS_MAX: usize = 8_000;

/// Characters of a session id in a line of text: enough to tell sessions apart.
const ID_CHARS: usize = 8;

/// A record as text, without its time and level.
pub struct RecordLine<'r> {
    pub record: &'r Record<'r>,
    pub session: Option<SessionId>,
    /// The name of the session's bot, where there are several.
    pub bot: Option<Arc<str>>,
    /// The crate of the bot, whose lines are shown like those of the runner.
    pub bot_crate: &'r str,
}

impl RecordLine<'_> {
    /// Returns the stream of a program whose line it is, such as `stderr`. Its target is for
    /// filters.
    fn stream(&self) -> Option<&str> {
        self.record.target().strip_prefix("edge_runner::bot::")
    }

    /// Tells whether the line names its module: lines of libraries, and below INFO, do.
    fn shows_target(&self) -> bool {
        let target = self.record.target();
        let crate_name = target.split("::").next().unwrap_or_default();
        let is_own = crate_name.starts_with("edge_runner") || crate_name == self.bot_crate;
        self.record.level() > Level::Info || !is_own
    }
}

impl fmt::Display for RecordLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = &self.session {
            let end = id.char_indices().nth(ID_CHARS).map_or(id.len(), |(at, _)| at);
            f.write_char('[')?;
            write_escaped(f, format_args!("{}", &id[..end]), escape_text)?;
            if let Some(bot) = &self.bot {
                write!(f, " {bot}")?;
            }
            f.write_str("] ")?;
        }
        if let Some(stream) = self.stream() {
            write!(f, "bot {stream}: ")?;
        } else if self.shows_target() {
            write!(f, "{}: ", self.record.target())?;
        }
        write_escaped(f, *self.record.args(), escape_text)
    }
}

/// A record as one JSON object: `time`, `level`, `session` (inside one), `bot` (of several),
/// `target`, `message`.
pub struct JsonLine<'r, T> {
    pub time: T,
    pub record: &'r Record<'r>,
    pub session: Option<SessionId>,
    /// The name of the session's bot, where there are several.
    pub bot: Option<Arc<str>>,
}

impl<T: fmt::Display> fmt::Display for JsonLine<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"{{"time":"{}","level":"{}""#, self.time, self.record.level())?;
        if let Some(id) = &self.session {
            f.write_str(r#","session":""#)?;
            write_escaped(f, format_args!("{}", &**id), escape_json)?;
            f.write_char('"')?;
        }
        if let Some(bot) = &self.bot {
            write!(f, r#","bot":"{bot}""#)?;
        }
        f.write_str(r#","target":""#)?;
        write_escaped(f, format_args!("{}", self.record.target()), escape_json)?;
        f.write_str(r#"","message":""#)?;
        write_escaped(f, *self.record.args(), escape_json)?;
        f.write_str("\"}")
    }
}

/// Writes text with some of its characters escaped, up to the maximum length.
fn write_escaped(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>, escape: Escape) -> fmt::Result {
    let left = LOG_MESSAGE_CHARS_MAX;
    let mut out = EscapedText { out: f, escape, left };
    // Text that is too long is no reason to lose the line.
    match out.write_fmt(text) {
        Err(_) if out.left == 0 => f.write_str("... (cut)"),
        other => other,
    }
}

/// Writes one character.
type Escape = fn(&mut fmt::Formatter<'_>, char) -> fmt::Result;

struct EscapedText<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    escape: Escape,
    left: usize,
}

impl fmt::Write for EscapedText<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.left == 0 {
                return Err(fmt::Error);
            }
            self.left -= 1;
            (self.escape)(self.out, c)?;
        }
        Ok(())
    }
}

fn escape_text(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match is_unsafe(c) {
        true => write!(f, "{}", c.escape_default()),
        false => f.write_char(c),
    }
}

fn escape_json(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '"' | '\\' => write!(f, "\\{c}"),
        // All of these characters have code points of at most four digits.
        c if is_unsafe(c) => write!(f, "\\u{:04x}", u32::from(c)),
        c => f.write_char(c),
    }
}

/// Tells whether a character could start a line, move the cursor or reverse the text on a terminal.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed";

    fn text(level: Level, target: &str, session: Option<&str>, message: &str) -> String {
        let args = format_args!("{message}");
        let record = Record::builder().args(args).level(level).target(target).build();
        let line = RecordLine {
            record: &record,
            session: session.map(SessionId::from),
            bot: None,
            bot_crate: "hello",
        };
        line.to_string()
    }

    fn line(message: &str) -> String {
        text(Level::Info, "edge_runner::test", None, message)
    }

    fn json(session: Option<&str>, message: &str) -> String {
        let args = format_args!("{message}");
        let target = "edge_runner::test";
        let record = Record::builder().args(args).level(Level::Warn).target(target).build();
        let line = JsonLine {
            time: "2026-11-21T12:00:00.123Z",
            record: &record,
            session: session.map(SessionId::from),
            bot: None,
        };
        line.to_string()
    }

    #[test]
    fn a_line_begins_with_its_session() {
        for (session, expected) in [(None, "up"), (Some(ID), "[1b9d6bcd] up"), (Some("é"), "[é] up")] {
            assert_eq!(text(Level::Info, "edge_runner::test", session, "up"), expected);
        }
    }

    #[test]
    fn one_of_several_bots_is_named_behind_its_session() {
        let args = format_args!("up");
        let record = Record::builder()
            .args(args)
            .level(Level::Info)
            .target("edge_runner")
            .build();
        let (session, bot) = (Some(SessionId::from(ID)), Some(Arc::from("sales")));
        let line = RecordLine {
            record: &record,
            session: session.clone(),
            bot: bot.clone(),
            bot_crate: "",
        };
        assert_eq!(line.to_string(), "[1b9d6bcd sales] up");
        let line = JsonLine {
            time: "now",
            record: &record,
            session,
            bot,
        };
        assert!(
            line.to_string()
                .contains(&format!(r#""session":"{ID}","bot":"sales","target""#))
        );
    }

    #[test]
    fn the_module_is_shown_for_libraries_and_for_debugging() {
        for (level, target, shown) in [
            (Level::Info, "edge_runner::io::media", false),
            (Level::Error, "edge_runner_http::server", false),
            (Level::Info, "hello::menu", false),
            (Level::Warn, "rustls::conn", true),
            (Level::Debug, "edge_runner::io::media", true),
            (Level::Trace, "hello", true),
        ] {
            let expected = if shown {
                format!("{target}: up")
            } else {
                "up".to_owned()
            };
            assert_eq!(text(level, target, None, "up"), expected, "{level} {target}");
        }
    }

    /// A traceback has many lines, and what tells them apart is at their end.
    #[test]
    fn the_output_of_a_bot_is_named_in_two_words() {
        let target = "edge_runner::bot::stderr";
        let line = text(
            Level::Info,
            target,
            Some("0123456789"),
            "Traceback (most recent call last):",
        );
        assert_eq!(line, "[01234567] bot stderr: Traceback (most recent call last):");
    }

    #[test]
    fn a_message_cannot_start_a_line_or_control_the_terminal() {
        let escaped = "a\\r\\nb\\tc\\u{1b}[2Jd\\u{202e}e\\u{85}é";
        assert_eq!(line("a\r\nb\tc\u{1b}[2Jd\u{202e}e\u{85}é"), escaped);
    }

    #[test]
    fn a_message_has_a_maximum_length() {
        let fits = "x".repeat(LOG_MESSAGE_CHARS_MAX);
        assert!(line(&fits).ends_with('x'));
        let cut = line(&format!("{fits}x"));
        assert!(cut.ends_with("x... (cut)") && cut.len() < LOG_MESSAGE_CHARS_MAX + 64);
    }

    #[test]
    fn a_json_line_is_one_object() {
        let plain = r#"{"time":"2026-11-21T12:00:00.123Z","level":"WARN","target":"edge_runner::test","message":"up"}"#;
        assert_eq!(json(None, "up"), plain);
        let message = "a\"b\\c\r\n\u{1b}[2J\u{2028}é\u{1f600}";
        let line = json(Some(ID), message);
        assert_eq!(line.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["session"], ID);
        assert_eq!(value["message"], message);
        let long = json(None, &"\"".repeat(LOG_MESSAGE_CHARS_MAX + 1));
        let value: serde_json::Value = serde_json::from_str(&long).expect("JSON");
        assert!(
            value["message"]
                .as_str()
                .is_some_and(|text| text.ends_with("... (cut)"))
        );
    }
}
