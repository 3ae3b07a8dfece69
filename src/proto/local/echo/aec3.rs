//! A canceller of the echo: AEC3 of WebRTC.
//!
//! For each block of the microphone one block of the loudspeaker is taken, by count and not by
//! time: a card with one clock for both then has one delay between them, however the machine is
//! scheduled, and the canceller finds it. Where samples were lost the count is off, so that it
//! learns again ([`EchoCanceller::handle_loss`]).

use std::collections::VecDeque;

use sonora_aec3::block::Block;
use sonora_aec3::block_processor::BlockProcessor;
use sonora_aec3::config::EchoCanceller3Config;

use super::residual::ResidualEcho;
use super::{CANCELLED_RATE_HZ, EchoCanceller, EchoFigures};
use crate::audio::rate_converter::RateConverter;

/// Samples of a block: 4 ms.
const BLOCK_SAMPLES: usize = 64;
/// Sound of the loudspeaker from which the canceller learns the room. Before, some echo passes.
const LEARNING_SAMPLES: usize = 2 * CANCELLED_RATE_HZ as usize;
/// A block of the loudspeaker at this level, as a sum of squares, is sound: -50 dBFS.
const SOUND_ENERGY_MIN: u64 = 100 * 100 * BLOCK_SAMPLES as u64;
/// A microphone at this level is overdriven.
const SATURATED: u16 = 32_000;
/// Written sound that is always ahead of the microphone: above that, an echo would come before its
/// cause.
const AHEAD_MAX: usize = 60 * CANCELLED_RATE_HZ as usize / 1_000;
/// What is left ahead.
const AHEAD: usize = 40 * CANCELLED_RATE_HZ as usize / 1_000;
/// Blocks over which the sound ahead is watched: 1 s.
const WATCHED_BLOCKS: usize = CANCELLED_RATE_HZ as usize / BLOCK_SAMPLES;

/// The canceller, with its queues.
pub struct Aec3 {
    processor: BlockProcessor,
    from_microphone: RateConverter,
    from_loudspeaker: RateConverter,
    /// Written to the loudspeaker, and not taken.
    written: VecDeque<i16>,
    recorded: VecDeque<i16>,
    cancelled: Vec<i16>,
    loudspeaker: Block,
    microphone: Block,
    /// The least that was ahead in how many blocks.
    watched: (usize, usize),
    /// Samples with sound since the last loss, and in all.
    learned: usize,
    sounded: u64,
    residual: ResidualEcho,
    /// How much is removed, in dB, since that is too little.
    failure: Option<f64>,
}

impl Aec3 {
    /// Returns a canceller for a microphone and a loudspeaker with these rates.
    pub fn new(in_rate_hz: u32, out_rate_hz: u32) -> Self {
        let config = EchoCanceller3Config::default();
        Aec3 {
            processor: BlockProcessor::new(&config, CANCELLED_RATE_HZ as usize, 1, 1),
            from_microphone: RateConverter::new(in_rate_hz, CANCELLED_RATE_HZ),
            from_loudspeaker: RateConverter::new(out_rate_hz, CANCELLED_RATE_HZ),
            written: VecDeque::new(),
            recorded: VecDeque::new(),
            cancelled: Vec::new(),
            loudspeaker: Block::new(1, 1),
            microphone: Block::new(1, 1),
            watched: (usize::MAX, 0),
            learned: 0,
            sounded: 0,
            residual: ResidualEcho::default(),
            failure: None,
        }
    }

    fn cancel_block(&mut self) {
        let (mut energy, written) = (0_u64, self.loudspeaker.view_mut(0, 0));
        if self.written.len() < BLOCK_SAMPLES {
            // The microphone is ahead: the sound of this time comes later.
            written.fill(0.0);
        } else {
            for (sample, value) in written.iter_mut().zip(self.written.drain(..BLOCK_SAMPLES)) {
                energy += u64::from(value.unsigned_abs()).pow(2);
                *sample = f32::from(value);
            }
        }
        let (mut is_saturated, mut before) = (false, 0_u64);
        let recorded = self.microphone.view_mut(0, 0);
        for (sample, value) in recorded.iter_mut().zip(self.recorded.drain(..BLOCK_SAMPLES)) {
            is_saturated |= value.unsigned_abs() >= SATURATED;
            before += u64::from(value.unsigned_abs()).pow(2);
            *sample = f32::from(value);
        }
        self.processor.buffer_render(&self.loudspeaker);
        self.processor
            .process_capture(false, is_saturated, None, &mut self.microphone);
        let cancelled = self.microphone.view(0, 0).iter();
        // A cast of a float saturates.
        self.cancelled.extend(cancelled.map(|sample| sample.round() as i16));
        if energy >= SOUND_ENERGY_MIN {
            self.learned += BLOCK_SAMPLES;
            self.sounded += BLOCK_SAMPLES as u64;
        }
        if self.has_learned() {
            let behind = self.microphone.view(0, 0).iter();
            let behind: f64 = behind.map(|sample| f64::from(*sample).powi(2)).sum();
            let failure = self
                .residual
                .handle_block(BLOCK_SAMPLES, energy as f64, before as f64, behind);
            self.failure = self.failure.or(failure);
        } else {
            self.residual.handle_loss();
        }
        self.watch_lead();
    }

    /// Leaves out what is too far ahead: it was written while the microphone rested, or the clock
    /// of the microphone is slower.
    fn watch_lead(&mut self) {
        let (least, blocks) = &mut self.watched;
        *least = self.written.len().min(*least);
        *blocks += 1;
        if *blocks < WATCHED_BLOCKS {
            return;
        }
        if *least > AHEAD_MAX {
            self.written.drain(..*least - AHEAD);
            // The delay between both is another one now.
            self.learned = 0;
        }
        self.watched = (usize::MAX, 0);
    }
}

impl EchoCanceller for Aec3 {
    fn handle_written(&mut self, pcm: &[i16]) {
        self.written.extend(self.from_loudspeaker.convert(pcm));
        // Without a microphone nothing is taken.
        let surplus = self.written.len().saturating_sub(CANCELLED_RATE_HZ as usize);
        if surplus > 0 {
            self.written.drain(..surplus);
            self.handle_loss();
        }
    }

    fn handle_loss(&mut self) {
        self.learned = 0;
    }

    fn has_learned(&self) -> bool {
        self.learned >= LEARNING_SAMPLES
    }

    fn cancel(&mut self, pcm: &[i16]) -> &[i16] {
        self.cancelled.clear();
        self.recorded.extend(self.from_microphone.convert(pcm));
        while self.recorded.len() >= BLOCK_SAMPLES {
            self.cancel_block();
        }
        &self.cancelled
    }

    fn poll_failure(&mut self) -> Option<f64> {
        self.failure.take()
    }

    fn figures(&self) -> EchoFigures {
        let metrics = self.processor.get_metrics();
        EchoFigures {
            removed_db: metrics.echo_return_loss_enhancement,
            delay_ms: metrics.delay_ms,
            sound_s: self.sounded / u64::from(CANCELLED_RATE_HZ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 160;
    const SECOND: usize = CANCELLED_RATE_HZ as usize;

    /// Numbers from -1 to 1 that are the same in each run.
    struct Noise(u32);

    impl Noise {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(self.0 >> 8) / f64::from(1 << 23) - 1.0
        }
    }

    /// Syllables of noise: four per second, with a colour of speech.
    fn speech(samples: usize, seed: u32) -> Vec<i16> {
        let (mut noise, mut low) = (Noise(seed), 0.0);
        let mut level = 0.0;
        (0..samples)
            .map(|at| {
                if at % (SECOND / 4) == 0 {
                    level = 3_000.0 + 3_000.0 * noise.next();
                }
                low = 0.8 * low + 0.6 * noise.next();
                let phase = (at % (SECOND / 4)) as f64 / (SECOND / 4) as f64;
                (level * low * (std::f64::consts::PI * phase).sin()) as i16
            })
            .collect()
    }

    /// The impulse response of a room: a delay of 70 ms, then 60 ms of echoes that decay.
    fn room() -> Vec<f64> {
        let mut noise = Noise(7);
        let (delay, length) = (SECOND * 70 / 1_000, SECOND * 60 / 1_000);
        let decay = |at: usize| 0.25 * (-6.0 * at as f64 / length as f64).exp();
        let echoes = (0..length).map(|at| decay(at) * noise.next());
        std::iter::repeat_n(0.0, delay).chain(echoes).collect()
    }

    /// What the microphone hears of the loudspeaker, with the hiss of a quiet room.
    fn echo(played: &[i16]) -> Vec<i16> {
        let (room, mut noise) = (room(), Noise(3));
        (0..played.len())
            .map(|at| {
                let taps = room.iter().enumerate().take(at + 1).skip(SECOND * 70 / 1_000);
                let sum: f64 = taps.map(|(back, tap)| tap * f64::from(played[at - back])).sum();
                (sum + 3.0 * noise.next()) as i16
            })
            .collect()
    }

    fn level_db(pcm: &[i16]) -> f64 {
        let sum: f64 = pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        10.0 * (sum / pcm.len() as f64 + 1e-9).log10()
    }

    /// Writes 60 ms ahead, as the playout does, and records in pieces of 10 ms.
    fn run(canceller: &mut Aec3, played: &[i16], recorded: &[i16]) -> Vec<i16> {
        let mut cancelled = Vec::new();
        let mut written = 0;
        for (at, piece) in recorded.chunks(BLOCK).enumerate() {
            let ahead = (at * BLOCK + 6 * BLOCK).min(played.len());
            if ahead >= written + 2 * BLOCK {
                canceller.handle_written(&played[written..ahead]);
                written = ahead;
            }
            cancelled.extend_from_slice(canceller.cancel(piece));
        }
        cancelled
    }

    /// The bot does not hear itself, and hears the caller once it is silent.
    #[test]
    fn the_echo_is_removed_and_the_caller_is_not() {
        let mut played = speech(8 * SECOND, 1);
        played.resize(12 * SECOND, 0);
        let mut recorded = echo(&played);
        let caller = speech(2 * SECOND, 99);
        for (sample, voice) in recorded[9 * SECOND..].iter_mut().zip(&caller) {
            *sample += voice / 4;
        }
        let mut canceller = Aec3::new(CANCELLED_RATE_HZ, CANCELLED_RATE_HZ);
        let cancelled = run(&mut canceller, &played, &recorded);
        assert_eq!(cancelled.len(), recorded.len() - recorded.len() % BLOCK_SAMPLES);
        let removed = |from: usize, to: usize| level_db(&recorded[from..to]) - level_db(&cancelled[from..to]);
        assert!(
            removed(3 * SECOND, 8 * SECOND) > 20.0,
            "{}",
            removed(3 * SECOND, 8 * SECOND)
        );
        let caller_lost = removed(9 * SECOND, 11 * SECOND);
        assert!(caller_lost.abs() < 2.0, "{caller_lost}");
        let figures = canceller.figures();
        assert!(
            figures.removed_db > 6.0 && (7..=8).contains(&figures.sound_s),
            "{figures:?}"
        );
    }

    /// An echo that comes later than the canceller searches, as from a loudspeaker of Bluetooth, is
    /// not removed; that of a room is.
    #[test]
    fn an_echo_that_is_not_removed_is_noticed() {
        let played = speech(20 * SECOND, 1);
        let mut late = vec![0; SECOND * 8 / 10];
        late.extend(played.iter().map(|sample| sample / 2));
        let failures_of = |recorded: &[i16]| {
            let mut canceller = Aec3::new(CANCELLED_RATE_HZ, CANCELLED_RATE_HZ);
            run(&mut canceller, &played, recorded);
            [canceller.poll_failure(), canceller.poll_failure()]
        };
        let failures = failures_of(&late);
        assert!(
            matches!(failures, [Some(removed_db), None] if removed_db < 6.0),
            "{failures:?}"
        );
        assert_eq!(failures_of(&echo(&played[..15 * SECOND])), [None, None]);
    }

    /// Until two seconds of sound, and after a loss, its result is not to be trusted.
    #[test]
    fn it_learns_at_first_and_after_a_loss() {
        let played = speech(3 * SECOND, 1);
        let recorded = echo(&played);
        let mut canceller = Aec3::new(CANCELLED_RATE_HZ, CANCELLED_RATE_HZ);
        run(&mut canceller, &vec![0; 3 * SECOND], &vec![5; 3 * SECOND]);
        assert!(!canceller.has_learned(), "from silence");
        run(&mut canceller, &played[..SECOND], &recorded[..SECOND]);
        assert!(!canceller.has_learned());
        run(&mut canceller, &played, &recorded);
        assert!(canceller.has_learned());
        canceller.handle_loss();
        assert!(!canceller.has_learned());
        run(&mut canceller, &played, &recorded);
        assert!(canceller.has_learned());
    }

    /// What is left out changes the delay, which is to be found again.
    #[test]
    fn it_learns_again_after_it_left_something_out() {
        let played = speech(6 * SECOND, 1);
        let recorded = echo(&played);
        let mut canceller = Aec3::new(CANCELLED_RATE_HZ, CANCELLED_RATE_HZ);
        run(&mut canceller, &played[..4 * SECOND], &recorded[..4 * SECOND]);
        assert!(canceller.has_learned());
        // The microphone has lost 100 ms.
        canceller.handle_written(&played[4 * SECOND..4 * SECOND + SECOND / 10]);
        run(
            &mut canceller,
            &played[4 * SECOND..],
            &recorded[4 * SECOND..5 * SECOND + BLOCK_SAMPLES],
        );
        assert!(
            canceller.written.len() < AHEAD_MAX + 2 * BLOCK,
            "{}",
            canceller.written.len()
        );
        assert!(!canceller.has_learned());
    }

    /// Rates differ from the canceller's, and a second without a microphone stays bounded.
    #[test]
    fn any_rates_and_a_microphone_that_rests() {
        let mut canceller = Aec3::new(48_000, 44_100);
        for _ in 0..500 {
            canceller.handle_written(&[1_000; 882]);
        }
        assert!(canceller.written.len() <= SECOND);
        let mut samples = 0;
        for _ in 0..200 {
            canceller.handle_written(&[1_000; 441]);
            samples += canceller.cancel(&[1_000; 480]).len();
        }
        assert!((2 * SECOND - 400..=2 * SECOND).contains(&samples), "{samples}");
        assert!(
            canceller.written.len() <= AHEAD_MAX + 2 * BLOCK,
            "{}",
            canceller.written.len()
        );
    }
}
