//! The command line: arguments and environment in, a [`CliCommand`] or a [`UsageError`] out.
//!
//! Parsing has two stages. `parse` reads the typed options with the table in `flags`, and
//! `env_options` adds the values of variables. `resolve` then validates the combination and builds
//! the [`Config`]. Everything else that affects the result is a value in [`Env`], so tests run both
//! stages without touching the process. Only `start` and `surroundings` read the environment and
//! the files of the process; `restart` replaces the process; only `new` writes files. A usage error
//! ends the process with exit code 2; its text names the mistake and the expected value.

pub mod banner;
mod bots;
#[cfg_attr(not(feature = "call"), path = "absent.rs")]
mod call;
#[cfg_attr(not(feature = "cloud"), path = "absent.rs")]
mod cloud;
mod cluster;
mod command;
mod commands;
mod completions;
mod env_options;
mod env_trust;
mod features;
mod flags;
mod help;
#[cfg_attr(not(feature = "new"), path = "absent.rs")]
mod new;
#[cfg_attr(not(feature = "telephony"), path = "absent.rs")]
mod phone;
mod qr;
mod resolve;
mod restart;
#[cfg_attr(not(feature = "config"), path = "settings/absent.rs")]
mod settings;
#[cfg_attr(not(feature = "setup"), path = "absent.rs")]
mod setup;
mod source;
pub mod start;
mod surroundings;
#[cfg_attr(not(feature = "update"), path = "absent.rs")]
mod update;

use std::ffi::OsString;

use crate::config::{Config, Secret};
use crate::features::Feature;
use crate::proto::options::env_options::EnvOption;
use crate::proto::options::suggest::nearest;
pub use crate::proto::options::{Env, UsageError};
use crate::proto::options::{Expected, SpecialMode, need, parse as parse_options, split_command};
use command::{CommandRow, CommandTask};
use flags::{LowArgs, RUNNER};
use settings::BotSection;

/// The action that the arguments select.
#[derive(Debug)]
#[allow(missing_docs, reason = "not part of the public API")]
pub enum CliCommand {
    /// Run the server. `warnings` go to the log, which is set up later.
    Serve { config: Box<Config>, warnings: Vec<String> },
    /// Run the checks of the doctor, print the findings, and exit.
    Doctor { config: Box<Config>, warnings: Vec<String> },
    /// Run the task of a command, and exit.
    Task(Box<dyn CommandTask>),
    /// List the sound cards of this machine, and exit.
    LocalList,
    /// Print this text and exit.
    Help(String),
    /// Print this text and exit.
    Version(String),
}

/// The program whose arguments are parsed.
#[derive(Clone, Debug)]
pub struct ProgramIdentity {
    /// Its name in the help and in messages.
    pub name: String,
    /// Whether it has a bot of its own in place of the built-in ones.
    pub has_own_bot: bool,
}

impl ProgramIdentity {
    /// The binary of this repository.
    pub fn stock() -> ProgramIdentity {
        ProgramIdentity {
            name: "edge-runner".into(),
            has_own_bot: false,
        }
    }
}

/// Parses the arguments of the stock binary, without its name. See `parse_for`.
///
/// # Errors
/// As `parse_for`.
pub fn parse(arguments: impl IntoIterator<Item = OsString>, env: &Env<'_>) -> Result<CliCommand, UsageError> {
    parse_for(&ProgramIdentity::stock(), arguments, env)
}

/// Parses the arguments of a program, without its name.
///
/// # Errors
/// [`UsageError`] for the first invalid argument, value or combination, and for a feature that this
/// build lacks.
pub fn parse_for(
    program: &ProgramIdentity,
    arguments: impl IntoIterator<Item = OsString>,
    env: &Env<'_>,
) -> Result<CliCommand, UsageError> {
    let mut options: Vec<OsString> = arguments.into_iter().collect();
    if let Some(parsed) = commands::parse(program, &options, env) {
        return parsed;
    }
    if let Some(text) = information(program, &options)? {
        return Ok(CliCommand::Help(text));
    }
    let command = split_command(&mut options);
    let is_doctor = options.first().is_some_and(|argument| argument == "doctor");
    if is_doctor {
        options.remove(0);
    }
    let is_config = !is_doctor && options.first().is_some_and(|argument| argument == "config");
    let mut config_command = None;
    if is_config {
        options.remove(0);
        config_command = settings::command(&mut options)?;
        if config_command.is_none() {
            return Ok(CliCommand::Help(settings::help(program)));
        }
    }
    let typed = TypedArguments {
        program,
        options,
        command,
    };
    let (args, special) = typed.parse()?;
    match special {
        Some(SpecialMode::Help | SpecialMode::ShortHelp) if is_doctor => {
            return Ok(CliCommand::Help(help::doctor(program)));
        }
        Some(SpecialMode::Help | SpecialMode::ShortHelp) if is_config => {
            return Ok(CliCommand::Help(settings::help(program)));
        }
        Some(SpecialMode::Help) => return Ok(CliCommand::Help(help::text(program))),
        Some(SpecialMode::ShortHelp) => return Ok(CliCommand::Help(help::summary(program))),
        Some(SpecialMode::Version) => return Ok(CliCommand::Version(version_text(program))),
        None => {}
    }
    if args.given.contains(&flags::RunnerFlag::LOCAL_LIST) {
        need(&format!("`{}`", flags::RunnerFlag::LOCAL_LIST), Feature::Local)?;
        return Ok(CliCommand::LocalList);
    }
    if is_doctor {
        need(&format!("`{} doctor`", program.name), Feature::Doctor)?;
    }
    let mut warnings = Vec::new();
    env_options::warn_typos(&env.variables, &mut warnings);
    let env = &Env {
        variables: env.variables.clone(),
        addresses: env.addresses.clone(),
        names: env.names.clone(),
        read: env.read,
        make_key: match is_config {
            // A check leaves no key behind.
            true => &|_| Ok("-".repeat(*crate::limits::API_KEY_BYTES.end())),
            false => env.make_key,
        },
        lookup_host: env.lookup_host,
    };
    let mut values = StartValues::read(args, env)?;
    if program.has_own_bot {
        for variable in ["--bot", "--tools"].map(flags::variable) {
            if values.env.variables.literal(&variable).is_some() {
                warnings.push(format!("{variable} has no effect: this program has its own bot"));
            }
        }
    }
    let set = set_values(&values);
    let report = config_command.map(|command| settings::report(command, &values));
    let bots = std::mem::take(&mut values.bots);
    let config = match bots.is_empty() {
        true => values.resolve(&mut warnings)?,
        false => bots::resolve(values, &bots, &typed, env, &mut warnings)?,
    };
    bots::check_local(&config)?;
    if let Some(report) = report {
        return report.text(&warnings).map(CliCommand::Help);
    }
    let mut config = Box::new(config);
    config.set = set;
    Ok(match is_doctor {
        false => CliCommand::Serve { config, warnings },
        true => CliCommand::Doctor { config, warnings },
    })
}

/// The arguments of a start.
struct TypedArguments<'a> {
    program: &'a ProgramIdentity,
    options: Vec<OsString>,
    /// What is behind `--`.
    command: Option<Vec<OsString>>,
}

impl TypedArguments<'_> {
    fn parse(&self) -> Result<(Box<LowArgs>, Option<SpecialMode>), UsageError> {
        let mut args = Box::new(LowArgs {
            command: self.command.clone(),
            has_own_bot: self.program.has_own_bot,
            ..LowArgs::default()
        });
        let special = parse_options(&mut *args, &RUNNER, self.options.clone());
        let special = special.map_err(|error| suggest_command(self.program, error))?;
        Ok((args, special))
    }
}

/// The values of a start, before their combination is validated.
struct StartValues<'a> {
    args: Box<LowArgs>,
    /// The surroundings, with the variables of the file of settings.
    env: Env<'a>,
    /// The options that variables and the file set.
    sources: Vec<EnvOption<LowArgs>>,
    /// The sections of bots.
    bots: Vec<BotSection>,
}

impl<'a> StartValues<'a> {
    /// Adds what variables and the file of settings set to the typed options.
    fn read(mut args: Box<LowArgs>, env: &Env<'a>) -> Result<Self, UsageError> {
        let mut sources = crate::proto::options::env_options::apply(&mut *args, &RUNNER, &env.variables)?;
        let added = settings::apply(&mut args, env, &sources).map_err(|error| error.with_sources(&sources))?;
        sources.extend(added.options);
        let env = Env {
            variables: added.variables,
            addresses: env.addresses.clone(),
            names: env.names.clone(),
            ..*env
        };
        Ok(StartValues {
            args,
            env,
            sources,
            bots: added.bots,
        })
    }

    fn resolve(self, warnings: &mut Vec<String>) -> Result<Config, UsageError> {
        let StartValues { args, env, sources, .. } = self;
        resolve::config(*args, &env, warnings).map_err(|error| error.with_sources(&sources).with_places(&env.variables))
    }
}

/// Returns the options, the command, the variables and the sections that are set, by their keys.
fn set_values(of_start: &StartValues<'_>) -> Vec<(String, Secret)> {
    let (args, variables) = (&of_start.args, &of_start.env.variables);
    let mut values: Vec<(String, Secret)> = Vec::new();
    let mut set = |key: &str, text: &str| match values.iter_mut().find(|(other, _)| other == key) {
        Some((_, value)) => *value = Secret::new(format!("{}\n{text}", value.expose())),
        None => values.push((key.to_owned(), Secret::new(text))),
    };
    for (long, text, _) in &args.settings.recorded {
        set(long.trim_start_matches('-'), text);
    }
    for word in args.command.iter().flatten() {
        set("command", &word.to_string_lossy());
    }
    for (name, _) in help::variables() {
        if let Some(text) = variables.get(name) {
            set(name, text);
        }
    }
    for bot in &of_start.bots {
        set(&bot.key(), bot.content().expose());
    }
    values
}

/// Returns the output of `help` and `completions`; `None` for other arguments.
fn information(program: &ProgramIdentity, options: &[OsString]) -> Result<Option<String>, UsageError> {
    let word = |at: usize| options.get(at).map(|word| word.to_string_lossy());
    let text = match (word(0).as_deref(), word(1).as_deref()) {
        (Some("help"), None) => help::text(program),
        (Some("help"), Some("doctor")) => help::doctor(program),
        (Some("help"), Some("config")) if Feature::Config.in_this_build() => settings::help(program),
        (Some("help"), Some("completions")) | (Some("completions"), Some("--help" | "-h")) => {
            completions::help(program)
        }
        (Some("help"), Some(other)) => {
            return Err(UsageError::value(
                "help",
                other,
                Expected::one_of(other, &command::names(), &[]),
            ));
        }
        (Some("completions"), shell) => {
            let shell = shell.unwrap_or_default();
            let expected = || Expected::one_of(shell, &completions::SHELLS, &[]);
            if !completions::can_complete(&program.name) {
                return Err(UsageError::Combination(
                    "`completions` needs a program whose name has only letters of ASCII, digits, `-`, `_`, `.` and `+`"
                        .into(),
                ));
            }
            completions::script(shell, &program.name)
                .ok_or_else(|| UsageError::value("completions", shell, expected()))?
        }
        _ => return Ok(None),
    };
    Ok(Some(text))
}

/// Adds the nearest command to the error about an unknown argument or option.
fn suggest_command(program: &ProgramIdentity, error: UsageError) -> UsageError {
    match error {
        UsageError::UnexpectedArgument(given) if command::names().contains(&&*given) => {
            UsageError::Combination(format!("`{given}` must be the first argument"))
        }
        UsageError::UnexpectedArgument(given) => match (interpreter(&given), nearest(&given, command::names())) {
            (Some(interpreter), _) => UsageError::Combination(format!(
                "the command of a bot goes after `--`; did you mean `-- {interpreter} {given}`?"
            )),
            (None, Some(nearest)) => UsageError::UnknownCommand { given, nearest },
            (None, None) => UsageError::UnexpectedArgument(given),
        },
        UsageError::UnknownOption { given, nearest: None } => {
            let command = nearest(given.trim_start_matches('-'), command::names());
            let nearest = command.map(|command| format!("`{} {command}`", program.name));
            UsageError::UnknownOption { given, nearest }
        }
        other => other,
    }
}

/// Returns the interpreter of a script, by the end of its name.
fn interpreter(file: &str) -> Option<&'static str> {
    match file.rsplit_once('.')?.1 {
        "js" | "mjs" => Some("node"),
        _ => None,
    }
}

fn version_text(program: &ProgramIdentity) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let codec = crate::proto::audio::opus_name().map_or_else(String::new, |name| format!(" ({name})"));
    let runner = format!("edge-runner {version}{codec}\n");
    match program.has_own_bot {
        true => format!("{}, a bot on {runner}", program.name),
        false => runner,
    }
}

/// Returns the command that prints the help for these arguments.
pub fn help_of(program: &ProgramIdentity, arguments: &[OsString]) -> String {
    let name = &program.name;
    let Some(first) = arguments.first() else {
        return format!("{name} --help");
    };
    match commands::built(first) {
        Some(CommandRow {
            help_of: Some(help), ..
        }) => help(arguments),
        None if !["doctor", "config", "completions"]
            .iter()
            .any(|command| first == command) =>
        {
            format!("{name} --help")
        }
        _ => format!("{name} {} --help", first.to_string_lossy()),
    }
}

#[cfg(test)]
mod tests;
