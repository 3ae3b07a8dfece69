//! The settings of the local caller.

use std::time::Duration;

use super::kernel::KernelCard;
use super::stop_words::StopWords;
use crate::assistant::services::endpoint::ServiceAuthority;
use crate::features::Feature;

/// The settings of `--local`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalConfig {
    /// Whether the caller types at the terminal, without a sound card.
    pub types: bool,
    /// The microphone.
    pub input: AudioDevice,
    /// The loudspeaker.
    pub output: AudioDevice,
    /// When a session begins; `None` means [`LocalStart::Always`] on a terminal, else
    /// [`LocalStart::Speech`].
    pub start: Option<LocalStart>,
    /// The service for wake words; `None` without [`LocalStart::Wake`].
    pub wake: Option<WakeConfig>,
    /// Silence of both sides that ends a session; zero never does. `None` means that of the start.
    pub end: Option<Duration>,
    /// What the caller says to end a session.
    pub stop_words: StopWords,
    /// What keeps the bot from hearing itself.
    pub echo: LocalEcho,
    /// Whether tones tell the start and the end of a session; `None` means with
    /// [`LocalStart::Wake`].
    pub tones: Option<bool>,
    /// Files of devices whose keys are read.
    pub keys: Vec<String>,
    /// The volume at the start, in percent.
    pub volume_percent: u8,
    /// The program, with its arguments, that is run with the name of each new state.
    pub hook: Option<Vec<String>>,
    /// The name of one of several bots; `None` means the default.
    pub bot: Option<String>,
}

/// A microphone or a loudspeaker, and the form of its PCM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AudioDevice {
    pub back_end: AudioBackEnd,
    pub rate_hz: u32,
    pub channels: u16,
}

/// What reads or plays PCM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AudioBackEnd {
    /// A program and its arguments.
    Command(Vec<String>),
    /// A card that is opened without a program. Its PCM is mono.
    Kernel(KernelCard),
}

impl AudioBackEnd {
    /// Returns the program, or the card as an option names it.
    pub fn name(&self) -> String {
        match self {
            AudioBackEnd::Command(words) => words.first().cloned().unwrap_or_default(),
            AudioBackEnd::Kernel(card) => card.to_string(),
        }
    }
}

/// A service for wake words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakeConfig {
    pub server: ServiceAuthority,
    /// The wake words; none means those that the service has loaded.
    pub words: Vec<String>,
}

/// When a session of the local caller begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalStart {
    /// At once, and again after the end of each session.
    Always,
    /// When somebody speaks.
    Speech,
    /// With a line on the terminal.
    Key,
    /// With a wake word, or a line on the terminal.
    Wake,
}

impl LocalStart {
    /// The names of `--local-start`.
    pub const NAMES: [&'static str; 4] = ["always", "speech", "key", "wake"];

    /// Returns the start of this name.
    pub fn from_name(name: &str) -> Option<LocalStart> {
        match name {
            "always" => Some(LocalStart::Always),
            "speech" => Some(LocalStart::Speech),
            "key" => Some(LocalStart::Key),
            "wake" => Some(LocalStart::Wake),
            _ => None,
        }
    }

    /// Returns the silence that ends a session without `--local-end`. A session that would begin
    /// again at once has no reason to end.
    pub fn end_default(self) -> Duration {
        match self {
            LocalStart::Always => Duration::ZERO,
            LocalStart::Speech | LocalStart::Key | LocalStart::Wake => Duration::from_secs(8),
        }
    }
}

/// What keeps the bot from hearing itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalEcho {
    /// The sound of the loudspeaker is removed from the microphone. A build without the feature
    /// `aec` takes [`LocalEcho::Half`] in its place.
    Cancel,
    /// The microphone is silent for the bot while the loudspeaker plays, and shortly after.
    Half,
    /// Nothing: a speakerphone cancels its own echo, and a headset has none.
    Off,
}

/// The best that this build has.
impl Default for LocalEcho {
    fn default() -> Self {
        match Feature::Aec.in_this_build() {
            true => LocalEcho::Cancel,
            false => LocalEcho::Half,
        }
    }
}
