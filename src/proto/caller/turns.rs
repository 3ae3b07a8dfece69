//! When each side speaks, and how long the bot takes to answer.
//!
//! In: begin and end of the caller's sounds, the bot's audio as it arrives and as it is played, and
//! `now`. Out: begin and end of the bot's turns, and the latency of each answer: from the end of
//! the caller's sound to the arrival of the first sound of the bot's next turn. It is zero if the
//! bot begins while the caller still speaks. A turn ends after half a second without sound.

use std::time::{Duration, Instant};

use super::FRAME;

/// The shortest sound that counts as speech of the bot.
pub const SPEECH_MIN: Duration = Duration::from_millis(300);
/// The pause that ends a turn of the bot.
const TURN_PAUSE: Duration = Duration::from_millis(500);

/// The speech of both sides.
#[derive(Debug, Default)]
pub struct SpeechTurns {
    /// The caller's last sound, until the bot answers it.
    unanswered: Option<CallerSound>,
    /// When the bot's sound was played last, during a turn.
    bot_sounds: Option<Instant>,
    /// The same, also after the turn.
    last_sound: Option<Instant>,
    first_sound: Option<Instant>,
    bot_spoke: Duration,
    latencies: Vec<Duration>,
}

/// A sound of the caller.
#[derive(Clone, Copy, Debug)]
struct CallerSound {
    ended: Option<Instant>,
}

/// The begin of a turn of the bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BotTurnBegin {
    /// The latency, if it answers the caller.
    pub latency: Option<Duration>,
}

impl SpeechTurns {
    /// Handles the begin of a sound of the caller.
    pub fn handle_caller_start(&mut self) {
        self.unanswered = Some(CallerSound { ended: None });
    }

    /// Handles the end of a sound of the caller.
    pub fn handle_caller_stop(&mut self, now: Instant) {
        if let Some(sound) = &mut self.unanswered {
            sound.ended = Some(now);
        }
    }

    /// Handles audio of the bot that has arrived. Returns the begin of a turn.
    pub fn handle_arrival(&mut self, has_sound: bool, now: Instant) -> Option<BotTurnBegin> {
        if !has_sound || self.bot_sounds.is_some() {
            return None;
        }
        self.bot_sounds = Some(now);
        self.first_sound.get_or_insert(now);
        let latency = self.unanswered.take().map(|sound| {
            let ended = sound.ended.unwrap_or(now);
            now.saturating_duration_since(ended)
        });
        self.latencies.extend(latency);
        Some(BotTurnBegin { latency })
    }

    /// Handles 20 ms of the bot's audio that were played. Returns whether its turn has ended.
    pub fn handle_played(&mut self, has_sound: bool, is_sound_waiting: bool, now: Instant) -> bool {
        if has_sound {
            self.bot_spoke += FRAME;
            self.bot_sounds = Some(now);
            self.last_sound = Some(now);
        }
        let ends = |last: Instant| !is_sound_waiting && now >= last + TURN_PAUSE;
        let is_over = self.bot_sounds.is_some_and(ends);
        if is_over {
            self.bot_sounds = None;
        }
        is_over
    }

    /// Returns whether the bot speaks.
    pub fn is_bot_speaking(&self) -> bool {
        self.bot_sounds.is_some()
    }

    /// Returns whether the bot has answered the caller's last sound.
    pub fn is_answered(&self) -> bool {
        self.unanswered.is_none()
    }

    /// Returns when the sound of the caller ended that the bot has not answered.
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered?.ended
    }

    /// Returns when the bot's sound was played last.
    pub fn last_sound(&self) -> Option<Instant> {
        self.last_sound
    }

    /// Returns how long the bot's sound was.
    pub fn bot_spoke(&self) -> Duration {
        self.bot_spoke
    }

    /// Returns when the bot's first sound arrived.
    pub fn first_sound(&self) -> Option<Instant> {
        self.first_sound
    }

    /// Returns the latencies of all answers.
    pub fn latencies(&self) -> &[Duration] {
        &self.latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn latency_counts_from_the_end_of_the_caller_to_the_next_turn() {
        let (mut turns, start) = (SpeechTurns::default(), Instant::now());
        assert!(turns.is_answered());
        turns.handle_caller_start();
        turns.handle_caller_stop(start);
        assert!(!turns.is_answered());
        assert_eq!(turns.handle_arrival(false, start + ms(100)), None);
        let begin = turns.handle_arrival(true, start + ms(300)).expect("a turn");
        assert_eq!(begin.latency, Some(ms(300)));
        assert!(turns.is_answered() && turns.is_bot_speaking());
        // Its further audio begins no turn.
        assert_eq!(turns.handle_arrival(true, start + ms(320)), None);
        assert_eq!(turns.first_sound(), Some(start + ms(300)));
    }

    #[test]
    fn an_answer_before_the_end_of_the_caller_has_no_latency() {
        let (mut turns, start) = (SpeechTurns::default(), Instant::now());
        turns.handle_caller_start();
        let begin = turns.handle_arrival(true, start).expect("a turn");
        turns.handle_caller_stop(start + ms(900));
        assert_eq!(begin.latency, Some(Duration::ZERO));
        assert_eq!(turns.latencies(), [Duration::ZERO]);
    }

    #[test]
    fn a_turn_that_began_before_the_caller_is_no_answer() {
        let (mut turns, start) = (SpeechTurns::default(), Instant::now());
        let greeting = turns.handle_arrival(true, start).expect("a turn");
        assert_eq!(greeting.latency, None);
        turns.handle_caller_start();
        turns.handle_caller_stop(start + ms(100));
        assert_eq!(turns.handle_arrival(true, start + ms(120)), None);
        assert!(!turns.is_answered());
        assert!(!turns.handle_played(true, false, start + ms(200)));
        assert!(!turns.handle_played(false, false, start + ms(699)));
        assert!(turns.handle_played(false, false, start + ms(700)));
        let answer = turns.handle_arrival(true, start + ms(1_100)).expect("a turn");
        assert_eq!(answer.latency, Some(ms(1_000)));
    }

    #[test]
    fn a_turn_goes_on_while_audio_waits() {
        let (mut turns, start) = (SpeechTurns::default(), Instant::now());
        turns.handle_arrival(true, start);
        assert!(!turns.handle_played(false, true, start + ms(5_000)));
        assert!(turns.handle_played(false, false, start + ms(5_020)));
        assert_eq!(turns.bot_spoke(), Duration::ZERO);
        assert!(!turns.is_bot_speaking());
    }
}
