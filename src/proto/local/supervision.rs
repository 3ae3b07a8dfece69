//! When the command of a microphone or a loudspeaker is started again, and what is said about it.
//!
//! In: its start, its traffic, its end, lines of its stderr, and `now`. Out: the pause before the
//! next attempt, whether it hangs, and one line for the log per change. A card that is missing,
//! busy or unplugged makes the command fail; a sound server that was killed makes it hang, or write
//! that it lost audio as fast as it can. A card that no command opens is supervised in the same
//! terms: what the kernel says of it is a line of stderr.

use std::fmt;
use std::time::{Duration, Instant};

use super::attempts::{Attempts, Retry};
use super::direction::AudioDirection;
use super::listing::KERNEL_PREFIX;
use crate::process::last_line;

/// A command that has worked for this long has not failed because of its start.
const PROVEN_AFTER: Duration = Duration::from_secs(10);
/// Time without traffic after which a command hangs.
const HUNG_AFTER: Duration = Duration::from_secs(1);
/// Longest time between two polls that counts as time without traffic: the rest of a longer one is
/// that of a process that stood still, or of a user that was slow.
const QUIET_STEP: Duration = Duration::from_millis(250);
/// Time from the start of a command to its first traffic.
const FIRST_WITHIN: Duration = Duration::from_secs(5);
/// A pipe takes data before a player has opened its card.
const PLAYER_WORKS_AFTER: Duration = Duration::from_millis(500);
/// Lines about lost audio in one second, above which the command is in a loop.
const XRUNS_PER_S_MAX: u32 = 100;

/// Why a command does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandFailure {
    /// There is no such program.
    NotFound,
    /// The system cannot start it.
    NotStarted(String),
    /// It has ended, with its exit status.
    Ended(String),
    /// It has moved no audio for `HUNG_AFTER`.
    Hung,
    /// It reports lost audio without an end.
    Loops,
    /// It is a card of the kernel, which has said why in the last line.
    Card,
}

/// What a line of stderr means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StderrLine {
    /// Audio was lost.
    Xrun,
    Words,
}

/// The state of one command.
#[derive(Debug)]
pub struct Supervision {
    direction: AudioDirection,
    program: String,
    attempts: Attempts,
    started: Option<Instant>,
    /// Whether it has moved audio since its start.
    has_moved: bool,
    /// The time without traffic at the last poll, or at the last traffic.
    quiet: Duration,
    polled: Option<Instant>,
    last_words: Option<String>,
    xruns: u64,
    /// The second in which lines about lost audio are counted, and their number.
    second: Option<(Instant, u32)>,
}

impl Supervision {
    pub fn new(direction: AudioDirection, program: &str) -> Self {
        Supervision {
            direction,
            program: program.to_owned(),
            attempts: Attempts::default(),
            started: None,
            has_moved: false,
            quiet: Duration::ZERO,
            polled: None,
            last_words: None,
            xruns: 0,
            second: None,
        }
    }

    pub fn direction(&self) -> AudioDirection {
        self.direction
    }

    /// Returns the last line of stderr that is not about lost audio, made fit for a page.
    pub fn last_words(&self) -> Option<&str> {
        self.last_words.as_deref()
    }

    /// Returns why the command has failed, with what to do, as the log says it.
    pub fn describe(&self, failure: &CommandFailure) -> String {
        let words = FailureWords {
            failure,
            program: &self.program,
            option: self.direction.option(),
            last_words: self.last_words(),
        };
        words.to_string()
    }

    /// Handles the start of the command.
    pub fn handle_started(&mut self, now: Instant) {
        self.started = Some(now);
        self.has_moved = false;
        self.handle_moved(now);
        self.last_words = None;
        self.second = None;
    }

    fn handle_moved(&mut self, now: Instant) {
        self.quiet = Duration::ZERO;
        self.polled = Some(now);
    }

    /// Handles audio that the command has written or read. Returns what the log says of a command
    /// that works again.
    pub fn handle_traffic(&mut self, now: Instant) -> Option<String> {
        self.has_moved = true;
        self.handle_moved(now);
        let age = now.saturating_duration_since(self.started?);
        if age >= PROVEN_AFTER {
            self.attempts.handle_success();
        }
        if self.direction == AudioDirection::Out && age < PLAYER_WORKS_AFTER {
            return None;
        }
        let failed = self.attempts.take_failed();
        failed.then(|| format!("the {} works again", self.direction.name()))
    }

    /// Handles audio that the command has written or read, and logs that it works again.
    pub fn note_traffic(&mut self, now: Instant) {
        if let Some(words) = self.handle_traffic(now) {
            log::info!("{words}");
        }
    }

    /// Returns the number of times that audio was lost.
    pub fn xruns(&self) -> u64 {
        self.xruns
    }

    /// Handles a line of stderr. The last one that is not about lost audio is the reason for an
    /// end.
    pub fn handle_line(&mut self, line: &str, now: Instant) -> StderrLine {
        if line.contains("underrun") || line.contains("overrun") {
            self.handle_xrun(now);
            return StderrLine::Xrun;
        }
        self.last_words = last_line::shown(line).or(self.last_words.take());
        StderrLine::Words
    }

    /// Handles lost audio.
    pub fn handle_xrun(&mut self, now: Instant) {
        self.xruns += 1;
        let (since, count) = self.second.get_or_insert((now, 0));
        if now.saturating_duration_since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
    }

    /// Returns why the command is to be ended, if it is.
    pub fn poll_failure(&mut self, now: Instant) -> Option<CommandFailure> {
        if self.second.is_some_and(|(_, count)| count > XRUNS_PER_S_MAX) {
            return Some(CommandFailure::Loops);
        }
        let since = self.polled.replace(now)?;
        self.quiet += now.saturating_duration_since(since).min(QUIET_STEP);
        (self.quiet >= self.quiet_max()).then_some(CommandFailure::Hung)
    }

    /// Returns when a command without traffic is polled again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let left = self.quiet_max().saturating_sub(self.quiet);
        Some(self.polled? + left.min(QUIET_STEP))
    }

    fn quiet_max(&self) -> Duration {
        match self.has_moved {
            true => HUNG_AFTER,
            false => FIRST_WITHIN,
        }
    }

    /// Handles a command that has failed.
    pub fn handle_failure(&mut self, failure: &CommandFailure) -> Retry {
        self.started = None;
        self.polled = None;
        let why = self.describe(failure);
        self.attempts
            .handle_failure(&format!("no {}: {why}", self.direction.name()))
    }
}

/// The words for a failure.
struct FailureWords<'a> {
    failure: &'a CommandFailure,
    program: &'a str,
    option: &'static str,
    last_words: Option<&'a str>,
}

impl fmt::Display for FailureWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, option) = (self.program, self.option);
        match self.failure {
            CommandFailure::NotFound if matches!(program, "arecord" | "aplay") => write!(
                f,
                "`{program}` is not installed; install the package alsa-utils, or name another command, or a card of \
                 `--local-list`, with {option}"
            ),
            CommandFailure::NotFound => write!(f, "there is no program `{program}`, which {option} names"),
            CommandFailure::NotStarted(why) => write!(f, "`{program}` of {option} cannot be started: {why}"),
            CommandFailure::Ended(status) => match self.last_words {
                Some(words) => write!(f, "`{program}` ended ({status}): {words}{}", advice(words)),
                None => write!(f, "`{program}` ended ({status}) without a word"),
            },
            CommandFailure::Hung => write!(f, "`{program}` moves no audio"),
            CommandFailure::Loops if program.starts_with(KERNEL_PREFIX) => {
                write!(f, "`{program}` loses all audio")
            }
            CommandFailure::Card => {
                let words = self.last_words.unwrap_or_default();
                write!(f, "`{program}`: {words}{}", advice(words))
            }
            CommandFailure::Loops => write!(
                f,
                "`{program}` reports lost audio without an end; has the sound server ended?"
            ),
        }
    }
}

/// Returns what to do about a failure of ALSA.
fn advice(words: &str) -> &'static str {
    const ADVICE: [(&str, &str); 5] = [
        ("Device or resource busy", " (another program has the card open)"),
        (
            "No such file or directory",
            " (there is no such card: `--local-list` lists them)",
        ),
        ("No such device", " (was the card unplugged?)"),
        ("Host is down", " (the sound server does not run)"),
        ("Permission denied", " (does the user have the group audio?)"),
    ];
    let found = ADVICE.iter().find(|(error, _)| words.contains(error));
    found.map_or("", |(_, advice)| advice)
}

#[cfg(test)]
mod tests;
