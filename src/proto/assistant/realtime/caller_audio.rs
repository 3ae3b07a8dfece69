//! The caller's audio on its way to the service.
//!
//! In: PCM at the rate of the line, in frames of any length, and the time. Out: base64 of pieces of
//! [`PIECE`], in the format of the line. The service counts audio and not time: where a caller
//! sends nothing, silence fills the gap, else a turn would never end. While there is no connection,
//! the newest [`HELD_MAX`] wait.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use data_encoding::BASE64;

use crate::assistant::report::Line;

/// Length of a piece.
const PIECE: Duration = Duration::from_millis(40);
/// Audio that waits for a connection.
const HELD_MAX: Duration = Duration::from_secs(10);
/// Time without audio after which silence is filled in, and the length of such a frame.
const GAP: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_millis(20);
/// Silence that is filled in at once after the clock has jumped.
const CATCH_UP_MAX: Duration = Duration::from_secs(2);

/// The caller's audio.
#[derive(Debug)]
pub struct CallerAudio {
    line: Line,
    waiting: VecDeque<i16>,
    /// When the next frame of silence is due; `None` before the first audio.
    silence_due: Option<Instant>,
    encoded: Vec<u8>,
}

impl CallerAudio {
    pub fn new(line: Line) -> Self {
        CallerAudio {
            line,
            waiting: VecDeque::new(),
            silence_due: None,
            encoded: Vec::new(),
        }
    }

    /// Starts to fill gaps, before the first audio.
    pub fn begin(&mut self, now: Instant) {
        self.silence_due.get_or_insert(now + GAP);
    }

    pub fn push(&mut self, pcm: &[i16], now: Instant) {
        self.silence_due = Some(now + GAP);
        self.extend(pcm.iter().copied());
    }

    fn extend(&mut self, pcm: impl Iterator<Item = i16>) {
        self.waiting.extend(pcm);
        let held_max = self.samples(HELD_MAX);
        if self.waiting.len() > held_max {
            self.waiting.drain(..self.waiting.len() - held_max);
        }
    }

    /// Returns when to call [`CallerAudio::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.silence_due
    }

    /// Fills the gap since the last audio with silence.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(due) = &mut self.silence_due else { return };
        let mut frames = 0;
        while now >= *due {
            *due += SILENCE;
            frames += 1;
            if SILENCE * frames > CATCH_UP_MAX {
                *due = now + SILENCE;
            }
        }
        let samples = self.samples(SILENCE) * frames as usize;
        self.extend(std::iter::repeat_n(0, samples));
    }

    /// Takes the next piece as base64, with its length.
    pub fn next_piece(&mut self) -> Option<(String, Duration)> {
        let samples = self.samples(PIECE);
        if self.waiting.len() < samples {
            return None;
        }
        self.encoded.clear();
        let pcm: Vec<i16> = self.waiting.drain(..samples).collect();
        match self.line {
            Line::Pcm24k => self.encoded.extend(pcm.iter().flat_map(|sample| sample.to_le_bytes())),
            Line::G711(laws) => {
                self.encoded.resize(pcm.len(), 0);
                laws.inbound.encode(&pcm, &mut self.encoded);
            }
        }
        Some((BASE64.encode(&self.encoded), PIECE))
    }

    fn samples(&self, time: Duration) -> usize {
        (time.as_millis() as u64 * u64::from(self.line.rate_hz()) / 1_000) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assistant::report::CallProfile;
    use crate::audio::g711::{Law, LineLaws};

    fn pieces(audio: &mut CallerAudio) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| audio.next_piece())
            .map(|(text, _)| BASE64.decode(text.as_bytes()).expect("base64"))
            .collect()
    }

    #[test]
    fn audio_is_sent_every_40_ms_in_the_format_of_the_line() {
        let now = Instant::now();
        let mut pcm = CallerAudio::new(Line::Pcm24k);
        pcm.push(&[0x0102; 480], now);
        assert_eq!(pieces(&mut pcm).len(), 0);
        pcm.push(&[0x0102; 480], now);
        assert_eq!(pieces(&mut pcm), [[2, 1].repeat(960)]);
        for (inbound, outbound, zero) in [(Law::Mu, Law::A, 0xff), (Law::A, Law::Mu, 0xd5)] {
            let mut line = CallerAudio::new(Line::G711(LineLaws { inbound, outbound }));
            line.push(&[0; 320], now);
            assert_eq!(pieces(&mut line), [vec![zero; 320]]);
        }
    }

    #[test]
    fn gaps_are_filled_with_silence_in_real_time() {
        let start = Instant::now();
        let mut audio = CallerAudio::new(Line::Pcm24k);
        assert_eq!(audio.poll_timeout(), None);
        audio.push(&[1; 960], start);
        assert_eq!(pieces(&mut audio).len(), 1);
        audio.handle_timeout(start + Duration::from_millis(99));
        assert_eq!(pieces(&mut audio).len(), 0);
        audio.handle_timeout(start + Duration::from_millis(1_099));
        assert_eq!(pieces(&mut audio), vec![vec![0; 1_920]; 25]);
        audio.handle_timeout(start + Duration::from_secs(3_600));
        assert!(pieces(&mut audio).len() <= 51, "a jump of the clock is not made up for");
    }

    #[test]
    fn the_newest_10_s_wait_for_a_connection() {
        let now = Instant::now();
        let mut audio = CallerAudio::new(CallProfile::TELEPHONE.line);
        for _ in 0..600 {
            audio.push(&[0; 160], now);
        }
        assert_eq!(pieces(&mut audio).len(), 250);
    }
}
