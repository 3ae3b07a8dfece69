//! The test of the sound card that a page asks for: a tone, a recording, and its playback.
//!
//! In: the form of the PCM of both devices, what the microphone recorded, or why one failed; of a
//! board without settings, its cards. Out: the PCM to play, and a [`SoundReport`]: the level that
//! was received, and a sentence that says what to do. Each step has a time in which it ends.

use std::time::Duration;

use super::command::alsa_command;
use super::config::{AudioBackEnd, AudioDevice};
use super::direction::AudioDirection;
use super::kernel::KernelCard;
use super::listing::{CONVERTS, SoundCard};
use super::supervision::{CommandFailure, Supervision};
use crate::audio::note::note;
use crate::audio::resample::Resampler;

/// Time in which the tone is played.
pub const TONE_WITHIN: Duration = Duration::from_millis(1_500);
/// Time in which [`recorded_bytes`] are recorded: 3 s, and the start of the command.
pub const RECORDED_WITHIN: Duration = Duration::from_secs(4);
/// Time in which the recording is played.
pub const PLAYED_WITHIN: Duration = Duration::from_secs(4);

/// The rate of a board without settings, in hertz: the default of `--local-rate`.
const BOARD_RATE_HZ: u32 = 16_000;
/// Length of the recording, in seconds.
const RECORDED_S: u32 = 3;
/// The tone: frequency in hertz, length in seconds, and peak, which is quieter than speech.
const TONE: (f32, f32, f32) = (660.0, 0.4, 3_000.0);
/// What a card clicks when it is opened is no part of the level: milliseconds.
const OPENED_MS: u32 = 300;
/// A microphone below this is muted: -60 dBFS. Rooms are louder.
const SILENT_BELOW: u16 = 33;
/// Speech is louder than this: -40 dBFS.
const QUIET_BELOW: u16 = 328;
/// A sample of this size or more is at the end of the range.
const CLIPPED_FROM: u16 = 32_700;
/// Such samples, of which fewer are a peak that just fits.
const CLIPPED_MIN: usize = 8;

/// What the test has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SoundState {
    Ok,
    /// The sound was fainter than speech.
    Quiet,
    /// The microphone sent silence.
    Silent,
    /// The sound was louder than the microphone can say.
    Clipped,
    /// A command failed.
    Failed,
}

/// What the page shows of the test.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SoundReport {
    pub state: SoundState,
    /// The level of the loudest sample, in decibels below full scale, without a constant offset;
    /// `None` for digital silence, and without a recording.
    pub peak_dbfs: Option<f64>,
    pub text: String,
}

impl SoundReport {
    /// Returns what the page shows of a command that failed.
    pub fn of_failure(supervision: &Supervision, failure: &CommandFailure) -> SoundReport {
        let name = supervision.direction().name();
        let words = supervision.last_words().unwrap_or_default();
        let says = |any: &[&str]| any.iter().any(|each| words.contains(each));
        let text = if says(&["resource busy"]) {
            format!("Another program uses the {name}. End that program, and test again.")
        } else if says(&["Permission denied"]) {
            format!(
                "This program may not use the {name}: its user needs the group audio, and as a service hardware.conf."
            )
        } else if says(&["No such file", "No such device", "cannot find card", "Unknown PCM"]) {
            return SoundReport::of_missing(supervision.direction());
        } else if says(&["Host is down", "Connection refused"]) {
            format!("The {name} needs a sound server, which does not run.")
        } else {
            format!("The {name} does not work: {}.", supervision.describe(failure))
        };
        SoundReport::failed(text)
    }

    /// Returns what the page shows of a machine without this direction.
    fn of_missing(direction: AudioDirection) -> SoundReport {
        let name = direction.name();
        SoundReport::failed(format!(
            "There is no such {name}, or it was unplugged. Plug one in, such as a USB speakerphone, and test again."
        ))
    }

    fn failed(text: String) -> SoundReport {
        SoundReport {
            state: SoundState::Failed,
            peak_dbfs: None,
            text,
        }
    }

    /// Adds the devices that were tested, for a board whose settings do not name them yet.
    #[must_use]
    pub fn with_devices(self, input: &str, output: &str) -> SoundReport {
        let text = format!("{} Tested: microphone {input}, loudspeaker {output}.", self.text);
        SoundReport { text, ..self }
    }
}

/// The device for one direction of a board whose settings name none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardDevice {
    /// How an option names it.
    pub name: String,
    pub device: AudioDevice,
}

impl BoardDevice {
    /// Takes the first card that has this direction, by ALSA's program if it is installed. That
    /// program also knows sound servers, without a card.
    ///
    /// # Errors
    /// What the page shows of a board that has neither card nor program.
    pub fn of(cards: &[SoundCard], direction: AudioDirection, has_program: bool) -> Result<BoardDevice, SoundReport> {
        let card = KernelCard::first(cards, direction);
        let (name, back_end) = match card {
            Some(card) if !has_program => (card.to_string(), AudioBackEnd::Kernel(card)),
            None if !has_program => return Err(SoundReport::of_missing(direction)),
            card => {
                let named = |card: KernelCard| format!("{CONVERTS}CARD={},DEV={}", card.id, card.device);
                let name = card.map_or_else(|| "default".to_owned(), named);
                let command = alsa_command(direction, &name, BOARD_RATE_HZ, 1);
                (name, AudioBackEnd::Command(command))
            }
        };
        let device = AudioDevice {
            back_end,
            default: None,
            rate_hz: BOARD_RATE_HZ,
            channels: 1,
        };
        Ok(BoardDevice { name, device })
    }
}

/// Returns the tone for a loudspeaker, louder or fainter by `gain`.
pub fn tone(output: &AudioDevice, gain: f32) -> Vec<u8> {
    let (hz, seconds, peak) = TONE;
    let tone: Vec<i16> = note(output.rate_hz, hz, seconds, peak).collect();
    bytes(&tone, output, gain)
}

/// Returns the length of the recording in bytes.
pub fn recorded_bytes(input: &AudioDevice) -> usize {
    (RECORDED_S * input.rate_hz) as usize * 2 * usize::from(input.channels)
}

/// What was recorded.
pub struct Recording {
    /// The first channel.
    pcm: Vec<i16>,
    rate_hz: u32,
}

impl Recording {
    /// Reads what the command of a microphone wrote.
    pub fn new(bytes: &[u8], input: &AudioDevice) -> Recording {
        let frames = bytes.chunks_exact(2 * usize::from(input.channels).max(1));
        Recording {
            pcm: frames.map(|frame| i16::from_le_bytes([frame[0], frame[1]])).collect(),
            rate_hz: input.rate_hz,
        }
    }

    /// Returns its PCM for a loudspeaker, louder or fainter by `gain`.
    pub fn playback(&self, output: &AudioDevice, gain: f32) -> Vec<u8> {
        if self.rate_hz == output.rate_hz {
            return bytes(&self.pcm, output, gain);
        }
        let mut pcm = Vec::new();
        Resampler::new(self.rate_hz, output.rate_hz).process(&self.pcm, &mut pcm);
        bytes(&pcm, output, gain)
    }

    /// Returns what the page shows of it.
    pub fn report(&self) -> SoundReport {
        let opened = (self.rate_hz * OPENED_MS / 1_000) as usize;
        let pcm = self.pcm.get(opened..).unwrap_or_default();
        let sum: i64 = pcm.iter().copied().map(i64::from).sum();
        let offset = sum.checked_div(pcm.len() as i64).unwrap_or_default() as i32;
        let deviation = |sample: &i16| (i32::from(*sample) - offset).unsigned_abs();
        let peak = pcm.iter().map(deviation).max().unwrap_or_default();
        let clipped = pcm
            .iter()
            .filter(|sample| sample.unsigned_abs() >= CLIPPED_FROM)
            .count();
        let peak_dbfs = (peak > 0).then(|| {
            let dbfs = 20.0 * (f64::from(peak) / 32_768.0).log10();
            // Not the zero that has a sign.
            (dbfs.min(0.0) * 10.0).round() / 10.0 + 0.0
        });
        let (state, what) = if peak < SILENT_BELOW.into() {
            (
                SoundState::Silent,
                "The microphone sends silence. It is muted, mostly by a key of its own, or in alsamixer.",
            )
        } else if clipped >= CLIPPED_MIN {
            (
                SoundState::Clipped,
                "The sound is too loud for the microphone, and distorted. Lower the microphone in alsamixer, or speak from \
                 further away.",
            )
        } else if peak < QUIET_BELOW.into() {
            (
                SoundState::Quiet,
                "No voice was received. Speak after the tone; if you did, raise the microphone in alsamixer.",
            )
        } else {
            (
                SoundState::Ok,
                "The microphone works. If the tone and then your voice were audible, the loudspeaker works too.",
            )
        };
        let level = peak_dbfs.map_or_else(String::new, |dbfs| format!(" Loudest sound: {dbfs:.1} dBFS."));
        SoundReport {
            state,
            peak_dbfs,
            text: format!("{what}{level}"),
        }
    }
}

/// Returns PCM as bytes for all channels of a loudspeaker.
fn bytes(pcm: &[i16], output: &AudioDevice, gain: f32) -> Vec<u8> {
    let frame = |sample: &i16| {
        let sample = (f32::from(*sample) * gain) as i16;
        std::iter::repeat_n(sample.to_le_bytes(), output.channels.into())
    };
    pcm.iter().flat_map(frame).flatten().collect()
}

#[cfg(test)]
mod tests;
