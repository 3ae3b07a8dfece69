//! The start of the process: reads its surroundings, parses the arguments, sets up logging and the
//! runtime, serves, and exits.
//!
//! In: a bot. Out: an exit code (0: success, 1: run-time error, 2: usage error). This module reads
//! the environment and the arguments. It also sets `ENV=local` and the variables of `.env` in the
//! process, so that bots find them in their environment.

#![allow(
    clippy::disallowed_methods,
    reason = "the process's environment and files are read here, so that all other modules receive values"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use edge_runner_http::startup::{
    EXIT_FAILURE, EXIT_USAGE, StartupError, forbid_debuggers, is_single_threaded, runtime,
};
use tokio::runtime::Runtime;

use super::command::{CommandStart, complete, failure};
use super::resolve::MADE_KEY_FILE;
use super::restart::{ProcessImage, Trial};
use super::source::StartSource;
use super::surroundings::{Surroundings, env, make_key, surroundings};
use super::{CliCommand, ProgramIdentity, banner, settings};
use crate::bot::{self, Bot, BotError, RunnerArguments};
use crate::bots::built_in_bot;
use crate::config::Config;
use crate::features::Feature;
use crate::io::{AfterServing, RunError, modules};
use crate::limits::RUNTIME_END;
use crate::logging;
use crate::proto::doctor::Findings;
use crate::proto::http::cluster::key_file_warning;
use crate::proto::modules::{NO_VIDEO_ROOMS, shared_udp_port};
use crate::proto::options::env::{Variables, unused_proxy_warning};

/// Runs `bot` for every caller until the process is asked to stop.
///
/// `/status`, the page and the help name the bot after the program's file.
///
/// Call it first in `main`, before any thread is started: it sets environment variables.
pub fn main<F, Fut>(bot: F) -> ExitCode
where
    F: Fn(RunnerArguments) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), BotError>> + Send + 'static,
{
    // The first part of the type name is the crate of the bot. Its log records are shown like those
    // of the runner.
    let bot_crate = bot::crate_of::<F>().unwrap_or_default();
    let program = ProgramIdentity {
        name: program_name().unwrap_or_else(|| bot_crate.to_owned()),
        has_own_bot: true,
    };
    run_or_report(bot::erase(bot), bot_crate, &program)
}

/// Runs the built-in bots. They need the media of the runner, so they cannot join Daily rooms;
/// options that need this are reported at the start.
pub fn built_in() -> ExitCode {
    run_or_report(
        bot::erase(built_in_bot),
        env!("CARGO_CRATE_NAME"),
        &ProgramIdentity::stock(),
    )
}

/// Returns the file name of this program, as it was started.
fn program_name() -> Option<String> {
    let path = PathBuf::from(std::env::args_os().next()?);
    let name = path.file_name()?.to_string_lossy();
    Some(name.replace(char::is_control, "?"))
}

fn run_or_report(bot: Bot, bot_crate: &'static str, program: &ProgramIdentity) -> ExitCode {
    let image = ProcessImage::capture();
    let error = match run(bot, bot_crate, program) {
        Ok(AfterServing::Exit) => None,
        Ok(AfterServing::Restart) => {
            logging::flush();
            Some(image.start_again())
        }
        Err(error) => Some(error),
    };
    let code = error.map_or(ExitCode::SUCCESS, |StartupError { code, message }| {
        // A check of `update` says on stdout what it found.
        if !message.is_empty() {
            // stderr may be closed or unread; the exit code still reports the error.
            logging::print(&format!("{}: {message}", program.name));
        }
        ExitCode::from(code)
    });
    logging::flush();
    code
}

fn run(bot: Bot, bot_crate: &'static str, program: &ProgramIdentity) -> Result<AfterServing, StartupError> {
    let process: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| (lossy(name), lossy(value)))
        .collect();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Surroundings {
        variables,
        for_bots,
        warnings: skipped,
    } = surroundings(process.clone(), &arguments)?;
    let made_key = Cell::new(None);
    let note_key = |folder: &Path| {
        made_key.set(Some(folder.join(MADE_KEY_FILE)));
        make_key(folder)
    };
    let env = env(variables, &note_key);
    let help = super::help_of(program, &arguments);
    let command = super::parse_for(program, arguments.clone(), &env).map_err(|error| {
        // A skipped line of .env may be the cause of the error.
        let skipped: String = skipped.iter().map(|warning| format!("\n{warning}")).collect();
        StartupError {
            code: EXIT_USAGE,
            message: format!("{error}{skipped}\nSee `{help}`."),
        }
    })?;
    let ended = |()| AfterServing::Exit;
    let (mut config, mut warnings, doctor) = match command {
        CliCommand::Help(text) | CliCommand::Version(text) => {
            // `edge-runner --help | head` closes the pipe early; that is not an error.
            let _ = io::stdout().write_all(text.as_bytes());
            return Ok(AfterServing::Exit);
        }
        CliCommand::Task(task) => {
            let start = CommandStart {
                skipped: &skipped,
                variables: &env.variables,
            };
            return task.run(&start).map(ended);
        }
        CliCommand::LocalList => return list_sound_cards(&env.variables).map(ended),
        CliCommand::Serve { config, warnings } => (config, warnings, false),
        CliCommand::Doctor { config, warnings } => (config, warnings, true),
    };
    config.bot_name = program.has_own_bot.then(|| program.name.clone());
    // The built-in bots need the media of the runner, so they cannot join Daily rooms.
    config.bot_enters_rooms = !config.runs_built_in_bot();
    for bot in config.bots.iter_mut() {
        let (name, of_bot) = (&bot.name, Arc::make_mut(&mut bot.config));
        of_bot.bot_name = program.has_own_bot.then(|| name.to_string());
        of_bot.bot_enters_rooms = !of_bot.runs_built_in_bot();
    }
    if config.direct && !config.bot_enters_rooms && !doctor {
        return Err(StartupError {
            code: EXIT_USAGE,
            message: format!("`--direct` with a built-in bot: {NO_VIDEO_ROOMS}\nSee `{help}`."),
        });
    }
    warnings.extend(exposures(&config, doctor));
    warnings.extend(unused_proxy_warning(&env.variables));
    // The doctor has a line of its own for it.
    warnings.extend(cluster_key_warning(&config).filter(|_| !doctor));
    warnings.extend(settings::exposed_warning(&config));
    let alone = set_variables(for_bots);
    logging::init(config.verbosity, env.variables.get("RUST_LOG"), bot_crate, config.log);
    for warning in skipped.iter().chain(&warnings) {
        log::warn!("{warning}");
    }
    if let Some(file) = made_key.take() {
        log::info!("the key of callers is in {}", file.display());
    }
    if !alone {
        log::warn!(
            "ENV=local and the variables of the file are not set for bots: threads were started before edge_runner::main"
        );
    }
    if !doctor {
        forbid_debuggers();
    }
    let config = Arc::new(*config);
    let runtime = runtime(config.workers, modules::begin_thread)?;
    if doctor {
        return run_doctor(runtime, config).map(ended);
    }
    let source = StartSource {
        program: program.clone(),
        process,
        arguments,
        file: config.settings_page.clone(),
        warned: Mutex::new([skipped, warnings].concat()),
    };
    serve(runtime, config, bot, source)
}

/// Returns a warning if others may read the cluster key.
fn cluster_key_warning(config: &Config) -> Option<String> {
    let file = &config.cluster.as_ref()?.key_file;
    // The key was read a moment ago.
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    key_file_warning(file, mode)
}

/// Returns warnings about unprotected endpoints and about calls that cannot succeed.
fn exposures(config: &Config, doctor: bool) -> Vec<String> {
    let mut warnings = crate::proto::modules::warnings(config);
    if let Some(bot) = config.of_bots().find(|bot| bot.anyone_can_spend()) {
        warnings.push(format!(
            "`--bot {}` without `--allowed-origins` and `--api-key`: any web page in a browser that reaches this runner \
             can talk to the service, which costs money",
            bot.bot.name()
        ));
    }
    // The doctor has a line of its own for it.
    warnings.extend(config.open_access_warning().filter(|_| !doctor));
    warnings
}

/// Prints the microphones and loudspeakers. Anything that is missing is an error. The command line
/// rejects it in a build without the sound card.
fn list_sound_cards(variables: &Variables) -> Result<(), StartupError> {
    let server = variables
        .literal("PULSE_SERVER")
        .or_else(|| variables.literal("PIPEWIRE_REMOTE"));
    let list = crate::io::local::list(variables.literal("XDG_RUNTIME_DIR"), server);
    let (text, problems) = complete(Some(1), list)?;
    let _ = io::stdout().write_all(text.as_bytes());
    match problems.is_empty() {
        true => Ok(()),
        false => Err(failure(problems.join("\n"))),
    }
}

/// Prints the findings of the doctor. A failed check is an error.
fn run_doctor(runtime: Runtime, config: Arc<Config>) -> Result<(), StartupError> {
    // A build without the feature refuses the command earlier, and its code is left out by this.
    let findings = match Feature::Doctor.in_this_build() {
        true => runtime.block_on(crate::io::doctor::examine(config)),
        false => Findings::default(),
    };
    runtime.shutdown_timeout(RUNTIME_END);
    let mut out = io::stdout();
    let text = findings.text(logging::shows_colours(out.is_terminal()));
    let _ = out.write_all(text.as_bytes());
    match findings.errors() {
        0 => Ok(()),
        failed => Err(failure(format!(
            "{failed} {} failed",
            if failed == 1 { "check" } else { "checks" }
        ))),
    }
}

fn serve(runtime: Runtime, config: Arc<Config>, bot: Bot, source: StartSource) -> Result<AfterServing, StartupError> {
    if config.direct {
        let ran = runtime.block_on(modules::run_alone(config, bot, print_room_url));
        return finish(runtime, ran).map(|()| AfterServing::Exit);
    }
    let Some(trial) = Trial::begin(&config) else {
        return Ok(AfterServing::Restart);
    };
    let begun = &trial;
    let announced = Arc::clone(&config);
    let announce = move |listening: &crate::config::ListenAddresses| {
        begun.pass();
        let mut out = io::stdout();
        let text = banner::text(&announced, listening, out.is_terminal());
        // The warnings of the start come before the banner.
        logging::flush();
        // A supervisor may have closed stdout; the log has the address as well. A call at the sound
        // card may have begun.
        let _ = logging::without_status(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()));
        let udp_port = shared_udp_port(listening).map_or_else(String::new, |(protocol, port)| {
            format!(", {protocol} on UDP port {port}")
        });
        let https = banner::https_url(&announced, listening.port).map_or_else(String::new, |url| format!(" and {url}"));
        log::info!("listening on {}{https}{udp_port}", announced.host.url(listening.port));
    };
    let served = runtime.block_on(crate::io::run_reloading(config, bot, announce, Arc::new(source)));
    match finish(runtime, served) {
        Err(error) if trial.fail(&error.message) => {
            log::error!("the runner does not start with the changed settings: {}", error.message);
            Ok(AfterServing::Restart)
        }
        served => served,
    }
}

/// Prints the URL of the room that the bot joins.
fn print_room_url(url: &str) {
    let mut out = io::stdout();
    // A supervisor may have closed stdout. The URL is not logged, because it admits its holder.
    let _ = writeln!(out, "{url}").and_then(|()| out.flush());
    log::info!("the bot joins the room whose URL is on stdout");
}

fn finish<T>(runtime: Runtime, ran: Result<T, RunError>) -> Result<T, StartupError> {
    // Remaining tasks are dropped, which also ends the programs of bots. The timeout keeps a
    // blocking call of a bot from delaying the exit.
    runtime.shutdown_timeout(RUNTIME_END);
    ran.map_err(|error| StartupError {
        code: EXIT_FAILURE,
        message: error.to_string(),
    })
}

/// Sets variables in the process. If other threads are running, sets none and returns `false`.
fn set_variables(variables: BTreeMap<String, String>) -> bool {
    if !is_single_threaded() {
        return false;
    }
    for (name, value) in variables {
        // SAFETY: changing the environment is sound while no other thread reads it, and there is no
        // other thread: the kernel has just counted one, the runtime is built later, and nothing in
        // between starts one.
        unsafe { std::env::set_var(name, value) };
    }
    true
}

fn lossy(text: OsString) -> String {
    text.into_string()
        .unwrap_or_else(|text| text.to_string_lossy().into_owned())
}
