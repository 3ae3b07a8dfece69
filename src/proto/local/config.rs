//! The settings of the local caller.

use std::time::Duration;

use super::direction::AudioDirection;
use super::kernel::KernelCard;
use super::listing::{CONVERTS, SoundCard};
use super::stop_words::StopWords;
use crate::assistant::services::endpoint::ServiceAuthority;
use crate::features::Feature;
use crate::options::env::Variables;

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

impl LocalConfig {
    /// Says what the default device is, for the devices that no option names.
    #[must_use]
    pub fn with_default(mut self, default: &AlsaDefault) -> LocalConfig {
        for device in [&mut self.input, &mut self.output] {
            device.default = device.default.as_ref().map(|_| default.clone());
        }
        self
    }
}

/// A microphone or a loudspeaker, and the form of its PCM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AudioDevice {
    pub back_end: AudioBackEnd,
    /// Set if no option names the device.
    pub default: Option<AlsaDefault>,
    pub rate_hz: u32,
    pub channels: u16,
}

impl AudioDevice {
    /// Returns the device of ALSA that stands for `default` among these cards, in a direction:
    /// without a sound server it would be the first card, which is a screen on most boards. `None`
    /// where `default` is what it should be.
    pub fn stand_in(
        &self,
        direction: AudioDirection,
        cards: &[SoundCard],
        exists: impl Fn(&str) -> bool,
    ) -> Option<String> {
        if self.default.as_ref()?.is_set(exists) {
            return None;
        }
        let card = KernelCard::first(cards, direction)?;
        Some(format!("{CONVERTS}CARD={},DEV={}", card.id, card.device))
    }
}

/// What makes the `default` device of ALSA more than the first card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlsaDefault {
    /// Whether the environment names a sound server.
    has_server: bool,
    /// The sockets of sound servers, and the settings of ALSA, where there are some.
    files: Vec<String>,
}

impl AlsaDefault {
    /// Takes the variables that clients of sound servers and ALSA read.
    pub fn of(variables: &Variables) -> AlsaDefault {
        let below = |variable, files: &[&str]| -> Vec<String> {
            let folder = variables.literal(variable);
            let paths = folder.map(|folder| files.iter().map(|file| format!("{folder}/{file}")).collect());
            paths.unwrap_or_default()
        };
        let mut files = below("XDG_RUNTIME_DIR", &["pipewire-0", "pulse/native"]);
        files.extend(below("HOME", &[".asoundrc", ".config/alsa/asoundrc"]));
        files.push("/etc/asound.conf".to_owned());
        let servers = ["PULSE_SERVER", "PIPEWIRE_REMOTE"];
        AlsaDefault {
            has_server: servers.iter().any(|server| variables.literal(server).is_some()),
            files,
        }
    }

    fn is_set(&self, exists: impl Fn(&str) -> bool) -> bool {
        self.has_server || self.files.iter().any(|file| exists(file))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::listing::{CardAccess, cards};
    use crate::local::options::LocalOptions;

    const CARDS: &str =
        " 0 [vc4hdmi0       ]: vc4-hdmi - vc4-hdmi-0\n 2 [USB            ]: USB-Audio - Jabra SPEAK 510 USB\n";
    const PCM: &str = "00-00: MAI : MAI : playback 1\n02-00: USB Audio : USB Audio : playback 1 : capture 1\n";

    /// A board has no sound server, and its first card is a screen. A card that is plugged in later
    /// is found then.
    #[test]
    fn a_speakerphone_stands_for_the_default_device_without_a_sound_server() {
        let variables = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Variables::new(pairs, [])
        };
        let board = AlsaDefault::of(&variables(&[
            ("HOME", "/home/pi"),
            ("XDG_RUNTIME_DIR", "/run/user/1000"),
        ]));
        let of = |input: Option<&str>, default: &AlsaDefault| {
            let options = LocalOptions {
                is_on: true,
                input: input.map(str::to_owned),
                ..LocalOptions::default()
            };
            let config = options.resolve(false, &mut Vec::new()).expect("valid").expect("on");
            config.with_default(default)
        };
        let both = cards(CARDS, PCM, |_| CardAccess::Allowed);
        let unnamed = of(None, &board);
        let none = |_: &str| false;
        for (device, direction) in [
            (&unnamed.input, AudioDirection::In),
            (&unnamed.output, AudioDirection::Out),
        ] {
            let usb = Some("plughw:CARD=USB,DEV=0".to_owned());
            assert_eq!(device.stand_in(direction, &both, none), usb);
            assert_eq!(device.stand_in(direction, &[], none), None, "it is unplugged");
            for file in [
                "/run/user/1000/pipewire-0",
                "/run/user/1000/pulse/native",
                "/home/pi/.asoundrc",
                "/etc/asound.conf",
            ] {
                assert_eq!(device.stand_in(direction, &both, |path| path == file), None, "{file}");
            }
        }
        let named = of(Some("default"), &board);
        assert_eq!(
            named.input.stand_in(AudioDirection::In, &both, none),
            None,
            "an option names it"
        );
        let remote = AlsaDefault::of(&variables(&[("PULSE_SERVER", "tcp:pc")]));
        let remote = of(None, &remote);
        assert_eq!(remote.input.stand_in(AudioDirection::In, &both, none), None);
    }
}
