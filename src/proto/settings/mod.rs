//! One file of settings, in TOML: options and variables under their own names.
//!
//! In: the text of the file and the [`SettingKey`]s that it may have. Out: [`SettingsFile`], whose
//! entries set the options and variables that nothing else sets, or a [`UsageError`] with the line.
//! A key is the long name of an option without its dashes, or the name of a variable that is of no
//! option, with `bot-minutes` for RUNNER_BOT_MINUTES, which is accepted as well, as their aliases
//! are. A secret may be a reference: `{ file = "PATH" }` or `{ variable = "NAME" }`. A section
//! `[bots.NAME]` has the settings of one bot, and in `env` the environment of its program. Source:
//! TOML 1.1, <https://toml.io/en/v1.1.0>.

mod document;
pub mod edit;

use std::path::Path;

use crate::features::Feature;
use crate::options::env::{SettingsVariable, Variables};
use crate::options::env_options::{EnvOption, has_variable};
use crate::options::parse::{first_word, store};
use crate::options::{Expected, Flag, FlagKind, OptionStore, OptionTable, UsageError, ValueSource};
use crate::secret::Secret;
use crate::sorting;

pub use document::parse;

/// The key of the sections of bots.
pub const BOTS: &str = "bots";
/// The section of the environment of a bot.
pub const ENVIRONMENT: &str = "env";
/// Keys of a bot that are neither of an option nor of a variable.
pub const NUMBERS: &str = "numbers";
pub const CALLERS: &str = "callers";
pub const DEVICES: &str = "devices";
pub const MAX_SECONDS: &str = "max-seconds";
pub const BY_BODY: &str = "by-body";
/// The key of the command that is the bot.
pub const COMMAND: &str = "command";
/// Options that are read before the file.
pub const READ_BEFORE: [&str; 2] = ["--config", "--env-file"];
/// The largest value of a counted option.
const COUNT_MAX: u8 = 3;

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    Switch,
    Count,
    /// A word, or `true` for the first of its words.
    WordOrSwitch,
    /// A text or a number.
    One,
    /// One or several of them.
    Several,
    /// A list of texts: a program and its arguments.
    Words,
}

/// A key that the file may have.
#[derive(Clone, Copy, Debug)]
pub struct SettingKey {
    /// The long name of an option with its dashes, or the name of a variable.
    pub name: &'static str,
    pub kind: SettingKind,
    /// The feature that a variable needs. That of an option is checked with the typed ones.
    pub feature: Option<Feature>,
}

/// Returns the key of an option or a variable, which has no dashes before it and no prefix.
pub fn key_of(name: &str, prefix: &str) -> String {
    match (name.strip_prefix("--"), name.strip_prefix(prefix)) {
        (Some(option), _) => option.to_owned(),
        (None, Some(rest)) => rest.to_ascii_lowercase().replace('_', "-"),
        (None, None) => name.to_owned(),
    }
}

/// Returns the keys: the options of a table, these variables, and [`COMMAND`].
pub fn keys<T>(
    table: &OptionTable<T>,
    variables: impl Iterator<Item = (&'static str, Option<Feature>)>,
) -> Vec<SettingKey> {
    let key = |name, kind, feature| SettingKey { name, kind, feature };
    let options = table.flags().filter(|flag| has_variable(flag)).map(|flag| {
        let kind = match flag.kind {
            FlagKind::Switch(_) => SettingKind::Switch,
            FlagKind::Count(_) => SettingKind::Count,
            FlagKind::Repeatable(..) | FlagKind::List(..) => SettingKind::Several,
            FlagKind::Optional(..) => SettingKind::WordOrSwitch,
            FlagKind::Value(..) | FlagKind::Help | FlagKind::Version | FlagKind::Report => SettingKind::One,
        };
        key(flag.long, kind, None)
    });
    options
        .chain(variables.map(|(name, feature)| key(name, SettingKind::One, feature)))
        .chain([key(COMMAND, SettingKind::Words, None)])
        .collect()
}

/// Returns the keys of a section of a bot: these options of a table and these variables,
/// [`COMMAND`], and those of a bot alone.
pub fn bot_keys<T>(
    table: &OptionTable<T>,
    options: &[&str],
    variables: impl Iterator<Item = (&'static str, Option<Feature>)>,
) -> Vec<SettingKey> {
    let own = [
        (NUMBERS, SettingKind::Several),
        (CALLERS, SettingKind::Several),
        (DEVICES, SettingKind::Several),
        (MAX_SECONDS, SettingKind::One),
        (BY_BODY, SettingKind::Switch),
    ];
    let is_key = |key: &SettingKey| !key.name.starts_with("--") || options.contains(&key.name);
    let own = own.into_iter().map(|(name, kind)| SettingKey {
        name,
        kind,
        feature: None,
    });
    keys(table, variables).into_iter().filter(is_key).chain(own).collect()
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    Switch(bool),
    /// One value, or all of a list.
    Texts(Vec<String>),
    Reference(Reference),
}

/// Where the text of a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// In the variable of this name.
    Variable(String),
    /// In the first line of this file.
    File(String),
}

/// One entry of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingEntry {
    /// As in [`SettingKey`].
    pub name: &'static str,
    /// The key as it is written.
    pub key: String,
    /// The number of its line, from 1.
    pub line: usize,
    pub value: SettingValue,
}

/// The content of the file, or of the section of a bot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsFile {
    /// The name of the file, for messages.
    pub file: String,
    /// In the order of the lines.
    pub entries: Vec<SettingEntry>,
    /// The sections of bots, in the order of their lines. A section has none.
    pub bots: Vec<BotSection>,
}

/// The section of a bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotSection {
    pub name: String,
    /// The number of its line, from 1.
    pub line: usize,
    pub settings: SettingsFile,
    pub environment: Vec<EnvironmentEntry>,
}

/// A variable in the environment of a bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentEntry {
    pub name: String,
    /// The number of its line, from 1.
    pub line: usize,
    pub value: SettingValue,
}

impl BotSection {
    /// Returns the values of an entry; none if it is not set.
    pub fn texts(&self, name: &str) -> &[String] {
        match self.settings.get(name).map(|entry| &entry.value) {
            Some(SettingValue::Texts(texts)) => texts,
            _ => &[],
        }
    }

    /// Returns whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        let entry = self.settings.get(name);
        entry.is_some_and(|entry| entry.value == SettingValue::Switch(true))
    }

    /// Returns the environment of the bot.
    ///
    /// # Errors
    /// [`UsageError`] for a reference that cannot be read.
    pub fn environment(
        &self,
        read: &dyn Fn(&Reference) -> Result<String, String>,
    ) -> Result<Vec<(String, Secret)>, UsageError> {
        let variables = self.environment.iter().map(|entry| {
            let value = match &entry.value {
                SettingValue::Switch(value) => value.to_string(),
                SettingValue::Texts(texts) => texts.concat(),
                SettingValue::Reference(reference) => self.settings.read(entry.line, &entry.name, reference, read)?,
            };
            Ok((entry.name.clone(), Secret::new(value)))
        });
        variables.collect()
    }

    /// Returns the key of the section.
    pub fn key(&self) -> String {
        format!("{BOTS}.{}", self.name)
    }

    /// Returns a text that differs for every other content, whatever its place in the file.
    pub fn content(&self) -> Secret {
        let settings = self.settings.entries.iter().map(|entry| (entry.name, &entry.value));
        let environment = self.environment.iter().map(|entry| (&*entry.name, &entry.value));
        let mut settings: Vec<_> = settings.collect();
        let mut environment: Vec<_> = environment.collect();
        sorting::sort_by_key(&mut settings, |(name, _)| *name);
        sorting::sort_by_key(&mut environment, |(name, _)| *name);
        Secret::new(format!("{settings:?}{environment:?}"))
    }
}

impl SettingsFile {
    /// Returns the entry of an option or a variable.
    pub fn get(&self, name: &str) -> Option<&SettingEntry> {
        self.entries.iter().find(|setting| setting.name == name)
    }

    /// Returns the key and the place of an entry, for messages.
    pub fn place(&self, setting: &SettingEntry) -> String {
        format!("{} ({}:{})", setting.key, self.file, setting.line)
    }

    /// Sets the options that neither `given` nor one of `from_env` sets, and marks them as given.
    /// `read` returns the text of a reference, or why there is none.
    ///
    /// # Errors
    /// [`UsageError`] for an invalid value.
    pub fn apply<T: OptionStore>(
        &self,
        args: &mut T,
        table: &OptionTable<T>,
        from_env: &[EnvOption<T>],
        read: &dyn Fn(&Reference) -> Result<String, String>,
    ) -> Result<Vec<EnvOption<T>>, UsageError> {
        // A variable takes precedence over the entry of an option that conflicts with its own.
        let typed = args.given().len();
        args.given().extend(from_env.iter().map(|option| option.flag.long));
        let mut applied = Vec::new();
        for setting in &self.entries {
            let Some(flag) = table.flags().find(|flag| flag.long == setting.name) else {
                continue;
            };
            if args.given().contains(&flag.long) || args.overrides(flag.long) {
                continue;
            }
            let is_off = setting.value == SettingValue::Switch(false);
            self.set(args, flag, setting, read)?;
            applied.push(EnvOption {
                flag,
                variable: self.place(setting),
                is_off,
            });
        }
        args.given().truncate(typed);
        let set = applied.iter().filter(|option| !option.is_off);
        args.given().extend(set.map(|option| option.flag.long));
        Ok(applied)
    }

    fn set<T: OptionStore>(
        &self,
        args: &mut T,
        flag: &'static Flag<T>,
        setting: &SettingEntry,
        read: &dyn Fn(&Reference) -> Result<String, String>,
    ) -> Result<(), UsageError> {
        let place = self.place(setting);
        match (&flag.kind, &setting.value) {
            (FlagKind::Switch(set), SettingValue::Switch(true)) => {
                set(args);
                args.record(flag, "", ValueSource::File);
            }
            (FlagKind::Optional(words, _), SettingValue::Switch(true)) => {
                store(args, flag, ValueSource::File, &place, first_word(words))?;
            }
            (_, SettingValue::Switch(_)) => {}
            (FlagKind::Count(set), SettingValue::Texts(texts)) => {
                let wants = || UsageError::value(&place, &texts.concat(), Expected::from("a number from 0 to 3"));
                let count: u8 = texts.concat().parse().map_err(|_| wants())?;
                if count > COUNT_MAX {
                    return Err(wants());
                }
                for _ in 0..count {
                    set(args);
                    args.record(flag, "", ValueSource::File);
                }
            }
            (_, SettingValue::Texts(texts)) => {
                for text in texts {
                    store(args, flag, ValueSource::File, &place, text)?;
                }
            }
            (_, SettingValue::Reference(reference)) => {
                let text = self.read(setting.line, &setting.key, reference, read)?;
                // The value may be a secret, so it is in no message.
                store(args, flag, ValueSource::File, &place, &text).map_err(|error| match error {
                    UsageError::Value { source, wants, .. } => UsageError::redacted(&source, wants),
                    other => other,
                })?;
            }
        }
        Ok(())
    }

    fn read(
        &self,
        line: usize,
        key: &str,
        reference: &Reference,
        read: &dyn Fn(&Reference) -> Result<String, String>,
    ) -> Result<String, UsageError> {
        read(reference).map_err(|why| self.error(line, &format!("`{key}`: {why}")))
    }

    /// Returns the error about a line.
    pub fn error(&self, line: usize, sentence: &str) -> UsageError {
        document::error(&self.file, line, sentence)
    }

    /// Returns the variables that the file sets and that `env` does not, under any name.
    ///
    /// # Errors
    /// [`UsageError`] for a reference that cannot be read.
    pub fn variables(
        &self,
        env: &Variables,
        read: &dyn Fn(&Reference) -> Result<String, String>,
    ) -> Result<Vec<SettingsVariable>, UsageError> {
        let is_variable = |setting: &&SettingEntry| setting.name.starts_with(|first: char| first.is_ascii_uppercase());
        let unset = |setting: &&SettingEntry| env.named(setting.name).is_none();
        let of_file = self.entries.iter().filter(is_variable).filter(unset);
        let variables = of_file.map(|setting| {
            let value = match &setting.value {
                SettingValue::Switch(value) => value.to_string(),
                SettingValue::Texts(texts) => texts.concat(),
                SettingValue::Reference(reference) => self.read(setting.line, &setting.key, reference, read)?,
            };
            Ok(SettingsVariable {
                name: setting.name,
                value,
                place: self.place(setting),
            })
        });
        variables.collect()
    }

    /// Returns whether the file itself contains a value of one of these options and variables.
    pub fn contains_one(&self, is_secret: impl Fn(&str) -> bool) -> bool {
        let names = |value: &SettingValue, name: &str| matches!(value, SettingValue::Texts(_)) && is_secret(name);
        let entries = |file: &SettingsFile| file.entries.iter().any(|entry| names(&entry.value, entry.name));
        let in_section = |bot: &BotSection| {
            let is_named = bot.environment.iter().any(|entry| names(&entry.value, &entry.name));
            is_named || entries(&bot.settings)
        };
        entries(self) || self.bots.iter().any(in_section)
    }

    /// Returns the files of references.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let of_bots = self.bots.iter().flat_map(|bot| {
            let environment = bot.environment.iter().map(|entry| &entry.value);
            bot.settings.entries.iter().map(|entry| &entry.value).chain(environment)
        });
        let all = self.entries.iter().map(|entry| &entry.value).chain(of_bots);
        all.filter_map(|value| match value {
            SettingValue::Reference(Reference::File(path)) => Some(path.as_str()),
            _ => None,
        })
    }
}

/// Returns whether a text is an address that may contain a password or a token.
pub fn may_contain_secret(text: &str) -> bool {
    text.contains("://") && text.contains(['@', '?', '='])
}

/// Returns a warning about a file that contains a secret, if its permissions let others read it.
pub fn exposed_warning(file: &Path, mode: u32) -> Option<String> {
    const READ_BY_OTHERS: u32 = 0o004;
    (mode & READ_BY_OTHERS != 0).then(|| {
        let file = file.display();
        format!(
            "every user of this machine may read {file}, which contains a secret; `chmod 640 {file}` prevents it, or keep the \
             secret in a file of its own, named by {{ file = \"PATH\" }}"
        )
    })
}

#[cfg(test)]
mod tests;
