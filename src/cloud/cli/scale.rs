//! Resolves the options of several machines.
//!
//! In: [`CloudArgs`] and the environment. Out: the parts of a configuration, or a usage error. URLs
//! are not repeated in errors, since they may contain a password. A build without the cargo feature
//! `scale` rejects the options and commands by name.

use std::time::Duration;

use super::CloudTask;
use super::flags::CloudArgs;
use crate::config::{KeysTask, MigrateConfig, Role, SharedConfig, SharedTask, StoreKeys, TransferConfig};
use crate::proto::scale::database_url::{self, DatabaseUrl};
use crate::proto::scale::secret_files;
use crate::proto::scale::sigv4::StoreCredentials;
use crate::proto::scale::store_url::{self, StoreUrl};
use edge_runner_proto::config::{Secret, SecretBytes};
use edge_runner_proto::features::{Feature, MissingFeature};
use edge_runner_proto::options::values::read_file;
use edge_runner_proto::options::{Env, UsageError};

/// Where it is `false`, the compiler leaves out what follows a check.
const IN_THIS_BUILD: bool = Feature::Scale.in_this_build();

const LEASE: Duration = Duration::from_secs(30);

/// Variables of the store's credentials.
const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const KEY_SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";

/// Variables of files with secrets.
const PASSWORD_FILE: &str = "CLOUD_DATABASE_PASSWORD_FILE";
const CREDENTIALS_FILE: &str = "AWS_SHARED_CREDENTIALS_FILE";

/// Returns what the replicas share. `None`: there is one machine.
pub fn shared(
    args: &CloudArgs,
    env: &Env<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Box<SharedConfig>>, UsageError> {
    if !IN_THIS_BUILD {
        return reject_options(args).map(|()| None);
    }
    let (database, store) = match (database(args, env, warnings)?, &args.store) {
        (Some(database), Some(store)) => (database, store),
        (None, None) => {
            return match (args.role.is_some(), args.lease.is_some()) {
                (false, false) => Ok(None),
                (true, _) => Err(alone("`--role`")),
                (false, true) => Err(alone("`--lease`")),
            };
        }
        (Some(_), None) => return Err(belongs("`--database`", "`--store`")),
        (None, Some(_)) => return Err(belongs("`--store`", "`--database`")),
    };
    let store = parse_store(store, warnings)?;
    if args.regions.is_some() {
        return Err(UsageError::Combination(
            "`--regions` is for one machine; with `--database`, `cloud migrate --regions FILE` sets those of all replicas".into(),
        ));
    }
    if let Some(name) = args
        .builder_env
        .iter()
        .find(|name| [KEY_ID, KEY_SECRET, TOKEN].contains(&&***name))
    {
        return Err(UsageError::Combination(format!(
            "`--builder-env {name}` would hand the credentials of `--store` to every build"
        )));
    }
    let role = args.role.unwrap_or(Role::All);
    match (role, args.command.is_some()) {
        (Role::Worker, false) => {
            return Err(UsageError::Combination(
                "`--role worker` needs the builder command after `--`".into(),
            ));
        }
        (Role::Api, true) => {
            return Err(UsageError::Combination(
                "`--role api` runs no builds: give the builder command to the workers".into(),
            ));
        }
        _ => {}
    }
    let credentials = credentials(env)?;
    let files = [
        (PASSWORD_FILE, database.password.is_some()),
        (CREDENTIALS_FILE, credentials.file.is_some()),
    ];
    for (name, _) in files.iter().filter(|(_, is_set)| *is_set && role != Role::Api) {
        warnings.push(format!(
            "{name}: builder commands are of this user, and can read that file; a variable with the secret itself is kept from them"
        ));
    }
    Ok(Some(Box::new(SharedConfig {
        database,
        store,
        credentials,
        role,
        lease: args.lease.unwrap_or(LEASE),
    })))
}

/// Returns the task of `cloud keys`, if a database is named.
pub fn keys(args: &CloudArgs, task: &KeysTask, env: &Env<'_>) -> Result<Option<CloudTask>, UsageError> {
    if !IN_THIS_BUILD {
        return reject_options(args).map(|()| None);
    }
    match database(args, env, &mut Vec::new())? {
        // A data directory in the environment is that of another service.
        Some(_) if args.given.contains(&"--data-dir") => Err(UsageError::Combination(
            "keys are in `--data-dir` or in `--database`, not in both".into(),
        )),
        found => Ok(found.map(|url| shared_task(args, SharedTask::Keys(url, task.clone())))),
    }
}

pub fn migrate(args: CloudArgs, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    if !IN_THIS_BUILD {
        return Err(missing("`cloud migrate`"));
    }
    let database = database(&args, env, warnings)?
        .ok_or_else(|| UsageError::Combination("`cloud migrate` needs `--database URL`, or CLOUD_DATABASE".into()))?;
    let regions = args.regions.as_ref().map(Into::into);
    let config = MigrateConfig { database, regions };
    Ok(shared_task(&args, SharedTask::Migrate(config)))
}

pub fn import(args: CloudArgs, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    transfer("cloud import", SharedTask::Import, &args, env, warnings)
}

pub fn export(args: CloudArgs, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    transfer("cloud export", SharedTask::Export, &args, env, warnings)
}

fn transfer(
    command: &str,
    task: fn(Box<TransferConfig>) -> SharedTask,
    args: &CloudArgs,
    env: &Env<'_>,
    warnings: &mut Vec<String>,
) -> Result<CloudTask, UsageError> {
    if !IN_THIS_BUILD {
        return Err(missing(&format!("`{command}`")));
    }
    let (Some(database), Some(store)) = (database(args, env, warnings)?, &args.store) else {
        return Err(UsageError::Combination(format!(
            "`{command}` needs `--database URL` and `--store URL`, or CLOUD_DATABASE and CLOUD_STORE"
        )));
    };
    let config = TransferConfig {
        data_dir: args.data_dir(command)?,
        database,
        store: parse_store(store, warnings)?,
        credentials: credentials(env)?,
    };
    Ok(shared_task(args, task(Box::new(config))))
}

fn shared_task(args: &CloudArgs, task: SharedTask) -> CloudTask {
    let verbosity = args.verbosity;
    CloudTask::Shared { task, verbosity }
}

/// Rejects the options in a build without the feature.
fn reject_options(args: &CloudArgs) -> Result<(), UsageError> {
    let options = [
        (args.database.is_some(), "`--database`"),
        (args.store.is_some(), "`--store`"),
        (args.role.is_some(), "`--role`"),
        (args.lease.is_some(), "`--lease`"),
    ];
    match options.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(missing(option)),
        None => Ok(()),
    }
}

fn missing(what: &str) -> UsageError {
    UsageError::MissingFeature {
        what: what.to_owned(),
        feature: MissingFeature(Feature::Scale),
    }
}

fn parse_store(text: &str, warnings: &mut Vec<String>) -> Result<StoreUrl, UsageError> {
    let store = StoreUrl::parse(text).ok_or_else(|| UsageError::redacted("--store", store_url::WANTS))?;
    if store.endpoint.is_plain || store.public.is_plain {
        warnings.push("plain HTTP reaches the object store: build contexts and images travel in the clear".into());
    }
    Ok(store)
}

fn database(args: &CloudArgs, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<Option<DatabaseUrl>, UsageError> {
    let Some(text) = &args.database else {
        return Ok(None);
    };
    let mut url = DatabaseUrl::parse(text).ok_or_else(|| UsageError::redacted("--database", database_url::WANTS))?;
    if url.has_password && args.given.contains(&"--database") {
        return Err(UsageError::Combination(
            "the password in `--database` shows in every list of processes: set CLOUD_DATABASE instead".into(),
        ));
    }
    if let Some(path) = env.variables.literal(PASSWORD_FILE) {
        if url.has_password {
            return Err(both("CLOUD_DATABASE", PASSWORD_FILE, "a password"));
        }
        let password = secret_files::password(&read_file(env, PASSWORD_FILE, path)?)
            .ok_or_else(|| UsageError::redacted(PASSWORD_FILE, secret_files::PASSWORD_WANTS))?;
        url.password = Some((password, path.into()));
    }
    if !url.tls && !url.is_local {
        warnings.push("`sslmode=disable`: records and digests of keys travel to the database in the clear".into());
    }
    Ok(Some(url))
}

fn credentials(env: &Env<'_>) -> Result<StoreKeys, UsageError> {
    if let Some(path) = env.variables.literal(CREDENTIALS_FILE) {
        if [KEY_ID, KEY_SECRET, TOKEN]
            .iter()
            .any(|name| env.variables.literal(name).is_some())
        {
            return Err(both(KEY_ID, CREDENTIALS_FILE, "credentials"));
        }
        let at_start = secret_files::credentials(&read_file(env, CREDENTIALS_FILE, path)?)
            .ok_or_else(|| UsageError::redacted(CREDENTIALS_FILE, secret_files::CREDENTIALS_WANTS))?;
        let file = Some(path.into());
        return Ok(StoreKeys { at_start, file });
    }
    let value = |name: &str| {
        let value = env.variables.literal(name).filter(|value| !value.is_empty());
        match value {
            Some(value) if !value.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(UsageError::redacted(name, "visible ASCII characters"))
            }
            value => Ok(value),
        }
    };
    let (Some(id), Some(secret)) = (value(KEY_ID)?, value(KEY_SECRET)?) else {
        return Err(UsageError::Combination(format!(
            "`--store` needs {KEY_ID} and {KEY_SECRET}, or {CREDENTIALS_FILE}"
        )));
    };
    let at_start = StoreCredentials {
        id: id.to_owned(),
        secret: SecretBytes::new(secret),
        token: value(TOKEN)?.map(Secret::new),
    };
    Ok(StoreKeys { at_start, file: None })
}

fn both(one: &str, other: &str, what: &str) -> UsageError {
    UsageError::Combination(format!("{one} and {other} both have {what}; set one of them"))
}

fn belongs(one: &str, other: &str) -> UsageError {
    UsageError::Combination(format!("{one} and {other} belong together"))
}

fn alone(option: &str) -> UsageError {
    UsageError::Combination(format!(
        "{option} is for replicas that share `--database` and `--store`"
    ))
}
