//! Looks for the microphones and loudspeakers of this machine: `--local-list`, and the settings
//! page.
//!
//! In: `arecord -L`, `aplay -L`, and the files of the kernel. Out: the text, or JSON, and what is
//! missing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::card::cards;
use super::commands::{OutputError, output_of};
use crate::proto::local::direction::AudioDirection;
use crate::proto::local::listing::{self, DeviceOwner, NamedDevices, SoundCard, SoundSystem};

/// Time in which ALSA's program lists its devices: one asks the sound server.
const LISTED_WITHIN: Duration = Duration::from_secs(5);
/// The same while the page waits.
const DESCRIBED_WITHIN: Duration = Duration::from_secs(2);

/// Returns a text with the devices, and what is missing. A sound server has its socket in
/// `runtime_folder`, or is named by `server`.
pub async fn list(runtime_folder: Option<&str>, server: Option<&str>) -> (String, Vec<String>) {
    let sockets = ["pipewire-0", "pulse/native"].into_iter();
    let mut sockets = sockets.filter_map(|socket| Some(Path::new(runtime_folder?).join(socket)));
    let has_server = server.is_some() || sockets.any(|socket| socket.exists());
    let system = system(has_server, &[], LISTED_WITHIN).await;
    (system.text(), system.problems())
}

/// Returns the devices for the settings page. ALSA's programs do not get the variables that are
/// `withheld`.
pub async fn describe(withheld: &[String]) -> Value {
    system(false, withheld, DESCRIBED_WITHIN).await.describe()
}

async fn system(has_server: bool, withheld: &[String], within: Duration) -> SoundSystem {
    let cards = cards();
    let (microphones, loudspeakers) = tokio::join!(
        named(AudioDirection::In, withheld, within),
        named(AudioDirection::Out, withheld, within)
    );
    SoundSystem {
        has_server,
        is_linux: cfg!(target_os = "linux"),
        microphones,
        loudspeakers,
        owners: owners(&cards),
        cards,
    }
}

async fn named(direction: AudioDirection, withheld: &[String], within: Duration) -> NamedDevices {
    let words = [direction.alsa_program().to_owned(), "-L".to_owned()];
    match timeout(within, output_of(&words, withheld)).await {
        Ok(Ok(text)) => NamedDevices::Listed(text),
        Ok(Err(OutputError::NotInstalled)) => NamedDevices::NotInstalled,
        Ok(Err(OutputError::Failed(why))) => NamedDevices::Failed(why),
        Err(_) => NamedDevices::Failed(format!("no answer in {within:?}")),
    }
}

/// Returns the programs that have devices open.
fn owners(cards: &[SoundCard]) -> Vec<DeviceOwner> {
    let mut owners = Vec::new();
    for card in cards {
        for device in &card.devices {
            for (direction, letter) in [(AudioDirection::In, 'c'), (AudioDirection::Out, 'p')] {
                let (card, device) = (card.number, device.number);
                let status = format!("/proc/asound/card{card}/pcm{device}{letter}/sub0/status");
                let id = fs::read_to_string(status)
                    .ok()
                    .and_then(|status| listing::owner_of(&status));
                if let Some(id) = id {
                    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
                    owners.push(DeviceOwner {
                        card,
                        device,
                        direction,
                        program: format!("{} ({id})", name.trim()),
                    });
                }
            }
        }
    }
    owners
}
