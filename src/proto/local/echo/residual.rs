//! Notices an echo that the canceller does not remove.
//!
//! In: for each block of the canceller the energy of the loudspeaker, and that of the microphone
//! before and behind the canceller. Out: once, that the bot's voice stays in the microphone. A
//! caller who speaks over the bot stays there too, but an echo has the rhythm of the loudspeaker,
//! up to a second later, and a caller has a rhythm of their own.

use std::collections::VecDeque;

use super::CANCELLED_RATE_HZ;

/// Samples of a point: 16 ms.
const POINT_SAMPLES: usize = 256;
/// Points of a second.
const SECOND: usize = CANCELLED_RATE_HZ as usize / POINT_SAMPLES;
/// Points that are judged at a time.
const WINDOW: usize = 4 * SECOND;
/// Points that an echo may be late.
const LAGS: usize = SECOND;
/// Points behind the bot's last sound that belong to it.
const TAIL: usize = SECOND / 2;
/// Energy of a point with sound: -50 dBFS.
const SOUND_ENERGY_MIN: f64 = 100.0 * 100.0 * POINT_SAMPLES as f64;
/// A canceller that works removes more, in dB.
const REMOVED_DB_MIN: f64 = 6.0;
/// The correlation with the loudspeaker from which on the rest is its echo. Two people who speak at
/// the same time stay below it.
const CORRELATION_MIN: f64 = 0.6;
/// Judgements in a row, one each second, after which the canceller has failed.
const FAILED_MAX: usize = 5;

/// The energies of one point.
#[derive(Clone, Copy, Default)]
struct EchoPoint {
    loudspeaker: f64,
    before: f64,
    behind: f64,
}

/// Watches one canceller.
#[derive(Default)]
pub struct ResidualEcho {
    points: VecDeque<EchoPoint>,
    point: EchoPoint,
    /// Samples of `point`.
    samples: usize,
    /// Points since the bot's last sound, and since the last judgement.
    quiet: usize,
    unjudged: usize,
    failed: usize,
    is_reported: bool,
}

impl ResidualEcho {
    /// Handles the energies of a block of this many samples. Returns how much of the echo is
    /// removed, in dB, once that is too little.
    pub fn handle_block(&mut self, samples: usize, loudspeaker: f64, before: f64, behind: f64) -> Option<f64> {
        self.point.loudspeaker += loudspeaker;
        self.point.before += before;
        self.point.behind += behind;
        self.samples += samples;
        if self.samples < POINT_SAMPLES {
            return None;
        }
        self.samples = 0;
        let point = std::mem::take(&mut self.point);
        self.quiet = match point.loudspeaker >= SOUND_ENERGY_MIN {
            true => 0,
            false => self.quiet + 1,
        };
        if self.quiet > TAIL {
            return None;
        }
        if self.points.len() == WINDOW + LAGS {
            self.points.pop_front();
        }
        self.points.push_back(point);
        self.unjudged += 1;
        if self.points.len() < WINDOW + LAGS || self.unjudged < SECOND {
            return None;
        }
        self.unjudged = 0;
        let removed_db = self.judge();
        self.failed = removed_db.map_or(0, |_| self.failed + 1);
        removed_db.filter(|_| self.failed >= FAILED_MAX && !std::mem::replace(&mut self.is_reported, true))
    }

    /// Forgets what was before a loss, which the canceller has to learn from.
    pub fn handle_loss(&mut self) {
        *self = ResidualEcho {
            is_reported: self.is_reported,
            ..ResidualEcho::default()
        };
    }

    /// Returns how much is removed, in dB, if that is too little.
    fn judge(&mut self) -> Option<f64> {
        let points = &*self.points.make_contiguous();
        let window = &points[LAGS..];
        let sounds = window.iter().filter(|point| point.loudspeaker >= SOUND_ENERGY_MIN);
        if 2 * sounds.count() < WINDOW {
            return None;
        }
        let before: f64 = window.iter().map(|point| point.before).sum();
        let behind: f64 = window.iter().map(|point| point.behind).sum();
        let removed_db = 10.0 * (before.max(1.0) / behind.max(1.0)).log10();
        let is_heard = behind >= SOUND_ENERGY_MIN * WINDOW as f64;
        if !is_heard || removed_db >= REMOVED_DB_MIN {
            return None;
        }
        let rest: Vec<f64> = window.iter().map(|point| point.behind.sqrt()).collect();
        let played: Vec<f64> = points.iter().map(|point| point.loudspeaker.sqrt()).collect();
        let is_echo = (0..=LAGS).any(|lag| correlation(&rest, &played[LAGS - lag..]) >= CORRELATION_MIN);
        is_echo.then_some(removed_db)
    }
}

/// Returns the correlation of two series, from -1 to 1, over the length of the first.
fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let count = one.len() as f64;
    let other = &other[..one.len()];
    let mean = |series: &[f64]| series.iter().sum::<f64>() / count;
    let (mean_one, mean_other) = (mean(one), mean(other));
    let (mut both, mut of_one, mut of_other) = (0.0, 0.0, 0.0);
    for (one, other) in one.iter().zip(other) {
        let (one, other) = (one - mean_one, other - mean_other);
        both += one * other;
        of_one += one * one;
        of_other += other * other;
    }
    both / (of_one * of_other).sqrt().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 64;
    const BLOCKS_PER_S: usize = CANCELLED_RATE_HZ as usize / BLOCK;

    /// The amplitude of somebody who speaks, in blocks: syllables and pauses of 50 to 400 ms.
    fn speech(seconds: usize, seed: u32) -> Vec<f64> {
        let mut state = seed;
        let mut next = |most: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % most
        };
        let mut amplitudes = Vec::new();
        while amplitudes.len() < seconds * BLOCKS_PER_S {
            let (length, loudness) = (12 + next(88) as usize, 500.0 + f64::from(next(3_000)));
            let syllable = |at: usize| loudness * (std::f64::consts::PI * at as f64 / length as f64).sin();
            amplitudes.extend((0..length).map(syllable));
            amplitudes.resize(amplitudes.len() + next(40) as usize, 5.0);
        }
        amplitudes
    }

    /// Runs a canceller that leaves this part of the echo's amplitude, in a room where the echo
    /// comes late by some blocks, beside a caller. Returns when it has failed, in seconds.
    fn failures(echo: f64, left: f64, late: usize, caller: &[f64]) -> Vec<usize> {
        let bot = speech(40, 7);
        let mut residual = ResidualEcho::default();
        let energy = |amplitude: f64| amplitude.powi(2) * BLOCK as f64;
        let mut failures = Vec::new();
        for (at, played) in bot.iter().enumerate() {
            let echoed = if at < late { 0.0 } else { echo * bot[at - late] };
            let caller = energy(caller.get(at).copied().unwrap_or(5.0));
            let (before, behind) = (energy(echoed) + caller, energy(left * echoed) + caller);
            let failed = residual.handle_block(BLOCK, energy(*played), before, behind);
            failures.extend(failed.map(|removed_db| {
                assert!(removed_db < REMOVED_DB_MIN, "{removed_db}");
                at / BLOCKS_PER_S
            }));
        }
        failures
    }

    /// Noticed once, after nine seconds of speech, whatever the delay.
    #[test]
    fn an_echo_that_stays_is_noticed_once() {
        for late in [0, BLOCKS_PER_S / 10, BLOCKS_PER_S * 9 / 10] {
            for left in [1.0, 0.6] {
                let failures = failures(0.4, left, late, &[]);
                assert!(matches!(failures[..], [8..=10]), "{late} {left} {failures:?}");
            }
        }
    }

    /// A canceller that works, a headset, and callers who speak over the bot all the time.
    #[test]
    fn nothing_else_is_an_echo() {
        assert!(failures(0.4, 0.05, 25, &[]).is_empty(), "a canceller that works");
        assert!(failures(0.0, 1.0, 0, &[]).is_empty(), "a headset");
        for seed in 100..140 {
            let caller = speech(40, seed);
            assert!(failures(0.0, 1.0, 0, &caller).is_empty(), "a headset, caller {seed}");
            assert!(failures(0.4, 0.05, 25, &caller).is_empty(), "a room, caller {seed}");
        }
    }

    #[test]
    fn a_loss_begins_again() {
        let mut residual = ResidualEcho::default();
        let speech = speech(40, 7);
        for (at, played) in speech.iter().enumerate() {
            if at % (6 * BLOCKS_PER_S) == 0 {
                residual.handle_loss();
            }
            let energy = played.powi(2) * BLOCK as f64;
            assert_eq!(residual.handle_block(BLOCK, energy, energy, energy), None);
        }
    }
}
