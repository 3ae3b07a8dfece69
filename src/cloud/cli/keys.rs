//! Resolves the arguments of `cloud keys create`, `list` and `revoke`.
//!
//! In: [`CloudArgs`]. Out: a [`CloudTask`] or a usage error. Source: decision I-03.

use super::CloudTask;
use super::flags::CloudArgs;
use super::scale;
use crate::config::{KeysConfig, KeysTask};
use edge_runner_proto::options::{Env, UsageError, not_unicode};

pub fn create(args: CloudArgs, env: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let Some(kind) = args.kind else {
        return Err(UsageError::Combination(
            "`cloud keys create` needs `--type private` or `--type public`".into(),
        ));
    };
    let task = KeysTask::Create {
        kind,
        org: args.org(),
        name: args.name.clone(),
    };
    keys(args, task, env)
}

pub fn list(args: CloudArgs, env: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let task = KeysTask::List { json: args.json };
    keys(args, task, env)
}

pub fn revoke(mut args: CloudArgs, env: &Env<'_>, _: &mut Vec<String>) -> Result<CloudTask, UsageError> {
    let id = args.argument.take().unwrap_or_default();
    let task = KeysTask::Revoke(id.into_string().map_err(not_unicode)?);
    keys(args, task, env)
}

fn keys(args: CloudArgs, task: KeysTask, env: &Env<'_>) -> Result<CloudTask, UsageError> {
    if let Some(of_database) = scale::keys(&args, &task, env)? {
        return Ok(of_database);
    }
    Ok(CloudTask::Keys(KeysConfig {
        data_dir: args.data_dir("cloud keys")?,
        task,
        verbosity: args.verbosity,
    }))
}
