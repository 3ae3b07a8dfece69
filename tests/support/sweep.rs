//! A sweep to say, and the measure of how it came back: how late each piece is, and how much of it is something else.
//!
//! The pitch moves between [`LOW_HZ`] and [`HIGH_HZ`], within the telephone's band, and never has the same course twice within
//! a quarter of a second: so every piece of 200 ms shows where in the sweep it belongs, and one lost, doubled or swapped frame
//! shows as a jump. `i16` mono at any rate that divides [`GRID_HZ`].

use std::f64::consts::TAU;

const LOW_HZ: f64 = 300.0;
const HIGH_HZ: f64 = 3_000.0;
/// From the lowest pitch to the highest.
const RISE_S: f64 = 0.25;
const LOUDNESS: f64 = 8_000.0;
/// Begin and end are soft, so that they have no sound of their own.
const FADE_S: f64 = 0.01;
/// The grid on which a piece is looked for.
const GRID_HZ: u32 = 96_000;
/// Length of a piece.
const PIECE_S: f64 = 0.2;
/// A piece is looked for this far around where it would be had it come like the one before it.
const SEARCH_S: f64 = 0.03;
/// Silence to say behind a sweep: it pushes out what filters and chunks hold back. Half of it is heard for sure.
const REST_MS: u32 = 100;
/// How late the first piece may be: what filters hold back, and behind another sweep what is left of its rest.
const LATE_MS_MAX: f64 = 110.0;
/// Silence at the end of a message that is no part of the sweep; the sweep itself is never silent for so long.
const FILL_S: f64 = 0.001;
/// Two pieces come equally late when they differ by less.
const EQUAL_MS: f64 = 0.2;

/// So many milliseconds of the sweep.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    pub ms: u32,
}

/// One piece of what was heard.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// How much later in what was heard it stands than in what was said.
    pub late_ms: f64,
    pub gain: f64,
    /// Its energy over that of everything else, in decibels.
    pub clear_db: f64,
}

impl Sweep {
    /// Makes it, with silence behind it.
    pub fn pcm(self, rate_hz: u32) -> Vec<i16> {
        let samples = (self.ms + REST_MS) * rate_hz / 1_000;
        let at = |n| self.value(f64::from(n) / f64::from(rate_hz)).round() as i16;
        (0..samples).map(at).collect()
    }

    /// How much has to be heard before it can be followed to its end.
    pub fn heard_ms(self) -> u32 {
        self.ms + REST_MS / 2
    }

    fn seconds(self) -> f64 {
        f64::from(self.ms) / 1_000.0
    }

    /// Its value `t` seconds after its begin.
    fn value(self, t: f64) -> f64 {
        let fade = (t.min(self.seconds() - t) / FADE_S).clamp(0.0, 1.0);
        let span = HIGH_HZ - LOW_HZ;
        let (rounds, within) = ((t / (2.0 * RISE_S)).floor(), t.rem_euclid(2.0 * RISE_S));
        let rising = |t: f64| LOW_HZ * t + span * t * t / (2.0 * RISE_S);
        let turns = if within < RISE_S {
            rising(within)
        } else {
            // The way down mirrors the way up.
            2.0 * rising(RISE_S) - rising(2.0 * RISE_S - within)
        };
        // Whole turns leave no trace, but those of a round need not be whole.
        LOUDNESS * fade * (TAU * (turns + (rounds * 2.0 * rising(RISE_S)).fract())).sin()
    }

    /// Looks at `heard` piece by piece, as far as the sweep goes.
    pub fn follow(self, heard: &[i16], rate_hz: u32) -> Vec<Piece> {
        let length = (PIECE_S * f64::from(rate_hz)) as usize;
        let step = (GRID_HZ / rate_hz) as usize;
        let grid: Vec<f64> = (0..(self.seconds() * f64::from(GRID_HZ)) as usize)
            .map(|n| self.value(n as f64 / f64::from(GRID_HZ)))
            .collect();
        let mut late_s = 0.0;
        let mut pieces = Vec::new();
        for (n, piece) in heard.chunks_exact(length).enumerate() {
            let began_s = n as f64 * PIECE_S;
            if began_s + PIECE_S - late_s > self.seconds() {
                break;
            }
            let expected = |late_s: f64| ((began_s - late_s) * f64::from(GRID_HZ)).round() as isize;
            // Every fourth sample shows the place as well as all of them do.
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
            // First by thirds of a sample at 8 kHz, then ever finer.
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

    /// Fails unless all of it was heard, in order, from its first moment on, without a tear, as loud as it was said and this
    /// clear. `chunks` are the messages that came. One that a bot on a busy machine could not fill in time ends in silence;
    /// that is legal, and left out.
    pub fn assert_heard<'c>(self, chunks: impl Iterator<Item = &'c [i16]>, rate_hz: u32, clear_db: f64) {
        let least = (FILL_S * f64::from(rate_hz)) as usize;
        let mut heard = Vec::new();
        for chunk in chunks {
            let voice = chunk.iter().rposition(|sample| *sample != 0).map_or(0, |last| last + 1);
            heard.extend(if chunk.len() - voice < least {
                chunk
            } else {
                &chunk[..voice]
            });
        }
        let pieces = self.follow(&heard, rate_hz);
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
                "something was lost, doubled or swapped before piece {n}: {pieces:#?}"
            );
            let clear = piece.clear_db > clear_db && (0.95..1.05).contains(&piece.gain);
            assert!(clear, "piece {n} is not clear: {pieces:#?}");
        }
    }
}

/// Gain of what was said in what was heard, and its energy over that of the rest in decibels.
fn compare(heard: &[i16], said: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut hh, mut hs, mut ss) = (0.0, 0.0, 0.0);
    for (h, s) in heard.iter().zip(said) {
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

    /// What was heard, in messages of 20 ms.
    fn assert_heard(heard: &[i16], rate_hz: u32, clear_db: f64) {
        SWEEP.assert_heard(heard.chunks(rate_hz as usize / 50), rate_hz, clear_db);
    }

    #[test]
    fn a_whole_sweep_is_found_and_how_late_it_is() {
        for rate_hz in [8_000, 24_000] {
            let mut heard = vec![0; rate_hz as usize / 1_000 * 7];
            heard.extend(SWEEP.pcm(rate_hz));
            assert_heard(&heard, rate_hz, 60.0);
            let late_ms = SWEEP.follow(&heard, rate_hz)[3].late_ms;
            assert!((late_ms - 7.0).abs() < 0.001, "{late_ms}");
        }
        // A message that was filled up leaves no tear.
        let pcm = SWEEP.pcm(8_000);
        let filled = [&pcm[..4_050], &[0; 110], &pcm[4_050..]].concat();
        assert_heard(&filled, 8_000, 60.0);
    }

    /// What it is for.
    #[test]
    fn what_is_torn_is_not_whole() {
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
        for (n, heard) in torn.into_iter().enumerate() {
            let whole = std::panic::catch_unwind(|| assert_heard(&heard, 8_000, 30.0));
            assert!(whole.is_err(), "{n}");
        }
    }
}
