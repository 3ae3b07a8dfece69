//! The start of the process: reads its surroundings, parses the arguments, sets up logging and the
//! runtime, serves, and exits.
//!
//! In: a bot. Out: an exit code (0: success, 1: run-time error, 2: usage error). This module alone
//! reads the environment, the `.env` file and the arguments. It also sets `ENV=local` and the
//! variables of `.env` in the process, so that bots find them in their environment.

#![allow(
    clippy::disallowed_methods,
    reason = "the process's environment and files are read here, so that all other modules receive values"
)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::future::Future;
use std::io::{self, IsTerminal as _, Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use data_encoding::HEXLOWER;
use edge_runner_http::common::{lock, random};
use edge_runner_http::host_name::host_name;
use edge_runner_http::startup::{
    EXIT_FAILURE, EXIT_USAGE, StartupError, forbid_debuggers, is_single_threaded, runtime,
};
use edge_runner_http::store::Store;
use tokio::runtime::Runtime;

use super::command::{CommandStart, complete, failure};
use super::resolve::MADE_KEY_FILE;
use super::{CliCommand, Env, ProgramIdentity, banner, env_trust};
use crate::bot::{self, Bot, BotError, RunnerArguments};
use crate::bots::{NO_VIDEO_ROOMS, built_in_bot};
use crate::config::Config;
use crate::features::Feature;
use crate::io::reload::ReadSettings;
use crate::io::{RunError, modules};
use crate::limits::{OPTION_FILE_BYTES_MAX, RUNTIME_END};
use crate::logging;
use crate::proto::doctor::Findings;
use crate::proto::http::cluster::key_file_warning;
use crate::proto::options::env::{self, Variables};

/// Bytes of a `.env` file: hundreds of variables and a few keys in PEM form.
const ENV_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Random bytes of a key that the runner makes.
const MADE_KEY_BYTES: usize = 24;

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
    let code = match run(bot, bot_crate, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartupError { code, message }) => {
            // stderr may be closed or unread; the exit code still reports the error.
            logging::print(&format!("{}: {message}", program.name));
            ExitCode::from(code)
        }
    };
    logging::flush();
    code
}

fn run(bot: Bot, bot_crate: &'static str, program: &ProgramIdentity) -> Result<(), StartupError> {
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
    let (mut config, mut warnings, doctor) = match command {
        CliCommand::Help(text) | CliCommand::Version(text) => {
            // `edge-runner --help | head` closes the pipe early; that is not an error.
            let _ = io::stdout().write_all(text.as_bytes());
            return Ok(());
        }
        CliCommand::Task(task) => {
            return task.run(&CommandStart {
                skipped: &skipped,
                variables: &env.variables,
            });
        }
        #[cfg(feature = "local")]
        CliCommand::LocalList => return list_sound_cards(&env.variables),
        #[cfg(not(feature = "local"))]
        CliCommand::LocalList => return Ok(()),
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
    warnings.extend(env::unused_proxy_warning(&env.variables));
    // The doctor has a line of its own for it.
    warnings.extend(cluster_key_warning(&config).filter(|_| !doctor));
    warnings.extend(secret_settings_warning(&config));
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
        return run_doctor(runtime, config);
    }
    let read = read_again(program.clone(), process, arguments, [skipped, warnings].concat());
    serve(runtime, config, bot, read)
}

/// The variables of a start.
struct Surroundings {
    /// Those of the process, and of `.env` or the file in its place.
    variables: Variables,
    /// Those that are set in the process, for bots.
    for_bots: BTreeMap<String, String>,
    /// Lines of the file that were skipped.
    warnings: Vec<String>,
}

/// Reads `.env`, or the file that is named in its place.
fn surroundings(mut process: BTreeMap<String, String>, arguments: &[OsString]) -> Result<Surroundings, StartupError> {
    let named = env_trust::named_file(arguments, &process);
    let mut file = match &named {
        Some(path) => named_env_file(path)?,
        None => env_file().map_err(|error| {
            StartupError::in_step(
                "reading .env in the working directory; start edge-runner in a directory that this user may read",
                error,
            )
        })?,
    };
    if named.is_none() {
        env_trust::restrict(&mut file, &process);
    }
    let mut of_file: Vec<_> = file.variables.into_iter().map(|line| (line.name, line.value)).collect();
    let for_bots = for_bots(&process, &of_file);
    if named.is_some() {
        // The operator's own file counts as the environment, which still takes precedence.
        for (name, value) in of_file.drain(..).rev() {
            process.entry(name).or_insert(value);
        }
    }
    Ok(Surroundings {
        variables: Variables::new(process, of_file),
        for_bots,
        warnings: file.warnings,
    })
}

/// Returns the surroundings of this machine.
fn env<'a>(variables: Variables, make_key: &'a dyn Fn(&Path) -> io::Result<String>) -> Env<'a> {
    Env {
        variables,
        addresses: interface_addresses(),
        names: machine_names(),
        read: &|path| read_bytes(File::open(path)?, OPTION_FILE_BYTES_MAX),
        make_key,
        lookup_host: &resolve,
    }
}

/// Returns what reads the settings again while the runner runs: the files anew, and the arguments
/// and variables with which the process was started. `warned` are warnings that were logged.
fn read_again(
    program: ProgramIdentity,
    process: BTreeMap<String, String>,
    arguments: Vec<OsString>,
    warned: Vec<String>,
) -> ReadSettings {
    let warned = Mutex::new(warned);
    Arc::new(move || {
        let surroundings = surroundings(process.clone(), &arguments).map_err(|error| error.message)?;
        let env = env(surroundings.variables, &make_key);
        let (config, warnings) = match super::parse_for(&program, arguments.clone(), &env) {
            Ok(CliCommand::Serve { config, warnings }) => (*config, warnings),
            Ok(_) => return Err("they start no runner".to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        let all = [surroundings.warnings, warnings].concat();
        let earlier = std::mem::replace(&mut *lock(&warned), all.clone());
        let is_new = |warning: &String| !earlier.contains(warning);
        Ok((config, all.into_iter().filter(is_new).collect()))
    })
}

/// Returns the key of `--api-key-file auto`, and makes it at the first start.
fn make_key(folder: &Path) -> io::Result<String> {
    let store = Store::open(folder)?;
    let _turn = store.lock_named("api-key.lock")?;
    // A power cut can leave an empty file, which counts as no key.
    let kept = store
        .read(MADE_KEY_FILE)?
        .filter(|file| !file.text.trim_ascii().is_empty());
    if let Some(file) = kept {
        if file.exposed_mode.is_some() {
            store.restrict_to_owner(MADE_KEY_FILE)?;
        }
        return String::from_utf8(file.text).map_err(|_| io::Error::other("it is no text in UTF-8"));
    }
    let key = HEXLOWER.encode(&random::<MADE_KEY_BYTES>());
    store.write(MADE_KEY_FILE, format!("{key}\n").as_bytes())?;
    Ok(key)
}

/// Returns a warning if others may read the cluster key.
fn cluster_key_warning(config: &Config) -> Option<String> {
    let file = &config.cluster.as_ref()?.key_file;
    // The key was read a moment ago.
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    key_file_warning(file, mode)
}

/// Returns a warning if others may read a file of settings that contains a secret.
#[cfg(feature = "config")]
fn secret_settings_warning(config: &Config) -> Option<String> {
    let file = config.secret_settings.as_ref()?;
    // The file was read a moment ago.
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    crate::proto::settings::exposed_warning(file, mode)
}

/// There is no file of settings.
#[cfg(not(feature = "config"))]
fn secret_settings_warning(_: &Config) -> Option<String> {
    None
}

/// Returns warnings about unprotected endpoints and about calls that cannot succeed.
fn exposures(config: &Config, doctor: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.videoroom.dialin && !config.bot_enters_rooms {
        warnings.push(format!(
            "`--dialin` with a built-in bot accepts no calls: {NO_VIDEO_ROOMS}"
        ));
    }
    if config.creates_rooms_for_pages() {
        warnings.push(
            "VIDEOROOM_API_KEY is set without `--allowed-origins` and `--api-key`: any web page in a browser that reaches \
             this runner can create video rooms, which cost money, and read their tokens"
                .into(),
        );
    }
    if let Some(bot) = config.of_bots().find(|bot| bot.anyone_can_spend()) {
        warnings.push(format!(
            "`--bot {}` without `--allowed-origins` and `--api-key`: any web page in a browser that reaches this runner \
             can talk to the service, which costs money",
            bot.bot.name()
        ));
    }
    // The doctor has a line of its own for it.
    warnings.extend(config.open_access_warning().filter(|_| !doctor));
    if config.videoroom.dialin && !config.has_public_name() {
        warnings.push(
            "`--dialin` without `--proxy HOST`: webhook requests to a public host name are refused with 421; set the name \
             with `--proxy` or `--allowed-hosts`"
                .into(),
        );
    }
    warnings
}

/// Prints the microphones and loudspeakers. Anything that is missing is an error.
#[cfg(feature = "local")]
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

fn serve(runtime: Runtime, config: Arc<Config>, bot: Bot, read: ReadSettings) -> Result<(), StartupError> {
    if config.direct {
        let ran = runtime.block_on(modules::run_alone(config, bot, print_room_url));
        return finish(runtime, ran);
    }
    let announced = Arc::clone(&config);
    let announce = move |listening: &crate::config::ListenAddresses| {
        let mut out = io::stdout();
        let text = banner::text(&announced, listening, out.is_terminal());
        // A supervisor may have closed stdout; the log has the address as well.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        let rtc_port = match Feature::WebRtc.in_this_build() {
            true => format!(", WebRTC on UDP port {}", listening.rtc_port),
            false => String::new(),
        };
        let https = banner::https_url(&announced, listening.port).map_or_else(String::new, |url| format!(" and {url}"));
        log::info!("listening on {}{https}{rtc_port}", announced.host.url(listening.port));
    };
    let served = runtime.block_on(crate::io::run_reloading(config, bot, announce, read));
    finish(runtime, served)
}

/// Prints the URL of the room that the bot joins.
fn print_room_url(url: &str) {
    let mut out = io::stdout();
    // A supervisor may have closed stdout. The URL is not logged, because it admits its holder.
    let _ = writeln!(out, "{url}").and_then(|()| out.flush());
    log::info!("the bot joins the room whose URL is on stdout");
}

fn finish(runtime: Runtime, ran: Result<(), RunError>) -> Result<(), StartupError> {
    // Remaining tasks are dropped, which also ends the programs of bots. The timeout keeps a
    // blocking call of a bot from delaying the exit.
    runtime.shutdown_timeout(RUNTIME_END);
    ran.map_err(|error| StartupError {
        code: EXIT_FAILURE,
        message: error.to_string(),
    })
}

/// Returns the variables that are added for bots: those of the file that the process lacks, and
/// `ENV=local`, which replaces any other value.
fn for_bots(process: &BTreeMap<String, String>, file: &[(String, String)]) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<_, _> = file
        .iter()
        .filter(|(name, _)| !process.contains_key(name))
        .cloned()
        .collect();
    variables.insert("ENV".into(), "local".into());
    variables
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

/// Reads the file of `--env-file`.
fn named_env_file(path: &OsString) -> Result<env::EnvFile, StartupError> {
    let name = path.display();
    let text = File::open(path)
        .and_then(|file| read_bytes(file, ENV_FILE_BYTES_MAX))
        .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let text = text.map_err(|error| StartupError {
        code: EXIT_USAGE,
        message: format!(
            "`--env-file {name}`: {error}; expected a text file with lines NAME=value that this user may read"
        ),
    })?;
    Ok(in_file(&name.to_string(), env::parse(&text)))
}

/// Puts the name of the file before each of its warnings.
fn in_file(name: &str, mut file: env::EnvFile) -> env::EnvFile {
    for warning in &mut file.warnings {
        *warning = format!("{name} {warning}");
    }
    file
}

/// Reads `.env` in the working directory. A directory of that name, such as a Python environment,
/// counts as absent.
fn env_file() -> io::Result<env::EnvFile> {
    let file = match File::open(".env") {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(env::EnvFile::default()),
        Err(error) => return Err(error),
    };
    if file.metadata()?.is_dir() {
        return Ok(env::EnvFile::default());
    }
    let text = String::from_utf8(read_bytes(file, ENV_FILE_BYTES_MAX)?);
    Ok(in_file(".env", env::parse(&text.map_err(io::Error::other)?)))
}

/// Reads a file of at most `bytes_max` bytes.
fn read_bytes(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Returns the kernel's host name, and its first label.
fn machine_names() -> Vec<String> {
    let name = host_name();
    let name = name.trim();
    let label = name.split('.').next().unwrap_or_default();
    [name, label]
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn lossy(text: OsString) -> String {
    text.into_string()
        .unwrap_or_else(|text| text.to_string_lossy().into_owned())
}

fn interface_addresses() -> Vec<IpAddr> {
    if_addrs::get_if_addrs().map_or_else(|_| Vec::new(), |all| all.iter().map(if_addrs::Interface::ip).collect())
}

fn resolve(name: &str) -> Vec<IpAddr> {
    (name, 0)
        .to_socket_addrs()
        .map_or_else(|_| Vec::new(), |found| found.map(|address| address.ip()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ENV` is `local` for bots, even if the shell sets it to another value.
    #[test]
    fn bots_get_env_local_and_the_variables_of_the_file() {
        let own = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|&(a, b)| (a.into(), b.into())).collect()
        };
        let process = own(&[("ENV", "production"), ("KEY", "mine")]).into_iter().collect();
        let set = for_bots(
            &process,
            &own(&[("KEY", "file"), ("OTHER", "1"), ("OTHER", "2"), ("ENV", "x")]),
        );
        let expected = own(&[("ENV", "local"), ("OTHER", "2")]).into_iter().collect();
        assert_eq!(set, expected);
    }
}
