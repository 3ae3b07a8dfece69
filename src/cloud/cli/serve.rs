//! Resolves the arguments of `cloud serve`.
//!
//! In: [`CloudArgs`] and the environment. Out: a [`CloudConfig`] or a usage error. Error messages
//! never contain a key. Source: decisions I-01 to I-03, I-05.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::CloudTask;
use super::flags::CloudArgs;
use super::scale;
use crate::config::{CloudConfig, StoreKey};
use crate::proto::build::{Org, Slug};
use crate::proto::keys::EnvKey;
use crate::proto::keys::KeyKind;
use edge_runner_proto::config::{Host, Secret, SecretBytes, Tls};
use edge_runner_proto::features::Feature;
use edge_runner_proto::options::env::Variables;
use edge_runner_proto::options::{Env, UsageError, hosts, need};

const PORT: u16 = 7870;
const GRANT_TTL: Duration = Duration::from_secs(900);
const CONTEXT: u64 = 500 * 1024 * 1024;
const UNPACKED: u64 = 2 << 30;
const ENTRIES: u64 = 100_000;
const UPLOADS: usize = 32;
const BUILDS: usize = 2;
const PENDING: usize = 100;
const BUILD_TIMEOUT: Duration = Duration::from_secs(1200);
const BUILD_GRACE: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 3;
const KEEP_ARCHIVES: Duration = Duration::from_secs(86_400);
const KEEP_BUILDS: Duration = Duration::from_secs(30 * 86_400);
const FREE: u64 = 1 << 30;
/// Default of `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Length of a key, and of the secret that signs grants.
const KEY_CHARS: std::ops::RangeInclusive<usize> = 16..=256;
/// Length of the id of that secret.
const KEY_ID_CHARS: std::ops::RangeInclusive<usize> = 1..=128;

pub fn resolve(args: CloudArgs, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let data_dir = args.data_dir("cloud serve")?;
    let shared = scale::shared(&args, env, warnings)?;
    let command = args.command.clone();
    if command
        .as_ref()
        .is_some_and(|command| command.first().is_none_or(|program| program.is_empty()))
    {
        return Err(UsageError::Combination(
            "`--` needs a command after it: -- COMMAND [ARGS...]".into(),
        ));
    }
    let tls = args.tls.clone().unwrap_or_default();
    if tls != Tls::Off {
        need("`--tls`", Feature::Tls)?;
    }
    if tls == Tls::Acme {
        return Err(UsageError::Combination(
            "`--tls acme` is an option of the runner: give the service `--tls auto`, files with `--tls CERT:KEY`, or a reverse \
             proxy"
                .into(),
        ));
    }
    let host = hosts::host(args.host.as_deref(), env)?;
    let is_near = match host {
        Host::Localhost => true,
        Host::Address(address) => address.is_loopback(),
    };
    if tls == Tls::Off && !is_near {
        warnings.push(
            "plain HTTP leaves this machine: keys and build contexts travel in the clear; `--tls auto` or a reverse proxy \
             encrypts them"
                .into(),
        );
    }
    let org = args.org();
    let variables = &env.variables;
    let keys = keys(variables, &org)?;
    let store_key = store_key(variables)?;
    // The certificate of `--tls auto` must also cover the public host name.
    let public = args.public_url.as_deref().and_then(|url| url.split_once("://"));
    let public = public.and_then(|(_, authority)| hosts::split_port(authority));
    let public: Vec<String> = public.map(|(host, _)| host.to_owned()).into_iter().collect();
    let host_names = hosts::host_names(&public, env)?;
    let regions = args.regions.map(PathBuf::from);
    let for_ever = |time: Duration| (!time.is_zero()).then_some(time);
    Ok(CloudTask::Serve(Box::new(CloudConfig {
        data_dir,
        host,
        port: args.port.unwrap_or(PORT),
        tls,
        host_names,
        public_url: args.public_url,
        metrics: args.metrics.unwrap_or_default(),
        regions,
        org,
        grant_ttl: args.grant_ttl.unwrap_or(GRANT_TTL),
        context_max: args.max_context.unwrap_or(CONTEXT),
        unpacked_max: args.max_unpacked.unwrap_or(UNPACKED),
        entries_max: args.max_entries.unwrap_or(ENTRIES),
        uploads_max: args.max_uploads.unwrap_or(UPLOADS),
        builds_max: args.max_builds.unwrap_or(BUILDS),
        pending_max: args.max_pending.unwrap_or(PENDING),
        build_timeout: args.build_timeout.unwrap_or(BUILD_TIMEOUT),
        build_grace: args.build_grace.unwrap_or(BUILD_GRACE),
        attempts_max: args.max_attempts.unwrap_or(ATTEMPTS),
        builder_env: builder_env(args.builder_env, variables, warnings),
        keep_archives: for_ever(args.keep_archives.unwrap_or(KEEP_ARCHIVES)),
        keep_builds: for_ever(args.keep_builds.unwrap_or(KEEP_BUILDS)),
        free_min: args.min_free.unwrap_or(FREE),
        command,
        keys,
        store_key,
        shared,
        path: variables.literal("PATH").unwrap_or(PATH).into(),
        lang: variables.literal("LANG").map(OsString::from),
        verbosity: args.verbosity,
    })))
}

/// Collects the variables that `--builder-env` names.
fn builder_env(names: Vec<String>, variables: &Variables, warnings: &mut Vec<String>) -> Vec<(OsString, OsString)> {
    let mut handed: Vec<(OsString, OsString)> = Vec::new();
    for name in names {
        match variables.raw(&name) {
            Some(_) if handed.iter().any(|(other, _)| *other == *name) => {}
            Some(value) => handed.push((name.clone().into(), value.into())),
            None => warnings.push(format!(
                "`--builder-env {name}`: no such variable is set, so commands do not get it"
            )),
        }
    }
    handed
}

/// Parses the keys in variables: `KEY` or `ORG=KEY`, separated by commas.
fn keys(variables: &Variables, org: &Org) -> Result<Vec<EnvKey>, UsageError> {
    let mut keys: Vec<EnvKey> = Vec::new();
    for (variable, kind) in [
        ("CLOUD_PRIVATE_KEYS", KeyKind::Private),
        ("CLOUD_PUBLIC_KEYS", KeyKind::Public),
    ] {
        let text = variables.literal(variable).unwrap_or_default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (org, key) = match entry.split_once('=') {
                Some((name, key)) => (Slug::parse(name), key),
                None => (Some(org.clone()), entry),
            };
            let Some(org) = org.filter(|_| is_key(key)) else {
                return Err(UsageError::redacted(
                    variable,
                    "KEY or ORG=KEY with commas between them, each key of 16 to 256 visible ASCII characters without \
                            `,` and `=`; `edge-runner cloud keys create` makes one",
                ));
            };
            if keys.iter().any(|other| other.key.expose() == key) {
                return Err(UsageError::Combination(format!(
                    "{variable}: the same key is listed twice, or in CLOUD_PRIVATE_KEYS as well; each belongs to one \
                     organization and is of one type"
                )));
            }
            let key = Secret::new(key);
            keys.push(EnvKey { kind, org, key });
        }
    }
    Ok(keys)
}

fn is_key(text: &str) -> bool {
    KEY_CHARS.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && !b",=".contains(&b))
}

/// Parses the pair of variables that signs grants.
fn store_key(variables: &Variables) -> Result<Option<StoreKey>, UsageError> {
    const ID: &str = "CLOUD_STORE_KEY_ID";
    const SECRET: &str = "CLOUD_STORE_SECRET";
    let wrong = |source: &str, wants: String| UsageError::redacted(source, wants);
    match (variables.literal(ID), variables.literal(SECRET)) {
        (None, None) => Ok(None),
        (Some(id), Some(secret)) => {
            // The id is a component of the credential scope, which is separated by slashes.
            if !KEY_ID_CHARS.contains(&id.len()) || !id.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return Err(wrong(ID, "1 to 128 letters and digits".into()));
            }
            if !KEY_CHARS.contains(&secret.len()) || !secret.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(wrong(SECRET, "16 to 256 visible ASCII characters".into()));
            }
            Ok(Some(StoreKey {
                id: id.to_owned(),
                secret: SecretBytes::new(secret),
            }))
        }
        (Some(_), None) => Err(UsageError::Combination(format!("{ID} requires {SECRET}"))),
        (None, Some(_)) => Err(UsageError::Combination(format!("{SECRET} requires {ID}"))),
    }
}
