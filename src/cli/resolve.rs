//! The second stage of the command line: what was typed, held against itself and against the surroundings, as a [`Config`].
//!
//! [`LowArgs`] values and [`Env`] enter; a [`Config`] and warnings leave. Wrong combinations are refused first, then what
//! this build lacks, so that a user never finds the second mistake only after the first feature has arrived.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::flags::{LowArgs, WsAuth};
use super::moq::Moq;
use super::{Env, UsageError, env_trust, features, messaging, rooms, telephony};
use crate::config::{BotAudio, BuiltInBot, Config, IceServer, Secret, Tls, Transport};
use crate::features::Feature;
use crate::limits::{
    API_KEY_BYTES, ICE_ADDRESSES_MAX, OPUS_COMPLEXITY_DEFAULT, SESSIONS_MAX_DEFAULT, TRUSTED_PROXIES_MAX,
};
use crate::proto::options::hosts;
use crate::proto::telephony::PROVIDERS;
use crate::proto::webrtc::ice;

/// HTTP port when none is given.
const PORT_DEFAULT: u16 = 7860;

/// Makes the configuration; `warnings` are for the log.
///
/// # Errors
/// [`UsageError`], see there.
#[allow(
    clippy::field_reassign_with_default,
    reason = "it may grow, so it is made in no other way"
)]
pub(super) fn config(args: LowArgs, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<Config, UsageError> {
    let transport = transport(&args)?;
    let proxy = proxy(&args, transport, warnings)?;
    let ws_auth = args.ws_auth.unwrap_or(WsAuth::None);
    let host_names = hosts::host_names(&args.allowed_hosts, env)?;
    let api_key = api_key(&args, env)?;
    let state_dir = state_dir(&args, env);
    let tls = tls(&args, state_dir.is_some())?;
    check_command(&args)?;
    let withheld = env_trust::withheld(&PROVIDERS, &args.pass_env, warnings)?;
    check_list_lengths(&args)?;
    let host = hosts::host(args.host.as_deref(), env)?;
    let embedded = args.embedded.then(|| embedded(&args, env, warnings)).transpose()?;
    let allowed_origins = origins(&args, warnings)?;
    let ice_servers = ice_servers(&args)?;
    let variables = &env.variables;
    let telephony = features::where_built(Feature::Telephony, || {
        let verify_webhooks = !args.no_verify_webhooks;
        telephony::telephony(&PROVIDERS, variables, verify_webhooks, args.unverified_calls, warnings)
    })?;
    let videoroom = features::where_built(Feature::Videoroom, || rooms::videoroom(&args, variables, warnings))?;
    let mediaroom = features::where_built(Feature::Mediaroom, || rooms::mediaroom(variables, warnings))?;
    let messaging = features::where_built(Feature::Messaging, || {
        messaging::messaging(&args, transport, variables, warnings)
    })?;
    let start_names = features::where_built(Feature::Videoroom, || rooms::start_names(variables))?;
    args.moq.check(warnings)?;
    refuse_unimplemented(&args, transport)?;
    features::check(&args, transport)?;
    features::warn_unused_credentials(variables, warnings);
    features::warn_unused_tuning(&args, warnings);
    warn_about_calls(transport, &allowed_origins, ws_auth, warnings);
    warnings.extend(open_sockets(api_key.is_some(), ws_auth));
    let bot_audio = bot_audio(&args, warnings)?;
    let mut config = Config::default();
    config.host = host;
    config.port = args.port.unwrap_or(PORT_DEFAULT);
    config.rtc_port = args.rtc_port;
    config.transport = transport;
    config.proxy = proxy;
    config.trusted_proxies = args.trusted_proxies;
    config.allowed_origins = allowed_origins;
    config.host_names = host_names;
    config.api_key = api_key;
    config.tls = tls;
    config.state_dir = state_dir;
    config.metrics = args.metrics.unwrap_or_default();
    config.drain = args.drain.unwrap_or_default();
    config.ice_servers = ice_servers;
    config.ice_addresses = args.ice_addresses;
    config.embedded = embedded;
    config.bot = args.bot.unwrap_or(BuiltInBot::Parrot);
    config.bot_audio = bot_audio;
    config.command = args.command;
    config.withheld = withheld;
    config.bot_folder = bot_folder(env);
    config.ws_tokens = ws_auth == WsAuth::Token;
    config.telephony = telephony;
    config.videoroom = videoroom;
    config.mediaroom = mediaroom;
    config.messaging = messaging;
    config.start_names = start_names;
    config.direct = args.direct;
    config.bot_enters_rooms = true;
    config.sessions_max = args.sessions_max.unwrap_or(SESSIONS_MAX_DEFAULT);
    config.workers = args.workers;
    config.opus_complexity = args.opus_complexity.unwrap_or(OPUS_COMPLEXITY_DEFAULT);
    config.verbosity = args.verbosity;
    config.log = args.log.unwrap_or_default();
    Ok(config)
}

fn transport(args: &LowArgs) -> Result<Option<Transport>, UsageError> {
    match (args.direct, args.transport) {
        (true, None | Some(Transport::Videoroom)) => Ok(Some(Transport::Videoroom)),
        (true, Some(other)) => Err(UsageError::Combination(format!(
            "`--direct` goes with `-t videoroom` alone, not with `-t {}`",
            other.name()
        ))),
        (false, given) => Ok(given),
    }
}

fn proxy(
    args: &LowArgs,
    transport: Option<Transport>,
    warnings: &mut Vec<String>,
) -> Result<Option<String>, UsageError> {
    if let Some(text) = &args.proxy {
        let (host, warning) = hosts::proxy(text)?;
        warnings.extend(warning);
        return Ok(Some(host));
    }
    match transport {
        Some(Transport::Telephony(provider)) if provider.takes_markup => Err(UsageError::Combination(format!(
            "`-t {}` needs `--proxy HOST`, the public host name that the provider connects to",
            provider.wire_name()
        ))),
        _ => Ok(None),
    }
}

/// How connections are secured; a certificate of the runner's own needs a folder.
fn tls(args: &LowArgs, has_state_dir: bool) -> Result<Tls, UsageError> {
    match args.tls.clone().unwrap_or_default() {
        Tls::Auto if !has_state_dir => Err(UsageError::Combination(
            "`--tls auto` needs `--state-dir DIR`, where the certificate is kept: neither STATE_DIRECTORY nor \
             XDG_STATE_HOME nor HOME is set"
                .into(),
        )),
        tls => Ok(tls),
    }
}

/// Refuses lists that are longer than the runner takes.
fn check_list_lengths(args: &LowArgs) -> Result<(), UsageError> {
    if args.ice_addresses.len() > ICE_ADDRESSES_MAX {
        return Err(UsageError::Combination(format!(
            "`--ice-address` can be given {ICE_ADDRESSES_MAX} times"
        )));
    }
    if args.trusted_proxies.len() > TRUSTED_PROXIES_MAX {
        return Err(UsageError::Combination(format!(
            "`--trusted-proxies` takes {TRUSTED_PROXIES_MAX} networks"
        )));
    }
    Ok(())
}

/// Says which WebSockets ask for nothing, although there is a key.
fn open_sockets(has_key: bool, ws_auth: WsAuth) -> Option<String> {
    if !has_key || ws_auth == WsAuth::Token {
        return None;
    }
    let (guarded, sockets) = (features::guarded(), features::sockets()?);
    Some(format!(
        "the API key guards {guarded}, and leaves {sockets} open to everybody: `--ws-auth token` asks there for a token \
         of /start"
    ))
}

/// The program after `--`: there is one, and nothing else names a bot.
fn check_command(args: &LowArgs) -> Result<(), UsageError> {
    let wrong = match &args.command {
        Some(command) if command.first().is_none_or(|program| program.is_empty()) => {
            "`--` needs a command after it: -- COMMAND [ARGS...]"
        }
        Some(_) if args.bot.is_some() => "`--bot` and `-- COMMAND` both name the bot; give one of them",
        _ => return Ok(()),
    };
    Err(UsageError::Combination(wrong.into()))
}

/// Resolves how a program gets its audio.
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
        _ if args.direct || args.transport == Some(Transport::Videoroom) => {
            "`--bot-audio pcm` has no audio in a video room: the bot joins that room by itself"
        }
        (BotAudio::Pcm { .. }, None) => return Ok(audio),
        (BotAudio::Pcm { .. }, Some(rate_hz)) => return Ok(BotAudio::Pcm { rate_hz }),
    };
    Err(UsageError::Combination(wrong.into()))
}

/// Says what keeps a provider's calls out.
fn warn_about_calls(transport: Option<Transport>, origins: &[String], ws_auth: WsAuth, warnings: &mut Vec<String>) {
    let Some(provider) = transport.and_then(Transport::provider) else {
        return;
    };
    let name = provider.wire_name();
    if !origins.is_empty() {
        warnings.push(format!(
            "`-t {name}` with a list of origins: telephony providers send no Origin, so their webhooks and calls are refused"
        ));
    }
    if !provider.takes_markup && ws_auth == WsAuth::Token {
        warnings.push(format!(
            "`-t {name}` with `--ws-auth token`: the provider's flow needs a URL with a token for every call, and only \
             `/start` and `POST /` hand those out"
        ));
    }
}

/// The address that microcontrollers are offered: they read IPv4 only, take one candidate, and cannot resolve names.
fn embedded(args: &LowArgs, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<Ipv4Addr, UsageError> {
    let refuse = |why: &str| {
        Err(UsageError::Combination(format!(
            "`--embedded` needs `--host` with an IPv4 address of this machine, {why}; {}",
            list_addresses(&env.addresses)
        )))
    };
    let Some(text) = args.host.as_deref() else {
        return refuse("and there is no `--host`");
    };
    let address = match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address,
        Ok(IpAddr::V6(_)) => return refuse(&format!("and `{text}` is IPv6")),
        Err(_) => return refuse(&format!("and `{text}` is no address")),
    };
    if address.is_unspecified() {
        return refuse("and 0.0.0.0 says nothing about where devices find it");
    }
    if address.is_loopback() {
        warnings.push(format!(
            "`--embedded` with {address}: only clients on this machine can connect"
        ));
    } else if !env.addresses.contains(&IpAddr::V4(address)) {
        return refuse(&format!("and no interface has {address}"));
    }
    if !args.ice_addresses.is_empty() {
        warnings.push(format!(
            "`--ice-address` is not offered to microcontrollers: they take one address, {address}"
        ));
    }
    Ok(address)
}

fn list_addresses(addresses: &[IpAddr]) -> String {
    let list: Vec<_> = addresses
        .iter()
        .filter(|address| address.is_ipv4() && !address.is_loopback())
        .map(IpAddr::to_string)
        .collect();
    match list.is_empty() {
        true => "this machine has none but 127.0.0.1".into(),
        false => format!("this machine has {}", list.join(", ")),
    }
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
        // An empty list would open the server to every page, which nobody means who types the option.
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

fn ice_servers(args: &LowArgs) -> Result<Vec<IceServer>, UsageError> {
    ice::parse(args.ice_servers.iter().map(String::as_str))
        .map_err(|error| UsageError::Combination(format!("`--ice-servers`: {error}")))
}

/// The option's key, or the file's. No error repeats it.
fn api_key(args: &LowArgs, env: &Env<'_>) -> Result<Option<Secret>, UsageError> {
    let (source, key) = match (&args.api_key, &args.api_key_file) {
        (Some(_), Some(_)) => {
            return Err(UsageError::Combination(
                "`--api-key` and `--api-key-file` both name the key; give one of them".into(),
            ));
        }
        (Some(key), None) => ("--api-key", key.clone()),
        (None, Some(file)) => {
            let text = (env.read)(file)
                .map_err(|error| UsageError::Combination(format!("`--api-key-file`: reading {file}: {error}")))?;
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

/// Where state is kept: the option, systemd's folder, or the user's.
fn state_dir(args: &LowArgs, env: &Env<'_>) -> Option<PathBuf> {
    let variable = |name: &'static str| env.variables.get(name);
    if let Some(folder) = &args.state_dir {
        return Some(folder.into());
    }
    // systemd lists several with colons between them; the first is ours.
    if let Some(folders) = variable("STATE_DIRECTORY") {
        return folders.split(':').next().map(PathBuf::from);
    }
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?;
    Some(state.join("edge-runner"))
}

/// A service starts where its bots cannot write, so that they leave it no `.env` file; they start
/// where systemd lets them write.
fn bot_folder(env: &Env<'_>) -> Option<PathBuf> {
    const NAME: &str = "STATE_DIRECTORY";
    let folders = env
        .variables
        .literal(NAME)
        .filter(|_| env.variables.is_of_process(NAME))?;
    folders.split(':').next().map(PathBuf::from)
}

/// Refuses what is specified and comes in a later version, so that no option is ever ignored in silence.
fn refuse_unimplemented(args: &LowArgs, transport: Option<Transport>) -> Result<(), UsageError> {
    let later = [
        (transport == Some(Transport::Moq), "`-t moq`".to_owned()),
        (args.moq != Moq::default(), "Media over QUIC (`--moq-*`)".to_owned()),
    ];
    match later.into_iter().find(|(asked, _)| *asked) {
        Some((_, what)) => Err(UsageError::NotInBuild {
            what,
            meanwhile: "it serves every other transport",
        }),
        None => Ok(()),
    }
}
