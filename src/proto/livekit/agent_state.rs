//! The state of the bot that front-ends of LiveKit show: listening, thinking or speaking. A bot
//! that has not joined is `initializing` by its token.
//!
//! In: the begin and the end of the bot's speech, of its model's answers, interruptions, and `now`.
//! Out: the state, at most every [`ROOM_STATE_INTERVAL`], since each change is sent to everybody in
//! the room. Source: `docs/spec/livekit.md` 5.6.

use std::time::{Duration, Instant};

use crate::limits::ROOM_STATE_INTERVAL;

/// Time that a model may think. After it, the bot is shown as listening again.
const ROOM_THINKING_WITHIN: Duration = Duration::from_secs(60);
/// Time from the end of a model's answer to the bot's speech. After it, the answer has no speech.
const ROOM_SPEECH_WITHIN: Duration = Duration::from_secs(5);

/// What a bot in a room does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    Listening,
    Thinking,
    Speaking,
}

impl AgentState {
    /// Returns the value of the attribute `lk.agent.state`.
    pub fn name(self) -> &'static str {
        match self {
            AgentState::Listening => "listening",
            AgentState::Thinking => "thinking",
            AgentState::Speaking => "speaking",
        }
    }
}

/// Follows the bot's turns.
#[derive(Default)]
pub struct AgentStateTracker {
    is_speaking: bool,
    /// Until when the model answers.
    model_until: Option<Instant>,
    /// Until when the speech of an answer may begin.
    speech_until: Option<Instant>,
    /// The state that the room has, and since when.
    shown: Option<(AgentState, Instant)>,
}

impl AgentStateTracker {
    /// Handles a new connection, which shows no state yet.
    pub fn handle_open(&mut self) {
        self.shown = None;
    }

    /// Handles the begin of a model's answer.
    pub fn handle_model_started(&mut self, now: Instant) {
        self.model_until = Some(now + ROOM_THINKING_WITHIN);
        self.speech_until = None;
    }

    /// Handles the end of a model's answer.
    pub fn handle_model_stopped(&mut self, now: Instant) {
        if self.model_until.take().is_some() && !self.is_speaking {
            self.speech_until = Some(now + ROOM_SPEECH_WITHIN);
        }
    }

    /// Handles the begin or the end of the bot's speech.
    pub fn handle_speech(&mut self, is_speaking: bool) {
        self.is_speaking = is_speaking;
        self.speech_until = None;
    }

    /// Handles an interruption: the bot listens.
    pub fn handle_interruption(&mut self) {
        self.model_until = None;
        self.speech_until = None;
    }

    /// Returns the state, if it is new to the room and the last change was long enough ago.
    pub fn poll_change(&mut self, now: Instant) -> Option<AgentState> {
        let state = self.state(now);
        let is_due = match self.shown {
            Some((shown, since)) => shown != state && now >= since + ROOM_STATE_INTERVAL,
            None => true,
        };
        if is_due {
            self.shown = Some((state, now));
        }
        is_due.then_some(state)
    }

    /// Returns when [`AgentStateTracker::poll_change`] has a state without another event.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let (shown, since) = self.shown?;
        if self.state(now) != shown {
            return Some(since + ROOM_STATE_INTERVAL);
        }
        if self.is_speaking {
            return None;
        }
        self.model_until
            .into_iter()
            .chain(self.speech_until)
            .filter(|until| *until > now)
            .max()
    }

    fn state(&self, now: Instant) -> AgentState {
        let is_thinking = self
            .model_until
            .into_iter()
            .chain(self.speech_until)
            .any(|until| now < until);
        match (self.is_speaking, is_thinking) {
            (true, _) => AgentState::Speaking,
            (false, true) => AgentState::Thinking,
            (false, false) => AgentState::Listening,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A tracker and its clock.
    struct Shown {
        tracker: AgentStateTracker,
        now: Instant,
    }

    impl Shown {
        fn new() -> Self {
            let mut shown = Shown {
                tracker: AgentStateTracker::default(),
                now: Instant::now(),
            };
            assert_eq!(shown.after(Duration::ZERO), Some("listening"));
            shown
        }

        /// Returns the change after a time.
        fn after(&mut self, time: Duration) -> Option<&'static str> {
            self.now += time;
            self.tracker.poll_change(self.now).map(AgentState::name)
        }

        /// Waits for the next change, and returns how long that took.
        fn next(&mut self) -> Option<(Duration, &'static str)> {
            let at = self.tracker.poll_timeout(self.now)?;
            let time = at - self.now;
            assert_eq!(self.after(time - Duration::from_nanos(1)), None);
            Some((time, self.after(Duration::from_nanos(1)).expect("a change")))
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_turn_is_thinking_then_speaking_then_listening() {
        let mut shown = Shown::new();
        assert_eq!(shown.after(SECOND), None);
        shown.tracker.handle_model_started(shown.now);
        assert_eq!(shown.after(Duration::ZERO), Some("thinking"));
        shown.now += SECOND;
        shown.tracker.handle_model_stopped(shown.now);
        assert_eq!(shown.after(SECOND), None, "its speech is awaited");
        shown.tracker.handle_speech(true);
        assert_eq!(shown.after(Duration::ZERO), Some("speaking"));
        assert_eq!(shown.next(), None);
        shown.now += SECOND;
        shown.tracker.handle_speech(false);
        assert_eq!(shown.after(Duration::ZERO), Some("listening"));
        assert_eq!(shown.next(), None);
    }

    /// A model that still answers while the first sentence is spoken.
    #[test]
    fn the_bot_thinks_on_between_two_sentences() {
        let mut shown = Shown::new();
        shown.tracker.handle_model_started(shown.now);
        shown.tracker.handle_speech(true);
        assert_eq!(shown.after(SECOND), Some("speaking"));
        shown.tracker.handle_speech(false);
        assert_eq!(shown.after(SECOND), Some("thinking"));
        shown.tracker.handle_speech(true);
        shown.tracker.handle_model_stopped(shown.now);
        assert_eq!(shown.after(SECOND), Some("speaking"));
        shown.tracker.handle_speech(false);
        assert_eq!(shown.after(SECOND), Some("listening"));
    }

    #[test]
    fn thinking_without_an_end_or_without_speech_ends() {
        let mut shown = Shown::new();
        shown.tracker.handle_model_started(shown.now);
        assert_eq!(shown.after(SECOND), Some("thinking"));
        assert_eq!(shown.next(), Some((ROOM_THINKING_WITHIN - SECOND, "listening")));
        shown.tracker.handle_model_started(shown.now);
        assert_eq!(shown.after(SECOND), Some("thinking"));
        shown.tracker.handle_model_stopped(shown.now);
        assert_eq!(shown.next(), Some((ROOM_SPEECH_WITHIN, "listening")));
        shown.tracker.handle_model_started(shown.now);
        assert_eq!(shown.after(SECOND), Some("thinking"));
        shown.tracker.handle_interruption();
        assert_eq!(shown.after(SECOND), Some("listening"));
        assert_eq!(shown.next(), None);
    }

    /// Speech that starts and stops all the time is shown at intervals, and its last state always.
    #[test]
    fn changes_are_shown_at_intervals() {
        let mut shown = Shown::new();
        let mut changes = 0;
        for step in 0..1_000 {
            shown.tracker.handle_speech(step % 2 == 0);
            changes += u32::from(shown.after(Duration::from_millis(10)).is_some());
        }
        assert!(
            (1..=10_000 / ROOM_STATE_INTERVAL.as_millis() as u32).contains(&changes),
            "{changes}"
        );
        shown.tracker.handle_speech(true);
        shown.after(SECOND);
        shown.tracker.handle_speech(false);
        shown.tracker.handle_speech(true);
        shown.tracker.handle_speech(false);
        assert_eq!(shown.after(Duration::ZERO), Some("listening"));
        shown.tracker.handle_speech(true);
        assert_eq!(shown.next(), Some((ROOM_STATE_INTERVAL, "speaking")));
    }

    #[test]
    fn a_new_connection_gets_the_state_again() {
        let mut shown = Shown::new();
        shown.tracker.handle_open();
        assert_eq!(shown.after(Duration::ZERO), Some("listening"));
    }
}
