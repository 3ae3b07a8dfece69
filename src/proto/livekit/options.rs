//! The options and variables of LiveKit: the server with its keys, and the registration of a
//! worker.
//!
//! In: the options and the variables. Out: a [`Mediaroom`] and warnings. Rejects invalid URLs and
//! names, the other options without `--register`, and transports that have no jobs. No error
//! contains a key. Source; `docs/spec/livekit.md`.

use super::config::{Mediaroom, MediaroomWorker};
use super::missing_variables;
use crate::features::Feature;
use crate::job::JobType;
use crate::limits::{DEPLOYMENT_BYTES_MAX, ROOM_NAME_BYTES_MAX, ROOM_SERVERS_MAX};
use crate::options::env::Variables;
use crate::options::values::{all_names, credential, parse_url, wrong};
use crate::options::variables::{ModuleVariables, id, secret, setting};
use crate::options::{Expected, Flag, FlagKind, ROOMS_AND_CALLS, UsageError, flag, put};
use crate::secret::Secret;
use crate::transport::Transport;

/// The typed options.
#[derive(Debug, Default)]
pub struct LiveKitOptions {
    pub job_type: Option<JobType>,
    pub agent_name: Option<String>,
    pub deployment: Option<String>,
    pub target_load_percent: Option<u8>,
}

const fn livekit<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, ROOMS_AND_CALLS, help).needs(&[Feature::Mediaroom])
}

impl<T: AsMut<LiveKitOptions>> Flag<T> {
    /// The options of the registration at a LiveKit server.
    pub const LIVEKIT: &'static [Flag<T>] = &[
        livekit(
            "--register",
            FlagKind::Optional("room|participant|publisher", |args: &mut T, text| {
                put(&mut args.as_mut().job_type, job_type(&text)?)
            }),
            "Register at the LiveKit server, which then sends the runner into rooms: one bot per room, per \
             participant, or per participant that publishes. Needs MEDIAROOM_URL, MEDIAROOM_API_KEY and \
             MEDIAROOM_API_SECRET.",
        ),
        livekit(
            "--agent-name",
            FlagKind::Value("NAME", |args: &mut T, text| put(&mut args.as_mut().agent_name, text)),
            "Name by which rooms ask for the bot of `--register`. An empty name gets a job for every room. [default: \
             bot]",
        ),
        livekit(
            "--deployment",
            FlagKind::Value("NAME", |args: &mut T, text| put(&mut args.as_mut().deployment, text)),
            "Deployment that rooms have to name, too, for the bot of `--register`.",
        ),
        livekit(
            "--target-load",
            FlagKind::Value("LOAD", |args: &mut T, text| {
                put(&mut args.as_mut().target_load_percent, target_load(&text)?)
            }),
            "`agents.target_load` of the LiveKit server: the load that a full runner approaches, 0.01 to 1. [default: \
             0.7]",
        ),
    ];
}

/// The variables of LiveKit, by their canonical names; those of the vendor are in `aliases`.
pub static VARIABLES: ModuleVariables = ModuleVariables {
    feature: Feature::Mediaroom,
    prefixes: &["MEDIAROOM_"],
    variables: &[
        setting(
            "MEDIAROOM_URL",
            "URL of the LiveKit server: ws, wss, http or https. Several, separated by commas, are tried in this \
             order. Needs the key and the secret below.",
        ),
        id("MEDIAROOM_API_KEY", "API key of the LiveKit server.").sent_to("MEDIAROOM_URL"),
        secret("MEDIAROOM_API_SECRET", "API secret of the LiveKit server.").sent_to("MEDIAROOM_URL"),
        setting(
            "MEDIAROOM_ROOM_NAME",
            "One room for every session. [default: a new room for each]",
        ),
    ],
};

/// Parses the value of `--register`.
fn job_type(text: &str) -> Result<JobType, Expected> {
    JobType::from_name(text).ok_or_else(|| Expected::one_of(text, &JobType::ALL.map(JobType::name), &[]))
}

/// Parses the value of `--target-load` into hundredths.
fn target_load(text: &str) -> Result<u8, Expected> {
    let hundredths = text.parse::<f32>().ok().map(|load| (load * 100.0).round());
    match hundredths {
        // In this range, the number is exact.
        Some(percent @ 1.0..=100.0) => Ok(percent as u8),
        _ => Err("a number from 0.01 to 1, such as 0.7".into()),
    }
}

/// Resolves the options; `None` without `--register`. `typed` has the long names of all options
/// that were typed.
///
/// # Errors
/// [`UsageError`] for an invalid name or combination.
fn worker(
    options: &LiveKitOptions,
    typed: &[&str],
    transport: Option<Transport>,
    is_direct: bool,
    warnings: &mut Vec<String>,
) -> Result<Option<MediaroomWorker>, UsageError> {
    let Some(job_type) = options.job_type else {
        // Variables of these names may belong to other software.
        let alone = ["--agent-name", "--deployment", "--target-load"]
            .into_iter()
            .find(|option| typed.contains(option));
        return match alone {
            Some(option) => Err(UsageError::Combination(format!("`{option}` needs `--register`"))),
            None => Ok(None),
        };
    };
    match transport {
        _ if is_direct => {
            return Err(UsageError::Combination(
                "`--direct` runs one bot in one room and cannot be used with `--register`".into(),
            ));
        }
        Some(other) if other != Transport::Mediaroom => {
            return Err(UsageError::Combination(format!(
                "`--register` is for LiveKit rooms and cannot be used with `-t {}`; leave out `-t`, or give `-t livekit`",
                other.name()
            )));
        }
        _ => {}
    }
    let agent_name = options.agent_name.as_deref().unwrap_or(MediaroomWorker::AGENT_NAME);
    if agent_name.len() > ROOM_NAME_BYTES_MAX || agent_name.contains(char::is_control) {
        let wants = format!("a name of at most {ROOM_NAME_BYTES_MAX} bytes without control characters");
        return Err(UsageError::value("--agent-name", agent_name, wants));
    }
    if agent_name.is_empty() {
        warnings.push(
            "`--agent-name` is empty: the bot is sent into every room of the LiveKit server that asks for no other \
             one"
            .to_owned(),
        );
    }
    let deployment = options.deployment.as_deref().unwrap_or_default();
    if deployment.len() > DEPLOYMENT_BYTES_MAX
        || deployment.contains(|letter: char| letter == '_' || letter.is_whitespace() || letter.is_control())
    {
        let wants = format!("a name of at most {DEPLOYMENT_BYTES_MAX} bytes without `_` and blanks");
        return Err(UsageError::value("--deployment", deployment, wants));
    }
    Ok(Some(MediaroomWorker {
        job_type,
        agent_name: agent_name.to_owned(),
        deployment: deployment.to_owned(),
        target_load_percent: options
            .target_load_percent
            .unwrap_or(MediaroomWorker::TARGET_LOAD_PERCENT),
    }))
}

/// Reads the settings of LiveKit. `typed` has the long names of all options that were typed.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub fn mediaroom(
    options: &LiveKitOptions,
    typed: &[&str],
    is_direct: bool,
    transport: Option<Transport>,
    variables: &Variables,
    warnings: &mut Vec<String>,
) -> Result<Mediaroom, UsageError> {
    let mut urls = mediaroom_urls(variables, warnings)?.into_iter();
    let room_name = variables.get("MEDIAROOM_ROOM_NAME");
    if room_name.is_some_and(|name| name.len() > ROOM_NAME_BYTES_MAX) {
        let wants = format!("a name of at most {ROOM_NAME_BYTES_MAX} bytes");
        return Err(wrong(variables, "MEDIAROOM_ROOM_NAME", &wants));
    }
    let config = Mediaroom {
        url: urls.next(),
        other_urls: urls.collect(),
        key: credential(variables, "MEDIAROOM_API_KEY")?,
        secret: credential(variables, "MEDIAROOM_API_SECRET")?.map(Secret::new),
        room_name: room_name.map(str::to_owned),
        worker: None,
    };
    let missing = missing_variables(&config);
    if let Some(worker) = worker(options, typed, transport, is_direct, warnings)? {
        if !missing.is_empty() {
            let names: Vec<String> = missing.into_iter().map(all_names).collect();
            return Err(UsageError::Combination(format!(
                "`--register` needs {} in the environment or in .env",
                names.join(", ")
            )));
        }
        return Ok(Mediaroom {
            worker: Some(worker),
            ..config
        });
    }
    if (1..3).contains(&missing.len()) {
        let names: Vec<String> = missing.into_iter().map(all_names).collect();
        warnings.push(format!(
            "{} missing: `/start` refuses LiveKit sessions until the URL, the key and the secret are set",
            match &names[..] {
                [one] => format!("{one} is"),
                many => format!("{} are", many.join(" and ")),
            }
        ));
    }
    Ok(config)
}

/// Reads the URLs of the LiveKit server, in their order.
fn mediaroom_urls(variables: &Variables, warnings: &mut Vec<String>) -> Result<Vec<String>, UsageError> {
    const NAME: &str = "MEDIAROOM_URL";
    let wants = "the URL of the LiveKit server: wss://HOST, ws://HOST, https://HOST or http://HOST, optionally with \
                 :PORT and /PATH; several are separated by commas";
    let Some((source, list)) = variables.named(NAME) else {
        return Ok(Vec::new());
    };
    let mut urls: Vec<String> = Vec::new();
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let url = parse_url(source, text, &["ws", "wss", "http", "https"])
            .ok_or_else(|| UsageError::value(source, text, wants))?;
        url.warn_if_unencrypted(warnings, "access tokens travel");
        if !urls.contains(&url.text) {
            urls.push(url.text);
        }
    }
    if !(1..=ROOM_SERVERS_MAX).contains(&urls.len()) {
        return Err(UsageError::Combination(format!(
            "`{source}` takes 1 to {ROOM_SERVERS_MAX} URLs, separated by commas"
        )));
    }
    Ok(urls)
}

#[cfg(test)]
mod tests;
