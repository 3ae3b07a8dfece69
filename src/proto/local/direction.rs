//! The two directions of audio: from a microphone, and to a loudspeaker.

/// A direction of audio, of a command or a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioDirection {
    /// From the microphone.
    In,
    /// To the loudspeaker.
    Out,
}

impl AudioDirection {
    /// Returns what the command works with, for a sentence.
    pub fn name(self) -> &'static str {
        match self {
            AudioDirection::In => "microphone",
            AudioDirection::Out => "loudspeaker",
        }
    }

    /// Returns the option that names the command.
    pub fn option(self) -> &'static str {
        match self {
            AudioDirection::In => "--local-in",
            AudioDirection::Out => "--local-out",
        }
    }

    /// Returns the program of ALSA.
    pub fn alsa_program(self) -> &'static str {
        match self {
            AudioDirection::In => "arecord",
            AudioDirection::Out => "aplay",
        }
    }
}
