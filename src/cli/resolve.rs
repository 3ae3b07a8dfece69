//! The second stage of the command line: validates the combination of values and builds the
//! [`Config`].
//!
//! In: [`LowArgs`] and [`Env`]. Out: a [`Config`] and warnings. Invalid combinations are rejected
//! before missing features, so that a user who installs a build with the feature does not then meet
//! another error.

use std::path::{Path, PathBuf};

use super::flags::{LowArgs, SettingsArgs};
use super::{Env, UsageError, cluster, env_trust, features};
use crate::config::{AlsaDefault, BotAudio, BuiltInBot, Config, MetricsAccess, PythonBot, Secret, Tls, ToolsConfig};
use crate::features::Feature;
use crate::limits::{API_KEY_BYTES, SESSIONS_MAX_DEFAULT, TRUSTED_PROXIES_MAX};
use crate::proto::assistant::options::ChosenBot;
use crate::proto::modules::{self, RunnerOptions, where_built};
use crate::proto::options::hosts;
use crate::proto::sockets::options::WsAuth;
use crate::proto::sorting;
use crate::proto::{assistant, calls};

/// The default of `--port`.
const PORT_DEFAULT: u16 = 7860;
/// The value of `--api-key-file` for a key that the runner makes.
pub(super) const MADE_KEY: &str = "auto";
/// Its file in the state folder.
pub(super) const MADE_KEY_FILE: &str = "api-key";

/// Builds the configuration, and adds messages for the log to `warnings`.
///
/// # Errors
/// [`UsageError`] for an invalid value or combination, and for a feature that this build lacks.
#[allow(
    clippy::field_reassign_with_default,
    reason = "`Config` is non-exhaustive, so a literal cannot build it here"
)]
pub(super) fn config(args: LowArgs, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<Config, UsageError> {
    let transport = args.modules.transport(args.transport)?;
    let ws_auth = args.modules.sockets.auth.unwrap_or(WsAuth::None);
    let mut host_names = hosts::host_names(&args.allowed_hosts, env)?;
    let state_dir = state_dir(&args, env);
    let api_key = api_key(&args, env, state_dir.as_deref())?;
    if args.metrics == Some(MetricsAccess::Key) && api_key.is_none() {
        let wrong = "`--metrics key` needs a key: set `--api-key-file FILE`, or `auto` for one that the runner makes";
        return Err(UsageError::Combination(wrong.into()));
    }
    let cluster = cluster::cluster(&args, env)?;
    let tls = tls(&args, state_dir.is_some())?;
    let acme = args.modules.acme.resolve(&tls, warnings)?;
    let proxy = args.modules.proxy(transport, &acme.names, warnings)?;
    // Requests for the names of the certificate are for this server.
    host_names.extend(acme.names.iter().cloned());
    sorting::sort(&mut host_names);
    host_names.dedup();
    check_command(&args)?;
    if args.given.contains(&"--python") && !args.is_python_bot {
        warnings.push("`--python` has no effect without the file of a bot: `bot.py`".to_owned());
    }
    let withheld = env_trust::withheld(&args.pass_env, warnings)?;
    check_list_lengths(&args)?;
    let host = hosts::host(args.host.as_deref(), env)?;
    let allowed_origins = origins(&args, warnings)?;
    let mut config = Config::default();
    let runner = RunnerOptions {
        transport,
        host: args.host.as_deref(),
        proxy: proxy.as_deref(),
        tls: &tls,
        has_api_key: api_key.is_some(),
        ws_tokens: ws_auth == WsAuth::Token,
        typed: &args.given,
    };
    args.modules.resolve(&runner, env, warnings, &mut config)?;
    let assistant = where_built(Feature::Assistants, || {
        let chosen = ChosenBot {
            built_in: args.bot,
            is_replaced: args.command.is_some() || args.has_own_bot,
            has_own_bot: args.has_own_bot,
            typed: &args.given,
        };
        assistant::options::assistants(&args.modules.assistant, &chosen, env, warnings)
    })?;
    let calls = where_built(Feature::Calls, || args.modules.calls.resolve(env, warnings))?;
    calls::listening::check(&calls, api_key.is_some())?;
    config.transport = transport;
    let rtc_port = config.rtc_port.or(args.port).unwrap_or(PORT_DEFAULT);
    modules::check_udp_ports(&config, rtc_port)?;
    features::check(&args, transport)?;
    features::warn_unused_credentials(&env.variables, warnings);
    if args.asks_for_eval {
        warnings.push("`-t eval` has no effect: `pipecat eval` connects to /ws, whatever the transport".to_owned());
    }
    features::warn_unused_variables(&args, warnings);
    modules::warn_about_calls(transport, &allowed_origins, ws_auth == WsAuth::Token, warnings);
    warnings.extend(open_sockets(api_key.is_some(), ws_auth));
    let bot_audio = bot_audio(&args, warnings)?;
    let warm = warm(&args, bot_audio, warnings);
    let sandbox = sandbox(&args, assistant.tools.as_ref(), env, warnings);
    config.host = host;
    config.port = args.port.unwrap_or(PORT_DEFAULT);
    config.proxy = proxy;
    config.trusted_proxies = args.trusted_proxies;
    config.allowed_origins = allowed_origins;
    config.host_names = host_names;
    config.api_key = api_key;
    config.cluster = cluster;
    config.tls = tls;
    config.acme = acme;
    config.state_dir = state_dir;
    let settings = args.settings;
    config.settings_page = settings_page(&settings, config.api_key.is_some(), warnings)?;
    config.secret_settings = settings.file.filter(|_| settings.contains_secret).map(PathBuf::from);
    config.update_check = args.update_check.unwrap_or_default();
    config.page_dir = args.page.map(PathBuf::from);
    config.downloads_dir = args.downloads_folder.map(PathBuf::from);
    if args.uploads_max.is_some() && args.uploads_folder.is_none() {
        warnings.push("`--uploads-folder-max-files` has no effect without `--uploads-folder`".to_owned());
    }
    config.uploads_dir = args.uploads_folder.map(PathBuf::from);
    config.uploads_max = args.uploads_max.unwrap_or(config.uploads_max);
    config.metrics = args.metrics.unwrap_or_default();
    config.calls = calls;
    config.drain = args.drain.unwrap_or_default();
    config.bot = args.bot.unwrap_or(BuiltInBot::Parrot);
    config.bot_audio = bot_audio;
    config.command = args.command;
    config.python_bot = args.is_python_bot.then_some(PythonBot {
        interpreter: args.python,
    });
    config.warm = warm;
    config.bot_memory_mib = args.bot_memory_mib;
    config.withheld = withheld;
    config.bot_folder = bot_folder(env);
    config.sandbox = sandbox;
    config.ws_tokens = ws_auth == WsAuth::Token;
    let local = args.modules.local.resolve(config.direct, warnings)?;
    config.local = local.map(|local| local.with_default(&AlsaDefault::of(&env.variables)));
    let sessions_default = match config.bot {
        BuiltInBot::Realtime | BuiltInBot::Cascade => assistant.sessions_max,
        BuiltInBot::Parrot | BuiltInBot::Echo => SESSIONS_MAX_DEFAULT,
    };
    config.assistant = assistant;
    config.bot_enters_rooms = true;
    let costs_money = config.bot.feature() == Some(Feature::Assistants);
    config.sessions_max = match args.sessions_max {
        // Profiles of boards set the variable, by what their processor can do.
        Some(max) if costs_money && !args.given.contains(&"--max-sessions") => max.min(sessions_default),
        Some(max) => max,
        None => sessions_default,
    };
    config.workers = args.workers;
    config.verbosity = args.verbosity;
    config.log = args.log.unwrap_or_default();
    Ok(config)
}

/// Resolves `--tls`. `auto` and `acme` need a folder for their certificates.
fn tls(args: &LowArgs, has_state_dir: bool) -> Result<Tls, UsageError> {
    let tls = args.tls.clone().unwrap_or_default();
    let name = match tls {
        Tls::Auto => "auto",
        Tls::Acme => "acme",
        Tls::Off | Tls::Files { .. } => return Ok(tls),
    };
    match has_state_dir {
        true => Ok(tls),
        false => Err(UsageError::Combination(format!(
            "`--tls {name}` needs `--state-dir DIR` for its certificate: STATE_DIRECTORY, XDG_STATE_HOME and HOME are not \
             set"
        ))),
    }
}

/// Returns the file that the settings page may change. It is off without a key, so that only its
/// holders change settings.
fn settings_page(
    settings: &SettingsArgs,
    has_key: bool,
    warnings: &mut Vec<String>,
) -> Result<Option<PathBuf>, UsageError> {
    match (settings.page.unwrap_or_default(), &settings.file) {
        (false, _) => Ok(None),
        (true, None) => Err(UsageError::Combination(
            "`--settings page` needs the file that the page changes: `--config FILE`, which may be empty".into(),
        )),
        (true, Some(_)) if !has_key => {
            warnings.push(
                "`--settings page` has no effect without an API key: set `--api-key-file FILE`, or `auto` for one that the \
                 runner makes"
                    .to_owned(),
            );
            Ok(None)
        }
        (true, Some(file)) => Ok(Some(file.into())),
    }
}

/// Rejects lists above their caps.
fn check_list_lengths(args: &LowArgs) -> Result<(), UsageError> {
    if args.trusted_proxies.len() > TRUSTED_PROXIES_MAX {
        return Err(UsageError::Combination(format!(
            "`--trusted-proxies` takes at most {TRUSTED_PROXIES_MAX} networks"
        )));
    }
    Ok(())
}

/// Returns a warning if there is a key and WebSockets need neither key nor token.
fn open_sockets(has_key: bool, ws_auth: WsAuth) -> Option<String> {
    if !has_key || ws_auth == WsAuth::Token {
        return None;
    }
    let (guarded, sockets) = (features::guarded(), crate::features::sockets()?);
    Some(format!(
        "the API key protects {guarded}, but {sockets} are open to everyone: `--ws-auth token` requires a token from \
         /start there"
    ))
}

/// Validates the choice of a bot: a command after `--` has a program, and an option of the built-in
/// bots is given only where one of them runs.
fn check_command(args: &LowArgs) -> Result<(), UsageError> {
    let wrong = match &args.command {
        Some(command) if command.first().is_none_or(|program| program.is_empty()) => {
            "`--` needs a command after it: -- COMMAND [ARGS...]"
        }
        _ if args.has_own_bot && args.given.contains(&"--bot") => {
            "`--bot` names a built-in bot, but this program has its own; leave it out"
        }
        _ if args.has_own_bot && args.given.contains(&"--tools") => {
            "`--tools` gives functions to a built-in bot, but this program has its own; leave it out"
        }
        Some(_) if args.bot.is_some() => "`--bot` and `-- COMMAND` both name the bot; give one of them",
        _ => return Ok(()),
    };
    Err(UsageError::Combination(wrong.into()))
}

/// Resolves the audio format of the command after `--`.
fn bot_audio(args: &LowArgs, warnings: &mut Vec<String>) -> Result<BotAudio, UsageError> {
    let audio = args.bot_audio.unwrap_or_default();
    let wrong = match (audio, args.bot_rate_hz) {
        (BotAudio::Protobuf, _) => {
            if args.given.contains(&"--bot-rate") {
                warnings.push("`--bot-rate` has no effect without `--bot-audio pcm`".to_owned());
            }
            return Ok(audio);
        }
        _ if args.command.is_none() => "`--bot-audio pcm` needs a program: -- COMMAND [ARGS...]",
        _ if args.modules.is_direct() || args.transport.is_some_and(|transport| !transport.has_media()) => {
            modules::NO_PCM
        }
        (BotAudio::Pcm { .. }, None) => return Ok(audio),
        (BotAudio::Pcm { .. }, Some(rate_hz)) => return Ok(BotAudio::Pcm { rate_hz }),
    };
    Err(UsageError::Combination(wrong.into()))
}

/// Returns the number of processes that load the bot before a call.
fn warm(args: &LowArgs, audio: BotAudio, warnings: &mut Vec<String>) -> usize {
    let may_be = args.command.is_some() && audio == BotAudio::Protobuf && !args.modules.is_direct();
    for (option, has_effect) in [("--warm", may_be), ("--bot-memory", args.command.is_some())] {
        if args.given.contains(&option) && !has_effect {
            let needed = "the file of a bot or a command after `--`";
            warnings.push(match args.command {
                None => format!("`{option}` has no effect without {needed}"),
                Some(_) => format!("`{option}` has no effect with `--bot-audio pcm` or `--direct`"),
            });
        }
    }
    let default = usize::from(args.is_python_bot);
    if may_be { args.warm.unwrap_or(default) } else { 0 }
}

/// Returns the files that programs in a sandbox do not see: those from which the runner reads
/// settings and keys.
fn sandbox(
    args: &LowArgs,
    tools: Option<&ToolsConfig>,
    env: &Env<'_>,
    warnings: &mut Vec<String>,
) -> Option<Vec<PathBuf>> {
    if !args.sandbox {
        return None;
    }
    if args.command.is_none() && !matches!(tools, Some(ToolsConfig::Program(_))) {
        warnings.push("`--sandbox` has no effect without a command after `--` or in `--tools`".to_owned());
        return None;
    }
    let key_of_tls = match &args.tls {
        Some(Tls::Files { key, .. }) => Some(key.clone()),
        _ => None,
    };
    let options = [
        &args.env_file,
        &args.settings.file,
        &args.api_key_file,
        &args.cluster_key_file,
    ];
    let is_of_service = |name: &&str| name.ends_with("_API_KEY_FILE") || *name == "RUNNER_EVENTS_SECRET_FILE";
    let of_services = env.variables.names().filter(is_of_service);
    let files = std::iter::once(".env")
        .chain(options.into_iter().filter_map(Option::as_deref))
        .chain(args.modules.key_files())
        .chain(args.settings.files.iter().map(String::as_str))
        .chain(of_services.filter_map(|name| env.variables.literal(name)));
    Some(files.map(PathBuf::from).chain(key_of_tls).collect())
}

fn origins(args: &LowArgs, warnings: &mut Vec<String>) -> Result<Vec<String>, UsageError> {
    let mut origins = Vec::new();
    for text in &args.allowed_origins {
        let wrong = || {
            let wants = "origins such as https://app.example.net (leave it out to allow all)";
            UsageError::value("--allowed-origins", text, wants)
        };
        let mut entries = text
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .peekable();
        // An empty list would allow every page, the opposite of what the option is for.
        if entries.peek().is_none() {
            return Err(wrong());
        }
        for entry in entries {
            let (origin, warning) = hosts::origin(entry).ok_or_else(wrong)?;
            warnings.extend(warning);
            if !origins.contains(&origin) {
                origins.push(origin);
            }
        }
    }
    Ok(origins)
}

/// Resolves the API key, from the option, the file, or the state folder. No error contains the key.
fn api_key(args: &LowArgs, env: &Env<'_>, state_dir: Option<&Path>) -> Result<Option<Secret>, UsageError> {
    let (source, key) = match (&args.api_key, args.api_key_file.as_deref()) {
        // A container image says `auto` for those who say nothing.
        (Some(key), None | Some(MADE_KEY)) => ("--api-key", key.clone()),
        (None, Some(MADE_KEY)) => {
            let folder = state_dir.ok_or_else(|| {
                UsageError::Combination(
                    "`--api-key-file auto` keeps the key in the state folder, and there is none: set --state-dir"
                        .into(),
                )
            })?;
            let failed = |error| {
                let at = folder.join(MADE_KEY_FILE);
                UsageError::Combination(format!("`--api-key-file auto`: {}: {error}", at.display()))
            };
            ("--api-key-file", (env.make_key)(folder).map_err(failed)?)
        }
        (Some(_), Some(_)) => {
            return Err(UsageError::Combination(
                "`--api-key` and `--api-key-file` both name the key; give one of them".into(),
            ));
        }
        (None, Some(file)) => {
            let text = env.read_text(file).map_err(|error| {
                UsageError::Combination(format!("`--api-key-file`: reading the file that it names: {error}"))
            })?;
            ("--api-key-file", text.lines().next().unwrap_or_default().to_owned())
        }
        (None, None) => return Ok(None),
    };
    let key = key.trim();
    if !API_KEY_BYTES.contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(UsageError::redacted(
            source,
            format!(
                "a key of {} to {} visible ASCII characters; `openssl rand -hex 24` makes one",
                API_KEY_BYTES.start(),
                API_KEY_BYTES.end()
            ),
        ));
    }
    Ok(Some(Secret::new(key)))
}

/// Resolves the state folder: the option, else that of systemd, else that of the user.
fn state_dir(args: &LowArgs, env: &Env<'_>) -> Option<PathBuf> {
    let variable = |name: &'static str| env.variables.get(name);
    if let Some(folder) = &args.state_dir {
        return Some(folder.into());
    }
    // systemd separates several folders by colons; the unit declares one.
    if let Some(folders) = variable("STATE_DIRECTORY") {
        return folders.split(':').next().map(PathBuf::from);
    }
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?;
    Some(state.join("edge-runner"))
}

/// Returns the working directory of bots under systemd: the state folder. The service itself starts
/// in a folder where bots cannot write, so that they cannot leave a `.env` file there.
fn bot_folder(env: &Env<'_>) -> Option<PathBuf> {
    const NAME: &str = "STATE_DIRECTORY";
    let folders = env
        .variables
        .literal(NAME)
        .filter(|_| env.variables.is_of_process(NAME))?;
    folders.split(':').next().map(PathBuf::from)
}
