//! The text of the file: TOML in, entries or an error with its line out. No message contains a
//! value, which may be a secret.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{BOTS, ENVIRONMENT, READ_BEFORE, key_of};
use super::{
    BotSection, EnvironmentEntry, Reference, SettingEntry, SettingKey, SettingKind, SettingValue, SettingsFile,
};
use crate::aliases::{self, Area};
use crate::bots::{OWN_BOT, is_name};
use crate::features::Feature;
use crate::limits::BOTS_MAX;
use crate::options::UsageError;
use crate::options::env_options::with_prefix;
use crate::options::suggest::nearest;
use crate::sorting;
use crate::toml_text::{self, found, in_order, scalar, string};

/// What the names of settings begin with that are about a bot; in its section, they need not.
const BOT_PREFIX: &str = "bot-";
/// Longer names of which one may be meant.
const LONGER_MAX: usize = 3;

/// Parses the text of a file with this name. `bot_keys` are those of the sections of bots, and
/// `prefix` is that of the variables of options.
///
/// # Errors
/// [`UsageError`] with the line, for the first mistake.
pub fn parse(
    file: &str,
    text: &str,
    keys: &[SettingKey],
    bot_keys: &[SettingKey],
    prefix: &str,
) -> Result<SettingsFile, UsageError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document = Document {
        file,
        text,
        keys,
        runner_keys: keys,
        bot_keys,
        prefix,
        bot: None,
    };
    let table = toml_text::parse(text).map_err(|(line, sentence)| error(file, line, &sentence))?;
    document.settings(&table)
}

/// Returns the error about a line.
pub(super) fn error(file: &str, line: usize, sentence: &str) -> UsageError {
    UsageError::Combination(format!("{file}:{line}: {sentence}"))
}

struct Document<'a> {
    file: &'a str,
    text: &'a str,
    keys: &'a [SettingKey],
    runner_keys: &'a [SettingKey],
    bot_keys: &'a [SettingKey],
    prefix: &'a str,
    /// The name of the bot in whose section these keys are.
    bot: Option<&'a str>,
}

impl Document<'_> {
    fn line(&self, at: usize) -> usize {
        toml_text::line(self.text, at)
    }

    fn error(&self, at: usize, sentence: &str) -> UsageError {
        error(self.file, self.line(at), sentence)
    }

    fn settings(&self, table: &DeTable<'_>) -> Result<SettingsFile, UsageError> {
        let mut entries: Vec<SettingEntry> = Vec::new();
        let mut bots = Vec::new();
        for (key, value) in in_order(table) {
            let at = key.span().start;
            let given = key.get_ref().as_ref();
            if given == BOTS && self.bot.is_none() {
                bots = self.bots(at, value)?;
                continue;
            }
            if given == ENVIRONMENT && self.bot.is_some() {
                continue;
            }
            let known = self.known(given);
            if self.bot.is_none() && self.is_unknown_section(given, known, value.get_ref()) {
                return Err(self.section(given, at));
            }
            let known = known.ok_or_else(|| self.unknown(given, at))?;
            if READ_BEFORE.contains(&known.name) {
                return Err(self.error(
                    at,
                    &format!(
                        "`{given}` is read before this file: use `{}` or {}",
                        known.name,
                        with_prefix(self.prefix, known.name)
                    ),
                ));
            }
            if let Some(feature) = known.feature.and_then(Feature::missing) {
                return Err(UsageError::MissingFeature {
                    what: format!("{}:{}: `{given}`", self.file, self.line(at)),
                    feature,
                });
            }
            if let Some(other) = entries.iter().find(|other| other.name == known.name) {
                let (other, line) = (&other.key, other.line);
                return Err(self.error(at, &format!("`{given}` is set twice: as `{other}` in line {line}")));
            }
            entries.push(SettingEntry {
                name: known.name,
                key: given.to_owned(),
                line: self.line(at),
                value: self.value(known, given, value)?,
            });
        }
        sorting::sort_by_key(&mut entries, |setting| setting.line);
        Ok(SettingsFile {
            file: self.file.to_owned(),
            entries,
            bots,
        })
    }

    /// Reads the sections of bots.
    fn bots(&self, at: usize, value: &Spanned<DeValue<'_>>) -> Result<Vec<BotSection>, UsageError> {
        const SECTIONS: &str = "`bots` takes sections: [bots.NAME]";
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.error(at, SECTIONS));
        };
        let mut bots = Vec::new();
        for (key, value) in in_order(table) {
            let (at, name) = (key.span().start, key.get_ref().as_ref());
            let DeValue::Table(table) = value.get_ref() else {
                return Err(self.error(at, SECTIONS));
            };
            if !is_name(name) || name == OWN_BOT {
                let sentence = format!(
                    "the name of a bot has up to 32 ASCII letters, digits, `-` and `_`, and is not `{OWN_BOT}`"
                );
                return Err(self.error(at, &sentence));
            }
            if bots.len() == BOTS_MAX {
                return Err(self.error(at, &format!("a runner has at most {BOTS_MAX} bots")));
            }
            let section = Document {
                keys: self.bot_keys,
                bot: Some(name),
                ..*self
            };
            bots.push(BotSection {
                name: name.to_owned(),
                line: self.line(at),
                settings: section.settings(table)?,
                environment: section.environment(table)?,
            });
        }
        Ok(bots)
    }

    /// Reads the environment of a bot.
    fn environment(&self, section: &DeTable<'_>) -> Result<Vec<EnvironmentEntry>, UsageError> {
        let Some((key, value)) = section.iter().find(|(key, _)| key.get_ref() == ENVIRONMENT) else {
            return Ok(Vec::new());
        };
        let DeValue::Table(table) = value.get_ref() else {
            let sentence = format!("`{ENVIRONMENT}` takes variables: {{ NAME = \"value\" }}");
            return Err(self.error(key.span().start, &sentence));
        };
        let variables = in_order(table).into_iter().map(|(key, value)| {
            let (at, name) = (key.span().start, key.get_ref().as_ref());
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(fits) || name.starts_with(|c: char| c.is_ascii_digit()) {
                let sentence = "the name of a variable has ASCII letters, digits and `_`, and no digit first";
                return Err(self.error(at, sentence));
            }
            let kind = match value.get_ref() {
                DeValue::Boolean(_) => SettingKind::Switch,
                _ => SettingKind::One,
            };
            let key = SettingKey {
                name: ENVIRONMENT,
                kind,
                feature: None,
            };
            let value = self.value(&key, name, value)?;
            if matches!(&value, SettingValue::Texts(texts) if texts.iter().any(|text| text.contains('\0'))) {
                return Err(self.error(at, &format!("`{name}` contains a NUL byte")));
            }
            Ok(EnvironmentEntry {
                name: name.to_owned(),
                line: self.line(at),
                value,
            })
        });
        variables.collect()
    }

    fn known(&self, given: &str) -> Option<&SettingKey> {
        known(self.keys, self.prefix, given).or_else(|| {
            // In its section, `greeting` is `bot-greeting`.
            self.bot?;
            known(self.keys, self.prefix, &format!("{BOT_PREFIX}{given}"))
        })
    }

    /// Returns whether a key is the name of a section that there is not.
    fn is_unknown_section(&self, given: &str, setting: Option<&SettingKey>, value: &DeValue<'_>) -> bool {
        let DeValue::Table(table) = value else { return false };
        let is_table = |value: &Spanned<DeValue<'_>>| matches!(value.get_ref(), DeValue::Table(_));
        if setting.is_some() {
            // No value holds tables alone.
            return !table.is_empty() && table.iter().all(|(_, value)| is_table(value));
        }
        let is_reference = table.len() == 1
            && table
                .iter()
                .all(|(key, _)| ["file", "variable"].contains(&&**key.get_ref()));
        let is_of_bot = given == ENVIRONMENT || known(self.bot_keys, self.prefix, given).is_some();
        !is_reference && !is_of_bot
    }

    /// Returns the error about a section that there is not.
    fn section(&self, given: &str, at: usize) -> UsageError {
        let shown = shown(given);
        let is_bot = nearest(given, [BOTS]).is_some();
        let sentence = match is_bot {
            true => format!("there is no section `{shown}`; did you mean [{BOTS}.NAME]?"),
            false => format!(
                "there is no section `{shown}`; the only sections are [{BOTS}.NAME], and the keys of the runner stand above them"
            ),
        };
        self.error(at, &sentence)
    }

    fn unknown(&self, given: &str, at: usize) -> UsageError {
        let shown = shown(given);
        let near = self
            .near(given, self.keys)
            .map(|near| format!("; did you mean `{near}`?"));
        let sentence = match (self.bot, near) {
            (Some(_), _) if self.runner_has(given) => {
                format!("`{shown}` is a setting of the runner: put it above the first section")
            }
            (Some(_), Some(near)) => format!("there is no setting `{shown}` of a bot{near}"),
            (Some(bot), None) => match self.near(given, self.runner_keys) {
                Some(near) => format!(
                    "there is no setting `{shown}` of a bot; did you mean `{near}`? It is a setting of the runner: put it above the \
                     first section"
                ),
                None => format!("there is no setting `{shown}` of a bot, in [bots.{bot}]"),
            },
            (None, _) if known(self.bot_keys, self.prefix, given).is_some() || given == ENVIRONMENT => {
                format!("`{shown}` is a setting of a bot: put it into its section [bots.NAME]")
            }
            (None, _) if known(self.keys, self.prefix, &format!("{BOT_PREFIX}{given}")).is_some() => {
                format!(
                    "there is no setting `{shown}` outside of a section [bots.NAME]; did you mean `{BOT_PREFIX}{given}`?"
                )
            }
            (None, Some(near)) => format!("there is no setting `{shown}`{near}"),
            (None, None) => {
                format!("there is no setting `{shown}`; keys are the long names of options, and names of variables")
            }
        };
        self.error(at, &sentence)
    }

    /// Returns the name of the key that is nearest to `given`.
    fn near(&self, given: &str, keys: &[SettingKey]) -> Option<String> {
        let mut names: Vec<String> = keys.iter().map(|key| key_of(key.name, self.prefix)).collect();
        let variable = aliases::canonical(Area::Variable, given);
        let plain = variable.strip_prefix(self.prefix).unwrap_or(variable);
        let plain = plain.to_ascii_lowercase().replace('_', "-");
        if names.contains(&plain) {
            return Some(plain);
        }
        // `language` is the end of `CASCADE_LANGUAGE`.
        let end = format!("_{}", given.to_ascii_uppercase().replace('-', "_"));
        let longer: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| name.ends_with(&end))
            .collect();
        if (1..=LONGER_MAX).contains(&longer.len()) {
            return Some(longer.join("` or `"));
        }
        if self.bot.is_some() {
            // As they may be written in a section.
            let short = |name: &String| name.strip_prefix(BOT_PREFIX).map(str::to_owned);
            let short: Vec<String> = names.iter().filter_map(short).collect();
            names.extend(short.into_iter().chain([ENVIRONMENT.to_owned()]));
        }
        nearest(given, names.iter().map(String::as_str)).map(str::to_owned)
    }

    /// Returns whether a key is one of the runner and not of a bot.
    fn runner_has(&self, given: &str) -> bool {
        known(self.runner_keys, self.prefix, given).is_some()
    }

    fn value(&self, key: &SettingKey, given: &str, value: &Spanned<DeValue<'_>>) -> Result<SettingValue, UsageError> {
        let wrong = |wants: &str| {
            let found = found(value.get_ref());
            Err(self.error(value.span().start, &format!("`{given}` takes {wants}, not {found}")))
        };
        match (key.kind, value.get_ref()) {
            (SettingKind::Switch | SettingKind::WordOrSwitch, DeValue::Boolean(on)) => Ok(SettingValue::Switch(*on)),
            (SettingKind::Switch, _) => wrong("`true` or `false`"),
            (SettingKind::Words, DeValue::Array(words)) => {
                let words: Option<Vec<String>> = words.iter().map(|word| string(word.get_ref())).collect();
                match words {
                    Some(words) if words.first().is_some_and(|word| !word.is_empty()) => Ok(SettingValue::Texts(words)),
                    _ => wrong("a list of texts: a program and its arguments"),
                }
            }
            (SettingKind::Words, _) => wrong("a list of texts: a program and its arguments"),
            (SettingKind::Count, DeValue::Integer(_)) => self.texts(given, std::slice::from_ref(value)),
            (SettingKind::Count, _) => wrong("a number from 0 to 3"),
            (_, DeValue::Table(table)) => self.reference(given, value.span().start, table),
            (SettingKind::Several, DeValue::Array(list)) if list.is_empty() => {
                wrong("at least one value (leave the key out for none)")
            }
            (SettingKind::Several, DeValue::Array(list)) => self.texts(given, list),
            (SettingKind::Several, DeValue::Datetime(_)) => wrong("a text or a list of texts"),
            (_, DeValue::Array(_) | DeValue::Datetime(_)) => wrong("one text or number"),
            (_, _) => self.texts(given, std::slice::from_ref(value)),
        }
    }

    fn texts(&self, given: &str, values: &[Spanned<DeValue<'_>>]) -> Result<SettingValue, UsageError> {
        let mut texts = Vec::with_capacity(values.len());
        for value in values {
            let text = scalar(value.get_ref()).ok_or_else(|| {
                let found = found(value.get_ref());
                self.error(
                    value.span().start,
                    &format!("`{given}` takes texts or numbers, not {found}"),
                )
            })?;
            texts.push(text);
        }
        Ok(SettingValue::Texts(texts))
    }

    fn reference(&self, given: &str, at: usize, table: &DeTable<'_>) -> Result<SettingValue, UsageError> {
        let pairs: Vec<_> = table.iter().collect();
        if let [(key, value)] = &*pairs
            && let Some(text) = string(value.get_ref()).filter(|text| !text.trim().is_empty())
        {
            match key.get_ref().as_ref() {
                "file" => return Ok(SettingValue::Reference(Reference::File(text))),
                "variable" => return Ok(SettingValue::Reference(Reference::Variable(text))),
                _ => {}
            }
        }
        let sentence =
            format!("`{given}` takes a value, {{ file = \"PATH\" }} or {{ variable = \"NAME\" }}; it is no section");
        Err(self.error(at, &sentence))
    }
}

/// Returns the beginning of a key, for messages.
fn shown(given: &str) -> String {
    given.chars().filter(|c| !c.is_control()).take(64).collect()
}

/// Returns the key with this name or alias. A variable that is of no option has both names.
pub(super) fn known<'k>(keys: &'k [SettingKey], prefix: &str, given: &str) -> Option<&'k SettingKey> {
    let option = format!("--{given}");
    let option = aliases::canonical(Area::Option, &option).trim_start_matches('-');
    let variable = aliases::canonical(Area::Variable, given);
    keys.iter().find(|key| {
        let name = key_of(key.name, prefix);
        name == option || name == variable || key.name == variable
    })
}
