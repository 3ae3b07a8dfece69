//! The tones of the local caller: a session begins, ends, or fails; the microphone is muted or on.
//!
//! Out: `i16` mono PCM at the rate of the loudspeaker, at most 200 ms, quieter than speech.

use crate::audio::note::note;
use crate::event::LeaveReason;

const PEAK: f32 = 3_000.0;

/// What a tone says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalTone {
    Start,
    End,
    Error,
    Muted,
    Unmuted,
}

impl LocalTone {
    /// Returns the tone for the end of a session.
    pub fn of_end(reason: LeaveReason) -> LocalTone {
        match reason {
            LeaveReason::BotFailed
            | LeaveReason::Failed
            | LeaveReason::Vanished
            | LeaveReason::NeverConnected
            | LeaveReason::Stalled
            | LeaveReason::Protocol => LocalTone::Error,
            LeaveReason::Left
            | LeaveReason::BotEnded
            | LeaveReason::Replaced
            | LeaveReason::Shutdown
            | LeaveReason::Operator
            | LeaveReason::Limit => LocalTone::End,
        }
    }

    /// Returns its sound.
    pub fn pcm(self, rate_hz: u32) -> Vec<i16> {
        // Rising, falling, and one low note twice; those of the microphone are lower.
        let (notes, seconds) = match self {
            LocalTone::Start => ([659.3, 880.0], 0.075),
            LocalTone::End => ([880.0, 659.3], 0.075),
            LocalTone::Error => ([220.0, 220.0], 0.1),
            LocalTone::Muted => ([440.0, 330.0], 0.075),
            LocalTone::Unmuted => ([330.0, 440.0], 0.075),
        };
        notes
            .into_iter()
            .flat_map(|hz| note(rate_hz, hz, seconds, PEAK))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::tone::share;

    #[test]
    fn the_tones_differ_and_are_short() {
        for rate_hz in [8_000, 48_000] {
            let tones = [
                LocalTone::Start,
                LocalTone::End,
                LocalTone::Error,
                LocalTone::Muted,
                LocalTone::Unmuted,
            ]
            .map(|tone| tone.pcm(rate_hz));
            for tone in &tones {
                let ms = tone.len() * 1_000 / rate_hz as usize;
                assert!((140..=200).contains(&ms), "{ms}");
                assert!(tone.iter().all(|sample| f32::from(*sample).abs() <= PEAK));
            }
            let first = |tone: &[i16], hz| share(&tone[..tone.len() / 2], hz, rate_hz);
            assert!(first(&tones[3], 440.0) > 0.6 && first(&tones[4], 330.0) > 0.6);
            assert!(first(&tones[0], 659.3) > 0.6 && first(&tones[1], 880.0) > 0.6 && first(&tones[2], 220.0) > 0.6);
        }
        assert_eq!(LocalTone::of_end(LeaveReason::BotFailed), LocalTone::Error);
        assert_eq!(LocalTone::of_end(LeaveReason::Left), LocalTone::End);
    }
}
