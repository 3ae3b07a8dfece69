//! The levels of a call of the sound card, as one row of a terminal.
//!
//! In: PCM of the microphone and of the loudspeaker (`i16`), who speaks, and `now`. Out: at most
//! ten times a second a row with the peak of each side since the last one, in decibels below full
//! scale, and the name of who speaks. The row has a fixed width of 52 characters, below that of any
//! terminal.

use std::time::{Duration, Instant};

/// Time between two rows.
const METER_INTERVAL: Duration = Duration::from_millis(100);
/// Steps of a bar, of 4 dB each. Nothing is shown below the first one.
const BAR_STEPS: usize = 14;
const STEP_DB: f32 = 4.0;

/// Who speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speakers {
    pub caller: bool,
    pub bot: bool,
}

impl Speakers {
    fn name(self) -> &'static str {
        match (self.caller, self.bot) {
            (true, true) => "both speak",
            (true, false) => "you speak",
            (false, true) => "bot speaks",
            (false, false) => "",
        }
    }
}

/// The meter of one session.
#[derive(Debug, Default)]
pub struct LevelMeter {
    /// Peaks since the last row.
    microphone: u16,
    loudspeaker: u16,
    is_muted: bool,
    speakers: Speakers,
    /// When the next row is due; `None` before the first one.
    due: Option<Instant>,
}

impl LevelMeter {
    /// Handles audio of the microphone, which `is_muted` or not.
    pub fn handle_microphone(&mut self, pcm: &[i16], is_muted: bool) {
        self.microphone = self.microphone.max(peak(pcm));
        self.is_muted = is_muted;
    }

    /// Handles audio of the loudspeaker.
    pub fn handle_loudspeaker(&mut self, pcm: &[i16]) {
        self.loudspeaker = self.loudspeaker.max(peak(pcm));
    }

    /// Handles who speaks. Somebody who spoke since the last row is in the next one.
    pub fn handle_speakers(&mut self, speakers: Speakers) {
        self.speakers.caller |= speakers.caller;
        self.speakers.bot |= speakers.bot;
    }

    /// Returns the row, if one is due.
    pub fn poll_row(&mut self, now: Instant) -> Option<String> {
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        self.due = Some(now + METER_INTERVAL);
        let microphone = match self.is_muted {
            true => format!("{:^BAR_STEPS$}", "muted"),
            false => bar(self.microphone),
        };
        let row = format!(
            "you [{microphone}] bot [{}] {:<10}",
            bar(self.loudspeaker),
            self.speakers.name()
        );
        (self.microphone, self.loudspeaker, self.speakers) = (0, 0, Speakers::default());
        Some(row)
    }
}

fn peak(pcm: &[i16]) -> u16 {
    pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0)
}

/// Returns the bar of a peak.
fn bar(peak: u16) -> String {
    let below_full_db = -20.0 * (f32::from(peak.max(1)) / 32_768.0).log10();
    let empty = (below_full_db / STEP_DB) as usize;
    let full = BAR_STEPS.saturating_sub(empty);
    format!("{:-<BAR_STEPS$}", "#".repeat(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_peaks_since_the_last_one() {
        let (mut meter, start) = (LevelMeter::default(), Instant::now());
        let row = |meter: &mut LevelMeter, ms| meter.poll_row(start + Duration::from_millis(ms));
        let quiet = "you [--------------] bot [--------------]           ";
        assert_eq!(row(&mut meter, 0).as_deref(), Some(quiet));
        meter.handle_microphone(&[0, -32_768, 5], false);
        meter.handle_microphone(&[1], false);
        // 21 dB below full scale.
        meter.handle_loudspeaker(&[3_000]);
        meter.handle_speakers(Speakers {
            caller: true,
            bot: true,
        });
        meter.handle_speakers(Speakers::default());
        assert_eq!(row(&mut meter, 99), None);
        let loud = "you [##############] bot [#########-----] both speak";
        assert_eq!(row(&mut meter, 100).as_deref(), Some(loud));
        assert_eq!(row(&mut meter, 100), None);
        meter.handle_microphone(&[32_767], true);
        meter.handle_speakers(Speakers {
            caller: false,
            bot: true,
        });
        let muted = "you [    muted     ] bot [--------------] bot speaks";
        assert_eq!(row(&mut meter, 350).as_deref(), Some(muted));
        assert!([quiet, loud, muted].iter().all(|row| row.len() == 52));
        assert_eq!(
            row(&mut meter, 450).as_deref(),
            Some("you [    muted     ] bot [--------------]           ")
        );
    }

    #[test]
    fn a_bar_has_a_step_for_every_four_decibels() {
        for (peak, full) in [
            (0, 0),
            (1, 0),
            (51, 0),
            (53, 1),
            (16_384, 13),
            (32_767, 14),
            (32_768, 14),
        ] {
            let expected = format!("{}{}", "#".repeat(full), "-".repeat(BAR_STEPS - full));
            assert_eq!(bar(peak), expected, "{peak}");
        }
    }
}
