//! The file of settings, and `edge-runner config`, which checks it and prints what is set.
//!
//! In: the typed options, the variables and the file of `--config`. Out: the options and variables
//! that the file adds, or a text. A typed option takes precedence over a variable, a variable over
//! the file, and the file over the default.

use std::ffi::OsString;

use super::features::of_variable;
use super::flags::{LowArgs, RUNNER, RunnerFlag};
use super::{Env, ProgramIdentity, UsageError, env_trust, flags, help};
use crate::proto::options::env::Variables;
use crate::proto::options::env_options::EnvOption;
use crate::proto::options::help::{entry, paragraph};
use crate::proto::options::{Expected, FlagKind, OptionStore as _, ValueSource};
use crate::proto::settings::{COMMAND, READ_BEFORE, Reference, SettingValue, SettingsFile, key_of, keys, parse};
use crate::proto::telephony::PROVIDERS;

/// The commands of `edge-runner config`.
pub(super) const COMMANDS: [&str; 2] = ["check", "show"];
/// What is printed in place of a secret.
const MASK: &str = "********";

/// A command of `edge-runner config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigCommand {
    Check,
    Show,
}

/// Removes the words of a command from the arguments after `config`; the name of a file becomes
/// `--config`. Returns `None` if the help is asked for.
///
/// # Errors
/// [`UsageError`] for another command.
pub(super) fn command(options: &mut Vec<OsString>) -> Result<Option<ConfigCommand>, UsageError> {
    let word = match options.is_empty() {
        true => return Ok(None),
        false => options.remove(0),
    };
    let command = match &*word.to_string_lossy() {
        "check" => ConfigCommand::Check,
        "show" => ConfigCommand::Show,
        "--help" | "-h" => return Ok(None),
        other => {
            return Err(UsageError::value(
                "config",
                other,
                Expected::one_of(other, &COMMANDS, &[]),
            ));
        }
    };
    let is_file = |argument: &OsString| !argument.as_encoded_bytes().starts_with(b"-");
    if options.first().is_some_and(is_file) {
        options.insert(0, "--config".into());
    }
    Ok(Some(command))
}

/// What the file adds.
pub(super) struct Added {
    /// All variables, with those of the file.
    pub variables: Variables,
    /// The options that the file sets.
    pub options: Vec<EnvOption<LowArgs>>,
}

/// Reads the file of `--config`, if there is one, and applies what no option and no variable sets.
///
/// # Errors
/// [`UsageError`] for a file that cannot be read, and for the first mistake in it.
pub(super) fn apply(args: &mut LowArgs, env: &Env<'_>, from_env: &[EnvOption<LowArgs>]) -> Result<Added, UsageError> {
    let Some(file) = args.settings.file.clone() else {
        return Ok(Added {
            variables: env.variables.clone(),
            options: Vec::new(),
        });
    };
    let settings = read(&file, env)?;
    let read = |reference: &Reference| text_of(reference, env);
    let options = settings.apply(args, &RUNNER, from_env, &read)?;
    apply_command(args, &settings, from_env);
    let added = settings.variables(&env.variables, &read)?;
    args.settings.contains_secret = settings.contains_one(is_secret);
    args.settings.files = settings.files().map(str::to_owned).collect();
    Ok(Added {
        variables: env.variables.clone().with_settings(added),
        options,
    })
}

fn read(file: &str, env: &Env<'_>) -> Result<SettingsFile, UsageError> {
    let wrong = |why: String| {
        UsageError::Combination(format!(
            "`--config {file}`: {why}; expected a text file in TOML that this user may read"
        ))
    };
    let bytes = (env.read)(file).map_err(|error| wrong(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text in UTF-8".to_owned()))?;
    let variables = variables().map(|name| (name, of_variable(name)));
    parse(file, &text, &keys(&RUNNER, variables), RUNNER.prefix)
}

/// Returns the variables that are of no option and that the runner itself reads.
fn variables() -> impl Iterator<Item = &'static str> {
    let others = help::ENVIRONMENT.map(|(name, _)| name);
    let all = help::environment(&PROVIDERS).into_iter().map(|(name, _)| name);
    all.filter(move |name| !others.contains(name))
}

/// Returns the text of a reference: the first line of a file, or a variable.
fn text_of(reference: &Reference, env: &Env<'_>) -> Result<String, String> {
    let text = match reference {
        Reference::File(path) => {
            let text = env.read_text(path).map_err(|error| format!("{path}: {error}"))?;
            text.lines().next().unwrap_or_default().trim().to_owned()
        }
        Reference::Variable(name) => match env.variables.literal(name) {
            Some(text) => text.to_owned(),
            None => return Err(format!("the variable {name} is not set")),
        },
    };
    match (text.is_empty(), reference) {
        (true, Reference::File(path)) => Err(format!("{path}: its first line is empty")),
        _ => Ok(text),
    }
}

/// Sets the command that is the bot, unless something else names a bot.
fn apply_command(args: &mut LowArgs, settings: &SettingsFile, from_env: &[EnvOption<LowArgs>]) {
    let is_bot = |option: &EnvOption<LowArgs>| option.flag.long == "--bot";
    // An entry of the same file conflicts with the command, and is reported with it.
    let of_file = settings.get("--bot").is_some();
    let is_chosen =
        args.command.is_some() || from_env.iter().any(is_bot) || (args.given.contains(&"--bot") && !of_file);
    if let Some(setting) = settings.get(COMMAND)
        && let SettingValue::Texts(words) = &setting.value
        && !is_chosen
    {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        args.is_python_bot = words.first().is_some_and(|program| args.begins_command(program));
        args.command = Some(words);
        args.settings.command = Some(settings.place(setting));
    }
}

/// Returns whether an option or a variable is or may contain a secret.
fn is_secret(name: &str) -> bool {
    match name.starts_with("--") {
        true => env_trust::is_secret(&flags::variable(name)),
        false => env_trust::is_secret(name),
    }
}

/// What a command prints if there is no mistake.
pub(super) enum ConfigReport {
    /// The file that was checked.
    Checked(Option<String>),
    Shown(String),
}

/// Returns what a command prints if the combination of values has no mistake.
pub(super) fn report(
    command: ConfigCommand,
    args: &LowArgs,
    sources: &[EnvOption<LowArgs>],
    env: &Env<'_>,
) -> ConfigReport {
    match command {
        ConfigCommand::Check => ConfigReport::Checked(args.settings.file.clone()),
        ConfigCommand::Show => ConfigReport::Shown(shown(args, sources, &env.variables)),
    }
}

impl ConfigReport {
    /// Returns the text.
    ///
    /// # Errors
    /// [`UsageError`] for a check without a file.
    pub(super) fn text(self, warnings: &[String]) -> Result<String, UsageError> {
        match self {
            ConfigReport::Shown(text) => Ok(text),
            ConfigReport::Checked(Some(file)) => {
                let warnings = warnings.iter().map(|warning| format!("warning: {warning}\n"));
                Ok(warnings.chain([format!("{file}: no mistakes\n")]).collect())
            }
            ConfigReport::Checked(None) => Err(UsageError::Combination(
                "`config check` needs a file: `config check FILE`, or RUNNER_CONFIG".to_owned(),
            )),
        }
    }
}

/// Returns the text of `config show`: every value that is set and where it comes from, as a file of
/// settings, and the defaults as comments. Secrets are masked.
fn shown(args: &LowArgs, sources: &[EnvOption<LowArgs>], variables: &Variables) -> String {
    let mut text = String::new();
    if let Some(command) = &args.command {
        let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        let source = args.settings.command.as_deref().unwrap_or("command line");
        line(&mut text, &format!("{COMMAND} = [{}]", words.join(", ")), source);
    }
    for flag in RUNNER.flags() {
        let key = flag.long.trim_start_matches('-');
        let source = || sources.iter().find(|option| option.flag.long == flag.long);
        let values = || args.settings.recorded.iter().filter(|(long, ..)| *long == flag.long);
        let from = values().next().map(|(.., from)| *from);
        match (from, source()) {
            (Some(from), source) => {
                let texts: Vec<&str> = values().map(|(_, text, _)| text.as_str()).collect();
                let from = match (from, source) {
                    (ValueSource::Variable | ValueSource::File, Some(option)) => origin(&option.variable, variables),
                    _ => flag.long.to_owned(),
                };
                let hidden = if READ_BEFORE.contains(&flag.long) { "# " } else { "" };
                line(
                    &mut text,
                    &format!("{hidden}{key} = {}", shown_value(flag, &texts)),
                    &from,
                );
            }
            (None, Some(option)) if option.is_off => {
                line(
                    &mut text,
                    &format!("{key} = false"),
                    &origin(&option.variable, variables),
                );
            }
            (None, _) => text.extend(default(flag).map(|default| format!("# {key}: {default} (default)\n"))),
        }
    }
    for name in self::variables() {
        // An empty text of the file is a value, such as no greeting.
        let of_file = || variables.place(name).and_then(|_| Some((name, variables.raw(name)?)));
        if let Some((found, value)) = variables.named(name).or_else(of_file) {
            let from = match variables.place(found) {
                Some(place) => place.to_owned(),
                None => origin(found, variables),
            };
            let value = if is_secret(name) { quoted(MASK) } else { masked(value) };
            let key = key_of(name, RUNNER.prefix);
            line(&mut text, &format!("{key} = {value}"), &from);
        }
    }
    text
}

fn line(text: &mut String, assignment: &str, source: &str) {
    text.push_str(&format!("{assignment}  # {source}\n"));
}

/// Returns the name of a variable, and whether it is of `.env`; that of an entry is unchanged.
fn origin(name: &str, variables: &Variables) -> String {
    match variables.raw(name).is_some() && !variables.is_of_process(name) {
        true => format!("{name} in .env"),
        false => name.to_owned(),
    }
}

fn shown_value(flag: &RunnerFlag, texts: &[&str]) -> String {
    let value = |text: &str| match is_secret(flag.long) {
        true => quoted(MASK),
        false => masked(text),
    };
    match flag.kind {
        FlagKind::Switch(_) => "true".to_owned(),
        FlagKind::Count(_) => texts.len().to_string(),
        FlagKind::Repeatable(..) | FlagKind::List(..) => {
            let values: Vec<String> = texts.iter().map(|text| value(text)).collect();
            format!("[{}]", values.join(", "))
        }
        // The last use of an option wins.
        _ => value(texts.last().copied().unwrap_or_default()),
    }
}

/// Returns a value as TOML; a URL that may contain a password or a token is masked.
fn masked(text: &str) -> String {
    let is_number = !text.is_empty() && text.len() < 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    match text {
        _ if text.contains("://") && text.contains(['@', '?', '=']) => quoted(MASK),
        _ if is_number && (text == "0" || !text.starts_with('0')) => text.to_owned(),
        _ => quoted(text),
    }
}

/// Returns a text as a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns the default of an option, as its help says it.
fn default(flag: &RunnerFlag) -> Option<&'static str> {
    let (_, rest) = flag.help.split_once("[default: ")?;
    rest.split_once(']').map(|(default, _)| default)
}

/// Returns the text of `config --help`.
pub(super) fn help(program: &ProgramIdentity) -> String {
    let name = &program.name;
    let mut text =
        format!("Usage: {name} config check [FILE] [OPTIONS]\n       {name} config show [FILE] [OPTIONS]\n\n");
    paragraph(
        &mut text,
        "Reads the file of settings as a start with --config FILE (RUNNER_CONFIG) would, together with the options, the \
         variables and .env. `check` prints the first mistake with its line, or the warnings. `show` prints every value \
         that is set and where it comes from: an option, a variable, or a line of the file; secrets are masked, and \
         defaults are comments. Nothing is started or written.",
    );
    text.push_str("\nExit codes:\n");
    for (code, help) in [
        ("  0", "A start would take these settings."),
        (
            "  2",
            "A mistake: the message on stderr says where, and what is expected.",
        ),
    ] {
        entry(&mut text, code, help);
    }
    text
}

#[cfg(test)]
mod tests;
