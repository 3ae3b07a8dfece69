//! Checks the microphone and the loudspeaker of `--local`, without opening them.
//!
//! In: the settings, which programs of ALSA are installed, and the cards of the kernel. Out:
//! findings. Other commands are not judged.

use super::config::{AudioBackEnd, AudioDevice, LocalConfig};
use super::direction::AudioDirection;
use super::kernel::KernelCard;
use super::listing::{CardAccess, SoundCard};
use crate::doctor::Finding;

const WHAT: &str = "sound card";

/// Checks both directions. `is_installed` finds a program.
pub fn examine(config: &LocalConfig, cards: &[SoundCard], is_installed: impl Fn(&str) -> bool) -> Vec<Finding> {
    if config.types {
        return Vec::new();
    }
    let both = [
        (&config.input, AudioDirection::In),
        (&config.output, AudioDirection::Out),
    ];
    let judged = both.map(|(device, direction)| problem(device, direction, cards, &is_installed));
    match judged {
        [None, None] => vec![Finding::ok(
            WHAT,
            "microphone and loudspeaker can be opened by what they name",
        )],
        problems => {
            let problems = problems.into_iter().flatten();
            problems.map(|problem| Finding::error(WHAT, problem)).collect()
        }
    }
}

fn problem(
    device: &AudioDevice,
    direction: AudioDirection,
    cards: &[SoundCard],
    is_installed: impl Fn(&str) -> bool,
) -> Option<String> {
    let (option, name) = (direction.option(), direction.name());
    match &device.back_end {
        AudioBackEnd::Command(words) => {
            let program = direction.alsa_program();
            if words.first().is_none_or(|first| first != program) || is_installed(program) {
                return None;
            }
            Some(match KernelCard::first(cards, direction) {
                Some(card) => format!(
                    "no {name}: `{program}` is not installed; install the package alsa-utils, or name the card with {option} \
                     {card}"
                ),
                None => format!(
                    "no {name}: `{program}` is not installed, and no card has a {name}; plug one in, and install the package \
                     alsa-utils"
                ),
            })
        }
        AudioBackEnd::Kernel(card) => match card.find(cards).map(|card| card.access) {
            Some(CardAccess::Allowed) => None,
            Some(CardAccess::Denied) => Some(format!(
                "no {name}: this user may not open {card}; add it to the group audio (sudo usermod -aG audio USER), and \
                 log in again"
            )),
            Some(CardAccess::Hidden) => Some(format!(
                "no {name}: {card} has no file in /dev/snd: a container or a unit of systemd hides it"
            )),
            None => Some(format!("no {name}: there is no {card}; `--local-list` lists the cards")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;
    use crate::local::listing::cards;
    use crate::local::options::LocalOptions;

    const CARDS: &str = " 2 [USB            ]: USB-Audio - Jabra SPEAK 510 USB\n";
    const PCM: &str = "02-00: USB Audio : USB Audio : playback 1 : capture 1\n";

    fn config(input: Option<&str>, output: Option<&str>) -> LocalConfig {
        let options = LocalOptions {
            is_on: true,
            input: input.map(str::to_owned),
            output: output.map(str::to_owned),
            ..LocalOptions::default()
        };
        let config = options.resolve(false, &mut Vec::new()).expect("valid");
        config.expect("it is on")
    }

    fn found(config: &LocalConfig, access: CardAccess, cards_text: &str, is_installed: bool) -> Vec<Finding> {
        let cards = cards(cards_text, PCM, |_| access);
        examine(config, &cards, |program| {
            is_installed && matches!(program, "arecord" | "aplay")
        })
    }

    #[test]
    fn a_board_without_alsa_utils_has_a_card_to_name() {
        let config = config(None, None);
        let findings = found(&config, CardAccess::Allowed, CARDS, false);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings.iter().all(|finding| finding.level == FindingLevel::Error));
        let ends = "`aplay` is not installed; install the package alsa-utils, or name the card with --local-out \
                    kernel:CARD=USB,DEV=0";
        assert!(findings[1].text.ends_with(ends), "{findings:?}");
        let findings = found(&config, CardAccess::Allowed, "", false);
        assert!(findings[0].text.contains("no card has a microphone"), "{findings:?}");
        let findings = found(&config, CardAccess::Allowed, "", true);
        assert_eq!(findings[0].level, FindingLevel::Ok);
        let mut typing = config;
        typing.types = true;
        assert_eq!(found(&typing, CardAccess::Allowed, "", false), []);
    }

    #[test]
    fn other_commands_are_not_judged() {
        let config = config(Some("pw-record -"), Some("/opt/player"));
        assert_eq!(
            found(&config, CardAccess::Allowed, "", false)[0].level,
            FindingLevel::Ok
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_card_without_a_program_is_there_and_may_be_opened() {
        let config = config(Some("kernel:CARD=USB"), Some("kernel:CARD=USB"));
        for (access, cards, words) in [
            (CardAccess::Allowed, CARDS, None),
            (CardAccess::Denied, CARDS, Some("the group audio")),
            (CardAccess::Hidden, CARDS, Some("hides it")),
            (CardAccess::Allowed, "", Some("there is no kernel:CARD=USB,DEV=0; ")),
        ] {
            let findings = found(&config, access, cards, false);
            match words {
                None => assert_eq!(findings[0].level, FindingLevel::Ok),
                Some(words) => assert!(
                    findings.len() == 2 && findings.iter().all(|finding| finding.text.contains(words)),
                    "{findings:?}"
                ),
            }
        }
    }
}
