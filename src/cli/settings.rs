//! The file of settings, and `edge-runner config`, which checks it and prints what is set.
//!
//! In: the typed options, the variables and the file of `--config`. Out: the options and variables
//! that the file adds, or a text. A typed option takes precedence over a variable, a variable over
//! the file, and the file over the default.

#[cfg(feature = "setup")]
mod page;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use super::flags::{LowArgs, RUNNER, RunnerFlag};
use super::{Env, ProgramIdentity, StartValues, UsageError, env_trust, flags, help};
use crate::config::{Config, NamedBot, ToolsConfig};
use crate::limits::BOT_SECONDS;
use crate::proto::bots::is_caller;
use crate::proto::modules::feature_of;
use crate::proto::options::env::Variables;
use crate::proto::options::env_options::EnvOption;
use crate::proto::options::help::{entry, paragraph};
use crate::proto::options::{Expected, FlagKind, OptionStore as _, ValueSource};
pub(super) use crate::proto::settings::BotSection;
use crate::proto::settings::edit::quoted;
use crate::proto::settings::{
    self, BY_BODY, CALLERS, COMMAND, DEVICES, ENVIRONMENT, MAX_SECONDS, NUMBERS, READ_BEFORE, Reference, SettingValue,
    SettingsFile, bot_keys, key_of, keys, may_contain_secret, parse,
};

/// The commands of `edge-runner config`.
pub(super) const COMMANDS: [&str; 2] = ["check", "show"];
/// The option of the built-in bots.
const BOT: &str = "--bot";
/// The option of the name at a LiveKit server.
const AGENT_NAME: &str = "--agent-name";
/// The options that the section of a bot may have.
const BOT_OPTIONS: [&str; 9] = [
    BOT,
    "--bot-audio",
    "--bot-rate",
    "--bot-memory",
    "--python",
    "--warm",
    "--tools",
    "--max-sessions",
    AGENT_NAME,
];
/// What the names of the variables begin with that the section of a bot may have.
const BOT_VARIABLES: [&str; 4] = ["REALTIME_", "CASCADE_", "TOOLS_", "RUNNER_BOT_"];
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
    /// The sections of bots.
    pub bots: Vec<BotSection>,
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
            bots: Vec::new(),
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
        bots: settings.bots,
    })
}

/// Reads the file of settings for a command other than the start. Returns the value of one option,
/// and all variables with those of the file.
///
/// # Errors
/// [`UsageError`] for a file that cannot be read, and for the first mistake in it.
pub(super) fn for_command(file: &str, option: &str, env: &Env<'_>) -> Result<(Option<String>, Variables), UsageError> {
    let settings = read(file, env)?;
    let read = |reference: &Reference| text_of(reference, env);
    let value = match settings.get(option).map(|entry| &entry.value) {
        Some(SettingValue::Texts(texts)) => Some(texts.concat()),
        Some(SettingValue::Reference(reference)) => Some(read(reference).map_err(UsageError::Combination)?),
        Some(SettingValue::Switch(_)) | None => None,
    };
    let added = settings.variables(&env.variables, &read)?;
    Ok((value, env.variables.clone().with_settings(added)))
}

/// Replaces the values of the runner by those of the section of a bot, which takes precedence over
/// all others.
///
/// # Errors
/// [`UsageError`] for an invalid value, and for a section that names no bot or two.
pub(super) fn apply_bot(values: &mut StartValues<'_>, bot: &BotSection) -> Result<(), UsageError> {
    let (section, args) = (&bot.settings, &mut *values.args);
    let is_set = |name: &str| section.get(name).is_some();
    let built_in = section.get(BOT);
    match (section.get(COMMAND), built_in) {
        (Some(_), Some(built_in)) => {
            let sentence = "`bot` and `command` both name the bot; give one of them";
            return Err(section.error(built_in.line, sentence));
        }
        (None, Some(built_in)) if args.has_own_bot => {
            let sentence = "`bot` names a built-in bot, but this program has its own; leave it out";
            return Err(section.error(built_in.line, sentence));
        }
        (None, None) if !args.has_own_bot => return Err(section.error(bot.line, "a bot needs `command` or `bot`")),
        _ => {}
    }
    (args.command, args.is_python_bot, args.bot) = (None, false, None);
    if built_in.is_some() {
        // They are for programs.
        (args.bot_audio, args.bot_rate_hz) = (None, None);
    }
    args.given.retain(|long| !is_set(long) && *long != BOT);
    values.sources.retain(|source| !is_set(source.flag.long));
    let (env, args) = (&values.env, &mut *values.args);
    let read = |reference: &Reference| text_of(reference, env);
    values.sources.extend(section.apply(args, &RUNNER, &[], &read)?);
    apply_command(args, section, &[]);
    let added = section.variables(&Variables::default(), &read)?;
    values.env.variables = std::mem::take(&mut values.env.variables).replaced_by(added);
    Ok(())
}

/// Returns a bot with the configuration of its section.
///
/// # Errors
/// [`UsageError`] for a value that cannot be read, and for an environment without a program.
pub(super) fn named_bot(bot: &BotSection, mut config: Config, env: &Env<'_>) -> Result<NamedBot<Config>, UsageError> {
    let read = |reference: &Reference| text_of(reference, env);
    config.bot_environment = bot.environment(&read)?;
    let runs_program = config.command.is_some() || matches!(config.assistant.tools, Some(ToolsConfig::Program(_)));
    if let Some(entry) = bot.environment.first().filter(|_| !runs_program) {
        let sentence = "`env` is the environment of a `command`, or of one in `tools`, and this bot has none";
        return Err(bot.settings.error(entry.line, sentence));
    }
    let agent_name = bot.settings.get(AGENT_NAME).and(config.agent_name());
    let agent_name = agent_name.map(str::to_owned);
    let mut named = NamedBot::new(&*bot.name, Arc::new(config));
    named.agent_name = agent_name;
    named.numbers = bot.texts(NUMBERS).to_vec();
    named.callers = bot.texts(CALLERS).to_vec();
    if let (Some(wrong), Some(entry)) = (
        named.callers.iter().find(|entry| !is_caller(entry)),
        bot.settings.get(CALLERS),
    ) {
        let sentence = format!(
            "`{CALLERS}` takes numbers such as +15550001111, beginnings such as +43*, and addresses such as sip:desk@example.net, not {}",
            quoted(wrong)
        );
        return Err(bot.settings.error(entry.line, &sentence));
    }
    named.devices = bot.texts(DEVICES).to_vec();
    named.is_in_body = bot.is_on(BY_BODY);
    if let Some(entry) = bot.settings.get(MAX_SECONDS) {
        let seconds = bot.texts(MAX_SECONDS).concat().parse().ok();
        let seconds = seconds.filter(|seconds| BOT_SECONDS.contains(seconds));
        let wants = || {
            let sentence = format!(
                "`{}` takes a number of seconds from {} to {}",
                entry.key,
                BOT_SECONDS.start(),
                BOT_SECONDS.end()
            );
            bot.settings.error(entry.line, &sentence)
        };
        named.session_max = Some(Duration::from_secs(seconds.ok_or_else(wants)?));
    }
    Ok(named)
}

/// Returns whether an error is about an entry of the section, and not of the runner.
pub(super) fn is_in(error: &UsageError, bot: &BotSection) -> bool {
    let text = error.to_string();
    let mut entries = bot.settings.entries.iter();
    entries.any(|entry| text.contains(&bot.settings.place(entry)))
}

/// Returns whether a warning is about a setting of the section, and not of the runner.
pub(super) fn is_about(warning: &str, bot: &BotSection) -> bool {
    let mut names = bot.settings.entries.iter().map(|entry| entry.name);
    names.any(|name| name != COMMAND && warning.contains(name))
}

fn read(file: &str, env: &Env<'_>) -> Result<SettingsFile, UsageError> {
    let wrong = |why: String| {
        UsageError::Combination(format!(
            "`--config {file}`: {why}; expected a text file in TOML that this user may read"
        ))
    };
    let bytes = (env.read)(file).map_err(|error| wrong(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text in UTF-8".to_owned()))?;
    let variables = || variables().map(|name| (name, feature_of(name)));
    let of_bots = variables().filter(|(name, _)| BOT_VARIABLES.iter().any(|prefix| name.starts_with(prefix)));
    let bot_keys = bot_keys(&RUNNER, &BOT_OPTIONS, of_bots);
    parse(file, &text, &keys(&RUNNER, variables()), &bot_keys, RUNNER.prefix)
}

/// Returns the variables that are of no option and that the runner itself reads.
fn variables() -> impl Iterator<Item = &'static str> {
    let others = help::ENVIRONMENT.map(|(name, _)| name);
    let all = help::variables().into_iter().map(|(name, _)| name);
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
pub(super) fn report(command: ConfigCommand, values: &StartValues<'_>) -> ConfigReport {
    let args = &values.args;
    match command {
        ConfigCommand::Check => ConfigReport::Checked(args.settings.file.clone()),
        ConfigCommand::Show => {
            let mut text = shown(args, &values.sources, &values.env.variables);
            for bot in &values.bots {
                show_bot(&mut text, bot);
            }
            ConfigReport::Shown(text)
        }
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

/// Adds the section of a bot. Every value of its environment may be a secret.
fn show_bot(text: &mut String, bot: &BotSection) {
    let file = &bot.settings.file;
    let place = |line: usize| format!("{file}:{line}");
    text.push('\n');
    line(text, &format!("[{}]", bot.key()), &place(bot.line));
    for entry in &bot.settings.entries {
        let value = match &entry.value {
            _ if is_secret(entry.name) => quoted(MASK),
            SettingValue::Switch(value) => value.to_string(),
            SettingValue::Reference(Reference::File(path)) => format!("{{ file = {} }}", quoted(path)),
            SettingValue::Reference(Reference::Variable(name)) => format!("{{ variable = {} }}", quoted(name)),
            SettingValue::Texts(texts) => {
                let is_list = [COMMAND, NUMBERS, CALLERS, DEVICES].contains(&entry.name);
                let values: Vec<String> = match is_list {
                    true => texts.iter().map(|text| quoted(text)).collect(),
                    false => texts.iter().map(|text| masked(text)).collect(),
                };
                match is_list {
                    true => format!("[{}]", values.join(", ")),
                    false => values.concat(),
                }
            }
        };
        line(text, &format!("{} = {value}", entry.key), &place(entry.line));
    }
    for entry in &bot.environment {
        let assignment = format!("{ENVIRONMENT}.{} = {}", entry.name, quoted(MASK));
        line(text, &assignment, &place(entry.line));
    }
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
        _ if may_contain_secret(text) => quoted(MASK),
        _ if is_number && (text == "0" || !text.starts_with('0')) => text.to_owned(),
        _ => quoted(text),
    }
}

/// Returns the default of an option, as its help says it.
fn default(flag: &RunnerFlag) -> Option<&'static str> {
    let (_, rest) = flag.help.split_once("[default: ")?;
    // An IPv6 address has brackets of its own.
    let mut open = 1;
    let end = rest.find(|c: char| {
        open += i32::from(c == '[') - i32::from(c == ']');
        open == 0
    });
    end.map(|end| &rest[..end])
}

/// Returns a warning if others may read a file of settings that contains a secret.
pub(super) fn exposed_warning(config: &Config) -> Option<String> {
    let file = config.secret_settings.as_ref()?;
    // The file was read a moment ago.
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    settings::exposed_warning(file, mode)
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
