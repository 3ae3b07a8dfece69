//! The byte order of linear PCM, found by its smoothness.
//!
//! RFC 2586 has L16 in network byte order, and providers that do not document theirs may send it in
//! the other one. Neighbouring samples of speech, and of a quiet line, differ little; with their
//! bytes swapped they differ like noise. In: samples that were read as little-endian. Out: the same
//! in the order that is clearly smoother so far. Once one is far smoother, it is kept for the call.

/// Samples after which the order may be settled: 100 ms at 16 kHz.
const SETTLED_SAMPLES: u64 = 1_600;
/// How much smoother the order has to be then.
const SETTLED_RATIO: u64 = 4;

/// What is known of the order in one call.
#[derive(Debug, Default)]
pub(super) struct ByteOrder {
    samples: u64,
    /// Sums of the differences of neighbouring samples, as they are and swapped.
    roughness: [u64; 2],
    /// Whether the samples are swapped, once that is settled.
    settled: Option<bool>,
}

impl ByteOrder {
    /// Brings samples into the order of the call.
    pub(super) fn correct(&mut self, pcm: &mut [i16]) {
        let is_swapped = self.settled.unwrap_or_else(|| self.judge(pcm));
        if is_swapped {
            pcm.iter_mut().for_each(|sample| *sample = sample.swap_bytes());
        }
    }

    fn judge(&mut self, pcm: &[i16]) -> bool {
        let differs = |one: i16, two: i16| u64::from(one.abs_diff(two));
        for pair in pcm.windows(2) {
            self.roughness[0] += differs(pair[0], pair[1]);
            self.roughness[1] += differs(pair[0].swap_bytes(), pair[1].swap_bytes());
        }
        self.samples += pcm.len() as u64;
        let [plain, swapped] = self.roughness;
        // In doubt, the order is that of the other providers.
        let is_swapped = swapped < plain / 2;
        if self.samples >= SETTLED_SAMPLES && plain.max(swapped) >= SETTLED_RATIO * plain.min(swapped).max(1) {
            self.settled = Some(is_swapped);
            if is_swapped {
                log::info!("the provider sends L16 in network byte order");
            }
        }
        is_swapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tone over noise of this amplitude.
    fn tone(amplitude: f64, noise: i16) -> Vec<i16> {
        let mut state = 1_u32;
        (0..3_200)
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = ((state >> 16) as i32 % (2 * i32::from(noise) + 1) - i32::from(noise)) as i16;
                (amplitude * (f64::from(at) * 0.17).sin()) as i16 + noise
            })
            .collect()
    }

    fn corrected(pcm: &[i16]) -> Vec<i16> {
        let mut order = ByteOrder::default();
        let mut whole = pcm.to_vec();
        whole.chunks_mut(320).for_each(|frame| order.correct(frame));
        whole
    }

    #[test]
    fn either_order_is_understood() {
        for (amplitude, noise) in [(8_000.0, 100), (300.0, 10), (0.0, 3)] {
            let pcm = tone(amplitude, noise);
            let swapped: Vec<i16> = pcm.iter().map(|sample| sample.swap_bytes()).collect();
            assert_eq!(corrected(&pcm), pcm, "{amplitude}");
            assert_eq!(corrected(&swapped), pcm, "{amplitude}");
        }
    }

    #[test]
    fn an_order_is_kept_whatever_follows() {
        let mut order = ByteOrder::default();
        let swapped: Vec<i16> = tone(8_000.0, 100).iter().map(|sample| sample.swap_bytes()).collect();
        order.correct(&mut swapped.clone());
        assert_eq!(order.settled, Some(true));
        let mut click = [0x0100, 0x0200, 0x0100];
        order.correct(&mut click);
        assert_eq!(click, [1, 2, 1]);
    }

    #[test]
    fn silence_and_noise_settle_nothing() {
        for pcm in [vec![0; 16_000], tone(0.0, i16::MAX / 2)] {
            let mut order = ByteOrder::default();
            let mut corrected = pcm.clone();
            order.correct(&mut corrected);
            assert_eq!(order.settled, None);
        }
    }
}
