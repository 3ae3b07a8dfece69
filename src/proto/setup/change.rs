//! What the settings page of a runner shows and changes, after the setup.
//!
//! In: the settings of a start, field by field, and the JSON of a change. Out: JSON without
//! secrets, and the keys of the file of settings to write or to remove; or what is wrong, and at
//! which field. A value that an option or a variable sets takes precedence over the file, so it is
//! shown, and cannot be changed here.

use std::collections::BTreeMap;
use std::fmt;

use data_encoding::HEXLOWER;
use serde_json::{Map, Value};

use super::KEY_BYTES;
use super::fields::{API_KEY, DEVICES, FIELDS, FieldGroup, SettingField};
use super::form::{VALUE_BYTES_MAX, one_line};
use crate::local::command::is_sound_card;
use crate::secret::Secret;
use crate::settings::may_contain_secret;

/// Where the value of a field comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldOrigin {
    Default,
    File,
    /// An option or a variable of this name, or another setting, which takes precedence over the
    /// file.
    Other(String),
}

/// A field, and its value at a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldState {
    pub field: &'static SettingField,
    /// `None` if nothing sets it.
    pub value: Option<Secret>,
    pub origin: FieldOrigin,
}

impl FieldState {
    /// Returns whether the value never leaves the runner: a secret, or an address that may contain
    /// one.
    pub fn is_hidden(&self) -> bool {
        let may_contain_one = |value: &Secret| may_contain_secret(value.expose());
        self.value.is_some() && (self.field.is_secret || self.value.as_ref().is_some_and(may_contain_one))
    }

    /// Returns the JSON for the page.
    fn describe(&self) -> Value {
        let mut json = Map::new();
        let mut put = |name: &str, value: Value| json.insert(name.to_owned(), value);
        put("name", self.field.key().into());
        put("is_set", self.value.is_some().into());
        if let Some(value) = self.value.as_ref().filter(|_| !self.is_hidden()) {
            put("value", value.expose().into());
        }
        if let FieldOrigin::Other(by) = &self.origin {
            put("locked", by.as_str().into());
        }
        Value::Object(json)
    }
}

/// Returns the JSON of all fields.
pub fn describe(states: &[FieldState]) -> Value {
    states.iter().map(FieldState::describe).collect()
}

/// The body of `POST /settings`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsChange {
    /// New values by the keys of their fields; `null` or an empty text removes one.
    #[serde(default)]
    values: BTreeMap<String, Option<String>>,
    /// Whether the runner makes a new key of callers.
    #[serde(default)]
    new_key: bool,
    /// Whether the runner restarts if something waits for that.
    #[serde(default)]
    pub restart: bool,
}

/// Keys to write, by the names of their options or variables; `None` removes one.
pub type FileChanges = Vec<(&'static str, Option<String>)>;

/// Why a change is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The body is not the JSON of a change.
    Json,
    /// Nothing changes.
    Nothing,
    /// Something is wrong with a field.
    Field { key: String, text: String },
    /// The runner would not start with it. The text is that of `config check`.
    Runner { key: Option<String>, text: String },
    /// The file cannot be read or written.
    File(String),
}

impl ChangeError {
    fn field(key: impl Into<String>, text: impl Into<String>) -> ChangeError {
        ChangeError::Field {
            key: key.into(),
            text: text.into(),
        }
    }

    /// Returns the error of a start. The field is one that its text names: one that was changed
    /// before the others, and the bot, which needs others, last.
    pub fn of_start(text: String, changed: &FileChanges) -> ChangeError {
        let is_changed = |field: &SettingField| changed.iter().any(|(name, _)| *name == field.name);
        let is_word = |at: usize, name: &str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            let (before, behind) = (&text[..at], &text[at + name.len()..]);
            !before.ends_with(|c: char| is_part(c) && c != '-') && !behind.starts_with(is_part)
        };
        let is_named = |field: &SettingField| {
            let key = field.key();
            text.match_indices(&key).any(|(at, _)| is_word(at, &key))
        };
        // `local` is a word of other texts, too.
        let may_be = |field: &&SettingField| field.group != FieldGroup::Local || is_changed(field);
        let named = FIELDS.iter().filter(may_be).filter(|field| is_named(field));
        let first = named.min_by_key(|field| (field.group == FieldGroup::Bot, !is_changed(field)));
        let key = first.map(SettingField::key);
        ChangeError::Runner { key, text }
    }

    /// Returns the key of the field that it is about.
    pub fn key(&self) -> Option<&str> {
        match self {
            ChangeError::Field { key, .. } => Some(key),
            ChangeError::Runner { key, .. } => key.as_deref(),
            _ => None,
        }
    }
}

impl fmt::Display for ChangeError {
    /// Without the values of the change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChangeError::Json => {
                "expected JSON such as {\"values\": {\"CASCADE_LANGUAGE\": \"en\"}, \"new_key\": false, \"restart\": true}"
            }
            ChangeError::Nothing => "nothing changes",
            ChangeError::Field { text, .. } | ChangeError::Runner { text, .. } | ChangeError::File(text) => text,
        })
    }
}

impl std::error::Error for ChangeError {}

impl SettingsChange {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// [`ChangeError::Json`]; the text of the parser may contain a value.
    pub fn parse(json: &[u8]) -> Result<SettingsChange, ChangeError> {
        serde_json::from_slice(json).map_err(|_| ChangeError::Json)
    }

    /// Returns what the change writes to the file of a runner with these settings, and a new key.
    ///
    /// # Errors
    /// [`ChangeError`] for a key that is no field, a value that is no line, one that the file does
    /// not decide, a command in place of a device, and a secret that would go to another address
    /// than before.
    pub fn resolve(
        &self,
        states: &[FieldState],
        random: [u8; KEY_BYTES],
    ) -> Result<(FileChanges, Option<Secret>), ChangeError> {
        let mut changes = FileChanges::new();
        for (key, value) in &self.values {
            let state = states.iter().find(|state| state.field.key() == *key);
            let state = state.filter(|state| state.field.group != FieldGroup::Key);
            let state = state.ok_or_else(|| {
                let shown: String = key.chars().filter(|c| !c.is_control()).take(64).collect();
                ChangeError::field(
                    key,
                    format!("`{shown}` cannot be set here; GET /settings lists what can"),
                )
            })?;
            let value = value.as_deref().map(one_line);
            let value = match value {
                Some(None) => {
                    let wants = format!("`{key}` takes one line of at most {VALUE_BYTES_MAX} bytes");
                    return Err(ChangeError::field(key, wants));
                }
                Some(Some(text)) if !text.is_empty() => Some(text),
                _ => None,
            };
            if value.as_deref() == state.value.as_ref().map(Secret::expose) {
                continue;
            }
            check_origin(state)?;
            if let Some(device) = &value
                && DEVICES.contains(&state.field.name)
                && !is_sound_card(device)
            {
                let wants = format!("`{key}` takes a device of `--local-list` here, and a command in the file alone");
                return Err(ChangeError::field(key, wants));
            }
            changes.push((state.field.name, value));
        }
        check_secrets(states, &changes)?;
        let new_key = match self.new_key {
            true => {
                let state = states.iter().find(|state| state.field.name == API_KEY);
                check_origin(state.ok_or(ChangeError::Nothing)?)?;
                let key = HEXLOWER.encode(&random);
                changes.push((API_KEY, Some(key.clone())));
                Some(Secret::new(key))
            }
            false => None,
        };
        match changes.is_empty() {
            true => Err(ChangeError::Nothing),
            false => Ok((changes, new_key)),
        }
    }
}

/// Rejects a change of what the file does not decide.
fn check_origin(state: &FieldState) -> Result<(), ChangeError> {
    match &state.origin {
        FieldOrigin::Other(by) => {
            let text = format!("{by} takes precedence over the file of settings: change it there");
            Err(ChangeError::field(state.field.key(), text))
        }
        _ => Ok(()),
    }
}

/// Rejects a new address to which a stored secret would be sent: the holder of the runner's key
/// must not learn it.
fn check_secrets(states: &[FieldState], changes: &FileChanges) -> Result<(), ChangeError> {
    let is_changed = |name: &str| changes.iter().any(|(changed, _)| *changed == name);
    let would_leak = states.iter().find(|state| {
        let is_kept = state.value.is_some() && !is_changed(state.field.name);
        is_kept && state.field.sent_to.is_some_and(is_changed)
    });
    match would_leak {
        Some(state) => {
            let text = "The address has changed: enter the key again, or remove it.";
            Err(ChangeError::field(state.field.key(), text))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The settings of a runner with these values in its file.
    fn states(values: &[(&str, &str)], other: &[&str]) -> Vec<FieldState> {
        let state = |field: &'static SettingField| {
            let value = values.iter().find(|(name, _)| *name == field.name);
            FieldState {
                field,
                value: value.map(|(_, value)| Secret::new(*value)),
                origin: match value {
                    _ if other.contains(&field.name) => FieldOrigin::Other("`RUNNER_X`".to_owned()),
                    Some(_) => FieldOrigin::File,
                    None => FieldOrigin::Default,
                },
            }
        };
        FIELDS.iter().map(state).collect()
    }

    fn resolve(json: &Value, states: &[FieldState]) -> Result<FileChanges, ChangeError> {
        let change = SettingsChange::parse(json.to_string().as_bytes())?;
        change.resolve(states, [0xab; KEY_BYTES]).map(|(changes, _)| changes)
    }

    #[test]
    fn secrets_are_not_described() {
        let states = states(
            &[
                ("CASCADE_LLM_API_KEY", "sk-secret"),
                ("REALTIME_URL", "https://me:sk-secret@example.net/v1"),
                ("CASCADE_LLM_MODEL", "m"),
            ],
            &["--bot"],
        );
        let json = describe(&states);
        assert!(!json.to_string().contains("sk-secret"), "{json}");
        let of = |name: &str| {
            json.as_array()
                .expect("a list")
                .iter()
                .find(|field| field["name"] == name)
                .cloned()
        };
        assert_eq!(
            of("CASCADE_LLM_API_KEY"),
            Some(json!({"name": "CASCADE_LLM_API_KEY", "is_set": true}))
        );
        assert_eq!(
            of("REALTIME_URL"),
            Some(json!({"name": "REALTIME_URL", "is_set": true}))
        );
        let model = json!({"name": "CASCADE_LLM_MODEL", "is_set": true, "value": "m"});
        assert_eq!(of("CASCADE_LLM_MODEL"), Some(model));
        assert_eq!(
            of("bot"),
            Some(json!({"name": "bot", "is_set": false, "locked": "`RUNNER_X`"}))
        );
    }

    #[test]
    fn a_change_has_what_differs() {
        let states = states(&[("CASCADE_LANGUAGE", "de"), ("CASCADE_LLM_MODEL", "m")], &[]);
        let json = json!({"values": {"bot": "cascade", "CASCADE_LANGUAGE": "", "CASCADE_LLM_MODEL": " m ", "REALTIME_MODEL": null}});
        let changes = resolve(&json, &states).expect("valid");
        assert_eq!(
            changes,
            [("CASCADE_LANGUAGE", None), ("--bot", Some("cascade".to_owned()))]
        );
        let same = json!({"values": {"CASCADE_LLM_MODEL": "m"}});
        assert_eq!(resolve(&same, &states), Err(ChangeError::Nothing));
        let key = resolve(&json!({"new_key": true}), &states).expect("valid");
        assert_eq!(key, [("--api-key", Some("ab".repeat(KEY_BYTES)))]);
    }

    /// Programs, files and whom the runner trusts are not in the table, and what an option or a
    /// variable sets is not in the file.
    #[test]
    fn what_the_file_does_not_decide_is_refused() {
        let states = states(&[("CASCADE_LANGUAGE", "de")], &["--bot", "--api-key"]);
        for (json, key) in [
            (json!({"values": {"tools": "sh"}}), Some("tools")),
            (json!({"values": {"command": "sh"}}), Some("command")),
            (json!({"values": {"api-key": "0123456789abcdef"}}), Some("api-key")),
            (json!({"values": {"bot": "cascade"}}), Some("bot")),
            (
                json!({"values": {"CASCADE_LANGUAGE": "d\u{0}e"}}),
                Some("CASCADE_LANGUAGE"),
            ),
            (json!({"new_key": true}), Some("api-key")),
            (json!({"other": 1}), None),
            (json!([]), None),
        ] {
            let refused = resolve(&json, &states).expect_err("refused");
            assert_eq!(refused.key(), key, "{json}");
        }
    }

    /// The holder of the runner's key starts no program: not by a command, and not by a plugin of
    /// ALSA, of which `file` and `tee` start one or write a file.
    #[test]
    fn a_device_is_set_and_a_command_is_refused() {
        let states = states(&[("--local-out", "aplay -q -")], &[]);
        for device in ["plughw:CARD=USB,DEV=0", "kernel:CARD=USB,DEV=0", "default", "pipewire"] {
            let json = json!({"values": {"local": "voice", "local-in": device, "local-out": device}});
            let changes = resolve(&json, &states).expect("a device");
            let expected = [("--local", "voice"), ("--local-in", device), ("--local-out", device)];
            assert_eq!(changes, expected.map(|(name, value)| (name, Some(value.to_owned()))));
        }
        for command in [
            "sh -c reboot",
            "/bin/reboot",
            "tee:default,'|reboot',raw",
            "plughw:CARD=USB,DEV=0 x",
            "plug:\"file:'|reboot'\"",
        ] {
            let json = json!({"values": {"local-in": command}});
            let refused = resolve(&json, &states).expect_err("no device");
            assert_eq!(refused.key(), Some("local-in"), "{command}");
        }
        let none = resolve(&json!({"values": {"local-out": null}}), &states).expect("the default device");
        assert_eq!(none, [("--local-out", None)]);
    }

    /// The holder of the runner's key does not get the keys of services by naming a server of their
    /// own.
    #[test]
    fn a_secret_goes_to_no_new_address() {
        let states = states(
            &[("CASCADE_LLM_URL", "https://a/v1"), ("CASCADE_LLM_API_KEY", "sk")],
            &[],
        );
        let moved = json!({"values": {"CASCADE_LLM_URL": "https://b/v1"}});
        let refused = resolve(&moved, &states).expect_err("refused");
        assert_eq!(refused.key(), Some("CASCADE_LLM_API_KEY"));
        for key in [json!("sk-2"), Value::Null] {
            let json = json!({"values": {"CASCADE_LLM_URL": "https://b/v1", "CASCADE_LLM_API_KEY": key}});
            assert!(resolve(&json, &states).is_ok(), "{json}");
        }
    }

    #[test]
    fn the_field_of_an_error_is_found_in_its_text() {
        let changed = vec![("CASCADE_LLM_URL", Some("x".to_owned()))];
        let key = |text: &str| {
            ChangeError::of_start(text.to_owned(), &changed)
                .key()
                .map(str::to_owned)
        };
        assert_eq!(
            key("`--bot cascade` needs CASCADE_LLM_URL").as_deref(),
            Some("CASCADE_LLM_URL")
        );
        assert_eq!(
            key("`--bot cascade` needs CASCADE_STT_URL").as_deref(),
            Some("CASCADE_STT_URL")
        );
        assert_eq!(
            key("CASCADE_STT_URL (a.toml:1) takes a URL").as_deref(),
            Some("CASCADE_STT_URL")
        );
        assert_eq!(key("`bot (a.toml:2)` takes `parrot`").as_deref(), Some("bot"));
        assert_eq!(key("`robot` is CASCADE_LLM_URLS"), None);
        assert_eq!(key("`metrics (a.toml:2)` takes `off`, `local`, `key` or `any`"), None);
        let changed = vec![("--local", Some("x".to_owned()))];
        let error = ChangeError::of_start("`local (a.toml:2)` takes `voice` or `text`".to_owned(), &changed);
        assert_eq!(error.key(), Some("local"));
    }
}
