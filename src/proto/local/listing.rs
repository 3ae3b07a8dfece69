//! The microphones and loudspeakers of this machine, with the words to type: `--local-list`.
//!
//! In: what `arecord -L` and `aplay -L` print, and files of `/proc/asound`. Out: a text with one
//! line per device, or JSON for a page, and what is missing. ALSA lists tens of names for one card:
//! those that convert to any rate, and the ways to a sound server, are shown. The kernel knows
//! cards that ALSA's programs cannot open; without these programs, the runner opens cards itself.

use serde_json::{Value, json};

use super::direction::AudioDirection;

/// Names of ALSA that lead to a sound server, or to what the machine is set to.
const SERVERS: [&str; 4] = ["default", "pipewire", "pulse", "jack"];
/// The prefix of devices of ALSA that convert rates, formats and channels.
pub const CONVERTS: &str = "plughw:";
/// How the text of an option begins that names a card of the kernel.
pub const KERNEL_PREFIX: &str = "kernel:";
/// Lines of one direction.
const DEVICES_MAX: usize = 64;
/// Width of the names, so that the descriptions begin below each other.
const NAME_WIDTH: usize = 40;

/// What one of ALSA's programs says of its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedDevices {
    Listed(String),
    /// The program is not installed.
    NotInstalled,
    /// It has failed, for this reason.
    Failed(String),
}

/// Whether this user may use a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardAccess {
    Allowed,
    Denied,
    /// The card has no device file.
    Hidden,
}

/// A device that a program has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOwner {
    pub card: u32,
    pub device: u32,
    pub direction: AudioDirection,
    /// The program, such as `pipewire (812)`.
    pub program: String,
}

/// What the system knows of its sound cards.
#[derive(Clone, Debug)]
pub struct SoundSystem {
    pub is_linux: bool,
    /// Whether a sound server runs, or one of another machine is named.
    pub has_server: bool,
    /// The output of `arecord -L`.
    pub microphones: NamedDevices,
    /// The output of `aplay -L`.
    pub loudspeakers: NamedDevices,
    /// The cards of the kernel.
    pub cards: Vec<SoundCard>,
    pub owners: Vec<DeviceOwner>,
}

/// A card of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoundCard {
    pub number: u32,
    pub id: String,
    pub name: String,
    pub access: CardAccess,
    pub devices: Vec<CardDevice>,
}

/// A device of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardDevice {
    pub number: u32,
    pub name: String,
    pub records: bool,
    pub plays: bool,
}

impl CardDevice {
    fn has(&self, direction: AudioDirection) -> bool {
        match direction {
            AudioDirection::In => self.records,
            AudioDirection::Out => self.plays,
        }
    }
}

/// Reads `/proc/asound/cards` and `/proc/asound/pcm`. The access to each card is that of `access`.
pub fn cards(cards: &str, pcm: &str, access: impl Fn(u32) -> CardAccess) -> Vec<SoundCard> {
    let lines = cards.lines().take(DEVICES_MAX);
    lines.filter_map(|line| card(line, pcm, &access)).collect()
}

/// Reads a line such as ` 1 [USB            ]: USB-Audio - Jabra SPEAK 510 USB`.
fn card(line: &str, pcm: &str, access: impl Fn(u32) -> CardAccess) -> Option<SoundCard> {
    let (number, rest) = line.split_once('[')?;
    let (id, rest) = rest.split_once(']')?;
    let number = number.trim().parse().ok()?;
    let name = rest.split_once(" - ").map_or("", |(_, name)| name);
    let devices = pcm.lines().take(DEVICES_MAX);
    Some(SoundCard {
        number,
        id: id.trim().to_owned(),
        name: name.trim().to_owned(),
        access: access(number),
        devices: devices.filter_map(|line| device(line, number)).collect(),
    })
}

/// Reads a line of this card such as `01-00: USB Audio : USB Audio : playback 1 : capture 1`.
fn device(line: &str, card: u32) -> Option<CardDevice> {
    let mut fields = line.split(':').map(str::trim);
    let (of_card, number) = fields.next()?.split_once('-')?;
    if of_card.parse() != Ok(card) {
        return None;
    }
    let id = fields.next().unwrap_or_default();
    let name = fields.next().filter(|name| !name.is_empty()).unwrap_or(id);
    let rest: Vec<&str> = fields.collect();
    let has = |direction: &str| rest.iter().any(|field| field.starts_with(direction));
    Some(CardDevice {
        number: number.parse().ok()?,
        name: name.to_owned(),
        records: has("capture"),
        plays: has("playback"),
    })
}

/// Returns the card for one direction of a machine whose settings name none, and the number of its
/// device: the first card which both records and plays, as speakerphones do, else the first that
/// has this direction.
pub fn first_device(cards: &[SoundCard], direction: AudioDirection) -> Option<(&SoundCard, u32)> {
    fn find(card: &SoundCard, direction: AudioDirection) -> Option<(&SoundCard, u32)> {
        let device = card.devices.iter().find(|device| device.has(direction))?;
        Some((card, device.number))
    }
    let is_both = |card: &&SoundCard| {
        let both = [AudioDirection::In, AudioDirection::Out];
        both.into_iter().all(|direction| find(card, direction).is_some())
    };
    let first = cards.iter().find(is_both).and_then(|card| find(card, direction));
    first.or_else(|| cards.iter().find_map(|card| find(card, direction)))
}

/// Reads the process that has a device open from its `status` file.
pub fn owner_of(status: &str) -> Option<u32> {
    let owner = status.lines().find(|line| line.starts_with("owner_pid"))?;
    owner.split_once(':')?.1.trim().parse().ok()
}

/// A device with the words to type.
struct ListedDevice {
    name: String,
    what: String,
}

impl ListedDevice {
    /// Returns what it is. Names of cards are those of the device that was plugged in.
    fn shown(&self) -> String {
        self.what.chars().filter(|letter| !letter.is_control()).collect()
    }
}

/// Returns the devices that `-L` lists, without those that only experts type.
fn named(text: &str) -> Vec<ListedDevice> {
    let mut devices: Vec<ListedDevice> = Vec::new();
    let mut is_shown = false;
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            is_shown = SERVERS.contains(&line) || line.starts_with(CONVERTS);
            if is_shown {
                devices.push(ListedDevice {
                    name: line.to_owned(),
                    what: String::new(),
                });
            }
        } else if let Some(device) = devices.last_mut().filter(|_| is_shown) {
            // The second line of each device that converts says so.
            if device.what.is_empty() {
                line.trim().clone_into(&mut device.what);
            }
        }
    }
    devices.truncate(DEVICES_MAX);
    devices
}

impl SoundSystem {
    fn named(&self, direction: AudioDirection) -> &NamedDevices {
        match direction {
            AudioDirection::In => &self.microphones,
            AudioDirection::Out => &self.loudspeakers,
        }
    }

    /// Whether a card has this direction.
    fn has_card(&self, direction: AudioDirection) -> bool {
        let mut devices = self.cards.iter().flat_map(|card| &card.devices);
        devices.any(|device| device.has(direction))
    }

    /// Returns the devices of one direction: those that ALSA's program lists, and those that only
    /// the kernel knows.
    fn devices(&self, direction: AudioDirection) -> Vec<ListedDevice> {
        let mut devices = match self.named(direction) {
            NamedDevices::Listed(text) => named(text),
            NamedDevices::NotInstalled | NamedDevices::Failed(_) => Vec::new(),
        };
        let prefix = match self.named(direction) {
            NamedDevices::NotInstalled => KERNEL_PREFIX,
            NamedDevices::Listed(_) | NamedDevices::Failed(_) => CONVERTS,
        };
        for card in &self.cards {
            let of_direction = card.devices.iter().filter(|device| device.has(direction));
            for device in of_direction {
                let name = format!("{prefix}CARD={},DEV={}", card.id, device.number);
                let at = devices.iter().position(|listed| listed.name == name);
                let at = at.unwrap_or_else(|| {
                    let what = format!("{}, {}", card.name, device.name);
                    devices.push(ListedDevice { name, what });
                    devices.len() - 1
                });
                let owner = self.owners.iter().find(|owner| {
                    (owner.card, owner.device, owner.direction) == (card.number, device.number, direction)
                });
                if let Some(owner) = owner {
                    devices[at].what.push_str(&format!("; open in {}", owner.program));
                }
            }
        }
        devices.truncate(DEVICES_MAX);
        devices
    }

    /// Returns the devices, one per line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for direction in [AudioDirection::In, AudioDirection::Out] {
            let heading = match direction {
                AudioDirection::In => "Microphones",
                AudioDirection::Out => "Loudspeakers",
            };
            text.push_str(&format!("{heading}:\n"));
            let devices = self.devices(direction);
            if devices.is_empty() {
                text.push_str("  none\n");
            }
            for device in devices {
                let typed = format!("{} {}", direction.option(), device.name);
                text.push_str(format!("  {typed:NAME_WIDTH$} {}", device.shown()).trim_end());
                text.push('\n');
            }
        }
        text
    }

    /// Returns the devices for the settings page, and what keeps this user from them.
    pub fn describe(&self) -> Value {
        let of = |direction| -> Value {
            let devices = self.devices(direction).into_iter();
            devices
                .map(|device| json!({"name": device.name, "what": device.shown()}))
                .collect()
        };
        json!({
            "in": of(AudioDirection::In),
            "out": of(AudioDirection::Out),
            "problems": self.denials(),
        })
    }

    /// Returns which cards this user may not open, and what to do about it.
    fn denials(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let of = |access| {
            let cards = self.cards.iter().filter(move |card| card.access == access);
            cards.map(|card| card.id.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (denied, hidden) = (of(CardAccess::Denied), of(CardAccess::Hidden));
        if !denied.is_empty() {
            problems.push(format!(
                "this user may not open {denied}; add it to the group audio (sudo usermod -aG audio USER), and log in \
                 again"
            ));
        }
        if !hidden.is_empty() {
            problems.push(format!(
                "{hidden} has no file in /dev/snd: a container or a unit of systemd hides it"
            ));
        }
        problems
    }

    /// Returns what is missing, and what to do about it.
    pub fn problems(&self) -> Vec<String> {
        if !self.is_linux && self.microphones == NamedDevices::NotInstalled {
            return vec![
                "this system has no ALSA; name a command for the microphone with --local-in, and one for the \
                 loudspeaker with --local-out"
                    .into(),
            ];
        }
        let mut problems = Vec::new();
        for direction in [AudioDirection::In, AudioDirection::Out] {
            let program = direction.alsa_program();
            match self.named(direction) {
                // Nothing else has the card open.
                NamedDevices::NotInstalled if self.has_card(direction) && !self.has_server => {}
                NamedDevices::NotInstalled => {
                    problems.push(format!("`{program}` is not installed; install the package alsa-utils"));
                }
                NamedDevices::Failed(why) => problems.push(format!("`{program} -L` has failed: {why}")),
                NamedDevices::Listed(_) => {}
            }
        }
        problems.extend(self.denials());
        for direction in [AudioDirection::In, AudioDirection::Out] {
            let is_listed = matches!(self.named(direction), NamedDevices::Listed(_));
            let converts = || {
                let mut devices = self.devices(direction).into_iter();
                devices.any(|device| device.name.starts_with(CONVERTS))
            };
            if is_listed && !self.has_server && !converts() {
                problems.push(format!(
                    "there is no {}: no sound server runs, and no card has one (/proc/asound/cards)",
                    direction.name()
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests;
