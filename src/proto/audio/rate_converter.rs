//! An optional [`Resampler`]: passes PCM through if both rates are equal.

use crate::audio::resample::Resampler;

/// Converts a stream of `i16` mono PCM from one rate to another, or to the same one.
///
/// Pieces of any length join without a click. The filter delays the sound by a few milliseconds;
/// [`Wav::resampled`](crate::kit::Wav::resampled) converts a whole sound without a delay.
///
/// ```
/// # use edge_runner_proto::kit::RateConverter;
/// let mut converter = RateConverter::new(8_000, 16_000);
/// let converted: usize = [[100; 80]; 10].iter().map(|piece| converter.convert(piece).len()).sum();
/// assert!((1_550..=1_600).contains(&converted), "{converted}");
/// ```
pub struct RateConverter {
    from_hz: u32,
    to_hz: u32,
    /// Set if the rates differ.
    resampler: Option<Resampler>,
    /// The converted samples; a field to reuse the memory.
    converted: Vec<i16>,
}

impl RateConverter {
    /// Creates a converter between two rates in hertz.
    ///
    /// # Panics
    /// If a rate is 0.
    pub fn new(from_hz: u32, to_hz: u32) -> Self {
        assert!(
            from_hz > 0 && to_hz > 0,
            "cannot convert from {from_hz} Hz to {to_hz} Hz: both rates must be above 0"
        );
        RateConverter {
            from_hz,
            to_hz,
            resampler: (from_hz != to_hz).then(|| Resampler::new(from_hz, to_hz)),
            converted: Vec::new(),
        }
    }

    /// Returns the rate of the input, in Hz.
    pub fn from_hz(&self) -> u32 {
        self.from_hz
    }

    /// Returns the number of input samples that result in at most `output` samples.
    pub fn input_samples(&self, output: usize) -> usize {
        // One sample less: the resampler may return one sample more than the ratio.
        let output = output.saturating_sub(usize::from(self.resampler.is_some())) as u64;
        (output * u64::from(self.from_hz) / u64::from(self.to_hz)) as usize
    }

    /// Returns the next samples at the rate of the output.
    pub fn convert<'a>(&'a mut self, pcm: &'a [i16]) -> &'a [i16] {
        match &mut self.resampler {
            Some(resampler) => {
                self.converted.clear();
                resampler.process(pcm, &mut self.converted);
                &self.converted
            }
            None => pcm,
        }
    }

    /// Forgets the input so far.
    pub fn reset(&mut self) {
        if let Some(resampler) = &mut self.resampler {
            resampler.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rates_pass_through() {
        let mut same = RateConverter::new(8_000, 8_000);
        assert_eq!(same.input_samples(160), 160);
        assert_eq!(same.convert(&[1, 2, 3]), [1, 2, 3]);
    }

    /// A rate of 0 fails where it is given, and not at the first sample.
    #[test]
    fn a_rate_of_zero_is_a_panic_with_a_reason() {
        for (from_hz, to_hz) in [(0, 8_000), (8_000, 0), (0, 0)] {
            let panic = std::panic::catch_unwind(|| RateConverter::new(from_hz, to_hz)).err();
            let text = panic
                .and_then(|panic| panic.downcast::<String>().ok())
                .expect("a panic");
            assert!(text.contains("must be above 0"), "{text}");
        }
    }

    /// The queue behind a converter must never receive more than it has room for.
    #[test]
    fn the_output_never_exceeds_the_capacity() {
        for (from_hz, to_hz) in [(44_100, 48_000), (24_000, 8_000), (8_000, 48_000), (9_999, 24_000)] {
            let mut converter = RateConverter::new(from_hz, to_hz);
            for output in [0, 1, 2, 159, 160, 960, 4_800] {
                let input = vec![1_000; converter.input_samples(output)];
                assert!(
                    converter.convert(&input).len() <= output,
                    "{from_hz} to {to_hz} Hz, {output}"
                );
            }
        }
    }
}
