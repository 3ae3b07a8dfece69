//! The command line of `edge-runner cloud`.
//!
//! In: the arguments after `cloud`. Out: a [`CloudTask`] or a usage error. The option tables are in
//! `flags`; `serve`, `scale`, `keys` and `client` resolve the options; `help` writes the texts;
//! `run` runs the task.

mod client;
mod flags;
mod help;
mod keys;
mod run;
mod scale;
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;

use edge_runner_proto::options::env_options::{self, EnvOption};
use edge_runner_proto::options::{Env, SpecialMode, UsageError, not_unicode, parse as parse_options, split_command};

use crate::config::{ClientConfig, CloudConfig, KeysConfig, SharedTask};
use crate::io::guard;

use flags::{CloudArgs, CloudOptions};

/// What the arguments after `cloud` request.
#[derive(Debug)]
pub enum CloudCommand {
    /// Run the task. `warnings` are logged once the logger is set up.
    Do { task: CloudTask, warnings: Vec<String> },
    /// Print this text and exit.
    Help(String),
    /// Print this text and exit.
    Version(String),
}

fn version() -> CloudCommand {
    CloudCommand::Version(format!("edge-runner {}\n", env!("CARGO_PKG_VERSION")))
}

/// A task of `edge-runner cloud`.
#[derive(Debug)]
pub enum CloudTask {
    Serve(Box<CloudConfig>),
    Keys(KeysConfig),
    /// Work on what replicas share, in a build with the feature `scale`.
    Shared {
        task: SharedTask,
        verbosity: u8,
    },
    Client(Box<ClientConfig>),
    /// Guard the builder commands of the service with this process id, which works in this
    /// directory. Only the service starts it, and no help text lists it.
    Guard(u32, PathBuf),
}

/// A subcommand: its words after `cloud`, its options, and the function that resolves them.
struct Subcommand {
    words: &'static [&'static str],
    table: &'static CloudOptions,
    resolve: fn(CloudArgs, &Env<'_>, &mut Vec<String>) -> Result<CloudTask, UsageError>,
}

/// Every subcommand, in the order of the help text.
static SUBCOMMANDS: [Subcommand; 11] = [
    Subcommand {
        words: &["serve"],
        table: &flags::SERVE,
        resolve: serve::resolve,
    },
    Subcommand {
        words: &["keys", "create"],
        table: &flags::KEYS_CREATE,
        resolve: keys::create,
    },
    Subcommand {
        words: &["keys", "list"],
        table: &flags::KEYS_LIST,
        resolve: keys::list,
    },
    Subcommand {
        words: &["keys", "revoke"],
        table: &flags::KEYS_REVOKE,
        resolve: keys::revoke,
    },
    Subcommand {
        words: &["migrate"],
        table: &flags::MIGRATE,
        resolve: scale::migrate,
    },
    Subcommand {
        words: &["import"],
        table: &flags::IMPORT,
        resolve: scale::import,
    },
    Subcommand {
        words: &["export"],
        table: &flags::EXPORT,
        resolve: scale::export,
    },
    Subcommand {
        words: &["build"],
        table: &flags::BUILD,
        resolve: client::build,
    },
    Subcommand {
        words: &["status"],
        table: &flags::STATUS,
        resolve: client::status,
    },
    Subcommand {
        words: &["logs"],
        table: &flags::LOGS,
        resolve: client::logs,
    },
    Subcommand {
        words: &["regions"],
        table: &flags::REGIONS,
        resolve: client::regions,
    },
];

impl Subcommand {
    /// Returns the subcommand that the arguments begin with.
    fn of(arguments: &[OsString]) -> Option<&'static Subcommand> {
        let begins = |subcommand: &&Subcommand| {
            arguments.len() >= subcommand.words.len()
                && subcommand
                    .words
                    .iter()
                    .zip(arguments)
                    .all(|(word, given)| given == word)
        };
        SUBCOMMANDS.iter().find(begins)
    }

    fn name(&self) -> String {
        self.words.join(" ")
    }
}

/// Parses the arguments after `cloud`.
///
/// # Errors
/// [`UsageError`] for the first invalid argument, value or combination.
pub fn parse(mut arguments: Vec<OsString>, env: &Env<'_>) -> Result<CloudCommand, UsageError> {
    if let [word, service, data_dir] = &*arguments
        && word == guard::SUBCOMMAND
        && let Some(service) = service.to_str().and_then(|id| id.parse().ok())
    {
        let task = CloudTask::Guard(service, data_dir.into());
        let warnings = Vec::new();
        return Ok(CloudCommand::Do { task, warnings });
    }
    let command = split_command(&mut arguments);
    let Some(subcommand) = Subcommand::of(&arguments) else {
        return without_subcommand(arguments);
    };
    arguments.drain(..subcommand.words.len());
    let mut args = CloudArgs {
        command,
        ..CloudArgs::default()
    };
    let takes_command = std::ptr::eq(subcommand.table, &raw const flags::SERVE);
    let asked = parse_options(&mut args, subcommand.table, arguments).map_err(|error| match error {
        UsageError::UnexpectedArgument(given) if !takes_command => UsageError::Combination(format!(
            "unexpected argument `{given}`: `cloud {}` takes options only",
            subcommand.name()
        )),
        error => error,
    });
    match asked? {
        Some(SpecialMode::Help | SpecialMode::ShortHelp) => return Ok(CloudCommand::Help(help::text(subcommand))),
        Some(SpecialMode::Version) => return Ok(version()),
        None => {}
    }
    if args.command.is_some() && !takes_command {
        return Err(UsageError::Combination(format!(
            "`cloud {}` takes no command after `--`; the builder command belongs to `cloud serve`",
            subcommand.name()
        )));
    }
    if let (None, Some(word)) = (&args.argument, subcommand.table.argument) {
        let name = subcommand.name();
        return Err(UsageError::Combination(format!(
            "`cloud {name}` needs its {word}: cloud {name} {word}"
        )));
    }
    let mut warnings = Vec::new();
    let others = help::ENVIRONMENT.iter().map(|(name, _)| *name);
    env_options::warn_typos(&flags::TABLES, others, &env.variables, &mut warnings);
    let taken = env_options::apply(&mut args, subcommand.table, &env.variables)?;
    pair(&args, &taken, env)?;
    let task = (subcommand.resolve)(args, env, &mut warnings).map_err(|error| error.with_sources(&taken))?;
    Ok(CloudCommand::Do { task, warnings })
}

/// Rejects an API key from the command line together with a URL from `.env`, as `trust` does for a
/// key from the environment.
fn pair(args: &CloudArgs, taken: &[EnvOption<CloudArgs>], env: &Env<'_>) -> Result<(), UsageError> {
    let url = taken.iter().find(|taken| taken.flag.long == "--api-url");
    match url.filter(|url| args.given.contains(&"--api-key") && !env.variables.is_of_process(&url.variable)) {
        Some(url) => Err(UsageError::Combination(format!(
            "`--api-key` is on the command line, but the URL is in .env, as {}: add `--api-url` as well",
            url.variable
        ))),
        None => Ok(()),
    }
}

/// Handles arguments that name no subcommand.
fn without_subcommand(mut arguments: Vec<OsString>) -> Result<CloudCommand, UsageError> {
    let listed: Vec<String> = SUBCOMMANDS
        .iter()
        .map(|subcommand| format!("`{}`", subcommand.name()))
        .collect();
    let listed = listed.join(", ");
    if arguments.is_empty() {
        return Err(UsageError::Combination(format!("`cloud` needs one of {listed}")));
    }
    let is_option = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"-");
    let first = arguments.remove(0).into_string().map_err(not_unicode)?;
    match &*first {
        "--help" | "-h" | "help" => Ok(CloudCommand::Help(help::overview())),
        "--version" | "-V" => Ok(version()),
        "keys" if arguments.first().is_some_and(|next| next == "--help" || next == "-h") => {
            Ok(CloudCommand::Help(help::overview()))
        }
        // The argument is not repeated, because it may contain a key.
        other if other.starts_with('-') || (other == "keys" && arguments.first().is_some_and(is_option)) => Err(
            UsageError::Combination(format!("options follow the command, which is one of {listed}")),
        ),
        _ => {
            let next = arguments
                .first()
                .and_then(|next| next.to_str())
                .filter(|_| first == "keys");
            let given = [Some(&*first), next]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ");
            Err(UsageError::Combination(format!(
                "there is no `cloud {given}`; there are {listed}"
            )))
        }
    }
}

/// Returns the help command for these arguments, which begin with `cloud`.
pub fn help_of(arguments: &[OsString]) -> String {
    let subcommand = Subcommand::of(arguments.get(1..).unwrap_or_default());
    match subcommand {
        Some(subcommand) => format!("edge-runner cloud {} --help", subcommand.name()),
        None => "edge-runner cloud --help".into(),
    }
}

#[cfg(test)]
mod tests;
