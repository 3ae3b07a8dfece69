//! `edge-runner doctor`: evaluates the state of a machine for a runner with this configuration.
//!
//! The checks of a module are in its folder. In: addresses, routes, limits, the clock. Out:
//! [`Finding`]s, each with a level, a description and a remedy. A finding contains no secret and no
//! text of a peer.

#[cfg(feature = "tls")]
pub mod certificate;
pub mod machine;
pub mod network;
pub mod worker;

use crate::config::Config;
use crate::transport::Transport;

/// The level of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingLevel {
    Ok,
    /// It works, with a limitation.
    Warning,
    /// It prevents calls.
    Error,
}

/// The result of one check, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub level: FindingLevel,
    pub what: &'static str,
    pub text: String,
}

impl Finding {
    pub fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Finding::new(FindingLevel::Ok, what, text)
    }

    pub fn warning(what: &'static str, text: impl Into<String>) -> Self {
        Finding::new(FindingLevel::Warning, what, text)
    }

    pub fn error(what: &'static str, text: impl Into<String>) -> Self {
        Finding::new(FindingLevel::Error, what, text)
    }

    /// Returns the finding about a response that proves neither that a service accepts `what` nor
    /// that it does not.
    pub fn unverified(what: &'static str, status: u16, of: &str) -> Self {
        match status {
            429 | 500..=599 => Finding::warning(
                what,
                format!("the server failed (status {status}), so {of} could not be verified; try again later"),
            ),
            _ => Finding::warning(what, format!("status {status}: {of} could not be verified")),
        }
    }

    /// Returns the finding about a setting that a transport needs: an error if it was selected.
    pub fn missing(config: &Config, transport: Transport, text: String) -> Self {
        match config.transport == Some(transport) {
            true => Finding::error(transport.common_name(), text),
            false => Finding::warning(transport.common_name(), text),
        }
    }

    fn new(verdict: FindingLevel, what: &'static str, text: impl Into<String>) -> Self {
        Finding {
            level: verdict,
            what,
            text: text.into(),
        }
    }
}

/// All findings, in display order.
#[derive(Clone, Debug, Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Counts the errors.
    pub fn errors(&self) -> usize {
        let broken = |finding: &&Finding| finding.level == FindingLevel::Error;
        self.0.iter().filter(broken).count()
    }

    /// Returns one line per finding; with colours, for a terminal, the level of each has its own.
    pub fn text(&self, has_colours: bool) -> String {
        let line = |Finding { level, what, text }: &Finding| {
            let (mark, colour) = match level {
                FindingLevel::Ok => ("ok", "\x1b[32m"),
                FindingLevel::Warning => ("warn", "\x1b[33m"),
                FindingLevel::Error => ("FAIL", "\x1b[1;31m"),
            };
            match has_colours {
                true => format!("{colour}{mark:<6}\x1b[0m{what:<12}{text}\n"),
                false => format!("{mark:<6}{what:<12}{text}\n"),
            }
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_one_line_each_and_errors_are_counted() {
        let findings = Findings(vec![
            Finding::ok("clock", "right"),
            Finding::warning("memory", "little"),
            Finding::error("http port", "taken"),
        ]);
        assert_eq!(findings.errors(), 1);
        assert_eq!(
            findings.text(false),
            "ok    clock       right\nwarn  memory      little\nFAIL  http port   taken\n"
        );
    }

    /// The level alone is coloured, and the columns stay.
    #[test]
    fn a_terminal_gets_colours() {
        let findings = Findings(vec![
            Finding::ok("clock", "right"),
            Finding::warning("memory", "little"),
            Finding::error("http port", "taken"),
        ]);
        assert_eq!(
            findings.text(true),
            "\x1b[32mok    \x1b[0mclock       right\n\x1b[33mwarn  \x1b[0mmemory      little\n\
             \x1b[1;31mFAIL  \x1b[0mhttp port   taken\n"
        );
    }
}
