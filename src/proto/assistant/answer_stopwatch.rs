//! How long an answer took, stage by stage.
//!
//! In: when the caller's last sound of speech arrived, and when the words were recognised, the
//! model began to write, and the answer began to play. Out: a [`MeasuredAnswer`] for each answer to
//! speech; one to typed text or keys has no time.

use std::time::{Duration, Instant};

/// The time of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredAnswer {
    /// From the caller's last sound of speech to the first sound of the answer.
    pub latency: Duration,
    /// What happened meanwhile, each with the time since the one before. Together they are the
    /// latency.
    pub stages: Vec<(&'static str, Duration)>,
}

/// The stopwatch of the answer that the caller waits for.
#[derive(Debug, Default)]
pub struct AnswerStopwatch {
    spoken_until: Option<Instant>,
    recognized: Option<Instant>,
    first_token: Option<Instant>,
}

impl AnswerStopwatch {
    /// The caller has finished, and spoke until then.
    pub fn begin(&mut self, spoken_until: Instant) {
        *self = AnswerStopwatch {
            spoken_until: Some(spoken_until),
            ..AnswerStopwatch::default()
        };
    }

    /// There is nothing to answer.
    pub fn clear(&mut self) {
        *self = AnswerStopwatch::default();
    }

    /// The words of the caller are known. Those that come when the model already writes are late.
    pub fn handle_recognized(&mut self, now: Instant) {
        if self.first_token.is_none() {
            self.recognized = Some(now);
        }
    }

    /// The model writes or speaks.
    pub fn handle_token(&mut self, now: Instant) {
        self.first_token.get_or_insert(now);
    }

    /// The answer begins to play. Returns its time, once.
    pub fn handle_sound(&mut self, now: Instant) -> Option<MeasuredAnswer> {
        let measured = std::mem::take(self);
        let spoken_until = measured.spoken_until?;
        let mut before = spoken_until;
        let stages = [
            ("recognized", measured.recognized),
            ("first_token", measured.first_token),
            ("first_sound", Some(now)),
        ];
        let stages = stages.into_iter().filter_map(|(name, at)| {
            // What was there before the caller had finished took no time of the answer.
            let at = at?.max(before);
            let time = at.saturating_duration_since(before);
            before = at;
            Some((name, time))
        });
        Some(MeasuredAnswer {
            stages: stages.collect(),
            latency: now.saturating_duration_since(spoken_until),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_stages_of_an_answer_add_up_to_its_latency() {
        let (mut stopwatch, start) = (AnswerStopwatch::default(), Instant::now());
        stopwatch.begin(start);
        stopwatch.handle_recognized(start + ms(900));
        stopwatch.handle_token(start + ms(1_200));
        stopwatch.handle_token(start + ms(1_300));
        // A transcript that comes late.
        stopwatch.handle_recognized(start + ms(1_400));
        let answer = stopwatch.handle_sound(start + ms(1_500)).expect("an answer");
        assert_eq!(
            answer,
            MeasuredAnswer {
                latency: ms(1_500),
                stages: vec![
                    ("recognized", ms(900)),
                    ("first_token", ms(300)),
                    ("first_sound", ms(300))
                ],
            }
        );
        assert_eq!(stopwatch.handle_sound(start + ms(1_600)), None, "once");
    }

    #[test]
    fn what_is_unknown_is_no_stage_and_typed_text_has_no_time() {
        let (mut stopwatch, start) = (AnswerStopwatch::default(), Instant::now() + ms(1_000));
        stopwatch.handle_token(start);
        assert_eq!(stopwatch.handle_sound(start + ms(100)), None);
        stopwatch.begin(start);
        stopwatch.handle_recognized(start - ms(200));
        let answer = stopwatch.handle_sound(start + ms(700)).expect("an answer");
        assert_eq!(
            answer.stages,
            [("recognized", Duration::ZERO), ("first_sound", ms(700))]
        );
        stopwatch.begin(start);
        stopwatch.clear();
        assert_eq!(stopwatch.handle_sound(start), None);
    }
}
