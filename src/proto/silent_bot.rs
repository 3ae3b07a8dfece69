//! Detects a bot that does nothing while a caller waits for it.
//!
//! In: the connection of the caller, what the bot sends, and `now`. Out: whether to say, once, that
//! the caller hears nothing. A bot that waits for the caller to speak first has at least greeted a
//! page with `bot-ready`, or sent silence.

use std::time::{Duration, Instant};

/// Time that a bot has from the connection of the caller to its first sound or message. Programs
/// that load models need some seconds; a caller without any sign hangs up sooner than this.
pub const BOT_SILENT_AFTER: Duration = Duration::from_secs(20);

/// The watch over one bot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SilentBotWatch {
    /// No caller has connected.
    #[default]
    NoCaller,
    /// The bot has sent nothing, and is reported at this time.
    Waiting(Instant),
    /// The bot has sent something, or was reported.
    Done,
}

impl SilentBotWatch {
    /// Handles that there is a caller. Only the first time counts.
    pub fn handle_caller(&mut self, now: Instant) {
        if *self == SilentBotWatch::NoCaller {
            *self = SilentBotWatch::Waiting(now + BOT_SILENT_AFTER);
        }
    }

    /// Handles sound or a message of the bot.
    pub fn handle_output(&mut self) {
        *self = SilentBotWatch::Done;
    }

    /// Returns whether the bot is to be reported now: once.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = matches!(self, SilentBotWatch::Waiting(due) if now >= *due);
        if is_due {
            *self = SilentBotWatch::Done;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bot_that_sends_nothing_is_reported_once() {
        let start = Instant::now();
        let mut watch = SilentBotWatch::default();
        assert!(!watch.is_due(start + 10 * BOT_SILENT_AFTER), "there is no caller");
        watch.handle_caller(start);
        watch.handle_caller(start + BOT_SILENT_AFTER / 2);
        assert!(!watch.is_due(start + BOT_SILENT_AFTER - Duration::from_millis(1)));
        assert!(watch.is_due(start + BOT_SILENT_AFTER));
        assert!(!watch.is_due(start + 2 * BOT_SILENT_AFTER));
        watch.handle_caller(start + 2 * BOT_SILENT_AFTER);
        assert!(!watch.is_due(start + 4 * BOT_SILENT_AFTER));
    }

    #[test]
    fn a_bot_that_has_sent_anything_is_not_reported() {
        let start = Instant::now();
        for is_early in [true, false] {
            let mut watch = SilentBotWatch::default();
            if is_early {
                watch.handle_output();
            }
            watch.handle_caller(start);
            watch.handle_output();
            assert!(!watch.is_due(start + BOT_SILENT_AFTER), "{is_early}");
        }
    }
}
