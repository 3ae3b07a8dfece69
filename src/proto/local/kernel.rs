//! Sound cards without ALSA's programs: the PCM interface of Linux.
//!
//! In: the text of an option, such as `kernel:CARD=USB,DEV=0`, and the files of `/proc/asound`.
//! Out: the file of a device. [`params`] has what the kernel is asked and answers, [`negotiation`]
//! chooses the form of the PCM from what a card has, [`frames`] converts between that form and
//! mono PCM, and [`transfer`] says when an open card is read and written.
//! Source: `include/uapi/sound/asound.h` of Linux.

pub mod frames;
pub mod negotiation;
pub mod params;
pub mod transfer;

use std::fmt;

use super::direction::AudioDirection;
use super::listing::{KERNEL_PREFIX, SoundCard, first_device};

/// Letters of the id of a card: 15 in the kernel.
const ID_BYTES_MAX: usize = 32;

/// A device of a sound card that is opened without ALSA's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCard {
    /// The id of the card, such as `USB`, or its number.
    pub id: String,
    pub device: u32,
}

impl KernelCard {
    /// Reads `CARD=ID,DEV=N` or `ID,N`, each with or without the device, which is 0 then.
    pub fn parse(text: &str) -> Option<KernelCard> {
        let (id, device) = match text.split_once(',') {
            Some((id, device)) => (id, device.strip_prefix("DEV=").unwrap_or(device)),
            None => (text, "0"),
        };
        let id = id.strip_prefix("CARD=").unwrap_or(id);
        let is_id = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        if id.is_empty() || id.len() > ID_BYTES_MAX || !id.chars().all(is_id) {
            return None;
        }
        Some(KernelCard {
            id: id.to_owned(),
            device: device.parse().ok()?,
        })
    }

    /// Returns the device for one direction of a machine whose settings name none.
    pub fn first(cards: &[SoundCard], direction: AudioDirection) -> Option<KernelCard> {
        let (card, device) = first_device(cards, direction)?;
        let id = card.id.clone();
        Some(KernelCard { id, device })
    }

    /// Returns which of the cards it is.
    pub fn find<'a>(&self, cards: &'a [SoundCard]) -> Option<&'a SoundCard> {
        let number = self.id.parse();
        let is_it = |card: &&SoundCard| card.id == self.id || number == Ok(card.number);
        cards.iter().find(is_it)
    }

    /// Returns the path of its file; `None` if none of the cards is this one.
    pub fn path(&self, cards: &[SoundCard], direction: AudioDirection) -> Option<String> {
        let card = self.find(cards)?.number;
        let letter = match direction {
            AudioDirection::In => 'c',
            AudioDirection::Out => 'p',
        };
        Some(format!("/dev/snd/pcmC{card}D{}{letter}", self.device))
    }
}

/// As an option names it.
impl fmt::Display for KernelCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KERNEL_PREFIX}CARD={},DEV={}", self.id, self.device)
    }
}

/// Why a card does not work, in the words of ALSA's programs where they have some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardError {
    /// No such card, or no such device of it.
    Missing,
    /// Another program has it open.
    Busy,
    /// It was unplugged.
    Unplugged,
    /// This user may not open it.
    Denied,
    /// It has none of the formats that the runner converts.
    Format,
    /// It has none of the rates that the runner converts, but those between two, in Hz.
    Rate(u32, u32),
    /// What the system says.
    Other(String),
}

impl fmt::Display for CardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CardError::Missing => f.write_str("No such file or directory"),
            CardError::Busy => f.write_str("Device or resource busy"),
            CardError::Unplugged => f.write_str("No such device"),
            CardError::Denied => f.write_str("Permission denied"),
            CardError::Format => f.write_str(
                "its formats are none of S16_LE, S32_LE and S24_3LE; take the card by plughw: with the package alsa-utils",
            ),
            CardError::Rate(least, most) => write!(
                f,
                "it takes {least} to {most} Hz, but none of 16000, 48000, 44100 and 32000 Hz; name its rate with --local-rate"
            ),
            CardError::Other(words) => f.write_str(words),
        }
    }
}

#[cfg(test)]
mod tests;
