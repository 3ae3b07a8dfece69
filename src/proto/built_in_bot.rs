//! The bots of the stock binary, by their names in `--bot`.

use crate::features::Feature;

/// A bot of the stock binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltInBot {
    /// Repeats what the caller said after a pause.
    Parrot,
    /// Plays every frame back at once.
    Echo,
    /// Talks by a speech-to-speech service.
    Realtime,
    /// Talks by a recogniser, a chat model and a voice.
    Cascade,
}

impl BuiltInBot {
    /// All bots, the default first.
    pub const ALL: [BuiltInBot; 4] = [
        BuiltInBot::Parrot,
        BuiltInBot::Echo,
        BuiltInBot::Realtime,
        BuiltInBot::Cascade,
    ];

    /// Returns the name in `--bot`.
    pub fn name(self) -> &'static str {
        match self {
            BuiltInBot::Parrot => "parrot",
            BuiltInBot::Echo => "echo",
            BuiltInBot::Realtime => "realtime",
            BuiltInBot::Cascade => "cascade",
        }
    }

    /// Returns the feature that the bot needs.
    pub fn feature(self) -> Option<Feature> {
        match self {
            BuiltInBot::Parrot | BuiltInBot::Echo => None,
            BuiltInBot::Realtime | BuiltInBot::Cascade => Some(Feature::Assistants),
        }
    }
}
