//! The fields that the setup page of a board and the settings page of a runner have: one table for
//! both. A form sets no option that starts programs or reads files: of [`DEVICES`], which take
//! commands too, it sets devices alone.

use crate::settings::key_of;

/// The prefix of the variables of options, which keys of the file of settings omit.
const PREFIX: &str = "RUNNER_";

/// What a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldGroup {
    /// The choice of the bot.
    Bot,
    Realtime,
    Cascade,
    /// The sound card as a caller.
    Local,
    /// The key of callers.
    Key,
}

/// A field of a form.
#[derive(Debug, PartialEq, Eq)]
pub struct SettingField {
    /// The name of a variable, or the long name of an option with its dashes.
    pub name: &'static str,
    pub group: FieldGroup,
    /// Whether its value never leaves the runner again.
    pub is_secret: bool,
    /// The field with the address to which a secret is sent.
    pub sent_to: Option<&'static str>,
}

impl SettingField {
    /// Returns its key in the file of settings, and in JSON.
    pub fn key(&self) -> String {
        key_of(self.name, PREFIX)
    }
}

const fn field(group: FieldGroup, name: &'static str) -> SettingField {
    SettingField {
        name,
        group,
        is_secret: false,
        sent_to: None,
    }
}

const fn secret(group: FieldGroup, name: &'static str, sent_to: Option<&'static str>) -> SettingField {
    SettingField {
        is_secret: true,
        sent_to,
        ..field(group, name)
    }
}

/// The option of the built-in bots.
pub const BOT: &str = "--bot";
/// The option of the key of callers.
pub const API_KEY: &str = "--api-key";
/// The options of a microphone and a loudspeaker.
pub const DEVICES: [&str; 2] = ["--local-in", "--local-out"];

use FieldGroup::{Bot, Cascade, Key, Local, Realtime};

/// All fields.
pub static FIELDS: [SettingField; 27] = [
    field(Bot, BOT),
    secret(Realtime, "OPENAI_API_KEY", None),
    field(Realtime, "REALTIME_URL"),
    secret(Realtime, "REALTIME_API_KEY", Some("REALTIME_URL")),
    field(Realtime, "REALTIME_MODEL"),
    field(Realtime, "REALTIME_VOICE"),
    field(Realtime, "REALTIME_INSTRUCTIONS"),
    field(Cascade, "CASCADE_STT_URL"),
    field(Cascade, "CASCADE_STT_MODEL"),
    secret(Cascade, "CASCADE_STT_API_KEY", Some("CASCADE_STT_URL")),
    field(Cascade, "CASCADE_LLM_URL"),
    field(Cascade, "CASCADE_LLM_MODEL"),
    secret(Cascade, "CASCADE_LLM_API_KEY", Some("CASCADE_LLM_URL")),
    field(Cascade, "CASCADE_TTS_URL"),
    field(Cascade, "CASCADE_TTS_MODEL"),
    field(Cascade, "CASCADE_TTS_VOICE"),
    secret(Cascade, "CASCADE_TTS_API_KEY", Some("CASCADE_TTS_URL")),
    field(Cascade, "CASCADE_LANGUAGE"),
    field(Cascade, "CASCADE_INSTRUCTIONS"),
    field(Local, "--local"),
    field(Local, DEVICES[0]),
    field(Local, DEVICES[1]),
    field(Local, "--local-start"),
    field(Local, "--local-wake"),
    field(Local, "--local-wake-words"),
    field(Local, "--local-volume"),
    secret(Key, API_KEY, None),
];

/// Returns the names of the variables of these bots.
pub(super) fn variables(groups: &[FieldGroup]) -> Vec<&'static str> {
    let of_bots = FIELDS.iter().filter(|field| groups.contains(&field.group));
    of_bots.map(|field| field.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key goes where a field of the same form says.
    #[test]
    fn addresses_of_secrets_are_fields() {
        for field in &FIELDS {
            assert!(field.sent_to.is_none() || field.is_secret, "{}", field.name);
            let is_address = |url: &str| {
                FIELDS
                    .iter()
                    .any(|other| other.name == url && other.group == field.group)
            };
            assert!(field.sent_to.is_none_or(is_address), "{}", field.name);
        }
        assert_eq!(FIELDS[0].key(), "bot");
        assert_eq!(FIELDS[1].key(), "OPENAI_API_KEY");
    }
}
