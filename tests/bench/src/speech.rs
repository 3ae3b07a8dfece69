//! Speech of the callers, as Opus packets of 20 ms, and the detection of bursts in the echo.
//!
//! [`voice`] costs a codec as much as real speech: voiced syllables with harmonics up to 8 kHz,
//! hissing consonants, short pauses. It is encoded like in a browser, from 48 kHz at 32 kb/s with
//! in-band FEC. [`Bursts`] are loud bursts in digital silence. PCM is `i16` mono.

use std::f64::consts::TAU;

use edge_runner_proto::audio::opus::{Decoder, Encoder, EncoderSettings};
use opus_pure::{Application, OpusEncoder, Signal};

use crate::Result;

pub const BROWSER_RATE_HZ: u32 = 48_000;
/// The echo bot's rate.
const RATE_HZ: u32 = 16_000;
const FRAME: usize = RATE_HZ as usize / 50;
/// A frame above this mean square is loud: far above the noise of a codec in silence, far below a
/// burst.
const LOUD_POWER: f64 = 100.0 * 100.0;
/// Length of a burst in packets.
const BURST: usize = 4;
/// Shortest pause between bursts in packets. Pauses vary, so that bursts meet every phase of
/// periodic processes.
const PAUSE_MIN: usize = 9;
const PAUSES: usize = 7;

/// Returns `seconds` of speech as packets.
pub fn voice(seconds: usize) -> Result<Vec<Vec<u8>>> {
    encode_as_browser(&pcm(seconds))
}

/// Returns `seconds` of speech as samples at 48 kHz.
pub fn pcm(seconds: usize) -> Vec<i16> {
    pcm_at(BROWSER_RATE_HZ, BROWSER_RATE_HZ as usize * seconds)
}

/// Returns so many samples of speech at a rate.
pub fn pcm_at(rate_hz: u32, samples: usize) -> Vec<i16> {
    let mut noise = 1_u32;
    (0..samples)
        .map(|at| {
            // A linear congruential generator, upper half: the hiss of consonants.
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            sample(at as f64 / f64::from(rate_hz), f64::from((noise >> 16) as i16))
        })
        .collect()
}

/// Encodes packets of 20 ms like a browser.
pub fn encode_as_browser(pcm: &[i16]) -> Result<Vec<Vec<u8>>> {
    let mut encoder = OpusEncoder::new(BROWSER_RATE_HZ as i32, 1, Application::Voip)?;
    encoder.signal_type = Some(Signal::Voice);
    encoder.bitrate_bps = 32_000;
    encoder.complexity = 9;
    encoder.use_inband_fec = true;
    encoder.packet_loss_perc = 5;
    let frame = BROWSER_RATE_HZ as usize / 50;
    pcm.chunks_exact(frame)
        .map(|pcm| {
            let mut packet = vec![0; 1_275];
            let bytes = encoder.encode_s16(pcm, frame, &mut packet)?;
            packet.truncate(bytes);
            Ok(packet)
        })
        .collect()
}

/// Returns the sample at `t` seconds: four syllables per second, each a hiss of 60 ms and a vowel,
/// with a pause in every fifth.
fn sample(t: f64, noise: f64) -> i16 {
    let (syllable, at) = ((t * 4.0) as u32, (t * 4.0).fract());
    if syllable % 5 == 4 {
        return 0;
    }
    if at < 0.24 {
        return (noise * 0.04) as i16;
    }
    // The pitch falls over each syllable, and the formants of the vowels differ.
    let pitch_hz = 110.0 + f64::from(syllable % 3) * 25.0;
    let phase = TAU * (pitch_hz * t - 6.0 * at * at / 4.0);
    let formants = [
        (500.0 + f64::from(syllable % 4) * 120.0, 1.0),
        (1_400.0, 0.5),
        (2_600.0, 0.25),
        (5_000.0, 0.05),
    ];
    let sum: f64 = (1..=60)
        .map(|n| {
            let hz = pitch_hz * f64::from(n);
            let gain: f64 = formants
                .iter()
                .map(|(at, gain)| gain / (1.0 + ((hz - at) / 130.0_f64).powi(2)))
                .sum();
            gain * (phase * f64::from(n)).sin()
        })
        .sum();
    let envelope = (TAU / 2.0 * (at - 0.24) / 0.76).sin();
    (4_000.0 * sum * envelope) as i16
}

/// Packets of silence with loud bursts.
pub struct Bursts {
    pub packets: Vec<Vec<u8>>,
    /// For each burst, the packet after which the echo may be loud.
    pub begins: Vec<usize>,
}

impl Bursts {
    /// Returns `count` bursts; `seed` varies the pauses.
    pub fn new(count: usize, seed: usize) -> Result<Bursts> {
        let mut encoder = Encoder::new(RATE_HZ, EncoderSettings::default())?;
        let mut packets = Vec::new();
        for burst in 0..count {
            let silence = PAUSE_MIN + (burst * 5 + seed * 3) % PAUSES;
            for at in 0..silence + BURST {
                let loud = at >= silence;
                let pcm: [i16; FRAME] = std::array::from_fn(|i| {
                    let t = i as f64 / f64::from(RATE_HZ);
                    if loud {
                        (12_000.0 * (TAU * 400.0 * t).sin()) as i16
                    } else {
                        0
                    }
                });
                packets.push(encode(&mut encoder, &pcm)?);
            }
        }
        // The look-ahead of the codec, some milliseconds, may move a burst to the next packet. The
        // same chain of codecs without a runner shows which packet of the echo to expect.
        let mut decoder = Decoder::new(RATE_HZ)?;
        let mut encoder = Encoder::new(RATE_HZ, EncoderSettings::default())?;
        let answers = packets
            .iter()
            .map(|packet| encode(&mut encoder, decoder.decode(packet)?))
            .collect::<Result<Vec<_>>>()?;
        let begins = onsets(&answers)?;
        if begins.len() != count {
            return Err(format!("{} of {count} bursts are loud after two codecs", begins.len()).into());
        }
        Ok(Bursts { packets, begins })
    }
}

fn encode(encoder: &mut Encoder, pcm: &[i16]) -> Result<Vec<u8>> {
    let mut packet = vec![0; 1_275];
    let bytes = encoder.encode(pcm, &mut packet)?;
    packet.truncate(bytes);
    Ok(packet)
}

/// Decodes packets in order and returns those in which a loud burst begins after silence.
pub fn onsets<P: AsRef<[u8]>>(packets: &[P]) -> Result<Vec<usize>> {
    let mut decoder = Decoder::new(RATE_HZ)?;
    let mut was_loud = false;
    let mut found = Vec::new();
    for (at, packet) in packets.iter().enumerate() {
        let pcm = decoder.decode(packet.as_ref())?;
        let power = pcm.iter().map(|&sample| f64::from(sample).powi(2)).sum::<f64>() / pcm.len().max(1) as f64;
        let loud = power > LOUD_POWER;
        if loud && !was_loud {
            found.push(at);
        }
        was_loud = loud;
    }
    Ok(found)
}
