//! G.711, the codec of the telephone network: one byte per sample, mu-law or A-law.
//!
//! Converts bytes to `i16` mono PCM at the same rate and back; the rate is usually 8000 Hz. Every
//! byte and every sample is valid; samples louder than the code allows are clipped. The
//! recommendation counts in 14 bits (mu-law) and 13 bits (A-law); here both are scaled to 16.
//! Source: ITU-T G.711 (11/88), tables 1a to 2b.

/// Bias of a mu-law magnitude, with which every segment starts at a power of two: 33 in 14 bits.
const ULAW_BIAS: u16 = 33 << 2;
/// Largest mu-law magnitude: the last interval ends at 8159 in 14 bits.
const ULAW_LOUDEST: u16 = (8159 << 2) - 1;
/// A-law inverts every other bit, so that silence is not a run of zeros.
const ALAW_TURNED: u8 = 0x55;
const SIGN: u8 = 0x80;

const ULAW: [i16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = ulaw_expand(byte as u8);
        byte += 1;
    }
    table
};

const ALAW: [i16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = alaw_expand(byte as u8);
        byte += 1;
    }
    table
};

/// Returns the sample of a mu-law byte.
pub fn ulaw_decode(byte: u8) -> i16 {
    ULAW[usize::from(byte)]
}

/// Returns the mu-law byte of the interval of a sample.
pub fn ulaw_encode(sample: i16) -> u8 {
    let biased = sample.unsigned_abs().min(ULAW_LOUDEST) + ULAW_BIAS;
    // The biased magnitude has one to eight leading zeros: the bias sets the eighth bit, and the
    // clipping clears the first.
    let segment = 8 - biased.leading_zeros();
    let step = (biased >> (segment + 3)) as u8 & 0x0f;
    let sign = if sample < 0 { SIGN } else { 0 };
    !(sign | (segment as u8) << 4 | step)
}

/// Returns the sample of an A-law byte.
pub fn alaw_decode(byte: u8) -> i16 {
    ALAW[usize::from(byte)]
}

/// Returns the A-law byte of the interval of a sample.
pub fn alaw_encode(sample: i16) -> u8 {
    // A-law has no zero: 0 is in the first positive interval, -1 in the first negative one.
    let (magnitude, sign) = if sample < 0 { (!sample, 0) } else { (sample, SIGN) };
    let steps = magnitude as u16 >> 4;
    let segment = 12_u32.saturating_sub(steps.leading_zeros());
    let step = (steps >> segment.saturating_sub(1)) as u8 & 0x0f;
    (sign | (segment as u8) << 4 | step) ^ ALAW_TURNED
}

/// One of the two encoding laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// mu-law, used in North America and Japan.
    Mu,
    /// A-law, used elsewhere.
    A,
}

/// The laws of a telephone line, by direction: a provider may send with one and receive with the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineLaws {
    /// Of the caller's audio.
    pub inbound: Law,
    /// Of the bot's audio.
    pub outbound: Law,
}

impl Law {
    /// Appends the samples of `bytes`.
    pub fn decode(self, bytes: &[u8], pcm: &mut Vec<i16>) {
        match self {
            Law::Mu => pcm.extend(bytes.iter().map(|byte| ulaw_decode(*byte))),
            Law::A => pcm.extend(bytes.iter().map(|byte| alaw_decode(*byte))),
        }
    }

    /// Encodes `pcm` into the front of `block`, up to the shorter length.
    pub fn encode(self, pcm: &[i16], block: &mut [u8]) {
        let pairs = block.iter_mut().zip(pcm);
        match self {
            Law::Mu => pairs.for_each(|(byte, sample)| *byte = ulaw_encode(*sample)),
            Law::A => pairs.for_each(|(byte, sample)| *byte = alaw_encode(*sample)),
        }
    }
}

const fn ulaw_expand(byte: u8) -> i16 {
    let code = !byte;
    let steps = ((code & 0x0f) as u16) << 3;
    let magnitude = ((steps + ULAW_BIAS) << (code >> 4 & 7)) - ULAW_BIAS;
    if code & SIGN != 0 {
        -(magnitude as i16)
    } else {
        magnitude as i16
    }
}

const fn alaw_expand(byte: u8) -> i16 {
    let code = byte ^ ALAW_TURNED;
    // The 8 selects the middle of the interval.
    let steps = ((code & 0x0f) as u16) << 4 | 8;
    let magnitude = match code >> 4 & 7 {
        0 => steps,
        segment => (steps + 256) << (segment - 1),
    };
    if code & SIGN != 0 {
        magnitude as i16
    } else {
        -(magnitude as i16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the positive decision values of tables 2a and 1a. Each pair of `runs` is a number of
    /// intervals and their width, in the scale of the recommendation.
    fn decisions(runs: &[(usize, i32)]) -> Vec<i32> {
        let mut at = 0;
        let mut values = vec![at];
        for (count, width) in runs {
            for _ in 0..*count {
                at += width;
                values.push(at);
            }
        }
        values
    }

    fn ulaw_decisions() -> Vec<i32> {
        decisions(&[
            (1, 1),
            (15, 2),
            (16, 4),
            (16, 8),
            (16, 16),
            (16, 32),
            (16, 64),
            (16, 128),
            (16, 256),
        ])
    }

    fn alaw_decisions() -> Vec<i32> {
        decisions(&[(32, 2), (16, 4), (16, 8), (16, 16), (16, 32), (16, 64), (16, 128)])
    }

    /// Every byte decodes to the middle of its interval; the first of mu-law is zero itself.
    #[test]
    fn decodes_every_byte_to_the_middle_of_its_interval() {
        let (ulaw, alaw) = (ulaw_decisions(), alaw_decisions());
        assert_eq!((ulaw.len(), ulaw[128]), (129, 8159));
        assert_eq!((alaw.len(), alaw[128]), (129, 4096));
        for interval in 0..128_usize {
            let middle = match interval {
                0 => 0,
                _ => (ulaw[interval] + ulaw[interval + 1]) * 4 / 2,
            };
            // Character signals count down from all ones.
            let byte = 0xff - interval as u8;
            assert_eq!(i32::from(ulaw_decode(byte)), middle, "{byte:#04x}");
            assert_eq!(i32::from(ulaw_decode(byte & 0x7f)), -middle, "{byte:#04x}");

            let middle = (alaw[interval] + alaw[interval + 1]) * 8 / 2;
            let byte = (0x80 + interval as u8) ^ 0x55;
            assert_eq!(i32::from(alaw_decode(byte)), middle, "{byte:#04x}");
            assert_eq!(i32::from(alaw_decode(byte ^ 0x80)), -middle, "{byte:#04x}");
        }
    }

    /// The encoder agrees with a linear search through the decision values.
    #[test]
    fn encodes_every_sample_to_its_interval() {
        let search = |values: &[i32], scale: i32, magnitude: i32| {
            let above = values.iter().position(|value| value * scale > magnitude);
            above.map_or(127, |above| above - 1) as u8
        };
        let (ulaw, alaw) = (ulaw_decisions(), alaw_decisions());
        for sample in i16::MIN..=i16::MAX {
            let wide = i32::from(sample);
            let byte = 0xff - search(&ulaw, 4, wide.abs());
            let expected = if sample < 0 { byte & 0x7f } else { byte };
            assert_eq!(ulaw_encode(sample), expected, "mu-law of {sample}");

            let magnitude = if sample < 0 { -1 - wide } else { wide };
            let byte = (0x80 + search(&alaw, 8, magnitude)) ^ 0x55;
            let expected = if sample < 0 { byte ^ 0x80 } else { byte };
            assert_eq!(alaw_encode(sample), expected, "A-law of {sample}");
        }
    }

    /// Values that other implementations publish.
    #[test]
    fn matches_known_values() {
        for (byte, sample) in [
            (0x00, -32_124),
            (0x80, 32_124),
            (0x7f, 0),
            (0xff, 0),
            (0xfe, 8),
            (0x7e, -8),
            (0xce, 988),
        ] {
            assert_eq!(ulaw_decode(byte), sample, "{byte:#04x}");
        }
        for (sample, byte) in [
            (0, 0xff),
            (1000, 0xce),
            (-1000, 0x4e),
            (i16::MAX, 0x80),
            (i16::MIN, 0x00),
        ] {
            assert_eq!(ulaw_encode(sample), byte, "{sample}");
        }
        for (byte, sample) in [
            (0x00, -5504),
            (0x80, 5504),
            (0xd5, 8),
            (0x55, -8),
            (0x2a, -32_256),
            (0xaa, 32_256),
        ] {
            assert_eq!(alaw_decode(byte), sample, "{byte:#04x}");
        }
        for (sample, byte) in [(0, 0xd5), (-1, 0x55), (1000, 0xfa), (i16::MAX, 0xaa), (i16::MIN, 0x2a)] {
            assert_eq!(alaw_encode(sample), byte, "{sample}");
        }
    }

    /// Transcoding twice changes nothing, except that mu-law has two zeros.
    #[test]
    fn transcoding_twice_changes_nothing() {
        for byte in 0..=u8::MAX {
            let once = if byte == 0x7f { 0xff } else { byte };
            assert_eq!(ulaw_encode(ulaw_decode(byte)), once);
            assert_eq!(alaw_encode(alaw_decode(byte)), byte);
        }
        for sample in i16::MIN..=i16::MAX {
            let ulaw = ulaw_decode(ulaw_encode(sample));
            assert_eq!(ulaw_decode(ulaw_encode(ulaw)), ulaw);
            let alaw = alaw_decode(alaw_encode(sample));
            assert_eq!(alaw_decode(alaw_encode(alaw)), alaw);
        }
    }

    #[test]
    fn appends_and_encodes_slices() {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        let mut pcm = vec![7];
        Law::Mu.decode(&bytes, &mut pcm);
        Law::A.decode(&bytes, &mut pcm);
        assert_eq!((pcm.len(), pcm[0], pcm[1], pcm[257]), (513, 7, -32_124, -5504));
        let mut block = [1; 4];
        Law::Mu.encode(&[0, -32_124], &mut block);
        assert_eq!(block, [0xff, 0, 1, 1]);
        Law::A.encode(&[0, -5504, 8], &mut block[..2]);
        assert_eq!(block, [0xd5, 0, 1, 1]);
    }
}
