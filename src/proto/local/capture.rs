//! The microphone's bytes as an even stream of PCM.
//!
//! In: bytes of 16-bit signed little-endian PCM in pieces of any length, with any number of
//! channels, reports of lost audio, and `now`. Out: `i16` mono PCM at the same rate: the first
//! channel. Gaps are filled with silence after `FILLED_AFTER`, so that a detector of speech sees
//! time pass, and shorter ones where the card reports them; what then comes late is dropped. The
//! clock of a card differs from that of the machine by up to
//! `DRIFT_MAX`, which is followed and not filled. A source that is faster than that is read no
//! faster ([`Capture::reads_at`]).

use std::time::{Duration, Instant};

/// Time without bytes after which silence is filled in: longer than the periods of any card.
const FILLED_AFTER: Duration = Duration::from_millis(120);
/// Silence that is filled in at a time.
const FILL: Duration = Duration::from_millis(20);
/// Audio ahead of the clock that is accepted at once, such as what a card has kept before.
const AHEAD_MAX: Duration = Duration::from_millis(500);
/// After this time without a gap, late audio is no longer expected.
const LATE_UNTIL: Duration = Duration::from_secs(1);
/// The clock of a card is followed by at most this part of the time.
const DRIFT_MAX: f64 = 0.001;

/// The state of one microphone.
pub struct Capture {
    rate_hz: u32,
    frame_bytes: usize,
    /// Bytes of an incomplete frame.
    rest: Vec<u8>,
    pcm: Vec<i16>,
    /// The time at which all samples so far are due; `None` before the first byte.
    clock: Option<Instant>,
    /// Samples that silence stands for, and until when they are expected.
    owed: usize,
    owed_until: Option<Instant>,
    /// Whether the card has lost audio before its next bytes.
    is_lost: bool,
    /// Whether the last gap was found by the clock, and may yet be reported.
    is_unreported: bool,
    counts: CaptureCounts,
}

/// The totals of a microphone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Gaps in the audio.
    pub gaps: u64,
    /// Samples of silence in them.
    pub filled: u64,
    /// Samples that came too late.
    pub late: u64,
}

impl CaptureCounts {
    /// Returns what was counted since `before`.
    #[must_use]
    pub fn since(self, before: CaptureCounts) -> CaptureCounts {
        CaptureCounts {
            gaps: self.gaps - before.gaps,
            filled: self.filled - before.filled,
            late: self.late - before.late,
        }
    }
}

impl Capture {
    /// # Panics
    /// If the rate or the number of channels is 0.
    pub fn new(rate_hz: u32, channels: u16) -> Self {
        assert!(rate_hz > 0 && channels > 0, "a microphone has a rate and a channel");
        Capture {
            rate_hz,
            frame_bytes: 2 * usize::from(channels),
            rest: Vec::new(),
            pcm: Vec::new(),
            clock: None,
            owed: 0,
            owed_until: None,
            is_lost: false,
            is_unreported: false,
            counts: CaptureCounts::default(),
        }
    }

    pub fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    pub fn counts(&self) -> CaptureCounts {
        self.counts
    }

    /// Handles bytes of the microphone, after a gap that is due.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Instant) {
        if !self.is_lost {
            self.handle_timeout(now);
        }
        let before = self.pcm.len();
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() - self.rest.len() % self.frame_bytes;
        let frames = self.rest[..whole].chunks_exact(self.frame_bytes);
        self.pcm
            .extend(frames.map(|frame| i16::from_le_bytes([frame[0], frame[1]])));
        self.rest.drain(..whole);
        let samples = self.pcm.len() - before;
        if samples == 0 {
            return;
        }
        let clock = self.clock.unwrap_or_else(|| now - self.length(samples));
        let clock = self.fill_lost(clock, samples, now);
        let dropped = self.late_samples(clock, samples, now);
        let kept = self.pcm.len() - samples;
        self.pcm.drain(kept..kept + dropped);
        let length = self.length(samples - dropped);
        let mut clock = clock + length;
        // The average of the distance to the machine's clock stays near zero.
        let step = length.mul_f64(DRIFT_MAX);
        if clock < now {
            clock += step.min(now - clock);
        } else {
            clock -= step.min(clock - now);
        }
        self.clock = Some(clock);
    }

    /// Fills what a card has lost before the newest samples. Returns the time at which all samples
    /// before these are due.
    fn fill_lost(&mut self, clock: Instant, samples: usize, now: Instant) -> Instant {
        let starts = now - self.length(samples);
        if !std::mem::take(&mut self.is_lost) || starts <= clock {
            return clock;
        }
        let lost = (starts - clock).min(LATE_UNTIL);
        let silence = (lost.as_secs_f64() * f64::from(self.rate_hz)) as usize;
        let at = self.pcm.len() - samples;
        self.pcm.splice(at..at, std::iter::repeat_n(0, silence));
        self.handle_filled(silence, now);
        starts
    }

    /// Handles silence in place of samples, which may come late.
    fn handle_filled(&mut self, samples: usize, now: Instant) {
        self.counts.filled += samples as u64;
        self.owed += samples;
        self.owed_until = Some(now + LATE_UNTIL);
    }

    /// Returns how many of the next samples silence has already taken the place of.
    fn late_samples(&mut self, clock: Instant, samples: usize, now: Instant) -> usize {
        if self.owed_until.is_some_and(|until| now >= until) {
            (self.owed, self.owed_until) = (0, None);
        }
        let ahead = (clock + self.length(samples)).saturating_duration_since(now);
        let surplus = (ahead.as_secs_f64() * f64::from(self.rate_hz)) as usize;
        let dropped = surplus.min(self.owed).min(samples);
        self.owed -= dropped;
        self.counts.late += dropped as u64;
        dropped
    }

    /// Forgets the clock, for a command that starts again: the time until its first byte is no gap.
    pub fn handle_restart(&mut self) {
        self.rest.clear();
        self.clock = None;
        (self.owed, self.owed_until) = (0, None);
        (self.is_lost, self.is_unreported) = (false, false);
    }

    /// Handles a microphone that has failed. What it lost is a gap that is not filled: it may be
    /// long, or never end.
    pub fn handle_failure(&mut self, now: Instant) {
        let is_known = self.owed_until.is_some_and(|until| now < until);
        self.counts.gaps += u64::from(self.clock.is_some() && !is_known);
        self.handle_restart();
    }

    /// Handles a card that has lost audio, and goes on.
    pub fn handle_xrun(&mut self, now: Instant) {
        self.is_lost = true;
        let is_known = self.owed_until.is_some_and(|until| now < until);
        if !std::mem::take(&mut self.is_unreported) || !is_known {
            self.counts.gaps += 1;
        }
    }

    /// Fills a gap that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(clock) = self.clock
            && now >= clock + FILLED_AFTER
        {
            if self.owed_until.is_none_or(|until| now >= until) {
                self.owed = 0;
                if !self.is_lost {
                    self.counts.gaps += 1;
                    self.is_unreported = true;
                }
            }
            let samples = self.rate_hz as usize * FILL.as_millis() as usize / 1000;
            // After a long pause of the machine itself, only the present matters.
            if now > clock + LATE_UNTIL {
                self.clock = Some(now - FILL);
                continue;
            }
            self.pcm.resize(self.pcm.len() + samples, 0);
            self.handle_filled(samples, now);
            self.clock = Some(clock + self.length(samples));
        }
    }

    /// Returns when the next silence is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.clock.map(|clock| clock + FILLED_AFTER)
    }

    /// Returns when more may be read, for a source that is never slow; `None` means at once.
    pub fn reads_at(&self, now: Instant) -> Option<Instant> {
        let at = self.clock?.checked_sub(AHEAD_MAX)?;
        (at > now).then_some(at)
    }

    /// Moves the samples so far to the end of `into`.
    pub fn take(&mut self, into: &mut Vec<i16>) {
        into.append(&mut self.pcm);
    }

    fn length(&self, samples: usize) -> Duration {
        Duration::from_secs(samples as u64) / self.rate_hz
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn bytes(samples: usize, value: i16) -> Vec<u8> {
        value.to_le_bytes().repeat(samples)
    }

    fn taken(capture: &mut Capture) -> Vec<i16> {
        let mut pcm = Vec::new();
        capture.take(&mut pcm);
        pcm
    }

    /// Pieces may end within a sample, and within a frame of several channels.
    #[test]
    fn takes_the_first_channel_of_pieces_of_any_length() {
        let now = Instant::now();
        let mut capture = Capture::new(16_000, 3);
        let frames: Vec<u8> = (0..100_i16)
            .flat_map(|n| [n, -1, -2])
            .flat_map(i16::to_le_bytes)
            .collect();
        for piece in frames.chunks(7) {
            capture.handle_bytes(piece, now);
        }
        assert_eq!(taken(&mut capture), (0..100).collect::<Vec<i16>>());
    }

    /// A gap is filled while it lasts, and what comes late does not add to the time.
    #[test]
    fn a_gap_is_filled_in_real_time_and_late_audio_is_dropped() {
        let start = Instant::now();
        let mut capture = Capture::new(16_000, 1);
        for nth in 1..=50 {
            capture.handle_bytes(&bytes(160, 7), start + 10 * MS * nth);
        }
        assert_eq!(taken(&mut capture).len(), 8_000);
        // Nothing comes for 300 ms.
        let mut now = start + 500 * MS;
        while now < start + 800 * MS {
            now = capture.poll_timeout().expect("running");
            capture.handle_timeout(now);
        }
        let filled = taken(&mut capture);
        assert!((190 * 16..=230 * 16).contains(&filled.len()), "{}", filled.len());
        assert!(filled.iter().all(|sample| *sample == 0));
        let counts = capture.counts();
        assert_eq!((counts.gaps, counts.since(counts).gaps), (1, 0), "one gap");
        // Then all of it comes at once.
        capture.handle_bytes(&bytes(300 * 16, 7), start + 800 * MS);
        let late = taken(&mut capture);
        let total = 8_000 + filled.len() + late.len();
        assert!(total.abs_diff(800 * 16) < 25 * 16, "{total}");
        assert!(capture.counts().late > 0);
        // Or it was lost for good: nothing is dropped.
        let mut lost = Capture::new(16_000, 1);
        lost.handle_bytes(&bytes(160, 7), start);
        lost.handle_timeout(start + 400 * MS);
        taken(&mut lost);
        lost.handle_bytes(&bytes(160, 7), start + 401 * MS);
        assert_eq!(taken(&mut lost).len(), 160);
    }

    /// Between sessions no timer fills a gap. It does not remain for the first words of the next
    /// one.
    #[test]
    fn the_bytes_after_a_gap_end_it() {
        let start = Instant::now();
        let mut capture = Capture::new(16_000, 1);
        for nth in (1..=50).chain(81..=90) {
            capture.handle_bytes(&bytes(160, 7), start + 10 * MS * nth);
        }
        let before = taken(&mut capture);
        assert_eq!(capture.counts().gaps, 1);
        assert_eq!(before[before.len() - 1_600..], [7; 1_600]);
        for nth in 91..=120 {
            let now = start + 10 * MS * nth;
            capture.handle_timeout(now);
            capture.handle_bytes(&bytes(160, 8), now);
        }
        assert_eq!(taken(&mut capture), [8; 4_800]);
    }

    /// A card that has lost 50 ms says so: the time is filled at once, before what it records next,
    /// and each loss counts.
    #[test]
    fn lost_audio_that_is_reported_is_filled_and_counted() {
        let start = Instant::now();
        let mut capture = Capture::new(16_000, 1);
        let mut now = start;
        for nth in 1..=3 {
            for _ in 0..120 {
                now += 10 * MS;
                capture.handle_bytes(&bytes(160, 7), now);
            }
            taken(&mut capture);
            capture.handle_bytes(&bytes(1, 6), now);
            capture.handle_xrun(now);
            now += 60 * MS;
            capture.handle_bytes(&bytes(160, 7), now);
            let pcm = taken(&mut capture);
            let silence = pcm.len() - 161;
            assert_eq!(pcm, [vec![6], vec![0; silence], vec![7; 160]].concat());
            assert!(silence.abs_diff(50 * 16) < 32, "{silence}");
            assert_eq!((capture.counts().gaps, capture.counts().late), (nth, 0));
        }
        // What was only late, and comes after all, does not add to the time.
        capture.handle_bytes(&bytes(50 * 16, 7), now);
        assert!(taken(&mut capture).len() < 32);
        // A gap that was filled before it is reported counts once.
        let mut known = Capture::new(16_000, 1);
        known.handle_bytes(&bytes(160, 7), start);
        known.handle_timeout(start + 300 * MS);
        known.handle_xrun(start + 310 * MS);
        known.handle_bytes(&bytes(160, 7), start + 310 * MS);
        assert_eq!(known.counts().gaps, 1);
        assert!(taken(&mut known).len().abs_diff(320 * 16) < 32);
        known.handle_xrun(start + 320 * MS);
        assert_eq!(known.counts().gaps, 2);
    }

    /// A card that is 500 ppm slower or faster than the machine for an hour has no gap.
    #[test]
    fn the_drift_of_a_card_is_no_gap() {
        for ppm in [-500_i64, 500] {
            let start = Instant::now();
            let mut capture = Capture::new(16_000, 1);
            let period = Duration::from_nanos(u64::try_from(10_000_000 - 10 * ppm).expect("positive"));
            for nth in 1..=360_000 {
                let now = start + period * nth;
                capture.handle_timeout(now);
                assert_eq!(capture.reads_at(now), None);
                capture.handle_bytes(&bytes(160, 7), now);
                capture.pcm.clear();
            }
            assert_eq!(capture.counts(), CaptureCounts::default(), "{ppm} ppm");
        }
    }

    /// `arecord -D null` writes as fast as it is read.
    #[test]
    fn a_source_that_is_never_slow_is_read_at_the_speed_of_sound() {
        let start = Instant::now();
        let mut capture = Capture::new(16_000, 1);
        let (mut now, mut samples) = (start, 0);
        while now < start + Duration::from_secs(10) {
            match capture.reads_at(now) {
                Some(at) => now = at,
                None => {
                    capture.handle_bytes(&bytes(2_048, 0), now);
                    samples += 2_048;
                }
            }
        }
        assert!((160_000..175_000).contains(&samples), "{samples}");
    }

    /// A microphone that fails counts once, however often it is started in vain.
    #[test]
    fn a_failure_is_one_gap() {
        let start = Instant::now();
        let mut capture = Capture::new(16_000, 1);
        capture.handle_bytes(&bytes(160, 7), start);
        for _ in 0..3 {
            capture.handle_failure(start);
            capture.handle_restart();
        }
        assert_eq!((capture.counts().gaps, capture.counts().filled), (1, 0));
        // One that fell silent before was counted.
        capture.handle_bytes(&bytes(160, 7), start);
        capture.handle_timeout(start + 300 * MS);
        capture.handle_failure(start + 1_000 * MS);
        assert_eq!(capture.counts().gaps, 2);
    }

    #[test]
    fn a_command_that_starts_again_leaves_no_gap() {
        let start = Instant::now();
        let mut capture = Capture::new(16_000, 1);
        capture.handle_bytes(&[1, 2, 3], start);
        capture.handle_restart();
        assert_eq!(capture.poll_timeout(), None);
        capture.handle_timeout(start + Duration::from_secs(9));
        capture.handle_bytes(&bytes(2, 5), start + Duration::from_secs(9));
        assert_eq!(taken(&mut capture)[1..], [5, 5], "no half sample of before");
        assert_eq!(capture.counts(), CaptureCounts::default());
    }
}
