//! `edge-runner cloud`: which of its commands is meant, and what its options mean.
//!
//! The arguments behind `cloud` enter; a [`Task`] leaves, or a misuse. The tables are in `flags`;
//! `serve`, `keys` and `client` hold values against each other; `help` writes the texts; `run` does
//! the task.

mod client;
mod flags;
mod help;
mod keys;
mod run;
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;

use edge_runner_proto::options::env_options::{self, EnvOption};
use edge_runner_proto::options::{Env, SpecialMode, UsageError, not_unicode, parse as parse_options, split_command};

use crate::config::{ClientConfig, CloudConfig, KeysConfig};
use crate::io::guard;

use flags::{Table, Typed};

/// What the arguments behind `cloud` ask for.
#[derive(Debug)]
pub enum Command {
    /// Do it; `warnings` are for the log, once there is one.
    Do { task: Task, warnings: Vec<String> },
    /// Print this text and end.
    Help(String),
    /// Print this text and end.
    Version(String),
}

fn version() -> Command {
    Command::Version(format!("edge-runner {}\n", env!("CARGO_PKG_VERSION")))
}

/// What `edge-runner cloud` is to do.
#[derive(Debug)]
pub enum Task {
    Serve(Box<CloudConfig>),
    Keys(KeysConfig),
    Client(Box<ClientConfig>),
    /// To guard the commands of a service that works in this directory; what starts it is that
    /// service, and no help tells of it.
    Guard(PathBuf),
}

/// One command: the words behind `cloud`, its options, and what is made of them.
struct Verb {
    words: &'static [&'static str],
    table: &'static Table,
    meaning: fn(Typed, &Env<'_>, &mut Vec<String>) -> Result<Task, UsageError>,
}

/// Every command, in the order of the help.
static VERBS: [Verb; 8] = [
    Verb {
        words: &["serve"],
        table: &flags::SERVE,
        meaning: serve::meaning,
    },
    Verb {
        words: &["keys", "create"],
        table: &flags::KEYS_CREATE,
        meaning: keys::create,
    },
    Verb {
        words: &["keys", "list"],
        table: &flags::KEYS_LIST,
        meaning: keys::list,
    },
    Verb {
        words: &["keys", "revoke"],
        table: &flags::KEYS_REVOKE,
        meaning: keys::revoke,
    },
    Verb {
        words: &["build"],
        table: &flags::BUILD,
        meaning: client::build,
    },
    Verb {
        words: &["status"],
        table: &flags::STATUS,
        meaning: client::status,
    },
    Verb {
        words: &["logs"],
        table: &flags::LOGS,
        meaning: client::logs,
    },
    Verb {
        words: &["regions"],
        table: &flags::REGIONS,
        meaning: client::regions,
    },
];

impl Verb {
    /// Returns the command whose words these arguments begin with.
    fn of(arguments: &[OsString]) -> Option<&'static Verb> {
        let begins = |verb: &&Verb| {
            arguments.len() >= verb.words.len() && verb.words.iter().zip(arguments).all(|(word, given)| given == word)
        };
        VERBS.iter().find(begins)
    }

    fn name(&self) -> String {
        self.words.join(" ")
    }
}

/// Reads the arguments behind `cloud`.
///
/// # Errors
/// [`UsageError`] for the first argument, value or combination that makes no sense.
pub fn parse(mut arguments: Vec<OsString>, env: &Env<'_>) -> Result<Command, UsageError> {
    if let [word, data_dir] = &*arguments
        && word == guard::SUBCOMMAND
    {
        let task = Task::Guard(data_dir.into());
        let warnings = Vec::new();
        return Ok(Command::Do { task, warnings });
    }
    let command = split_command(&mut arguments);
    let Some(verb) = Verb::of(&arguments) else {
        return without_verb(arguments);
    };
    arguments.drain(..verb.words.len());
    let mut typed = Typed {
        command,
        ..Typed::default()
    };
    let takes_command = std::ptr::eq(verb.table, &raw const flags::SERVE);
    let asked = parse_options(&mut typed, verb.table, arguments).map_err(|error| match error {
        UsageError::UnexpectedArgument(given) if !takes_command => UsageError::Combination(format!(
            "`{given}` is one argument too many: `cloud {}` takes options alone",
            verb.name()
        )),
        error => error,
    });
    match asked? {
        Some(SpecialMode::Help) => return Ok(Command::Help(help::text(verb))),
        Some(SpecialMode::Version) => return Ok(version()),
        None => {}
    }
    if typed.command.is_some() && !takes_command {
        return Err(UsageError::Combination(format!(
            "`cloud {}` takes no command after `--`; the builder command belongs to `cloud serve`",
            verb.name()
        )));
    }
    if let (None, Some(word)) = (&typed.argument, verb.table.argument) {
        let name = verb.name();
        return Err(UsageError::Combination(format!(
            "`cloud {name}` needs its {word}: cloud {name} {word}"
        )));
    }
    let mut warnings = Vec::new();
    let others = help::ENVIRONMENT.iter().map(|(name, _)| *name);
    env_options::warn_typos(&flags::TABLES, others, &env.variables, &mut warnings);
    let taken = env_options::apply(&mut typed, verb.table, &env.variables)?;
    pair(&typed, &taken, env)?;
    let task = (verb.meaning)(typed, env, &mut warnings).map_err(|error| error.with_sources(&taken))?;
    Ok(Command::Do { task, warnings })
}

/// Refuses to send a key that was typed to where a file of the working directory says, as `trust`
/// does for one of the environment.
fn pair(typed: &Typed, taken: &[EnvOption<Typed>], env: &Env<'_>) -> Result<(), UsageError> {
    let url = taken.iter().find(|taken| taken.flag.long == "--api-url");
    match url.filter(|url| typed.given.contains(&"--api-key") && !env.variables.is_of_process(&url.variable)) {
        Some(url) => Err(UsageError::Combination(format!(
            "`--api-key` was typed, and where it is sent stands in .env, as {}: type `--api-url` as well",
            url.variable
        ))),
        None => Ok(()),
    }
}

/// What is meant where no command is named.
fn without_verb(mut arguments: Vec<OsString>) -> Result<Command, UsageError> {
    let listed: Vec<String> = VERBS.iter().map(|verb| format!("`{}`", verb.name())).collect();
    let listed = listed.join(", ");
    if arguments.is_empty() {
        return Err(UsageError::Combination(format!("`cloud` needs one of {listed}")));
    }
    let is_option = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"-");
    let first = arguments.remove(0).into_string().map_err(not_unicode)?;
    match &*first {
        "--help" | "-h" | "help" => Ok(Command::Help(help::overview())),
        "--version" | "-V" => Ok(version()),
        "keys" if arguments.first().is_some_and(|next| next == "--help" || next == "-h") => {
            Ok(Command::Help(help::overview()))
        }
        // What stands there is not repeated: it may hold a key.
        other if other.starts_with('-') || (other == "keys" && arguments.first().is_some_and(is_option)) => Err(
            UsageError::Combination(format!("options stand behind the command, which is one of {listed}")),
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

/// Returns how the help of these arguments, which begin with `cloud`, is called.
pub fn help_of(arguments: &[OsString]) -> String {
    let verb = Verb::of(arguments.get(1..).unwrap_or_default());
    match verb {
        Some(verb) => format!("edge-runner cloud {} --help", verb.name()),
        None => "edge-runner cloud --help".into(),
    }
}

#[cfg(test)]
mod tests;
