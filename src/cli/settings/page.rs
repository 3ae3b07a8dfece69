//! What the settings page shows of a start, and the file that it changes.
//!
//! In: the arguments, the variables and the file of a start. Out: the values of the fields of the
//! page and where each comes from, or a changed text of the file.

use std::ffi::OsString;

use super::{BOT, origin, variables};
use crate::aliases::{self, Area};
use crate::cli::flags::RUNNER;
use crate::cli::resolve::MADE_KEY;
use crate::cli::source::StartSource;
use crate::cli::{Env, ProgramIdentity, StartValues, TypedArguments, UsageError};
use crate::config::{Config, Secret};
use crate::features::Feature;
use crate::io::settings::PageSource;
use crate::proto::options::env::Variables;
use crate::proto::options::{ValueSource, split_command};
use crate::proto::settings::{edit, keys};
use crate::proto::setup::change::{FieldOrigin, FieldState, FileChanges};
use crate::proto::setup::fields::{self, FIELDS, FieldGroup, SettingField};

impl PageSource for StartSource {
    fn fields(&self) -> Result<Vec<FieldState>, String> {
        self.with(None, |env, _| {
            let fields = fields_of_start(&self.program, self.arguments.clone(), env);
            fields.map_err(|error| error.to_string())
        })
    }

    fn edited(&self, text: &str, changes: &FileChanges) -> Result<String, String> {
        edited(text, changes)
    }

    fn check(&self, text: &str) -> Result<Config, String> {
        self.start(Some(text)).map(|(config, _)| config)
    }
}

/// Returns the values that the settings page shows, of a start with these arguments.
///
/// # Errors
/// [`UsageError`] for the first invalid argument or value.
fn fields_of_start(
    program: &ProgramIdentity,
    mut options: Vec<OsString>,
    env: &Env<'_>,
) -> Result<Vec<FieldState>, UsageError> {
    let command = split_command(&mut options);
    let typed = TypedArguments {
        program,
        options,
        command,
    };
    let (args, _) = typed.parse()?;
    StartValues::read(args, env).map(|values| fields(&values))
}

/// Returns the values of the fields of the settings page.
fn fields(values: &StartValues<'_>) -> Vec<FieldState> {
    // An alias is the same key of the file.
    let is_key = |field: &&SettingField| aliases::canonical(Area::Variable, field.name) == field.name;
    let is_here = |field: &&SettingField| field.group != FieldGroup::Local || Feature::Local.in_this_build();
    let shown = FIELDS.iter().filter(is_key).filter(is_here);
    let state = |field: &'static SettingField| {
        let (value, origin) = match field.name {
            fields::BOT => bot_value(values),
            fields::API_KEY => key_value(values),
            long if long.starts_with("--") => option_value(values, long),
            name => variable_value(&values.env.variables, name),
        };
        FieldState {
            field,
            value: value.map(Secret::new),
            origin,
        }
    };
    shown.map(state).collect()
}

/// A program or the bot of one's own takes precedence over a built-in bot.
fn bot_value(values: &StartValues<'_>) -> (Option<String>, FieldOrigin) {
    let args = &values.args;
    let by = match (&args.settings.command, &args.command) {
        _ if args.has_own_bot => "the bot of this program".to_owned(),
        (Some(place), _) => format!("`{place}`"),
        (None, Some(_)) => "the command of the bot".to_owned(),
        (None, None) => return option_value(values, BOT),
    };
    (None, FieldOrigin::Other(by))
}

/// A key that the runner made is replaced by one in the file, and one in a file of its own is not.
fn key_value(values: &StartValues<'_>) -> (Option<String>, FieldOrigin) {
    match (
        option_value(values, fields::API_KEY),
        option_value(values, "--api-key-file"),
    ) {
        (key @ (Some(_), _), _) => key,
        (_, (Some(file), FieldOrigin::File)) if file == MADE_KEY => (Some(file), FieldOrigin::File),
        (_, (Some(_), FieldOrigin::File)) => (Some(String::new()), FieldOrigin::Other("`api-key-file`".to_owned())),
        (_, of_file) => of_file,
    }
}

fn option_value(values: &StartValues<'_>, long: &str) -> (Option<String>, FieldOrigin) {
    let mut recorded = values.args.settings.recorded.iter().rev();
    let Some((_, text, from)) = recorded.find(|(name, ..)| *name == long) else {
        return (None, FieldOrigin::Default);
    };
    let variable = || values.sources.iter().find(|option| option.flag.long == long);
    let origin = match (from, variable()) {
        (ValueSource::File, _) => FieldOrigin::File,
        (ValueSource::Variable, Some(option)) => FieldOrigin::Other(origin(&option.variable, &values.env.variables)),
        _ => FieldOrigin::Other(format!("`{long}`")),
    };
    (Some(text.clone()), origin)
}

fn variable_value(variables: &Variables, name: &'static str) -> (Option<String>, FieldOrigin) {
    match variables.named(name) {
        Some((found, text)) => {
            let origin = match variables.place(found) {
                Some(_) => FieldOrigin::File,
                None => FieldOrigin::Other(origin(found, variables)),
            };
            (Some(text.to_owned()), origin)
        }
        None => (None, FieldOrigin::Default),
    }
}

/// Returns a text of the file with changes.
///
/// # Errors
/// The message about a text that is no TOML.
fn edited(text: &str, changes: &FileChanges) -> Result<String, String> {
    let keys = keys(&RUNNER, variables().map(|name| (name, None)));
    edit::edited(text, &keys, RUNNER.prefix, changes)
        .map_err(|(line, sentence)| format!("line {line} of the file: {sentence}"))
}
