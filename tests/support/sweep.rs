//! A sweep signal, and the measure of its echo: the delay and the distortion of each piece.
//!
//! The pitch moves between [`LOW_HZ`] and [`HIGH_HZ`], within the telephone band, and its course
//! does not repeat within a quarter of a second. So every piece of 200 ms has a unique place in the
//! sweep, and a lost, duplicated or swapped frame shows as a jump. `i16` mono at any rate that
//! divides [`GRID_HZ`].

use std::f64::consts::TAU;

const LOW_HZ: f64 = 300.0;
const HIGH_HZ: f64 = 3_000.0;
/// Time from the lowest pitch to the highest.
const RISE_S: f64 = 0.25;
const LOUDNESS: f64 = 8_000.0;
/// Fades at both ends, which avoid clicks.
const FADE_S: f64 = 0.01;
/// Sampling rate of the search.
const GRID_HZ: u32 = 96_000;
/// Length of a piece.
const PIECE_S: f64 = 0.2;
/// Search range around the place that the previous piece predicts.
const SEARCH_S: f64 = 0.03;
/// Silence after a sweep, which flushes filters and chunks. At least half of it is received.
const REST_MS: u32 = 100;
/// Largest delay of the first piece: the delay of filters, and after another sweep the rest of its
/// silence.
const LATE_MS_MAX: f64 = 110.0;
/// Silence at the end of a message that is not part of the sweep, which itself is never silent for
/// this long.
const FILL_S: f64 = 0.001;
/// Delays that differ by less are equal.
const EQUAL_MS: f64 = 0.2;

/// A sweep of this many milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    pub ms: u32,
}

/// A piece of the received audio.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its delay relative to the sent audio.
    pub late_ms: f64,
    pub gain: f64,
    /// Its energy over the energy of everything else, in decibels.
    pub clear_db: f64,
}

impl Sweep {
    /// Returns its samples, followed by silence.
    pub fn pcm(self, rate_hz: u32) -> Vec<i16> {
        let samples = (self.ms + REST_MS) * rate_hz / 1_000;
        let at = |n| self.value(f64::from(n) / f64::from(rate_hz)).round() as i16;
        (0..samples).map(at).collect()
    }

    /// The received audio that [`Sweep::follow`] needs for the whole sweep.
    pub fn received_ms(self) -> u32 {
        self.ms + REST_MS / 2
    }

    fn seconds(self) -> f64 {
        f64::from(self.ms) / 1_000.0
    }

    /// Its value `t` seconds after the start.
    fn value(self, t: f64) -> f64 {
        let fade = (t.min(self.seconds() - t) / FADE_S).clamp(0.0, 1.0);
        let span = HIGH_HZ - LOW_HZ;
        let (rounds, within) = ((t / (2.0 * RISE_S)).floor(), t.rem_euclid(2.0 * RISE_S));
        let rising = |t: f64| LOW_HZ * t + span * t * t / (2.0 * RISE_S);
        let turns = if within < RISE_S {
            rising(within)
        } else {
            // The falling half mirrors the rising half.
            2.0 * rising(RISE_S) - rising(2.0 * RISE_S - within)
        };
        // Whole turns cancel; the turns of a round need not be whole.
        LOUDNESS * fade * (TAU * (turns + (rounds * 2.0 * rising(RISE_S)).fract())).sin()
    }

    /// Measures the received audio piece by piece, up to the end of the sweep.
    pub fn follow(self, received: &[i16], rate_hz: u32) -> Vec<Piece> {
        let length = (PIECE_S * f64::from(rate_hz)) as usize;
        let step = (GRID_HZ / rate_hz) as usize;
        let grid: Vec<f64> = (0..(self.seconds() * f64::from(GRID_HZ)) as usize)
            .map(|n| self.value(n as f64 / f64::from(GRID_HZ)))
            .collect();
        let mut late_s = 0.0;
        let mut pieces = Vec::new();
        for (n, piece) in received.chunks_exact(length).enumerate() {
            let began_s = n as f64 * PIECE_S;
            if began_s + PIECE_S - late_s > self.seconds() {
                break;
            }
            let expected = |late_s: f64| ((began_s - late_s) * f64::from(GRID_HZ)).round() as isize;
            // Every fourth sample is enough to find the place.
            let sparse: Vec<i16> = piece.iter().step_by(4).copied().collect();
            let likeness = |late_s: f64| {
                let first = expected(late_s);
                let said = (0..sparse.len()).map(|i| {
                    let at = first + (4 * i * step) as isize;
                    usize::try_from(at)
                        .ok()
                        .and_then(|at| grid.get(at))
                        .copied()
                        .unwrap_or_default()
                });
                compare(&sparse, said).1
            };
            // A coarse search first: a third of a sample at 8 kHz. Then finer ones.
            let steps = |s: f64| (s * f64::from(GRID_HZ) / 4.0) as i32;
            let later = if n == 0 { LATE_MS_MAX / 1_000.0 } else { 0.0 } + SEARCH_S;
            late_s = best(
                (-steps(SEARCH_S)..=steps(later)).map(|k| late_s + f64::from(k) * 4.0 / f64::from(GRID_HZ)),
                likeness,
            );
            let mut width = 4.0 / f64::from(GRID_HZ);
            let exact = |late_s: f64| {
                let said = (0..length).map(|i| self.value(began_s - late_s + i as f64 / f64::from(rate_hz)));
                compare(piece, said).1
            };
            while width > 1e-8 {
                width /= 3.0;
                late_s = best((-3..=3).map(|k| late_s + f64::from(k) * width), exact);
            }
            let said = (0..length).map(|i| self.value(began_s - late_s + i as f64 / f64::from(rate_hz)));
            let (gain, clear_db) = compare(piece, said);
            pieces.push(Piece {
                late_ms: late_s * 1_000.0,
                gain,
                clear_db,
            });
        }
        pieces
    }

    /// Fails unless the whole sweep was received in order, without gaps, at the same level and with
    /// this ratio of signal to distortion. `chunks` are the received messages. A chunk that a bot
    /// on a busy machine could not fill in time ends in silence, which is allowed and left out.
    pub fn assert_received<'c>(self, chunks: impl Iterator<Item = &'c [i16]>, rate_hz: u32, clear_db: f64) {
        let least = (FILL_S * f64::from(rate_hz)) as usize;
        let mut received = Vec::new();
        for chunk in chunks {
            let voice = chunk.iter().rposition(|sample| *sample != 0).map_or(0, |last| last + 1);
            received.extend(if chunk.len() - voice < least {
                chunk
            } else {
                &chunk[..voice]
            });
        }
        let pieces = self.follow(&received, rate_hz);
        let wanted = ((self.seconds() / PIECE_S) as usize - 1).max(1);
        assert!(
            pieces.len() >= wanted,
            "{} pieces of {wanted}: {pieces:#?}",
            pieces.len()
        );
        let first = pieces[0].late_ms;
        assert!(
            (-EQUAL_MS..LATE_MS_MAX).contains(&first),
            "the first piece is {first} ms late: {pieces:#?}"
        );
        for (n, piece) in pieces.iter().enumerate() {
            let whole = (piece.late_ms - first).abs() < EQUAL_MS;
            assert!(
                whole,
                "audio was lost, duplicated or swapped before piece {n}: {pieces:#?}"
            );
            let clear = piece.clear_db > clear_db && (0.95..1.05).contains(&piece.gain);
            assert!(clear, "piece {n} is not clear: {pieces:#?}");
        }
    }
}

/// Returns the gain of the sent audio in the received audio, and its energy over that of the rest
/// in decibels.
fn compare(received: &[i16], said: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut hh, mut hs, mut ss) = (0.0, 0.0, 0.0);
    for (h, s) in received.iter().zip(said) {
        let h = f64::from(*h);
        hh += h * h;
        hs += h * s;
        ss += s * s;
    }
    if hs <= 0.0 || ss <= 0.0 {
        return (0.0, f64::NEG_INFINITY);
    }
    let (gain, like) = (hs / ss, hs * hs / ss);
    (gain, 10.0 * (like / (hh - like).max(1.0)).log10())
}

fn best(candidates: impl Iterator<Item = f64>, likeness: impl Fn(f64) -> f64) -> f64 {
    let rated = candidates.map(|candidate| (likeness(candidate), candidate));
    let best = rated.max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, candidate)| candidate).expect("there are candidates")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: Sweep = Sweep { ms: 1_500 };

    /// Checks audio in messages of 20 ms.
    fn assert_received(received: &[i16], rate_hz: u32, clear_db: f64) {
        SWEEP.assert_received(received.chunks(rate_hz as usize / 50), rate_hz, clear_db);
    }

    #[test]
    fn measures_the_delay_of_a_whole_sweep() {
        for rate_hz in [8_000, 24_000] {
            let mut received = vec![0; rate_hz as usize / 1_000 * 7];
            received.extend(SWEEP.pcm(rate_hz));
            assert_received(&received, rate_hz, 60.0);
            let late_ms = SWEEP.follow(&received, rate_hz)[3].late_ms;
            assert!((late_ms - 7.0).abs() < 0.001, "{late_ms}");
        }
        // A message padded with silence leaves no gap.
        let pcm = SWEEP.pcm(8_000);
        let filled = [&pcm[..4_050], &[0; 110], &pcm[4_050..]].concat();
        assert_received(&filled, 8_000, 60.0);
    }

    #[test]
    fn rejects_gaps_repeats_swaps_noise_and_wrong_levels() {
        let pcm = SWEEP.pcm(8_000);
        let (head, tail) = pcm.split_at(4_000);
        let mut swapped = pcm.clone();
        swapped[4_000..4_320].rotate_left(160);
        let mut faint = pcm.clone();
        faint.iter_mut().for_each(|sample| *sample /= 2);
        let mut noisy = pcm.clone();
        noisy
            .iter_mut()
            .enumerate()
            .for_each(|(n, sample)| *sample += if n * n % 7 < 3 { 300 } else { -300 });
        let torn = [
            [head, &tail[160..]].concat(),
            [head, &pcm[3_840..]].concat(),
            [&head[..3_950], &[0; 110], tail].concat(),
            swapped,
            faint,
            noisy,
            pcm[160..].to_vec(),
            head.to_vec(),
        ];
        for (n, received) in torn.into_iter().enumerate() {
            let whole = std::panic::catch_unwind(|| assert_received(&received, 8_000, 30.0));
            assert!(whole.is_err(), "{n}");
        }
    }
}
